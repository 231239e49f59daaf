// The job page's requests, on a virtual clock: their times, the banner and the log lines.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { createPolling } from '../views/job_polling.js';
import { headingOf, stoppedText } from '../views/job_words.js';

const SETTINGS = {
  early_ms: 3000, middle_ms: 2500, late_ms: 2000, first_ms: 2000, base_ms: 2000, max_ms: 15_000,
  give_up_after_ms: 300_000, other_retries: 3,
};

/** @param {string} name */
const conformance = (name) => JSON.parse(readFileSync(new URL(`../../../../conformance/000_${name}.json`, import.meta.url), 'utf8'));

/**
 * @typedef {{ status: number | null, job?: string, progress?: number, wait?: number }} Scripted
 * @param {(number: number) => Scripted} script The response to each request, counted from 0
 */
function createPage(script) {
  const page = {
    now: 0,
    isHidden: false,
    /** @type {number[]} */
    requests: [],
    /** @type {import('../poll.js').PollStep[]} */
    steps: [],
    /** @type {string[]} */
    headings: [],
    /** @type {string[]} */
    logs: [],
    /** @type {string} */
    stopped: '',
    /** @type {{ at: number, run: () => void } | null} */
    timer: null,
    /** @param {number} until Runs what is due up to this time. */
    async run(until) {
      for (;;) {
        await settle();
        if (!page.timer || page.timer.at > until) break;
        const { at, run } = page.timer;
        page.timer = null;
        page.now = at;
        run();
      }
      page.now = until;
    },
  };
  const log = (/** @type {string} */ level) => (/** @type {string} */ text) => page.logs.push(`${level} ${text}`);
  /** @type {any} */
  let job = null;
  const polling = createPolling({
    settings: SETTINGS,
    async ask() {
      const { status, job: state, progress, wait } = script(page.requests.push(page.now) - 1);
      const isJob = status === 200;
      return { status, job: isJob ? /** @type {any} */ ({ status: state ?? 'running', progress: progress ?? 0 }) : null, retry_after_ms: wait ?? null, problem: isJob ? '' : `HTTP ${status}` };
    },
    onStep(step, response, isRecent) {
      job = response.job ?? job;
      page.steps.push(step);
      page.headings.push(headingOf(step, job));
      if (step.next_ms === null) page.stopped = stoppedText(step, response, isRecent, SETTINGS.give_up_after_ms);
    },
    isPaused: () => page.isHidden,
    now: () => page.now,
    setTimer: (run, ms) => (page.timer = { at: page.now + ms, run }),
    clearTimer: (timer) => timer === page.timer && (page.timer = null),
    log: /** @type {any} */ ({ warn: log('warn'), info: log('info'), error: log('error') }),
  });
  return { ...page, page, polling };
}

const settle = () => new Promise((resolve) => setTimeout(resolve));

test('conformance: request times and banner of a sequence', async () => {
  const [{ given, expect }] = conformance('rate_limit_ladder').sequences;
  const { page, polling } = createPage((number) => ({ status: given.responses[number].http, progress: given.responses[number].progress }));
  polling.start();
  await page.run(given.responses.at(-1).t_ms);
  assert.deepEqual(page.requests, expect.request_times_ms);
  assert.deepEqual(page.steps.map((step) => step.banner), expect.banner_after_each);
  assert.deepEqual(page.logs, [
    'warn [Polling] Rate limited. Backing off to 2000ms. Attempt 1',
    'warn [Polling] Rate limited. Backing off to 4000ms. Attempt 2',
    'warn [Polling] Rate limited. Backing off to 8000ms. Attempt 3',
    'info [Polling] Rate limit cleared. Resetting to normal interval.',
  ]);
});

test('conformance: gives up and asks no more, until a person does', async () => {
  const { expect } = conformance('retry_decision').cases.at(-1);
  const { page, polling } = createPage((number) => ({ status: number < 2 ? 200 : 429, progress: 40 }));
  polling.start();
  await page.run(1_000_000);
  assert.equal(page.requests.at(-1), expect.gave_up_at_ms);
  assert.equal(page.steps.at(-1)?.consecutive_429, expect.consecutive_429_at_give_up);
  assert.equal(page.logs.at(-1), 'error [Polling] Rate limited for too long. Stopping retries.');
  assert.equal(page.headings.at(-1), 'Status unknown');
  assert.equal(page.stopped, 'Status checks were refused for more than 5 minutes, so this page stopped asking. The scan may still be running.');
  const asked = page.requests.length;
  polling.start();
  await page.run(1_002_000);
  assert.deepEqual(page.requests.slice(asked), [1_000_000, 1_002_000]);
});

test('the heading follows the job', async () => {
  /** @type {[Scripted, string][]} */
  const cases = [
    [{ status: 200, job: 'queued' }, 'Scanning in Progress'],
    [{ status: 200, job: 'done', progress: 100 }, 'Scan Complete!'],
    [{ status: 200, job: 'error' }, 'Scan failed'],
    [{ status: 200, job: 'cancelled' }, 'Scan cancelled'],
    [{ status: 404 }, 'Scan not found'],
    [{ status: 429 }, 'Scanning in Progress'],
    [{ status: 503 }, 'Job'],
    [{ status: 429, wait: 301_000 }, 'Status unknown'],
  ];
  for (const [response, heading] of cases) {
    const { page, polling } = createPage(() => response);
    polling.start();
    await page.run(0);
    assert.equal(page.headings.at(-1), heading, JSON.stringify(response));
  }
  assert.equal(headingOf(null, null), 'Job');
});

test('says why it stopped asking', async () => {
  const long = createPage((number) => (number === 0 ? { status: 200 } : { status: 429, wait: 400_000 }));
  long.polling.start();
  await long.page.run(10_000);
  assert.match(long.page.stopped, /^The next status check is allowed in 6m 40s, which is too long to wait, /);
  const broken = createPage(() => ({ status: 503 }));
  broken.polling.start();
  await broken.page.run(60_000);
  assert.deepEqual(broken.page.requests, [0, 1000, 3000, 7000]);
  assert.match(broken.page.stopped, /^Status checks failed too often \(HTTP 503\), /);
});

test('a hidden page asks no more, and its time stands still', async () => {
  const { page, polling } = createPage((number) => ({ status: number === 1 ? 429 : 200, progress: 40 }));
  polling.start();
  await page.run(1000);
  page.isHidden = true;
  await page.run(1_000_000);
  assert.deepEqual(page.requests, [0]);
  page.isHidden = false;
  polling.resume();
  await page.run(1_001_000);
  assert.deepEqual(page.requests, [0, 1_000_000]);
  assert.equal(page.steps.at(-1)?.state, 'slowed');
  await page.run(1_002_000);
  assert.equal(page.steps.at(-1)?.state, 'polling');
});

test('returning before the next request is due does not hasten it', async () => {
  const { page, polling } = createPage(() => ({ status: 200 }));
  polling.start();
  await page.run(1000);
  page.isHidden = true;
  await page.run(1500);
  page.isHidden = false;
  polling.resume();
  await page.run(3000);
  assert.deepEqual(page.requests, [0, 3000]);
});

test('the response to a cancellation ends it', async () => {
  const { page, polling } = createPage(() => ({ status: 200 }));
  polling.start();
  await page.run(1000);
  polling.apply({ status: 200, job: /** @type {any} */ ({ status: 'cancelled', progress: 10 }), retry_after_ms: null, problem: '' });
  await page.run(60_000);
  assert.deepEqual(page.requests, [0]);
  assert.equal(page.headings.at(-1), 'Scan cancelled');
});
