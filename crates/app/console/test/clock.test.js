import { test } from 'node:test';
import assert from 'node:assert/strict';

import { createClock } from '../clock.js';

test('shows local time until the first response', () => {
  assert.equal(createClock(() => 1000).now(), 1000);
});

test('takes the middle of a round trip, and the shortest one counts', () => {
  let local = 1000;
  const clock = createClock(() => local);
  clock.observe(61_100, 1000, 1199);
  assert.equal(clock.now(), 61_000.5 + 0.5);
  clock.observe(62_001, 2000, 2001);
  local = 3000;
  assert.equal(Math.abs(clock.now() - 63_001) <= 1, true);
  clock.observe(65_900, 3000, 8000);
  assert.equal(Math.abs(clock.now() - 63_001) <= 1, true);
});

test('follows when one of the clocks is set', () => {
  let local = 0;
  const clock = createClock(() => local);
  clock.observe(5, 0, 10);
  clock.observe(3_600_005, 1000, 1010);
  local = 1005;
  assert.equal(Math.abs(clock.now() - 3_600_005) <= 1, true);
});

test('ignores times that are none', () => {
  const clock = createClock(() => 0);
  clock.observe(NaN, 0, 1);
  clock.observe(9000, 5, 1);
  assert.equal(clock.now(), 0);
});
