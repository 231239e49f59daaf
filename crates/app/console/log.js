// A list with the newest first. Rows that come while the pointer or the focus is on it wait, so
// that none moves under a click.

import { h, patch, replace } from './dom.js';
import { count } from './format.js';
import { arrange } from './order.js';
import { linkButton } from './page.js';
import { isInUse } from './table.js';

/**
 * @template Item
 * @param {object} options
 * @param {string} options.label
 * @param {(item: Item) => string} options.keyOf
 * @param {(item: Item) => HTMLElement[]} options.show The parts of a row, made once.
 * @param {() => Node} options.nothing What is shown without rows.
 */
export function createLog({ label, keyOf, show, nothing }) {
  const list = h('ol', { class: 'log', tabindex: 0, 'aria-label': label, onpointerleave: apply, onfocusout: () => setTimeout(apply) });
  const note = h('span', { class: 'small muted' });
  /** @type {Item[]} */
  let shown = [];
  /** @type {Item[]} */
  let pending = [];

  function apply() {
    if (pending !== shown && !isInUse(list)) showNow();
  }

  function showNow() {
    shown = pending;
    note.replaceChildren();
    if (shown.length === 0) replace(list, h('li', { class: 'log-empty' }, nothing()));
    else patch(list, shown, keyOf, (item) => h('li', null, ...show(item)), () => {});
  }

  return {
    element: list,
    /** How many rows wait. */
    note,
    /**
     * Moves the focus to the link of the next or previous row.
     * @param {1 | -1} by
     */
    move(by) {
      const links = [...list.querySelectorAll('a')];
      const at = links.findIndex((link) => link === document.activeElement);
      links[at < 0 ? 0 : Math.min(Math.max(at + by, 0), links.length - 1)]?.focus();
    },
    /**
     * Other rows, newest first.
     * @param {Item[]} items
     */
    set(items) {
      pending = items;
      const { added } = arrange(shown.map(keyOf), items.map(keyOf), isInUse(list));
      if (!isInUse(list) || shown.length === 0) showNow();
      else if (added.length > 0) replace(note, `${count(added.length)} new · `, linkButton('Show', showNow));
    },
  };
}
