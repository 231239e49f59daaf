import assert from 'node:assert/strict';
import { test } from 'node:test';

import { changesOf, differences, ordinal, pauseText, pauseValue, resize, typedOf, valuesOf } from '../views/protection.js';
import { SCENARIOS, afterwards, copyStates } from '../views/test_tool.js';

/** @type {import('../types.js').Protection} */
const saved = {
  enabled: true,
  pauses: ['30s', '60s', '120s', '300s', '600s'],
  disable_after: 5,
  unreachable: false,
  show_test_tool: false,
  probing_after: 20,
  statuses: [429, 500, 502, 503, 504, 529],
  texts: ['rate limit', 'too many requests'],
};

test('shows pauses in the usual form and sends them in the API’s', () => {
  assert.deepEqual(['90s', '1m30s', ' 60s ', '3600s', '45'].map(pauseText), ['1m 30s', '1m 30s', '1m', '60m', '45s']);
  assert.deepEqual(['1m 30s', '1m', '45', '0'].map(pauseValue), ['90s', '60s', '45s', '0s']);
  assert.deepEqual(['soon', '1500ms', ''].map(pauseText), ['soon', '1500ms', ''], 'kept as typed');
  assert.deepEqual(['soon', '1500ms', ''].map(pauseValue), ['soon', '1500ms', '']);
});

test('fills new pauses with the last one and cuts those beyond the threshold', () => {
  assert.deepEqual(resize(['30s', '1m'], 4), ['30s', '1m', '1m', '1m']);
  assert.deepEqual(resize(['30s', '1m', '2m'], 2), ['30s', '1m']);
  assert.deepEqual(typedOf({ ...saved, disable_after: 7 }).pauses, ['30s', '1m', '2m', '5m', '10m', '10m', '10m']);
});

test('sends only what was changed', () => {
  const typed = typedOf(saved);
  assert.deepEqual(changesOf(saved, typed), {});
  assert.deepEqual(changesOf({ ...saved, disable_after: 3 }, typedOf({ ...saved, disable_after: 3 })), {}, 'pauses beyond the threshold are no change');
  assert.deepEqual(changesOf(saved, { ...typed, pauses: ['30s', '60s', '2m', '300s', '10m'] }), {}, 'the same written otherwise');
  assert.deepEqual(changesOf(saved, { ...typed, enabled: false, show_test_tool: true }), { enabled: false, show_test_tool: true });
  const six = { ...typed, disable_after: '6', pauses: resize(typed.pauses, 6) };
  assert.deepEqual(changesOf(saved, six), { disable_after: 6, pauses: [...saved.pauses, '600s'] });
  assert.deepEqual(changesOf(saved, { ...typed, statuses: '429 503,' }), { statuses: [429, 503] });
  assert.deepEqual(changesOf(saved, { ...typed, texts: ' slow down \n\n' }), { texts: ['slow down'] });
});

test('leaves what cannot be read to the API', () => {
  const values = valuesOf({ ...typedOf(saved), disable_after: '', probing_after: '-1', statuses: '429, often' });
  assert.equal(values.disable_after, '');
  assert.equal(values.probing_after, '-1');
  assert.deepEqual(values.statuses, [429, 'often']);
});

test('says what the configuration file says where it differs', () => {
  assert.equal(differences(saved, saved), 'the same');
  assert.equal(differences({ ...saved, pauses: ['10s'], disable_after: 3 }, saved), '30s, 1m, 2m, 5m, 10m · threshold 5');
  const other = { ...saved, enabled: false, texts: ['x\u202e'], probing_after: 1, show_test_tool: true };
  assert.equal(differences(saved, other), 'protection off · phrases "x⟨U+202E⟩" · a 429 is probing after 1 success · test tool shown');
});

test('numbers the pauses', () => {
  assert.deepEqual([1, 2, 3, 4, 10].map(ordinal), ['1st', '2nd', '3rd', '4th', '10th']);
});

test('labels scenarios with the numbers of the settings', () => {
  const labels = (/** @type {typeof saved} */ protection) => SCENARIOS.map(([, label]) => label(protection));
  assert.deepEqual(labels(saved), ['Single error (30s)', 'Repeated errors (3x)', 'Success recovery', 'Auto-disable (5x)']);
  assert.deepEqual(labels({ ...saved, pauses: ['10s'], disable_after: 3 }), ['Single error (10s)', 'Repeated errors (3x)', 'Success recovery', 'Auto-disable (3x)']);
});

test('shows the copy after each step', () => {
  const step = { event: 'error', status: 429, at_ms: 0, enabled: true, paused: true, pause_ms: 60_000, consecutive_errors: 2, last_error: null, text: '' };
  const words = (/** @type {typeof step} */ each) => copyStates(each).map((state) => state.word);
  assert.equal(afterwards(step), 'paused for 1m');
  assert.deepEqual(words(step), ['Paused 1m', '2 errors']);
  const active = { ...step, event: 'success', status: 200, paused: false, pause_ms: 0, consecutive_errors: 0 };
  assert.equal(afterwards(active), 'active');
  assert.deepEqual(words(active), ['Active']);
  const last = { ...step, enabled: false, pause_ms: 600_000 };
  assert.equal(afterwards(last), 'paused for 10m and disabled');
  assert.deepEqual(words(last), ['Disabled']);
  assert.equal(afterwards({ ...last, event: 'not_sent' }), 'disabled');
});
