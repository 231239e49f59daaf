// The dialog that adds an endpoint: name, URL, and headers with references to their values.

import { actionButton, showProblems } from '../action.js';
import { ApiError, poolUrl } from '../api.js';
import { confirmDiscard, openDialog } from '../dialog.js';
import { h } from '../dom.js';
import { icon } from '../icons.js';
import { visible } from '../text.js';

/**
 * @typedef {{ name: string, value: string }} Header
 *
 * @param {import('../types.js').Console} app
 * @param {import('./endpoint.js').Page} page
 * @param {import('../types.js').Pool} pool
 * @param {() => void} onClose
 * @returns {import('./pools.js').PageDialog}
 */
export function openAddEndpoint(app, page, pool, onClose) {
  const name = h('input', { name: 'name', id: 'endpoint-name', autocomplete: 'off', spellcheck: 'false' });
  const url = h('input', { name: 'url', id: 'endpoint-url', type: 'url', placeholder: 'https://api.example.com/v1', autocomplete: 'off', spellcheck: 'false' });
  const rows = h('div', { class: 'headers' });
  const more = h('button', { class: 'button plain', type: 'button', onclick: () => addRow().focus() }, icon('plus'), 'Add header');
  const submit = actionButton({ label: 'Add endpoint', busy: 'Adding…', kind: 'main', run: send, onError: (error) => showProblems(form, error) });
  const cancel = h('button', { class: 'button plain', type: 'button', onclick: () => close() }, 'Cancel');
  const form = h(
    'form',
    { class: 'stack', novalidate: true, onsubmit: onSubmit },
    h('p', { class: 'form-problem', role: 'alert' }),
    h('div', { class: 'field' }, h('label', { for: 'endpoint-name' }, 'Name'), name),
    h('div', { class: 'field' }, h('label', { for: 'endpoint-url' }, 'URL'), h('p', { class: 'hint' }, 'The rest of a request’s path is appended to it.'), url),
    h(
      'fieldset',
      { class: 'field' },
      h('legend', null, 'Headers'),
      h('p', { class: 'hint' }, 'Values are references that the configuration file uses or allows in server.secrets: ', h('code', null, 'env:NAME'), ' or ', h('code', null, 'file:PATH'), ', also after a word such as Bearer.'),
      rows,
      h('div', null, more),
    ),
    // Enter in a field sends the form.
    h('button', { type: 'submit', hidden: true }),
  );
  const dialog = openDialog({ title: `Add endpoint: ${visible(pool.name, 80)}`, body: [form], footer: [cancel, submit], mayClose, onClose });
  name.focus();

  function addRow() {
    const key = h('input', { 'aria-label': 'Header', placeholder: 'authorization', autocomplete: 'off', spellcheck: 'false' });
    const value = h('input', { 'aria-label': 'Reference', placeholder: 'env:API_KEY', autocomplete: 'off', spellcheck: 'false' });
    const remove = () => (row.remove(), more.focus());
    const row = h(
      'div',
      { class: 'field' },
      h('div', { class: 'row' }, key, value, h('button', { class: 'icon-button', type: 'button', 'aria-label': 'Remove header', onclick: remove }, icon('cross'))),
    );
    rows.append(row);
    return key;
  }

  /** The rows that are filled in; their problems are found by the names of their fields. */
  function headers() {
    return [...rows.children].flatMap((row) => {
      const [key, value] = row.querySelectorAll('input');
      const header = { name: key.value.trim(), value: value.value.trim() };
      value.name = `headers.${header.name}`;
      return header.name || header.value ? [header] : [];
    });
  }

  async function send() {
    const typed = headers();
    const body = { name: name.value.trim(), url: url.value.trim(), headers: Object.fromEntries(typed.map((each) => [each.name, each.value])) };
    const twice = repeated(typed);
    if (twice !== null) throw new ApiError(422, { problems: [{ field: `headers.${twice}`, value: null, expected: 'each header once' }] });
    await app.api.send('POST', `${poolUrl(pool.name)}/endpoints`, body);
    await page.changed();
    app.toast(`${visible(`${pool.name}/${body.name}`, 80)} added.`);
    dialog.close();
  }

  /** @param {SubmitEvent} event */
  function onSubmit(event) {
    event.preventDefault();
    submit.click();
  }

  const isTyped = () => [...form.querySelectorAll('input')].some((input) => input.value.trim() !== '');

  function mayClose() {
    if (!isTyped()) return true;
    return confirmDiscard('Discard what you typed?', 'No endpoint is added.', 'Discard');
  }

  async function close() {
    if (await mayClose()) dialog.close();
  }

  return { close: dialog.close, mayClose };
}

/**
 * The name that an object could have only once.
 * @param {Header[]} headers
 */
export function repeated(headers) {
  const names = headers.map((header) => header.name);
  return names.find((name, at) => names.indexOf(name) !== at) ?? null;
}
