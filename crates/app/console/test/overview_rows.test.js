import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createLingering, joinEvents } from '../views/overview_rows.js';

/**
 * @param {number} id
 * @param {number} at_ms
 * @param {string} text
 */
const event = (id, at_ms, text) => ({ id, at_ms, text, kind: 'hold_started', data: {} });

test('events in a row that say the same are one', () => {
  const joined = joinEvents([event(9, 5000, 'a held'), event(8, 4990, 'a held'), event(7, 4000, 'b held'), event(6, 3900, 'a held')]);
  assert.deepEqual(joined.map(({ id, firstId, times, text }) => [id, firstId, times, text]), [[9, 8, 2, 'a held'], [7, 7, 1, 'b held'], [6, 6, 1, 'a held']]);
});

test('events that repeat after a while are two', () => {
  assert.equal(joinEvents([event(2, 20_000, 'a held'), event(1, 0, 'a held')]).length, 2);
});

test('a row that is over stays at its place for a moment', () => {
  const update = createLingering((/** @type {string} */ key) => key);
  const shown = (/** @type {string[]} */ items, /** @type {number} */ now) => update(items, now).map(({ item, isOver }) => (isOver ? `(${item})` : item));
  assert.deepEqual(shown(['a', 'b'], 0), ['a', 'b']);
  assert.deepEqual(shown(['b'], 2000), ['(a)', 'b']);
  assert.deepEqual(shown(['a', 'b'], 4000), ['a', 'b']);
  assert.deepEqual(shown(['b', 'c'], 13_000), ['(a)', 'b', 'c']);
  assert.deepEqual(shown(['b', 'c'], 14_000), ['b', 'c']);
});
