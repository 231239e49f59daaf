// The conflict desk: what the edit started from, what the operation sends and what the server has,
// side by side, and what is sent instead. The only page that shows bodies; it drops them on leaving.

import { actionButton, showError } from '../action.js';
import { ApiError, operationUrl, problem } from '../api.js';
import { badge, operationState } from '../badge.js';
import { confirmAction } from '../dialog.js';
import { h, replace, setText } from '../dom.js';
import { count } from '../format.js';
import { icon } from '../icons.js';
import { JsonNumber, parseJson, writeJson } from '../json.js';
import { isChanged, rows } from '../merge.js';
import { copyCommand, copyCurl, failed, foreign, linkButton, loading, pageHead, quote, timeOf } from '../page.js';
import { operationPath, withQuery } from '../router.js';
import { createFields } from './conflict_fields.js';
import { createText, createTexts } from './conflict_text.js';

/**
 * @typedef {import('../types.js').Operation} Operation
 * @typedef {import('../types.js').Console} Console
 * @typedef {import('../json.js').Json} Json
 * @typedef {{ base: Json | undefined, ours: Json, theirs: Json | undefined, fetchedMs: number }} Versions undefined if unknown
 * @typedef {object} Editor A way to make the result.
 * @property {HTMLElement} element
 * @property {() => { body: string | null, why: string }} result JSON to send, or why there is none.
 */

/** Conflicts to step through. */
const MAX_LISTED = 200;

/**
 * @param {HTMLElement} root
 * @param {Operation} operation
 * @param {Console} app
 * @param {() => void} leave Shows the operation instead.
 */
export function mountDesk(root, operation, app, leave) {
  const { id } = operation;
  /** @type {Versions | null} */
  let versions = null;
  /** @type {Editor | null} The one that is shown: one of the following, or of texts only. */
  let editor = null;
  /** @type {Editor | null} */
  let fields = null;
  /** @type {Editor | null} What was typed stays while fields are shown. */
  let text = null;
  let isDecided = false;
  /** IDs of all conflicts, newest first. @type {string[]} */
  let others = [];
  const controller = new AbortController();
  const now = app.clock.now();
  const summary = h('span', null);
  const note = h('div', { role: 'status' });
  const position = h('span', { class: 'muted' });
  const previous = stepButton('Previous conflict', 'left', -1);
  const next = stepButton('Next conflict', 'right', 1);
  const body = h('div', null, loading('versions', 4));
  const hint = h('span', { class: 'muted', role: 'status' });
  const send = actionButton({ label: 'Send result', busy: 'Sending…', kind: 'main', run: sendResult });
  const toggle = h('button', { class: 'button quiet', type: 'button', hidden: true, onclick: toggleText });
  const buttons = h(
    'div',
    { class: 'actions desk-actions' },
    actionButton({ label: 'Resend ours', busy: 'Sending…', run: () => resolve('{"action":"resend"}', 'Ours is sent again.') }),
    send,
    h('button', { class: 'button plain', type: 'button', 'data-action': true, onclick: discard }, 'Discard'),
    hint,
    toggle,
  );
  const last = operation.attempts?.at(-1);
  replace(
    root,
    pageHead({
      title: foreign(id),
      before: [h('a', { href: '/operations' }, 'Operations')],
      below: h('p', { class: 'row desk-state' }, foreign(operation.type), badge(app, operationState(operation, now)), h('span', null, last?.status ? [`HTTP ${last.status} at `, timeOf(last.at_ms, now), '. '] : null, summary)),
      actions: [position, previous, next],
    }),
    note,
    h('div', { class: 'card table-card desk' }, body, buttons),
    h('div', { class: 'actions page-tools' }, copyCurl(app, 'POST', `${operationUrl(id)}/resolve`, { action: 'resend' }), copyCommand(app, `tidegate ops resolve ${quote(id)} resend`)),
  );
  changed();
  load();
  listConflicts();

  async function load() {
    replace(body, loading('versions', 4));
    try {
      versions = await readVersions(app, id, controller.signal);
      showVersions(versions);
    } catch (error) {
      if (!controller.signal.aborted) replace(body, failed(error, load));
    }
  }

  /** @param {Versions} found */
  function showVersions(found) {
    const { base, ours, theirs } = found;
    if (theirs === undefined || ![base ?? ours, ours, theirs].every(isDocument)) {
      setText(summary, theirs === undefined ? 'What the server has is not known.' : 'Not JSON: compared as text.');
      return show(createTexts(found, now, changed));
    }
    const all = rows(base, ours, theirs);
    const differing = all.filter(isChanged);
    const both = base === undefined ? null : differing.filter((row) => row.default === null).length;
    setText(summary, summaryOf(all.length, differing.length, both));
    toggle.hidden = false;
    show(createFields(found, all, now, changed));
  }

  /** @param {Editor} wanted */
  function show(wanted) {
    editor = wanted;
    replace(body, wanted.element);
    setText(toggle, wanted === text ? 'Edit by field' : 'Edit as text');
    changed();
  }

  function toggleText() {
    if (!editor || !versions) return;
    if (editor === text && fields) return show(fields);
    fields = editor;
    const { body: merged } = fields.result();
    const start = (merged === null ? undefined : parseJson(merged)) ?? versions.ours;
    text ??= createText(writeJson(start, '  '), merged === null ? 'Begun with ours, because not every field is chosen.' : '', true, changed);
    show(text);
    text.element.querySelector('textarea')?.focus();
  }

  function changed() {
    const { body: result, why } = editor?.result() ?? { body: null, why: '' };
    send.disabled = result === null;
    setText(hint, why);
  }

  async function sendResult() {
    const { body: result } = editor?.result() ?? { body: null };
    if (result !== null) await resolve(`{"action":"replace","body":${result}}`, 'The result is sent.');
  }

  function discard() {
    return confirmAction({
      title: `Discard ${id}?`, action: 'Discard change', busy: 'Discarding…', isDangerous: true, body: ["Our change is dropped; the server's version stays."],
      run: () => resolve('{"action":"discard"}', 'Our change was discarded.'),
    });
  }

  /**
   * Decides the conflict; then the next one opens.
   * @param {string} request
   * @param {string} done
   */
  async function resolve(request, done) {
    isDecided = true;
    try {
      await app.api.send('POST', `${operationUrl(id)}/resolve`, request);
    } catch (error) {
      isDecided = false;
      throw error;
    }
    app.toast(`${id}: ${done}`);
    const at = others.indexOf(id);
    const following = others[at + 1] ?? others[at - 1];
    // A dialog closes first, so that the focus goes to the next page.
    setTimeout(() => (following ? app.go(operationPath(following)) : leave()));
  }

  async function listConflicts() {
    try {
      const list = await app.api.get(withQuery('/api/v1/operations', { state: 'conflict', limit: MAX_LISTED }), controller.signal);
      others = list.operations.map((/** @type {Operation} */ other) => other.id);
      const at = others.indexOf(id);
      setText(position, at < 0 ? '' : `conflict ${count(at + 1)} of ${count(list.counts?.conflict ?? others.length)}`);
      previous.disabled = at <= 0;
      next.disabled = at < 0 || at + 1 >= others.length;
    } catch (error) {
      if (!controller.signal.aborted) showError(position, error);
    }
  }

  /** @param {1 | -1} by */
  function step(by) {
    const wanted = others[others.indexOf(id) + by];
    if (others.includes(id) && wanted) app.go(operationPath(wanted));
  }

  /**
   * @param {string} label
   * @param {'left' | 'right'} picture
   * @param {1 | -1} by
   */
  function stepButton(label, picture, by) {
    return h('button', { class: 'icon-button bordered', type: 'button', 'aria-label': label, title: `${label} (${by > 0 ? 'n' : 'p'})`, disabled: true, onclick: () => step(by) }, icon(picture));
  }

  return {
    shortcuts: /** @type {Record<string, () => void>} */ ({ n: () => step(1), p: () => step(-1) }),

    /** What could not be fetched is fetched again; what is shown stays. */
    refresh() {
      if (!versions) load();
      listConflicts();
    },

    /**
     * It is in conflict no more, by something else than this page.
     * @param {Operation | null} fresh null if there is no such operation any more
     */
    ended(fresh) {
      if (isDecided || note.firstChild) return;
      const state = fresh ? operationState(fresh, app.clock.now()).word.toLowerCase() : 'gone';
      replace(note, h('p', { class: 'note' }, `This conflict was decided elsewhere: the operation is ${state} now. What you typed stays here until you leave. `, linkButton('Show operation', leave)));
      for (const button of buttons.querySelectorAll('button')) button.disabled = true;
    },

    unmount() {
      controller.abort();
      versions = editor = text = fields = null;
      root.replaceChildren();
    },
  };
}

/**
 * @param {number} all
 * @param {number} differing
 * @param {number | null} both null if the base is not known
 */
export function summaryOf(all, differing, both) {
  const sides = both === null ? 'and the base is not known' : `${both === 0 ? 'none' : count(both)} on both sides`;
  return `${count(differing)} of ${count(all)} ${all === 1 ? 'field' : 'fields'} ${differing === 1 ? 'differs' : 'differ'}, ${sides}.`;
}

/** @param {Json | undefined} value */
const isDocument = (value) => value instanceof Map || Array.isArray(value);

/**
 * Numbers stay as they are written, which `response.json()` would not do.
 * @param {Console} app
 * @param {string} id
 * @param {AbortSignal} signal
 * @returns {Promise<Versions>}
 */
async function readVersions(app, id, signal) {
  const response = await app.api.response(`${operationUrl(id)}/conflict`, signal);
  if (!response.ok) throw new ApiError(response.status, await problem(response));
  return versionsOf(await response.text());
}

/**
 * The versions of a response. Documents that are ambiguous, for instance with a name twice, are
 * texts.
 * @param {string} text
 * @returns {Versions}
 */
export function versionsOf(text) {
  const read = parseJson(text);
  const found = read instanceof Map ? read : asTexts(JSON.parse(text));
  const fetched = found.get('fetched_ms');
  return {
    base: found.get('base') ?? undefined,
    ours: found.get('ours') ?? '',
    theirs: found.get('theirs') ?? undefined,
    fetchedMs: fetched instanceof JsonNumber ? Number(fetched.text) : 0,
  };
}

/** @param {Record<string, unknown>} conflict */
function asTexts({ fetched_ms: fetched, ...versions }) {
  /** @type {Map<string, any>} */
  const found = new Map([['fetched_ms', new JsonNumber(String(fetched))]]);
  for (const [name, value] of Object.entries(versions)) {
    found.set(name, typeof value === 'string' || value === null ? value : JSON.stringify(value, null, 2));
  }
  return found;
}

