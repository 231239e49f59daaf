import { test } from 'node:test';
import assert from 'node:assert/strict';

import { protectionToml } from '../toml.js';

test('protection settings are a table of the pool', () => {
  const settings = {
    enabled: true, pauses: ['30s', '1m'], disable_after: 5, statuses: [429, 503],
    texts: ['rate limit', 'say "no"\\\n\x7f'],
  };
  assert.equal(protectionToml('llm', settings), `[pool.llm.protection]
enabled = true
pauses = ["30s", "1m"]
disable_after = 5
statuses = [429, 503]
texts = ["rate limit", "say \\"no\\"\\\\\\n\\u007F"]
`);
});

test('names are quoted when needed', () => {
  const header = (/** @type {string} */ pool) => protectionToml(pool, {}).split('\n')[0];
  assert.equal(header('llm-2_b'), '[pool.llm-2_b.protection]');
  assert.equal(header('a.b'), '[pool."a.b".protection]');
  assert.equal(header('größe]'), '[pool."größe]".protection]');
  assert.equal(header(''), '[pool."".protection]');
  assert.equal(header('a"\ud800'), '[pool."a\\"\ufffd".protection]');
});
