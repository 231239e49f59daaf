// Simulate: a shipped scenario or a gate's present settings, with other numbers, and the plots of a
// strategy beside another's.

import { clearError, clearProblems, showError, showProblems } from '../action.js';
import { ApiError, gateUrl } from '../api.js';
import { createChart } from '../chart.js';
import { createCrosshair } from '../crosshair.js';
import { h, patch, replace, setText } from '../dom.js';
import { duration } from '../format.js';
import { copyButton, copyCurl, empty, failed, foreign, linkButton, loading, pageHead } from '../page.js';
import { withQuery } from '../router.js';
import { MAX_LONG, visible } from '../text.js';
import { figureRows, highest, runText, samplesOf } from './figures.js';

/**
 * @typedef {import('./figures.js').Run} Run
 * @typedef {{ name: string, title: string, text: string, fields: { name: string, label: string, value: string }[] }} Scenario
 * @typedef {{ runs: Run[], command: string }} Result
 */

const DEFAULT = 'o5';
/** How many strategies are compared. */
const PLACES = ['Strategy', 'beside', 'and'];

/** @type {[title: string, height: number, unit: string, lines: import('../plot.js').Line[]][]} */
const CHARTS = [
  ['Rate', 190, 'requests per second', [
    { name: 'capacity', color: 'capacity', area: true },
    { name: 'rate', color: 'rate' },
  ]],
  ['Answers', 150, 'requests per second', [
    { name: 'accepted', color: 'accepted' },
    { name: 'refused', color: 'refused' },
    { name: 'failed', color: 'failed', dashed: true },
  ]],
  ['Latency', 110, 'milliseconds', [{ name: 'latency', color: 'rate' }]],
];

/**
 * @param {HTMLElement} root
 * @param {import('../router.js').Route} route
 * @param {import('../types.js').Console} app
 * @returns {import('../types.js').View}
 */
export function mount(root, route, app) {
  /** @type {Scenario[]} */
  let scenarios = [];
  /** @type {string[]} */
  let strategies = [];
  /** @type {Scenario | null} */
  let chosen = null;
  /** @type {AbortController | null} A run under way. */
  let running = null;
  /** @type {AbortController | null} */
  let choosing = null;
  /** @type {{ destroy: () => void }[]} */
  let charts = [];

  const select = h('select', { id: 'scenario', onchange: () => app.go(withQuery('/simulate', { scenario: select.value })) });
  const gates = h('datalist', { id: 'gates' });
  const gate = h('input', { id: 'gate', type: 'search', list: 'gates', placeholder: 'Key of a gate', oninput: suggest, onchange: chooseGate });
  const note = h('p', { class: 'scenario-name' });
  const fields = h('div', { class: 'scenario-fields' });
  const text = h('pre', { class: 'toml' });
  const copyToml = h('div', { class: 'actions' });
  const places = PLACES.map((label, at) => createPlace(label, at));
  const runButton = h('button', { class: 'button main', type: 'submit', disabled: true, 'data-action': true }, 'Run');
  const cancel = h('button', { class: 'button plain', type: 'button', hidden: true, onclick: () => running?.abort() }, 'Cancel');
  const progress = h('span', { class: 'running', role: 'status' });
  const form = h(
    'form',
    { class: 'card simulate-form', 'aria-label': 'Scenario', novalidate: true, onsubmit: run },
    h('p', { class: 'form-problem', role: 'alert' }),
    h('div', { class: 'simulate-row' },
      h('div', { class: 'field wide' }, h('label', { for: 'scenario' }, 'Scenario'), select),
      h('div', { class: 'field' }, h('label', { for: 'gate' }, 'or gate'), gate, gates)),
    note,
    fields,
    h('div', { class: 'simulate-row' }, ...places.map((place) => place.element)),
    h('details', null, h('summary', null, 'Scenario as TOML'), text, copyToml),
    h('div', { class: 'actions' }, runButton, cancel, progress),
  );
  const results = h('div', { class: 'stack' }, empty('Choose a scenario and press Run.'));
  const body = h('div', { class: 'stack' }, loading('scenarios'));
  root.append(pageHead({ title: 'Simulate', below: h('p', null, 'Tries a scenario in virtual time. Nothing is sent to a server.') }), body);
  load();

  async function load() {
    try {
      ({ scenarios, strategies } = await app.api.get('/api/v1/scenarios'));
    } catch (error) {
      return replace(body, failed(error, load));
    }
    replace(select, scenarios.map(({ name, title }) => h('option', { value: name }, title ? visible(`${name}: ${title}`) : name)));
    places.forEach((place) => place.fill());
    replace(body, form, results);
    return choose(route);
  }

  /** @param {import('../router.js').Route} to */
  async function choose({ query }) {
    choosing?.abort();
    const key = query.get('gate');
    gate.value = key ?? '';
    clearError(gate);
    if (key) return chooseScenario(key);
    const name = query.get('scenario') ?? DEFAULT;
    const found = scenarios.find((scenario) => scenario.name === name);
    if (!found) {
      showError(select, new ApiError(404, { detail: `There is no scenario ${visible(name)}.` }));
      return undefined;
    }
    clearError(select);
    return show(found);
  }

  /** @param {string} key */
  async function chooseScenario(key) {
    const controller = (choosing = new AbortController());
    try {
      const scenario = await app.api.get(`${gateUrl(key)}/scenario`, controller.signal);
      select.selectedIndex = -1;
      show(scenario);
    } catch (error) {
      if (!controller.signal.aborted) showError(gate, error);
    }
  }

  function chooseGate() {
    const key = gate.value.trim();
    if (key) app.go(withQuery('/simulate', { gate: key }));
  }

  async function suggest() {
    try {
      const list = await app.api.get(withQuery('/api/v1/gates', { filter: gate.value, limit: 20 }));
      replace(gates, list.gates.map((/** @type {{ key: string }} */ { key }) => h('option', { value: key })));
    } catch {
      // Without suggestions the key is typed.
    }
  }

  /** @param {Scenario} scenario */
  function show(scenario) {
    chosen = scenario;
    runButton.disabled = running !== null;
    if (!gate.value) select.value = scenario.name;
    clearProblems(form);
    replace(fields);
    patch(fields, scenario.fields, (field) => field.name, createField, () => {});
    setText(text, visible(scenario.text, MAX_LONG, { lines: true }));
    replace(copyToml, copyButton(app, 'Copy as TOML', scenario.text));
    showName();
  }

  /** @param {{ name: string, label: string, value: string }} field */
  function createField({ name, label, value }) {
    const id = `field-${name}`;
    return h('div', { class: 'field' }, h('label', { for: id }, label), h('input', { id, name, value, autocomplete: 'off', spellcheck: 'false', oninput: showName }));
  }

  /** Values that differ from the scenario's. */
  function changes() {
    /** @type {Record<string, string>} */
    const set = {};
    for (const { name, value } of chosen?.fields ?? []) {
      const input = form.elements.namedItem(name);
      if (input instanceof HTMLInputElement && input.value.trim() !== value) set[name] = input.value.trim();
    }
    return set;
  }

  function label() {
    const isChanged = Object.keys(changes()).length > 0;
    return `${visible(chosen?.name ?? '')}${isChanged ? ', changed' : ''}`;
  }

  function showName() {
    const isChanged = Object.keys(changes()).length > 0;
    const isGate = !isShipped();
    note.hidden = !isChanged && !isGate;
    const undo = linkButton('Undo changes', () => chosen && show(chosen));
    replace(note, h('b', null, h('bdi', null, label())), isGate && ` · ${visible(chosen?.title ?? '')}`, isChanged && ' · ', isChanged && undo);
  }

  function isShipped() {
    return scenarios.some((scenario) => scenario === chosen);
  }

  function request() {
    const set = changes();
    /** @type {string[]} */
    const wanted = [];
    for (const place of places) place.addTo(wanted);
    return {
      ...(isShipped() ? { scenario: chosen?.name } : { text: chosen?.text }),
      ...(Object.keys(set).length > 0 && { set }),
      strategies: wanted,
    };
  }

  /** @param {Event} event */
  async function run(event) {
    event.preventDefault();
    if (running || !chosen) return;
    clearProblems(form);
    clearError(runButton);
    const controller = (running = new AbortController());
    const [name, sent] = [label(), request()];
    showRunning(Date.now());
    try {
      showResult(name, sent, await app.api.send('POST', '/api/v1/simulate', sent, controller.signal));
    } catch (error) {
      if (controller.signal.aborted) app.announce('Cancelled.');
      else if (!showProblems(form, error, 'used')) showError(runButton, error);
    } finally {
      running = null;
      showRunning(null);
    }
  }

  /** @param {number | null} since */
  function showRunning(since) {
    runButton.disabled = since !== null;
    cancel.hidden = since === null;
    if (since === null) {
      if (document.activeElement === document.body) runButton.focus();
      return replace(progress);
    }
    cancel.focus();
    const elapsed = h('span', { 'aria-hidden': 'true' });
    replace(progress, h('progress', { 'aria-label': 'Simulating' }), 'Simulating… ', elapsed);
    const tick = () => {
      if (!elapsed.isConnected) return;
      setText(elapsed, duration(Math.floor((Date.now() - since) / 1000) * 1000));
      setTimeout(tick, 1000);
    };
    return tick();
  }

  /**
   * @param {string} name
   * @param {unknown} sent
   * @param {Result} result
   */
  function showResult(name, sent, { runs, command }) {
    for (const chart of charts) chart.destroy();
    charts = [];
    const crosshair = createCrosshair();
    const columns = runs.map((each) => {
      const plots = CHARTS.map(([title, height, unit, lines]) => {
        const series = linesOf(each, lines);
        const names = series.map((line) => line.name);
        const chart = createChart({ title, unit, height, series, crosshair });
        chart.update({ ...samplesOf(each, names), max: highest(runs, lines.map((line) => line.name)) });
        charts.push(chart);
        return chart.element;
      });
      return h('section', { class: 'card', 'aria-label': each.strategy }, h('h3', null, each.strategy), h('p', { class: 'muted' }, runText(each)), ...plots);
    });
    const isFile = command.includes(' scenario.toml');
    const heading = h('h2', { tabindex: '-1' }, h('bdi', null, name));
    replace(
      results,
      heading,
      h('div', { class: 'plots' }, ...columns),
      h('div', { class: 'card table-card' }, figuresTable(runs)),
      h('div', { class: 'actions command' }, h('code', null, foreign(command, 2000)), copyButton(app, 'Copy command', command), copyCurl(app, 'POST', '/api/v1/simulate', sent)),
      isFile && h('p', { class: 'muted small' }, h('code', null, 'scenario.toml'), ' is the scenario as TOML above.'),
    );
    app.announce(`${name}: ${runs.map((each) => `${each.strategy}: ${runText(each)}`).join('. ')}`);
  }

  /**
   * A choice of a strategy; `fixed` has a rate.
   * @param {string} name
   * @param {number} at
   */
  function createPlace(name, at) {
    const id = `strategy-${at}`;
    const list = h('select', { id, onchange: () => (rate.hidden = !hasRate()) });
    const rate = h('input', { class: 'fixed-rate', hidden: true, inputmode: 'decimal', 'aria-label': 'Requests per second' });
    const hasRate = () => list.value.endsWith(':');
    const defaults = ['adaptive', 'aimd', ''];
    return {
      element: h('div', { class: 'field' }, h('label', { for: id }, name), h('div', { class: 'row' }, list, rate)),
      fill() {
        const names = strategies.map((strategy) => strategy.replace(/:.*$/, ':'));
        rate.value = strategies.map((strategy) => /:([\d.]+)$/.exec(strategy)?.[1]).find(Boolean) ?? '10';
        const options = names.map((value) => h('option', { value }, value.replace(/:$/, '')));
        replace(list, at > 0 && h('option', { value: '' }, '–'), options);
        list.value = names.includes(defaults[at]) || at > 0 ? defaults[at] : names[0];
      },
      /**
       * Adds the strategy to those of a request, unless it is there; problems name its place.
       * @param {string[]} wanted
       */
      addTo(wanted) {
        const value = hasRate() ? `${list.value}${rate.value.trim()}` : list.value;
        const isAdded = value !== '' && !wanted.includes(value);
        list.name = isAdded && !hasRate() ? `strategies[${wanted.length}]` : '';
        rate.name = isAdded && hasRate() ? `strategies[${wanted.length}]` : '';
        if (isAdded) wanted.push(value);
      },
    };
  }

  return {
    title: () => 'Simulate',
    isStatic: true,
    onRoute: choose,
    unmount() {
      running?.abort();
      choosing?.abort();
      for (const chart of charts) chart.destroy();
    },
  };
}

/**
 * A strategy without a rate has what was sent in its place.
 * @param {Run} run
 * @param {import('../plot.js').Line[]} lines
 */
function linesOf({ series }, lines) {
  const hasRate = series.rate?.some((/** @type {number | null} */ value) => value !== null) || !series.sent;
  return hasRate ? lines : lines.map((line) => (line.name === 'rate' ? { ...line, name: 'sent' } : line));
}

/**
 * With explicit roles: on a phone its rows are grids.
 * @param {Run[]} runs
 */
function figuresTable(runs) {
  const heads = runs.map(({ strategy }) => h('th', { scope: 'col', role: 'columnheader', class: 'number' }, strategy));
  const rows = figureRows(runs).map(({ label, values }) => {
    const cells = values.map((value) => h('td', { role: 'cell', class: 'number' }, value));
    return h('tr', { role: 'row' }, h('th', { scope: 'row', role: 'rowheader' }, label), ...cells);
  });
  return h(
    'table',
    { class: 'figure-table', role: 'table' },
    h('caption', { class: 'unseen' }, 'Figures'),
    h('thead', { role: 'rowgroup' }, h('tr', { role: 'row' }, h('th', { scope: 'col', role: 'columnheader' }, 'Figure'), ...heads)),
    h('tbody', { role: 'rowgroup' }, ...rows),
  );
}
