import assert from 'node:assert/strict';
import { test } from 'node:test';

import { figureRows, highest, percentage, runText, samplesOf } from '../views/figures.js';

/** @returns {import('../views/figures.js').Run} */
const run = (figures = {}, series = {}) => ({
  strategy: 'adaptive',
  figures,
  series: { start_s: 0, step_s: 1, ...series },
  bands: [{ state: 'held', from_s: 2, to_s: 3.5 }, { state: 'open', from_s: 4, to_s: null }],
});

test('little is not nothing, and much is not everything', () => {
  assert.deepEqual([0, 0.0004, 0.002, 0.935, 0.9996, 1].map(percentage), ['0.0 %', '< 0.1 %', '0.2 %', '93.5 %', '> 99.9 %', '100.0 %']);
});

test('a run in one sentence', () => {
  assert.equal(runText(run({ goodput_ratio: 0.935, refused_ratio: 0.002 })), '93.5 % of what was possible was accepted, 0.2 % refused');
  assert.equal(runText(run({ goodput_ratio: null, accepted: 1200, refused_ratio: null })), '1,200 requests were accepted');
});

test('figures that apply to no run are left out, and each run has its column', () => {
  const rows = figureRows([
    run({ sent: 31_000, jain: null, outages: [{ sent: 3, recovery_s: 1.25 }], steps: [{ at_s: 60, settle_s: null }] }),
    run({ sent: 500, mean_latency_ms: 71, outages: [{ sent: 900, recovery_s: null }], steps: [{ at_s: 60, settle_s: 2 }] }),
  ]);
  assert.deepEqual(rows, [
    { label: 'Requests sent', values: ['31,000', '500'] },
    { label: 'Latency from 60 s on, mean', values: ['–', '71 ms'] },
    { label: 'Sent during outage 1', values: ['3', '900'] },
    { label: 'After outage 1, until 90 % was used', values: ['1.3 s', 'never'] },
    { label: 'After the step at 60 s, until 90 % was used', values: ['never', '2.0 s'] },
  ]);
});

test('plots have the same scale, which a rate far above the capacity does not raise', () => {
  const runs = [run({}, { capacity: [100, 20], rate: [95, null] }), run({}, { capacity: [100, 20], rate: [120, 5000] })];
  assert.equal(highest(runs, ['capacity', 'rate']), 200);
  assert.equal(highest(runs.slice(0, 1), ['capacity', 'rate']), 100);
  assert.equal(highest(runs, ['rate']), 5000);
  assert.equal(highest([], ['rate']), 0);
});

test('charts get milliseconds, and no values for series that a run lacks', () => {
  assert.deepEqual(samplesOf(run({}, { accepted: [1, 2], latency_ms: [null, 70] }), ['accepted', 'rate', 'latency']), {
    start_ms: 0,
    step_ms: 1000,
    values: { accepted: [1, 2], rate: [], latency: [null, 70] },
    bands: [{ state: 'held', from_ms: 2000, to_ms: 3500 }, { state: 'open', from_ms: 4000, to_ms: null }],
  });
});
