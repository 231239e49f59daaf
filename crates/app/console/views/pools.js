// Pools: a card for each endpoint, live in place; dialogs with addresses of their own.

import { h, patch, render, replace, setText } from '../dom.js';
import { count } from '../format.js';
import { icon } from '../icons.js';
import { copyCommand, copyCurl, empty, every, failed, foreign, linkButton, loading, pageHead } from '../page.js';
import { withQuery } from '../router.js';
import { openAddEndpoint } from './add_endpoint.js';
import { createCard, isPaused } from './endpoint.js';
import { openProtection, pauseText } from './protection.js';
import { createTestTool } from './test_tool.js';

/**
 * @typedef {import('../types.js').Console} Console
 * @typedef {import('../types.js').Endpoint} Endpoint
 * @typedef {import('../types.js').Gate} Gate
 * @typedef {import('../types.js').Pool} Pool
 * @typedef {import('../router.js').Route} Route
 * @typedef {import('./endpoint.js').Card} Card
 * @typedef {import('./endpoint.js').Page} Page
 *
 * @typedef {object} PageDialog
 * @property {() => void} close
 * @property {() => boolean | Promise<boolean>} mayClose Asks about what was typed.
 *
 * @typedef {object} Shown
 * @property {string} address
 * @property {boolean} isPushed There is an address of the page before it.
 * @property {PageDialog} dialog
 */

/** What other consoles and programs change comes without an event. */
const RENEW = 5000;
/** Events of one moment are one fetch. */
const TOGETHER = 100;

/** A stream samples no more gates. */
const MAX_SAMPLED = 100;
/** Of a pool with more endpoints, these and those that are not active are shown. */
const MAX_CARDS = 48;

/** What a dialog is for, by the parameter of its address. */
const DIALOGS = { settings: openProtection, add: openAddEndpoint };

/**
 * @param {HTMLElement} root
 * @param {Route} route
 * @param {Console} app
 * @returns {import('../types.js').View}
 */
export function mount(root, route, app) {
  /** @type {Pool[] | null} */
  let pools = null;
  /** @type {Map<string, Gate>} */
  let gates = new Map();
  /** @type {WeakMap<Element, ReturnType<typeof createSection>>} */
  const sections = new WeakMap();
  /** Cards by the key of their gate. @type {Map<string, Card>} */
  const cards = new Map();
  let loads = 0;
  /** The newest load that is shown: an older answer that comes later is not. */
  let newest = 0;
  /** Endpoints were added or removed, which is not shown yet. */
  let isBehind = false;
  let shownNames = '';
  /** The pool of the address that the page has scrolled to. */
  let scrolledTo = '';
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let soon;

  const page = { refresh, changed: () => refresh(true), show: () => pools && show(pools, false), open: openDialog };
  const summary = h('p', null);
  const note = h('p', { class: 'note', role: 'status', hidden: true });
  const list = h('div', { class: 'pools', onpointerout: catchUp }, loading('pools'));
  root.append(
    pageHead({ title: 'Pools', below: summary }),
    note,
    list,
    h('div', { class: 'actions page-tools' }, copyCurl(app, 'GET', '/api/v1/pools'), copyCommand(app, 'tidegate pools list')),
  );
  refresh();
  addEventListener('scrollend', app.keysChanged);
  const stop = every(RENEW, () => app.isFrozen() || refresh());

  async function refresh(isOwn = false) {
    const number = (loads += 1);
    const fresh = await app.api.get('/api/v1/pools').catch((error) => {
      // What is known stays; the bar above says that there is no connection.
      if (!pools && number === loads) replace(list, failed(error, page.changed));
    });
    if (!fresh || number < newest) return;
    newest = number;
    show(fresh.pools, isOwn);
  }

  /**
   * @param {Pool[]} fresh
   * @param {boolean} isOwn
   */
  function show(fresh, isOwn) {
    const isFirst = !pools;
    pools = fresh;
    isBehind = !isOwn && !isFirst && isPointing() && namesOf(fresh) !== shownNames;
    const text = summaryOf(fresh, app.clock.now());
    render(summary, [text, isBehind], () => [text, isBehind && ' · ', isBehind && linkButton('Show changed endpoints', page.changed)]);
    if (isBehind) return updateCards(fresh);
    shownNames = namesOf(fresh);
    if (fresh.length === 0) replace(list, empty('No pools. Add [pool.NAME] to the configuration file and reload.'));
    else showAll(fresh);
    app.keysChanged();
    if (isFirst) showRoute();
  }

  /** @param {Pool[]} fresh */
  function showAll(fresh) {
    for (const element of list.querySelectorAll(':scope > :not(section)')) element.remove();
    cards.clear();
    patch(list, fresh, (pool) => pool.name, create, (element, pool) => sections.get(element)?.update(pool, cards));
    showGates();
  }

  function showGates() {
    for (const [key, card] of cards) card.showGate(gates.get(key));
  }

  /** @param {Pool} pool */
  function create(pool) {
    const section = createSection(app, page, pool);
    sections.set(section.element, section);
    return section.element;
  }

  /** @param {Pool[]} fresh */
  function updateCards(fresh) {
    for (const pool of fresh) for (const endpoint of pool.endpoints) cards.get(endpoint.key)?.update(pool, endpoint);
  }

  /** Would cards that move hit a click? */
  function isPointing() {
    const isOver = matchMedia('(hover: hover)').matches && list.querySelector('button:hover');
    return Boolean(isOver || list.querySelector('.menu:not([hidden])'));
  }

  /** Of very many cards only those on screen are sampled. */
  function keys() {
    const all = [...cards];
    const isNear = (/** @type {DOMRect} */ { top, bottom }) => bottom > 0 && top < innerHeight;
    const shown = all.length <= MAX_SAMPLED ? all : all.filter(([, card]) => isNear(card.element.getBoundingClientRect()));
    return shown.map(([key]) => key);
  }

  /**
   * Moves the focus to the first button of the next or previous card.
   * @param {1 | -1} by
   */
  function move(by) {
    const all = [...list.querySelectorAll('.endpoint')];
    const at = all.findIndex((card) => card.contains(document.activeElement));
    const next = all[at < 0 ? 0 : at + by];
    next?.querySelector('button')?.focus();
  }

  function catchUp() {
    if (isBehind) setTimeout(() => isBehind && page.show());
  }

  /** @type {Shown | null} */
  let shown = null;
  let isPushed = false;

  /**
   * @param {keyof typeof DIALOGS} kind
   * @param {string} name
   */
  function openDialog(kind, name) {
    isPushed = true;
    app.go(withQuery('/pools', { [kind]: name }));
  }

  /** Shows what the address names: a dialog, or a pool to scroll to. */
  function showRoute() {
    const kind = /** @type {const} */ (['settings', 'add']).find((each) => route.query.has(each));
    const name = kind ? route.query.get(kind) ?? '' : '';
    const address = kind ? withQuery('/pools', { [kind]: name }) : '';
    if (shown && shown.address !== address) leaveDialog(shown);
    if (shown || !pools) return;
    const pool = pools.find((each) => each.name === (kind ? name : route.hash));
    if (kind && pool) {
      const dialog = DIALOGS[kind](app, page, pool, () => dialogClosed(address));
      shown = { address, isPushed, dialog };
    } else if (pool) scrollTo(pool.name);
    const missing = pool ? '' : name || route.hash;
    note.hidden = !missing;
    if (missing) replace(note, 'There is no pool ', foreign(missing), ' now.');
    isPushed = false;
  }

  /** @param {string} name */
  function scrollTo(name) {
    if (scrolledTo === name) return;
    scrolledTo = name;
    [...list.children].find((element) => /** @type {any} */ (element).itemKey === name)?.scrollIntoView();
  }

  /**
   * The browser's Back leads away from a dialog: it closes, unless something typed would be lost.
   * @param {Shown} left
   */
  async function leaveDialog(left) {
    history.pushState(null, '', left.address);
    if (await left.dialog.mayClose()) left.dialog.close();
  }

  /** @param {string} address */
  function dialogClosed(address) {
    const wasPushed = shown?.isPushed;
    shown = null;
    if (location.pathname + location.search !== address) return;
    if (wasPushed) history.back();
    else app.go('/pools', 'replace');
  }

  return {
    title: () => 'Pools',
    keys,
    onSample(sample) {
      const before = gates;
      gates = new Map(sample.gates.map((gate) => [gate.key, gate]));
      showGates();
      if (pools && hasRecovered(pools, before, gates)) refresh();
    },
    onEvent({ kind }) {
      if (!kind.startsWith('endpoint_')) return;
      clearTimeout(soon);
      soon = setTimeout(refresh, TOGETHER);
    },
    refresh,
    onRoute(next) {
      route = next;
      showRoute();
    },
    shortcuts: { j: () => move(1), k: () => move(-1) },
    unmount() {
      stop();
      removeEventListener('scrollend', app.keysChanged);
      clearTimeout(soon);
      newest = Infinity;
      const last = shown;
      shown = null;
      last?.dialog.close();
    },
  };
}

/** @param {Pool[]} pools */
const namesOf = (pools) => JSON.stringify(pools.map((pool) => [pool.name, pool.endpoints.map((endpoint) => endpoint.name)]));

/**
 * A success ends a pause or a recovery, which no event tells.
 * @param {Pool[]} pools
 * @param {Map<string, Gate>} before
 * @param {Map<string, Gate>} now
 */
function hasRecovered(pools, before, now) {
  const successes = (/** @type {Map<string, Gate>} */ gates, /** @type {string} */ key) => gates.get(key)?.counts.success ?? 0;
  return pools.some(({ endpoints }) =>
    endpoints.some(({ key, recovering, paused_until_ms: until }) => (recovering || until !== null) && successes(now, key) > successes(before, key)),
  );
}

/**
 * @param {Console} app
 * @param {Page & { open: (kind: 'settings' | 'add', name: string) => void }} page
 * @param {Pool} pool
 */
function createSection(app, page, { name }) {
  const rule = h('p', { class: 'muted small' });
  const gear = h(
    'button',
    { class: 'icon-button bordered', type: 'button', 'aria-label': 'API protection settings', title: 'API protection settings', onclick: () => page.open('settings', name) },
    icon('gear'),
  );
  const grid = h('div', { class: 'cards' });
  const below = h('div', null);
  const all = linkButton('', showEverything);
  let isWhole = false;
  /** @type {WeakMap<Element, Card>} */
  const known = new WeakMap();
  /** @type {ReturnType<typeof createTestTool> | null} */
  let tool = null;
  const add = () => h('button', { class: 'button plain', type: 'button', onclick: () => page.open('add', name) }, icon('plus'), 'Add endpoint');
  const element = h(
    'section',
    { class: 'pool' },
    h(
      'div',
      { class: 'pool-head' },
      h('div', null, h('h2', { tabindex: '-1' }, foreign(name), ' ', h('code', { class: 'muted' }, foreign(`/${name}/…`))), rule),
      h('div', { class: 'actions' }, add(), gear),
    ),
    grid,
    h('p', { class: 'more' }, all),
    below,
  );

  function showEverything() {
    isWhole = true;
    page.changed();
  }

  /** @param {Pool} pool */
  function showTool(pool) {
    if (!pool.protection.show_test_tool) {
      tool?.element.remove();
      tool = null;
      return;
    }
    if (!tool) below.append((tool = createTestTool(app, pool.name)).element);
    tool.update(pool.protection);
  }

  return {
    element,
    /**
     * @param {Pool} pool
     * @param {Map<string, Card>} cards Filled with those of this pool.
     */
    update(pool, cards) {
      setText(rule, ruleOf(pool));
      element.classList.toggle('guarded', pool.protection.enabled);
      for (const other of grid.querySelectorAll(':scope > .empty')) other.remove();
      const shown = isWhole ? pool.endpoints : shownOf(pool.endpoints, MAX_CARDS);
      all.hidden = shown.length === pool.endpoints.length;
      setText(all, `Show all ${count(pool.endpoints.length)} endpoints`);
      patch(
        grid,
        shown,
        (endpoint) => endpoint.name,
        (endpoint) => {
          const card = createCard(app, page, pool, endpoint);
          known.set(card.element, card);
          return card.element;
        },
        (article, endpoint) => {
          const card = known.get(article);
          if (card) cards.set(endpoint.key, card);
          card?.update(pool, endpoint);
        },
      );
      if (pool.endpoints.length === 0) {
        const text = ['No endpoints. Requests to ', foreign(`/${name}`), ' are answered 503 no_endpoint.'];
        grid.append(h('div', { class: 'card empty' }, h('p', null, text), add()));
      }
      showTool(pool);
    },
  };
}

/**
 * The first endpoints, and others that a person may have to look at.
 * @param {Endpoint[]} endpoints
 * @param {number} max
 */
export function shownOf(endpoints, max) {
  const needsLook = (/** @type {Endpoint} */ { enabled, recovering, paused_until_ms: until }) => !enabled || recovering || until !== null;
  const others = new Set(endpoints.slice(max).filter(needsLook).slice(0, max));
  return endpoints.filter((endpoint, at) => at < max || others.has(endpoint));
}

/**
 * @param {Pool[]} pools
 * @param {number} now
 */
export function summaryOf(pools, now) {
  const endpoints = pools.flatMap((pool) => pool.endpoints);
  const paused = endpoints.filter((endpoint) => isPaused(endpoint, now)).length;
  const disabled = endpoints.filter((endpoint) => !endpoint.enabled).length;
  const parts = [plural(pools.length, 'pool'), plural(endpoints.length, 'endpoint')];
  if (paused > 0) parts.push(`${count(paused)} paused`);
  if (disabled > 0) parts.push(`${count(disabled)} disabled`);
  return parts.join(' · ');
}

/**
 * @param {number} n
 * @param {string} word
 */
const plural = (n, word) => `${count(n)} ${word}${n === 1 ? '' : 's'}`;

/**
 * How a pool uses its endpoints, in a line.
 * @param {Pick<Pool, 'balance' | 'protection'>} pool
 */
export function ruleOf({ balance, protection }) {
  const start = balance.replaceAll('_', ' ');
  if (!protection.enabled) return `${start} · protection off`;
  const pauses = protection.pauses.slice(0, protection.disable_after).map(pauseText).join(', ');
  const { disable_after: after } = protection;
  return `${start} · protection on · pauses ${pauses} · disabled after ${after === 1 ? 'one error' : `${after} errors in a row`}`;
}
