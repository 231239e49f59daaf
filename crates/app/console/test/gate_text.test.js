import assert from 'node:assert/strict';
import { test } from 'node:test';
import { answersBetween, canRelease, isolateEffect, releaseEffect, resetEffect, stateSentence, waitingSentence } from '../views/gate_text.js';
import { waitingText } from '../views/waiting.js';

const now = new Date(2026, 10, 14, 18, 42, 10).getTime();

/**
 * @param {Partial<import('../types.js').GateDetail>} change
 * @returns {import('../types.js').GateDetail}
 */
function gate(change = {}) {
  return {
    key: 'llm/a', strategy: 'adaptive', rate_per_second: 41.8, tokens: 1, in_flight: 12, waiting: 0,
    latency_ms: { ewma: 1, p95: null }, error_rate: 0, breaker: { state: 'closed', until_ms: null },
    consecutive_failures: 0, hold: null, counts: { admitted: 0, success: 0, throttled: 0, failed: 0 },
    phase: null, ceiling: null, cost: null, why: 'staying at 41.8/s, a fixed rate', accepted_per_second: 0, refused_per_second: 0,
    failed_per_second: 0, initial_rate: 2, min_rate: 0.1, max_rate: 10_000, max_in_flight: 256, limits: [],
    first_leaves_ms: null, waiting_by_reason: {}, ...change,
  };
}

const hold = { until_ms: now + 72_000, reason: 'the server named a wait in `retry-after`', source: 'retry-after' };

test('a held gate says until when and why, and when the first leaves', () => {
  const held = gate({ hold, waiting: 37, waiting_by_reason: { rate: 7, hold: 30, in_flight: 0 }, first_leaves_ms: hold.until_ms });
  assert.equal(stateSentence(held, now), 'Held until 18:43:22: the server named a wait in `retry-after`.');
  assert.equal(waitingSentence(held, now), '37 requests wait (hold 30 · rate 7); the first leaves at 18:43:22, then 41.8/s.');
  assert.equal(
    releaseEffect(held, now),
    'The server asked for a delay until 18:43:22 (retry-after). Sending sooner may be refused again or lead to a ban. 37 waiting requests leave at 41.8/s.',
  );
});

test('a hold that is over is none', () => {
  const over = gate({ hold });
  assert.equal(canRelease(over, hold.until_ms - 1), true);
  assert.equal(canRelease(over, hold.until_ms), false);
  assert.match(stateSentence(over, hold.until_ms), /^Staying at 41.8\/s, a fixed rate\.$/);
});

test('breaker and isolation come before a hold', () => {
  const open = gate({ hold, consecutive_failures: 5, breaker: { state: 'open', until_ms: now + 4000 } });
  assert.equal(stateSentence(open, now), 'Open until 18:42:14: 5 failures in a row. Then a few requests are sent to probe it.');
  const isolated = gate({ hold, breaker: { state: 'isolated', until_ms: null, since_ms: now, reason: 'quota exhausted' } });
  assert.equal(stateSentence(isolated, now), 'Isolated since 18:42:10: quota exhausted. All requests are refused until it is released or reset.');
  assert.equal(canRelease(isolated, now), true);
  const byPerson = gate({ breaker: { state: 'isolated', until_ms: null, since_ms: now, reason: 'isolated by a person' } });
  assert.match(stateSentence(byPerson, now), /^Isolated since 18:42:10 by a person\. All/);
});

test('waiting for the rate alone has no time of the first', () => {
  assert.equal(waitingSentence(gate({ waiting: 1, waiting_by_reason: { rate: 1 } }), now), '1 request waits (rate), leaving at 41.8/s.');
  assert.equal(waitingSentence(gate({ waiting: 9, waiting_by_reason: { rate: 6, hold: 2 } }), now), '9 requests wait (rate, hold), leaving at 41.8/s.');
  assert.equal(waitingSentence(gate(), now), 'No request waits.');
  assert.equal(waitingText({ breaker_open: 3, hold: 0, in_flight: 4 }), 'in flight 4 · breaker open 3');
});

test('effects name the numbers of this gate', () => {
  assert.equal(isolateEffect(gate()), 'All requests to it are refused until it is released or reset. 12 in flight finish.');
  assert.equal(isolateEffect(gate({ in_flight: 0 })), 'All requests to it are refused until it is released or reset.');
  assert.equal(resetEffect(gate()), 'The learned rate of 41.8/s, hold, breaker and counts are forgotten. It starts again at 2.00/s.');
});

test('foreign reasons are made visible', () => {
  const text = stateSentence(gate({ hold: { ...hold, reason: 'x\u202Ey' } }), now);
  assert.match(text, /x⟨U\+202E⟩y/);
});

test('answers between samples are differences of counts', () => {
  const at = (/** @type {number} */ at_ms, /** @type {number} */ success) => ({ at_ms, counts: { admitted: 0, success, throttled: 0, failed: 0 } });
  assert.deepEqual(answersBetween(at(1000, 10), at(2000, 14)), { accepted: 4, refused: 0, failed: 0 });
  assert.equal(answersBetween(null, at(2000, 14)), null);
  // A sample was missed; the gate was reset; two came at once.
  assert.equal(answersBetween(at(1000, 10), at(4000, 20)), null);
  assert.equal(answersBetween(at(1000, 10), at(2000, 0)), null);
  assert.equal(answersBetween(at(1000, 10), at(1050, 11)), null);
});
