// The dialog of a pool's protection: when its endpoints are paused and disabled.

import { actionButton, showProblems } from '../action.js';
import { poolUrl } from '../api.js';
import { confirmAction, confirmDiscard, openDialog } from '../dialog.js';
import { h, patch, setAttribute, setText } from '../dom.js';
import { duration, parseDuration } from '../format.js';
import { copyText } from '../page.js';
import { visible } from '../text.js';
import { protectionToml } from '../toml.js';

/**
 * @typedef {import('../types.js').Protection} Protection
 *
 * @typedef {object} Typed What the form holds, as it was typed.
 * @property {boolean} enabled
 * @property {string[]} pauses
 * @property {string} disable_after
 * @property {boolean} unreachable
 * @property {boolean} show_test_tool
 * @property {string} probing_after
 * @property {string} statuses
 * @property {string} texts One a line.
 */

const MAX_STEPS = 10;

/**
 * @param {import('../types.js').Console} app
 * @param {import('./endpoint.js').Page} page
 * @param {import('../types.js').Pool} pool
 * @param {() => void} onClose
 * @returns {import('./pools.js').PageDialog}
 */
export function openProtection(app, page, pool, onClose) {
  const name = visible(pool.name, 80);
  /** What the server has. */
  let saved = pool.protection;
  /** The pauses before the threshold was changed. @type {string[]} */
  let before = [];

  const enabled = switchRow('Enable API protection', 'Pause an endpoint after errors, disable it after too many in a row.', changed);
  const tool = switchRow('Show test tool', 'Play four scenarios with these settings. Nothing is sent.', changed);
  const pauses = h('div', { class: 'pauses' });
  const threshold = input('disable_after', { type: 'number', min: '1', max: String(MAX_STEPS), class: 'short', onfocus: keepPauses, oninput: onThreshold, onchange: keepPauses });
  const statuses = input('statuses', {});
  const texts = h('textarea', { name: 'texts', id: 'setting-texts', rows: '4', spellcheck: 'false' });
  const probing = input('probing_after', { type: 'number', min: '0', class: 'short' });
  const unreachable = h('input', { type: 'checkbox', name: 'unreachable' });
  const which = h('span', { class: 'muted' });
  const origin = h('p', { class: 'muted small' });

  const form = h(
    'form',
    { class: 'settings', novalidate: true, oninput: changed, onsubmit: onSubmit },
    h('p', { class: 'form-problem', role: 'alert' }),
    enabled.element,
    h(
      'fieldset',
      null,
      h('legend', null, 'Pause durations'),
      h('p', { class: 'hint' }, 'After the 1st error in a row, the 2nd, and so on. At least 1s. The last repeats.'),
      pauses,
    ),
    settingRow('disable_after', 'Auto-disable threshold', `Error number in a row that disables, 1 to ${MAX_STEPS}.`, threshold),
    h(
      'details',
      null,
      h('summary', null, h('b', null, 'Which errors count'), ' ', which),
      h('div', { class: 'field' }, h('label', { for: 'setting-statuses' }, 'Statuses'), statuses),
      h('div', { class: 'field' }, h('label', { for: 'setting-texts' }, 'Phrases, one a line'), texts),
      h('label', { class: 'check' }, unreachable, 'Requests that reach no server count, too'),
      settingRow('probing_after', 'Successes before a 429 is probing', 'After so many since the last error, a 429 that names no wait does not count: the gate was looking for the limit. 0: every 429 counts.', probing),
    ),
    tool.element,
    origin,
    h('button', { type: 'submit', hidden: true }),
  );
  const save = actionButton({ label: 'Save', busy: 'Saving…', kind: 'main', run: send, onError: (error) => showProblems(form, error) });
  const plain = (/** @type {string} */ label, /** @type {() => void} */ onclick, kind = 'plain') => h('button', { class: `button ${kind}`, type: 'button', onclick }, label);
  const footer = [
    h('div', { class: 'actions first' }, plain('Reset to defaults', reset, 'text'), plain('Copy as TOML', () => copyText(app, protectionToml(pool.name, valuesOf(read()))), 'text')),
    plain('Cancel', close),
    save,
  ];
  const dialog = openDialog({ title: `API protection settings: ${name}`, body: [form], footer, mayClose, onClose });
  fill(pool.protection, pool.configured, pool.changed);
  enabled.button.focus();

  /**
   * @param {Protection} protection
   * @param {Protection} configured
   * @param {boolean} isChanged
   */
  function fill(protection, configured, isChanged) {
    saved = protection;
    const typed = typedOf(protection);
    enabled.set(typed.enabled);
    tool.set(typed.show_test_tool);
    threshold.value = typed.disable_after;
    statuses.value = typed.statuses;
    texts.value = typed.texts;
    probing.value = typed.probing_after;
    unreachable.checked = typed.unreachable;
    pauses.replaceChildren();
    showPauses(typed.pauses);
    setText(origin, isChanged ? `Changed here; the configuration file says ${differences(protection, configured)}.` : '');
    changed();
  }

  /** @returns {Typed} */
  function read() {
    return {
      enabled: enabled.isOn(),
      pauses: typedPauses(),
      disable_after: threshold.value,
      unreachable: unreachable.checked,
      show_test_tool: tool.isOn(),
      probing_after: probing.value,
      statuses: statuses.value,
      texts: texts.value,
    };
  }

  function typedPauses() {
    return [...pauses.querySelectorAll('input')].map((field) => field.value);
  }

  /** @param {string[]} values */
  function showPauses(values) {
    patch(
      pauses,
      values.map((value, at) => ({ value, at })),
      ({ at }) => String(at),
      ({ value, at }) => {
        const field = input(`pauses[${at}]`, { value });
        field.addEventListener('change', () => (field.value = pauseText(field.value)));
        return h('div', { class: 'field' }, h('label', { for: field.id }, ordinal(at + 1)), field);
      },
      (element, { value }) => {
        const field = element.querySelector('input');
        if (field && field.value !== value) field.value = value;
      },
    );
  }

  function keepPauses() {
    before = typedPauses();
  }

  /** While a number is typed, `1` is not yet `10`: pauses are cut from what was there before. */
  function onThreshold() {
    const steps = Number(threshold.value);
    const isPossible = Number.isInteger(steps) && steps >= 1 && steps <= MAX_STEPS;
    showPauses(isPossible ? resize(before, steps) : before);
  }

  function changes() {
    return changesOf(saved, read());
  }

  function changed() {
    const typed = read();
    save.disabled = Object.keys(changesOf(saved, typed)).length === 0;
    setText(which, `${words(typed.statuses).join(', ')} · ${count(lines(typed.texts).length, 'phrase')}`);
  }

  async function send() {
    await app.api.send('PUT', `${poolUrl(pool.name)}/protection`, changes());
    await page.changed();
    app.toast(`Protection settings of ${name} saved.`);
    dialog.close();
  }

  async function reset() {
    let restored = saved;
    const isDone = await confirmAction({
      title: 'Restore what the configuration file says?',
      body: [`${name} then has: ${describe(pool.configured)}.`],
      action: 'Reset to defaults',
      busy: 'Resetting…',
      run: async () => (restored = await app.api.send('POST', `${poolUrl(pool.name)}/protection/reset`)),
    });
    if (!isDone) return;
    fill(restored, pool.configured, false);
    page.changed();
    app.toast(`Protection settings of ${name} restored.`);
  }

  /** @param {SubmitEvent} event */
  function onSubmit(event) {
    event.preventDefault();
    if (!save.disabled) save.click();
  }

  function mayClose() {
    const number = Object.keys(changes()).length;
    if (number === 0) return true;
    const effect = `${count(number, 'setting')} of ${name} would change; nothing is saved yet.`;
    return confirmDiscard('Discard the changes?', effect, 'Discard changes');
  }

  async function close() {
    if (await mayClose()) dialog.close();
  }

  return { close: dialog.close, mayClose };
}

/**
 * @param {string} name
 * @param {Record<string, any>} props
 */
const input = (name, props) => h('input', { name, id: `setting-${name}`, autocomplete: 'off', spellcheck: 'false', ...props });

/**
 * @param {string} name
 * @param {string} label
 * @param {string} hint
 * @param {HTMLElement} control
 */
function settingRow(name, label, hint, control) {
  return h('div', { class: 'field setting' }, h('label', { for: `setting-${name}` }, label), control, h('p', { class: 'hint' }, hint));
}

/**
 * A switch with its word beside it.
 * @param {string} label
 * @param {string} hint
 * @param {() => void} onChange
 */
function switchRow(label, hint, onChange) {
  const id = `switch-${label.replaceAll(' ', '-')}`;
  const word = h('span', { 'aria-hidden': 'true' });
  const button = h('button', { class: 'switch', type: 'button', role: 'switch', 'aria-labelledby': id, onclick: toggle }, word, h('i', null));
  const isOn = () => button.getAttribute('aria-checked') === 'true';

  /** @param {boolean} isNowOn */
  function set(isNowOn) {
    setAttribute(button, 'aria-checked', String(isNowOn));
    setText(word, isNowOn ? 'On' : 'Off');
  }

  function toggle() {
    set(!isOn());
    onChange();
  }

  return { element: h('div', { class: 'field setting' }, h('span', { class: 'label', id }, label), button, h('p', { class: 'hint' }, hint)), button, isOn, set };
}

/**
 * @param {number} n
 * @param {string} word
 */
const count = (n, word) => `${n} ${word}${n === 1 ? '' : 's'}`;

/** @param {number} n */
export const ordinal = (n) => `${n}${['th', 'st', 'nd', 'rd'][n] ?? 'th'}`;

/** @param {string} text */
const words = (text) => text.split(/[\s,]+/).filter(Boolean);

/** @param {string} text */
const lines = (text) => text.split('\n').map((line) => line.trim()).filter(Boolean);

/**
 * In milliseconds; a number without a unit is in seconds.
 * @param {string} text
 */
const readPause = (text) => parseDuration(/^\s*\d+\s*$/.test(text) ? `${text.trim()}s` : text);

/**
 * A pause as it is shown: `1m 30s`. What cannot be read, or has fractions of seconds, stays.
 * @param {string} text
 */
export function pauseText(text) {
  const ms = readPause(text);
  return ms === null || ms % 1000 !== 0 ? text.trim() : duration(ms);
}

/**
 * A pause as the API writes it: `90s`.
 * @param {string} text
 */
export function pauseValue(text) {
  const ms = readPause(text);
  return ms === null || ms % 1000 !== 0 ? text.trim() : `${ms / 1000}s`;
}

/**
 * As many pauses as there are steps: more are filled with the last, fewer are cut.
 * @param {string[]} pauses
 * @param {number} steps
 */
export function resize(pauses, steps) {
  const last = pauses.at(-1) ?? '';
  return Array.from({ length: steps }, (_, at) => pauses[at] ?? last);
}

/**
 * What the form shows at first.
 * @param {Protection} protection
 * @returns {Typed}
 */
export function typedOf(protection) {
  return {
    ...protection,
    pauses: resize(protection.pauses, protection.disable_after).map(pauseText),
    disable_after: String(protection.disable_after),
    probing_after: String(protection.probing_after),
    statuses: protection.statuses.join(', '),
    texts: protection.texts.join('\n'),
  };
}

/**
 * What the API gets for what was typed. What is no number goes as it is: the API says what it
 * expects.
 * @param {Typed} typed
 */
export function valuesOf(typed) {
  const whole = (/** @type {string} */ text) => (/^\d{1,9}$/.test(text.trim()) ? Number(text) : text);
  return {
    enabled: typed.enabled,
    pauses: typed.pauses.map(pauseValue),
    disable_after: whole(typed.disable_after),
    unreachable: typed.unreachable,
    show_test_tool: typed.show_test_tool,
    probing_after: whole(typed.probing_after),
    statuses: words(typed.statuses).map(whole),
    texts: lines(typed.texts),
  };
}

/**
 * The settings that were changed, as the body of a call.
 * @param {Protection} saved
 * @param {Typed} typed
 */
export function changesOf(saved, typed) {
  const old = valuesOf(typedOf(saved));
  const isChanged = (/** @type {[string, unknown]} */ [name, value]) => JSON.stringify(value) !== JSON.stringify(/** @type {any} */ (old)[name]);
  return Object.fromEntries(Object.entries(valuesOf(typed)).filter(isChanged));
}

/** @type {Record<string, (protection: Protection) => string>} */
const SENTENCES = {
  enabled: ({ enabled }) => `protection ${enabled ? 'on' : 'off'}`,
  pauses: ({ pauses }) => pauses.map(pauseText).join(', '),
  disable_after: ({ disable_after: after }) => `threshold ${after}`,
  statuses: ({ statuses }) => `statuses ${statuses.join(', ')}`,
  texts: ({ texts }) => `phrases ${texts.map((text) => `"${visible(text)}"`).join(', ')}`,
  unreachable: ({ unreachable }) => `requests that reach no server ${unreachable ? 'count' : 'do not count'}`,
  probing_after: ({ probing_after: after }) => `a 429 is probing after ${after === 1 ? '1 success' : `${after} successes`}`,
  show_test_tool: ({ show_test_tool: isShown }) => `test tool ${isShown ? 'shown' : 'hidden'}`,
};

/**
 * What the configuration file says where it differs.
 * @param {Protection} protection
 * @param {Protection} configured
 */
export function differences(protection, configured) {
  const isSame = (/** @type {string} */ name) => JSON.stringify(/** @type {any} */ (protection)[name]) === JSON.stringify(/** @type {any} */ (configured)[name]);
  const parts = Object.entries(SENTENCES).filter(([name]) => !isSame(name));
  return parts.map(([, say]) => say(configured)).join(' · ') || 'the same';
}

/** @param {Protection} protection */
const describe = (protection) => ['enabled', 'pauses', 'disable_after'].map((name) => SENTENCES[name](protection)).join(' · ');
