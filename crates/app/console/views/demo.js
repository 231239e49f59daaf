// The strip of the demo: what is happening now, where to look, and the other steps to read.

import { h, patch, render, setText } from '../dom.js';
import { icon } from '../icons.js';

/**
 * @typedef {{ title: string, text: string, link: { path: string, label: string } | null }} DemoStep
 * @typedef {DemoStep & { step: number, of: number, elapsed_ms: number, total_ms: number, steps: (DemoStep & { n: number, state: string })[] }} Demo
 */

const INTERVAL = 1000;

/**
 * @param {HTMLElement} root
 * @param {import('../types.js').Console} app
 */
export function mount(root, app) {
  /** @type {Demo | null} */
  let demo = null;
  /** @type {number | null} The step that is read; null follows the demo. */
  let reading = null;
  let isClosed = false;
  /** The step that was announced. Its text can change every second. */
  let announced = '';
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;

  const place = h('b', { class: 'demo-place' });
  const body = h('div', { class: 'demo-text' });
  const previous = button('Previous step', 'left', () => read(-1));
  const next = button('Next step', 'right', () => read(1));
  const follow = h('button', { class: 'link', type: 'button', onclick: () => (read(0), previous.focus()) }, 'Back to now');
  const bar = h('i', null);
  const strip = h(
    'section',
    { class: 'demo', 'aria-label': 'Demo', hidden: true },
    place,
    body,
    h('div', { class: 'demo-steps' }, follow, previous, next, button('Close', 'cross', close)),
    h('div', { class: 'demo-bar', 'aria-hidden': 'true' }, bar),
  );
  root.replaceChildren(strip);
  document.addEventListener('visibilitychange', ask);
  ask();

  async function ask() {
    clearTimeout(timer);
    if (document.hidden || isClosed) return;
    try {
      demo = await app.api.get('/api/v1/demo');
      if (!app.isFrozen()) show();
    } catch {
      // The step before stays; the page says that the connection is lost.
    }
    clearTimeout(timer);
    timer = setTimeout(ask, INTERVAL);
  }

  /** @param {-1 | 0 | 1} by */
  function read(by) {
    if (!demo) return;
    const wanted = (reading ?? demo.step) + by;
    reading = by === 0 || wanted === demo.step ? null : Math.min(Math.max(wanted, 1), demo.of);
    show();
  }

  function show() {
    if (!demo) return;
    const { step, of, elapsed_ms: elapsed, total_ms: total } = demo;
    const number = reading ?? step;
    strip.hidden = false;
    setText(place, `Demo ${number} of ${of}`);
    // All texts are in the page, one is visible: the strip has the height of the longest, and the
    // page below it does not move.
    patch(body, [{ ...demo, n: 0 }, ...demo.steps], ({ n }) => String(n), () => h('div', null), (element, { n, title, text, link }) => {
      element.classList.toggle('shown', n === (reading ?? 0));
      render(element, [title, text, link], () => [
        h('p', null, h('strong', null, `${title}.`), ' ', ...marked(text)),
        link && h('a', { href: link.path }, `Show me: ${link.label}`),
      ]);
    });
    const { title, text } = demo.steps.find(({ n }) => n === reading) ?? demo;
    if (title !== announced) app.announce(`Demo ${number} of ${of}: ${title}. ${text}`);
    announced = title;
    previous.disabled = number <= 1;
    next.disabled = number >= of;
    follow.style.visibility = reading === null ? 'hidden' : '';
    bar.style.width = `${total > 0 ? Math.min(100, (100 * elapsed) / total) : 0}%`;
  }

  function close() {
    isClosed = true;
    clearTimeout(timer);
    document.removeEventListener('visibilitychange', ask);
    strip.remove();
  }
}

/**
 * Text in which names stand between backticks.
 * @param {string} text
 */
const marked = (text) => text.split('`').map((part, at) => (at % 2 === 1 ? h('code', null, part) : part));

/**
 * @param {string} label
 * @param {import('../icons.js').IconName} picture
 * @param {() => void} run
 */
const button = (label, picture, run) =>
  h('button', { class: 'icon-button', type: 'button', 'aria-label': label, title: label, onclick: run }, icon(picture));
