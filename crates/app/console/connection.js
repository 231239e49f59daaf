// The bar that says that the connection is lost, and when it is tried again.

import { h, replace } from './dom.js';
import { clockTime, duration } from './format.js';

/** A restart of the server is often shorter than this. */
const SHOWN_AFTER = 2000;

/**
 * @param {HTMLElement} root
 * @param {(text: string, isUrgent: boolean) => void} announce
 * @param {() => void} tryNow
 */
export function createConnection(root, announce, tryNow) {
  /** @type {number | null} */
  let lostAt = null;
  let retryAt = 0;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  let timer;

  function show() {
    if (lostAt === null || Date.now() - lostAt < SHOWN_AFTER) return;
    const left = Math.max(0, retryAt - Date.now());
    const trying = left > 0 ? `Trying again in ${duration(left)}.` : 'Trying again.';
    const text = `Connection lost at ${clockTime(lostAt)}. Showing the last known state. `;
    const bar = root.querySelector('.connection');
    if (!bar) {
      replace(root, h('div', { class: 'connection' }, h('span', null, text), h('span', null, trying), h('button', { class: 'button plain', type: 'button', onclick: tryNow }, 'Try now')));
      document.body.classList.add('stale');
      announce('Connection lost. Showing the last known state.', true);
    } else bar.children[1].textContent = trying;
  }

  return {
    /** @param {number} at When it is tried again. */
    lost(at) {
      lostAt ??= Date.now();
      retryAt = at;
      timer ??= setInterval(show, 500);
      show();
    },
    restored() {
      clearInterval(timer);
      timer = undefined;
      if (root.firstChild) announce('Connected again.', false);
      lostAt = null;
      root.replaceChildren();
      document.body.classList.remove('stale');
    },
    /**
     * A line that stays, such as that there is another version.
     * @param {string} text
     * @param {HTMLElement} button
     */
    say(text, button) {
      replace(root, h('div', { class: 'connection notice', role: 'status' }, h('span', null, text), button));
    },
  };
}
