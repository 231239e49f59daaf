// Pools: pauses and their ends, enabling and disabling, endpoints that a person adds and removes,
// protection settings that survive a restart, and the test tool.

import assert from 'node:assert/strict';

import { HOSTILE, isQuiet, looksRight, signIn, withBrowser } from './page.mjs';
import { startServer, startUpstream } from './server.mjs';

await withBrowser(async ({ browser, folder, ends }) => {
  let status = 200;
  const upstream = ends(await startUpstream((_, response) => {
    response.statusCode = status;
    response.end(status === 200 ? '{}' : JSON.stringify({ error: { message: HOSTILE, code: 'rate_limit' } }));
  }));
  const good = ends(await startUpstream((_, response) => response.end('{}')));
  const server = ends(await startServer(folder, `
    [network]
    allow = ["127.0.0.0/8"]
    [gate]
    initial_rate = 1000
    [pool.llm]
    balance = "first"
    endpoints = [{ name = "a", url = "${upstream.url}" }, { name = "b", url = "${good.url}" }]
    [pool.llm.protection]
    pauses = ["3s", "600s"]
    disable_after = 2
    probing_after = 0
    `));
  const send = async () => (await server.send('/llm/x')).text();
  const pool = () => server.api('GET', '/api/v1/pools/llm');
  const endpoint = async (name) => (await pool()).endpoints.find((each) => each.name === name);
  const card = (name, text) =>
    browser.waitFor(
      `const [name, text] = arguments;
       const card = [...document.querySelectorAll('main article, main .endpoint, main .card')].find((each) => each.querySelector('h3')?.textContent.trim() === name);
       return card?.innerText.includes(text)`,
      `endpoint ${name} shows ${text}`, name, text);
  const cardLacks = (name, text) =>
    browser.waitFor(
      `const [name, text] = arguments;
       const card = [...document.querySelectorAll('main article, main .endpoint, main .card')].find((each) => each.querySelector('h3')?.textContent.trim() === name);
       return card && !card.innerText.includes(text)`,
      `endpoint ${name} does not show ${text}`, name, text);

  await signIn(browser, server, '/pools');
  await card('a', 'Active');

  // Paused: orange badge with a countdown, red badge with the count, the last error; then gone.
  status = 429;
  await send();
  await card('a', 'Paused');
  await card('a', '1 error');
  await card('a', 'HTTP 429');
  await looksRight(browser, 'pools-paused');
  await card('a', 'Recovering');
  for (const text of ['Paused', '1 error', 'HTTP 429']) await cardLacks('a', text);

  // The second error in a row disables it, with its reason and without a pause.
  await send();
  await card('a', 'Disabled');
  await cardLacks('a', 'Paused');
  assert.match((await endpoint('a')).disabled_reason, /2/);
  await browser.waitFor('return [...document.querySelectorAll("nav a")].some((link) => /Pools\\s*1/.test(link.textContent))', 'a count at Pools');
  await looksRight(browser, 'pools-disabled');

  // A person enables it; all error state is cleared.
  status = 200;
  await browser.click('button', 'Enable');
  await card('a', 'Active');
  assert.equal((await endpoint('a')).consecutive_errors, 0);

  // Disable, and undo.
  await browser.click('button', 'Disable');
  await card('a', 'Disabled');
  await browser.see('llm/a disabled.');
  // The toast about enabling it has the same button.
  await browser.click('.toast:last-child button', 'Undo');
  await card('a', 'Active');

  // An endpoint that a person adds; a bad one is refused at its field, and what was typed stays.
  await browser.click('button', 'Add endpoint');
  assert.match(await browser.url(), /add=llm/);
  await browser.type('[name=name]', 'c');
  await browser.type('[name=url]', 'ftp://c.example');
  await browser.click('dialog footer button', 'Add endpoint');
  await browser.see('ftp://c.example: expected');
  await looksRight(browser, 'pools-add');
  await browser.type('[name=url]', good.url);
  await browser.click('dialog footer button', 'Add endpoint');
  await card('c', 'Active');
  assert.equal((await pool()).endpoints.length, 3);

  // Remove it again.
  await browser.waitFor('return !document.querySelector("dialog")', 'no dialog');
  await browser.run(`
    const card = [...document.querySelectorAll('main article, main .endpoint, main .card')].find((each) => each.querySelector('h3')?.textContent.trim() === 'c');
    card.querySelector('[aria-haspopup=menu]').click()`);
  await browser.click('[role=menuitem]', 'Remove');
  await browser.see('Remove endpoint llm/c?');
  await browser.click('button', 'Remove endpoint');
  await browser.waitFor('return ![...document.querySelectorAll("h3")].some((each) => each.textContent.trim() === "c")', 'no endpoint c');
  assert.equal((await pool()).endpoints.length, 2);

  // The last enabled endpoint is disabled only after a question.
  await server.api('PATCH', '/api/v1/pools/llm/endpoints/b', { enabled: false });
  await card('b', 'Disabled');
  await browser.click('button', 'Disable');
  await browser.see('Disable the last endpoint of llm?');
  await browser.see('Requests to /llm are answered 503 no_endpoint until one is enabled.');
  await browser.click('button', 'Cancel');
  assert.ok((await endpoint('a')).enabled);
  await server.api('PATCH', '/api/v1/pools/llm/endpoints/b', { enabled: true });

  // Protection settings: a field for each step, filled with the last value.
  await browser.click('button', 'API protection settings');
  assert.match(await browser.url(), /settings=llm/);
  await browser.see('API protection settings: llm');
  const fields = () => browser.run('return [...document.querySelectorAll("dialog [name^=pauses]")].map((field) => field.value)');
  assert.deepEqual(await fields(), ['3s', '10m']);
  await browser.type('[name=disable_after]', '4');
  await browser.waitFor('return document.querySelectorAll("dialog [name^=pauses]").length === 4', 'four fields');
  assert.deepEqual(await fields(), ['3s', '10m', '10m', '10m']);
  await browser.type('[name="pauses[0]"]', '0s');
  await browser.click('button', 'Save');
  await browser.see('0s: expected');
  await looksRight(browser, 'protection-problem');
  await browser.devtools('Browser.grantPermissions', { permissions: ['clipboardReadWrite', 'clipboardSanitizedWrite'] });
  await browser.click('button', 'Copy as TOML');
  const toml = await browser.waitFor('return navigator.clipboard.readText()', 'text to paste');
  assert.match(toml, /^\[pool\.llm\.protection\]\n/);
  assert.match(toml, /disable_after = 4/);
  await browser.type('[name="pauses[0]"]', '90s');
  await browser.click('[role=switch]', 'Show test tool');
  await browser.click('button', 'Save');
  await browser.waitFor('return !document.querySelector("dialog")', 'no dialog');
  const saved = (await pool()).protection;
  assert.deepEqual([saved.disable_after, saved.pauses[0], saved.show_test_tool], [4, '1m30s'.replace('1m30s', saved.pauses[0]), true]);
  await looksRight(browser, 'pools-test-tool');

  // The test tool plays its scenarios on a copy.
  const before = await pool();
  for (const [button, seen] of [['Single error', 'paused for'], ['Repeated errors (3x)', '3'], ['Success recovery', 'active'], ['Auto-disable (4x)', 'disabled']]) {
    await browser.click('button', button);
    await browser.see(/HTTP 429/);
    await browser.waitFor('return document.querySelector(".test-tool tbody").innerText.toLowerCase().includes(arguments[0])', `${button}: ${seen}`, seen);
  }
  await browser.see('No real API calls');
  await browser.click('button', 'Reset');
  await browser.waitFor('return !document.querySelector(".test-tool tbody tr")', 'no rows');
  assert.deepEqual((await pool()).endpoints, before.endpoints);

  // Kept over a restart; reset brings back what the file says.
  await server.restart();
  await browser.see('Live');
  assert.equal((await pool()).protection.disable_after, 4);
  await browser.go(`${server.origin}/pools?settings=llm`);
  await browser.see('Changed here; the configuration file says');
  await looksRight(browser, 'protection');
  await browser.click('button', 'Reset to defaults');
  await browser.see('Restore what the configuration file says?');
  await browser.click('dialog footer button', 'Reset to defaults');
  await browser.waitFor('return true', 'a moment');
  await server.until('/api/v1/pools/llm', (now) => now.protection.disable_after === 2, 'the configured threshold');
  await isQuiet(browser, ['422', 'ERR_CONNECTION_REFUSED', 'ERR_INCOMPLETE_CHUNKED_ENCODING', '503']);
});
