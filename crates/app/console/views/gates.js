// Every gate: a table that is filtered, sorted and paged by the server, and live in place.

import { h, render, setText } from '../dom.js';
import { count } from '../format.js';
import { icon } from '../icons.js';
import { copyCommand, copyCurl, empty, foreign, linkButton, pageHead } from '../page.js';
import { withQuery } from '../router.js';
import { createChips, createPager } from '../table.js';
import { createGateTable } from './gate_table.js';

const PAGE = 50;

/**
 * @param {HTMLElement} root
 * @param {import('../router.js').Route} route
 * @param {import('../types.js').Console} app
 * @returns {import('../types.js').View}
 */
export function mount(root, route, app) {
  let query = readQuery(route.query);
  let total = 0;

  const summary = h('p', null);
  const search = h('input', { type: 'search', id: 'filter', placeholder: 'Filter by key', 'aria-label': 'Filter by key', value: query.filter, oninput: onFilter });
  const chips = createChips('States', (state) => choose({ state, page: 1 }));
  const pager = createPager((by) => choose({ page: query.page + by }));
  const gates = createGateTable(app, {
    caption: 'Gates',
    path,
    nothing,
    onSort: (sort) => choose({ sort, page: 1 }),
    onList,
    footer: pager.element,
    note: pager.note,
  });
  const tools = h('div', { class: 'actions page-tools' });
  root.append(
    pageHead({
      title: 'Gates',
      below: summary,
      actions: [h('div', { class: 'search' }, icon('search'), search, h('kbd', null, '/'))],
    }),
    chips.element,
    gates.element,
    tools,
  );

  function path() {
    const { filter, state, sort, page } = query;
    return withQuery('/api/v1/gates', { filter, state, sort, limit: PAGE, offset: (page - 1) * PAGE || null, recent: true });
  }

  /** @param {import('../types.js').GateList} list */
  function onList(list) {
    total = list.total;
    showTotals(list.totals);
    gates.table.setSort(query.sort);
    render(tools, path(), () => [copyCurl(app, 'GET', path()), copyCommand(app, 'tidegate gates --watch')]);
    const first = (query.page - 1) * PAGE;
    const last = first + list.gates.length;
    pager.update(`${count(first + 1)}–${count(last)} of ${count(total)}`, query.page > 1, last < total);
  }

  function nothing() {
    if (query.page > 1) return empty('There are no more gates.', linkButton('First page', () => choose({ page: 1 })));
    if (query.filter) return empty(['No gate matches "', foreign(query.filter), '".'], linkButton('Clear filter', clearFilter));
    if (query.state) return empty(query.state === 'attention' ? 'No gate needs attention.' : 'No gate is in this state.', linkButton('All gates', () => choose({ state: '' })));
    return empty('No gates yet. A gate appears with the first request to an upstream.');
  }

  function clearFilter() {
    search.value = '';
    choose({ filter: '', page: 1 });
    search.focus();
  }

  /** @param {import('../types.js').GateTotals} totals */
  function showTotals(totals) {
    const open = totals.open - totals.isolated;
    /** @type {[string, string, number, import('../icons.js').IconName][]} */
    const states = [
      ['open', 'Open', open, 'open'],
      ['half_open', 'Half-open', totals.half_open, 'half'],
      ['held', 'Held', totals.held, 'hourglass'],
      ['isolated', 'Isolated', totals.isolated, 'lock'],
    ];
    const parts = states.filter(([, , n]) => n > 0).map(([, word, n]) => `${count(n)} ${word.toLowerCase()}`);
    parts.unshift(`${count(totals.gates)} ${totals.gates === 1 ? 'gate' : 'gates'}`);
    parts.push(`${count(totals.waiting)} ${totals.waiting === 1 ? 'request' : 'requests'} waiting`);
    setText(summary, parts.join(' · '));
    const attention = totals.open + totals.half_open + totals.held;
    chips.update(
      [
        { id: '', label: 'All', count: count(totals.gates) },
        { id: 'attention', label: 'Attention', count: count(attention) },
        ...states.map(([id, label, n, picture]) => ({ id, label, count: count(n), picture: icon(picture) })),
      ],
      query.state,
    );
  }

  function onFilter() {
    query = { ...query, filter: search.value, page: 1 };
    history.replaceState(null, '', address());
    gates.sortNow();
  }

  /** @param {Partial<ReturnType<typeof readQuery>>} change */
  function choose(change) {
    query = { ...query, ...change };
    app.go(address());
  }

  /** @param {1 | -1} by */
  function turn(by) {
    const page = query.page + by;
    if (page >= 1 && (page - 1) * PAGE < total) choose({ page });
  }

  function address() {
    const { filter, state, sort, page } = query;
    return withQuery('/gates', { state, filter, sort: sort === 'accepted' ? '' : sort, page: page === 1 ? '' : page });
  }

  return {
    title: () => 'Gates',
    keys: gates.keys,
    onSample(sample) {
      showTotals(sample.totals);
      gates.onSample(sample);
    },
    refresh: gates.refresh,
    onRoute(next) {
      query = readQuery(next.query);
      if (search.value !== query.filter) search.value = query.filter;
      gates.sortNow();
    },
    shortcuts: {
      '/': () => search.focus(),
      j: () => gates.table.move(1),
      k: () => gates.table.move(-1),
      s: gates.sortNow,
      '[': () => turn(-1),
      ']': () => turn(1),
    },
    unmount: gates.unmount,
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
