// Asks for a job's status when poll.js says so, and not while the page is hidden or frozen.

import { createPoll } from '../poll.js';

/**
 * @typedef {import('../poll.js').PollStep} PollStep
 * @typedef {import('./job_words.js').JobResponse} JobResponse
 *
 * @typedef {object} PollingOptions
 * @property {import('../poll.js').PollSettings} settings
 * @property {(signal: AbortSignal) => Promise<JobResponse>} ask Fails only when it was aborted.
 * @property {() => void} [onAsk]
 * @property {(step: PollStep, response: JobResponse, isRecent: boolean) => void} onStep
 * @property {() => boolean} isPaused
 * @property {() => number} [now] On a clock that is never set.
 * @property {(run: () => void, ms: number) => any} [setTimer]
 * @property {(timer: any) => void} [clearTimer]
 * @property {Pick<Console, 'warn' | 'info' | 'error'>} [log]
 */

/** @param {PollingOptions} options */
export function createPolling(options) {
  const { settings, ask, onAsk, onStep, isPaused } = options;
  const { now = () => performance.now(), setTimer = setTimeout, clearTimer = clearTimeout, log = console } = options;
  /** How long requests that were due have waited for the page to be shown. */
  let pausedMs = 0;
  /** @type {number | null} Since when a request is due that waits for the page to be shown. */
  let dueSince = null;
  /** @type {any} */
  let timer;
  /** @type {AbortController | null} */
  let asking = null;
  let poll = createPoll(settings, time());
  let lastSuccess = time();

  /** Time that stands still while a request waits for the page to be shown. */
  function time() {
    return now() - pausedMs;
  }

  async function request() {
    clearTimer(timer);
    dueSince = null;
    const controller = (asking = new AbortController());
    onAsk?.();
    let response;
    try {
      response = await ask(controller.signal);
    } catch (error) {
      if (controller.signal.aborted) return;
      throw error;
    }
    if (controller.signal.aborted) return;
    asking = null;
    take(response);
  }

  /** @param {JobResponse} response */
  function take(response) {
    clearTimer(timer);
    const { status, job, retry_after_ms: wait } = response;
    const step = poll.next({ at_ms: time(), status, job: job?.status ?? null, progress: job?.progress ?? null, retry_after_ms: wait });
    const isRecent = time() - lastSuccess <= settings.give_up_after_ms;
    if (status !== null && status < 400) lastSuccess = time();
    if (step.log) log[step.log.level](step.log.text);
    if (step.next_ms !== null) timer = setTimer(onDue, step.next_ms);
    onStep(step, response, isRecent);
  }

  function onDue() {
    if (isPaused()) dueSince = now();
    else request();
  }

  return {
    /** Asks now, and from then on; also after it has ended. */
    start() {
      asking?.abort();
      poll = createPoll(settings, time());
      lastSuccess = time();
      request();
    },
    /** The page is shown again. */
    resume() {
      if (dueSince === null || isPaused()) return;
      pausedMs += now() - dueSince;
      request();
    },
    /**
     * Takes what another call said about the job, such as the response to its cancellation.
     * @param {JobResponse} response
     */
    apply(response) {
      asking?.abort();
      asking = null;
      dueSince = null;
      take(response);
    },
    stop() {
      clearTimer(timer);
      dueSince = null;
      asking?.abort();
    },
  };
}
