// What every test of a page does: start a browser, sign in, and look at the page as people with
// other screens, themes and aids do.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { openBrowser } from './browser.mjs';

/** Text that must appear as text wherever it comes from. */
export const HOSTILE = '<script>window.ran=1</script><img src=x onerror=window.ran=1>';
export const BIDI = '\u202etxt.exe';
export const LONG = 'x'.repeat(10_000);

/**
 * Runs a test with a browser and a temporary folder, and ends everything that it started.
 * @param {(test: { browser: Awaited<ReturnType<typeof openBrowser>>, folder: string, ends: (thing: { stop(): unknown }) => any }) => Promise<void>} test
 */
export async function withBrowser(test) {
  const folder = mkdtempSync(join(tmpdir(), 'console-'));
  const browser = await openBrowser(join(folder, 'profile'));
  const started = [];
  const ends = (thing) => (started.push(thing), thing);
  try {
    await browser.view(1280, 900);
    await test({ browser, folder, ends });
  } finally {
    await browser.close();
    for (const thing of started.reverse()) await thing.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Opens a page of the console by the address that the server prints. */
export async function signIn(browser, server, path = '/') {
  const join = path.includes('?') ? '&' : '?';
  await browser.go(`${server.origin}${path}${join}token=${server.token}`);
  await browser.waitFor('return document.querySelector("main h1") !== null', 'a heading');
  assert.doesNotMatch(await browser.url(), /token/);
}

/**
 * Checks the present page at all widths and in both themes: nothing is cut or wider than the
 * window, and axe-core finds nothing serious. Stores a picture of each, if they are wanted.
 */
export async function looksRight(browser, name) {
  for (const [width, scheme] of [[1280, 'light'], [1280, 'dark'], [390, 'light'], [390, 'dark'], [320, 'light']]) {
    await browser.view(width, 900, scheme);
    await browser.run('return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))');
    await browser.picture(`${name}-${width}-${scheme}`);
    assert.deepEqual(await browser.wide(), [], `${name} at ${width} px`);
    if (width !== 320) assert.deepEqual(await browser.violations(), [], `${name} at ${width} px, ${scheme}`);
  }
  await browser.view(1280, 900);
}

/** Nothing foreign has run, and the browser has nothing to complain about. */
export async function isQuiet(browser, allowed = []) {
  assert.equal(await browser.run('return window.ran ?? null'), null);
  const log = (await browser.log()).filter((line) => !allowed.some((part) => line.includes(part)));
  assert.deepEqual(log, []);
}
