import assert from 'node:assert/strict';
import { test } from 'node:test';
import { arrange, countNew } from '../order.js';

test('takes over the order of the server', () => {
  const { keys, added, gone } = arrange(['a', 'b'], ['c', 'b'], false);
  assert.deepEqual([keys, added, [...gone]], [['c', 'b'], [], []]);
});

test('rows stay in their places while the order is paused', () => {
  const { keys, added, gone } = arrange(['a', 'b', 'c'], ['d', 'c', 'b', 'e'], true);
  assert.deepEqual([keys, added, [...gone]], [['a', 'b', 'c'], ['d', 'e'], ['a']]);
});

test('an empty list is filled although the order is paused', () => {
  assert.deepEqual(arrange([], ['a'], true).keys, ['a']);
});

test('rows of another page are not new', () => {
  const moved = arrange(['a', 'b'], ['c', 'b'], true);
  // One went to another page and one came from there; none is gone.
  assert.equal(countNew(9, 9, { ...moved, gone: new Set() }), 0);
  assert.equal(countNew(9, 10, { ...moved, gone: new Set() }), 1);
  // One is gone, and one came instead.
  assert.equal(countNew(9, 9, moved), 1);
});
