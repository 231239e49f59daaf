// One operation: what it waits for and until when, its attempts on a time line, and what a person
// can do. While it is in conflict the page is the conflict desk.

import { actionButton } from '../action.js';
import { ApiError, operationUrl } from '../api.js';
import { operationState, showStates } from '../badge.js';
import { confirmAction } from '../dialog.js';
import { h, render, replace } from '../dom.js';
import { duration } from '../format.js';
import { RENEW_MS } from '../order.js';
import { copyCommand, copyCurl, empty, every, failed, foreign, loading, pageHead, quote, timeOf } from '../page.js';
import { createTable } from '../table.js';
import { COLUMNS, drawTimeline, withWaits } from './attempts.js';
import { attemptsText, delaysText, endText, isCancellable, isRetryable, keyLink, safetyText, waitingNodes } from './operation_text.js';

/**
 * @typedef {import('../types.js').Operation} Operation
 * @typedef {import('../types.js').Console} Console
 */

/**
 * @param {HTMLElement} root
 * @param {import('../router.js').Route} route
 * @param {Console} app
 * @returns {import('../types.js').View}
 */
export function mount(root, { id }, app) {
  /** @type {ReturnType<typeof createPage> | null} */
  let page = null;
  /** @type {ReturnType<typeof import('./conflict.js').mountDesk> | null} */
  let desk = null;
  let counts = '';
  /** Numbers of the last fetch, and of the last that was shown. */
  let [asked, shown] = [0, 0];
  const controller = new AbortController();
  root.append(headOf(id), loading('operation', 4));
  load();
  const stop = every(RENEW_MS, () => app.isFrozen() || load());

  /** After an action, what was asked for before it is out of date. */
  function reload() {
    shown = asked + 1;
    load();
  }

  async function load() {
    const number = (asked += 1);
    try {
      const operation = await app.api.get(operationUrl(id), controller.signal);
      if (number < shown) return;
      shown = number;
      await show(operation);
    } catch (error) {
      if (controller.signal.aborted) return;
      const isGone = error instanceof ApiError && error.status === 404;
      // What was typed on the conflict desk stays.
      if (desk) return isGone && desk.ended(null);
      if (isGone) {
        page = null;
        build(() => replace(root, gone(id)));
      } else if (!page) build(() => replace(root, headOf(id), failed(error, load)));
    }
  }

  /** @param {Operation} operation */
  async function show(operation) {
    if (operation.state === 'conflict') {
      const { mountDesk } = await import('./conflict.js');
      if (controller.signal.aborted || desk) return;
      page = null;
      build(() => (desk = mountDesk(root, operation, app, showOperation)));
    } else if (desk) desk.ended(operation);
    else {
      if (!page) build(() => (page = createPage(root, operation, app, reload)));
      page?.show(operation);
    }
  }

  /**
   * Replaces the page; the focus that was in it goes to the heading.
   * @param {() => void} make
   */
  function build(make) {
    const hasFocus = root.contains(document.activeElement);
    make();
    if (hasFocus) focusHeading(root);
  }

  /** Leaves the conflict desk. */
  function showOperation() {
    desk?.unmount();
    desk = null;
    load();
  }

  return {
    title: () => id,
    onSample(sample) {
      page?.tick();
      const fresh = JSON.stringify(sample.operations);
      if (counts !== '' && fresh !== counts) load();
      counts = fresh;
    },
    refresh() {
      load();
      desk?.refresh();
    },
    onRoute() {},
    get shortcuts() {
      return desk?.shortcuts ?? {};
    },
    unmount() {
      stop();
      controller.abort();
      desk?.unmount();
    },
  };
}

/**
 * If what had the focus is gone.
 * @param {HTMLElement} root
 */
function focusHeading(root) {
  if (document.activeElement === document.body) root.querySelector('h1')?.focus({ preventScroll: true });
}

/** @param {string} id */
const headOf = (id) => pageHead({ title: foreign(id), before: [h('a', { href: '/operations' }, 'Operations')] });

/** @param {string} id */
function gone(id) {
  return [
    pageHead({ title: 'Operation not found', before: [h('a', { href: '/operations' }, 'Operations')] }),
    h('div', { class: 'card' }, empty(['There is no operation ', foreign(id), '. Finished ones are forgotten after a while.'], h('a', { class: 'button plain', href: '/operations' }, 'All operations'))),
  ];
}

/**
 * @param {HTMLElement} root
 * @param {Operation} first
 * @param {Console} app
 * @param {() => void} reload
 */
function createPage(root, first, app, reload) {
  let operation = first;
  const state = h('span', null);
  const actions = h('div', { class: 'actions' });
  const sentence = h('p', { class: 'sentence' });
  const facts = h('dl', { class: 'facts' });
  const timeline = h('div', { class: 'timeline', 'aria-hidden': 'true' });
  const table = createTable({ caption: 'Attempts, newest first', columns: COLUMNS, keyOf: (row) => String(row.attempt.at_ms) });
  const list = h('div', null);
  const head = pageHead({
    title: foreign(first.id),
    before: [h('a', { href: '/operations' }, 'Operations')],
    below: h('p', { class: 'row' }, foreign(first.type), state),
  });
  head.lastElementChild?.replaceWith(actions);
  replace(
    root,
    head,
    h('div', { class: 'stack' }, h('div', { class: 'card stack' }, sentence, facts), h('section', { class: 'card table-card attempts' }, h('h2', null, 'Attempts'), timeline, list)),
    h('div', { class: 'actions page-tools' }, copyCurl(app, 'GET', operationUrl(first.id)), copyCommand(app, `tidegate ops show ${quote(first.id)}`)),
  );

  /** @param {'retry' | 'cancel'} what */
  const call = async (what) => {
    operation = { ...operation, ...(await app.api.send('POST', `${operationUrl(operation.id)}/${what}`)) };
    showAll();
    focusHeading(root);
    reload();
  };

  function showActions() {
    const { id, state: present, replay_safe: isSafe } = operation;
    render(actions, [present, isSafe], () => {
      const label = present === 'retryable' ? 'Send now' : 'Retry';
      const again = isSafe ? actionButton({ label, busy: 'Sending…', kind: 'main', run: () => call('retry') }) : askButton(label, () => confirmRetry(id), 'main');
      return [isRetryable(present) && again, isCancellable(present) && askButton('Cancel', () => confirmCancel(id))];
    });
  }

  /** @param {Parameters<typeof confirmAction>[0]} question */
  const ask = async (question) => {
    await confirmAction(question);
    focusHeading(root);
  };

  /** @param {string} id */
  const confirmRetry = (id) =>
    ask({
      title: `Send ${id} again?`, action: 'Send again', busy: 'Sending…', isDangerous: true, run: () => call('retry'),
      body: ['The server may have acted on an earlier attempt, and nothing prevents it from acting twice.'],
    });

  /** @param {string} id */
  const confirmCancel = (id) =>
    ask({
      title: `Cancel ${id}?`, action: 'Cancel operation', busy: 'Cancelling…', keep: 'Keep', isDangerous: true, run: () => call('cancel'),
      body: ['What was sent stays done; its answer no longer counts.'],
    });

  function showAll() {
    const now = app.clock.now();
    showStates(app, state, [operationState(operation, now)], reload);
    showActions();
    const { state: present, next_at_ms: next, waiting_for: waiting, reason, blocked, ended_at_ms: ended } = operation;
    render(sentence, [present, next, next !== null && next > now, waiting, reason, blocked, ended], () => sentenceOf(app, operation, reload));
    render(facts, factsOf(operation), () => factsOf(operation).map(([name, value]) => h('div', null, h('dt', null, name), h('dd', null, factValue(value, now)))));
    tick();
    const rows = withWaits(operation).map((row) => ({ ...row, now })).reverse();
    if (rows.length === 0) return replace(list, empty('It has not been sent yet.'));
    table.setRows(rows);
    if (table.element.parentElement !== list) replace(list, table.element);
  }

  /** Time goes on. */
  function tick() {
    drawTimeline(timeline, operation, app.clock.now());
  }

  return {
    tick,
    /** @param {Operation} fresh */
    show(fresh) {
      operation = fresh;
      showAll();
    },
  };
}

/**
 * A button that asks before it acts.
 * @param {string} label
 * @param {() => void} ask
 */
const askButton = (label, ask, kind = 'plain') => h('button', { class: `button ${kind}`, type: 'button', 'data-action': true, onclick: ask }, label);

/**
 * What it waits for and until when, or how it ended.
 * @param {Console} app
 * @param {Operation} operation
 * @param {() => void} reload
 */
function sentenceOf(app, operation, reload) {
  const now = app.clock.now();
  const { state, next_at_ms: next, ended_at_ms: ended } = operation;
  const at = ended === null ? [] : [' at ', timeOf(ended, now)];
  switch (state) {
    case 'running':
      return ['It is being sent now.'];
    case 'completed':
      return ['Delivered', ...at, '.'];
    case 'cancelled':
      return ['Cancelled', ...at, '. It is not sent any more.'];
    case 'failed':
    case 'conflict':
      return ['Failed', ...at, '. ', endText(operation.reason), ' It needs a decision: retry or cancel it.'];
    default: {
      const waiting = waitingNodes(operation);
      const why = waiting.length > 0 ? [': ', ...waiting, '.'] : ['.'];
      if (next === null || next <= now) return [waiting.length > 0 ? 'Due' : 'Due now', ...why];
      const left = h('b', { role: 'timer' });
      app.countdown(left, next, duration, reload);
      return ['Next attempt in ', left, ' (', timeOf(next, now), ')', ...why];
    }
  }
}

/**
 * @param {Operation} operation
 * @returns {[name: string, value: string | { at: number } | { key: string }][]}
 */
function factsOf(operation) {
  const { key, summary, delays, accepted_at_ms: accepted, expires_at_ms: expires } = operation;
  /** @type {[string, string | { at: number } | { key: string } | null][]} */
  const all = [
    ['Attempts', attemptsText(operation)],
    ['Safe to send again', safetyText(operation)],
    ['Request', summary],
    ['Destination', { key }],
    ['Accepted', { at: accepted }],
    ['Expires', expires === null ? null : { at: expires }],
    ['Backoff', delays ? delaysText(delays) : null],
    ['Credential', operation.credential],
    ['Order key', operation.order_key],
    ['Priority', operation.priority === 0 ? null : String(operation.priority)],
    ['Trace ID', operation.trace_id],
  ];
  return /** @type {ReturnType<typeof factsOf>} */ (all.filter(([, value]) => value !== null));
}

/**
 * @param {string | { at: number } | { key: string }} value
 * @param {number} now
 */
function factValue(value, now) {
  if (typeof value === 'string') return foreign(value);
  return 'at' in value ? timeOf(value.at, now) : keyLink(value.key);
}
