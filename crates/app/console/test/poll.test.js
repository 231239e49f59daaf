// The same cases as crates/policy/src/poll/tests.rs and crates/cli/tests/conformance/poll.rs.

import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import assert from 'node:assert/strict';

import { createPoll } from '../poll.js';

const SETTINGS = {
  early_ms: 3000, middle_ms: 2500, late_ms: 2000, first_ms: 2000, base_ms: 2000, max_ms: 15_000,
  give_up_after_ms: 300_000, other_retries: 3,
};

/** @param {string} path below the project's folder */
const read = (path) => readFileSync(new URL(`../../../../${path}`, import.meta.url), 'utf8');

/** @param {string} name */
const conformance = (name) => JSON.parse(read(`conformance/000_${name}.json`));

/** @typedef {Partial<import('../poll.js').PollEvent>} Event */

/**
 * The step after each response.
 * @param {Event[]} events
 * @param {Partial<typeof SETTINGS>} changed
 */
function steps(events, changed = {}) {
  const poll = createPoll({ ...SETTINGS, ...changed }, 0);
  return events.map((event) => poll.next({ at_ms: 0, status: 200, ...event }));
}

/** A poll whose next response always arrives exactly when it is due. */
function createPoller(changed = {}) {
  const poll = createPoll({ ...SETTINGS, ...changed }, 0);
  const poller = {
    now: 0,
    respond(/** @type {Event} */ event) {
      const step = poll.next({ at_ms: poller.now, status: 200, ...event });
      poller.now += step.next_ms ?? 0;
      return step;
    },
  };
  return poller;
}

const REFUSED = { status: 429 };
const BROKEN = { status: 502 };

test('conformance: intervals', () => {
  for (const { id, given, expect } of conformance('polling_intervals').cases) {
    const [step] = steps([{
      status: given.error?.status ?? 200, job: given.data?.status, progress: given.data?.progress,
    }]);
    if (expect.stop) {
      const state = expect.outcome === 'job_failed' ? 'failed' : expect.outcome;
      assert.deepEqual([step.state, step.next_ms], [state, null], id);
    } else {
      assert.deepEqual([step.state, step.next_ms], ['polling', expect.interval_ms], id);
    }
  }
});

test('conformance: ladder', () => {
  for (const { id, given, expect } of conformance('rate_limit_ladder').cases) {
    const all = steps(Array(given.consecutive_429).fill(REFUSED));
    const last = all[all.length - 1];
    assert.equal(last.next_ms, expect.wait_ms, id);
    assert.equal(last.consecutive_429, given.consecutive_429, id);
    if (expect.sum_of_waits_ms === undefined) continue;
    const sum = all.reduce((total, step) => total + (step.next_ms ?? 0), 0);
    assert.equal(sum, expect.sum_of_waits_ms, id);
  }
});

test('conformance: sequences', () => {
  const [sequence, resumes] = conformance('rate_limit_ladder').sequences;
  const responses = /** @type {{ t_ms: number, http: number, progress?: number }[]} */ (
    sequence.given.responses);
  const all = steps(responses.map(({ t_ms, http, progress }) => (
    { at_ms: t_ms, status: http, progress: progress ?? null })));
  all.forEach((step, index) => {
    assert.equal(step.consecutive_429, sequence.expect.consecutive_after_each[index]);
    assert.equal(step.banner, sequence.expect.banner_after_each[index]);
    const [at, next] = sequence.expect.request_times_ms.slice(index, index + 2);
    if (next !== undefined) assert.equal(step.next_ms, next - at);
  });
  const progress = resumes.given.progress_at_recovery;
  const [, resumed] = steps([REFUSED, { at_ms: 2000, progress }]);
  assert.equal(resumed.next_ms, resumes.expect.interval_ms);
});

test('conformance: when to try again', () => {
  /** @type {Record<string, (given: any, expect: any) => void>} */
  const checks = {
    'exactly-300000-still-retries': afterSilence,
    '300001-gives-up': afterSilence,
    'other-error-failures-0': otherError,
    'other-error-failures-3-stop': otherError,
    'other-error-delay-cap': (given, expect) => {
      const errors = Array(given.attempt_index + 1).fill(BROKEN);
      assert.equal(steps(errors, { other_retries: 9 }).at(-1)?.next_ms, expect.delay_ms);
    },
    'http-500-is-transient-not-404': otherError,
    'give-up-is-terminal': () => {
      const all = steps([REFUSED, { at_ms: 301_000, status: 429 }, { at_ms: 302_000, progress: 50 },
        { at_ms: 303_000, status: 429 }]);
      for (const { state, next_ms } of all.slice(1)) {
        assert.deepEqual([state, next_ms], ['gave_up', null]);
      }
    },
    'only-real-responses-refresh-last-success': (_given, expect) => {
      const poller = createPoller();
      poller.respond({ progress: 40 });
      poller.respond({ progress: 40 });
      let step = poller.respond(REFUSED);
      while (step.next_ms !== null) step = poller.respond(REFUSED);
      assert.equal(step.state, 'gave_up');
      assert.equal(poller.now, expect.gave_up_at_ms);
      assert.equal(step.consecutive_429, expect.consecutive_429_at_give_up);
    },
  };
  for (const { id, given, expect } of conformance('retry_decision').cases) {
    assert(checks[id], `${id} has a check`);
    checks[id](given, expect);
  }

  /** @type {(given: any, expect: any) => void} */
  function afterSilence(given, expect) {
    const [, step] = steps([{ progress: 1 },
      { at_ms: given.ms_since_last_success, status: given.status }]);
    assert.equal(step.next_ms !== null, expect.retry);
    assert.equal(step.state, expect.retry ? 'slowed' : 'gave_up');
  }

  /** @type {(given: any, expect: any) => void} */
  function otherError(given, expect) {
    const last = steps(Array(given.failure_count + 1).fill({ status: given.status })).at(-1);
    assert.equal(last?.next_ms !== null, expect.retry);
    if (expect.retry) assert.equal(last?.next_ms, expect.delay_ms);
    else assert.equal(last?.state, 'failed');
  }
});

test('the example of the documentation has the documented steps', () => {
  const events = read('examples/polling.jsonl').trim().split('\n').map((line) => {
    const { at, status, job, progress, headers } = JSON.parse(line);
    const seconds = headers?.['retry-after'];
    return { at_ms: at * 1000, status, job, progress, retry_after_ms: seconds ? seconds * 1000 : null };
  });
  const documented = read('docs/policies/poll.md').match(/^\{"at".*\}$/gm) ?? [];
  const printed = steps(events).map(({ state, next_ms, consecutive_429, banner }, index) =>
    JSON.stringify({ at: events[index].at_ms / 1000, state, next_ms, consecutive_429, banner }));
  assert(documented.length > 5);
  assert.deepEqual(printed, documented);
});

test('interval follows the stage of the job', () => {
  for (const [progress, ms] of [[0, 3000], [29.999, 3000], [30, 2500], [69.999, 2500], [70, 2000],
    [100, 2000], [140, 2000], [-5, 3000], [NaN, 3000]]) {
    assert.equal(steps([{ progress }])[0].next_ms, ms, `${progress}`);
  }
  const [nothing, noProgress, unknown] = steps([{}, { job: 'running' }, {}]);
  assert.deepEqual([nothing.next_ms, noProgress.next_ms, unknown.next_ms], [2000, 3000, 3000]);
});

test('waits for the longer of step and header', () => {
  const poller = createPoller();
  const waits = [1, 7, 60, 0].map((s) =>
    poller.respond({ status: 429, retry_after_ms: s * 1000 }).next_ms);
  assert.deepEqual(waits, [2000, 7000, 60_000, 15_000]);
  const other = createPoller();
  assert.equal(other.respond({ status: 503, retry_after_ms: 20_000 }).next_ms, 20_000);
  assert.equal(other.respond({ status: 503, retry_after_ms: 1 }).next_ms, 2000);
});

test('gives up at once when a named wait ends too late', () => {
  const named = (/** @type {number} */ status, /** @type {number} */ seconds) =>
    steps([{ status, retry_after_ms: seconds * 1000 }], { other_retries: 0 })[0].state;
  assert.deepEqual([named(429, 300), named(429, 301), named(500, 301)],
    ['slowed', 'gave_up', 'gave_up']);
});

test('success or 429 resets other errors, which do not change the 429s', () => {
  for (const between of [{ progress: 1 }, REFUSED]) {
    const all = steps([BROKEN, BROKEN, BROKEN, between, BROKEN]);
    assert.equal(all.at(-1)?.next_ms, 1000);
  }
  const all = steps([REFUSED, REFUSED, BROKEN, REFUSED]);
  assert.deepEqual(all.map((step) => step.consecutive_429), [1, 2, 2, 3]);
  assert.deepEqual([all[2].state, all[2].banner, all[3].next_ms], ['slowed', true, 8000]);
});

test('giving up takes precedence over 404, and the end of the job over everything', () => {
  assert.equal(steps([{ at_ms: 301_000, status: 404 }])[0].state, 'gave_up');
  assert.equal(steps([{ status: 404 }, { progress: 1 }])[1].state, 'not_found');
  for (const status of [200, 429, 404, 502, null]) {
    for (const [job, state] of [['done', 'done'], ['error', 'failed'], ['cancelled', 'failed']]) {
      const [step] = steps([{ at_ms: 1_000_000, status, job }], { other_retries: 0 });
      assert.deepEqual([step.state, step.next_ms], [state, null]);
    }
  }
});

test('logs every change once', () => {
  const running = { job: 'running' };
  const all = steps([running, REFUSED, REFUSED, BROKEN, running, running, REFUSED, REFUSED]
    .map((event, index) => ({ ...event, at_ms: [0, 3, 5, 9, 10, 13, 400, 402][index] * 1000 })));
  assert.deepEqual(all.flatMap((step) => step.log ?? []), [
    { level: 'warn', text: '[Polling] Rate limited. Backing off to 2000ms. Attempt 1' },
    { level: 'warn', text: '[Polling] Rate limited. Backing off to 4000ms. Attempt 2' },
    { level: 'info', text: '[Polling] Rate limit cleared. Resetting to normal interval.' },
    { level: 'error', text: '[Polling] Rate limited for too long. Stopping retries.' },
  ]);
});
