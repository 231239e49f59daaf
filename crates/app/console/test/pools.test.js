import assert from 'node:assert/strict';
import { test } from 'node:test';

import { endpointStates } from '../badge.js';
import { repeated } from '../views/add_endpoint.js';
import { detailOf, isLastEnabled, isPaused } from '../views/endpoint.js';
import { ruleOf, shownOf, summaryOf } from '../views/pools.js';

/** @typedef {import('../types.js').Endpoint} Endpoint */

const NOW = 1_000_000;

/**
 * @param {Partial<Endpoint>} [changes]
 * @returns {Endpoint}
 */
const endpoint = (changes = {}) => ({
  name: 'a',
  url: 'https://a.example.com',
  key: 'llm/a',
  enabled: true,
  paused_until_ms: null,
  pause_started_ms: null,
  consecutive_errors: 0,
  last_error: null,
  recovering: false,
  disabled_reason: null,
  disabled_kind: null,
  disabled_at_ms: null,
  in_flight: 0,
  ...changes,
});

const protection = {
  enabled: true,
  pauses: ['30s', '60s', '120s', '300s', '600s'],
  disable_after: 5,
  unreachable: false,
  show_test_tool: false,
  probing_after: 20,
  statuses: [429, 503],
  texts: ['rate limit'],
};

/** @param {Endpoint[]} endpoints */
const pool = (...endpoints) => ({ name: 'llm', balance: 'least_loaded', protection, configured: protection, changed: false, endpoints });

const paused = endpoint({ paused_until_ms: NOW + 107_000, consecutive_errors: 3, last_error: 'HTTP 429' });
const words = (/** @type {Endpoint} */ each, now = NOW) => endpointStates(each, now).map((state) => state.word);

test('shows pause, error count and last error only while paused', () => {
  assert.deepEqual(words(paused), ['Paused', '3 errors']);
  const { steps, ...why } = detailOf(pool(paused), paused, NOW);
  assert.deepEqual(why, { title: 'Last error', error: 'HTTP 429', until: NOW + 107_000 });
  assert.equal(steps?.text, '3 of 5 until disabled');

  const end = NOW + 107_000;
  assert.equal(isPaused(paused, end - 1), true);
  assert.equal(isPaused(paused, end), false, 'the end itself is over');
  assert.deepEqual(words(paused, end), ['Recovering']);
  assert.deepEqual(detailOf(pool(paused), paused, end), { note: 'One request at a time until one succeeds.' });

  assert.deepEqual(words(endpoint()), ['Active']);
  assert.deepEqual(detailOf(pool(), endpoint(), NOW), {});
});

test('says why an endpoint is disabled, without a pause', () => {
  const byErrors = endpoint({ enabled: false, paused_until_ms: NOW + 9000, consecutive_errors: 5, last_error: 'HTTP 503', disabled_kind: 'errors', disabled_reason: '5 errors in a row', disabled_at_ms: 7 });
  assert.deepEqual(words(byErrors), ['Disabled']);
  const why = detailOf(pool(byErrors), byErrors, NOW);
  assert.equal(why.title, 'Disabled after 5 errors in a row');
  assert.equal(why.error, 'HTTP 503');
  assert.equal(why.steps?.text, '5 of 5 errors in a row');
  assert.equal(why.until, undefined);

  const byQuota = endpoint({ enabled: false, disabled_kind: 'quota_exhausted', disabled_reason: 'its quota is used up' });
  assert.equal(detailOf(pool(byQuota), byQuota, NOW).title, 'Disabled: its quota is used up');
  assert.equal(detailOf(pool(byQuota), byQuota, NOW).steps, null);

  const byPerson = endpoint({ enabled: false, disabled_kind: 'person', disabled_reason: 'disabled by a person', disabled_at_ms: 7, last_error: 'HTTP 503' });
  assert.deepEqual(detailOf(pool(byPerson), byPerson, NOW), { title: 'Disabled by a person', at: 7, isQuiet: true });
});

test('finds the last enabled endpoint', () => {
  const [a, b] = [endpoint(), endpoint({ name: 'b', enabled: false })];
  assert.equal(isLastEnabled(pool(a, b), 'a'), true);
  assert.equal(isLastEnabled(pool(a, b), 'b'), false);
  assert.equal(isLastEnabled(pool(a, { ...b, enabled: true }), 'a'), false);
});

test('sums up pools in a line', () => {
  assert.equal(summaryOf([pool(endpoint(), paused, endpoint({ enabled: false }))], NOW), '1 pool · 3 endpoints · 1 paused · 1 disabled');
  assert.equal(summaryOf([pool(endpoint()), pool()], NOW), '2 pools · 1 endpoint');
});

test('shows the first of many endpoints and those that are not active', () => {
  const many = Array.from({ length: 9 }, (_, at) => endpoint({ name: String(at), enabled: at < 4 || at % 2 === 0 }));
  const names = (/** @type {number} */ max) => shownOf(many, max).map(({ name }) => name).join('');
  assert.equal(names(3), '012' + '57');
  assert.equal(names(1), '05', 'no more than as many again');
  assert.equal(names(9), '012345678');
});

test('says how a pool uses its endpoints', () => {
  assert.equal(ruleOf(pool()), 'least loaded · protection on · pauses 30s, 1m, 2m, 5m, 10m · disabled after 5 errors in a row');
  const short = { ...protection, disable_after: 1 };
  assert.equal(ruleOf({ balance: 'first', protection: short }), 'first · protection on · pauses 30s · disabled after one error');
  assert.equal(ruleOf({ balance: 'round_robin', protection: { ...protection, enabled: false } }), 'round robin · protection off');
});

test('finds a header that was typed twice', () => {
  const header = (/** @type {string} */ name) => ({ name, value: 'env:A' });
  assert.equal(repeated([header('a'), header('b')]), null);
  assert.equal(repeated([header('a'), header('b'), header('a')]), 'a');
});
