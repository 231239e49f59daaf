// Rows of gates, for Gates and Overview: fetched and ordered by the server, live in place.

import { ApiError } from '../api.js';
import { gateState, showStates } from '../badge.js';
import { h, replace, setAttribute, setText } from '../dom.js';
import { count, duration, latency, rate, share, splitUnit } from '../format.js';
import { RENEW_MS, arrange, countNew } from '../order.js';
import { every, failed, foreign, linkButton, loading } from '../page.js';
import { gatePath } from '../router.js';
import { sparkline } from '../sparkline.js';
import { createTable } from '../table.js';
import { visible } from '../text.js';

/**
 * @typedef {import('../types.js').Gate} Gate
 * @typedef {import('../types.js').GateList} GateList
 * @typedef {import('../types.js').Console} Console
 * @typedef {import('../table.js').Column<Gate>} Column
 */

/**
 * @param {Console} app
 * @param {object} options
 * @param {string} options.caption
 * @param {() => string} options.path The call that returns the rows.
 * @param {() => Node} options.nothing What is shown without rows.
 * @param {boolean} [options.isShort] Only the columns that say most.
 * @param {(sort: string) => void} [options.onSort]
 * @param {(list: GateList) => void} [options.onList] The rows were ordered anew.
 * @param {HTMLElement} [options.footer]
 * @param {HTMLElement} [options.note] Whether the order is paused.
 */
export function createGateTable(app, { caption, path, nothing, isShort = false, onSort, onList, footer, note }) {
  /** @type {GateList | null} As ordered last. */
  let list = null;
  /** @type {Set<string>} Keys of the rows that the last sample did not have. */
  let absent = new Set();
  /** @type {Set<string>} Those that two did not have: the first may be of a stream with other gates. */
  let gone = new Set();
  /** @type {AbortController | null} */
  let loadingList = null;

  const table = createTable({ caption, columns: columns(app, isShort, refresh), keyOf: (/** @type {Gate} */ gate) => gate.key, ...(onSort && { onSort }) });
  const card = h('div', { class: 'card table-card gates' }, loading('gates'));
  const stop = every(RENEW_MS, () => app.isFrozen() || refresh());
  sortNow();

  /** Fetches the rows, and moves them unless they are in use. */
  function refresh() {
    load(false);
  }

  function sortNow() {
    load(true);
  }

  /** @param {boolean} isForced */
  async function load(isForced) {
    loadingList?.abort();
    const controller = (loadingList = new AbortController());
    try {
      const fresh = await app.api.get(path(), controller.signal);
      if (!controller.signal.aborted) show(fresh, !isForced && table.isInUse());
    } catch (error) {
      // Without an answer the last known rows stay: the bar above says that the connection is lost.
      const isLost = error instanceof ApiError && error.status === 0 && list;
      if (!controller.signal.aborted && !isLost) replace(card, failed(error, sortNow));
    }
  }

  /**
   * @param {GateList} fresh
   * @param {boolean} isPaused
   */
  function show(fresh, isPaused) {
    const shown = list?.gates.map((gate) => gate.key) ?? [];
    const { added } = arrange(shown, fresh.gates.map((gate) => gate.key), isPaused);
    if (isPaused && list) {
      table.updateRows(fresh.gates);
      showNote(countNew(list.total, fresh.total, { keys: shown, added, gone }));
      return;
    }
    list = fresh;
    gone = absent = new Set();
    if (fresh.gates.length === 0) replace(card, nothing());
    else {
      table.setRows(fresh.gates);
      table.markGone(new Set(fresh.gates.map((gate) => gate.key)));
      if (table.element.parentElement !== card) replace(card, table.element, footer);
    }
    if (note) setText(note, isShort ? '' : `Order updates every ${duration(RENEW_MS)}, paused while the pointer is on the table`);
    onList?.(fresh);
    app.keysChanged();
  }

  /** @param {number} added */
  function showNote(added) {
    if (!note) return;
    const text = added > 0 ? `${count(added)} new · ` : 'Order paused · ';
    const label = added > 0 ? 'Show' : 'Sort now';
    if (note.textContent !== text + label) replace(note, text, linkButton(label, sortNow));
  }

  return {
    element: card,
    table,
    refresh,
    sortNow,
    keys: () => list?.gates.map((gate) => gate.key) ?? [],
    /** @param {import('../types.js').Sample} sample */
    onSample({ gates }) {
      if (!list) return;
      const recent = new Map(list.gates.map((gate) => [gate.key, gate.recent]));
      const present = new Set(gates.map((gate) => gate.key));
      table.updateRows(gates.map((gate) => ({ ...gate, recent: recent.get(gate.key) ?? null })));
      const missing = list.gates.map((gate) => gate.key).filter((key) => !present.has(key));
      gone = new Set(missing.filter((key) => absent.has(key)));
      absent = new Set(missing);
      table.markGone(new Set([...recent.keys()].filter((key) => !gone.has(key))));
    },
    unmount() {
      stop();
      loadingList?.abort();
    },
  };
}

/**
 * @param {Console} app
 * @param {boolean} isShort
 * @param {() => void} refresh
 * @returns {Column[]}
 */
function columns(app, isShort, refresh) {
  /** @type {Column[]} */
  const most = [
    { id: 'key', label: 'Key', sort: 'key', show: showKey },
    { id: 'state', label: 'State', sort: 'until', show: (cell, gate) => showStates(app, cell, [gateState(gate, app.clock.now())], refresh) },
    number('rate', 'Rate', 'rate', (gate) => rate(gate.rate_per_second)),
    { id: 'recent', label: 'Last 60 s', isNumber: true, on: 'wide', show: showRecent },
    number('accepted', 'Accepted', 'accepted', (gate) => rate(gate.accepted_per_second)),
    number('refused', 'Refused', 'refused', (gate) => rate(gate.refused_per_second)),
    number('waiting', 'Waiting', 'waiting', (gate) => count(gate.waiting)),
  ];
  if (isShort) return most;
  most.splice(6, 0, number('in-flight', 'In flight', 'in_flight', (gate) => count(gate.in_flight), 'wide'));
  return [
    ...most,
    number('p95', 'p95', 'p95', (gate) => latency(gate.latency_ms.p95), 'wide'),
    number('errors', 'Errors', 'error_rate', (gate) => share(gate.error_rate), 'wide'),
  ];
}

/**
 * @param {string} id
 * @param {string} label
 * @param {string} sort
 * @param {(gate: Gate) => string} text
 * @param {'wide'} [on]
 * @returns {Column}
 */
function number(id, label, sort, text, on) {
  return { id, label, sort, isNumber: true, ...(on && { on }), show: (cell, gate) => showNumber(cell, text(gate)) };
}

/**
 * A number with its unit set apart, zero in grey.
 * @param {HTMLElement} cell
 * @param {string} text
 */
export function showNumber(cell, text) {
  if (cell.textContent === text) return;
  const [value, unit] = splitUnit(text);
  cell.classList.toggle('zero', Number(value) === 0);
  replace(cell, value, unit && h('span', { class: 'unit' }, unit));
}

/**
 * @param {HTMLTableCellElement} cell
 * @param {Gate} gate
 */
function showKey(cell, gate) {
  if (!cell.firstElementChild) {
    cell.append(h('a', { href: gatePath(gate.key), title: visible(gate.key, 2000) }, foreign(gate.key)), h('p', { class: 'muted small why' }));
  }
  const why = cell.lastElementChild;
  if (!why) return;
  setText(why, visible(gate.why));
  setAttribute(why, 'title', visible(gate.why));
}

/**
 * @param {HTMLTableCellElement} cell
 * @param {Gate} gate
 */
function showRecent(cell, { recent }) {
  const line = /** @type {ReturnType<typeof sparkline> | null} */ (cell.firstElementChild);
  if (!recent) line ? line.remove() : setText(cell, '–');
  else if (line) line.update(recent);
  else replace(cell, sparkline(recent, { width: 96, height: 24 }));
}
