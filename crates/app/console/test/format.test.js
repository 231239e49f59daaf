import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import assert from 'node:assert/strict';

import {
  clockTime, count, dateTime, duration, instant, isoTime, latency, MISSING, parseDuration, rate,
  share, splitUnit, wholeSeconds,
} from '../format.js';

/**
 * @template T
 * @param {(value: T) => unknown} format
 * @param {[T, unknown][]} cases
 */
function check(format, cases) {
  for (const [value, text] of cases) assert.equal(format(value), text, `${value}`);
}

const conformance = JSON.parse(readFileSync(
  new URL('../../../../conformance/003_display_and_settings.json', import.meta.url), 'utf8',
));

test('rates have three digits', () => check(rate, [
  [210, '210/s'], [41.8, '41.8/s'], [2, '2.00/s'], [0.5, '0.50/s'], [0.05, '3.0/min'],
  [12480.4, '12,480/s'], [99.96, '100/s'], [9.996, '10.0/s'], [0, '0.0/s'], [0.1, '0.10/s'],
  [0.001, '<0.1/min'],
]));

test('counts have separated thousands and millions in three digits', () => check(count, [
  [0, '0'], [999, '999'], [12480, '12,480'], [999_999, '999,999'], [1_240_000, '1.24 M'],
  [12_400_000, '12.4 M'], [1_240_000_000, '1,240 M'], [-1234, '-1,234'],
]));

test('shares are 0 % or 100 % only if exact', () => check(share, [
  [0, '0 %'], [0.0001, '<1 %'], [0.01, '1 %'], [0.414, '41 %'], [0.994, '>99 %'],
  [0.9999, '>99 %'], [1, '100 %'],
]));

test('latencies are in milliseconds up to 10 s', () => check(latency, [
  [0, '0.0 ms'], [8.4, '8.4 ms'], [9.97, '10 ms'], [640, '640 ms'], [5012, '5,012 ms'],
  [9999, '9,999 ms'], [9999.6, '10.0 s'], [12_300, '12.3 s'], [123_456, '123.5 s'],
]));

test('durations are whole seconds rounded up, as in the command line', () => {
  check(duration, [
    [0, '0s'], [1, '1s'], [45_000, '45s'], [120_000, '2m'], [149_001, '2m 30s'],
    [3_600_000, '60m'], [-5, '0s'],
  ]);
  for (const { seconds, text } of conformance.format) assert.equal(duration(seconds * 1000), text);
  for (const { remaining_ms, shown_s } of conformance.remaining_seconds) {
    assert.equal(wholeSeconds(remaining_ms), shown_s);
  }
});

test('durations in the format of settings are read', () => {
  check(parseDuration, [
    ['500ms', 500], ['30s', 30_000], ['5m', 300_000], ['1m30s', 90_000], ['1m 30s', 90_000],
    ['2.5s', 2500], ['0s', 0], ['1d', 86_400_000], ['1us', 0.001], [' 90s ', 90_000],
    ['9223372036s', 9_223_372_036_000],
  ]);
  for (const bad of ['', ' ', '30', 's', '-3s', '1.2.3s', '3 s', '1e3s', 'NaNs', '5 minutes',
    '99999999999999d', '18446744073s5m', '99999999999999999999999s', '.s', '1constructor',
    '1toString']) {
    assert.equal(parseDuration(bad), null, bad);
  }
});

test('reading a long text as duration takes no long time', () => {
  assert.equal(parseDuration('1s'.repeat(100_000) + '!'), null);
  assert.equal(parseDuration('1'.repeat(99) + '!'), null);
});

test('times are local, with the date on other days', () => {
  const now = new Date(2026, 10, 16, 18, 42, 10, 250).getTime();
  assert.equal(instant(now, now), '18:42:10');
  assert.equal(instant(new Date(2026, 10, 14, 9, 5, 7).getTime(), now), '14 Nov 09:05');
  assert.equal(instant(new Date(2025, 10, 16, 18, 42, 10).getTime(), now), '16 Nov 2025 18:42');
  assert.equal(clockTime(now), '18:42:10');
  assert.match(dateTime(now), /^2026-11-16 18:42:10\.250 [+-]\d\d:\d\d$/);
  assert.equal(isoTime(0), '1970-01-01T00:00:00.000Z');
});

test('what is missing is a dash', () => {
  for (const format of [rate, count, share, latency, duration, clockTime, dateTime]) {
    for (const missing of [null, undefined, NaN, Infinity]) {
      assert.equal(format(missing), MISSING, format.name);
    }
  }
  assert.equal(instant(null, 0), MISSING);
  assert.equal(instant(1e300, 0), MISSING);
  assert.equal(isoTime(null), '');
});

test('number and unit are split', () => {
  assert.deepEqual(splitUnit('41.8/s'), ['41.8', '/s']);
  assert.deepEqual(splitUnit('640 ms'), ['640', ' ms']);
  assert.deepEqual(splitUnit(MISSING), [MISSING, '']);
});
