// The page of a job against a scripted server: when it asks, the banner, the lines in the browser's
// console, and every end.

import assert from 'node:assert/strict';

import { HOSTILE, looksRight, withBrowser } from './page.mjs';
import { startScripted, startServer } from './server.mjs';

/** A tenth of the usual times, so that the test is short. */
const POLL = `
  [poll]
  early = "300ms"
  middle = "250ms"
  late = "200ms"
  first = "200ms"
  base = "200ms"
  max = "1500ms"
  give_up_after = "3s"
  other_retries = 3
  `;

const counts = { total: 530, done: 212, failed: 3, denied: 0, queued: 300, in_flight: 10, retrying: 5, sent: 220, bytes: 1 };
const job = (more) => ({ id: 'job_1', slug: 'abc', summary: HOSTILE, status: 'running', stage: 'extraction', progress: 12, counts, created_at_ms: Date.now(), started_at_ms: Date.now(), finished_at_ms: null, ...more });
const stage = (stage, progress) => [200, job({ stage, progress })];
const limited = [429, { type: 'x', title: 'Too many status requests', status: 429, detail: 'Too many', reason: 'status_limit' }];

await withBrowser(async ({ browser, folder, ends }) => {
  const server = ends(await startServer(folder, POLL));
  /** @type {[number, object][]} */
  let script = [];
  let times = [];
  const scripted = ends(await startScripted(server, (path, response) => {
    if (!path.startsWith('/api/v1/jobs/job_1')) return false;
    times.push(Date.now());
    const [status, body] = script.length > 1 ? script.shift() : script[0];
    response.writeHead(status, { 'content-type': 'application/json' });
    response.end(JSON.stringify(body));
    return true;
  }));
  const open = async (...responses) => {
    script = responses;
    times = [];
    await browser.go(`${scripted.url}/jobs/job_1`);
  };
  const logged = async () => (await browser.log()).filter((line) => line.includes('[Polling]'));
  const banner = () => browser.run('return document.querySelector("main [role=status].banner, main .banner")?.innerText ?? ""');
  const gaps = () => times.slice(1).map((time, at) => time - times[at]);

  // Slowed down by three refusals, and back again.
  await browser.log();
  await open(stage('discovery', 5), stage('extraction', 12), limited, limited, limited, stage('processing', 40), stage('output', 80), [200, job({ status: 'done', stage: 'output', progress: 100 })]);
  await browser.see('Scanning in Progress');
  await browser.see('Finding pages');
  await browser.see('Automatic Rate Limit Protection');
  await browser.see("We're automatically slowing down status checks to respect server limits. Your scan is still running normally. We'll automatically speed up again once the rate limit clears.");
  await browser.miss('Automatic Rate Limit Protection');
  await browser.see('Scan Complete!');
  // 0.3 s while early, 0.2, 0.4 and 0.8 s after refusals, then 0.25 s and 0.2 s. A timer may fire a millisecond early by the server's clock.
  const expected = [200, 300, 200, 400, 800, 250, 200];
  const seen = gaps();
  assert.equal(seen.length, expected.length, seen.join());
  seen.forEach((gap, at) => assert.ok(gap >= Math.min(expected[at], 300) - 2 && (at < 3 || at > 4 || gap >= expected[at] - 2), `gap ${at} of ${seen}: at least ${expected[at]}`));
  const lines = await logged();
  assert.deepEqual(lines.map((line) => [line.split(' ')[0], /\[Polling\][^"]*/.exec(line)[0]]), [
    ['WARNING', '[Polling] Rate limited. Backing off to 200ms. Attempt 1'],
    ['WARNING', '[Polling] Rate limited. Backing off to 400ms. Attempt 2'],
    ['WARNING', '[Polling] Rate limited. Backing off to 800ms. Attempt 3'],
    ['INFO', '[Polling] Rate limit cleared. Resetting to normal interval.'],
  ]);
  assert.equal(await browser.run('return document.querySelector("a.button.main, main a.button").getAttribute("href")'), '/r/abc');
  await looksRight(browser, 'job-done');

  // Refused for too long: it stops asking, and a person can go on.
  await open(stage('extraction', 40), limited);
  await browser.see('Automatic Rate Limit Protection');
  await looksRight(browser, 'job-slowed');
  assert.equal(await browser.run('return document.querySelector("[role=progressbar]").getAttribute("aria-valuenow")'), '40');
  await browser.see('Status unknown');
  assert.ok((await logged()).some((line) => line.startsWith('SEVERE') && line.includes('[Polling] Rate limited for too long. Stopping retries.')));
  script = [stage('extraction', 60)];
  await browser.click('button', 'Check again');
  await browser.see('60 %');

  // Progress does not fall, and the page says each other end.
  await open(stage('extraction', 50), stage('extraction', 30), [200, job({ status: 'error', error: HOSTILE, progress: 50 })]);
  await browser.see('Scan failed');
  await browser.see('<script>');
  await looksRight(browser, 'job-failed');
  await open([200, job({ status: 'cancelled', progress: 12 })]);
  await browser.see('Scan cancelled');
  await open([404, { title: 'Not found', status: 404, detail: 'there is no job', reason: 'not_found' }]);
  await browser.see('Scan not found');
  await looksRight(browser, 'job-missing');
  assert.equal(await banner(), '');
  assert.equal(await browser.run('return window.ran ?? null'), null);
});
