// Every gate: a table that is filtered, sorted and paged by the server, and live in place.

import { gateState, showStates } from '../badge.js';
import { h, replace, setAttribute, setText } from '../dom.js';
import { count, duration, latency, rate, share, splitUnit } from '../format.js';
import { icon } from '../icons.js';
import { copyCommand, copyCurl, empty, failed, foreign, loading, pageHead } from '../page.js';
import { gatePath, withQuery } from '../router.js';
import { sparkline } from '../sparkline.js';
import { createChips, createPager, createTable } from '../table.js';

/**
 * @typedef {import('../types.js').Gate} Gate
 * @typedef {import('../types.js').GateList} GateList
 * @typedef {import('../types.js').Console} Console
 */

const PAGE = 50;
/** How often the order is renewed. */
const RENEW = 5000;

/**
 * @param {HTMLElement} root
 * @param {import('../router.js').Route} route
 * @param {Console} app
 * @returns {import('../types.js').View}
 */
export function mount(root, route, app) {
  let query = readQuery(route.query);
  /** @type {GateList | null} */
  let list = null;
  /** @type {AbortController | null} */
  let loadingList = null;

  const summary = h('p', null);
  const search = h('input', { type: 'search', id: 'filter', placeholder: 'Filter by key', 'aria-label': 'Filter by key', value: query.filter, oninput: onFilter });
  const chips = createChips('States', (state) => choose({ state, page: 1 }));
  const table = createTable({
    caption: 'Gates', columns: columns(app, refresh), keyOf: (/** @type {Gate} */ gate) => gate.key, onSort: (sort) => choose({ sort, page: 1 }),
  });
  const pager = createPager((by) => choose({ page: query.page + by }));
  const card = h('div', { class: 'card table-card gates' }, loading('gates'));
  root.append(
    pageHead({
      title: 'Gates',
      below: summary,
      actions: [h('div', { class: 'search' }, icon('search'), search, h('kbd', null, '/'))],
    }),
    chips.element,
    card,
    h('div', { class: 'actions page-tools' }, copyCurl(app, 'GET', '/api/v1/gates'), copyCommand(app, 'tidegate gates')),
  );
  refresh();
  const timer = setInterval(renew, RENEW);

  function renew() {
    if (document.hidden || app.isFrozen()) return;
    const isInUse = table.isInUse();
    showNote(isInUse);
    if (!isInUse) refresh();
  }

  async function refresh() {
    loadingList?.abort();
    const controller = (loadingList = new AbortController());
    const { filter, state, sort, page } = query;
    const path = withQuery('/api/v1/gates', { filter, state, sort, limit: PAGE, offset: (page - 1) * PAGE, recent: true });
    try {
      show(await app.api.get(path, controller.signal));
    } catch (error) {
      if (!controller.signal.aborted) replace(card, failed(error, refresh));
    }
  }

  /** @param {GateList} fresh */
  function show(fresh) {
    list = fresh;
    showTotals(fresh.totals);
    if (fresh.gates.length === 0) return replace(card, nothing());
    table.setRows(fresh.gates);
    table.setSort(query.sort);
    const first = (query.page - 1) * PAGE;
    const last = first + fresh.gates.length;
    pager.update(`${count(first + 1)}–${count(last)} of ${count(fresh.total)}`, query.page > 1, last < fresh.total);
    showNote(false);
    if (table.element.parentElement !== card) replace(card, table.element, pager.element);
    app.keysChanged();
  }

  function nothing() {
    if (query.page > 1) return empty('There are no more gates.', link('First page', () => choose({ page: 1 })));
    if (query.filter) return empty(['No gate matches "', foreign(query.filter), '".'], link('Clear filter', clearFilter));
    if (query.state) return empty('No gate is in this state.', link('All gates', () => choose({ state: '' })));
    return empty('No gates yet. A gate appears with the first request to an upstream.');
  }

  function clearFilter() {
    search.value = '';
    choose({ filter: '' });
  }

  /** @param {import('../types.js').GateTotals} totals */
  function showTotals(totals) {
    const parts = [`${count(totals.gates)} ${totals.gates === 1 ? 'gate' : 'gates'}`];
    const add = (/** @type {number} */ n, /** @type {string} */ word) => n > 0 && parts.push(`${count(n)} ${word}`);
    const open = totals.open - totals.isolated;
    add(open, 'open');
    add(totals.half_open, 'half-open');
    add(totals.held, 'held');
    add(totals.isolated, 'isolated');
    parts.push(`${count(totals.waiting)} requests waiting`);
    setText(summary, parts.join(' · '));
    const attention = totals.open + totals.half_open + totals.held;
    chips.update(
      [
        { id: '', label: 'All', count: count(totals.gates) },
        { id: 'attention', label: 'Attention', count: count(attention) },
        { id: 'open', label: 'Open', count: count(open), picture: icon('open') },
        { id: 'half_open', label: 'Half-open', count: count(totals.half_open), picture: icon('half') },
        { id: 'held', label: 'Held', count: count(totals.held), picture: icon('hourglass') },
        { id: 'isolated', label: 'Isolated', count: count(totals.isolated), picture: icon('lock') },
      ],
      query.state,
    );
  }

  /** @param {boolean} isPaused */
  function showNote(isPaused) {
    if (isPaused) replace(pager.note, 'Order paused · ', link('Sort now', refresh));
    else setText(pager.note, `Order updates every ${duration(RENEW)}, paused while the pointer is on the table`);
  }

  function onFilter() {
    query = { ...query, filter: search.value, page: 1 };
    history.replaceState(null, '', address());
    refresh();
  }

  /** @param {Partial<ReturnType<typeof readQuery>>} change */
  function choose(change) {
    query = { ...query, ...change };
    app.go(address());
  }

  function address() {
    const { filter, state, sort, page } = query;
    return withQuery('/gates', { state, filter, sort: sort === 'accepted' ? '' : sort, page: page === 1 ? '' : page });
  }

  return {
    title: () => 'Gates',
    keys: () => list?.gates.map((gate) => gate.key) ?? [],
    onSample(sample) {
      if (!list) return;
      showTotals(sample.totals);
      const recent = new Map(list.gates.map((gate) => [gate.key, gate.recent]));
      table.updateRows(sample.gates.map((gate) => ({ ...gate, recent: recent.get(gate.key) ?? null })));
      table.markGone(new Set(sample.gates.map((gate) => gate.key)));
    },
    refresh,
    onRoute(next) {
      query = readQuery(next.query);
      if (search.value !== query.filter) search.value = query.filter;
      refresh();
    },
    shortcuts: {
      '/': () => search.focus(),
      j: () => table.move(1),
      k: () => table.move(-1),
      s: refresh,
      '[': () => query.page > 1 && choose({ page: query.page - 1 }),
      ']': () => list && query.page * PAGE < list.total && choose({ page: query.page + 1 }),
    },
    unmount() {
      clearInterval(timer);
      loadingList?.abort();
    },
  };
}

/** @param {URLSearchParams} query */
function readQuery(query) {
  return {
    filter: query.get('filter') ?? '',
    state: query.get('state') ?? '',
    sort: query.get('sort') ?? 'accepted',
    page: Math.max(1, Math.trunc(Number(query.get('page'))) || 1),
  };
}

/**
 * @param {string} label
 * @param {() => void} run
 */
const link = (label, run) => h('button', { class: 'link', type: 'button', onclick: run }, label);

/**
 * @param {Console} app
 * @param {() => void} refresh
 * @returns {import('../table.js').Column<Gate>[]}
 */
export function columns(app, refresh) {
  return [
    { id: 'key', label: 'Key', sort: 'key', show: showKey },
    { id: 'state', label: 'State', show: (cell, gate) => showStates(app, cell, [gateState(gate, app.clock.now())], refresh) },
    number('rate', 'Rate', 'rate', (gate) => rate(gate.rate_per_second)),
    { id: 'recent', label: 'Last 60 s', isNumber: true, on: 'wide', show: showRecent },
    number('accepted', 'Accepted', 'accepted', (gate) => rate(gate.accepted_per_second)),
    number('refused', 'Refused', 'refused', (gate) => rate(gate.refused_per_second)),
    number('in-flight', 'In flight', 'in_flight', (gate) => count(gate.in_flight), 'wide'),
    number('waiting', 'Waiting', 'waiting', (gate) => count(gate.waiting)),
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
 * @returns {import('../table.js').Column<Gate>}
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
    cell.append(h('a', { href: gatePath(gate.key) }, foreign(gate.key)), h('p', { class: 'muted small why' }));
  }
  const why = cell.lastElementChild;
  if (!why) return;
  setText(why, gate.why);
  setAttribute(why, 'title', gate.why);
}

/**
 * @param {HTMLTableCellElement} cell
 * @param {Gate} gate
 */
function showRecent(cell, gate) {
  const values = gate.recent ?? [];
  const signature = values.join();
  if (cell.dataset.values === signature) return;
  cell.dataset.values = signature;
  replace(cell, values.length > 0 ? sparkline(values, { width: 96, height: 24 }) : '–');
}
