// The console of a server with 10,000 gates and 100,000 operations. Prints what was measured; fails
// only on what does not depend on the speed of the machine.

import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';

import { isQuiet, signIn, withBrowser } from './page.mjs';
import { startServer } from './server.mjs';

const GATES = 10_000;
const OPERATIONS = 100_000;

/** Notes the time of the first row, from the start of the navigation. */
const OBSERVE = `
  new MutationObserver((_, observer) => {
    if (!document.querySelector('tbody tr')) return;
    window.firstRow = performance.now();
    observer.disconnect();
  }).observe(document, { childList: true, subtree: true });`;

/** Clicks a button, and returns the time until the first row is another one. */
const TURN = `
  const [name] = arguments;
  const first = () => document.querySelector('tbody tr')?.textContent;
  const before = first();
  const start = performance.now();
  [...document.querySelectorAll('button')].find((button) => button.textContent === name).click();
  return new Promise((done) => {
    const look = () => (first() !== before ? done(performance.now() - start) : requestAnimationFrame(look));
    look();
  });`;

await withBrowser(async ({ browser, ends }) => {
  const server = ends(await startServer(process.env.FOLDER, ''));
  await browser.devtools('Page.enable');
  await browser.devtools('Page.addScriptToEvaluateOnNewDocument', { source: OBSERVE });
  await browser.devtools('Performance.enable');
  const metrics = async () => Object.fromEntries((await browser.devtools('Performance.getMetrics')).metrics.map(({ name, value }) => [name, value]));

  const measure = async (path, what) => {
    await browser.go(`${server.origin}${path}`);
    const first = await browser.waitFor('return window.firstRow', 'the first row');
    const turns = [];
    for (let turn = 0; turn < 5; turn += 1) turns.push(await browser.run(TURN, turn % 2 === 0 ? 'Next' : 'Previous'));
    const before = await metrics();
    await sleep(5000);
    const after = await metrics();
    const busy = after.TaskDuration - before.TaskDuration;
    const elements = await browser.run('return document.querySelectorAll("*").length');
    assert.ok(elements <= 3000, `${elements} elements`);
    turns.sort((one, other) => one - other);
    console.log(
      `${what}: first row ${first.toFixed(0)} ms, page change ${turns[2].toFixed(0)} ms, ` +
        `live ${(busy * 20).toFixed(1)} % of a core, ${elements} elements, heap ${(after.JSHeapUsedSize / 2 ** 20).toFixed(1)} MiB`,
    );
  };

  await signIn(browser, server, '/gates');
  const { totals, gates } = await server.api('GET', '/api/v1/gates?limit=50');
  assert.equal(totals.gates, GATES);
  assert.equal(gates.length, 50);
  await measure('/gates?sort=key', `${GATES} gates`);
  await browser.see(`of 10,000`);
  await measure('/operations?state=available', `${OPERATIONS} operations`);
  await browser.see('100,000');
  await isQuiet(browser);
});
