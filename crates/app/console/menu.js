// A button with a menu: arrows move, Enter chooses, Esc and a click elsewhere close.

import { h } from './dom.js';
import { icon } from './icons.js';

/**
 * @typedef {object} MenuItem
 * @property {string} label
 * @property {string} [href]
 * @property {() => void} [run]
 * @property {boolean} [isChecked] One of a choice.
 */

/**
 * @param {string} label
 * @param {import('./icons.js').IconName} picture
 * @param {() => MenuItem[]} items
 */
export function menuButton(label, picture, items) {
  const list = h('div', { class: 'menu', role: 'menu', hidden: true, 'aria-label': label });
  const button = h(
    'button',
    { class: 'icon-button', type: 'button', 'aria-label': label, 'aria-haspopup': 'menu', 'aria-expanded': 'false', onclick: toggle },
    icon(picture),
  );
  const root = h('div', { class: 'menu-root', onkeydown: onKey, onfocusout: onBlur }, button, list);

  function toggle() {
    if (!list.hidden) return close();
    list.replaceChildren(...items().map(entry));
    list.hidden = false;
    button.setAttribute('aria-expanded', 'true');
    /** @type {HTMLElement | null} */ (list.firstElementChild)?.focus();
  }

  function close() {
    if (list.hidden) return;
    list.hidden = true;
    button.setAttribute('aria-expanded', 'false');
    if (list.contains(document.activeElement)) button.focus();
  }

  /** @param {MenuItem} item */
  function entry({ label: text, href, run, isChecked }) {
    const choose = () => {
      close();
      run?.();
    };
    const role = isChecked === undefined ? 'menuitem' : 'menuitemradio';
    const checked = isChecked === undefined ? null : String(isChecked);
    const props = { role, tabindex: '-1', onclick: choose, 'aria-checked': checked };
    return href ? h('a', { ...props, href }, text) : h('button', { ...props, type: 'button' }, text);
  }

  /** @param {KeyboardEvent} event */
  function onKey(event) {
    if (list.hidden) return;
    const entries = /** @type {HTMLElement[]} */ ([...list.children]);
    const at = entries.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    const moves = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 };
    if (event.key === 'Escape') close();
    else if (event.key in moves) {
      const to = moves[/** @type {keyof typeof moves} */ (event.key)];
      entries[(to + entries.length) % entries.length]?.focus();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {FocusEvent} event */
  function onBlur(event) {
    if (!root.contains(/** @type {Node | null} */ (event.relatedTarget))) close();
  }

  return root;
}
