// Overview: what needs a person, how much goes through, what waits and why, the busiest gates and
// what happened last.

import { actionButton } from '../action.js';
import { ApiError, poolUrl } from '../api.js';
import { showStates } from '../badge.js';
import { h, patch, render, replace, setText } from '../dom.js';
import { count, rate } from '../format.js';
import { createLiveCharts } from '../live_charts.js';
import { createLog } from '../log.js';
import { copyCommand, copyCurl, empty, every, failed, foreign, pageHead, sentence, timeOf } from '../page.js';
import { gatePath, operationPath, withQuery } from '../router.js';
import { sparkline } from '../sparkline.js';
import { visible } from '../text.js';
import { createGateTable, showNumber } from './gate_table.js';
import { createLingering, joinEvents } from './overview_rows.js';
import { reasonText, waitingText } from './waiting.js';

/**
 * @typedef {import('../types.js').Console} Console
 * @typedef {import('../types.js').Summary} Summary
 * @typedef {import('../types.js').Attention} Attention
 * @typedef {import('../types.js').RecentEvent} RecentEvent
 */

const BUSIEST = 8;
const EVENTS = 100;
const EVENTS_AFTER_MS = 500;
/** How often the newest points are fetched. */
const RENEW_MS = 2000;
const RECENT = '1m';
/** Points of a small line. */
const SMALL = 60;
/** What was before the start. */
const NONE = Array(SMALL).fill(null);

/**
 * @param {HTMLElement} root
 * @param {import('../router.js').Route} _route
 * @param {Console} app
 * @returns {import('../types.js').View}
 */
export function mount(root, _route, app) {
  let startedMs = 0;
  let isShown = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let eventsTimer;
  const ended = new AbortController();

  const attention = createAttention(app, () => load(false));
  const tiles = createTiles();
  const charts = createLiveCharts(app, { charts: CHARTS, onWindow: () => load(true) });
  const problem = h('div', null);
  const order = h('span', { class: 'muted small' });
  const gates = createGateTable(app, {
    caption: 'Busiest gates',
    path: () => withQuery('/api/v1/gates', { sort: 'accepted', limit: BUSIEST, recent: true }),
    nothing: () => empty('No gates yet. A gate appears with the first request to an upstream.'),
    isShort: true,
    note: order,
  });
  const allGates = h('a', { href: '/gates' }, 'All gates');
  const events = createLog({
    label: 'Events',
    keyOf: (/** @type {ReturnType<typeof joinEvents>[0]} */ { firstId, times }) => `${firstId} ${times}`,
    show: (event) => [
      timeOf(event.at_ms, app.clock.now()),
      h('span', null, ...eventText(event, app.clock.now()), event.times > 1 && h('span', { class: 'muted' }, ` · ${event.times} times`)),
    ],
    nothing: () => h('p', { class: 'muted' }, 'Nothing has happened since ', timeOf(startedMs, app.clock.now()), '.'),
  });
  const status = h('p', { class: 'muted overview-status' });
  root.append(
    pageHead({ title: 'Overview', actions: [charts.windows] }),
    problem,
    h(
      'div',
      { class: 'stack' },
      attention.element,
      tiles.element,
      h('div', { class: 'columns' }, ...charts.elements.map((chart) => h('section', { class: 'card' }, chart))),
      h(
        'div',
        { class: 'columns wide-first' },
        h('section', null, h('div', { class: 'section-head' }, h('h2', null, 'Busiest gates'), order, allGates), gates.element),
        h('section', null, h('div', { class: 'section-head' }, h('h2', null, 'Events'), events.note), h('div', { class: 'card events' }, events.element)),
      ),
      status,
    ),
    h('div', { class: 'actions page-tools' }, copyCurl(app, 'GET', '/api/v1/summary'), copyCommand(app, 'tidegate gates --watch')),
  );
  refresh();
  const stop = every(RENEW_MS, () => app.isFrozen() || load(false));

  function refresh() {
    load(true);
    loadEvents();
    gates.refresh();
  }

  /** @param {boolean} isWhole Instead of the newest points, all of the window. */
  async function load(isWhole) {
    try {
      show(await app.api.get(withQuery('/api/v1/summary', { window: isWhole ? charts.window() : RECENT }), ended.signal), isWhole);
      problem.replaceChildren();
    } catch (error) {
      const isLost = error instanceof ApiError && error.status === 0 && isShown;
      if (!ended.signal.aborted && !isLost) replace(problem, failed(error, refresh));
    }
  }

  /**
   * @param {Summary} summary
   * @param {boolean} isWhole
   */
  function show(summary, isWhole) {
    const { series } = summary;
    const { start_ms, step_ms, accepted, refused, failed: failures } = series;
    const waiting = Object.entries(series.waiting_by_reason).map(([reason, values]) => [reasonText(reason), values]);
    const recorded = { start_ms, step_ms, values: { accepted, refused, failed: failures, ...Object.fromEntries(waiting) } };
    if (isWhole) charts.load(recorded);
    else charts.merge(recorded);
    isShown = true;
    startedMs = summary.started_ms;
    attention.update(summary);
    tiles.update(summary);
    const { totals } = summary;
    const parts = [`All ${count(totals.gates)} gates`, totals.open > 0 && `${count(totals.open)} open`, totals.half_open > 0 && `${count(totals.half_open)} half-open`];
    setText(allGates, parts.filter(Boolean).join(' · '));
    render(status, [summary.stores, summary.version, summary.started_ms, summary.operations, summary.jobs, summary.pools], () => statusParts(summary, app.clock.now()));
  }

  async function loadEvents() {
    clearTimeout(eventsTimer);
    eventsTimer = undefined;
    try {
      const body = await app.api.get(withQuery('/api/v1/events/recent', { limit: EVENTS }), ended.signal);
      events.set(joinEvents(body.events));
    } catch {
      // The summary's call says what is wrong.
    }
  }

  return {
    title: () => 'Overview',
    keys: gates.keys,
    onSample: gates.onSample,
    onEvent() {
      // Many come together.
      eventsTimer ??= setTimeout(loadEvents, EVENTS_AFTER_MS);
    },
    refresh,
    restart() {
      charts.clear();
      events.set([]);
    },
    shortcuts: { j: () => gates.table.move(1), k: () => gates.table.move(-1), s: gates.sortNow },
    unmount() {
      stop();
      clearTimeout(eventsTimer);
      ended.abort();
      gates.unmount();
      charts.destroy();
    },
  };
}

/** @type {import('../chart.js').ChartOptions[]} */
const CHARTS = [
  {
    title: 'Answers', unit: 'responses per second', height: 150, lane: false,
    series: [{ name: 'accepted', color: 'accepted', area: true }, { name: 'refused', color: 'refused' }, { name: 'failed', color: 'failed', dashed: true }],
  },
  {
    title: 'Waiting by reason', unit: 'requests', height: 150, lane: false,
    series: [
      { name: 'rate', color: 'rate' },
      { name: 'hold', color: 'held' },
      { name: 'breaker open', color: 'open', dashed: true },
      { name: 'in flight', color: 'half', dashed: true },
    ],
  },
];

/** Requests, refusals, waits and retries, each with the last minute as a small line. */
function createTiles() {
  /** @type {[string, (summary: Summary) => string, (summary: Summary) => import('../types.js').Values, (summary: Summary) => string][]} */
  const kinds = [
    // Answered ones: a request to a pool asks at the gate of every endpoint, so asks are more.
    ['Requests', ({ rates }) => rate(rates.accepted + rates.refused + rates.failed), ({ series }) => answered(series), ({ totals }) => `${count(totals.throttled)} were throttled since the start`],
    ['Refused', ({ rates }) => rate(rates.refused), ({ series }) => series.refused, ({ totals }) => `${count(totals.denied)} requests denied here since the start`],
    ['Waiting', ({ totals }) => count(totals.waiting), ({ series }) => series.waiting, (summary) => waitingText(summary.waiting_by_reason) || 'nothing waits'],
    ['Retries', ({ rates }) => rate(rates.retries), ({ series }) => series.retries, ({ totals }) => `${count(totals.retries)} since the start`],
  ];
  const tiles = kinds.map(([label]) => {
    const [value, line, note] = [h('dd', { class: 'tile-value' }, '–'), sparkline([], { width: 120, height: 32 }), h('dd', { class: 'muted small' })];
    return { value, line, note, element: h('div', { class: `card tile tile-${label.toLowerCase()}` }, h('dt', null, label), value, note, h('dd', { class: 'tile-line' }, line)) };
  });
  return {
    element: h('dl', { class: 'tiles' }, ...tiles.map((tile) => tile.element)),
    /** @param {Summary} summary */
    update(summary) {
      kinds.forEach(([, value, values, note], index) => {
        showNumber(tiles[index].value, value(summary));
        tiles[index].line.update([...NONE, ...values(summary)].slice(-SMALL));
        setText(tiles[index].note, note(summary));
      });
    },
  };
}

/**
 * Responses and failures of each second.
 * @param {Summary['series']} series
 * @returns {import('../types.js').Values}
 */
function answered({ accepted, refused, failed: failures }) {
  return accepted.map((value, at) => (value === null ? null : value + (refused[at] ?? 0) + (failures[at] ?? 0)));
}

/** @type {Record<string, import('../badge.js').State>} */
const KINDS = {
  gate_open: { word: 'Open', picture: 'open', tone: 'bad' },
  gate_isolated: { word: 'Isolated', picture: 'lock', tone: 'off-fill' },
  endpoint_disabled: { word: 'Disabled', picture: 'crossed', tone: 'off' },
  operations: { word: 'Operations', picture: 'warning', tone: 'bad' },
  store: { word: 'Store', picture: 'warning', tone: 'bad' },
};

/**
 * What needs a person, worst first. Absent when there is nothing.
 * @param {Console} app
 * @param {() => void} refresh
 */
function createAttention(app, refresh) {
  const list = h('ul', { class: 'attention' });
  const more = h('p', { class: 'muted' });
  const element = h('section', { class: 'card', 'aria-label': 'Attention', hidden: true }, h('h2', null, 'Attention'), list, more);
  const keyOf = (/** @type {Attention} */ { kind, key, pool, endpoint }) => [kind, key, pool, endpoint].join('\n');
  const linger = createLingering(keyOf);

  /** @param {Attention} item */
  function create({ kind, key, pool, endpoint, link }) {
    const enable = kind === 'endpoint_disabled' && pool && endpoint && actionButton({ label: 'Enable', busy: 'Enabling…', run: async () => {
      await app.api.send('PATCH', `${poolUrl(pool)}/endpoints/${encodeURIComponent(endpoint)}`, { enabled: true });
      app.toast(`${visible(pool, 60)}/${visible(endpoint, 60)} enabled.`);
      refresh();
    } });
    const [label, what] = key ? ['Show gate', key] : ['Show', pool ?? kind];
    const show = h('a', { class: 'button plain', href: isPath(link) ? link : '/', 'aria-label': `${label} ${visible(what, 80)}` }, label);
    return h('li', null, h('span', { class: 'attention-state' }), h('p', null), h('div', { class: 'actions' }, enable, show));
  }

  /**
   * @param {HTMLLIElement} row
   * @param {Attention} item
   */
  function update(row, { kind, key, pool, endpoint, text, since_ms, until_ms }) {
    const known = KINDS[kind] ?? { word: visible(kind, 30), picture: 'warning', tone: 'bad' };
    const [state, words] = row.children;
    const isAhead = until_ms && until_ms > app.clock.now();
    if (state instanceof HTMLElement) showStates(app, state, [{ ...known, ...(isAhead && { until: until_ms }) }], refresh);
    const name = key ?? (pool ? `${pool}/${endpoint}` : '');
    render(words, [text, since_ms], () => [...named(text, name), since_ms ? [' since ', timeOf(since_ms, app.clock.now())] : []].flat());
  }

  return {
    element,
    /** @param {Summary} summary */
    update({ attention, attention_total: total }) {
      // Rows that come or go move all that is below.
      const isAimed = document.querySelector('main :is(a, button):is(:hover, :focus-visible)') !== null;
      const rows = linger(attention, app.clock.now());
      if (isAimed && rows.length !== list.children.length) return;
      element.hidden = rows.length === 0;
      patch(list, rows, ({ item }) => keyOf(item), ({ item }) => create(item), (row, { item, isOver }) => {
        update(row, isOver ? { ...item, until_ms: null } : item);
        row.classList.toggle('over', isOver);
      });
      setText(more, total > attention.length ? `and ${count(total - attention.length)} more` : '');
    },
  };
}

/**
 * Links of the API lead to pages of the console, to nowhere else.
 * @param {string} link
 */
const isPath = (link) => /^\/(?!\/)/.test(link);

/**
 * A sentence that begins with the name of what it is about.
 * @param {string} text
 * @param {string} name
 * @param {string} [href]
 */
function named(text, name, href) {
  if (!name) return sentence(text);
  const rest = text.startsWith(name) ? text.slice(name.length) : ` ${text}`;
  return [href ? h('a', { href }, foreign(name, 60)) : h('b', null, foreign(name, 60)), ...sentence(rest)];
}

/**
 * @param {RecentEvent} event
 * @param {number} now
 */
function eventText({ kind, text, data: { id, key, pool, endpoint, until_ms } }, now) {
  const until = until_ms ? [', until ', timeOf(until_ms, now)] : [];
  if (kind === 'operation_ended') return named(text, `operation ${id}`, operationPath(String(id)));
  if (key) return [...named(text, key, gatePath(key)), ...until];
  if (pool) return [...named(text, endpoint ? `${pool}/${endpoint}` : pool, `/pools#${encodeURIComponent(pool)}`), ...until];
  return sentence(text);
}

/**
 * Stores, work that is stored, version.
 * @param {Summary} summary
 * @param {number} now
 */
function statusParts({ stores, version, started_ms, operations, jobs, pools }, now) {
  const health = stores.map(({ name, status, detail }) => {
    const text = `${visible(name, 40)} ${visible(status, 40)}`;
    return status === 'ok' ? h('span', null, text) : h('span', { class: 'badge bad' }, detail ? `${text}: ${visible(detail)}` : text);
  });
  const { available, running, retryable } = operations;
  return [
    h('span', null, 'Stores: ', ...health.flatMap((store, index) => (index > 0 ? [' · ', store] : [store]))),
    h('span', null, h('a', { href: '/operations' }, 'Operations'), `: ${count(available)} available · ${count(running)} running · ${count(retryable)} retryable`),
    h('span', null, h('a', { href: '/pools' }, 'Pools'), `: ${count(pools.endpoints)} endpoints · ${count(pools.paused)} paused · ${count(pools.disabled)} disabled`),
    h('span', null, h('a', { href: '/jobs' }, 'Jobs'), `: ${count(jobs.running ?? 0)} running`),
    h('span', null, `Version ${visible(version, 40)} · up since `, timeOf(started_ms, now)),
  ];
}
