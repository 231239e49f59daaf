// The overview: what needs a person, figures and charts that move by themselves, recent events; and
// what all pages have: keys, theme, navigation.

import assert from 'node:assert/strict';

import { isQuiet, looksRight, signIn, withBrowser } from './page.mjs';
import { startServer, startUpstream } from './server.mjs';

await withBrowser(async ({ browser, folder, ends }) => {
  let status = 200;
  const upstream = ends(await startUpstream((_, response) => {
    response.statusCode = status;
    response.end('{}');
  }));
  const server = ends(await startServer(folder, `
    [gate]
    initial_rate = 1000
    open_first = "600s"
    open_for = "600s"
    [pool.llm]
    endpoints = [{ name = "a", url = "${upstream.url}" }]
    `));
  await signIn(browser, server, '/');
  await browser.see('Nothing has happened since');
  assert.equal(await browser.run('return document.title'), 'Overview – Tidegate');
  const send = () => server.send('/llm/x').then((response) => response.text());
  for (let n = 0; n < 20; n += 1) await send();

  // Figures, busiest gates, health.
  await browser.see('llm/a');
  await browser.see('SQLite');
  await browser.see('Version');
  await browser.waitFor('return document.querySelectorAll("canvas").length === 2', 'two charts');

  // A breaker that opens is in the list of what needs attention, in the title, and in the events.
  status = 500;
  for (let n = 0; n < 6; n += 1) await send();
  await browser.see('Attention');
  await browser.see('Open');
  await browser.waitFor('return document.title.startsWith("(1) ")', 'the title has the number');
  await looksRight(browser, 'overview');
  await browser.click('a', 'Show gate');
  await browser.waitFor('return location.pathname === "/gates/llm/a"', 'the page of the gate');

  // An endpoint that a person disabled is enabled where it is listed.
  await server.api('PATCH', '/api/v1/pools/llm/endpoints/a', { enabled: false });
  await browser.click('a', 'Overview');
  await browser.see('llm/a disabled by a person');
  await browser.click('button', 'Enable');
  await server.until('/api/v1/pools/llm', (pool) => pool.endpoints[0].enabled, 'enabled');

  // Keys: pages, help, freezing; not while typing.
  await browser.keys('g', '2');
  await browser.waitFor('return location.pathname === "/gates"', 'the gates');
  await browser.keys('?');
  await browser.see('Keyboard shortcuts');
  await looksRight(browser, 'shortcuts');
  await browser.keys('\uE00C');
  await browser.waitFor('return !document.querySelector("dialog")', 'no dialog');
  await browser.keys('.');
  await browser.see('Paused · Resume');
  await browser.keys('.');
  await browser.see('Live');
  await browser.keys('/');
  await browser.waitFor('return document.activeElement.id === "filter"', 'the filter has the focus');
  await browser.keys('g', '1');
  assert.match(await browser.url(), /filter=g1/);

  // The theme is chosen, and kept by the browser.
  const background = () => browser.run('return getComputedStyle(document.documentElement).backgroundColor');
  assert.equal(await background(), 'rgb(246, 248, 250)');
  await browser.click('button', 'Theme');
  await browser.click('[role=menuitemradio]', 'Dark');
  assert.equal(await background(), 'rgb(18, 22, 28)');
  await browser.reload();
  await browser.see('Gates');
  assert.equal(await background(), 'rgb(18, 22, 28)');
  assert.deepEqual(await browser.run('return Object.keys(localStorage)'), ['tidegate-theme']);

  // An address without a page.
  await browser.go(`${server.origin}/gates`);
  await browser.run('history.pushState(null, "", "/nowhere"); dispatchEvent(new PopStateEvent("popstate"))');
  await browser.see('There is no page /nowhere.');
  await isQuiet(browser);
});
