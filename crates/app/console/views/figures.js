// Figures of simulated runs: their names and meanings, as text, and what plots have in common.

import { count, latency, MISSING } from '../format.js';

/**
 * @typedef {Record<string, any>} Figures As `tidegate simulate --json` writes them.
 * @typedef {object} Run
 * @property {string} strategy
 * @property {Figures} figures
 * @property {{ start_s: number, step_s: number } & Record<string, any>} series
 * @property {{ state: 'held' | 'open' | 'half_open' | 'isolated', from_s: number, to_s: number | null }[]} bands
 */

/** @param {number} value */
const seconds = (value) => `${value.toFixed(1)} s`;
/** @param {number} value */
const index = (value) => value.toFixed(3);

/**
 * A part of 1 in per cent with a tenth. Little is not shown as nothing, much not as everything.
 * @param {number} value
 */
export function percentage(value) {
  if (value > 0 && value < 0.001) return '< 0.1 %';
  if (value > 0.999 && value < 1) return '> 99.9 %';
  return `${(100 * value).toFixed(1)} %`;
}

/** @type {[name: string, label: string, text: (value: number) => string][]} */
const FIGURES = [
  ['goodput_ratio', 'Accepted, of what was possible', percentage],
  ['goodput_ratio_settled', 'The same from 60 s on', percentage],
  ['refused_ratio', 'Refused, of what was sent', percentage],
  ['sent', 'Requests sent', count],
  ['accepted', 'Accepted (2xx, 3xx)', count],
  ['refused', 'Refused (429, 403, 503)', count],
  ['failed', 'Failed otherwise', count],
  ['early_after_hint', 'Sent before the end of a named wait', count],
  ['bans', 'Bans by the upstream', count],
  ['breaker_opened', 'Breaker opened', count],
  ['max_queue', 'Longest queue at the upstream', count],
  ['time_to_90_s', 'Until 90 % of the capacity was used', seconds],
  ['mean_latency_ms', 'Latency from 60 s on, mean', latency],
  ['p99_latency_ms', 'Latency from 60 s on, 99th percentile', latency],
  ['jain', 'Fairness among clients (1 is equal)', index],
  ['peak_ratio', 'Most sent in 10 s, of what the bucket allows', percentage],
  ['store_calls_per_request', 'Calls to the store of a fleet per request', index],
];

/**
 * A row for every figure that applies to a run, with a value for each.
 * @param {Run[]} runs
 * @returns {{ label: string, values: string[] }[]}
 */
export function figureRows(runs) {
  const rows = FIGURES.map(([name, label, text]) => row(runs, label, (figures) => figures[name], text, MISSING));
  const most = (/** @type {string} */ list) => Math.max(0, ...runs.map(({ figures }) => figures[list]?.length ?? 0));
  for (let at = 0; at < most('outages'); at += 1) {
    rows.push(row(runs, `Sent during outage ${at + 1}`, (figures) => figures.outages?.[at]?.sent, count, MISSING));
    rows.push(row(runs, `After outage ${at + 1}, until 90 % was used`, (figures) => figures.outages?.[at]?.recovery_s, seconds, 'never'));
  }
  for (let at = 0; at < most('steps'); at += 1) {
    const from = runs.map(({ figures }) => figures.steps?.[at]?.at_s).find((value) => value !== undefined);
    rows.push(row(runs, `After the step at ${from} s, until 90 % was used`, (figures) => figures.steps?.[at]?.settle_s, seconds, 'never'));
  }
  return rows.filter(({ values }) => values.some((value) => value !== MISSING));
}

/**
 * @param {Run[]} runs
 * @param {string} label
 * @param {(figures: Figures) => number | null | undefined} of
 * @param {(value: number) => string} text
 * @param {string} none
 */
function row(runs, label, of, text, none) {
  const values = runs.map(({ figures }) => {
    const value = of(figures);
    return typeof value === 'number' ? text(value) : none;
  });
  return { label, values };
}

/**
 * A run in one sentence.
 * @param {Run} run
 */
export function runText({ figures }) {
  const { goodput_ratio: goodput, refused_ratio: refused } = figures;
  const accepted = typeof goodput === 'number' ? `${percentage(goodput)} of what was possible was accepted` : `${count(figures.accepted)} requests were accepted`;
  return typeof refused === 'number' ? `${accepted}, ${percentage(refused)} refused` : accepted;
}

/**
 * The highest value of some series in all runs: their plots have the same scale. A rate far above
 * what is possible does not flatten the rest.
 * @param {Run[]} runs
 * @param {string[]} names
 */
export function highest(runs, names) {
  const top = (/** @type {string[]} */ of) => {
    let max = 0;
    for (const { series } of runs) {
      for (const name of of) for (const value of valuesOf(series, name)) if (value !== null && value > max) max = value;
    }
    return max;
  };
  const needed = top(names.filter((name) => name !== 'rate'));
  const all = top(names);
  return needed > 0 ? Math.min(all, 2 * needed) : all;
}

/**
 * The values of `latency` are those of `latency_ms`.
 * @param {Run['series']} series
 * @param {string} name
 * @returns {(number | null)[]}
 */
const valuesOf = (series, name) => series[name] ?? series[`${name}_ms`] ?? [];

/**
 * A run as charts show it.
 * @param {Run} run
 * @param {string[]} names
 */
export function samplesOf({ series, bands }, names) {
  return {
    start_ms: series.start_s * 1000,
    step_ms: series.step_s * 1000,
    values: Object.fromEntries(names.map((name) => [name, valuesOf(series, name)])),
    bands: bands.map(({ state, from_s: from, to_s: to }) => ({ state, from_ms: from * 1000, to_ms: to === null ? null : to * 1000 })),
  };
}
