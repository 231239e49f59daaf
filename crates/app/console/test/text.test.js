import { test } from 'node:test';
import assert from 'node:assert/strict';

import { isHttpUrl, visible } from '../text.js';

test('ordinary text stays as it is', () => {
  for (const text of ['', 'llm/a', '<script>alert(1)</script>', 'größe 漢字 עברית 😀', 'a\u0301']) {
    assert.equal(visible(text), text);
  }
});

test('bidi, control and invisible characters become visible', () => {
  assert.equal(visible('a\u202eb'), 'a⟨U+202E⟩b');
  for (const code of [0, 7, 9, 10, 0x1b, 0x7f, 0x85, 0xad, 0x200b, 0x200f, 0x2028, 0x2066, 0xfeff,
    0xe0041, 0xd800, 0x3164]) {
    const shown = visible(String.fromCodePoint(code));
    assert.equal(shown, `⟨U+${code.toString(16).toUpperCase().padStart(4, '0')}⟩`);
  }
});

test('details keep line breaks and tabs', () => {
  assert.equal(visible('a\n\tb\r', 100, { lines: true }), 'a\n\tb⟨U+000D⟩');
});

test('stacked combining marks become visible after the fourth', () => {
  assert.equal(visible('a' + '\u0301'.repeat(5)), 'a' + '\u0301'.repeat(4) + '⟨U+0301⟩');
});

test('long text is cut between characters', () => {
  assert.equal(visible('abcdef', 6), 'abcdef');
  assert.equal(visible('abcdefg', 6), 'abcde…');
  assert.equal(visible('😀😀😀', 3), '😀😀😀');
  assert.equal(visible('😀😀😀😀', 3), '😀😀…');
  assert.equal(visible('ab\u202ecdef', 12), 'ab⟨U+202E⟩c…');
  assert.equal(visible('ab\u202ecdef', 10), 'ab…');
  assert.equal(Array.from(visible('\0'.repeat(1e6))).length <= 200, true);
  assert.equal(visible('x'.repeat(1e7)).length, 200);
});

test('only plain web addresses become links', () => {
  for (const url of ['http://a.example/', 'https://a.example:8443/x?y#z', 'HTTPS://A.EXAMPLE']) {
    assert.equal(isHttpUrl(url), true, url);
  }
  for (const url of ['', '/x', '//a', 'javascript:alert(1)', 'data:text/html,x', 'https:a',
    ' https://a', 'https://', 'https://good.example@evil.example/', 'https://a\u202e/',
    'https://a/ b', 'java\nscript:x', 'ftp://a', 'https://a/\n']) {
    assert.equal(isHttpUrl(url), false, url);
  }
});
