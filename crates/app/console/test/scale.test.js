import { test } from 'node:test';
import assert from 'node:assert/strict';

import { axisNumber, clockAxis, createStickyTop, elapsedAxis, valueAxis } from '../scale.js';

/** @param {{ label: string }[]} marks */
const labels = (marks) => marks.map(({ label }) => label);

test('value axes have four to six round marks at every magnitude', () => {
  assert.deepEqual(labels(valueAxis(3).marks), ['0', '1', '2', '3']);
  assert.deepEqual(labels(valueAxis(201).marks), ['0', '50', '100', '150', '200']);
  assert.deepEqual(labels(valueAxis(10_000).marks),
    ['0', '2,000', '4,000', '6,000', '8,000', '10,000']);
  for (let max = 0.0013; max < 1e9; max *= 1.07) {
    const { top, marks } = valueAxis(max);
    assert(marks.length >= 4 && marks.length <= 7, `${max}: ${labels(marks)}`);
    assert(top >= max * 1.04 - 1e-9 * max && top <= max * 1.25, `${max}: ${top}`);
  }
});

test('a value axis without a positive maximum ends above one', () => {
  for (const nothing of [0, -1, NaN, Infinity]) assert.deepEqual(valueAxis(nothing), valueAxis(1));
});

test('the top grows at once and shrinks after 30 s', () => {
  const sticky = createStickyTop();
  const top = (/** @type {number} */ max, /** @type {number} */ s) =>
    valueAxis(sticky.fit(max, s * 1000)).top;
  const high = top(100, 0);
  assert.equal(high, valueAxis(100).top);
  assert.equal(top(10, 1), high);
  assert.equal(top(40, 20), high);
  assert.equal(top(10, 30), high);
  assert.equal(top(10, 31), valueAxis(40).top);
  assert.equal(top(200, 32), valueAxis(200).top);
});

test('a value near the top does not restart the 30 s of others for ever', () => {
  const sticky = createStickyTop();
  sticky.fit(100, 0);
  sticky.fit(10, 1000);
  sticky.fit(100, 20_000);
  sticky.fit(10, 21_000);
  assert.equal(valueAxis(sticky.fit(10, 50_000)).top, valueAxis(100).top);
  assert.equal(valueAxis(sticky.fit(10, 51_000)).top, valueAxis(10).top);
});

test('clock times are on round seconds and minutes', () => {
  const from = new Date(2026, 10, 16, 18, 37, 10).getTime();
  assert.deepEqual(labels(clockAxis(from, from + 300_000, 6)),
    ['18:38', '18:39', '18:40', '18:41', '18:42']);
  assert.deepEqual(labels(clockAxis(from, from + 300_000, 4)), ['18:38', '18:40', '18:42']);
  assert.deepEqual(labels(clockAxis(from, from + 60_000, 4)),
    ['18:37:15', '18:37:30', '18:37:45', '18:38:00']);
});

test('elapsed times use seconds, minutes and hours', () => {
  assert.deepEqual(labels(elapsedAxis(300_000, 6)), ['0 s', '60 s', '120 s', '180 s', '240 s', '300 s']);
  assert.equal(labels(elapsedAxis(1000, 6)).at(-1), '1 s');
  assert.equal(labels(elapsedAxis(3_600_000, 6)).at(-1), '60 min');
  assert.equal(labels(elapsedAxis(86_400_000, 6)).at(-1), '24 h');
  assert(elapsedAxis(0, 6).length < 10);
});

test('numbers of axes have no superfluous zeros', () => {
  assert.deepEqual([0, 0.05, 2.5, 12.34, 1_234_000, NaN].map(axisNumber),
    ['0', '0.05', '2.5', '12.34', '1,234,000', '–']);
});
