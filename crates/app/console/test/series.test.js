import { test } from 'node:test';
import assert from 'node:assert/strict';

import { createSeries, reduce, toFloats } from '../series.js';

/** @param {ArrayLike<number | null>} values */
const list = (values) => Array.from(values, (value) => (Number.isNaN(value) ? null : value));

test('stores the newest points and forgets the oldest', () => {
  const series = createSeries(['a'], 3);
  for (let second = 10; second < 15; second += 1) series.append(second * 1000, { a: second });
  const { start_ms, step_ms, values } = series.samples(60_000);
  assert.deepEqual([start_ms, step_ms, list(values.a)], [12_000, 1000, [12, 13, 14]]);
});

test('missing points are gaps, not zeros', () => {
  const series = createSeries(['a', 'b'], 10);
  series.append(1000, { a: 1, b: null });
  series.append(4000, { a: 4 });
  const { values } = series.samples(3000);
  assert.deepEqual([list(values.a), list(values.b)],
    [[1, null, null, 4], [null, null, null, null]]);
});

test('a gap longer than the ring forgets everything', () => {
  const series = createSeries(['a'], 3);
  series.append(1000, { a: 1 });
  series.append(1e12, { a: 2 });
  assert.deepEqual(list(series.samples(60_000).values.a), [null, null, 2]);
});

test('a late point fills its place, a too late one is ignored', () => {
  const series = createSeries(['a'], 3);
  for (const [second, value] of [[5, 5], [7, 7], [6, 6], [4, 4], [-1, 0], [NaN, 0]]) {
    series.append(second * 1000, { a: value });
  }
  assert.deepEqual(list(series.samples(60_000).values.a), [5, 6, 7]);
});

test('recorded points replace everything, and points follow in the same step', () => {
  const series = createSeries(['a'], 4);
  series.append(1000, { a: 9 });
  series.load({ start_ms: 10_000, step_ms: 500, values: { a: [1, null, 3, 4, 5] } });
  series.append(12_500, { a: 6 });
  const { start_ms, step_ms, values } = series.samples(60_000);
  assert.deepEqual([start_ms, step_ms, list(values.a)], [11_000, 500, [3, 4, 5, 6]]);
  assert.deepEqual(list(series.samples(1000).values.a), [4, 5, 6]);
  series.clear();
  assert.deepEqual(list(series.samples(1000).values.a), []);
});

test('times that vary around the middle of two points leave no gap', () => {
  const series = createSeries(['a'], 10);
  [10.495, 11.505, 12.495, 13.51, 14.49, 15.5].forEach((at, index) => {
    series.append(at * 1000, { a: index });
  });
  const { start_ms, values } = series.samples(5000);
  assert.deepEqual([start_ms, list(values.a)], [10_000, [0, 1, 2, 3, 4, 5]]);
});

test('several values of one point replace each other', () => {
  const series = createSeries(['a'], 10);
  for (let at = 10; at < 13; at += 0.25) series.append(at * 1000, { a: at });
  assert.deepEqual(list(series.samples(2000).values.a), [11.25, 12.25, 12.75]);
});

test('nulls become gaps', () => {
  assert.deepEqual(list(toFloats([1, null, 0])), [1, null, 0]);
});

test('reduction retains lowest and highest in their order', () => {
  const values = Float32Array.of(1, 5, 2, 9, 3, 0);
  assert.deepEqual(reduce(values, 0, 6, 3), { indexes: [0, 1, 3, 5], values: [1, 5, 9, 0] });
});

test('reduction of moved points has the same groups', () => {
  const line = Float32Array.from({ length: 100 }, (_, index) => (index * 37) % 11);
  const whole = reduce(line, 0, 100, 5);
  const moved = reduce(line.slice(7), 0, 93, 5, 7);
  assert.deepEqual(moved.values.slice(-30), whole.values.slice(-30));
});

test('a group without values is a gap, one with some is none', () => {
  const { values } = reduce(Float32Array.of(NaN, 1, NaN, NaN, 2, 3), 0, 6, 2);
  assert.deepEqual(list(values), [1, null, 2, 3]);
});

test('a point that is not recorded yet is no gap before the next', () => {
  const series = createSeries(['a'], 10);
  series.load({ start_ms: 1000, step_ms: 1000, values: { a: [1, null, 3, null] } });
  series.append(4400, { a: 4 });
  series.append(5400, { a: 5 });
  assert.deepEqual(list(series.samples(60_000).values.a).slice(1), [1, null, 3, 4, 5]);
});
