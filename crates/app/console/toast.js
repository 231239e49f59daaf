// Toasts: results that are not visible where the user looks.

import { h } from './dom.js';

const SHOWN = 6000;
const MAX = 3;

/** @param {HTMLElement} root */
export function createToasts(root) {
  root.setAttribute('role', 'status');
  /**
   * @param {string} text
   * @param {() => void} [undo]
   */
  return function toast(text, undo) {
    const element = h('div', { class: 'toast' }, h('span', null, text));
    const end = () => element.remove();
    if (undo) {
      const run = () => (end(), undo());
      element.append(h('button', { class: 'link', type: 'button', onclick: run }, 'Undo'));
    }
    let timer = setTimeout(end, SHOWN);
    const stay = () => clearTimeout(timer);
    const go = () => (timer = setTimeout(end, SHOWN));
    for (const event of ['pointerenter', 'focusin']) element.addEventListener(event, stay);
    for (const event of ['pointerleave', 'focusout']) element.addEventListener(event, go);
    while (root.children.length >= MAX) root.firstElementChild?.remove();
    root.append(element);
  };
}
