// Text of servers, callers and addresses, in every place of every page that it can reach: markup,
// characters that change the direction of text, and 10 KB without a space.

import assert from 'node:assert/strict';

import { BIDI, HOSTILE, LONG, withBrowser } from './page.mjs';
import { startMock, startScripted, startServer, startUpstream } from './server.mjs';

/** Members of bodies that hold such text. Names that pages use to look something up stay as they are. */
const FOREIGN = new Set([
  'why', 'url', 'last_error', 'disabled_reason', 'summary', 'type', 'order_key', 'credential', 'backoff', 'trace_id', 'error',
  'text', 'detail', 'title', 'outcome', 'route', 'method', 'endpoint', 'pool', 'source', 'message', 'command',
]);
const WORDS = `${HOSTILE}${BIDI}${LONG}`;

/** A body with foreign text replaced. */
function spoiled(body, name = '') {
  if (Array.isArray(body)) return body.map((each) => spoiled(each, name));
  if (body && typeof body === 'object') return Object.fromEntries(Object.entries(body).map(([key, value]) => [key, spoiled(value, key)]));
  return typeof body === 'string' && FOREIGN.has(name) ? `${body}${WORDS}` : body;
}

await withBrowser(async ({ browser, folder, ends }) => {
  const mock = ends(await startMock(folder));
  const upstream = ends(await startUpstream((request, response) => {
    response.statusCode = request.method === 'PUT' ? 412 : 400;
    if (request.method === 'GET') response.statusCode = 200;
    response.end(JSON.stringify({ [HOSTILE]: LONG, name: WORDS, deep: { [BIDI]: [HOSTILE] } }));
  }));
  const limited = ends(await startUpstream((_, response) => {
    response.writeHead(429, { 'retry-after': '600' });
    response.end(JSON.stringify({ error: { code: HOSTILE, message: WORDS } }));
  }));
  const name = JSON.stringify(HOSTILE.replaceAll('/', '\\'));
  const server = ends(await startServer(folder, `
    [network]
    allow = ["127.0.0.0/8"]
    [pool.llm]
    endpoints = [{ name = ${name}, url = "${mock.url}" }, { name = ${JSON.stringify(BIDI)}, url = "${limited.url}/${'x'.repeat(1000)}" }]
    [pool.llm.protection]
    show_test_tool = true
    probing_after = 0
    `));
  for (let n = 0; n < 4; n += 1) await (await server.send('/llm/x')).text();
  const add = (body) => server.api('POST', '/api/v1/operations', body);
  const failed = await add({ method: 'POST', url: `${upstream.url}/?q=${encodeURIComponent(HOSTILE)}`, body: {}, order_key: HOSTILE });
  const edit = { method: 'PUT', url: `${upstream.url}/doc`, resource: `${upstream.url}/doc`, base: { name: 'a' }, body: { name: WORDS, [HOSTILE]: 1 } };
  const conflict = await add(edit);
  const job = await server.api('POST', '/api/v1/jobs', { urls: [`${upstream.url}/${encodeURIComponent(HOSTILE)}`] });
  await server.until(`/api/v1/operations/${failed.id}`, ({ state }) => state === 'failed', 'failed');
  await server.until(`/api/v1/operations/${conflict.id}`, ({ state }) => state === 'conflict', 'conflict');

  // All bodies pass through a server that spoils them. It has no room for streams, so that pages
  // fetch everything.
  const scripted = ends(await startScripted(server, (path, response) => {
    if (!path.startsWith('/api/') || path.startsWith('/api/v1/settings')) return false;
    if (path.startsWith('/api/v1/events?')) {
      response.writeHead(503, { 'content-type': 'application/problem+json' });
      response.end(JSON.stringify({ reason: 'too_many_streams', title: WORDS, detail: WORDS }));
      return true;
    }
    server.response(path).then(async (real) => {
      response.writeHead(real.status, { 'content-type': 'application/json', 'tidegate-now': String(Date.now()) });
      response.end(JSON.stringify(spoiled(JSON.parse(await real.text()))));
    });
    return true;
  }));

  const key = encodeURIComponent((await server.api('GET', '/api/v1/gates')).gates.find((gate) => gate.key.includes('script')).key);
  const pages = {
    '/': 'Overview',
    '/gates': 'Gates',
    [`/gates/${key}`]: 'script',
    '/pools': 'Pools',
    '/pools?settings=llm': 'API protection settings',
    '/operations': 'Operations',
    [`/operations/${failed.id}`]: 'Failed',
    [`/operations/${conflict.id}`]: 'Theirs',
    '/jobs': 'Jobs',
    [`/jobs/${job.id}`]: 'Scan',
    '/simulate': 'Simulate',
    [`/simulate?gate=${key}`]: 'Simulate',
    [`/gates/${'y'.repeat(5000)}`]: 'There is no gate',
    [`/operations/${encodeURIComponent(HOSTILE)}`]: 'Operations',
    [`/gates?filter=${encodeURIComponent(WORDS.slice(0, 3000))}`]: 'Gates',
  };
  for (const [path, text] of Object.entries(pages)) {
    const what = path.slice(0, 60);
    await browser.view(1280, 900);
    await browser.go(scripted.url + path);
    await browser.see(text);
    // Everything has come when nothing changes any more.
    await browser.run('return new Promise((done) => { let timer; const settle = () => { clearTimeout(timer); timer = setTimeout(() => done(true), 300); }; new MutationObserver(settle).observe(document.body, { childList: true, subtree: true, characterData: true }); settle(); setTimeout(() => done(true), 3000); })');
    for (const width of [1280, 390]) {
      await browser.view(width, 900);
      assert.deepEqual(await browser.wide(), [], `${what} at ${width} px`);
      await browser.picture(`hostile-${text.replaceAll(' ', '-')}-${width}`);
    }
    assert.equal(await browser.run('return window.ran ?? null'), null, what);
    assert.equal(await browser.run('return document.querySelectorAll("img, iframe, script:not([src^=\\"/console/\\"])").length'), 0, what);
    const raw = await browser.run('return [...document.querySelectorAll("body *")].filter((each) => [...each.childNodes].some((node) => node.nodeType === 3 && node.data.includes("\\u202e"))).map((each) => each.parentElement.outerHTML.slice(0, 200))');
    assert.deepEqual(raw, [], `${what} has a character that changes the direction of text`);
  }
});
