// Jobs: the form, its problems, the list, cancelling, and the report.

import assert from 'node:assert/strict';

import { isQuiet, looksRight, signIn, withBrowser } from './page.mjs';
import { startServer, startUpstream } from './server.mjs';

await withBrowser(async ({ browser, folder, ends }) => {
  let delay = 0;
  const site = ends(await startUpstream((request, response) => {
    response.setHeader('content-type', 'text/html');
    const links = Array.from({ length: 20 }, (_, n) => `<a href="/p${n}">p</a>`).join('');
    setTimeout(() => response.end(request.url === '/robots.txt' ? '' : `<title>Page</title>${links}`), delay);
  }));
  const server = ends(await startServer(folder, `
    [network]
    allow = ["127.0.0.0/8"]
    [gate]
    initial_rate = 1000
    `));
  await signIn(browser, server, '/jobs');
  await browser.see('No jobs yet. Start one above.');

  // A URL that is none is refused at its line, and everything that was typed stays.
  await browser.type('textarea', `${site.url}/\nnot a url`);
  await browser.click('button', 'Start job');
  await browser.see(/not a url/);
  await browser.waitFor('return document.querySelector("textarea[aria-invalid], .field-problem, .problem") !== null', 'a problem');
  await looksRight(browser, 'jobs-problem');
  await browser.type('textarea', `${site.url}/`);
  if (!(await browser.run('return document.querySelector("[name=crawl]").checked'))) await browser.click('[name=crawl]');
  await browser.click('button', 'Start job');
  await browser.see('Scan Complete!');
  assert.match(await browser.url(), /\/jobs\/job_/);
  await browser.click('a', 'View Report');
  await browser.waitFor('return document.title.startsWith("Report: ")', 'the report');
  assert.match(await browser.url(), /\/r\//);

  // One that a person cancels.
  delay = 2000;
  await browser.go(`${server.origin}/jobs`);
  await browser.see('Done');
  await browser.type('textarea', Array.from({ length: 50 }, (_, n) => `${site.url}/slow${n}`).join('\n'));
  await browser.click('button', 'Start job');
  await browser.see('Scanning in Progress');
  await looksRight(browser, 'job-running');
  await browser.click('button', 'Cancel job');
  await browser.see('What was sent stays done; its answer no longer counts.');
  await browser.click('dialog button', 'Cancel job');
  await browser.see('Scan cancelled');
  await browser.go(`${server.origin}/jobs`);
  await browser.see('Cancelled');
  await looksRight(browser, 'jobs');
  await isQuiet(browser, ['422', '429', '[Polling]']);
});
