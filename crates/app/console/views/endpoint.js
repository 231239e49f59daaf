// An endpoint's card: its state and why, the numbers of its gate, and what a person can do.

import { actionButton, clearError, showError } from '../action.js';
import { poolUrl } from '../api.js';
import { endpointStates, gateState, showStates } from '../badge.js';
import { confirmAction } from '../dialog.js';
import { h, patch, render, setText } from '../dom.js';
import { count, latency, rate } from '../format.js';
import { menuButton } from '../menu.js';
import { copyText, foreign, longForeign, timeOf } from '../page.js';
import { gatePath } from '../router.js';
import { visible } from '../text.js';

/**
 * @typedef {import('../types.js').Console} Console
 * @typedef {import('../types.js').Endpoint} Endpoint
 * @typedef {import('../types.js').Gate} Gate
 * @typedef {import('../types.js').Pool} Pool
 *
 * @typedef {object} Page
 * @property {() => void} show Shows what is known once more: a time has passed.
 * @property {() => Promise<void>} refresh
 * @property {() => Promise<void>} changed A person's change was made: shows it even under the pointer.
 */

/** How long a button under the pointer ignores clicks at first. */
const EARLY = 400;

/**
 * @typedef {ReturnType<typeof createCard>} Card
 * @param {Console} app
 * @param {Page} page
 * @param {Pool} pool
 * @param {Endpoint} endpoint
 */
export function createCard(app, page, pool, endpoint) {
  const { name } = endpoint;
  const title = visible(`${pool.name}/${name}`, 80);
  const url = `${poolUrl(pool.name)}/endpoints/${encodeURIComponent(name)}`;
  /** @type {Gate | undefined} */
  let gate;
  /** A person's change is under way. */
  let isChanging = false;

  const badges = h('div', { class: 'endpoint-states' });
  const address = h('p', { class: 'endpoint-url' });
  const detail = h('div', { class: 'endpoint-detail' });
  const ofGate = h('p', { class: 'muted small' });
  const facts = ['Rate', 'In flight', 'Waiting', 'p95'].map((label) => ({ label, value: h('dd', null, '–') }));
  const buttons = h('div', { class: 'actions' });
  const footer = h('footer', { class: 'actions' }, buttons, menuButton(`More for ${title}`, 'more', menu));
  const element = h(
    'article',
    { class: 'card endpoint', 'aria-label': `Endpoint ${title}` },
    h(
      'div',
      { class: 'endpoint-body' },
      h('header', null, h('h3', null, foreign(name)), badges),
      address,
      h('div', { class: 'endpoint-why' }, detail, ofGate),
      h('dl', { class: 'facts' }, ...facts.map(({ label, value }) => h('div', null, h('dt', null, label), value))),
    ),
    footer,
  );
  // What belongs to a pause goes at its end, not with the next answer of the server.
  badges.addEventListener('over', page.show);

  function menu() {
    return [
      { label: 'Open gate', href: gatePath(endpoint.key) },
      { label: 'Copy URL', run: () => copyText(app, endpoint.url) },
      { label: 'Remove', run: remove },
    ];
  }

  /**
   * @param {Pool} freshPool
   * @param {Endpoint} fresh
   */
  function update(freshPool, fresh) {
    [pool, endpoint] = [freshPool, fresh];
    showBadges();
    render(address, endpoint.url, () => foreign(endpoint.url));
    const now = app.clock.now();
    element.classList.toggle('paused', isPaused(endpoint, now));
    element.classList.toggle('disabled', !endpoint.enabled);
    const why = detailOf(pool, endpoint, now);
    render(detail, why, () => showDetail(why, now));
    showButtons(!endpoint.enabled ? ['Enable'] : isPaused(endpoint, now) ? ['Enable now', 'Disable'] : ['Disable']);
  }

  function showBadges() {
    const now = app.clock.now();
    const states = endpointStates(endpoint, now);
    const state = gate && gateState(gate, now);
    if (state && state.word !== 'Closed') states.push(state);
    showStates(app, badges, states, page.refresh);
  }

  /** @param {Gate | undefined} fresh */
  function showGate(fresh) {
    gate = fresh;
    showBadges();
    showHold();
    const texts = [rate(gate?.rate_per_second), count(gate?.in_flight), count(gate?.waiting), latency(gate?.latency_ms.p95)];
    facts.forEach(({ value }, at) => setText(value, texts[at]));
  }

  function showHold() {
    const now = app.clock.now();
    // A pause has its own reason and end.
    const isUsed = endpoint.enabled && !isPaused(endpoint, now);
    const hold = isUsed && gate?.hold && gate.hold.until_ms > now ? gate.hold : null;
    render(ofGate, hold && [hold.until_ms, hold.source], () => hold && ['Gate held until ', timeOf(hold.until_ms, now), ' (', foreign(hold.source), ').']);
    ofGate.hidden = !hold;
  }

  /** @param {string[]} labels */
  function showButtons(labels) {
    const hadFocus = buttons.contains(document.activeElement);
    const isAimedAt = !isChanging && buttons.matches(':hover, :focus-within');
    const create = (/** @type {string} */ label) => {
      const created = button(label);
      if (isAimedAt) ignoreEarlyClicks(created);
      return created;
    };
    patch(buttons, labels, (label) => label, create, () => {});
    // The focus of a button that went is not lost.
    if (hadFocus && !buttons.contains(document.activeElement)) buttons.querySelector('button')?.focus();
  }

  /** @param {string} label */
  function button(label) {
    if (label === 'Disable') return actionButton({ label, busy: 'Disabling…', run: disable });
    const isDisabled = label === 'Enable';
    return actionButton({ label, busy: 'Enabling…', kind: isDisabled ? 'main' : 'plain', run: () => enable(isDisabled) });
  }

  /** @param {boolean} canUndo */
  async function enable(canUndo) {
    await set(true);
    app.toast(`${title} enabled.`, canUndo ? () => undo(false) : undefined);
  }

  async function disable() {
    const run = async () => {
      await set(false);
      app.toast(`${title} disabled.`, () => undo(true));
    };
    if (!isLastEnabled(pool, name)) return run();
    // Not awaited: nothing runs until the person has decided.
    confirmAction({
      title: `Disable the last endpoint of ${visible(pool.name, 80)}?`,
      body: [withoutEndpoint(pool.name)],
      action: 'Disable endpoint',
      busy: 'Disabling…',
      isDangerous: true,
      run,
    });
  }

  /** @param {boolean} isEnabled */
  async function set(isEnabled) {
    isChanging = true;
    try {
      await app.api.send('PATCH', url, { enabled: isEnabled });
      await page.changed();
    } finally {
      isChanging = false;
    }
  }

  /** @param {boolean} isEnabled */
  async function undo(isEnabled) {
    clearError(footer);
    try {
      await set(isEnabled);
    } catch (error) {
      showError(footer, error);
    }
  }

  async function remove() {
    const body = ['It stays away over restarts, also if the configuration file has it, until one of this name is added.'];
    if (endpoint.in_flight > 0) body.push(`${count(endpoint.in_flight)} in flight finish.`);
    if (isLastEnabled(pool, name)) body.push(withoutEndpoint(pool.name));
    const section = element.closest('section');
    const isDone = await confirmAction({
      title: `Remove endpoint ${title}?`,
      body,
      action: 'Remove endpoint',
      busy: 'Removing…',
      isDangerous: true,
      run: async () => {
        await app.api.send('DELETE', url);
        await page.changed();
      },
    });
    if (!isDone) return;
    app.toast(`${title} removed.`);
    section?.querySelector('h2')?.focus();
  }

  return { element, update, showGate };
}

/**
 * Ignores clicks for a moment: they were meant for the button that stood here before.
 * @param {HTMLButtonElement} button
 */
function ignoreEarlyClicks(button) {
  const since = performance.now();
  const ignore = (/** @type {Event} */ event) => performance.now() - since < EARLY && event.stopImmediatePropagation();
  button.addEventListener('click', ignore, { capture: true });
}

/** @param {string} pool */
const withoutEndpoint = (pool) => `Requests to /${visible(pool, 80)} are answered 503 no_endpoint until one is enabled.`;

/**
 * Is no other endpoint of its pool enabled?
 * @param {Pool} pool
 * @param {string} name
 */
export function isLastEnabled(pool, name) {
  const enabled = pool.endpoints.filter((endpoint) => endpoint.enabled);
  return enabled.length === 1 && enabled[0].name === name;
}

/**
 * @param {Endpoint} endpoint
 * @param {number} now
 */
export function isPaused({ enabled, paused_until_ms: until }, now) {
  return enabled && until !== null && until > now;
}

/**
 * @typedef {object} Detail Why an endpoint is not used, or not fully.
 * @property {string} [title]
 * @property {string | null} [error]
 * @property {boolean} [isQuiet] A person wanted it so.
 * @property {number | null} [at]
 * @property {number | null} [until]
 * @property {{ errors: number, after: number, text: string } | null} [steps]
 * @property {string} [note]
 *
 * @param {Pool} pool
 * @param {Endpoint} endpoint
 * @param {number} now
 * @returns {Detail}
 */
export function detailOf({ protection }, endpoint, now) {
  const { consecutive_errors: errors, disabled_kind: kind, last_error: error, paused_until_ms: until } = endpoint;
  const steps = (/** @type {string} */ what) => ({ errors, after: protection.disable_after, text: `${errors} of ${protection.disable_after} ${what}` });
  if (!endpoint.enabled) {
    const [title, at] = [disabledTitle(endpoint), endpoint.disabled_at_ms];
    if (kind === 'person') return { title, at, isQuiet: true };
    return { title, at, error, steps: kind === 'errors' ? steps('errors in a row') : null };
  }
  if (isPaused(endpoint, now)) {
    return { title: 'Last error', error, until, steps: protection.enabled ? steps('until disabled') : null };
  }
  const isRecovering = endpoint.recovering || until !== null;
  return isRecovering ? { note: 'One request at a time until one succeeds.' } : {};
}

/** @param {Endpoint} endpoint */
function disabledTitle({ disabled_kind: kind, disabled_reason: reason }) {
  if (kind === 'person') return 'Disabled by a person';
  if (kind === 'errors') return `Disabled after ${reason}`;
  return reason ? `Disabled: ${reason}` : 'Disabled';
}

/**
 * @param {Detail} detail
 * @param {number} now
 */
function showDetail({ title, error, isQuiet, at, until, steps, note }, now) {
  const time = at ? h('span', null, 'since ', timeOf(at, now)) : until ? h('span', null, 'until ', timeOf(until, now)) : null;
  return [
    title && h('p', { class: `reason ${isQuiet ? 'quiet' : ''}` }, h('b', null, title), error && [' ', longForeign(error)], !steps && time && [' ', time]),
    steps && h('p', { class: 'ladder' }, showSteps(steps), time),
    note && h('p', { class: 'muted small' }, note),
  ];
}

/** @param {{ errors: number, after: number, text: string }} steps */
function showSteps({ errors, after, text }) {
  const bars = Array.from({ length: after }, (_, at) => h('i', { class: at < errors ? 'filled' : null }));
  return h('span', { class: 'row' }, h('span', { class: 'bars', 'aria-hidden': 'true' }, ...bars), text);
}
