// The demo's strip: what happens, and where to look.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';

import { isQuiet, looksRight, withBrowser } from './page.mjs';

await withBrowser(async ({ browser, folder, ends }) => {
  const child = spawn(process.env.BINARY, ['demo', '--for', '120s'], { cwd: folder, stdio: ['ignore', 'pipe', 'inherit'] });
  ends({ stop: () => (child.kill('SIGINT'), once(child, 'exit')) });
  const address = await new Promise((resolve, reject) => {
    child.on('exit', () => reject(new Error('the demo has ended')));
    createInterface({ input: child.stdout }).on('line', (line) => {
      const found = /http:\/\/[\d.:]+\/\S*\?token=\w+/.exec(line);
      if (found) resolve(found[0]);
    });
  });
  await browser.go(address);
  await browser.see(/Demo \d of \d/);
  await browser.see('Show me');
  await looksRight(browser, 'demo');
  const link = await browser.run('return document.querySelector("#demo a").getAttribute("href")');
  await browser.click('#demo a');
  await browser.waitFor('return (location.pathname + location.search + location.hash).startsWith(arguments[0].split("#")[0])', `the page ${link}`, link);
  await browser.see(/Demo \d of \d/);
  await isQuiet(browser, ['429', '[Polling]']);
  assert.ok(link);
});
