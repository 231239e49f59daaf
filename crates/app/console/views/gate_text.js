// What the page of a gate says: why requests wait, until when, and what an action would do.

import { count, instant, rate } from '../format.js';
import { visible } from '../text.js';
import { reasonText, waitingText } from './waiting.js';

/** @typedef {import('../types.js').GateDetail} GateDetail */

/**
 * State, until and source: the sentence under the title.
 * @param {GateDetail} gate
 * @param {number} now
 */
export function stateSentence(gate, now) {
  const { breaker, hold } = gate;
  // `isolated by a person` continues the sentence.
  const reason = visible(breaker.reason ?? '').replace(/^isolated /, '');
  const because = reason && `${reason === breaker.reason ? ':' : ''} ${reason}`;
  const since = breaker.since_ms ? ` since ${instant(breaker.since_ms, now)}` : '';
  if (breaker.state === 'isolated') return `Isolated${since}${because}. All requests are refused until it is released or reset.`;
  if (breaker.state === 'open') {
    const until = breaker.until_ms ? ` until ${instant(breaker.until_ms, now)}` : '';
    return `Open${until}${because || `: ${failures(gate.consecutive_failures)}`}. Then a few requests are sent to probe it.`;
  }
  if (hold && hold.until_ms > now) return `Held until ${instant(hold.until_ms, now)}: ${visible(hold.reason)}.`;
  if (breaker.state === 'half_open') return `Half-open${since}${because}. A few requests are sent to probe it, the others wait.`;
  const why = visible(gate.why);
  return `${why.charAt(0).toUpperCase()}${why.slice(1)}.`;
}

/** @param {number} number */
const failures = (number) => (number === 1 ? '1 failure' : `${count(number)} failures in a row`);

/**
 * How many wait, for what, and when the first leaves.
 * @param {GateDetail} gate
 * @param {number} now
 */
export function waitingSentence(gate, now) {
  const { waiting, first_leaves_ms: first } = gate;
  if (waiting === 0) return 'No request waits.';
  const reasons = reasonsOf(gate);
  const wait = `${count(waiting)} ${waiting === 1 ? 'request waits' : 'requests wait'}${reasons ? ` (${reasons})` : ''}`;
  if (gate.breaker.state === 'isolated') return `${wait}.`;
  if (!first || first <= now) return `${wait}, leaving at ${rate(gate.rate_per_second)}.`;
  return `${wait}; the first leaves at ${instant(first, now)}, then ${rate(gate.rate_per_second)}.`;
}

/**
 * What they wait for; with numbers only where there are several, and they belong to this count.
 * @param {GateDetail} gate
 */
function reasonsOf({ waiting, waiting_by_reason: byReason }) {
  const names = Object.keys(byReason).filter((reason) => byReason[reason] > 0);
  const sum = names.reduce((total, reason) => total + byReason[reason], 0);
  return names.length > 1 && sum === waiting ? waitingText(byReason) : names.map(reasonText).join(', ');
}

/**
 * Does a release change anything?
 * @param {GateDetail} gate
 * @param {number} now
 */
export const canRelease = ({ breaker, hold }, now) => breaker.state !== 'closed' || (hold !== null && hold.until_ms > now);

/**
 * @param {GateDetail} gate
 * @param {number} now
 */
export function releaseEffect(gate, now) {
  const { breaker, hold, waiting } = gate;
  const parts = [];
  if (breaker.state === 'isolated') parts.push('It refuses all requests now, and sends them again then.');
  else if (breaker.state !== 'closed') parts.push(`The breaker is ${breaker.state === 'open' ? 'open' : 'half-open'} after failures. What is sent sooner may fail again.`);
  if (hold && hold.until_ms > now) {
    const until = instant(hold.until_ms, now);
    /** @type {Record<string, string>} */
    const delays = {
      assumed: `The server named no delay; one until ${until} is assumed.`,
      counted: `The window has accepted as many requests as those before; the next one begins ${until}.`,
    };
    const delay = delays[hold.source] ?? `The server asked for a delay until ${until} (${visible(hold.source, 60)}).`;
    parts.push(`${delay} Sending sooner may be refused again or lead to a ban.`);
  }
  const leaving = waiting === 1 ? '1 waiting request leaves' : `${count(waiting)} waiting requests leave`;
  parts.push(`${waiting > 0 ? leaving : 'Requests leave'} at ${rate(gate.rate_per_second)}.`);
  return parts.join(' ');
}

/** @param {GateDetail} gate */
export function isolateEffect({ in_flight: sent }) {
  const finish = sent === 0 ? '' : ` ${count(sent)} in flight ${sent === 1 ? 'finishes' : 'finish'}.`;
  return `All requests to it are refused until it is released or reset.${finish}`;
}

/** @param {GateDetail} gate */
export const resetEffect = (gate) =>
  `The learned rate of ${rate(gate.rate_per_second)}, hold, breaker and counts are forgotten. It starts again at ${rate(gate.initial_rate)}.`;

/** Samples further apart than this have a gap between them; closer ones say nothing about a second. */
const [MIN_STEP_MS, MAX_STEP_MS] = [500, 2500];

/**
 * Answers per second between two samples of a gate; null if they are not known, because one was
 * missed or the counts began anew.
 * @param {{ at_ms: number, counts: import('../types.js').Gate['counts'] } | null} before
 * @param {{ at_ms: number, counts: import('../types.js').Gate['counts'] }} after
 */
export function answersBetween(before, after) {
  const between = before ? after.at_ms - before.at_ms : 0;
  if (!before || between < MIN_STEP_MS || between > MAX_STEP_MS) return null;
  const [accepted, refused, failed] = /** @type {const} */ (['success', 'throttled', 'failed']).map(
    (name) => ((after.counts[name] - before.counts[name]) * 1000) / between);
  return Math.min(accepted, refused, failed) < 0 ? null : { accepted, refused, failed };
}
