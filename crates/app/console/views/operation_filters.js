// The filters of the list of operations.

import { h, render } from '../dom.js';
import { foreign } from '../page.js';
import { REASONS } from './operation_text.js';

/**
 * @typedef {import('../types.js').Operation} Operation
 * @typedef {import('../types.js').Console} Console
 * @typedef {ReturnType<typeof import('./operations.js').readQuery>} Query
 */

/**
 * @param {Console} app
 * @param {Query} query
 * @param {(change: Partial<Query>) => void} onChange
 */
export function createFilters(app, query, onChange) {
  const select = (/** @type {'type' | 'reason'} */ name) => h('select', { id: `filter-${name}`, name, onchange: () => onChange({ [name]: inputs[name].value }) });
  // Some ways to empty a field, such as autofill, only fire `change`.
  const typed = (/** @type {'key' | 'id'} */ name) => onChange({ [name]: inputs[name].value.trim() });
  const text = (/** @type {'key' | 'id'} */ name, /** @type {string} */ hint) =>
    h('input', { type: 'search', id: `filter-${name}`, name, placeholder: hint, autocomplete: 'off', spellcheck: 'false', list: name === 'key' ? 'known-keys' : null, oninput: () => typed(name), onchange: () => typed(name) });
  const inputs = { type: select('type'), reason: select('reason'), key: text('key', 'crm.example.com or /pool'), id: text('id', 'op_… or its first part') };
  const keys = h('datalist', { id: 'known-keys' });
  const field = (/** @type {keyof typeof inputs} */ name, /** @type {string} */ label) =>
    h('div', { class: 'field' }, h('label', { for: `filter-${name}` }, label), inputs[name]);
  const element = h('form', { class: 'filters', role: 'search', 'aria-label': 'Filters', onsubmit: (/** @type {Event} */ event) => event.preventDefault() }, field('type', 'Type'), field('reason', 'Reason'), field('key', 'Destination'), field('id', 'ID'), keys);
  update(query);

  /** @param {Query} next */
  function update(next) {
    options(inputs.type, app.settings.operations.types, next.type);
    options(inputs.reason, REASONS, next.reason);
    for (const name of /** @type {const} */ (['key', 'id'])) {
      if (inputs[name].value.trim() !== next[name]) inputs[name].value = next[name];
    }
  }

  return {
    element,
    update,
    focus: () => inputs.id.focus(),
    clear: () => ({ type: '', reason: '', key: '', id: '' }),
    /** @param {Operation[]} operations */
    setKeys(operations) {
      const known = [...new Set(operations.map(({ key }) => key))].slice(0, 20);
      render(keys, known, () => known.map((value) => h('option', { value })));
    },
  };
}

/**
 * @param {HTMLSelectElement} select
 * @param {string[]} values
 * @param {string} chosen
 */
function options(select, values, chosen) {
  const all = chosen === '' || values.includes(chosen) ? values : [...values, chosen];
  render(select, [all, chosen], () => [
    h('option', { value: '' }, 'all'),
    ...all.map((value) => h('option', { value, selected: value === chosen }, foreign(value, 60).textContent)),
  ]);
}
