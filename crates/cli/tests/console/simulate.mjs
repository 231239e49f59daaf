// Simulate: a shipped scenario, other numbers, another strategy beside it, problems, a gate's settings.

import assert from 'node:assert/strict';

import { isQuiet, looksRight, signIn, withBrowser } from './page.mjs';
import { startMock, startServer } from './server.mjs';

await withBrowser(async ({ browser, folder, ends }) => {
  const mock = ends(await startMock(folder));
  const server = ends(await startServer(folder, `[pool.llm]\nendpoints = [{ name = "a", url = "${mock.url}" }]\n`));
  await (await server.send('/llm/x')).text();
  await signIn(browser, server, '/simulate');
  await browser.see('Choose a scenario and press Run.');
  const options = await browser.run('return [...document.querySelectorAll("#scenario option")].map((option) => option.value)');
  assert.ok(options.length >= 8, options.join());

  // Another number is a change, and a wrong one is refused at its field.
  await browser.type('[name="upstream.rate"]', 'fast');
  await browser.see(', changed');
  await browser.click('button', 'Run');
  await browser.see('fast: expected');
  await browser.type('[name="upstream.rate"]', '50');
  await browser.click('button', 'Run');
  await browser.waitFor('return document.querySelectorAll("main canvas").length >= 2', 'plots');
  await browser.see('of what was possible');
  await browser.see('tidegate simulate');
  await looksRight(browser, 'simulate');

  // A long run is cancelled; what was shown stays.
  await browser.type('[name="duration"]', '3600s');
  await browser.type('[name="client[0].count"]', '50');
  await browser.click('button', 'Run');
  await browser.click('button', 'Cancel');
  await browser.waitFor('return [...document.querySelectorAll("button")].some((button) => button.textContent === "Cancel" && button.hidden)', 'no run');
  assert.ok(await browser.has('main canvas'));

  // The present settings of a gate.
  await browser.go(`${server.origin}/simulate?gate=llm/a`);
  await browser.waitFor('return document.querySelector("#gate")?.value === "llm/a" && document.querySelector("[name=\\"upstream.rate\\"]") !== null', 'the settings of the gate');
  await browser.click('button', 'Run');
  await browser.waitFor('return document.querySelectorAll("main canvas").length >= 2', 'plots');
  await browser.go(`${server.origin}/simulate?gate=none.example`);
  await browser.see('there is no gate');
  await isQuiet(browser, ['404', '422']);
});
