import { test } from 'node:test';
import assert from 'node:assert/strict';

import { isEqual, parseJson, writeJson } from '../json.js';

/** @param {string} text */
function parsed(text) {
  const document = parseJson(text);
  assert(document !== undefined, text.slice(0, 100));
  return document;
}

test('documents are written as they were read, but for white space', () => {
  for (const text of ['null', 'true', '-0.50e+07', '"a\\"b"', '[]', '{}', '[1,[2,{"a":{}}]]',
    '{"b":1,"a":12345678901234567890.123456789,"__proto__":{"x":1},"constructor":2}']) {
    assert.equal(writeJson(parsed(text)), text);
    assert.equal(writeJson(parsed(` \n${text}\t\r`)), text);
  }
  assert.equal(writeJson(parsed('{"a":[1,{}],"b":{"c":null}}'), '  '),
    '{\n  "a": [\n    1,\n    {}\n  ],\n  "b": {\n    "c": null\n  }\n}');
});

test('invalid and ambiguous documents are refused', () => {
  for (const text of ['', ' ', 'nul', 'nullx', '01', '1.', '.5', '+1', '1e', '-', 'NaN', '"', '"a',
    '"\\', '"\\x"', '"\n"', '"\\ud800"', '[1', '[1,]', '[,]', '{', '{"a"}', '{"a":}', '{"a":1,}',
    '{a:1}', '{"a":1,"a":2}', '{"a":1 "b":2}', '1 2', '[1]]', '\u00a01', '//x\n1', "'a'"]) {
    assert.equal(parseJson(text), undefined, JSON.stringify(text));
  }
});

test('reads exactly what JSON.parse reads', () => {
  const pieces = ['{', '}', '[', ']', ',', ':', '"a"', '"b"', '1', '-2.5e3', 'null', ' ', '\n', '"\\u0041"'];
  let seed = 1;
  for (let round = 0; round < 20_000; round += 1) {
    let text = '';
    for (let length = 0; length < round % 9; length += 1) {
      seed = (seed * 48_271) % 2_147_483_647;
      text += pieces[seed % pieces.length];
    }
    let expected;
    try {
      expected = JSON.stringify(JSON.parse(text));
    } catch {
      assert.equal(parseJson(text), undefined, text);
      continue;
    }
    const document = parseJson(text);
    if (document !== undefined) {
      assert.equal(JSON.stringify(JSON.parse(writeJson(document))), expected, text);
    } else {
      assert.match(text, /("[ab]"|"\\u0041").*\1|a.*\\u0041|\\u0041.*a/s, text);
    }
  }
});

test('nesting is bounded', () => {
  const nested = (/** @type {number} */ depth) => '['.repeat(depth) + ']'.repeat(depth);
  assert(parseJson(nested(128)) !== undefined);
  assert.equal(parseJson(nested(130)), undefined);
  assert.equal(parseJson('['.repeat(1_000_000)), undefined);
  assert.equal(parseJson('{"a":'.repeat(1_000_000)), undefined);
});

test('long strings and numbers are read', () => {
  const long = JSON.stringify('x"\\'.repeat(1_000_000));
  assert.equal(writeJson(parsed(long)).length, long.length);
  assert(parseJson('1'.repeat(100_000)) !== undefined);
});

test('numbers are equal by value, objects in any order', () => {
  const equal = (/** @type {string} */ one, /** @type {string} */ other) =>
    isEqual(parsed(one), parsed(other));
  for (const [one, other] of [['1', '1.0'], ['-2e3', '-2000'], ['0', '-0.0e9'], ['1e-2', '0.01'],
    ['{"a":1,"b":[2]}', '{"b":[2.0],"a":1}'], ['"\\u0078"', '"x"']]) {
    assert(equal(one, other), `${one} ${other}`);
  }
  for (const [one, other] of [['1', '"1"'], ['1', '-1'], ['12345678901234567890', '12345678901234567891'],
    ['[1,2]', '[2,1]'], ['{"a":null}', '{"b":null}'], ['{}', '[]'], ['null', 'false'],
    ['1e9999999999999999999', '1e9999999999999999998']]) {
    assert(!equal(one, other), `${one} ${other}`);
  }
  assert(isEqual(undefined, undefined));
  assert(!isEqual(undefined, null));
});
