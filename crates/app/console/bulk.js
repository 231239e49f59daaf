// An action on many operations: a dry run says what would happen, a person confirms, and the
// result says what was done and what was left out.

import { actionButton } from './action.js';
import { badge, operationState } from './badge.js';
import { openDialog } from './dialog.js';
import { h, replace } from './dom.js';
import { count } from './format.js';
import { failed, foreign, loading } from './page.js';
import { operationPath } from './router.js';

/**
 * @typedef {import('./types.js').Console} Console
 * @typedef {import('./types.js').BulkResult} BulkResult
 * @typedef {'retry' | 'cancel'} BulkAction
 */

/** From here on the number is typed. */
export const TYPED_ABOVE = 1000;

const WORDS = {
  retry: { verb: 'Retry', busy: 'Retrying…', done: 'retried' },
  cancel: { verb: 'Cancel', busy: 'Cancelling…', done: 'cancelled' },
};

/** @type {Record<string, [one: string, many: string]>} */
const LEFT_OUT = {
  not_replay_safe: ['is not replay safe', 'are not replay safe'],
  state: ['is in another state', 'are in another state'],
  changed: ['was changed meanwhile', 'were changed meanwhile'],
  not_found: ['does not exist any more', 'do not exist any more'],
};

/** @param {number} n */
export const operations = (n) => `${count(n)} ${n === 1 ? 'operation' : 'operations'}`;

/**
 * What an action would do: `5 of 162 match: 4 will be retried, 1 is not replay safe and is left out.`
 * @param {BulkAction} action
 * @param {Pick<BulkResult, 'matched' | 'will' | 'left_out'>} result
 * @param {number} total
 */
export function planText(action, { matched, will, left_out: leftOut }, total) {
  const parts = [`${count(will)} will be ${WORDS[action].done}`];
  for (const { reason, count: n } of leftOut) {
    const [one, many] = LEFT_OUT[reason] ?? [`(${reason})`, `(${reason})`];
    parts.push(`${count(n)} ${n === 1 ? `${one} and is` : `${many} and are`} left out`);
  }
  return `${count(matched)} of ${count(total)} match: ${parts.join(', ')}.`;
}

/**
 * `4 retried, 1 left out.`
 * @param {BulkAction} action
 * @param {number} changed
 * @param {number} matched
 */
export function doneText(action, changed, matched) {
  const left = matched - changed;
  return `${count(changed)} ${WORDS[action].done}${left > 0 ? `, ${count(left)} left out` : ''}.`;
}

/**
 * Opens the dialog. `onDone` is called when it was closed, if something may have been changed.
 * @param {Console} app
 * @param {{ action: BulkAction, filter: Record<string, unknown>, total: number, onDone: () => void }} options
 */
export function openBulk(app, { action, filter, total, onDone }) {
  const { verb, busy } = WORDS[action];
  let includeUnsafe = false;
  let mayHaveChanged = false;
  const content = h('div', { class: 'stack' });
  const close = h('button', { class: 'button plain', type: 'button', onclick: () => dialog.close() }, action === 'cancel' ? 'Keep' : 'Cancel');
  const controller = new AbortController();
  const dialog = openDialog({
    title: `${verb} operations?`, body: [content], footer: [close], kind: 'wide',
    onClose() {
      controller.abort();
      if (mayHaveChanged) onDone();
    },
  });
  const footer = /** @type {HTMLElement} */ (close.parentElement);
  plan();

  /**
   * @param {boolean} isDryRun
   * @param {string | null} cursor
   * @returns {Promise<BulkResult>}
   */
  function call(isDryRun, cursor) {
    const body = { filter, dry_run: isDryRun, ...(cursor && { cursor }), ...(includeUnsafe && { include_unsafe: true }) };
    return app.api.send('POST', `/api/v1/operations/${action}`, body, isDryRun ? controller.signal : undefined);
  }

  /**
   * Calls until there is no rest, and adds the results up.
   * @param {boolean} isDryRun
   * @param {(changed: number) => void} [onProgress]
   */
  async function callAll(isDryRun, onProgress) {
    let sum = await call(isDryRun, null);
    while (sum.next_cursor) {
      onProgress?.(sum.changed);
      sum = add(sum, await call(isDryRun, sum.next_cursor));
    }
    return sum;
  }

  async function plan() {
    replace(content, loading('what would happen', 3));
    replace(footer, close);
    try {
      showPlan(await callAll(true));
    } catch (error) {
      if (!controller.signal.aborted) replace(content, failed(error, plan));
    }
  }

  /** @param {BulkResult} result */
  function showPlan(result) {
    const typed = result.will > TYPED_ABOVE ? typedNumber(result.will, (isRight) => (button.disabled = !isRight)) : null;
    const button = actionButton({ label: `${verb} ${operations(result.will)}`, busy, kind: action === 'cancel' ? 'danger' : 'main', run });
    button.disabled = result.will === 0 || typed !== null;
    replace(
      content,
      h('p', null, planText(action, result, total)),
      action === 'cancel' && h('p', { class: 'muted' }, 'What was sent stays done; its answer no longer counts.'),
      unsafeChoice(result),
      list(app, result),
      typed,
    );
    replace(footer, close, button);
    close.focus();
  }

  /** @param {BulkResult} result */
  function unsafeChoice(result) {
    const unsafe = result.left_out.find(({ reason }) => reason === 'not_replay_safe');
    if (action !== 'retry' || (!unsafe && !includeUnsafe)) return null;
    const change = () => {
      includeUnsafe = box.checked;
      plan();
    };
    const box = h('input', { type: 'checkbox', checked: includeUnsafe, onchange: change });
    return h('label', { class: 'check' }, box, 'Retry those that are not replay safe as well. The server may have acted on an earlier attempt, and nothing prevents it from acting twice.');
  }

  async function run() {
    mayHaveChanged = true;
    showDone(await callAll(false, (changed) => app.announce(`${count(changed)} ${WORDS[action].done}`)));
  }

  /** @param {BulkResult} result */
  function showDone(result) {
    const text = doneText(action, result.changed, result.matched);
    app.announce(text);
    replace(content, h('p', { tabindex: '-1' }, text), list(app, result));
    close.textContent = 'Close';
    replace(footer, close);
    close.focus();
  }
}

/**
 * @param {BulkResult} sum
 * @param {BulkResult} next
 * @returns {BulkResult}
 */
export function add(sum, next) {
  const leftOut = new Map(sum.left_out.map(({ reason, count: n }) => [reason, n]));
  for (const { reason, count: n } of next.left_out) leftOut.set(reason, (leftOut.get(reason) ?? 0) + n);
  return {
    ...next,
    matched: sum.matched + next.matched,
    will: sum.will + next.will,
    changed: sum.changed + next.changed,
    left_out: [...leftOut].map(([reason, n]) => ({ reason, count: n })),
    sample: sum.sample,
  };
}

/**
 * The first ten, each with its state, and which of them were left out.
 * @param {Console} app
 * @param {BulkResult} result
 */
function list(app, { sample, matched }) {
  if (sample.length === 0) return null;
  const rows = sample.map((operation) =>
    h(
      'li',
      null,
      h('a', { href: operationPath(operation.id), target: '_blank', rel: 'noopener' }, foreign(operation.id)),
      h('span', { class: 'muted' }, foreign(operation.type, 60), ' · ', foreign(operation.summary, 80)),
      badge(app, operationState(operation, app.clock.now())),
      !operation.replay_safe && h('span', { class: 'muted' }, 'not replay safe'),
    ),
  );
  const more = matched > sample.length && h('p', { class: 'muted' }, `and ${count(matched - sample.length)} more`);
  return h('div', null, h('ul', { class: 'bulk-list' }, ...rows), more);
}

/**
 * @param {number} n
 * @param {(isRight: boolean) => void} onInput
 */
function typedNumber(n, onInput) {
  const input = h('input', { id: 'bulk-number', inputmode: 'numeric', autocomplete: 'off', oninput: () => onInput(isNumber(input.value, n)) });
  return h('div', { class: 'field' }, h('label', { for: 'bulk-number' }, `Type ${count(n)} to confirm`), input);
}

/**
 * Whether this number was typed, with or without separators.
 * @param {string} text
 * @param {number} n
 */
export const isNumber = (text, n) => text.replace(/[\s,.']/g, '') === String(n);
