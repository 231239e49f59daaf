// The attempts of an operation: as a time line of bars and hatched waits, and as a table.

import { verdictState } from '../badge.js';
import { h, render, replace, setText } from '../dom.js';
import { clockTime, duration, latency } from '../format.js';
import { foreign, timeOf } from '../page.js';
import { visible } from '../text.js';
import { waitingWords } from './operation_text.js';

/**
 * @typedef {import('../types.js').Operation} Operation
 * @typedef {import('../types.js').OperationAttempt} Attempt
 * @typedef {object} Segment
 * @property {'attempt' | 'wait' | 'next'} kind
 * @property {number} fromMs
 * @property {number} toMs
 * @property {string} text
 * @property {string} tone
 */

/** The API has no more than this; then the first of them may not be the first of all. */
const MAX_LISTED = 100;
/** As many as have room for their words. */
const MAX_DRAWN = 6;
/** A shorter wait is not worth a place. */
const MIN_WAIT = 50;

/** @type {Record<string, string>} */
const PHASES = {
  connecting: 'nothing was sent',
  sending: 'part of it was sent',
  waiting: 'all of it was sent',
  receiving: 'part of the response came',
};

/** @type {Record<string, string>} */
const FAILURES = {
  connect: 'no connection',
  dns: 'name not found',
  tls: 'TLS failed',
  reset: 'connection broke',
  refused_stream: 'refused unprocessed',
};

/** @param {Attempt} attempt */
const wordOf = ({ status, reason }) => (status ? String(status) : FAILURES[reason] ?? reason);

/**
 * Each attempt with the wait before it.
 * @param {Operation} operation
 */
export function withWaits(operation) {
  const attempts = operation.attempts ?? [];
  const restart = attempts.length - operation.sent;
  return attempts.map((attempt, at) => {
    const before = at > 0 ? attempts[at - 1] : null;
    const isFirst = !before && attempts.length < MAX_LISTED;
    const since = before ? endOf(before) : isFirst ? operation.accepted_at_ms : attempt.at_ms - attempt.wait_ms;
    const waited = Math.max(0, attempt.at_ms - since);
    const turn = before ? Math.min(waited, attempt.wait_ms) : waited;
    const planned = waited - turn;
    const isRestart = at > 0 && at === restart;
    return { attempt, number: at + 1, waited, why: whyWaited(planned, turn, isRestart) };
  });
}

/** @param {Attempt} attempt */
const endOf = ({ at_ms: at, latency_ms: took }) => at + took;

/**
 * @param {number} planned Until it was due again.
 * @param {number} turn From then until it was sent.
 * @param {boolean} isRestart
 */
function whyWaited(planned, turn, isRestart) {
  const parts = [];
  if (planned >= MIN_WAIT) parts.push(isRestart ? `started again after ${duration(planned)}` : `backoff ${duration(planned)}`);
  if (turn >= MIN_WAIT) parts.push(`in line ${duration(turn)}`);
  return parts.join(', then ');
}

/**
 * What the time line shows, oldest first.
 * @param {Operation} operation
 * @param {number} now
 * @returns {Segment[]}
 */
export function segments(operation, now) {
  /** @type {Segment[]} */
  const found = [];
  for (const { attempt, waited, why } of withWaits(operation).slice(-MAX_DRAWN)) {
    const { at_ms: at } = attempt;
    if (waited >= MIN_WAIT) found.push({ kind: 'wait', fromMs: at - waited, toMs: at, text: why, tone: '' });
    found.push({ kind: 'attempt', fromMs: at, toMs: endOf(attempt), text: wordOf(attempt), tone: toneOf(attempt) });
  }
  const { state, next_at_ms: next } = operation;
  const since = found.at(-1)?.toMs ?? operation.accepted_at_ms;
  if (state === 'running') found.push({ kind: 'attempt', fromMs: now, toMs: now, text: 'running', tone: 'info' });
  if (state !== 'retryable' && state !== 'available') return found;
  const until = Math.max(next ?? now, now);
  const waiting = waitingWords(operation);
  const text = waiting ? waiting.words.replace('KEY', () => waiting.key) : 'backoff';
  found.push({ kind: 'wait', fromMs: since, toMs: until, text, tone: '' });
  found.push({ kind: 'next', fromMs: until, toMs: until, text: 'next', tone: until > now ? '' : 'due' });
  return found;
}

/**
 * How much room a time gets. Its square root: a wait of an hour must leave some to an attempt of a
 * second.
 * @param {Segment} segment
 */
export const weight = ({ fromMs, toMs }) => Math.max(0.5, Math.sqrt(Math.max(0, toMs - fromMs) / 1000));

/** @param {Attempt} attempt */
const toneOf = ({ reason }) => (reason === 'success' ? 'ok' : knownTone(verdictState(reason).tone));

/** @param {string} tone What is no verdict is a failure. */
const knownTone = (tone) => (tone === 'plain' ? 'bad' : tone.replace('-fill', ''));

/**
 * Draws the time line, which is the picture of the table below it; while only time goes on, the mark
 * of the present moves.
 * @param {HTMLElement} element
 * @param {Operation} operation
 * @param {number} now
 */
export function drawTimeline(element, operation, now) {
  const drawn = segments(operation, now);
  const last = drawn.at(-1);
  const end = last?.kind === 'attempt' && operation.ended_at_ms && clockTime(last.fromMs) !== clockTime(last.toMs) ? clockTime(last.toMs) : null;
  render(element, [drawn, end], () => [
    ...drawn.map(drawSegment),
    end && h('div', { class: 'segment end' }, h('span', { class: 'segment-time' }, end)),
  ]);
  const mark = /** @type {HTMLElement | null} */ (element.querySelector('.now'));
  const wait = drawn.at(-2);
  if (!mark || !wait) return;
  const isAhead = wait.fromMs <= now && now < wait.toMs;
  mark.hidden = !isAhead;
  if (isAhead) mark.style.left = `${((now - wait.fromMs) / (wait.toMs - wait.fromMs)) * 100}%`;
}

/**
 * @param {Segment} segment
 * @param {number} at
 * @param {Segment[]} all
 */
function drawSegment(segment, at, all) {
  const { kind, fromMs, text, tone } = segment;
  const bar = h('span', { class: 'segment-bar' }, h('span', null, foreign(text, 60)));
  const time = h('span', { class: 'segment-time' }, kind === 'wait' ? null : tone === 'due' ? 'now' : clockTime(fromMs));
  const isLast = all[at + 1]?.kind === 'next';
  const element = h('div', { class: `segment ${kind} ${tone}`, title: visible(text) }, time, bar, isLast && h('i', { class: 'now' }, 'now'));
  element.style.flexGrow = kind === 'next' ? '0' : String(weight(segment));
  return element;
}

/** @type {import('../table.js').Column<ReturnType<typeof withWaits>[number] & { now: number }>[]} */
export const COLUMNS = [
  { id: 'n', label: '#', isNumber: true, show: (cell, row) => setText(cell, row.number) },
  { id: 'time', label: 'Time', show: (cell, row) => replace(cell, timeOf(row.attempt.at_ms, row.now)) },
  { id: 'result', label: 'Result', show: (cell, row) => replace(cell, ...resultOf(row.attempt)) },
  { id: 'latency', label: 'Latency', isNumber: true, show: (cell, row) => setText(cell, latency(row.attempt.latency_ms)) },
  { id: 'waited', label: 'Waited before', isNumber: true, show: (cell, row) => setText(cell, row.waited < MIN_WAIT ? '0s' : duration(row.waited)) },
  { id: 'why', label: 'Why', show: (cell, row) => setText(cell, row.why || '–') },
];

/** @param {Attempt} attempt */
function resultOf(attempt) {
  const { status, reason, phase } = attempt;
  const more = status ? verdictState(reason).word : PHASES[phase] ?? phase;
  return [status ? 'HTTP ' : null, foreign(wordOf(attempt)), h('span', { class: 'muted' }, ' · ', foreign(more))];
}
