// A conflict as texts: the versions of a body that is no JSON, and a result that is typed.

import { h } from '../dom.js';
import { parseJson, writeJson } from '../json.js';
import { timeOf } from '../page.js';
import { MAX_LONG, visible } from '../text.js';

/**
 * @typedef {import('./conflict.js').Editor} Editor
 * @typedef {import('./conflict.js').Versions} Versions
 * @typedef {import('../json.js').Json} Json
 */

/**
 * The versions, read-only, and a result.
 * @param {Versions} versions
 * @param {number} now
 * @param {() => void} onChange
 * @returns {Editor}
 */
export function createTexts({ base, ours, theirs, fetchedMs }, now, onChange) {
  const isJson = typeof ours !== 'string';
  const editor = createText('', '', isJson, onChange);
  const area = /** @type {HTMLTextAreaElement} */ (editor.element.querySelector('textarea'));
  const take = (/** @type {string} */ label, /** @type {Json} */ version) => {
    const begin = () => {
      area.value = textOf(version);
      onChange();
      area.focus();
    };
    return h('button', { class: 'button plain', type: 'button', onclick: begin }, label);
  };
  const element = h(
    'div',
    null,
    h('div', { class: 'desk-texts' }, column(['Base (when it was read)'], base), column(['Ours (this operation)'], ours), column(['Theirs (server, ', timeOf(fetchedMs, now), ')'], theirs)),
    h('div', { class: 'actions desk-take' }, take('Begin with ours', ours), theirs !== undefined && take('Begin with theirs', theirs)),
    editor.element,
  );
  return { element, result: editor.result };
}

/**
 * @param {(string | Node)[]} title
 * @param {Json | undefined} version
 */
function column(title, version) {
  const text = version === undefined ? null : textOf(version);
  const cut = text !== null && text.length > MAX_LONG && h('p', { class: 'muted small' }, 'Only the beginning is shown.');
  return h('section', null, h('h2', null, ...title), text === null ? h('p', { class: 'muted' }, 'Not known.') : h('pre', { tabindex: '0' }, h('bdi', null, visible(text, MAX_LONG, { lines: true }))), cut);
}

/** @param {Json} version */
const textOf = (version) => (typeof version === 'string' ? version : writeJson(version, '  '));

/**
 * A result that is typed.
 * @param {string} start
 * @param {string} note
 * @param {boolean} isJson
 * @param {() => void} onChange
 * @returns {Editor}
 */
export function createText(start, note, isJson, onChange) {
  const area = h('textarea', { id: 'result-text', rows: '14', spellcheck: 'false', value: start, oninput: onChange });
  const element = h('div', { class: 'field desk-text' }, h('label', { for: 'result-text' }, 'Result'), note && h('p', { class: 'hint' }, note), area);
  return { element, result: () => textResult(area.value, isJson) };
}

/**
 * What is sent for a text, as JSON.
 * @param {string} text
 * @param {boolean} isJson
 * @returns {{ body: string | null, why: string }}
 */
export function textResult(text, isJson) {
  if (text === '') return { body: null, why: 'Write what to send instead.' };
  if (!isJson) return { body: JSON.stringify(text), why: '' };
  const value = parseJson(text);
  return value === undefined ? { body: null, why: 'The result is no valid JSON.' } : { body: writeJson(value), why: '' };
}
