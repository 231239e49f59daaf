// Sign-in: a dialog over whatever page is open, so that what was typed is kept.

import { ApiError, problem } from './api.js';
import { h, replace, setText } from './dom.js';
import { openDialog } from './dialog.js';
import { icon } from './icons.js';

/** @type {Promise<void> | null} */
let asking = null;

/**
 * Asks for the token until it is right. All callers wait for the same dialog.
 * @param {string} [reason] Why it is asked; by default that the sign-in has ended.
 * @returns {Promise<void>}
 */
export function signIn(reason = 'You have been signed out. Sign in to go on; what you typed is kept.') {
  asking ??= ask(reason).finally(() => (asking = null));
  return asking;
}

/** @param {string} reason */
function ask(reason) {
  return new Promise((/** @type {(value: void) => void} */ resolve) => {
    const input = h('input', {
      id: 'token', name: 'token', type: 'password', required: true, spellcheck: 'false', autocomplete: 'current-password',
    });
    const show = h('button', { class: 'button plain', type: 'button', onclick: toggle }, 'Show');
    const error = h('p', { class: 'problem', role: 'alert', hidden: true });
    const submit = h('button', { class: 'button main', type: 'submit' }, 'Sign in');
    const form = h(
      'form',
      { class: 'sign-in', onsubmit: send },
      h('p', null, reason),
      h('label', { for: 'token' }, 'Admin token'),
      h('div', { class: 'row' }, input, show),
      h('p', { class: 'muted' }, 'It is in ', h('code', null, 'admin-token'), ' of the data folder; ', h('code', null, 'tidegate serve'), ' prints an address with it.'),
      error,
      h('div', { class: 'actions end' }, submit),
    );
    const dialog = openDialog({ title: 'Sign in to Tidegate', body: [form], footer: [], kind: 'narrow', mayClose: () => false });
    input.focus();

    function toggle() {
      const isHidden = input.type === 'password';
      input.type = isHidden ? 'text' : 'password';
      setText(show, isHidden ? 'Hide' : 'Show');
    }

    /** @param {SubmitEvent} event */
    async function send(event) {
      event.preventDefault();
      error.hidden = true;
      submit.disabled = true;
      try {
        await postToken(input.value.trim());
        dialog.close();
        resolve();
      } catch (failure) {
        error.hidden = false;
        replace(error, icon('warning'), failure instanceof ApiError ? failure.message : 'Tidegate does not answer.');
        input.select();
      } finally {
        submit.disabled = false;
      }
    }
  });
}

/** @param {string} token */
async function postToken(token) {
  const headers = { 'content-type': 'application/json' };
  const response = await fetch('/login', { method: 'POST', headers, body: JSON.stringify({ token }) });
  if (response.ok) return;
  const found = await problem(response);
  throw new ApiError(response.status, response.status === 401 ? { detail: 'This token is not valid here.' } : found);
}

/** Ends the sign-in and opens the sign-in page. */
export async function signOut() {
  await fetch('/logout', { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{}' });
  location.assign('/login');
}
