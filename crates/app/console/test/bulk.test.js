import assert from 'node:assert/strict';
import { test } from 'node:test';
import { add, doneText, isNumber, planText } from '../bulk.js';

test('says what would happen', () => {
  const result = { matched: 5, will: 4, left_out: [{ reason: 'not_replay_safe', count: 1 }] };
  assert.equal(planText('retry', result, 162), '5 of 162 match: 4 will be retried, 1 is not replay safe and is left out.');
  const several = { matched: 7, will: 0, left_out: [{ reason: 'not_replay_safe', count: 7 }] };
  assert.equal(planText('retry', several, 1620), '7 of 1,620 match: 0 will be retried, 7 are not replay safe and are left out.');
});

test('says what was done', () => {
  assert.equal(doneText('retry', 4, 5), '4 retried, 1 left out.');
  assert.equal(doneText('cancel', 5, 5), '5 cancelled.');
});

test('adds up the results of several calls', () => {
  const result = (/** @type {number} */ n) => ({
    matched: n, will: n - 1, changed: n - 1, dry_run: false, next_cursor: null, sample: [], left_out: [{ reason: 'not_replay_safe', count: 1 }],
  });
  const sum = add(result(10), result(5));
  assert.deepEqual([sum.matched, sum.will, sum.changed, sum.left_out], [15, 13, 13, [{ reason: 'not_replay_safe', count: 2 }]]);
});

test('reads a typed number with separators', () => {
  assert.equal(isNumber('98,412', 98_412) && isNumber(' 98412 ', 98_412) && isNumber("98'412", 98_412), true);
  assert.equal(!isNumber('9841', 98_412) && !isNumber('', 0), true);
});
