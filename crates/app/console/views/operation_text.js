// Why an operation waits, was not delivered, or may be sent again, in words.

import { h } from '../dom.js';
import { count, duration } from '../format.js';
import { foreign } from '../page.js';
import { gatePath } from '../router.js';

/** @typedef {import('../types.js').Operation} Operation */

/** Reasons to wait; `KEY` is the gate or pool. */
const WAITS = new Map([
  ['backoff', 'backoff'],
  ['hold', 'gate KEY is held'],
  ['breaker_open', 'the breaker of gate KEY is open'],
  ['half_open', 'the breaker of gate KEY lets only probes through'],
  ['isolated', 'gate KEY is isolated'],
  ['rate', 'it waits for its turn at gate KEY'],
  ['order', 'an older operation with the same order key comes first'],
  ['pause', 'every endpoint of KEY is paused'],
  ['disabled', 'every endpoint of KEY is disabled'],
  ['no_endpoint', 'pool KEY has no endpoint'],
]);

const ENDS = new Map([
  ['exhausted', 'Every attempt failed.'],
  ['rejected', 'The server rejected it; the same request would be rejected again.'],
  ['auth_failed', 'The server refused its credential.'],
  ['conflict', 'The server has a version of its own.'],
  ['quota_exhausted', 'A quota of the server is used up.'],
  ['expired', 'It expired before it was delivered.'],
  ['disabled', 'Every endpoint of its pool is disabled.'],
  ['gave_up', 'Nothing succeeded there for too long.'],
  ['breaker_open', 'The breaker of its gate stayed open.'],
  ['unusable', 'Its response could not be used.'],
]);

/** Reasons of operations that ended without success, for the filter. */
export const REASONS = [...ENDS.keys(), 'cancelled'];

/**
 * Why it is not sent now; null if nothing is known to hold it up.
 * @param {Pick<Operation, 'waiting_for' | 'blocked' | 'key'>} operation
 * @returns {{ words: string, key: string } | null} `KEY` in the words stands for the key.
 */
export function waitingWords({ waiting_for: waiting, blocked, key }) {
  const reason = waiting?.reason ?? (blocked ? 'order' : null);
  return reason === null ? null : { words: WAITS.get(reason) ?? reason, key: waiting?.key ?? key };
}

/**
 * The same with a link to the gate or pool.
 * @param {Operation} operation
 */
export function waitingNodes(operation) {
  const waiting = waitingWords(operation);
  if (!waiting) return [];
  const [before, after] = waiting.words.split('KEY');
  return after === undefined ? [foreign(before)] : [before, keyLink(waiting.key), after];
}

/** @param {string} key Of a gate, or `/` and the name of a pool. */
export function keyLink(key) {
  const href = key.startsWith('/') ? `/pools#${encodeURIComponent(key.slice(1))}` : gatePath(key);
  return h('a', { href }, foreign(key));
}

/** @param {string | null} reason */
export const endText = (reason) => (reason && ENDS.get(reason)) ?? '';

/** Nothing more happens to these by themselves, so what is left does not matter. */
const isOver = (/** @type {Pick<Operation, 'state' | 'reason'>} */ { state, reason }) =>
  state === 'completed' || state === 'cancelled' || state === 'conflict' || (state === 'failed' && reason !== 'exhausted');

/**
 * How often it was sent, and of how many times: `2/7`. Once it is over, only how often. Attempts after
 * which the server named a wait do not count.
 * @param {Pick<Operation, 'sent' | 'counted' | 'max_attempts' | 'state' | 'reason'>} operation
 */
export const attemptsShort = (operation) => (isOver(operation) ? count(operation.sent) : `${count(operation.counted)}/${count(operation.max_attempts)}`);

/**
 * `2 of 7`, or `0 of 7 used, sent once`.
 * @param {Parameters<typeof attemptsShort>[0]} operation
 */
export function attemptsText(operation) {
  const { sent, counted, max_attempts: max } = operation;
  if (isOver(operation)) return count(sent);
  const times = sent === 1 ? 'once' : `${count(sent)} times`;
  return `${count(counted)} of ${count(max)}${sent > counted ? ` used, sent ${times}` : ''}`;
}

/**
 * `standard: estimate 31s, waits add up to 8s–23s`.
 * @param {NonNullable<Operation['delays']>} delays
 */
export function delaysText({ backoff, estimate_ms: estimate, min_ms: min, max_ms: max }) {
  return `${backoff}: estimate ${duration(estimate)}, waits add up to ${duration(min)}–${duration(max)}`;
}

/**
 * Method and host, without what is the same for most: `POST crm.example.com`.
 * @param {string} summary
 */
export const shortSummary = (summary) => summary.replace(/^(\S+) https?:\/\//, '$1 ').replace(/\/…$/, '');

/** Methods that a server may receive twice. */
const SAFE = /^(GET|HEAD|OPTIONS|TRACE|PUT|DELETE) /;

/** @param {Pick<Operation, 'replay_safe' | 'summary'>} operation */
export function safetyText({ replay_safe: isSafe, summary }) {
  if (!isSafe) return 'no: the server may act twice';
  return SAFE.test(summary) ? 'yes (method)' : 'yes (idempotency key)';
}

/** @param {Operation['state']} state */
export const isRetryable = (state) => state === 'failed' || state === 'retryable' || state === 'cancelled';

/** @param {Operation['state']} state */
export const isCancellable = (state) => state !== 'completed' && state !== 'cancelled';
