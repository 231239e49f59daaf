import { test } from 'node:test';
import assert from 'node:assert/strict';

import { spread } from '../labels.js';

test('names are moved apart around their middle, as in the report of a simulation', () => {
  assert.deepEqual(spread([10, 50], 0, 100), [10, 50]);
  assert.deepEqual(spread([30, 31, 32], 0, 100), [17, 31, 45]);
  assert.deepEqual(spread([30, 31, 50], 0, 100), [23, 37, 51]);
  assert.deepEqual(spread([98, 99, 100], 0, 100), [72, 86, 100]);
});

test('names stay below the upper end', () => {
  assert.deepEqual(spread([0, 1, 2], 0, 100), [0, 14, 28]);
  assert.deepEqual(spread([-50, 200], 0, 100), [0, 100]);
});

test('names without enough room are closer', () => {
  assert.deepEqual(spread([5, 5, 5], 0, 20), [0, 10, 20]);
  assert.deepEqual(spread([5], 0, 0), [0]);
  assert.deepEqual(spread([], 0, 100), []);
});

test('names are in order, in bounds and apart for any heights', () => {
  for (let seed = 1; seed < 500; seed += 1) {
    const preferred = Array.from({ length: 1 + (seed % 6) }, (_, i) => (seed * (i + 3) * 7919) % 150);
    preferred.sort((a, b) => a - b);
    const heights = spread(preferred, 5, 140);
    heights.forEach((height, i) => {
      assert(height >= 5 - 1e-9 && height <= 140 + 1e-9, `${preferred}`);
      if (i > 0) assert(height - heights[i - 1] >= 14 - 1e-9, `${preferred} -> ${heights}`);
    });
  }
});
