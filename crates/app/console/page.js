// Parts of every page: its head, what is shown while loading, when there is nothing and when
// something failed; copying a call or a command.

import { errorText } from './action.js';
import { h } from './dom.js';
import { dateTime, instant, isoTime } from './format.js';
import { icon } from './icons.js';
import { visible } from './text.js';

/** @typedef {import('./dom.js').Child} Child */

/**
 * @param {object} options
 * @param {Child | Child[]} options.title
 * @param {Child[]} [options.before] Links back.
 * @param {Child} [options.below] A line below the title.
 * @param {Child[]} [options.actions]
 */
export function pageHead({ title, before = [], below, actions = [] }) {
  return h(
    'div',
    { class: 'page-head' },
    h('div', { class: 'page-title' }, before.length > 0 && h('p', { class: 'crumbs' }, ...before), h('h1', { tabindex: '-1' }, title), below),
    h('div', { class: 'actions' }, ...actions),
  );
}

/** How long nothing is shown at first, so that a quick page does not flash. */
const LOADING_AFTER = 200;

/**
 * Grey bars in place of rows, after a moment; to be removed when the rows are there.
 * @param {string} what `gates`
 * @param {number} [rows]
 */
export function loading(what, rows = 6) {
  const element = h('div', { class: 'loading', role: 'status' });
  setTimeout(() => {
    if (!element.isConnected) return;
    element.append(h('span', { class: 'unseen' }, `Loading ${what}`));
    for (let row = 0; row < rows; row += 1) element.append(h('div', { class: 'bar' }));
  }, LOADING_AFTER);
  return element;
}

/**
 * @param {Child | Child[]} text
 * @param {Child} [button]
 */
export const empty = (text, button) => h('div', { class: 'empty' }, h('p', null, text), button);

/**
 * A part that failed, in place of what it would show.
 * @param {unknown} error
 * @param {() => void} tryAgain
 */
export function failed(error, tryAgain) {
  return h(
    'div',
    { class: 'empty', role: 'alert' },
    h('p', { class: 'problem' }, icon('warning'), errorText(error)),
    h('button', { class: 'button plain', type: 'button', onclick: tryAgain }, 'Try again'),
  );
}

/**
 * An instant, with its full form as title.
 * @param {number | null | undefined} ms
 * @param {number} now
 */
export const timeOf = (ms, now) => h('time', { datetime: isoTime(ms) || null, title: dateTime(ms) }, instant(ms, now));

/**
 * Text of a server, a key or a URL: bidi and control characters visible, shortened, apart from the
 * text around it.
 * @param {string} text
 * @param {number} [max]
 */
export function foreign(text, max) {
  const shown = visible(text, max);
  return h('bdi', { class: 'foreign', title: shown === text ? null : visible(text, 2000) }, shown);
}

/**
 * Foreign text of any length: the first part, and the rest on request.
 * @param {string} text
 */
export function longForeign(text) {
  const element = foreign(text, 600);
  if (text.length <= 600) return element;
  const more = h('button', { class: 'link', type: 'button' }, 'Show all');
  more.addEventListener('click', () => {
    element.textContent = visible(text, 10_000);
    more.remove();
  });
  return h('span', null, element, ' ', more);
}

/**
 * A sentence of the API, in which names stand between backticks.
 * @param {string} text
 * @returns {Child[]}
 */
export const sentence = (text) => visible(text, 2000).split('`').map((part, index) => (index % 2 === 1 ? h('code', null, part) : part));

/**
 * Calls `run` every `ms` while the page is visible. Returns what ends it.
 * @param {number} ms
 * @param {() => void} run
 */
export function every(ms, run) {
  /** @type {ReturnType<typeof setInterval> | undefined} */
  let timer;
  const set = () => {
    clearInterval(timer);
    if (!document.hidden) timer = setInterval(run, ms);
  };
  document.addEventListener('visibilitychange', set);
  set();
  return () => {
    clearInterval(timer);
    document.removeEventListener('visibilitychange', set);
  };
}

/**
 * A button in the form of a link.
 * @param {string} label
 * @param {() => void} run
 */
export const linkButton = (label, run) => h('button', { class: 'link', type: 'button', onclick: run }, label);

/**
 * A button that copies a call of the API as a curl command, without the token.
 * @param {import('./types.js').Console} app
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body]
 */
export function copyCurl(app, method, path, body) {
  const parts = ['curl', '-H', '"Authorization: Bearer $(cat tidegate-data/admin-token)"'];
  if (method !== 'GET') parts.push('-X', method);
  if (body !== undefined) parts.push('-H', "'content-type: application/json'", '-d', quote(JSON.stringify(body)));
  parts.push(quote(location.origin + path));
  return copyButton(app, 'Copy as curl', parts.join(' '));
}

/**
 * @param {import('./types.js').Console} app
 * @param {string} command
 */
export const copyCommand = (app, command) => copyButton(app, 'Copy command', command);

/**
 * @param {import('./types.js').Console} app
 * @param {string} label
 * @param {string} text
 */
export function copyButton(app, label, text) {
  const copy = () => copyText(app, text);
  return h('button', { class: 'button quiet', type: 'button', title: visible(text, 400), onclick: copy }, icon('copy'), label);
}

/**
 * @param {import('./types.js').Console} app
 * @param {string} text
 */
export async function copyText(app, text) {
  try {
    await navigator.clipboard.writeText(text);
    app.toast(`Copied: ${visible(text.split('\n')[0], 80)}`);
  } catch {
    app.toast('The browser did not allow copying.');
  }
}

/**
 * As one word of a shell.
 * @param {string} text
 */
export const quote = (text) => (/^[\w./:@%+=,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
