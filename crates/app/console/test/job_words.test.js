import assert from 'node:assert/strict';
import { test } from 'node:test';

import { lineOf, lineProblems, minutesText, pagesText, percent, rangeOfLine, readLines, retainText, stageText } from '../views/job_words.js';

const COUNTS = { total: 530, done: 212, failed: 3, denied: 0, queued: 0, in_flight: 0, retrying: 0, sent: 0, bytes: 0 };

/** @param {Partial<import('../types.js').Job>} change */
function job(change) {
  return /** @type {import('../types.js').Job} */ ({ id: 'job_1', status: 'running', stage: 'extraction', progress: 40, counts: COUNTS, ...change });
}

test('names every stage', () => {
  const stages = ['discovery', 'extraction', 'processing', 'output'];
  assert.deepEqual(stages.map(stageText), ['Finding pages', 'Analyzing content', 'Checking trackers', 'Finalizing report']);
});

test('says how many pages there are, and about how many while they are found', () => {
  assert.equal(pagesText(job({})), '212 of about 530 pages · 3 failed');
  assert.equal(pagesText(job({ stage: 'output', counts: { ...COUNTS, done: 530, failed: 0 } })), '530 of 530 pages');
  assert.equal(pagesText(job({ status: 'done', counts: { ...COUNTS, done: 1, total: 1, failed: 0 } })), '1 of 1 page');
  assert.equal(pagesText(job({ counts: { ...COUNTS, total: 0, done: 0, failed: 0 } })), 'No page is known yet');
  assert.equal(pagesText(job({ status: 'queued' })), 'Waits for its turn: it starts when another job ends');
});

test('rounds progress down, within its bounds', () => {
  assert.deepEqual([-1, 0, 39.9, 99.9, 100, 140].map(percent), [0, 0, 39, 99, 100, 100]);
});

test('writes durations of the settings in words', () => {
  assert.deepEqual(['30d', '1d', '12h'].map(retainText), ['30 days', '1 day', '12h']);
  assert.deepEqual([300_000, 60_000, 90_000].map(minutesText), ['5 minutes', '1 minute', '1m 30s']);
});

test('finds the line of a problem, whatever empty lines are between', () => {
  const text = 'https://a.example/\n\n  ftp://b.example/ \r\nhttps://c.example/';
  const lines = readLines(text);
  assert.deepEqual(lines.map(({ url }) => url), ['https://a.example/', 'ftp://b.example/', 'https://c.example/']);
  assert.equal(lineOf('urls[1]', lines), 3);
  assert.equal(lineOf('urls[2]', lines), 4);
  assert.equal(lineOf('urls[9]', lines), null);
  assert.equal(lineOf('urls', lines), null);
  assert.equal(lineOf('depth', lines), null);
  assert.equal(text.slice(...rangeOfLine(text, 3)), '  ftp://b.example/ \r');
  const problems = [{ field: 'urls[1]', value: null, expected: '`…` cannot be fetched: expected a URL' }, { field: 'urls[2]', value: '10.0.0.1', expected: 'a public address' }, { field: 'depth', value: 'x', expected: 'a number' }];
  assert.deepEqual(lineProblems(problems, lines), [{ line: 3, text: '`ftp://b.example/` cannot be fetched: expected a URL' }, { line: 4, text: '10.0.0.1: expected a public address' }]);
});
