import { test } from 'node:test';
import assert from 'node:assert/strict';

import { sparkPaths } from '../sparkline.js';

test('a line runs from the left to the right edge, zero at the bottom', () => {
  const { line, area } = sparkPaths(Float32Array.of(0, 5, 10), 60, 22);
  assert.equal(line, 'M0 21L30 11L60 1');
  assert.equal(area, 'M0 21L0 21L30 11L60 1L60 21Z');
});

test('missing values are gaps, a single value is a point', () => {
  const { line } = sparkPaths(Float32Array.of(1, NaN, 1, 1), 30, 12);
  assert.equal(line, 'M0 1h0M20 1L30 1');
});

test('nothing, zeros and negative values are drawn without NaN', () => {
  for (const values of [[], [NaN], [0, 0], [-1, -2], [3]]) {
    const { line, area } = sparkPaths(Float32Array.from(values), 30, 12);
    assert(!/NaN|Infinity/.test(line + area), `${values}`);
  }
});
