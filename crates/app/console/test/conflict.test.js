import assert from 'node:assert/strict';
import { test } from 'node:test';
import { JsonNumber, parseJson } from '../json.js';
import { rows } from '../merge.js';
import { summaryOf, versionsOf } from '../views/conflict.js';
import { nameOf, resultOf } from '../views/conflict_fields.js';
import { textResult } from '../views/conflict_text.js';

test('reads the versions of a response with their numbers as written', () => {
  const versions = versionsOf('{"base":null,"ours":{"n":12345678901234567890},"theirs":{"n":1.50},"fetched_ms":1700000000000}');
  assert.equal(versions.base, undefined);
  assert.equal(/** @type {any} */ (versions.ours).get('n').text, '12345678901234567890');
  assert.equal(versions.fetchedMs, 1_700_000_000_000);
});

test('reads ambiguous documents as texts', () => {
  const { ours, theirs } = versionsOf('{"base":null,"ours":{"a":1,"a":2},"theirs":"x","fetched_ms":1}');
  assert.deepEqual([typeof ours, theirs], ['string', 'x']);
});

test('says how many fields differ', () => {
  assert.equal(summaryOf(9, 3, 1), '3 of 9 fields differ, 1 on both sides.');
  assert.equal(summaryOf(9, 1, 0), '1 of 9 fields differs, none on both sides.');
  assert.equal(summaryOf(3, 3, null), '3 of 3 fields differ, and the base is not known.');
});

test('names fields by path, and by pointer where a path would be ambiguous', () => {
  assert.equal(nameOf(['address', 'zip']), 'address.zip');
  assert.equal(nameOf(['a.b', 'c/d']), '/a.b/c~1d');
  assert.equal(nameOf(['\u202Ex']), '/⟨U+202E⟩x');
  assert.equal(nameOf([]), 'whole document');
});

test('has a result once every field of both sides is chosen', () => {
  const [base, ours, theirs] = ['{"a":1,"b":1}', '{"a":2,"b":1}', '{"a":3,"b":4}'].map(parseJson);
  const all = rows(base, /** @type {any} */ (ours), /** @type {any} */ (theirs));
  assert.equal(resultOf(all, new Map(), new Set()).why, 'A field changed on both sides has no default: choose one.');
  assert.equal(resultOf(all, new Map([['/a', 'ours']]), new Set()).body, '{"a":2,"b":4}');
  const edited = new Map([['/a', { value: new JsonNumber('7') }]]);
  assert.equal(resultOf(all, edited, new Set()).body, '{"a":7,"b":4}');
  assert.deepEqual(resultOf(all, edited, new Set(['/a'])), { body: null, why: 'One edit is no JSON.' });
});

test('sends a typed result as JSON, or as a string where the body is none', () => {
  assert.deepEqual(textResult('{"a": 1.0}', true), { body: '{"a":1.0}', why: '' });
  assert.deepEqual(textResult('{"a": ', true), { body: null, why: 'The result is no valid JSON.' });
  assert.deepEqual(textResult('a "b"\n', false), { body: '"a \\"b\\"\\n"', why: '' });
  assert.equal(textResult('', false).body, null);
});
