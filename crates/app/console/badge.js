// States as icon, word and colour. Normal ones are plain; a fill is for what may need a person.

import { h, render } from './dom.js';
import { duration } from './format.js';
import { icon } from './icons.js';

/**
 * @typedef {import('./types.js').Console} Console
 * @typedef {object} State
 * @property {string} word
 * @property {import('./icons.js').IconName} picture
 * @property {string} tone A class of the style sheet: `plain`, `ok`, `info`, `hold`, `bad`, `probe`, `off`, `pause-fill`, `bad-fill`, `off-fill`.
 * @property {number | null} [until] With a countdown after the word.
 */

/**
 * Shows a state in an element, and changes it only when the state does. Another word tints the
 * element for a moment.
 * @param {Console} app
 * @param {HTMLElement} element
 * @param {State[]} states
 * @param {() => void} [onEnd] A countdown has ended.
 */
export function showStates(app, element, states, onEnd) {
  render(element, states, () => states.map((state) => badge(app, state, onEnd)));
  const words = states.map((state) => state.word).join();
  const shown = element.dataset.words;
  element.dataset.words = words;
  if (shown === undefined || shown === words || matchMedia('(prefers-reduced-motion: reduce)').matches) return;
  const tint = getComputedStyle(element).getPropertyValue('--selected');
  element.animate({ backgroundColor: [tint, 'transparent'] }, 600);
}

/**
 * @param {Console} app
 * @param {State} state
 * @param {() => void} [onEnd]
 */
export function badge(app, { word, picture, tone, until }, onEnd) {
  const text = h('span', null, word);
  const element = h('span', { class: `badge ${tone}` }, icon(picture), text);
  if (until) {
    const left = h('span', { class: 'left', role: 'timer' });
    element.append(left);
    app.countdown(left, until, duration, () => {
      left.remove();
      onEnd?.();
    });
  }
  return element;
}

/**
 * @param {import('./types.js').Gate} gate
 * @param {number} now
 * @returns {State}
 */
export function gateState(gate, now) {
  const { state, until_ms: until } = gate.breaker;
  if (state === 'isolated') return { word: 'Isolated', picture: 'lock', tone: 'off-fill' };
  if (state === 'open') return { word: 'Open', picture: 'open', tone: 'bad', until };
  if (gate.hold && gate.hold.until_ms > now) {
    return { word: 'Held', picture: 'hourglass', tone: 'hold', until: gate.hold.until_ms };
  }
  if (state === 'half_open') return { word: 'Half-open', picture: 'half', tone: 'probe' };
  return { word: 'Closed', picture: 'check', tone: 'plain' };
}

/**
 * The badges of an endpoint: while it is paused, the pause and the number of errors.
 * @param {import('./types.js').Endpoint} endpoint
 * @param {number} now
 * @returns {State[]}
 */
export function endpointStates(endpoint, now) {
  if (!endpoint.enabled) return [{ word: 'Disabled', picture: 'crossed', tone: 'off' }];
  const until = endpoint.paused_until_ms;
  if (until !== null && until > now) return pausedStates(until, endpoint.consecutive_errors);
  // A pause that is over may not be cleared yet in what the server said.
  if (endpoint.recovering || until !== null) return [{ word: 'Recovering', picture: 'turning', tone: 'info' }];
  return [{ word: 'Active', picture: 'check', tone: 'ok' }];
}

/**
 * @param {number} until
 * @param {number} errors
 * @returns {State[]}
 */
export function pausedStates(until, errors) {
  const word = errors === 1 ? '1 error' : `${errors} errors`;
  return [
    { word: 'Paused', picture: 'clock', tone: 'pause-fill', until },
    { word, picture: 'warning', tone: 'bad-fill' },
  ];
}

/** @type {Record<import('./types.js').OperationState, State>} */
export const OPERATIONS = {
  available: { word: 'Available', picture: 'dot', tone: 'plain' },
  running: { word: 'Running', picture: 'turning', tone: 'info' },
  retryable: { word: 'Retryable', picture: 'clock', tone: 'hold' },
  conflict: { word: 'Conflict', picture: 'arrows', tone: 'probe' },
  failed: { word: 'Failed', picture: 'cross', tone: 'bad' },
  completed: { word: 'Completed', picture: 'check', tone: 'plain' },
  cancelled: { word: 'Cancelled', picture: 'crossed', tone: 'off' },
};

/**
 * @param {import('./types.js').Operation} operation
 * @param {number} now
 * @returns {State}
 */
export function operationState({ state, reason, next_at_ms: next }, now) {
  const known = OPERATIONS[state];
  if (state === 'failed' && reason) return { ...known, word: `Failed: ${reason}` };
  if (state === 'retryable' && next && next > now) return { ...known, word: 'Retryable in', until: next };
  return known;
}

/** @type {Record<string, State>} */
const JOBS = {
  queued: { word: 'Queued', picture: 'dot', tone: 'plain' },
  running: { word: 'Running', picture: 'turning', tone: 'info' },
  done: { word: 'Done', picture: 'check', tone: 'plain' },
  error: { word: 'Failed', picture: 'cross', tone: 'bad' },
  cancelled: { word: 'Cancelled', picture: 'crossed', tone: 'off' },
};

/** @param {string} status */
export const jobState = (status) => JOBS[status] ?? { word: status, picture: 'dot', tone: 'plain' };

/** @type {Record<string, State>} */
const VERDICTS = {
  success: { word: 'Success', picture: 'check', tone: 'plain' },
  throttled: { word: 'Throttled', picture: 'hourglass', tone: 'hold' },
  overloaded: { word: 'Overloaded', picture: 'warning', tone: 'bad' },
  unreachable: { word: 'Unreachable', picture: 'broken', tone: 'bad' },
  quota_exhausted: { word: 'Quota exhausted', picture: 'gauge', tone: 'bad-fill' },
  unauthorized: { word: 'Unauthorized', picture: 'key', tone: 'probe' },
  conflict: { word: 'Conflict', picture: 'arrows', tone: 'probe' },
  rejected: { word: 'Rejected', picture: 'cross', tone: 'off' },
};

/** @param {string} verdict */
export const verdictState = (verdict) => VERDICTS[verdict] ?? { word: verdict, picture: 'dot', tone: 'plain' };
