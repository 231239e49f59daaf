// Dialogs: modal, labelled, closed by Esc; the focus returns to where it was.

import { actionButton } from './action.js';
import { h } from './dom.js';
import { icon } from './icons.js';

let number = 0;

/**
 * @typedef {object} Dialog
 * @property {HTMLDialogElement} element
 * @property {() => void} close
 */

/**
 * Opens a dialog. `mayClose` can refuse Esc and the cross, for instance to ask about changes.
 * @param {object} options
 * @param {string} options.title
 * @param {(Node | string)[]} options.body
 * @param {Node[]} options.footer
 * @param {string} [options.kind] Another class: `wide`, `drawer`.
 * @param {() => boolean | Promise<boolean>} [options.mayClose]
 * @param {() => void} [options.onClose]
 * @returns {Dialog}
 */
export function openDialog({ title, body, footer, kind = '', mayClose, onClose }) {
  const id = `dialog-${(number += 1)}`;
  const opener = document.activeElement;
  const tryClose = async () => {
    if (!mayClose || (await mayClose())) element.close();
  };
  const cross = h('button', { class: 'icon-button', type: 'button', 'aria-label': 'Close', onclick: tryClose }, icon('cross'));
  const element = h(
    'dialog',
    { class: `dialog ${kind}`, 'aria-labelledby': id },
    h('header', null, h('h2', { id }, title), cross),
    h('div', { class: 'dialog-body' }, ...body),
    footer.length > 0 && h('footer', { class: 'actions' }, ...footer),
  );
  element.addEventListener('cancel', (event) => {
    event.preventDefault();
    tryClose();
  });
  element.addEventListener('close', () => {
    element.remove();
    if (opener instanceof HTMLElement && opener.isConnected) opener.focus();
    onClose?.();
  });
  document.body.append(element);
  element.showModal();
  return { element, close: () => element.close() };
}

/**
 * Asks before an action; returns whether it was done. An error stays in the dialog.
 * @param {object} options
 * @param {string} options.title The question, with the name of the object.
 * @param {(Node | string)[]} options.body The effect, in numbers.
 * @param {string} options.action The button: the verb again.
 * @param {string} options.busy
 * @param {() => Promise<unknown>} options.run
 * @param {string} [options.keep] The other button; by default Cancel.
 * @param {boolean} [options.isDangerous] Hard to undo: the other button has the focus.
 * @returns {Promise<boolean>}
 */
export function confirmAction({ title, body, action, busy, run, keep = 'Cancel', isDangerous = false }) {
  return new Promise((resolve) => {
    let isDone = false;
    const cancel = h('button', { class: 'button plain', type: 'button', onclick: () => dialog.close() }, keep);
    const button = actionButton({
      label: action,
      busy,
      kind: isDangerous ? 'danger' : 'main',
      run: async () => {
        await run();
        isDone = true;
        dialog.close();
      },
    });
    const paragraphs = body.map((part) => (typeof part === 'string' ? h('p', null, part) : part));
    const dialog = openDialog({ title, body: paragraphs, footer: [cancel, button], onClose: () => resolve(isDone) });
    (isDangerous ? cancel : button).focus();
  });
}

/**
 * Asks before what was typed is dropped; returns whether it may be.
 * @param {string} title
 * @param {string} effect
 * @param {string} action
 */
export function confirmDiscard(title, effect, action) {
  const busy = 'Discarding…';
  return confirmAction({ title, body: [effect], action, busy, keep: 'Keep editing', isDangerous: true, run: async () => {} });
}
