import { test } from 'node:test';
import assert from 'node:assert/strict';

import { bandList, elapsed, inForceAt, presentValue, sentence, tableRows } from '../chart_text.js';
import { rate } from '../format.js';

const words = { isLive: false, time: elapsed, value: rate };
const live = { ...words, isLive: true };

/**
 * @param {(number | null)[]} values
 * @param {import('../chart_text.js').Band[]} bands
 */
function dataOf(values, bands = []) {
  const line = Float32Array.from(values, (value) => value ?? NaN);
  return { start_ms: 0, step_ms: 1000, values: { rate: line }, bands };
}

const held = /** @type {const} */ ({ state: 'held', from_ms: 2000, to_ms: 9000, source: 'retry-after' });
const open = /** @type {const} */ ({ state: 'half_open', from_ms: 4000, to_ms: null });

test('the sentence has range, present value and what is in force', () => {
  const data = dataOf([6, 52, null, 41.8], [held, open]);
  assert.equal(sentence('Rate of llm/a', ['rate'], data, -296_000, 4000, live),
    'Rate of llm/a, last 5 min: rate between 6.00/s and 52.0/s, now 41.8/s; ' +
    'held until 9 s, retry-after; half-open since 4 s');
  assert.equal(sentence('Run', ['rate'], dataOf([5, 5]), 0, 1000, words),
    'Run, 1 s: rate 5.00/s, at the end 5.00/s');
  assert.equal(sentence('A\u202eB', ['rate'], dataOf([]), 0, 60_000, live),
    'A⟨U+202E⟩B, last 1 min: no values');
});

test('a present value is at most five points old', () => {
  const data = dataOf([7, null, null, null]);
  assert.equal(presentValue(data, 'rate', 5000), 7);
  assert.equal(presentValue(data, 'rate', 5001), NaN);
  assert.equal(presentValue(data, 'other', 0), NaN);
});

test('a period ends before its last instant', () => {
  assert.equal(inForceAt([held], 1999, words), '');
  assert.equal(inForceAt([held], 2000, words), 'held until 9 s, retry-after');
  assert.equal(inForceAt([held], 9000, words), '');
  assert.equal(inForceAt([open], 1e9, words), 'half-open since 4 s');
});

test('periods in view are listed oldest first, at most six', () => {
  assert.equal(bandList([open, held], 0, 10_000, words),
    'held 2 s–9 s (retry-after) · half-open since 4 s');
  assert.equal(bandList([held], 0, 8000, words), 'held since 2 s until 9 s (retry-after)');
  assert.equal(bandList([held], 9001, 10_000, words), '');
  const many = Array.from({ length: 8 }, (_, index) => (
    { ...held, source: null, from_ms: index * 1000, to_ms: index * 1000 + 500 }));
  assert.match(bandList(many, 0, 10_000, words), /^2 earlier · held 2 s–2.5 s · /);
});

test('a table has a row for every 5 s, newest first, with the last value since the row before', () => {
  const data = dataOf([0, 1, 2, 3, 4, null, 6, 7, null, null, null, null], [held]);
  assert.deepEqual(tableRows(['rate'], data, 0, 11_000, words), [
    ['5 s', '4.00/s', 'held until 9 s, retry-after'],
    ['0 s', '0.0/s', '–'],
  ]);
  data.values.rate[11] = 9;
  assert.deepEqual(tableRows(['rate'], data, 0, 11_000, words)[0], ['10 s', '7.00/s', '–']);
});

test('gaps longer than a row are dashes, and a table has at most 180 rows', () => {
  const data = dataOf([1, ...Array(19).fill(null), 2]);
  const rows = tableRows(['rate'], data, 0, 20_000, words);
  assert.deepEqual(rows.map((row) => row[1]), ['2.00/s', '–', '–', '–', '1.00/s']);
  const long = dataOf(Array(3600).fill(1));
  assert.equal(tableRows(['rate'], long, 0, 3_599_000, words).length <= 180, true);
  assert.equal(tableRows(['rate'], dataOf([]), 0, 1e6, words).length, 0);
});
