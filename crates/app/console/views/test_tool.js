// The test tool: what a pool's protection would do, played on a copy of an endpoint.

import { actionButton, clearError } from '../action.js';
import { poolUrl } from '../api.js';
import { pausedStates, showStates } from '../badge.js';
import { h, replace, setText } from '../dom.js';
import { duration } from '../format.js';
import { icon } from '../icons.js';
import { visible } from '../text.js';
import { createTable } from '../table.js';
import { pauseText } from './protection.js';

/**
 * @typedef {import('../types.js').Protection} Protection
 * @typedef {import('../types.js').TestStep} TestStep
 * @typedef {TestStep & { number: number }} Row
 */

/** Between two rows. */
const STEP = 400;

/** @type {[scenario: string, label: (protection: Protection) => string][]} */
export const SCENARIOS = [
  ['single_error', ({ pauses }) => `Single error (${pauseText(pauses[0] ?? '')})`],
  ['repeated_errors', () => 'Repeated errors (3x)'],
  ['success_recovery', () => 'Success recovery'],
  ['auto_disable', ({ disable_after: after }) => `Auto-disable (${after}x)`],
];

/**
 * @param {import('../types.js').Console} app
 * @param {string} pool
 */
export function createTestTool(app, pool) {
  /** Counts runs: rows of an earlier one are not shown any more. */
  let runs = 0;
  /** @type {Row[]} */
  let rows = [];

  const buttons = h('div', { class: 'actions' });
  const reset = h('button', { class: 'button plain', type: 'button', disabled: true, onclick: clear }, 'Reset');
  const states = h('span', null);
  const note = h('p', { class: 'note', hidden: true }, 'Protection is off for this pool now: its endpoints are neither paused nor disabled.');
  const results = h('div', { hidden: true });
  const table = createTable({ caption: `Results of the test tool: ${visible(pool, 80)}`, columns: columns(), keyOf: (/** @type {Row} */ row) => String(row.number) });
  const id = `test-tool-${pool}`;
  const element = h(
    'section',
    { class: 'card test-tool', 'aria-labelledby': id },
    h('header', null, h('h3', { id }, `Test tool: ${visible(pool, 80)}`), h('p', { class: 'muted small' }, 'No real API calls - completely simulated.')),
    h('div', { class: 'row test-buttons' }, buttons, reset),
    results,
    h('p', { class: 'muted small' }, 'No token consumption. Saved settings; live endpoints untouched.'),
  );
  results.append(h('p', { class: 'row' }, h('span', null, 'Simulated endpoint'), states), note, table.element);

  /** @param {string} scenario */
  async function run(scenario) {
    const number = (runs += 1);
    const answer = await app.api.send('POST', `${poolUrl(pool)}/test`, { scenario });
    if (number !== runs) return;
    note.hidden = answer.protected;
    play(number, answer.steps, matchMedia('(prefers-reduced-motion: reduce)').matches ? 0 : STEP);
  }

  /**
   * @param {number} number
   * @param {TestStep[]} steps
   * @param {number} delay
   */
  function play(number, steps, delay) {
    const shown = delay === 0 ? steps.length : 1;
    show(steps.slice(0, shown));
    reset.disabled = false;
    if (shown === steps.length) return tell(steps);
    const timer = setInterval(() => {
      if (number !== runs || !element.isConnected) return clearInterval(timer);
      show(steps.slice(0, rows.length + 1));
      if (rows.length < steps.length) return;
      clearInterval(timer);
      tell(steps);
    }, delay);
  }

  /** @param {TestStep[]} steps */
  function show(steps) {
    rows = steps.map((step, at) => ({ ...step, number: at + 1 }));
    results.hidden = rows.length === 0;
    table.setRows(rows);
    const last = steps.at(-1);
    if (last) showStates(app, states, copyStates(last));
  }

  /** @param {TestStep[]} steps */
  function tell(steps) {
    const last = steps.at(-1);
    if (last) app.announce(`${steps.length} ${steps.length === 1 ? 'request' : 'requests'} played. Simulated endpoint: ${afterwards(last)}.`);
  }

  function clear() {
    runs += 1;
    rows = [];
    results.hidden = true;
    reset.disabled = true;
    table.setRows([]);
    for (const button of buttons.querySelectorAll('button')) clearError(button);
    buttons.querySelector('button')?.focus();
  }

  /** @type {string} */
  let labels = '';

  return {
    element,
    /** @param {Protection} protection */
    update(protection) {
      const texts = SCENARIOS.map(([, label]) => label(protection));
      if (labels === texts.join()) return;
      labels = texts.join();
      replace(buttons, SCENARIOS.map(([scenario], at) => actionButton({ label: texts[at], busy: texts[at], run: () => run(scenario) })));
    },
  };
}

/** @returns {import('../table.js').Column<Row>[]} */
function columns() {
  return [
    { id: 'step', label: '#', isNumber: true, show: (cell, row) => setText(cell, row.number) },
    { id: 'at', label: 'At', isNumber: true, show: (cell, row) => setText(cell, duration(row.at_ms)) },
    { id: 'answer', label: 'Answer', isNumber: true, show: (cell, row) => setText(cell, row.status === null ? 'not sent' : `HTTP ${row.status}`) },
    { id: 'errors', label: 'Errors in a row', isNumber: true, show: (cell, row) => setText(cell, row.consecutive_errors) },
    { id: 'after', label: 'Endpoint afterwards', show: showAfter },
  ];
}

/**
 * @param {HTMLTableCellElement} cell
 * @param {Row} row
 */
function showAfter(cell, row) {
  const picture = !row.enabled ? 'crossed' : row.paused ? 'clock' : 'check';
  replace(cell, h('span', { class: 'after' }, icon(picture), afterwards(row)));
}

/**
 * @param {TestStep} step
 */
export function afterwards({ event, enabled, paused, pause_ms: pause }) {
  if (!enabled) return event === 'not_sent' || !paused ? 'disabled' : `paused for ${duration(pause)} and disabled`;
  return paused ? `paused for ${duration(pause)}` : 'active';
}

/**
 * The badges of the copy. Its time does not pass: the pause is shown as long as it is.
 * @param {TestStep} step
 * @returns {import('../badge.js').State[]}
 */
export function copyStates({ enabled, paused, pause_ms: pause, consecutive_errors: errors }) {
  if (!enabled) return [{ word: 'Disabled', picture: 'crossed', tone: 'off' }];
  if (!paused) return [{ word: 'Active', picture: 'check', tone: 'ok' }];
  const [badge, ...others] = pausedStates(0, errors);
  return [{ ...badge, word: `${badge.word} ${duration(pause)}`, until: null }, ...others];
}
