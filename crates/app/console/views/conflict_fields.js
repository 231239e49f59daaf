// A conflict by field: a row for each JSON pointer, changed ones first, with a choice for each.

import { h, replace, setAttribute } from '../dom.js';
import { count } from '../format.js';
import { parseJson, writeJson } from '../json.js';
import { apply, isChanged } from '../merge.js';
import { longForeign, timeOf } from '../page.js';
import { visible } from '../text.js';

/**
 * @typedef {import('./conflict.js').Editor} Editor
 * @typedef {import('../json.js').Json} Json
 * @typedef {import('../merge.js').Row} Row
 * @typedef {import('../merge.js').Choice} Choice
 */

/** @type {Record<import('../merge.js').Change, string>} */
const CHANGES = { same: '', changed: '✎ changed', added: '+ added', removed: '− removed', unknown: '✎ differs' };

/**
 * @param {import('./conflict.js').Versions} versions
 * @param {Row[]} all
 * @param {number} now
 * @param {() => void} onChange
 * @returns {Editor}
 */
export function createFields({ base, fetchedMs }, all, now, onChange) {
  /** @type {Map<string, Choice>} */
  const choices = new Map();
  /** Pointers of edits that are no JSON. @type {Set<string>} */
  const invalid = new Set();
  const equal = all.filter((row) => !isChanged(row));
  const head = (/** @type {string} */ name, /** @type {(string | Node)[]} */ ...label) => h('th', { scope: 'col', role: 'columnheader', class: `d-${name}` }, ...label);
  const hidden = h('tbody', { role: 'rowgroup', hidden: true });
  const element = h(
    'table',
    { class: 'rows desk-rows', role: 'table' },
    h('caption', { class: 'unseen' }, 'Fields of the three versions'),
    h('thead', { role: 'rowgroup' }, h('tr', { role: 'row' }, head('field', 'Field'), head('base', base === undefined ? 'Base (not known)' : 'Base (when it was read)'), head('ours', 'Ours (this operation)'), head('theirs', 'Theirs (server, ', timeOf(fetchedMs, now), ')'), head('result', 'Result'))),
    h('tbody', { role: 'rowgroup' }, ...all.filter(isChanged).map(changedRow)),
    equal.length > 0 && h('tbody', { role: 'rowgroup' }, h('tr', { role: 'row' }, h('td', { role: 'cell', colspan: '5' }, equalButton()))),
    hidden,
  );

  function equalButton() {
    const text = `${count(equal.length)} equal ${equal.length === 1 ? 'field' : 'fields'}`;
    const button = h('button', { class: 'link', type: 'button', 'aria-expanded': 'false' }, `▸ ${text}`);
    button.addEventListener('click', () => {
      if (!hidden.firstChild) hidden.append(...equal.map(equalRow));
      hidden.hidden = !hidden.hidden;
      setAttribute(button, 'aria-expanded', String(!hidden.hidden));
      button.textContent = `${hidden.hidden ? '▸' : '▾'} ${text}`;
    });
    return button;
  }

  /** @param {Row} row */
  function changedRow(row) {
    const element = h('tr', { role: 'row' }, ...versionCells(row), h('td', { role: 'cell', class: 'd-result', 'data-label': 'Result' }, choiceOf(row, () => show())));
    const show = () => element.classList.toggle('undecided', !choices.has(row.pointer) && row.default === null);
    show();
    return element;
  }

  /**
   * @param {Row} row
   * @param {() => void} show
   */
  function choiceOf(row, show) {
    const field = nameOf(row.path);
    const input = h('textarea', { rows: '2', spellcheck: 'false', 'aria-label': `Result for ${field}, as JSON`, oninput: onEdit });
    const problem = h('p', { class: 'field-problem', role: 'status' });
    const edit = h('div', { class: 'field', hidden: true }, input, h('p', { class: 'hint' }, 'As JSON; empty removes the field.'), problem);
    const radio = (/** @type {'ours' | 'theirs' | 'edit'} */ side) =>
      h('label', { class: 'check' }, h('input', { type: 'radio', name: `choice${row.pointer}`, value: side, checked: side === row.default, onchange: () => choose(side) }), side);

    /** @param {'ours' | 'theirs' | 'edit'} side */
    function choose(side) {
      edit.hidden = side !== 'edit';
      invalid.delete(row.pointer);
      if (side !== 'edit') choices.set(row.pointer, side);
      else {
        if (input.value === '') input.value = textOf(row.ours ?? row.theirs);
        onEdit();
        input.focus();
      }
      done();
    }

    function onEdit() {
      const value = input.value.trim() === '' ? undefined : parseJson(input.value);
      const isInvalid = value === undefined && input.value.trim() !== '';
      isInvalid ? invalid.add(row.pointer) : invalid.delete(row.pointer);
      choices.set(row.pointer, { value });
      setAttribute(input, 'aria-invalid', isInvalid ? 'true' : null);
      replace(problem, isInvalid ? 'This is no JSON. Text needs quotes: "Ada".' : null);
      done();
    }

    function done() {
      show();
      onChange();
    }

    return h('fieldset', null, h('legend', { class: 'unseen' }, `Result for ${field}`), h('div', { class: 'desk-choice' }, radio('ours'), radio('theirs'), radio('edit')), edit);
  }

  return { element, result: () => resultOf(all, choices, invalid) };
}

/** @param {Row} row */
const equalRow = (row) => h('tr', { role: 'row' }, ...versionCells(row), h('td', { role: 'cell', class: 'muted d-result', 'data-label': 'Result' }, 'as it is'));

/** @param {Row} row */
function versionCells(row) {
  const cell = (/** @type {'base' | 'ours' | 'theirs'} */ side, /** @type {string} */ label) => {
    const change = side === 'base' ? 'same' : row.change[side];
    const value = row[side];
    const shown = value === undefined ? (change === 'removed' ? null : '–') : longForeign(writeJson(value));
    return h('td', { role: 'cell', class: change === 'same' ? `d-${side}` : `d-${side} differs`, 'data-label': label }, CHANGES[change] && h('span', { class: 'change' }, CHANGES[change], ' '), shown);
  };
  const title = visible(row.pointer, 2000);
  return [h('th', { role: 'rowheader', scope: 'row', class: 'd-field', title }, h('bdi', { class: 'foreign' }, nameOf(row.path))), cell('base', 'Base'), cell('ours', 'Ours'), cell('theirs', 'Theirs')];
}

/** @param {Json | undefined} value */
const textOf = (value) => (value === undefined ? '' : writeJson(value, '  '));

/**
 * `address.zip`, or as a pointer where a name has more than letters and digits.
 * @param {string[]} path
 */
export function nameOf(path) {
  if (path.length === 0) return 'whole document';
  const isPlain = path.every((name) => /^[\w-]+$/.test(name));
  return visible(isPlain ? path.join('.') : `/${path.map((name) => name.replaceAll('~', '~0').replaceAll('/', '~1')).join('/')}`);
}

/**
 * @param {Row[]} all
 * @param {Map<string, Choice>} choices
 * @param {Set<string>} invalid
 * @returns {{ body: string | null, why: string }}
 */
export function resultOf(all, choices, invalid) {
  if (invalid.size > 0) return { body: null, why: invalid.size === 1 ? 'One edit is no JSON.' : `${count(invalid.size)} edits are no JSON.` };
  const { document, missing } = apply(all, choices);
  if (missing.length > 0) return { body: null, why: 'A field changed on both sides has no default: choose one.' };
  return document === undefined ? { body: null, why: 'Nothing is left to send.' } : { body: writeJson(document), why: '' };
}
