// Countdowns on the page. All share one timer, which sleeps until the next text changes; while
// the page is hidden there is no timer.

import { wholeSeconds } from './format.js';

/**
 * What countdowns need of the browser.
 * @typedef {object} Schedule
 * @property {(run: () => void, ms: number) => number} set
 * @property {(timer: number) => void} clear
 * @property {() => boolean} isHidden
 * @property {(run: () => void) => void} onVisibilityChange
 */

/** @type {Schedule} */
const browser = {
  set: (run, ms) => window.setTimeout(run, ms),
  clear: (timer) => window.clearTimeout(timer),
  isHidden: () => document.hidden,
  onVisibilityChange: (run) => document.addEventListener('visibilitychange', run),
};

/**
 * @typedef {object} Countdown
 * @property {{ textContent: string | null }} element
 * @property {number} untilMs
 * @property {(remainingMs: number) => string} render
 * @property {() => void} onEnd
 */

/**
 * @param {{ now: () => number }} clock of the server
 * @param {Schedule} schedule
 */
export function createCountdowns(clock, schedule = browser) {
  /** @type {Set<Countdown>} */
  const running = new Set();
  /** @type {number | undefined} */
  let timer;

  schedule.onVisibilityChange(tick);
  return { add };

  /**
   * Shows `render(remaining)` in an element, now and whenever the remaining time in whole seconds
   * changes. At `untilMs` it calls `onEnd` once; `untilMs` itself is over.
   *
   * @param {{ textContent: string | null }} element
   * @param {number} untilMs Unix time of the server
   * @param {(remainingMs: number) => string} render
   * @param {() => void} onEnd
   * @returns {() => void} ends it without `onEnd`
   */
  function add(element, untilMs, render, onEnd = () => {}) {
    const countdown = { element, untilMs, render, onEnd };
    running.add(countdown);
    if (untilMs > clock.now()) show(countdown, untilMs - clock.now());
    wait();
    return () => {
      running.delete(countdown);
      wait();
    };
  }

  function tick() {
    const now = clock.now();
    for (const countdown of [...running]) {
      const remaining = countdown.untilMs - now;
      if (remaining > 0) {
        show(countdown, remaining);
      } else if (running.delete(countdown)) {
        countdown.onEnd();
      }
    }
    wait();
  }

  function wait() {
    if (timer !== undefined) schedule.clear(timer);
    timer = undefined;
    if (running.size === 0 || schedule.isHidden()) return;
    const now = clock.now();
    let next = Infinity;
    for (const { untilMs } of running) next = Math.min(next, untilChange(untilMs - now));
    timer = schedule.set(tick, Math.ceil(next));
  }
}

/**
 * How long until the remaining time in whole seconds changes.
 * @param {number} remainingMs
 */
function untilChange(remainingMs) {
  return remainingMs <= 0 ? 0 : remainingMs - (wholeSeconds(remainingMs) - 1) * 1000;
}

/**
 * @param {Countdown} countdown
 * @param {number} remainingMs
 */
function show({ element, render }, remainingMs) {
  const text = render(remainingMs);
  if (element.textContent !== text) element.textContent = text;
}
