import { test } from 'node:test';
import assert from 'node:assert/strict';

import { isEqual, JsonNumber, parseJson, writeJson } from '../json.js';
import { apply, isChanged, MAX_ROWS, rows } from '../merge.js';

/** @typedef {import('../json.js').Json} Json */

/** @param {string} text */
function parsed(text) {
  const document = parseJson(text);
  assert(document !== undefined, text);
  return document;
}

/** @type {(base: string | undefined, ours: string, theirs: string) => import('../merge.js').Row[]} */
const rowsOf = (base, ours, theirs) =>
  rows(base === undefined ? undefined : parsed(base), parsed(ours), parsed(theirs));

/** @param {Json | undefined} value */
const text = (value) => (value === undefined ? undefined : writeJson(value));

test('there is a row for each value, with the change of both sides', () => {
  const found = rowsOf('{"name":"Ada","address":{"zip":"10115","city":"B"}}',
    '{"name":"Ada L.","phone":"+49","address":{"zip":"10115","city":"B"}}',
    '{"name":"A. Lovelace","address":{"city":"B"}}');
  const shown = found.map((row) =>
    [row.pointer, text(row.base), text(row.ours), text(row.theirs), row.change.ours,
      row.change.theirs, row.default]);
  assert.deepEqual(shown, [
    ['/name', '"Ada"', '"Ada L."', '"A. Lovelace"', 'changed', 'changed', null],
    ['/phone', undefined, '"+49"', undefined, 'added', 'same', 'ours'],
    ['/address/zip', '"10115"', '"10115"', undefined, 'same', 'removed', 'theirs'],
    ['/address/city', '"B"', '"B"', '"B"', 'same', 'same', 'ours'],
  ]);
  assert.deepEqual(found.map(isChanged), [true, true, true, false]);
});

// The cases of policy::merge.
const V = '{"a":1,"b":[1,2],"c":{"d":"x","e":null}}';

test('changes of different keys are merged as by the server', () => {
  const check = (/** @type {string} */ ours, /** @type {string} */ theirs, /** @type {string | null} */ expected) => {
    const { document, missing } = apply(rowsOf(V, ours, theirs), new Map());
    assert.equal(missing.length === 0, expected !== null, ours);
    if (expected !== null) assert(isEqual(document, parsed(expected)), text(document) ?? '');
  };
  check('{"a":2,"b":[1,2],"c":{"d":"x","e":null,"f":0}}', '{"a":1,"c":{"d":"y"},"g":true}',
    '{"a":2,"c":{"d":"y","f":0},"g":true}');
  check('{"a":12345678901234567890.123456789,"b":[1,2],"c":{"d":"x","e":null}}',
    '{"a":1,"b":[],"c":{"d":"x","e":null}}',
    '{"a":12345678901234567890.123456789,"b":[],"c":{"d":"x","e":null}}');
  check('{"a":2}', '{"a":3}', null);
  check('{"a":1,"b":[1,2,3]}', '{"a":1,"b":[0,1,2]}', null);
  check('{"a":1}', '{"a":1,"b":[1,2],"c":{}}', null);
  check('{"h":{"i":1}}', '{"h":{"k":1}}', null);
});

test('long numbers are sent as they were written', () => {
  const { document } = apply(rowsOf('{"a":1,"b":1}', '{"a":12345678901234567890,"b":1}', '{"a":1,"b":1.50}'), new Map());
  assert.equal(text(document), '{"a":12345678901234567890,"b":1.50}');
});

test('a choice replaces the default, an edit replaces both', () => {
  const found = rowsOf('{"a":1,"b":1}', '{"a":2,"b":1}', '{"a":3,"b":4}');
  assert.deepEqual(apply(found, new Map()), { document: undefined, missing: ['/a'] });
  const choose = (/** @type {[string, import('../merge.js').Choice][]} */ ...choices) =>
    text(apply(found, new Map(choices)).document);
  assert.equal(choose(['/a', 'theirs']), '{"a":3,"b":4}');
  assert.equal(choose(['/a', 'ours'], ['/b', 'ours']), '{"a":2,"b":1}');
  assert.equal(choose(['/a', { value: new JsonNumber('7') }]), '{"a":7,"b":4}');
  assert.equal(choose(['/a', { value: undefined }]), '{"b":4}');
});

test('without a base every difference needs a choice', () => {
  const found = rowsOf(undefined, '{"a":1,"b":{"c":2}}', '{"a":1,"b":{"c":3}}');
  assert.deepEqual(found.map((row) => [row.pointer, row.change.ours, row.default]),
    [['/a', 'same', 'ours'], ['/b/c', 'unknown', null]]);
});

test('documents that are no objects are one row', () => {
  for (const [base, ours, theirs] of [['1', '2', '3'], ['{}', '[]', '{}'], ['[1]', '[2]', '[3]']]) {
    const found = rowsOf(base, ours, theirs);
    assert.deepEqual(found.map((row) => row.pointer), ['']);
    const { document } = apply(found, new Map([['', 'theirs']]));
    assert.equal(text(document), theirs);
  }
});

test('empty objects stay', () => {
  const result = (/** @type {[string, string, string]} */ ...versions) =>
    text(apply(rowsOf(...versions), new Map()).document);
  assert.equal(result('{"a":{}}', '{"a":{}}', '{"a":{}}'), '{"a":{}}');
  assert.equal(result('{"a":{"b":1}}', '{"a":{}}', '{"a":{}}'), '{"a":{}}');
  assert.equal(result('{}', '{}', '{}'), '{}');
});

test('names with slashes, tildes and names of prototypes are ordinary', () => {
  const document = '{"a/b":{"~c":1},"__proto__":{"x":1},"constructor":2,"":3}';
  const found = rowsOf(document, document, document);
  assert.deepEqual(found.map((row) => row.pointer),
    ['/a~1b/~0c', '/__proto__/x', '/constructor', '/']);
  assert.equal(text(apply(found, new Map()).document), document);
});

test('wide documents are shown in fewer rows and merged all the same', () => {
  const wide = (/** @type {number} */ size) => `{${Array.from({ length: size }, (_, i) => `"k${i}":1`)}}`;
  for (const size of [MAX_ROWS, MAX_ROWS + 1, 50_000]) {
    const document = `{"a":${wide(size)},"b":${wide(300)},"c":${wide(300)},"d":${wide(600)}}`;
    const found = rowsOf(document, document, document);
    assert(found.length <= MAX_ROWS);
    assert(isEqual(apply(found, new Map()).document, parsed(document)));
  }
  const deep = '{"a":'.repeat(128) + '1' + '}'.repeat(128);
  assert.equal(rowsOf(deep, deep, deep)[0].path.length, 128);
});

test('one changed side wins, and the same change on both sides is no conflict', () => {
  const leaves = ['null', 'true', '1', '1.0', '-2e3', '"x"', '[1]', '{}'];
  let seed = 7;
  const random = (/** @type {number} */ below) => {
    seed = (seed * 48_271) % 2_147_483_647;
    return seed % below;
  };
  /** @type {(depth: number) => string} */
  const document = (depth) => {
    if (depth === 0 || random(3) === 0) return leaves[random(leaves.length)];
    const names = ['a', 'b', 'c', 'd'].filter(() => random(2) === 0);
    return `{${names.map((name) => `"${name}":${document(depth - 1)}`)}}`;
  };
  for (let round = 0; round < 2000; round += 1) {
    const [base, changed] = [document(3), document(3)];
    for (const versions of /** @type {[string, string, string][]} */ (
      [[base, changed, base], [base, base, changed], [base, changed, changed]])) {
      const merged = apply(rowsOf(...versions), new Map());
      assert(isEqual(merged.document, parsed(changed)), `${versions}`);
    }
  }
});
