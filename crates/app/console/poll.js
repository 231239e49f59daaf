// When to ask for a job's status next, and when to stop: the rules of `policy::poll`, which
// docs/policies/poll.md explains, with the server's settings.

/**
 * @typedef {object} PollSettings
 * @property {number} early_ms
 * @property {number} middle_ms
 * @property {number} late_ms
 * @property {number} first_ms
 * @property {number} base_ms
 * @property {number} max_ms
 * @property {number} give_up_after_ms
 * @property {number} other_retries
 */

/**
 * The response to a status request.
 * @typedef {object} PollEvent
 * @property {number} at_ms on a clock that is never set, such as `performance.now()`
 * @property {number | null} status null without a response
 * @property {string | null} [job] the job's status
 * @property {number | null} [progress] in percent
 * @property {number | null} [retry_after_ms] the wait that the server names
 */

/**
 * @typedef {object} PollStep
 * @property {'polling' | 'slowed' | 'done' | 'failed' | 'gave_up' | 'not_found'} state
 * @property {number | null} next_ms wait before the next request; null when polling has ended
 * @property {number} consecutive_429
 * @property {boolean} banner whether to show the slowing-down notice
 * @property {{ level: 'warn' | 'info' | 'error', text: string }} [log]
 */

const MIDDLE_PERCENT = 30;
const LATE_PERCENT = 70;
const RETRY_BASE_MS = 1000;
const RETRY_MAX_MS = 5000;

/**
 * Polls one job; the first request is sent at `startedMs`.
 * @param {PollSettings} settings
 * @param {number} startedMs
 */
export function createPoll(settings, startedMs) {
  let lastSuccess = startedMs;
  /** @type {number | null} */
  let progress = null;
  let consecutive429 = 0;
  let otherErrors = 0;
  /** @type {PollStep['state'] | null} */
  let end = null;

  return { next };

  /**
   * Applies a response and says what to do next.
   * @param {PollEvent} event
   * @returns {PollStep}
   */
  function next(event) {
    if (end !== null) return step(end, null);
    const before = consecutive429;
    const [state, wait] = after(event);
    if (wait === null) end = state;
    const log = logOf(state, wait, before);
    return log ? { ...step(state, wait), log } : step(state, wait);
  }

  /**
   * @param {PollEvent} event
   * @returns {[PollStep['state'], number | null]}
   */
  function after(event) {
    const kind = kindOf(event.status);
    if (kind === 'success') {
      lastSuccess = Math.max(lastSuccess, event.at_ms);
      consecutive429 = 0;
      otherErrors = 0;
    }
    if (event.job === 'done') return ['done', null];
    if (event.job === 'error' || event.job === 'cancelled') return ['failed', null];
    if (event.job != null || event.progress != null) progress = event.progress ?? 0;
    if (kind === 'success') return ['polling', stageInterval()];
    if (kind === 'throttled') {
      consecutive429 += 1;
      otherErrors = 0;
    }
    if (kind === 'failed') otherErrors += 1;
    return afterError(kind, event.at_ms, kind === 'not_found' ? 0 : event.retry_after_ms ?? 0);
  }

  /**
   * @param {ReturnType<typeof kindOf>} kind
   * @param {number} atMs
   * @param {number} named
   * @returns {[PollStep['state'], number | null]}
   */
  function afterError(kind, atMs, named) {
    if (atMs + named > lastSuccess + settings.give_up_after_ms) return ['gave_up', null];
    if (kind === 'not_found') return ['not_found', null];
    if (otherErrors > settings.other_retries) return ['failed', null];
    const own = kind === 'throttled'
      ? doubled(settings.base_ms, consecutive429 - 1, settings.max_ms)
      : doubled(RETRY_BASE_MS, otherErrors - 1, RETRY_MAX_MS);
    return [consecutive429 > 0 ? 'slowed' : 'polling', Math.max(own, named)];
  }

  function stageInterval() {
    if (progress === null) return settings.first_ms;
    if (progress >= LATE_PERCENT) return settings.late_ms;
    return progress >= MIDDLE_PERCENT ? settings.middle_ms : settings.early_ms;
  }

  /**
   * @param {PollStep['state']} state
   * @param {number | null} wait
   * @returns {PollStep}
   */
  function step(state, wait) {
    const banner = consecutive429 > 0;
    return { state, next_ms: wait, consecutive_429: consecutive429, banner };
  }

  /**
   * @param {PollStep['state']} state
   * @param {number | null} wait
   * @param {number} before
   * @returns {PollStep['log']}
   */
  function logOf(state, wait, before) {
    if (state === 'gave_up') {
      return { level: 'error', text: '[Polling] Rate limited for too long. Stopping retries.' };
    }
    if (wait !== null && consecutive429 > before) {
      const backoff = `Backing off to ${Math.ceil(wait)}ms. Attempt ${consecutive429}`;
      return { level: 'warn', text: `[Polling] Rate limited. ${backoff}` };
    }
    if (before > 0 && consecutive429 === 0) {
      const text = '[Polling] Rate limit cleared. Resetting to normal interval.';
      return { level: 'info', text };
    }
    return undefined;
  }
}

/** @param {number | null} status */
function kindOf(status) {
  if (status === 404) return 'not_found';
  if (status === 429) return 'throttled';
  return status !== null && status >= 200 && status < 400 ? 'success' : 'failed';
}

/**
 * @param {number} base
 * @param {number} times
 * @param {number} max
 */
function doubled(base, times, max) {
  return Math.min(base * 2 ** times, max);
}
