// What keys do, and the dialog that lists them.

import { openDialog } from './dialog.js';
import { h } from './dom.js';

/** @type {[string, string][]} */
const HELP = [
  ['?', 'This list'],
  ['/', 'Filter'],
  ['g then 1 to 6', 'Overview, Gates, Pools, Operations, Jobs, Simulate'],
  ['j, k', 'Next, previous row'],
  ['Enter', 'Open'],
  ['x', 'Select'],
  ['s', 'Sort now'],
  ['.', 'Freeze or resume'],
  ['[, ]', 'Previous, next page'],
  ['n, p', 'Next, previous conflict'],
  ['Esc', 'Close what is on top, then clear the selection'],
];

const PATHS = ['/', '/gates', '/pools', '/operations', '/jobs', '/simulate'];
const OFF = 'tidegate-shortcuts';

const areOn = () => {
  try {
    return localStorage.getItem(OFF) !== 'off';
  } catch {
    return true;
  }
};

export function openHelp() {
  const rows = HELP.map(([keys, text]) => h('div', null, h('dt', null, h('kbd', null, keys)), h('dd', null, text)));
  const box = h('input', { type: 'checkbox', checked: areOn(), onchange: () => localStorage.setItem(OFF, box.checked ? 'on' : 'off') });
  openDialog({
    title: 'Keyboard shortcuts',
    body: [h('dl', { class: 'keys' }, ...rows), h('label', { class: 'check' }, box, 'Single keys act')],
    footer: [],
  });
}

/**
 * @param {{ view: () => import('./types.js').View | null, go: (path: string) => void, freeze: () => void }} page
 */
export function bindShortcuts({ view, go, freeze }) {
  let isGoing = false;
  addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || !areOn()) return;
    if (document.querySelector('dialog[open]')) return;
    const digit = isGoing ? PATHS[Number(event.key) - 1] : undefined;
    isGoing = event.key === 'g';
    const own = view()?.shortcuts?.[event.key];
    if (digit) go(digit);
    else if (event.key === '?') openHelp();
    else if (event.key === '.') freeze();
    else if (own) own();
    else return;
    event.preventDefault();
  });
}

/** @param {EventTarget | null} target */
function isTyping(target) {
  return target instanceof HTMLElement && target.matches('input:not([type=checkbox], [type=radio]), select, textarea, [contenteditable]');
}
