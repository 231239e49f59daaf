import assert from 'node:assert/strict';
import { test } from 'node:test';
import { segments, weight, withWaits } from '../views/attempts.js';
import { changes, totalOf } from '../views/operations.js';
import { attemptsShort, attemptsText, delaysText, endText, safetyText, shortSummary, waitingWords } from '../views/operation_text.js';

const COUNTS = { available: 120, running: 16, retryable: 42, completed: 98_412, failed: 5, conflict: 2, cancelled: 3 };

/** @returns {any} */
const operation = (/** @type {object} */ values) => ({
  id: 'op_1', state: 'retryable', sent: 0, accepted_at_ms: 0, next_at_ms: null, attempts: [], key: 'a.example', blocked: false, waiting_for: null, ...values,
});
/** @returns {any} */
const attempt = (/** @type {object} */ values) => ({ at_ms: 0, phase: 'receiving', status: 503, latency_ms: 100, wait_ms: 0, reason: 'overloaded', ...values });

test('adds up the counts of the chosen states', () => {
  assert.equal(totalOf(COUNTS, 'failed,conflict'), 7);
  assert.equal(totalOf(COUNTS, 'failed'), 5);
  assert.equal(totalOf(COUNTS, ''), 98_600);
});

test('splits the wait before an attempt into backoff and line', () => {
  const attempts = [attempt({ at_ms: 2000 }), attempt({ at_ms: 5100, wait_ms: 1000 }), attempt({ at_ms: 5210 })];
  const rows = withWaits(operation({ sent: 3, attempts }));
  assert.deepEqual(rows.map(({ waited, why }) => [waited, why]), [
    [2000, 'in line 2s'],
    [3000, 'backoff 2s, then in line 1s'],
    [10, ''],
  ]);
});

test('names the wait before a person started it again', () => {
  const attempts = [attempt({ at_ms: 0 }), attempt({ at_ms: 60_100 })];
  assert.equal(withWaits(operation({ sent: 1, attempts }))[1].why, 'started again after 1m');
});

test('does not invent a wait before the first of the last hundred attempts', () => {
  const attempts = Array.from({ length: 100 }, (_, at) => attempt({ at_ms: 1e6 + at * 1000 }));
  assert.equal(withWaits(operation({ sent: 250, attempts }))[0].waited, 0);
});

test('draws attempts, waits and the next attempt', () => {
  const attempts = [attempt({ at_ms: 0 }), attempt({ at_ms: 3100, status: null, reason: 'timeout', latency_ms: 30_000 })];
  const waiting = { reason: 'hold', key: 'a.example', until_ms: 90_000 };
  const drawn = segments(operation({ sent: 2, attempts, next_at_ms: 90_000, waiting_for: waiting }), 50_000);
  assert.deepEqual(drawn.map(({ kind, text, tone }) => `${kind} ${text} ${tone}`.trim()), [
    'attempt 503 bad',
    'wait backoff 3s',
    'attempt timeout bad',
    'wait gate a.example is held',
    'next next',
  ]);
  assert.deepEqual([drawn[3].fromMs, drawn[3].toMs], [33_100, 90_000]);
});

test('draws a wait until now when the operation is overdue', () => {
  const [wait] = segments(operation({ next_at_ms: 1000 }), 50_000);
  assert.deepEqual([wait.fromMs, wait.toMs], [0, 50_000]);
});

test('says why there was no response', () => {
  const attempts = ['connect', 'timeout', 'new_failure'].map((reason) => attempt({ status: null, reason, latency_ms: 0 }));
  const drawn = segments(operation({ state: 'failed', sent: 3, attempts }), 9000);
  assert.deepEqual(drawn.map(({ text }) => text), ['no connection', 'timeout', 'new_failure']);
});

test('draws nothing after the end', () => {
  const drawn = segments(operation({ state: 'completed', sent: 1, attempts: [attempt({ status: 200, reason: 'success' })] }), 9000);
  assert.deepEqual(drawn.map(({ kind, tone }) => [kind, tone]), [['attempt', 'ok']]);
});

test('draws the last six attempts', () => {
  const attempts = Array.from({ length: 20 }, (_, at) => attempt({ at_ms: at * 100 }));
  assert.equal(segments(operation({ state: 'failed', sent: 20, attempts }), 9000).length, 6);
});

test('gives a long wait more room, but not all', () => {
  const [short, long] = [{ fromMs: 0, toMs: 100 }, { fromMs: 0, toMs: 3_600_000 }].map((times) => weight(/** @type {any} */ (times)));
  assert.equal(long / short > 10 && long / short < 200, true);
});

test('finds new rows and rows that left the filter', () => {
  const row = (/** @type {number} */ at) => operation({ id: `op_${at}`, accepted_at_ms: at });
  const shown = [5, 4, 3, 2].map(row);
  const { added, gone } = changes(shown, { operations: [7, 6, 5, 3].map(row), next_cursor: 'a' });
  assert.equal(added, 2);
  // 2 only moved to the next page.
  assert.deepEqual([...gone], ['op_4']);
});

test('counts no row of the next page as new', () => {
  const row = (/** @type {number} */ at) => operation({ id: `op_${at}`, accepted_at_ms: at });
  const { added, gone } = changes([5, 4].map(row), { operations: [5, 3].map(row), next_cursor: null });
  assert.deepEqual([added, [...gone]], [0, ['op_4']]);
});

test('says why an operation waits', () => {
  assert.deepEqual(waitingWords(operation({ blocked: true }))?.words, 'an older operation with the same order key comes first');
  assert.deepEqual(waitingWords(operation({ waiting_for: { reason: 'hold', key: 'k', until_ms: 1 } })), { words: 'gate KEY is held', key: 'k' });
  assert.deepEqual(waitingWords(operation({ waiting_for: { reason: 'tide', key: 'k', until_ms: null } }))?.words, 'tide');
  assert.equal(waitingWords(operation({})), null);
});

test('says how it ended and whether it may be sent again', () => {
  assert.equal(endText('expired'), 'It expired before it was delivered.');
  assert.equal(endText(null), '');
  assert.equal(safetyText({ replay_safe: true, summary: 'PUT https://a' }), 'yes (method)');
  assert.equal(safetyText({ replay_safe: true, summary: 'POST https://a' }), 'yes (idempotency key)');
  assert.equal(safetyText({ replay_safe: false, summary: 'POST https://a' }), 'no: the server may act twice');
});

test('counts attempts and adds up waits', () => {
  const shown = (/** @type {object} */ values) => [attemptsShort(operation({ reason: null, max_attempts: 7, ...values })), attemptsText(operation({ reason: null, max_attempts: 7, ...values }))];
  assert.deepEqual(shown({ sent: 2, counted: 2 }), ['2/7', '2 of 7']);
  assert.deepEqual(shown({ sent: 1, counted: 0 }), ['0/7', '0 of 7 used, sent once']);
  assert.deepEqual(shown({ sent: 5, counted: 2 }), ['2/7', '2 of 7 used, sent 5 times']);
  assert.deepEqual(shown({ state: 'failed', reason: 'exhausted', sent: 7, counted: 7 }), ['7/7', '7 of 7']);
  assert.deepEqual(shown({ state: 'failed', reason: 'rejected', sent: 1, counted: 0 }), ['1', '1']);
  const delays = { backoff: 'standard', estimate_ms: 31_000, min_ms: 7500, max_ms: 22_500 };
  assert.equal(delaysText(delays), 'standard: estimate 31s, waits add up to 8s–23s');
});

test('shortens a request to method and host', () => {
  assert.equal(shortSummary('POST https://crm.example.com:8443/…'), 'POST crm.example.com:8443');
  assert.equal(shortSummary('PUT /llm/…'), 'PUT /llm');
  assert.equal(shortSummary('GET https://a.example'), 'GET a.example');
});
