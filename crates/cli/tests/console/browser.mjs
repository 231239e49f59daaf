// Chromium through ChromeDriver (WebDriver): pages, clicks, keys, pictures, the browser's log.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

/** After this time a step counts as failed; long, because the machine may be busy. */
const TIMEOUT = 30_000;

const ELEMENT = 'element-6066-11e4-a52e-4f735466cecf';

/** Finds an element by a CSS selector and, optionally, its text or accessible name. */
const FIND = `
  const [selector, name] = arguments;
  const label = (element) => {
    const by = element.getAttribute('aria-labelledby');
    const text = by ? by.split(' ').map((id) => document.getElementById(id)?.textContent ?? '').join(' ') : element.textContent;
    return (element.getAttribute('aria-label') ?? text).trim();
  };
  const shown = (element) => element.getClientRects().length > 0;
  const dialogs = document.querySelectorAll('dialog[open]');
  const scope = dialogs.length > 0 ? dialogs[dialogs.length - 1] : document;
  const all = [...scope.querySelectorAll(selector)].filter(shown);
  return (name === null ? all[0] : all.find((element) => label(element) === name) ?? all.find((element) => label(element).startsWith(name))) ?? null;`;

/**
 * Starts a browser of its own.
 * @param {string} folder For its profile.
 */
export async function openBrowser(folder) {
  const driver = spawn('chromedriver', ['--port=0'], { stdio: ['ignore', 'pipe', 'inherit'] });
  const gone = once(driver, 'exit');
  const port = await new Promise((resolve, reject) => {
    driver.on('error', reject);
    driver.on('exit', () => reject(new Error('chromedriver has ended')));
    createInterface({ input: driver.stdout }).on('line', (line) => {
      const found = /started successfully on port (\d+)/.exec(line);
      if (found) resolve(found[1]);
    });
  });

  async function call(path, body, method = 'POST') {
    const response = await fetch(`http://127.0.0.1:${port}/session${path}`, {
      method,
      body: method === 'POST' ? JSON.stringify(body ?? {}) : undefined,
    });
    const { value } = await response.json();
    if (!response.ok) throw new Error(`${path}: ${value?.message}`);
    return value;
  }

  const { sessionId } = await call('', {
    capabilities: {
      alwaysMatch: {
        'goog:loggingPrefs': { browser: 'ALL' },
        // The sandbox does not work for root, and the pages are our own.
        'goog:chromeOptions': {
          args: ['--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--host-resolver-rules=MAP *.test 127.0.0.1', `--user-data-dir=${folder}`],
        },
      },
    },
  });
  const session = (path, body, method) => call(`/${sessionId}${path}`, body, method);
  const devtools = (cmd, params) => session('/goog/cdp/execute', { cmd, params: params ?? {} });
  const run = (script, ...args) => session('/execute/sync', { script, args });

  /** Waits until a script returns something true, and returns it. */
  async function waitFor(script, what, ...args) {
    const end = Date.now() + TIMEOUT;
    for (;;) {
      const value = await run(script, ...args);
      if (value) return value;
      if (Date.now() > end) {
        const page = await run('return location.href + "\\n" + document.body.innerText');
        throw new Error(`never: ${what}\n${page.slice(0, 4000)}`);
      }
      await sleep(20);
    }
  }

  /** The element that is found by a selector and its name, once it is there. */
  const find = (selector, name = null) => waitFor(FIND, `${selector} ${name ?? ''}`, selector, name);

  const browser = {
    session,
    devtools,
    run,
    waitFor,
    find,

    go: (url) => session('/url', { url }),
    back: () => session('/back', {}),
    reload: () => session('/refresh', {}),
    url: () => run('return location.href'),
    has: async (selector, name = null) => (await run(FIND, selector, name)) !== null,

    /** Waits until the page shows a text; a string, or the source of a regular expression. */
    see: (text) =>
      waitFor(
        'const [text, isPattern] = arguments; const page = document.body.innerText; return isPattern ? new RegExp(text).test(page) : page.includes(text)',
        `the text ${text}`,
        text instanceof RegExp ? text.source : text,
        text instanceof RegExp,
      ),

    /** Waits until the page shows a text no more. */
    miss: (text) => waitFor('return !document.body.innerText.includes(arguments[0])', `no text ${text}`, text),

    text: async (selector) => run('return arguments[0].innerText', await find(selector)),

    /** Clicks as a person does: the element has to be visible and not covered. A row that was replaced meanwhile is looked up again. */
    async click(selector, name = null) {
      for (let attempt = 0; ; attempt += 1) {
        const element = await find(selector, name);
        try {
          // Not below the bar at the top.
          await run('arguments[0].scrollIntoView({ block: "center" })', element);
          return await session(`/element/${element[ELEMENT]}/click`, {});
        } catch (error) {
          if (attempt === 20) throw error;
          await sleep(50);
        }
      }
    },

    /** Replaces what an input has. */
    async type(selector, text, name = null) {
      const element = await find(selector, name);
      await run('arguments[0].focus(); arguments[0].select()', element);
      // What is selected is replaced; Backspace removes it.
      await session(`/element/${element[ELEMENT]}/value`, { text: text || '\uE003' });
    },

    /** Presses keys, one after the other. */
    async keys(...keys) {
      const actions = keys.flatMap((value) => [{ type: 'keyDown', value }, { type: 'keyUp', value }]);
      await session('/actions', { actions: [{ type: 'key', id: 'keyboard', actions }] });
    },

    /** Sets the size of the window and the theme of the system. */
    async view(width, height, scheme = 'light', motion = 'no-preference') {
      await devtools('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, mobile: width < 720 });
      const features = [
        { name: 'prefers-color-scheme', value: scheme },
        { name: 'prefers-reduced-motion', value: motion },
      ];
      await devtools('Emulation.setEmulatedMedia', { features });
    },

    /** Stores a picture of the whole page, if pictures are wanted. */
    async picture(name) {
      const folder = process.env.PICTURES;
      if (!folder) return;
      const { data } = await devtools('Page.captureScreenshot', { captureBeyondViewport: true });
      writeFileSync(`${folder}/${name}.png`, Buffer.from(data, 'base64'));
    },

    /** Elements that are wider than the window, which only rows that scroll may be. */
    wide: () =>
      run(`
        const scrolls = (element) => element.closest('.chips, nav, pre, .scrolls, caption, thead, .unseen, .skip');
        const wide = [...document.querySelectorAll('body *')].filter((element) => {
          const box = element.getBoundingClientRect();
          return box.width > 0 && box.right > document.documentElement.clientWidth + 1 && !scrolls(element);
        });
        const over = document.documentElement.scrollWidth - document.documentElement.clientWidth;
        return [...(over > 0 ? [String(over)] : []), ...wide.slice(0, 5).map((element) => element.outerHTML.slice(0, 200))]`),

    /** Serious and critical findings of axe-core in the present page. */
    async violations() {
      const path = process.env.AXE;
      assert.ok(path, 'AXE names the file axe.min.js');
      await run(readFileSync(path, 'utf8') + '; window.axe = axe; return true');
      const found = await session('/execute/async', {
        script: `
          const done = arguments[arguments.length - 1];
          axe.run(document, { resultTypes: ['violations'] }).then(
            ({ violations }) => done(violations.filter(({ impact }) => impact === 'serious' || impact === 'critical').map(({ id, nodes }) => id + ': ' + nodes.map((node) => node.html.slice(0, 160) + ' ' + (node.any[0]?.message ?? '')).join(' | '))),
            (error) => done(['axe failed: ' + error]),
          );`,
        args: [],
      });
      return found;
    },

    /** What the browser logged since the last call: errors, refusals by the content policy, lines of scripts. */
    log: async () => (await session('/se/log', { type: 'browser' })).map(({ level, message }) => `${level} ${message}`),

    async close() {
      await call(`/${sessionId}`, undefined, 'DELETE');
      driver.kill();
      await gone;
    },
  };
  return browser;
}
