// Who may use the console: sign-in, sign-out, an ended sign-in, pages of other sites, other names of
// this machine, and a server that goes away and comes back.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { isQuiet, looksRight, signIn, withBrowser } from './page.mjs';
import { startMock, startServer, startUpstream } from './server.mjs';

const cookies = async (browser) => (await browser.devtools('Network.getCookies')).cookies;
const isSignedOut = (browser) => browser.see('You have been signed out. Sign in to go on; what you typed is kept.');

await withBrowser(async ({ browser, folder, ends }) => {
  const mock = ends(await startMock(folder));
  const pool = `[pool.api]\nendpoints = [{ name = "mock", url = "${mock.url}" }]\n`;
  const server = ends(await startServer(folder, pool));
  await (await server.send('/api/x')).text();

  // The address with the token becomes a cookie that scripts cannot read.
  await signIn(browser, server, '/gates?sort=key');
  assert.equal(await browser.url(), `${server.origin}/gates?sort=key`);
  await browser.see('api/mock');
  const [cookie] = await cookies(browser);
  assert.equal(cookie.name, `tidegate-${new URL(server.origin).port}`);
  assert.ok(cookie.httpOnly && cookie.sameSite === 'Strict' && !cookie.value.includes(server.token));
  assert.equal(await browser.run('return document.cookie'), '');
  assert.equal(await browser.run('return performance.getEntriesByType("resource").filter((entry) => entry.name.includes("token=")).length'), 0);
  await isQuiet(browser);

  // A sign-in that ended: the dialog is over the page, and what was typed is kept.
  await browser.devtools('Network.clearBrowserCookies');
  await browser.type('#filter', 'mock');
  await isSignedOut(browser);
  await looksRight(browser, 'signed-out');
  await browser.type('#token', 'wrong');
  await browser.click('button', 'Sign in');
  await browser.see('This token is not valid here.');
  await browser.type('#token', server.token);
  await browser.click('button', 'Sign in');
  await browser.waitFor('return !document.querySelector("dialog")', 'no dialog');
  assert.equal(await browser.run('return document.querySelector("#filter").value'), 'mock');
  await browser.see('1–1 of 1');

  // A cookie that the server did not make, and one that was changed, are none.
  for (const value of ['0', `${cookie.value}0`, cookie.value.replace(/.$/, (last) => (last === '0' ? '1' : '0'))]) {
    await browser.devtools('Network.setCookie', { ...cookie, value });
    assert.equal(await browser.run('return fetch("/version").then((response) => response.status)'), 401, value);
  }
  await browser.devtools('Network.setCookie', cookie);
  assert.equal(await browser.run('return fetch("/version").then((response) => response.status)'), 200);

  // A page of another site can neither read nor change anything; a link from there works.
  const other = ends(await startUpstream((_, response) => {
    response.setHeader('content-type', 'text/html');
    response.end(`<a href="${server.origin}/gates">gates</a>`);
  }));
  await browser.go(other.url.replace('127.0.0.1', 'other.test'));
  const refused = await browser.run(`
    const [origin] = arguments;
    const simple = { method: 'POST', mode: 'no-cors', credentials: 'include', headers: { 'content-type': 'text/plain' }, body: '{}' };
    return Promise.all([
      fetch(origin + '/api/v1/gates', { credentials: 'include' }).then(() => 'read', () => 'refused'),
      fetch(origin + '/api/v1/gates/api%2Fmock/isolate', simple).then(() => 'sent', () => 'refused'),
      fetch(origin + '/api/v1/events', { credentials: 'include' }).then(() => 'read', () => 'refused'),
    ])`, server.origin);
  assert.deepEqual(refused, ['refused', 'refused', 'refused']);
  const gate = await server.api('GET', '/api/v1/gates/api%2Fmock');
  assert.equal(gate.breaker.state, 'closed');
  await browser.click('a', 'gates');
  await browser.see('api/mock');
  await browser.log();

  // Another name that leads to this machine gets nothing, not even with the token.
  const port = new URL(server.origin).port;
  await browser.go(`http://rebound.test:${port}/?token=${server.token}`);
  await browser.see('server.hosts');
  assert.equal((await cookies(browser)).length, 0);
  await browser.log();

  // Sign out, and in again by the sign-in page. A wrong token in the address leads there, too.
  await browser.go(`${server.origin}/`);
  await browser.click('button', 'Menu');
  await browser.click('[role=menuitem]', 'Sign out');
  await browser.see('Sign in to Tidegate');
  assert.equal((await cookies(browser)).length, 0);
  await browser.go(`${server.origin}/pools?token=wrong`);
  await browser.see('This token is not valid here.');
  assert.doesNotMatch(await browser.url(), /token/);
  await browser.type('#token', server.token);
  await browser.click('button', 'Sign in');
  await browser.see('Overview');
  await browser.log();

  // The server goes away: the page says so, keeps what it showed, and goes on by itself.
  await browser.go(`${server.origin}/gates`);
  await browser.see('api/mock');
  await server.stop();
  await browser.see(/Connection lost at \d\d:\d\d:\d\d\. Showing the last known state\./);
  await browser.see('api/mock');
  await looksRight(browser, 'connection-lost');
  await server.restart();
  await browser.miss('Trying again');
  await browser.see('Live');
  // The cookie is good for the same server after a restart, but not with another token.
  writeFileSync(join(folder, 'data/admin-token'), `${'n'.repeat(43)}\n`);
  await server.restart();
  await isSignedOut(browser);
  await browser.type('#token', 'n'.repeat(43));
  await browser.click('button', 'Sign in');
  await browser.miss('Sign in to Tidegate');
  await browser.see('Live');
});
