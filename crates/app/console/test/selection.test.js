import { test } from 'node:test';
import assert from 'node:assert/strict';

import { createSelection } from '../selection.js';

const KEYS = ['a', 'b', 'c', 'd', 'e'];

test('a row is selected and deselected', () => {
  const selection = createSelection();
  selection.choose('b', KEYS, false);
  selection.choose('d', KEYS, false);
  assert.deepEqual([...selection.selected], ['b', 'd']);
  selection.choose('b', KEYS, false);
  assert.deepEqual([...selection.selected], ['d']);
});

test('a range has both ends, in either direction', () => {
  for (const [from, to] of [['b', 'd'], ['d', 'b']]) {
    const selection = createSelection();
    selection.choose(from, KEYS, false);
    selection.choose(to, KEYS, true);
    assert.deepEqual([...selection.selected].sort(), ['b', 'c', 'd']);
  }
});

test('a range starts at the same row after rows changed their places', () => {
  const selection = createSelection();
  selection.choose('b', KEYS, false);
  selection.choose('d', ['e', 'd', 'a', 'b', 'c'], true);
  assert.deepEqual([...selection.selected].sort(), ['a', 'b', 'd']);
});

test('a range onto a selected row deselects', () => {
  const selection = createSelection();
  selection.chooseAll(KEYS);
  selection.choose('b', KEYS, false);
  selection.choose('d', KEYS, true);
  assert.deepEqual([...selection.selected].sort(), ['a', 'e']);
});

test('a range without a start is one row', () => {
  const selection = createSelection();
  selection.choose('c', KEYS, true);
  assert.deepEqual([...selection.selected], ['c']);
  selection.retain(new Set(['a']));
  selection.choose('b', ['a', 'b'], true);
  assert.deepEqual([...selection.selected], ['b']);
});

test('all are selected, then none', () => {
  const selection = createSelection();
  selection.choose('b', KEYS, false);
  selection.chooseAll(KEYS);
  assert.equal(selection.selected.size, 5);
  selection.chooseAll(KEYS);
  assert.equal(selection.selected.size, 0);
});

test('rows that are no more are forgotten', () => {
  const selection = createSelection();
  selection.chooseAll(KEYS);
  selection.retain(new Set(['b', 'x']));
  assert.deepEqual([...selection.selected], ['b']);
});
