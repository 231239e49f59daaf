// The top bar: navigation with what needs attention, whether the page is live, theme, menu.

import { h, setAttribute, setText } from './dom.js';
import { icon, mark } from './icons.js';
import { signOut } from './login.js';
import { menuButton } from './menu.js';

const PAGES = [
  ['/', 'Overview'],
  ['/gates', 'Gates'],
  ['/pools', 'Pools'],
  ['/operations', 'Operations'],
  ['/jobs', 'Jobs'],
  ['/simulate', 'Simulate'],
];

const STATES = {
  off: ['', ''],
  connecting: ['waiting', 'Connecting'],
  live: ['live', 'Live'],
  lost: ['lost', 'Not connected'],
  polling: ['waiting', 'Every 5s'],
  frozen: ['waiting', 'Paused · Resume'],
};

/**
 * @param {HTMLElement} root
 * @param {{ onFreeze: () => void, onHelp: () => void, version: () => string }} options
 */
export function createTop(root, { onFreeze, onHelp, version }) {
  const links = PAGES.map(([path, label]) => h('a', { href: path }, label, h('span', { class: 'bubble', hidden: true })));
  const state = h('button', { class: 'live', type: 'button', onclick: onFreeze, title: 'Freeze or resume (.)' }, h('i', null), h('span', null));
  const theme = menuButton('Theme', isDark() ? 'moon' : 'sun', () =>
    ['system', 'light', 'dark'].map((name) => ({
      label: name[0].toUpperCase() + name.slice(1),
      isChecked: name === storedTheme(),
      run: () => setTheme(name),
    })),
  );
  const menu = menuButton('Menu', 'menu', () => [
    { label: 'Keyboard shortcuts', run: onHelp },
    { label: 'API description', href: '/openapi.json' },
    { label: 'Metrics', href: '/metrics' },
    { label: `Version ${version()}`, href: '/version' },
    { label: 'Sign out', run: signOut },
  ]);
  root.append(
    h('a', { class: 'wordmark', href: '/' }, mark(), 'Tidegate'),
    h('nav', { 'aria-label': 'Pages' }, ...links),
    h('div', { class: 'top-end' }, state, theme, menu),
  );

  return {
    /** @param {string} section */
    setSection(section) {
      for (const link of links) {
        const isHere = link.getAttribute('href') === section;
        setAttribute(link, 'aria-current', isHere ? 'page' : null);
        if (isHere) link.scrollIntoView({ block: 'nearest', inline: 'nearest' });
      }
    },
    /**
     * How many things of a page need a person.
     * @param {string} path
     * @param {number} count
     * @param {string} what `failed or in conflict`
     */
    setCount(path, count, what) {
      const bubble = links.find((link) => link.getAttribute('href') === path)?.querySelector('.bubble');
      if (!(bubble instanceof HTMLElement)) return;
      bubble.hidden = count === 0;
      if (count === 0) return bubble.replaceChildren();
      const text = count > 99 ? '99+' : String(count);
      if (bubble.firstChild?.textContent !== text) bubble.replaceChildren(text, h('span', { class: 'unseen' }, ` ${what}`));
    },
    /** @param {keyof typeof STATES} name */
    setState(name) {
      const [style, text] = STATES[name];
      state.hidden = text === '';
      state.dataset.state = style;
      const label = state.querySelector('span');
      if (label) setText(label, text);
    },
  };
}

const THEME = 'tidegate-theme';

function storedTheme() {
  try {
    return localStorage.getItem(THEME) ?? 'system';
  } catch {
    return 'system';
  }
}

/** @param {string} name */
function setTheme(name) {
  try {
    if (name === 'system') localStorage.removeItem(THEME);
    else localStorage.setItem(THEME, name);
  } catch {
    // Without storage the choice lasts as long as the page.
  }
  applyTheme(name);
}

/** @param {string} [name] */
export function applyTheme(name = storedTheme()) {
  setAttribute(document.documentElement, 'data-theme', name === 'system' ? null : name);
  const button = document.querySelector('[aria-label="Theme"][aria-haspopup]');
  button?.replaceChildren(icon(isDark() ? 'moon' : 'sun'));
  document.dispatchEvent(new Event('themechange'));
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
}
