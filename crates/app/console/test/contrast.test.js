import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import assert from 'node:assert/strict';

const css = readFileSync(new URL('../tokens.css', import.meta.url), 'utf8');

/** @typedef {Record<string, string>} Tokens */

/**
 * The declarations of the block that follows a selector.
 * @param {string} selector
 * @returns {Tokens}
 */
function tokensOf(selector) {
  const start = css.indexOf(`${selector} {`);
  assert(start >= 0, selector);
  const block = css.slice(css.indexOf('{', start), css.indexOf('}', start));
  const pairs = [...block.matchAll(/--([\w-]+): ([^;]+);/g)];
  return Object.fromEntries(pairs.map(([, name, value]) => [name, value]));
}

const light = tokensOf(':root');
const dark = tokensOf(':root[data-theme="dark"]');
const themes = { light, dark: { ...light, ...dark } };

/**
 * Linear red, green and blue.
 * @param {string} colour as `#rrggbb`
 */
function channels(colour) {
  assert.match(colour, /^#[0-9a-f]{6}$/);
  return [1, 3, 5].map((at) => {
    const channel = parseInt(colour.slice(at, at + 2), 16) / 255;
    return channel <= 0.04045 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4;
  });
}

/**
 * Relative luminance of WCAG 2.
 * @param {string} colour
 */
function luminance(colour) {
  const [red, green, blue] = channels(colour);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/**
 * Lightness in OKLab, which colour blindness changes little.
 * @param {string} colour
 */
function lightness(colour) {
  const [red, green, blue] = channels(colour);
  const long = Math.cbrt(0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue);
  const medium = Math.cbrt(0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue);
  const short = Math.cbrt(0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue);
  return 0.2104542553 * long + 0.793617785 * medium - 0.0040720468 * short;
}

/**
 * @param {string} one
 * @param {string} other
 */
function contrast(one, other) {
  const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

const AA_TEXT = 4.5;
const AA_GRAPHICS = 3;

/** Foregrounds, what they stand on, and the least contrast. */
const PAIRS = /** @type {[string[], string[], number][]} */ ([
  [['text', 'muted', 'accent'], ['surface', 'bg', 'sunken', 'hover', 'selected'], AA_TEXT],
  [['on-accent'], ['accent', 'accent-hover'], AA_TEXT],
  [['on-fill'], ['bad-fill', 'off-fill'], AA_TEXT],
  [['on-pause'], ['pause-fill'], AA_TEXT],
  ...['ok', 'info', 'hold', 'bad', 'probe', 'off'].map((name) =>
    [[name], [`${name}-bg`, 'surface', 'hover', 'selected'], AA_TEXT]),
  [['pause'], ['surface', 'bg'], AA_TEXT],
  [['text', 'muted'], ['ok-bg', 'info-bg', 'hold-bg', 'bad-bg', 'probe-bg', 'off-bg'], AA_TEXT],
  // The names at the ends of lines have the colours of the lines.
  [['c-rate', 'c-accepted', 'c-refused', 'c-failed', 'c-capacity', 'c-held', 'c-open', 'c-half',
    'c-isolated'], ['surface'], AA_TEXT],
  // The word on a band.
  [['surface'], ['c-held', 'c-open', 'c-half', 'c-isolated'], AA_TEXT],
  [['control', 'focus'], ['surface', 'bg'], AA_GRAPHICS],
]);

for (const [theme, tokens] of Object.entries(themes)) {
  test(`all pairs of the ${theme} theme have the contrast of WCAG AA`, () => {
    for (const [foregrounds, backgrounds, least] of PAIRS) {
      for (const foreground of foregrounds) {
        for (const background of backgrounds) {
          const ratio = contrast(tokens[foreground], tokens[background]);
          const pair = `${foreground} on ${background}: ${ratio.toFixed(2)}`;
          assert(ratio >= least, `${pair}, expected at least ${least}`);
        }
      }
    }
  });
}

test('the badges of a paused endpoint differ in lightness', () => {
  for (const tokens of Object.values(themes)) {
    const distance = lightness(tokens['pause-fill']) - lightness(tokens['bad-fill']);
    assert(distance >= 0.16, distance.toFixed(2));
  }
});

test('contrast is computed as in WCAG 2', () => {
  assert.equal(contrast('#000000', '#ffffff'), 21);
  assert.equal(contrast('#777777', '#ffffff').toFixed(2), '4.48');
});

test('the system theme has the same values as the chosen one', () => {
  assert.deepEqual(tokensOf(':root:not([data-theme="light"])'), dark);
});

test('the dark theme sets every colour', () => {
  const isColour = (/** @type {string} */ name) => /#|rgb/.test(light[name]);
  assert.deepEqual(Object.keys(light).filter(isColour), Object.keys(dark));
});
