import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import assert from 'node:assert/strict';

import { createCountdowns } from '../countdown.js';
import { duration } from '../format.js';

/** A page whose time is advanced by hand. */
function createPage() {
  let now = 0;
  let isHidden = false;
  let nextId = 1;
  /** @type {Map<number, { at: number, run: () => void }>} */
  const timers = new Map();
  /** @type {(() => void)[]} */
  const listeners = [];
  const page = {
    timers,
    wakes: 0,
    now: () => now,
    set(/** @type {() => void} */ run, /** @type {number} */ ms) {
      timers.set(nextId, { at: now + ms, run });
      return nextId++;
    },
    clear: (/** @type {number} */ timer) => void timers.delete(timer),
    isHidden: () => isHidden,
    onVisibilityChange: (/** @type {() => void} */ run) => void listeners.push(run),
    hide(/** @type {boolean} */ hidden) {
      isHidden = hidden;
      for (const run of listeners) run();
    },
    advance(/** @type {number} */ ms) {
      const end = now + ms;
      for (;;) {
        const due = [...timers].filter(([, timer]) => timer.at <= end);
        due.sort(([, a], [, b]) => a.at - b.at);
        if (due.length === 0) break;
        const [id, timer] = due[0];
        timers.delete(id);
        now = Math.max(now, timer.at);
        page.wakes += 1;
        timer.run();
      }
      now = end;
    },
  };
  return page;
}

test('changes exactly with the rounded-up second and ends once', () => {
  const page = createPage();
  const element = { textContent: '' };
  let ends = 0;
  createCountdowns(page, page).add(element, 2500, duration, () => { ends += 1; });
  const seen = [];
  for (const ms of [0, 499, 1, 999, 1, 999]) {
    page.advance(ms);
    seen.push(element.textContent);
  }
  assert.deepEqual(seen, ['3s', '3s', '2s', '2s', '1s', '1s']);
  assert.equal(ends, 0);
  page.advance(1);
  assert.equal(ends, 1);
  page.advance(10_000);
  assert.equal(ends, 1);
  assert.equal(page.timers.size, 0);
  assert.equal(page.wakes, 3);
});

test('all countdowns share one timer', () => {
  const page = createPage();
  const countdowns = createCountdowns(page, page);
  const elements = [2000, 3000, 4000].map((until) => {
    const element = { textContent: '' };
    countdowns.add(element, until, duration);
    return element;
  });
  assert.equal(page.timers.size, 1);
  page.advance(1000);
  assert.deepEqual(elements.map((element) => element.textContent), ['1s', '2s', '3s']);
  assert.equal(page.wakes, 1);
});

test('a removed countdown neither changes nor ends', () => {
  const page = createPage();
  const element = { textContent: '' };
  const remove = createCountdowns(page, page).add(element, 2000, duration, () => assert(false));
  remove();
  assert.equal(page.timers.size, 0);
  page.advance(5000);
  assert.equal(element.textContent, '2s');
});

test('a hidden page has no timer and is right again when shown', () => {
  const page = createPage();
  const element = { textContent: '' };
  createCountdowns(page, page).add(element, 60_000, duration);
  page.hide(true);
  assert.equal(page.timers.size, 0);
  page.advance(30_500);
  page.hide(false);
  assert.equal(element.textContent, '30s');
  assert.equal(page.timers.size, 1);
});

test('an end may add the next countdown', () => {
  const page = createPage();
  const countdowns = createCountdowns(page, page);
  const element = { textContent: '' };
  countdowns.add(element, 1000, duration, () => countdowns.add(element, 3000, duration));
  page.advance(1000);
  assert.equal(element.textContent, '2s');
});

test('the end itself is over, as for a pause', () => {
  const path = '../../../../conformance/003_display_and_settings.json';
  const { paused } = JSON.parse(readFileSync(new URL(path, import.meta.url), 'utf8'));
  for (const { paused_until, paused: isPaused, remaining_s } of paused) {
    if (paused_until === 'undef') continue;
    const offset = paused_until === 'now' ? 0 : parseInt(paused_until, 10);
    const page = createPage();
    page.advance(1000);
    const element = { textContent: '' };
    let ended = false;
    createCountdowns(page, page).add(element, 1000 + offset, duration, () => { ended = true; });
    page.advance(0);
    assert.equal(ended, !isPaused, paused_until);
    assert.equal(element.textContent, isPaused ? `${remaining_s}s` : '', paused_until);
  }
});
