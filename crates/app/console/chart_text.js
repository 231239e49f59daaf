// What a chart says in words: the sentence that names it, values at an instant, its periods, and
// its rows as a table.

import { clockTime, MISSING } from './format.js';
import { axisNumber } from './scale.js';
import { visible } from './text.js';

/**
 * @typedef {object} Band a period during which a state was in force
 * @property {'held' | 'open' | 'half_open' | 'isolated'} state
 * @property {number} from_ms
 * @property {number | null} [to_ms] null while it lasts
 * @property {string | null} [source]
 */

/**
 * @typedef {object} Data
 * @property {number} start_ms
 * @property {number} step_ms
 * @property {Record<string, Float32Array>} values
 * @property {Band[]} bands
 */

/**
 * How a chart writes its times and values.
 * @typedef {object} Words
 * @property {(ms: number) => string} time
 * @property {(value: number) => string} value
 */

/** Seconds since the start, for charts without clock times. @param {number} ms */
export const elapsed = (ms) => `${axisNumber(ms / 1000)} s`;
export const clock = clockTime;

/** @param {Band} band */
export const wordOf = ({ state }) => state.replace('_', '-');

/** How old the last value may be to be the present one, in points. */
const MAX_AGE = 5;
/** Periods in the line below a plot. */
const MAX_LISTED = 6;
const MAX_ROWS = 180;
const ROW_MS = 5000;

/**
 * The index of the last value up to an instant; -1 if there is none.
 * @param {Float32Array} values
 * @param {number} last
 */
export function lastIndex(values, last = values.length - 1) {
  let index = Math.min(last, values.length - 1);
  while (index >= 0 && Number.isNaN(values[index])) index -= 1;
  return index;
}

/**
 * The present value of a series; NaN if the last one is too old.
 * @param {Data} data
 * @param {string} name
 * @param {number} now
 */
export function presentValue({ start_ms, step_ms, values }, name, now) {
  const line = values[name] ?? new Float32Array();
  const index = lastIndex(line);
  const isOld = now - (start_ms + index * step_ms) > MAX_AGE * Math.max(step_ms, 1000);
  return index < 0 || isOld ? NaN : line[index];
}

/**
 * The sentence that names a chart: `Rate of llm/a, last 5 min: rate between 6.00/s and 52.0/s, now
 * 41.8/s; held since 18:42:08`.
 * @param {string} title
 * @param {string[]} names
 * @param {Data} data
 * @param {number} from
 * @param {number} to
 * @param {Words & { isLive: boolean }} words
 */
export function sentence(title, names, data, from, to, words) {
  const span = words.isLive ? `last ${axisNumber((to - from) / 60_000)} min` : elapsed(to - from);
  const parts = names.flatMap((name) => {
    const shown = (data.values[name] ?? new Float32Array()).filter((value, index) =>
      !Number.isNaN(value) && data.start_ms + index * data.step_ms >= from);
    if (shown.length === 0) return [];
    shown.sort();
    const [low, high] = [shown[0], shown[shown.length - 1]].map(words.value);
    const now = valueText(words, presentValue(data, name, to));
    const range = low === high ? low : `between ${low} and ${high}`;
    return `${name} ${range}, ${words.isLive ? 'now' : 'at the end'} ${now}`;
  });
  const lasting = data.bands.filter((band) => isIn(band, to)).map((band) => inForce(band, words));
  const all = [...parts, ...lasting];
  return `${visible(title)}, ${span}: ${all.length > 0 ? all.join('; ') : 'no values'}`;
}

/**
 * @param {Words} words
 * @param {number} value
 */
export function valueText(words, value) {
  return Number.isNaN(value) ? MISSING : words.value(value);
}

/**
 * Whether a period covers an instant.
 * @param {Band} band
 * @param {number} at
 */
function isIn({ from_ms, to_ms }, at) {
  return from_ms <= at && (to_ms ?? Infinity) > at;
}

/**
 * What was in force at an instant: `held until 18:43:22, retry-after`.
 * @param {Band[]} bands
 * @param {number} at
 * @param {Words} words
 */
export function inForceAt(bands, at, words) {
  return bands.filter((band) => isIn(band, at)).map((band) => inForce(band, words)).join('; ');
}

/**
 * @param {Band} band
 * @param {Words} words
 */
function inForce(band, { time }) {
  const { from_ms, to_ms, source } = band;
  const until = to_ms == null ? `since ${time(from_ms)}` : `until ${time(to_ms)}`;
  return `${wordOf(band)} ${until}${source ? `, ${visible(source)}` : ''}`;
}

/**
 * The line below a plot: `held 18:38:36–18:39:30 (retry-after) · open since 18:40:32`.
 * @param {Band[]} bands
 * @param {number} from
 * @param {number} to
 * @param {Words} words
 */
export function bandList(bands, from, to, { time }) {
  const shown = bands.filter(({ from_ms, to_ms }) => from_ms <= to && (to_ms ?? Infinity) >= from);
  shown.sort((a, b) => a.from_ms - b.from_ms);
  const listed = shown.slice(-MAX_LISTED).map((band) => {
    const { from_ms, to_ms, source } = band;
    const lasts = to_ms == null || to_ms > to;
    const until = to_ms == null ? '' : ` until ${time(to_ms)}`;
    const when = lasts ? `since ${time(from_ms)}${until}` : `${time(from_ms)}–${time(to_ms)}`;
    return `${wordOf(band)} ${when}${source ? ` (${visible(source)})` : ''}`;
  });
  const earlier = shown.length - listed.length;
  return (earlier > 0 ? [`${earlier} earlier`, ...listed] : listed).join(' · ');
}

/**
 * Rows of the table, newest first, one for every 5 s or more: time, the last value of each series
 * since the row before, and what was in force.
 * @param {string[]} names
 * @param {Data} data
 * @param {number} from
 * @param {number} to
 * @param {Words} words
 * @returns {string[][]}
 */
export function tableRows(names, data, from, to, words) {
  const step = Math.max(ROW_MS, Math.ceil((to - from) / MAX_ROWS / ROW_MS) * ROW_MS);
  const last = data.start_ms + lastPoint(names, data) * data.step_ms;
  /** @type {string[][]} */
  const rows = [];
  for (let at = Math.floor(Math.min(to, last) / step) * step; at >= from; at -= step) {
    const index = Math.floor((at - data.start_ms) / data.step_ms);
    const oldest = Math.floor((at - step - data.start_ms) / data.step_ms);
    if (index < 0) break;
    const cells = names.map((name) => {
      const line = data.values[name] ?? new Float32Array();
      const found = lastIndex(line, index);
      return found > oldest && found >= 0 ? valueText(words, line[found]) : MISSING;
    });
    rows.push([words.time(at), ...cells, inForceAt(data.bands, at, words) || MISSING]);
    if (rows.length === MAX_ROWS) break;
  }
  return rows;
}

/**
 * @param {string[]} names
 * @param {Data} data
 */
function lastPoint(names, { values }) {
  return Math.max(-1, ...names.map((name) => lastIndex(values[name] ?? new Float32Array())));
}
