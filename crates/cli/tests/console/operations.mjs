// Operations: lists by state, one operation, retry and cancel, bulk actions with a dry run, and the
// conflict desk.

import assert from 'node:assert/strict';

import { HOSTILE, isQuiet, looksRight, signIn, withBrowser } from './page.mjs';
import { startServer, startUpstream } from './server.mjs';

await withBrowser(async ({ browser, folder, ends }) => {
  let orders = 400;
  const theirs = { name: 'A. Lovelace', zip: null, text: HOSTILE, same: 1 };
  const profile = { theirs, version: 2 };
  const upstream = ends(await startUpstream((_, response) => {
    response.statusCode = orders;
    response.end('{}');
  }));
  // Another host: its gate is not slowed down by the failures above.
  const profiles = ends(await startUpstream((request, response) => {
    response.setHeader('etag', `"${profile.version}"`);
    if (request.method === 'GET') return response.end(JSON.stringify(profile.theirs));
    response.statusCode = request.headers['if-match'] === `"${profile.version}"` ? 200 : 412;
    return response.end('{}');
  }));
  const server = ends(await startServer(folder, `
    [network]
    allow = ["127.0.0.0/8"]
    [gate]
    initial_rate = 1000
    [operation.invoice]
    backoff = "standard"
    [operation.profile]
    `));
  const add = (body) => server.api('POST', '/api/v1/operations', { method: 'POST', ...body });
  const show = (id) => server.api('GET', `/api/v1/operations/${id}`);
  const state = (id, wanted) => server.until(`/api/v1/operations/${id}`, (operation) => operation.state === wanted, `${id} ${wanted}`);

  await signIn(browser, server, '/operations');
  await browser.see('No operations yet.');

  // Failed ones, with their reasons.
  const failed = [];
  for (let n = 0; n < 5; n += 1) failed.push((await add({ type: 'invoice', url: `${upstream.url}/orders`, body: { n } })).id);
  const unsafe = (await add({ type: 'invoice', url: `${upstream.url}/orders`, body: { n: 5 } })).id;
  for (const id of [...failed, unsafe]) await state(id, 'failed');
  await browser.see(/Failed\s*6/);
  await browser.click('.chip', 'Failed');
  assert.match(await browser.url(), /state=failed/);
  await browser.see('Failed: rejected');
  assert.equal(await browser.run('return document.querySelectorAll("tbody tr").length'), 6);
  await looksRight(browser, 'operations');

  // Filters: by ID and by type; the address has them.
  await browser.type('[name=id]', failed[0]);
  await browser.waitFor('return document.querySelectorAll("tbody tr").length === 1', 'one row');
  await browser.waitFor('return location.search.includes("id=op_")', 'the filter in the address');
  await browser.type('[name=id]', '');
  await browser.waitFor('return document.querySelectorAll("tbody tr").length === 6', 'six rows');

  // One operation: its attempts, and a retry that succeeds.
  orders = 200;
  await browser.go(`${server.origin}/operations/${failed[0]}`);
  await browser.see('Failed: rejected');
  await browser.see('HTTP 400');
  await looksRight(browser, 'operation-failed');
  await browser.click('button', 'Retry');
  if (await browser.has('dialog button', 'Send again')) await browser.click('dialog button', 'Send again');
  await state(failed[0], 'completed');
  await browser.see('Completed');

  // Bulk: a dry run first, then the numbers.
  await browser.go(`${server.origin}/operations?state=failed`);
  await browser.waitFor('return document.querySelectorAll("tbody tr").length === 5', 'five rows');
  await browser.run('document.querySelectorAll("tbody tr input[type=checkbox]")[0].click(); document.querySelectorAll("tbody tr input[type=checkbox]")[1].click()');
  await browser.see('2 selected');
  await looksRight(browser, 'operations-selected');
  await browser.click('button', 'Retry…');
  await browser.see(/2 will be retried|2 of 2 match|2 match/);
  await looksRight(browser, 'operations-bulk');
  await browser.click('dialog button', 'Retry 2 operations');
  await server.until('/api/v1/operations?state=failed', (list) => list.operations.length === 3, 'three failed');

  // All that match are cancelled by their filter.
  await browser.go(`${server.origin}/operations?state=failed`);
  await browser.waitFor('return document.querySelectorAll("tbody tr").length === 3', 'three rows');
  await browser.run('document.querySelector("tbody tr input[type=checkbox]").click()');
  await browser.click('button', 'Select all 3 failed');
  await browser.click('button', 'Cancel…');
  await browser.click('dialog button', 'Cancel 3 operations');
  await server.until('/api/v1/operations?state=failed', (list) => list.operations.length === 0, 'none failed');

  // A person cancels one that waits.
  orders = 503;
  const waiting = (await add({ type: 'invoice', url: `${upstream.url}/orders`, body: {}, idempotency_key: 'k1' })).id;
  await state(waiting, 'retryable');
  await browser.go(`${server.origin}/operations/${waiting}`);
  await browser.see('Next attempt in');
  await looksRight(browser, 'operation-waiting');
  await browser.click('button', 'Cancel');
  await browser.see('What was sent stays done; its answer no longer counts.');
  await browser.click('dialog button', 'Keep');
  assert.notEqual((await show(waiting)).state, 'cancelled');
  await browser.click('button', 'Cancel');
  await browser.click('dialog button', 'Cancel operation');
  await browser.see('Cancelled');

  // The conflict desk.
  const edit = (name) => ({
    type: 'profile', method: 'PUT', url: `${profiles.url}/profile`, resource: `${profiles.url}/profile`,
    headers: { 'if-match': '"1"' }, base: { name: 'Ada', zip: '10115', same: 1 }, body: { name, zip: '10115', phone: '+49', same: 1 },
  });
  const [first, second, third] = [(await add(edit('Ada L.'))).id, (await add(edit('Ada K.'))).id, (await add(edit('Ada M.'))).id];
  for (const id of [first, second, third]) await state(id, 'conflict');
  await browser.go(`${server.origin}/operations/${first}`);
  await browser.see('A. Lovelace');
  await browser.see('Ada L.');
  await browser.see('<script>');
  await looksRight(browser, 'conflict');

  // The result needs a choice for a field that both changed.
  await browser.click('button', 'Send result');
  assert.equal((await show(first)).state, 'conflict');
  await browser.run(`
    const row = [...document.querySelectorAll('main tr, main .conflict-row')].find((each) => each.innerText.includes('A. Lovelace'));
    row.querySelector('input[value=theirs]').click()`);
  await browser.click('button', 'Send result');
  await state(first, 'completed');
  const sent = JSON.parse(profiles.requests.findLast((request) => request.method === 'PUT').text);
  assert.deepEqual([sent.name, sent.phone], ['A. Lovelace', '+49']);

  // Then the next conflict is shown; ours is sent again, and another is discarded.
  await browser.waitFor('return !location.pathname.endsWith(arguments[0])', 'another conflict', first);
  await browser.go(`${server.origin}/operations/${second}`);
  await browser.see('Ada K.');
  await browser.click('button', 'Edit as text');
  await browser.waitFor('return document.querySelector("main textarea")?.value.includes("Ada K.") ?? false', 'the result as text');
  await looksRight(browser, 'conflict-text');
  await browser.click('button', 'Edit by field');
  await browser.click('button', 'Resend ours');
  await state(second, 'completed');
  await browser.go(`${server.origin}/operations/${third}`);
  await browser.click('button', 'Discard');
  await browser.see("Our change is dropped; the server's version stays.");
  await browser.click('dialog button', 'Discard change');
  await server.until(`/api/v1/operations/${third}`, (operation) => operation.state !== 'conflict', 'discarded');

  // One that does not exist.
  await browser.go(`${server.origin}/operations/op_none`);
  await browser.see('op_none');
  await isQuiet(browser, ['404', '400']);
});
