// A gate: its state in a sentence, live charts, what changed its rate, its recent requests, and a
// person's override.

import { ApiError, gateUrl } from '../api.js';
import { gateState, showStates } from '../badge.js';
import { confirmAction } from '../dialog.js';
import { h, render, replace, setText } from '../dom.js';
import { count, duration, latency, rate, share } from '../format.js';
import { createLiveCharts } from '../live_charts.js';
import { createLog } from '../log.js';
import { RENEW_MS } from '../order.js';
import { copyCommand, copyCurl, empty, every, failed, foreign, loading, pageHead, quote, sentence, timeOf } from '../page.js';
import { gatePath, withQuery } from '../router.js';
import { visible } from '../text.js';
import { answersBetween, canRelease, isolateEffect, releaseEffect, resetEffect, stateSentence, waitingSentence } from './gate_text.js';
import { openTrail } from './trail.js';

/**
 * @typedef {import('../types.js').GateDetail} GateDetail
 * @typedef {import('../types.js').GateServer} GateServer
 * @typedef {import('../types.js').History} History
 * @typedef {import('../types.js').Trail} Trail
 * @typedef {import('../types.js').Sample} Sample
 */

const REQUESTS = 20;
/** Shorter waits are not worth a word. */
const MIN_WAITED_MS = 100;

/**
 * @param {HTMLElement} root
 * @param {import('../router.js').Route} route
 * @param {import('../types.js').Console} app
 * @returns {import('../types.js').View}
 */
export function mount(root, route, app) {
  const key = route.id;
  const url = gateUrl(key);
  /** @type {GateDetail | null} */
  let gate = null;
  /** Whether the server said that there is no such gate. */
  let isMissing = false;
  /** @type {{ at_ms: number, counts: GateDetail['counts'] } | null} */
  let lastSample = null;
  /** @type {import('../dialog.js').Dialog | null} */
  let drawer = null;
  const ended = new AbortController();

  const badge = h('span', null);
  const state = h('p', { class: 'gate-sentence' });
  const waiting = h('p', null);
  const below = document.createDocumentFragment();
  below.append(badge, state, waiting);
  const facts = createFacts();
  const charts = createLiveCharts(app, { charts: chartsOf(key), onWindow: loadHistory });
  const changes = createLog({
    label: 'Rate changes',
    keyOf: (/** @type {History['changes'][0]} */ change) => `${change.at_ms} ${change.from} ${change.to}`,
    show: (change) => [
      timeOf(change.at_ms, app.clock.now()),
      h('span', null, h('b', null, `${rate(change.from).replace('/s', '')} → ${rate(change.to)}`), ' ', sentence(change.why)),
    ],
    nothing: () => empty('The rate did not change in this time.'),
  });
  const requests = createLog({
    label: 'Requests',
    keyOf: (/** @type {Trail} */ trail) => trail.id,
    show: showRequest,
    nothing: () => empty('No request to this gate is remembered.'),
  });
  const [release, isolate, reset] = [
    act('release', 'Release', 'Releasing…', releaseEffect),
    act('isolate', 'Isolate', 'Isolating…', isolateEffect),
    act('reset', 'Reset', 'Resetting…', resetEffect),
  ];
  const head = pageHead({
    before: [h('a', { href: '/gates' }, 'Gates'), ' /'],
    title: foreign(key),
    below,
    actions: [release, isolate, reset],
  });
  head.classList.add('gate-head');
  const tools = h(
    'div',
    { class: 'actions page-tools' },
    key.includes('/') && h('a', { class: 'button quiet', href: `/pools#${encodeURIComponent(key.split('/')[0])}` }, 'Show pool'),
    h('a', { class: 'button quiet', href: withQuery('/simulate', { gate: key }) }, 'Simulate its settings'),
    copyCurl(app, 'GET', url),
    copyCommand(app, `tidegate gates release ${quote(key)}`),
  );
  const problem = h('div', null);
  const content = h(
    'div',
    { class: 'stack' },
    facts.element,
    h('section', { class: 'card stack gate-charts', 'aria-label': 'Charts' }, charts.windows, ...charts.elements),
    h(
      'div',
      { class: 'columns' },
      h('section', { class: 'card' }, h('div', { class: 'section-head' }, h('h2', null, 'Rate changes'), changes.note), changes.element),
      h('section', { class: 'card' }, h('div', { class: 'section-head' }, h('h2', null, 'Requests'), requests.note), requests.element),
    ),
    tools,
  );
  content.hidden = true;
  root.append(head, problem, content);
  replace(problem, loading('gate'));
  showActions();
  refresh();
  openRequest(route.query.get('request'), false);
  const stop = every(RENEW_MS, () => app.isFrozen() || renew());

  /** @param {Trail} trail */
  function showRequest(trail) {
    const { id, waited_ms } = trail;
    const waited = waited_ms >= MIN_WAITED_MS && `waited ${waited_ms < 1000 ? latency(waited_ms) : duration(waited_ms)}`;
    // The IDs of one server begin alike.
    const name = id.length > 12 ? `${id.slice(0, 4)}…${id.slice(-6)}` : id;
    const attempts = trail.attempts === 1 ? '1 attempt' : `${trail.attempts} attempts`;
    const facts = [visible(trail.outcome.replaceAll('_', ' '), 40), trail.status && `HTTP ${trail.status}`, attempts, waited].filter(Boolean);
    return [
      timeOf(trail.at_ms, app.clock.now()),
      h('span', null, h('a', { class: 'mono', href: withQuery(gatePath(key), { request: id }) }, visible(name)), ` ${facts.join(' · ')}`),
    ];
  }

  /**
   * @param {'release' | 'isolate' | 'reset'} verb
   * @param {string} label
   * @param {string} busy
   * @param {(gate: GateDetail, now: number) => string} effect
   */
  function act(verb, label, busy, effect) {
    return h('button', { class: 'button plain', type: 'button', 'data-action': true, 'data-verb': verb, onclick: ask }, label);

    async function ask() {
      if (!gate) return;
      const isDone = await confirmAction({
        title: `${label} gate ${visible(key, 80)}?`,
        body: [effect(gate, app.clock.now()), h('div', null, copyCommand(app, `tidegate gates ${verb} ${quote(key)}`))],
        action: `${label} gate`,
        busy,
        isDangerous: true,
        run: async () => {
          const answer = await app.api.send('POST', `${url}/${verb}`);
          show({ ...gate, ...answer });
        },
      });
      // The button that had the focus may be gone.
      if (document.activeElement === document.body) root.querySelector('h1')?.focus();
      if (!isDone) return;
      app.announce(`Gate ${visible(key, 80)}: ${label.toLowerCase()} is done.`);
      renew();
    }
  }

  /** Fetches everything anew. */
  function refresh() {
    lastSample = null;
    load();
  }

  /** Fetches what the samples do not have. A gate that is missing comes with a sample. */
  function renew() {
    if (!isMissing) load();
  }

  async function load() {
    try {
      show(await app.api.get(url, ended.signal));
      loadHistory();
      loadRequests();
      loadServers();
    } catch (error) {
      if (ended.signal.aborted || keepsLastKnown(error)) return;
      if (error instanceof ApiError && error.status === 404) return showMissing();
      showProblem(failed(error, refresh));
    }
  }

  async function loadHistory() {
    try {
      /** @type {History} */
      const history = await app.api.get(withQuery(`${url}/history`, { window: charts.window() }), ended.signal);
      const { start_ms, step_ms, rate: rates, ceiling, accepted, refused, failed: failures, latency_ms: mean, p95_ms: p95 } = history;
      const values = { rate: rates, ceiling, accepted, refused, failed: failures, mean, p95 };
      charts.load({ start_ms, step_ms, values }, history.bands);
      changes.set(history.changes);
    } catch {
      // The gate's own call says what is wrong; the next try follows in a moment.
    }
  }

  /** The shares of all servers, if the gate is shared. */
  async function loadServers() {
    if (!gate?.fleet) return facts.showServers([]);
    try {
      const { servers } = await app.api.get(`${url}/servers`, ended.signal);
      facts.showServers(servers);
    } catch {
      // While Redis does not answer, only the share of this server is known.
      if (!ended.signal.aborted) facts.showServers([]);
    }
  }

  async function loadRequests() {
    try {
      const { trails } = await app.api.get(withQuery('/api/v1/explain', { key, limit: REQUESTS }), ended.signal);
      requests.set(trails);
    } catch {
      // As above.
    }
  }

  /**
   * Without an answer the last known state stays: the bar above says that the connection is lost.
   * @param {unknown} error
   */
  function keepsLastKnown(error) {
    return gate !== null && error instanceof ApiError && error.status === 0;
  }

  /** @param {GateDetail} fresh */
  function show(fresh) {
    gate = fresh;
    isMissing = false;
    const now = app.clock.now();
    showStates(app, badge, [gateState(fresh, now)], renew);
    render(state, stateSentence(fresh, now), () => sentence(stateSentence(fresh, now)));
    setText(waiting, waitingSentence(fresh, now));
    facts.update(fresh);
    content.hidden = false;
    problem.replaceChildren();
    showActions();
  }

  /** A button is there when it does something. */
  function showActions() {
    const isKnown = gate !== null && !isMissing;
    setShown(release, isKnown && gate !== null && canRelease(gate, app.clock.now()));
    setShown(isolate, isKnown && gate?.breaker.state !== 'isolated');
    setShown(reset, isKnown);
  }

  /** @param {Node} content */
  function showProblem(content) {
    replace(problem, content);
  }

  function showMissing() {
    isMissing = true;
    content.hidden = true;
    for (const element of [badge, state]) render(element, null, () => []);
    setText(waiting, '');
    showActions();
    showProblem(
      empty(
        ['There is no gate ', foreign(key), ' now. Gates appear with their first request and are forgotten when idle.'],
        h('a', { class: 'button plain', href: '/gates' }, 'All gates'),
      ),
    );
  }

  /** @param {Sample} sample */
  function onSample({ at_ms, gates }) {
    const fresh = gates.find((each) => each.key === key);
    // It came or went.
    if ((fresh === undefined) !== isMissing) return refresh();
    if (!fresh || !gate) return;
    const isOther = gateState(fresh, at_ms).word !== gateState(gate, at_ms).word;
    show({ ...gate, ...fresh, ...(fresh.waiting === 0 && { waiting_by_reason: {}, first_leaves_ms: null }) });
    const { rate_per_second, ceiling, latency_ms } = fresh;
    const answers = answersBetween(lastSample, { at_ms, counts: fresh.counts });
    // Two that follow at once are one.
    if (answers || !lastSample || at_ms - lastSample.at_ms > 1000) lastSample = { at_ms, counts: fresh.counts };
    if (answers) charts.append(at_ms, { rate: rate_per_second, ceiling, ...answers, mean: meanOf(fresh), p95: latency_ms.p95 });
    if (isOther) renew();
  }

  /**
   * @param {string | null} id
   * @param {boolean} hasBack Whether the entry before in the history is this page without it.
   */
  function openRequest(id, hasBack) {
    const open = drawer;
    drawer = null;
    open?.close();
    if (!id) return;
    const opened = (drawer = openTrail(app, id, () => {
      if (drawer !== opened) return;
      drawer = null;
      if (hasBack) history.back();
      else app.go(gatePath(key), 'replace');
    }));
  }

  return {
    title: () => visible(key, 60),
    keys: () => [key],
    onSample,
    onEvent: ({ data }) => data.key === key && renew(),
    refresh,
    restart() {
      lastSample = null;
      charts.clear();
    },
    shortcuts: { j: () => requests.move(1), k: () => requests.move(-1) },
    onRoute: (next) => openRequest(next.query.get('request'), true),
    unmount() {
      stop();
      ended.abort();
      charts.destroy();
      const open = drawer;
      drawer = null;
      open?.close();
    },
  };
}

/**
 * @param {HTMLElement} button
 * @param {boolean} isShown
 */
function setShown(button, isShown) {
  if (button.hidden === !isShown) return;
  // The focus must not be lost with the button.
  if (!isShown && button === document.activeElement) document.querySelector('h1')?.focus();
  button.hidden = !isShown;
}

/**
 * @param {string} key
 * @returns {import('../chart.js').ChartOptions[]}
 */
function chartsOf(key) {
  const name = visible(key, 60);
  return [
    {
      title: `Rate of ${name}`, unit: 'requests per second', height: 190,
      series: [{ name: 'ceiling', color: 'capacity', dashed: true }, { name: 'rate', color: 'rate' }],
    },
    {
      title: `Answers of ${name}`, unit: 'responses per second', height: 150,
      series: [{ name: 'accepted', color: 'accepted', area: true }, { name: 'refused', color: 'refused' }, { name: 'failed', color: 'failed', dashed: true }],
    },
    {
      title: `Latency of ${name}`, unit: 'milliseconds', height: 110,
      series: [{ name: 'p95', color: 'half' }, { name: 'mean', color: 'rate' }],
    },
  ];
}

/**
 * Without a response there is no mean.
 * @param {import('../types.js').Gate} gate
 */
const meanOf = ({ latency_ms: { ewma, p95 } }) => (p95 === null ? null : ewma);

/** @param {GateServer} server */
function shareRow({ server, share: part, demand_per_second: asked }) {
  return h('div', null, h('dt', null, foreign(server || 'a server that has left')), h('dd', null, `${share(part)}, asks for ${rate(asked)}`));
}

/** Figures and settings, with their labels. */
function createFacts() {
  /** @type {[string, (gate: GateDetail) => string | null][]} */
  const figures = [
    ['Rate', (gate) => rate(gate.rate_per_second)],
    ['Rate of the fleet', ({ fleet }) => (fleet ? rate(fleet.rate_per_second) : null)],
    ['Share of this server', ({ fleet }) => (fleet ? `${share(fleet.share)}, ${count(fleet.servers)} in use` : null)],
    ['Ceiling', (gate) => rate(gate.ceiling)],
    ['Rate of cost', ({ cost }) => cost && rate(cost.per_second)],
    ['Ceiling of cost', ({ cost }) => cost && rate(cost.ceiling)],
    ['Cost of a request, mean', ({ cost }) => cost && count(Math.round(cost.mean))],
    ['In flight', (gate) => `${count(gate.in_flight)} of ${count(gate.max_in_flight)}`],
    ['Waiting', (gate) => count(gate.waiting)],
    ['Tokens', (gate) => gate.tokens.toFixed(1)],
    ['Errors', (gate) => share(gate.error_rate)],
    ['Failures in a row', (gate) => count(gate.consecutive_failures)],
    ['Latency, mean', (gate) => latency(meanOf(gate))],
    ['Latency, p95', (gate) => latency(gate.latency_ms.p95)],
    ['Accepted in all', ({ counts }) => count(counts.success)],
    ['Refused in all', ({ counts }) => count(counts.throttled)],
    ['Failed in all', ({ counts }) => count(counts.failed)],
  ];
  const values = figures.map(() => h('dd', null));
  const settings = h('p', { class: 'muted small' });
  const rows = figures.map(([label], index) => h('div', null, h('dt', null, label), values[index]));
  const list = h('dl', { class: 'facts figures' }, ...rows);
  const servers = h('dl', { class: 'facts figures', 'aria-label': 'Shares of the servers', hidden: true });
  return {
    element: h('section', { class: 'card stack', 'aria-label': 'Figures' }, list, servers, settings),
    /** @param {GateServer[]} list */
    showServers(list) {
      servers.hidden = list.length === 0;
      replace(servers, ...list.map(shareRow));
    },
    /** @param {GateDetail} gate */
    update(gate) {
      figures.forEach(([, text], index) => {
        const value = text(gate);
        rows[index].hidden = value === null;
        setText(values[index], value ?? '');
      });
      const { strategy, phase, initial_rate, min_rate, max_rate, limits } = gate;
      const known = limits.length > 0 ? `, never more than ${limits.map((limit) => visible(limit, 40)).join(', ')}` : '';
      const does = phase ? `${strategy}, ${phase}` : strategy;
      setText(settings, `Strategy ${does}. Starts at ${rate(initial_rate)}, stays between ${rate(min_rate)} and ${rate(max_rate)}${known}.`);
    },
  };
}
