// Opens a report in Chromium through ChromeDriver, and checks what only a browser can tell.
//
// Usage: node report_page.mjs REPORT.html FOLDER
// FOLDER is for the browser's profile. Pictures are stored in the folder that PICTURES names, if it is set.

import assert from 'node:assert/strict';
import { pathToFileURL } from 'node:url';

import { openBrowser } from '../console/browser.mjs';

const [page, folder] = process.argv.slice(2);
const browser = await openBrowser(folder);
const { run, view, picture } = browser;

const column = (table, index) =>
  run('return [...document.querySelectorAll(`#${arguments[0]} tbody tr`)].filter((row) => !row.hidden).map((row) => row.cells[arguments[1]].textContent)', table, index);

try {
  await view(1280, 900, 'light');
  await browser.go(pathToFileURL(page).href);
  assert.match(await run('return document.title'), /^Report: /);

  // Foreign text is text.
  assert.equal(await run('return document.querySelectorAll("script").length'), 1);
  assert.equal(await run('return document.querySelectorAll("img, iframe, object, link, base, form").length'), 0);
  assert.equal(await run('return window.ran'), null);
  const text = await run('return document.body.textContent');
  assert.ok(text.includes('<script>window.ran = 1</script>'), 'hostile title');
  assert.ok(text.includes('⟨U+202E⟩'), 'direction of text');

  // Sorting, by click and by keyboard.
  const latencies = async () => (await column('table-slowest', 1)).map((cell) => Number(cell.replace(/[^\d]/g, '')));
  const slowest = await latencies();
  assert.deepEqual(slowest, [...slowest].sort((one, other) => other - one));
  const header = (index) => `#table-slowest th:nth-child(${index + 1})`;
  assert.equal(await run(`return document.querySelector("${header(1)}").getAttribute("aria-sort")`), 'descending');
  await run(`document.querySelector("${header(1)} button").click()`);
  assert.equal(await run(`return document.querySelector("${header(1)}").getAttribute("aria-sort")`), 'ascending');
  assert.deepEqual(await latencies(), [...slowest].reverse());
  await run(`document.querySelector("${header(0)} button").focus()`);
  await browser.keys('\uE007');
  const urls = await column('table-slowest', 0);
  assert.deepEqual(urls, [...urls].sort());
  assert.equal(await run(`return document.querySelector("${header(1)}").getAttribute("aria-sort")`), null);

  // The filter.
  const all = (await column('table-broken', 0)).length;
  await run('const input = document.querySelector("#broken input"); input.value = "MISSING-1"; input.dispatchEvent(new Event("input"))');
  const left = await column('table-broken', 0);
  assert.ok(left.length > 0 && left.length < all && left.every((url) => url.includes('missing-1')), left.join());
  assert.match(await run('return document.querySelector("#broken output").textContent'), / match$/);
  await run('const input = document.querySelector("#broken input"); input.value = ""; input.dispatchEvent(new Event("input"))');

  // Nothing but rows of chips is wider than the window, at any width; plots are drawn.
  const background = () => run('return getComputedStyle(document.body).backgroundColor');
  const overflow = `
    const wide = [...document.querySelectorAll('body *')].filter((element) => {
      const box = element.getBoundingClientRect();
      return box.width > 0 && box.right > document.documentElement.clientWidth + 1 && !element.closest('svg, caption, thead, .contents');
    });
    return [document.documentElement.scrollWidth - document.documentElement.clientWidth, ...wide.slice(0, 5).map((element) => element.outerHTML.slice(0, 200))]`;
  const seen = new Set();
  for (const [width, scheme] of [[1280, 'light'], [1280, 'dark'], [390, 'light'], [390, 'dark'], [320, 'light']]) {
    await view(width, 900, scheme);
    assert.deepEqual(await run(overflow), [0], `${width} px`);
    const plots = 'return [...document.querySelectorAll("#hosts details[open] svg")].filter((plot) => plot.getBoundingClientRect().width > 200).length';
    assert.ok((await run(plots)) >= 3, `plots at ${width} px`);
    const size = 'return Math.min(...[...document.querySelectorAll("svg text")].map((text) => text.getBoundingClientRect().height).filter((height) => height > 0))';
    assert.ok((await run(size)) >= 9, `text of plots at ${width} px`);
    seen.add(await background());
    await picture(`report-${width}-${scheme}`);
  }
  assert.deepEqual([...seen].sort(), ['rgb(18, 22, 28)', 'rgb(246, 248, 250)']);
  await view(1280, 900, 'dark');
  const text_colour = 'return getComputedStyle(document.querySelector("h1")).color';
  assert.equal(await run(text_colour), 'rgb(227, 232, 238)');

  // Neither errors nor violations of the page's policy.
  assert.deepEqual(await browser.log(), []);
} finally {
  await browser.close();
}
