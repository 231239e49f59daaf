// Every operation: by state with counts, filtered and paged by the server, newest first. Selecting
// rows pauses updates until the selection is cleared.

import { errorText } from '../action.js';
import { OPERATIONS, operationState, showStates } from '../badge.js';
import { h, render, replace, setText } from '../dom.js';
import { count } from '../format.js';
import { icon } from '../icons.js';
import { RENEW_MS } from '../order.js';
import { copyCommand, copyCurl, empty, every, failed, foreign, linkButton as link, loading, pageHead, quote, timeOf } from '../page.js';
import { operationPath, withQuery } from '../router.js';
import { createChips, createPager, createTable } from '../table.js';
import { createFilters } from './operation_filters.js';
import { attemptsShort, isCancellable, isRetryable, shortSummary, waitingNodes, waitingWords } from './operation_text.js';

/**
 * @typedef {import('../types.js').Operation} Operation
 * @typedef {import('../types.js').OperationList} OperationList
 * @typedef {import('../types.js').OperationCounts} OperationCounts
 * @typedef {import('../types.js').OperationState} OperationState
 * @typedef {import('../types.js').Console} Console
 * @typedef {ReturnType<typeof readQuery>} Query
 */

const PAGE = 50;
/** After the last key in a field. */
const TYPING = 250;
/** Those that wait for a person. */
const DECISION = 'failed,conflict';
const STATES = /** @type {OperationState[]} */ (['available', 'running', 'retryable', 'conflict', 'failed', 'completed', 'cancelled']);

/** Which page a cursor was reached from; a cursor itself only leads on. @type {Map<string, string>} */
const before = new Map();
const MAX_REMEMBERED = 1000;

/**
 * @param {string} cursor
 * @param {string} from
 */
function remember(cursor, from) {
  if (before.size >= MAX_REMEMBERED) before.clear();
  before.set(cursor, from);
}

/**
 * @param {HTMLElement} root
 * @param {import('../router.js').Route} route
 * @param {Console} app
 * @returns {import('../types.js').View}
 */
export function mount(root, route, app) {
  let query = readQuery(route.query);
  /** @type {OperationList | null} What is shown. */
  let list = null;
  /** @type {OperationCounts | null} */
  let counts = null;
  /** Counts at the last fetch. */
  let fetched = '';
  /** The address of what is shown. */
  let shown = '';
  /** The selection is everything that matches, not only what is on this page. */
  let isWhole = false;
  /** @type {AbortController | null} */
  let fetching = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let typing;

  const chips = createChips('States', (state) => choose({ state: state === query.state ? '' : state }));
  const filters = createFilters(app, query, onFilter);
  const table = createTable({
    caption: 'Operations', columns: columns(app, poll), keyOf: (/** @type {Operation} */ operation) => operation.id,
    nameOf: (operation) => operation.id, onSelect,
  });
  const pager = createPager((by) => page(by));
  const card = h('div', { class: 'card table-card operations' }, loading('operations'));
  const bar = h('div', { class: 'selection-bar actions', hidden: true });
  const tools = h('div', { class: 'actions page-tools' });
  root.append(pageHead({ title: 'Operations' }), chips.element, filters.element, card, bar, tools);
  showTools();
  fetchPage(false);
  const stop = every(RENEW_MS, poll);

  /** Fetches the page again, unless it is to stay as it is or is being fetched. */
  function poll() {
    if (!fetching && !app.isFrozen() && table.selected.size === 0) fetchPage(isInUse());
  }

  const isInUse = () => list !== null && table.isInUse();

  /** @param {boolean} keepsRows Values change, but no row moves. */
  async function fetchPage(keepsRows) {
    fetching?.abort();
    const controller = (fetching = new AbortController());
    try {
      const fresh = await app.api.get(withQuery('/api/v1/operations', { ...query, limit: PAGE }), controller.signal);
      fetched = textOf(fresh.counts);
      showCounts(fresh.counts);
      if (keepsRows && list) showInPlace(list, fresh);
      else show(fresh);
    } catch (error) {
      if (!controller.signal.aborted) showFailure(error);
    }
    if (fetching === controller) fetching = null;
  }

  /** @param {unknown} error What is shown stays while it is what was asked for. */
  function showFailure(error) {
    if (list && shown === address()) return setText(pager.note, errorText(error));
    list = null;
    replace(card, failed(error, () => fetchPage(false)));
  }

  /** @param {OperationList} fresh */
  function show(fresh) {
    list = fresh;
    shown = address();
    if (fresh.next_cursor) remember(fresh.next_cursor, query.cursor);
    table.setRows(fresh.operations);
    table.markGone(new Set(fresh.operations.map(({ id }) => id)));
    filters.setKeys(fresh.operations);
    if (fresh.operations.length === 0) return replace(card, nothing());
    pager.update(shownText(fresh), query.cursor !== '', fresh.next_cursor !== null);
    setText(pager.note, '');
    if (table.element.parentElement !== card) replace(card, table.element, pager.element);
  }

  /**
   * @param {OperationList} shown
   * @param {OperationList} fresh
   */
  function showInPlace(shown, fresh) {
    const { added, gone } = changes(shown.operations, fresh);
    table.updateRows(fresh.operations);
    table.markGone(new Set(shown.operations.map(({ id }) => id).filter((id) => !gone.has(id))));
    const now = () => fetchPage(false);
    if (added > 0) replace(pager.note, `${count(added)} new · `, link('Show', now));
    else if (gone.size > 0) replace(pager.note, 'Order paused · ', link('Sort now', now));
    else setText(pager.note, '');
  }

  /** @param {OperationList} shown */
  function shownText({ operations, next_cursor: next }) {
    const { cursor, state, ...others } = query;
    if (next === null && cursor === '') return `${count(operations.length)} of ${count(operations.length)}`;
    const isCounted = Object.values(others).every((value) => value === '');
    return counts && isCounted ? `${count(operations.length)} of ${count(totalOf(counts, state))}` : `${count(operations.length)} shown`;
  }

  function nothing() {
    const { cursor, state, ...others } = query;
    if (cursor) return empty('There are no more operations.', link('First page', () => choose({})));
    if (Object.values(others).some((value) => value !== '')) {
      return empty('No operation matches these filters.', link('Clear filters', () => choose(filters.clear())));
    }
    if (state === DECISION) return empty('No operation needs a decision.', link('All operations', () => choose({ state: '' })));
    if (state === 'conflict') return empty('No conflicts.', link('All operations', () => choose({ state: '' })));
    if (state) return empty(`No ${state.replaceAll(',', ' or ')} operations.`, link('All operations', () => choose({ state: '' })));
    return empty('No operations yet. Programs hand them over with POST /api/v1/operations or Prefer: respond-async.');
  }

  /** @param {OperationCounts} fresh */
  function showCounts(fresh) {
    counts = fresh;
    const chip = (/** @type {OperationState} */ state) => ({ id: state, label: OPERATIONS[state].word, count: count(fresh[state]), picture: icon(OPERATIONS[state].picture) });
    chips.update(
      [
        { id: '', label: 'All', count: count(totalOf(fresh, '')) },
        { id: DECISION, label: 'Needs a decision', count: count(totalOf(fresh, DECISION)), picture: icon('warning') },
        ...STATES.map(chip),
      ],
      query.state,
    );
  }

  /** @param {Set<string>} selected */
  function onSelect(selected) {
    isWhole = false;
    showBar();
    if (selected.size === 0 && !bar.hidden) {
      bar.hidden = true;
      poll();
    }
  }

  function showBar() {
    const selected = selectedRows();
    if (selected.length === 0) return;
    const whole = wholeOf(selected);
    bar.hidden = false;
    const states = isWhole && whole ? [whole.state] : selected.map(({ state }) => state);
    const text = isWhole && whole ? `${whole.label[0].toUpperCase()}${whole.label.slice(1)} selected` : `${count(selected.length)} selected`;
    app.announce(`${text}, updates paused`);
    render(bar, [text, states.some(isRetryable), states.some(isCancellable), whole?.label, isWhole], () => [
      h('span', null, h('b', null, text), ' · updates paused'),
      states.some(isRetryable) && bulkButton('retry', 'Retry…'),
      states.some(isCancellable) && bulkButton('cancel', 'Cancel…'),
      whole && !isWhole && link(`Select ${whole.label}`, selectWhole),
      link('Clear selection', () => table.clearSelection()),
    ]);
  }

  const selectedRows = () => list?.operations.filter(({ id }) => table.selected.has(id)) ?? [];

  /**
   * What "all" would be, if that is more than is on this page: all of the one state that is chosen
   * or selected.
   * @param {Operation[]} selected
   */
  function wholeOf(selected) {
    const states = new Set(selected.map(({ state }) => state));
    if (!counts || !list || states.size !== 1) return null;
    const [state] = states;
    const { cursor, state: chosen, ...others } = query;
    const isFiltered = Object.values(others).some((value) => value !== '');
    if (isFiltered) return list.next_cursor || cursor ? { state, label: `all ${state} that match` } : null;
    return counts[state] > selected.length || isWhole ? { state, label: `all ${count(counts[state])} ${state}` } : null;
  }

  function selectWhole() {
    const state = selectedRows()[0]?.state;
    for (const row of list?.operations ?? []) if (row.state === state) table.selected.add(row.id);
    table.updateRows(list?.operations ?? []);
    isWhole = true;
    showBar();
  }

  /**
   * @param {import('../bulk.js').BulkAction} action
   * @param {string} label
   */
  function bulkButton(action, label) {
    const run = async () => {
      const { openBulk } = await import('../bulk.js');
      const { state } = query;
      const whole = isWhole ? wholeOf(selectedRows()) : null;
      const { type, reason, key, id } = query;
      const filter = whole ? given({ state: whole.state, type, reason, key, id }) : { ids: [...table.selected] };
      openBulk(app, { action, filter, total: counts ? totalOf(counts, whole ? '' : state) : table.selected.size, onDone });
    };
    return h('button', { class: 'button plain', type: 'button', 'data-action': true, onclick: run }, label);
  }

  /** A bulk action has changed rows: what is true now is shown at once. */
  function onDone() {
    table.clearSelection();
    fetchPage(false);
  }

  /** @param {Partial<Query>} change */
  function onFilter(change) {
    const next = { ...query, ...change };
    if (withQuery('', next) === withQuery('', query)) return;
    query = { ...next, cursor: '' };
    clearTimeout(typing);
    typing = setTimeout(() => app.go(address(), 'replace'), TYPING);
  }

  /** @param {Partial<Query>} change */
  function choose(change) {
    query = { ...query, cursor: '', ...change };
    app.go(address());
  }

  /** @param {1 | -1} by */
  function page(by) {
    if (by === 1 && list?.next_cursor) choose({ cursor: list.next_cursor });
    // After a reload it is not known where the cursor came from.
    if (by === -1 && query.cursor) choose({ cursor: before.get(query.cursor) ?? '' });
  }

  const address = () => withQuery('/operations', query);

  function showTools() {
    const { cursor, id, state, ...named } = query;
    const flags = Object.entries(given({ ...(state.includes(',') ? {} : { state }), ...named })).map(([name, value]) => ` --${name} ${quote(String(value))}`);
    replace(tools, copyCurl(app, 'GET', withQuery('/api/v1/operations', query)), copyCommand(app, `tidegate ops list${flags.join('')}`));
  }

  return {
    title: () => 'Operations',
    onSample(sample) {
      if (!list) return;
      showCounts(sample.operations);
      if (textOf(sample.operations) !== fetched) poll();
    },
    refresh: () => fetchPage(table.selected.size > 0 || isInUse()),
    onRoute(next) {
      query = readQuery(next.query);
      filters.update(query);
      table.clearSelection();
      showTools();
      fetchPage(false);
    },
    shortcuts: {
      '/': () => filters.focus(),
      j: () => table.move(1),
      k: () => table.move(-1),
      x: () => table.toggle(),
      s: () => fetchPage(false),
      '[': () => page(-1),
      ']': () => page(1),
      Escape: () => table.clearSelection(),
    },
    unmount() {
      stop();
      clearTimeout(typing);
      fetching?.abort();
    },
  };
}

/** @param {URLSearchParams} query */
export function readQuery(query) {
  const value = (/** @type {string} */ name) => query.get(name) ?? '';
  return { state: value('state'), type: value('type'), reason: value('reason'), key: value('key'), id: value('id'), cursor: value('cursor') };
}

/** @param {Record<string, string>} values */
const given = (values) => Object.fromEntries(Object.entries(values).filter(([, value]) => value !== ''));

/** @param {OperationCounts} counts */
const textOf = (counts) => STATES.map((state) => counts[state]).join();

/**
 * How many are in these states; all without any.
 * @param {OperationCounts} counts
 * @param {string} states
 */
export function totalOf(counts, states) {
  const wanted = states.split(',');
  return STATES.reduce((sum, state) => sum + (states === '' || wanted.includes(state) ? counts[state] : 0), 0);
}

/**
 * What a fresh page would change: how many rows are new, and which do not belong there any more.
 * Rows that were only moved to the next page by new ones are not gone.
 * @param {Operation[]} shown Newest first.
 * @param {Pick<OperationList, 'operations' | 'next_cursor'>} fresh
 */
export function changes(shown, { operations, next_cursor: next }) {
  const [known, present] = [new Set(shown.map(({ id }) => id)), new Set(operations.map(({ id }) => id))];
  const end = next === null ? -Infinity : operations.at(-1)?.accepted_at_ms ?? -Infinity;
  const oldest = shown.at(-1)?.accepted_at_ms ?? -Infinity;
  return {
    added: operations.filter(({ id, accepted_at_ms: at }) => !known.has(id) && at >= oldest).length,
    gone: new Set(shown.filter(({ id, accepted_at_ms: at }) => !present.has(id) && at > end).map(({ id }) => id)),
  };
}

/**
 * @param {Console} app
 * @param {() => void} refresh
 * @returns {import('../table.js').Column<Operation>[]}
 */
function columns(app, refresh) {
  return [
    { id: 'id', label: 'ID', show: showId },
    { id: 'type', label: 'Type', show: (cell, { type }) => render(cell, type, () => foreign(type, 60)) },
    { id: 'destination', label: 'Destination', show: (cell, { summary }) => render(cell, summary, () => foreign(shortSummary(summary), 80)) },
    { id: 'state', label: 'State', show: (cell, operation) => showState(app, cell, operation, refresh) },
    { id: 'attempts', label: 'Attempts', isNumber: true, show: (cell, operation) => setText(cell, attemptsShort(operation)) },
    { id: 'accepted', label: 'Accepted', isNumber: true, show: (cell, { accepted_at_ms: at }) => render(cell, at, () => timeOf(at, app.clock.now())) },
  ];
}

/**
 * @param {HTMLTableCellElement} cell
 * @param {Operation} operation
 */
function showId(cell, { id }) {
  if (!cell.firstElementChild) cell.append(h('a', { href: operationPath(id), class: 'mono' }, foreign(id)));
}

/**
 * @param {Console} app
 * @param {HTMLTableCellElement} cell
 * @param {Operation} operation
 * @param {() => void} refresh
 */
function showState(app, cell, operation, refresh) {
  if (!cell.firstElementChild) cell.append(h('span', null), h('p', { class: 'muted small' }));
  const [states, why] = /** @type {HTMLElement[]} */ ([...cell.children]);
  const now = app.clock.now();
  showStates(app, states, [operationState(operation, now)], refresh);
  const waiting = operation.state === 'retryable' || operation.state === 'available' ? waitingWords(operation) : null;
  const until = operation.waiting_for?.until_ms ?? null;
  render(why, [waiting, until], () => waiting && [...waitingNodes(operation), until && until > now && [' until ', timeOf(until, now)]].flat());
}
