// Buttons that call the API, and where their errors stand: at the control, until the next try.

import { ApiError } from './api.js';
import { h, replace } from './dom.js';
import { icon } from './icons.js';
import { visible } from './text.js';

/**
 * @typedef {object} ActionOptions
 * @property {string} label
 * @property {string} busy The label while it runs: `Releasing…`.
 * @property {() => Promise<unknown>} run
 * @property {'main' | 'danger' | 'plain'} [kind]
 * @property {(error: unknown) => boolean} [onError] Returns whether it has shown the error.
 */

/**
 * A button; while its call runs it keeps its width, says so and is disabled.
 * @param {ActionOptions} options
 * @returns {HTMLButtonElement}
 */
export function actionButton({ label, busy, run, kind = 'plain', onError }) {
  const button = h('button', { class: `button ${kind}`, type: 'button', 'data-action': true }, label);
  button.addEventListener('click', async () => {
    if (button.getAttribute('aria-disabled')) return;
    clearError(button);
    button.style.minWidth = `${button.offsetWidth}px`;
    // Not `disabled`: the focus would be lost.
    button.setAttribute('aria-disabled', 'true');
    button.textContent = busy;
    try {
      await run();
    } catch (error) {
      if (!onError?.(error)) showError(button, error);
    } finally {
      button.removeAttribute('aria-disabled');
      button.textContent = label;
    }
  });
  return button;
}

/**
 * Shows an error below the group of buttons, or below the element.
 * @param {HTMLElement} element
 * @param {unknown} error
 */
export function showError(element, error) {
  clearError(element);
  const place = element.closest('.actions') ?? element;
  place.after(h('p', { class: 'problem', role: 'alert' }, icon('warning'), errorText(error)));
}

/** @param {HTMLElement} element */
export function clearError(element) {
  const next = (element.closest('.actions') ?? element).nextElementSibling;
  if (next?.classList.contains('problem')) next.remove();
}

/**
 * What happened and what to do, for a person. A problem may quote foreign text.
 * @param {unknown} error
 */
export const errorText = (error) => visible(problemText(error), MAX_PROBLEM);

const MAX_PROBLEM = 1000;

/** @param {unknown} error */
function problemText(error) {
  if (!(error instanceof ApiError)) return String(error);
  switch (error.reason) {
    case 'store_failed':
      return `Nothing was changed: it could not be stored. ${error.message}`;
    case 'draining':
      return 'Tidegate is stopping. Requests under way are finished, new ones are refused.';
    case 'cross_site':
      return 'This page was opened from another site and may not act. Open the console by its own address.';
    case 'wrong_host':
      return `This server does not answer to the name ${location.host}. Add it to server.hosts, or open it by its own address.`;
    default:
      return error.message;
  }
}

/**
 * Puts the problems of a 422 at their fields, which are found by `name`, and focuses the first.
 * Returns whether all of them had a field.
 * @param {HTMLElement} form
 * @param {unknown} error
 * @param {string} [verb] What cannot be done with the values.
 */
export function showProblems(form, error, verb = 'saved') {
  clearProblems(form);
  if (!(error instanceof ApiError) || error.problems.length === 0) return false;
  let first = /** @type {HTMLElement | null} */ (null);
  let shown = 0;
  for (const { field, value, expected } of error.problems) {
    // A part of a list may have a field of its own or not.
    const input = fieldOf(form, field) ?? fieldOf(form, field.replace(/\[\d+\]$/, ''));
    if (!input) continue;
    input.closest('details')?.setAttribute('open', '');
    const text = visible(value === null ? expected : `${value}: expected ${expected}`);
    const id = `problem-${shown}`;
    input.setAttribute('aria-invalid', 'true');
    input.setAttribute('aria-describedby', id);
    (input.closest('.field') ?? input).append(h('p', { class: 'field-problem', id }, text));
    first ??= input;
    shown += 1;
  }
  first?.focus();
  const summary = form.querySelector('.form-problem');
  if (summary) replace(summary, `${shown === 1 ? '1 value' : `${shown} values`} cannot be ${verb}.`);
  return shown === error.problems.length;
}

/**
 * @param {HTMLElement} form
 * @param {string} name
 * @returns {HTMLElement | null}
 */
const fieldOf = (form, name) => form.querySelector(`[name="${CSS.escape(name)}"]`);

/** @param {HTMLElement} form */
export function clearProblems(form) {
  for (const element of form.querySelectorAll('.field-problem')) element.remove();
  for (const element of form.querySelectorAll('[aria-invalid]')) {
    element.removeAttribute('aria-invalid');
    element.removeAttribute('aria-describedby');
  }
  form.querySelector('.form-problem')?.replaceChildren();
}
