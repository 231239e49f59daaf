// The page of all gates and that of one: filter, sort, pages, live values, and a person's changes.

import assert from 'node:assert/strict';

import { BIDI, HOSTILE, isQuiet, looksRight, signIn, withBrowser } from './page.mjs';
import { startMock, startServer, startUpstream } from './server.mjs';

await withBrowser(async ({ browser, folder, ends }) => {
  const mock = ends(await startMock(folder));
  let status = 200;
  const upstream = ends(await startUpstream((_, response) => {
    if (status === 429) response.setHeader('retry-after', '600');
    response.statusCode = status;
    response.end('{}');
  }));
  const endpoints = Array.from({ length: 60 }, (_, n) => `{ name = "e${String(n).padStart(2, '0')}", url = "${mock.url}" }`);
  const server = ends(await startServer(folder, `
    [pool.many]
    balance = "round_robin"
    endpoints = [${endpoints.join(', ')}]
    [pool.held]
    endpoints = [{ name = "a", url = "${upstream.url}" }]
    [pool.hostile]
    endpoints = [{ name = ${JSON.stringify(HOSTILE.replaceAll('/', '\\'))}, url = "${mock.url}" }, { name = ${JSON.stringify(BIDI)}, url = "${mock.url}" }]
    `));
  await signIn(browser, server, '/gates');
  await browser.see('No gates yet. A gate appears with the first request to an upstream.');
  const send = async (path, times) => Promise.all(Array.from({ length: times }, async () => (await server.send(path)).text()));
  await send('/many/x', 60);
  await send('/hostile/x', 2);
  await send('/held/x', 2);

  // All of them, in pages of 50.
  await browser.go(`${server.origin}/gates?sort=key`);
  await browser.see('1–50 of 63');
  assert.equal((await browser.run('return document.querySelectorAll("tbody tr").length')), 50);
  await looksRight(browser, 'gates');
  await browser.click('button', 'Next');
  await browser.see('51–63 of 63');
  assert.match(await browser.url(), /page=2/);
  await browser.back();
  await browser.see('1–50 of 63');
  await browser.keys(']');
  await browser.see('51–63 of 63');

  // Filter: typed, kept in the address, cleared.
  await browser.keys('/');
  await browser.type('#filter', 'E0');
  await browser.see('1–10 of 10');
  assert.match(await browser.url(), /filter=E0/);
  await browser.type('#filter', 'nothing');
  await browser.see('No gate matches "nothing".');
  await browser.click('button', 'Clear filter');
  await browser.see('1–50 of 63');

  // A hold appears by itself, with its countdown, and can be chosen by state.
  await browser.type('#filter', 'held');
  await browser.see('1–1 of 1');
  status = 429;
  await send('/held/x', 1);
  await browser.see(/Held\s*(10m|9m \d+s)/);
  await browser.type('#filter', '');
  await browser.click('.chip', 'Held');
  await browser.see('1–1 of 1');
  assert.match(await browser.url(), /state=held/);

  // The gate's page.
  await browser.click('a', 'held/a');
  await browser.see('retry-after');
  assert.equal(await browser.url(), `${server.origin}/gates/held/a`);
  await browser.waitFor('return document.activeElement.tagName === "H1"', 'the focus on the heading');
  await looksRight(browser, 'gate');

  // A chart is drawn, and can be read as a table.
  await browser.waitFor('return document.querySelector("main canvas").width > 1000', 'a chart as wide as the page');
  await browser.click('button', 'Show as table');
  await browser.waitFor('return document.querySelector("main table tbody tr") !== null', 'a table');
  await browser.click('button', 'Show as chart');

  // The trail of a request is in a drawer with an address of its own; Back closes it.
  await browser.click('main a.mono');
  await browser.see('Request ');
  await browser.waitFor('return document.querySelectorAll("dialog .steps li").length > 1', 'the steps of a request');
  assert.match(await browser.url(), /request=/);
  await looksRight(browser, 'trail');
  await browser.back();
  await browser.waitFor('return !document.querySelector("dialog")', 'no drawer');
  const gate = (key) => server.api('GET', `/api/v1/gates/${encodeURIComponent(key)}`);
  await browser.click('button', 'Release');
  await browser.see('Release gate held/a?');
  await browser.see(/Sending sooner may be refused again or lead to a ban\./);
  await looksRight(browser, 'gate-release');
  await browser.click('button', 'Release gate');
  await browser.miss('Release gate held/a?');
  assert.equal((await gate('held/a')).hold, null);
  await browser.click('button', 'Isolate');
  await browser.see('Isolate gate held/a?');
  await browser.click('button', 'Isolate gate');
  await browser.see('Isolated');
  assert.equal((await gate('held/a')).breaker.state, 'isolated');
  await browser.click('button', 'Reset');
  await browser.click('button', 'Cancel');
  assert.equal((await gate('held/a')).breaker.state, 'isolated');
  await browser.click('button', 'Reset');
  await browser.click('button', 'Reset gate');
  await browser.waitFor('return !document.querySelector("dialog")', 'no dialog');
  assert.equal((await gate('held/a')).breaker.state, 'closed');

  // Hostile keys are text, and have a page.
  await browser.go(`${server.origin}/gates?filter=hostile`);
  await browser.see('<script>');
  await browser.see('⟨U+202E⟩');
  await browser.click('a', 'hostile/⟨U+202E⟩');
  await browser.waitFor('return document.querySelector("h1").textContent.includes("⟨U+202E⟩")', 'the heading');

  // A gate that is not there says so, and appears by itself.
  await browser.go(`${server.origin}/gates/none.example`);
  await browser.see('There is no gate none.example now. Gates appear with their first request and are forgotten when idle.');
  await isQuiet(browser, ['404']);
});
