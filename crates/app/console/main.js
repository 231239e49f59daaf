// Starts the console: signs in, keeps one view on the page, and passes it what the stream brings.

import { createApi } from './api.js';
import { createClock } from './clock.js';
import { createConnection } from './connection.js';
import { createCountdowns } from './countdown.js';
import { byId, h } from './dom.js';
import { bindShortcuts, openHelp } from './keyboard.js';
import { signIn } from './login.js';
import { failed } from './page.js';
import { routeOf } from './router.js';
import { createStream } from './stream.js';
import { createToasts } from './toast.js';
import { applyTheme, createTop } from './top.js';

/**
 * @typedef {import('./types.js').View} View
 * @typedef {import('./types.js').Console} Console
 * @typedef {import('./router.js').Route} Route
 */

/** @type {Record<string, () => Promise<{ mount: (root: HTMLElement, route: Route, app: Console) => View }>>} */
const VIEWS = {
  overview: () => import('./views/overview.js'),
  gates: () => import('./views/gates.js'),
  gate: () => import('./views/gate.js'),
  pools: () => import('./views/pools.js'),
  operations: () => import('./views/operations.js'),
  operation: () => import('./views/operation.js'),
  jobs: () => import('./views/jobs.js'),
  job: () => import('./views/job.js'),
  simulate: () => import('./views/simulate.js'),
  missing: () => import('./views/missing.js'),
};

/** After a countdown the server needs a moment to do what was due. */
const AFTER_END = 250;

applyTheme();
const main = byId('main');
const clock = createClock();
const countdowns = createCountdowns(clock);
const api = createApi(clock, () => signIn());
const connection = createConnection(byId('connection'), announce, () => stream.tryNow());
const top = createTop(byId('top'), {
  onFreeze: toggleFreeze,
  onHelp: openHelp,
  version: () => version?.version ?? '',
});

/** @type {View | null} */
let view = null;
/** @type {Route} */
let route = routeOf(location.href);
/** @type {import('./types.js').Version | null} */
let version = null;
let attention = 0;
let isFrozen = false;
/** Counts navigations: a view that loads too late is not shown. */
let navigation = 0;
/** @type {WeakMap<HTMLElement, () => void>} */
const running = new WeakMap();

/** @type {import('./types.js').Sample | null} The last one, applied in the next frame. */
let pending = null;

const stream = createStream({
  signIn: () => signIn(),
  onHello(hello, isSwitch) {
    connection.restored();
    if (version && hello.version !== version.version) {
      const reload = h('button', { class: 'button plain', type: 'button', onclick: () => location.reload() }, 'Reload');
      connection.say(`Tidegate was updated to ${hello.version}.`, reload);
    }
    if (version && hello.boot_id !== version.boot_id) {
      version = { ...version, boot_id: hello.boot_id };
      view?.restart?.();
    }
    // A page that watches other gates has just fetched them.
    if (!isSwitch) refresh();
  },
  onSample(sample) {
    if (!pending) requestAnimationFrame(applySample);
    pending = sample;
  },
  onEvent(event) {
    if (!isFrozen) view?.onEvent?.(event);
  },
  onMissed: refresh,
  onState(state, retryAt) {
    if (!isFrozen) top.setState(state);
    if (state === 'lost') connection.lost(retryAt ?? 0);
    if (state === 'polling') connection.restored();
  },
});

function applySample() {
  const sample = pending;
  pending = null;
  if (!sample || isFrozen) return;
  attention = sample.attention;
  const { failed: failures, conflict } = sample.operations;
  top.setCount('/operations', failures + conflict, 'need a decision');
  top.setCount('/pools', sample.disabled_endpoints ?? 0, 'disabled endpoints');
  view?.onSample?.(sample);
  setTitle();
}

function refresh() {
  if (!isFrozen) view?.refresh?.();
}

function toggleFreeze() {
  isFrozen = !isFrozen;
  top.setState(isFrozen ? 'frozen' : view?.isStatic ? 'off' : 'live');
  document.body.classList.toggle('frozen', isFrozen);
  if (!isFrozen) refresh();
}

/**
 * @param {string} text
 * @param {boolean} [isUrgent]
 */
function announce(text, isUrgent = false) {
  const region = byId(isUrgent ? 'assertive' : 'polite');
  // The same text again is announced again only if it was removed.
  region.textContent = '';
  setTimeout(() => (region.textContent = text), 50);
}

function setTitle() {
  const name = view?.title() ?? '';
  const count = attention > 0 ? `(${attention}) ` : '';
  const title = `${count}${name ? `${name} – ` : ''}Tidegate`;
  if (document.title !== title) document.title = title;
}

/** @type {Console} */
const app = {
  api,
  clock,
  announce,
  settings: /** @type {any} */ (null),
  toast: createToasts(byId('toasts')),
  isFrozen: () => isFrozen,
  startedMs: () => version?.started_ms ?? 0,
  titleChanged: setTitle,
  keysChanged: () => watch(true),
  go,
  countdown(element, until, text, onEnd) {
    running.get(element)?.();
    const end = () => {
      element.dispatchEvent(new Event('over', { bubbles: true }));
      if (onEnd) setTimeout(() => isFrozen || onEnd(), AFTER_END);
    };
    // An element that was removed from the page ends its countdown; at first it is not there yet.
    let isShown = false;
    const show = (/** @type {number} */ left) => {
      if (element.isConnected) isShown = true;
      else if (isShown) running.get(element)?.();
      return text(left);
    };
    running.set(element, countdowns.add(element, until, show, end));
  },
};

/**
 * @param {string} address
 * @param {'push' | 'replace'} [how]
 */
function go(address, how = 'push') {
  if (how === 'push') history.pushState(null, '', address);
  else history.replaceState(null, '', address);
  navigate();
}

/** @param {boolean} isSamePage */
function watch(isSamePage) {
  if (!view || view.isStatic) stream.stop();
  else stream.watch(view.keys?.() ?? [], isSamePage);
}

/** Shows the page of the present address. */
async function navigate() {
  const next = routeOf(location.href);
  const isSame = view && next.view === route.view && next.id === route.id;
  route = next;
  if (isSame && view?.onRoute) {
    view.onRoute(next);
    return setTitle();
  }
  const number = (navigation += 1);
  top.setSection(next.section);
  try {
    const { mount } = await VIEWS[next.view]();
    if (number !== navigation) return;
    view?.unmount?.();
    view = null;
    main.replaceChildren();
    view = mount(main, next, app);
  } catch (error) {
    main.replaceChildren(failed(error, navigate));
  }
  watch(false);
  setTitle();
  const heading = main.querySelector('h1');
  if (heading instanceof HTMLElement && number > 1) heading.focus({ preventScroll: true });
  if (!next.hash) scrollTo(0, 0);
}

/**
 * Follows links to pages of the console without loading them anew.
 * @param {MouseEvent} event
 */
function onClick(event) {
  const link = event.target instanceof Element ? event.target.closest('a') : null;
  if (!link || event.defaultPrevented || event.button !== 0) return;
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey || link.target) return;
  const url = new URL(link.href, location.href);
  if (url.origin !== location.origin || link.getAttribute('href')?.startsWith('#')) return;
  if (routeOf(url.href).view === 'missing') return;
  event.preventDefault();
  go(url.pathname + url.search + url.hash);
}

async function start() {
  if (route.view === 'login') {
    const isWrong = route.query.has('wrong');
    await signIn(isWrong ? 'This token is not valid here.' : 'The console shows and changes what Tidegate is doing.');
    history.replaceState(null, '', '/');
  }
  // The page's module is loaded beside what it needs; navigate() shows a failure.
  VIEWS[routeOf(location.href).view]().catch(() => {});
  [version, app.settings] = await Promise.all([api.get('/version'), api.get('/api/v1/settings')]);
  addEventListener('popstate', navigate);
  document.addEventListener('click', onClick);
  bindShortcuts({ view: () => view, go, freeze: toggleFreeze });
  if (version?.demo) import('./views/demo.js').then(({ mount }) => mount(byId('demo'), app));
  navigate();
}

/** Starts, and tries again until there is an answer. */
async function begin() {
  try {
    await start();
  } catch (error) {
    main.replaceChildren(failed(error, begin));
  }
}

begin();
