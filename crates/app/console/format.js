// Numbers, durations and times as text. What is missing is shown as `–`, never as 0.
//
// The same words as in the command line: a duration is in whole seconds rounded up, so that a
// countdown never ends early.

export const MISSING = '–';

/** @typedef {number | null | undefined} Maybe */

/**
 * Whether there is a number to show.
 * @param {Maybe} value
 * @returns {value is number}
 */
function has(value) {
  return typeof value === 'number' && Number.isFinite(value);
}

/**
 * Requests per second with three digits: `210/s`, `41.8/s`, `2.00/s`; below 0.1/s per minute.
 * @param {Maybe} perSecond
 */
export function rate(perSecond) {
  if (!has(perSecond)) return MISSING;
  const size = Math.abs(perSecond);
  if (size === 0) return '0.0/s';
  if (size >= 0.1) return `${threeDigits(perSecond)}/s`;
  const perMinute = size * 60;
  if (perMinute < 0.1) return '<0.1/min';
  return `${(perSecond * 60).toFixed(1)}/min`;
}

/**
 * A whole number: `12,480`, from a million `1.24 M`.
 * @param {Maybe} number
 */
export function count(number) {
  if (!has(number)) return MISSING;
  if (Math.abs(number) >= 999_999.5) return `${threeDigits(number / 1e6)} M`;
  return thousands(Math.round(number));
}

/**
 * A share from 0 to 1 in percent: `0 %`, `<1 %`, `41 %`, `>99 %`. Only nothing is 0 %, and only
 * everything is 100 %.
 * @param {Maybe} part
 */
export function share(part) {
  if (!has(part)) return MISSING;
  if (part > 0 && part < 0.01) return '<1 %';
  if (part > 0.99 && part < 1) return '>99 %';
  return `${Math.round(part * 100)} %`;
}

/**
 * A measured time: `8.4 ms`, `640 ms`, `5,012 ms`, from 10 s `12.3 s`.
 * @param {Maybe} ms
 */
export function latency(ms) {
  if (!has(ms)) return MISSING;
  if (ms >= 9_999.5) return `${(ms / 1000).toFixed(1)} s`;
  return ms < 9.95 ? `${ms.toFixed(1)} ms` : `${thousands(Math.round(ms))} ms`;
}

/**
 * A wait, pause, hold or delay in whole seconds, rounded up: `45s`, `2m`, `2m 30s`, `60m`. What is
 * over is `0s`.
 * @param {Maybe} ms
 */
export function duration(ms) {
  if (!has(ms)) return MISSING;
  const total = wholeSeconds(ms);
  const [minutes, seconds] = [Math.floor(total / 60), total % 60];
  if (minutes === 0) return `${seconds}s`;
  return seconds === 0 ? `${minutes}m` : `${minutes}m ${seconds}s`;
}

/**
 * In whole seconds, rounded up.
 * @param {number} ms
 */
export function wholeSeconds(ms) {
  return Math.max(0, Math.ceil(ms / 1000));
}

/**
 * Reads a duration in the format of settings: numbers with units, as in `500ms`, `90s`, `1m30s`,
 * `2.5s`, `1d`. Null if it is not one, or not below 584 years.
 * @param {string} text
 * @returns {number | null} milliseconds
 */
export function parseDuration(text) {
  if (text.length > 100 || !/^\s*([\d.]+[a-z]+\s*)+$/.test(text)) return null;
  let total = 0;
  for (const [, number, unit] of text.matchAll(/([\d.]+)([a-z]+)/g)) {
    if (!/^(\d+\.?\d*|\.\d+)$/.test(number) || !(unit in UNITS_MS)) return null;
    total += Number(number) * UNITS_MS[unit];
  }
  return total <= MAX_DURATION_MS ? total : null;
}

/** @type {Record<string, number>} */
const UNITS_MS = Object.assign(Object.create(null), {
  ns: 1e-6, us: 1e-3, ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000,
});
/** The range of the server's clock, in nanoseconds. */
const MAX_DURATION_MS = 2 ** 64 / 1e6;

/**
 * A local time: `18:42:10`, on another day than `now` `14 Nov 18:42`, in another year
 * `14 Nov 2025 18:42`.
 * @param {Maybe} ms Unix time
 * @param {number} now Unix time in milliseconds
 */
export function instant(ms, now) {
  const date = dateOf(ms);
  if (!date) return MISSING;
  const today = new Date(now);
  if (date.toDateString() === today.toDateString()) return clockTime(ms);
  const isThisYear = date.getFullYear() === today.getFullYear();
  const year = isThisYear ? '' : ` ${date.getFullYear()}`;
  const time = clockTime(ms).slice(0, 5);
  return `${date.getDate()} ${MONTHS[date.getMonth()]}${year} ${time}`;
}

/**
 * The local time of the day: `18:42:10`.
 * @param {Maybe} ms Unix time
 */
export function clockTime(ms) {
  const date = dateOf(ms);
  if (!date) return MISSING;
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map(twoDigits).join(':');
}

/**
 * The full form, for titles: `2026-11-14 18:42:10.250 +01:00`.
 * @param {Maybe} ms Unix time
 */
export function dateTime(ms) {
  const date = dateOf(ms);
  if (!date) return MISSING;
  const day = [date.getFullYear(), twoDigits(date.getMonth() + 1), twoDigits(date.getDate())];
  const offset = -date.getTimezoneOffset();
  const [hours, minutes] = [Math.floor(Math.abs(offset) / 60), Math.abs(offset) % 60];
  const zone = `${offset < 0 ? '-' : '+'}${twoDigits(hours)}:${twoDigits(minutes)}`;
  const millis = String(date.getMilliseconds()).padStart(3, '0');
  return `${day.join('-')} ${clockTime(ms)}.${millis} ${zone}`;
}

/**
 * For the attribute `datetime` of `<time>`; empty if there is no time.
 * @param {Maybe} ms Unix time
 */
export function isoTime(ms) {
  return dateOf(ms)?.toISOString() ?? '';
}

/**
 * Number and unit apart, where the unit is shown smaller: `['41.8', '/s']`, `['640', ' ms']`.
 * @param {string} text
 * @returns {[number: string, unit: string]}
 */
export function splitUnit(text) {
  const end = text.search(/[ /]/);
  return end < 0 ? [text, ''] : [text.slice(0, end), text.slice(end)];
}

const MONTHS =
  ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];

/**
 * @param {Maybe} ms
 * @returns {Date | null}
 */
function dateOf(ms) {
  const date = new Date(has(ms) ? ms : NaN);
  return Number.isNaN(date.getTime()) ? null : date;
}

/** @param {number} number */
function twoDigits(number) {
  return String(number).padStart(2, '0');
}

/**
 * `9.996` is `10.0`, not `10.00`: the digits are counted after rounding.
 * @param {number} number
 */
function threeDigits(number) {
  const size = Math.abs(number);
  if (size >= 99.95) return thousands(Math.round(number));
  return number.toFixed(size >= 9.995 ? 1 : 2);
}

/** @param {number} whole */
function thousands(whole) {
  return String(whole).replace(/\B(?=(\d{3})+$)/g, ',');
}
