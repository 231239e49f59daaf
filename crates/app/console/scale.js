// Axes with few, round marks.

import { MISSING } from './format.js';

/** @typedef {{ at: number, label: string }} Mark */

/**
 * An axis of values from 0 to slightly above `max`, with four to six round marks, or three and
 * more for `minSteps` 2. It ends at a multiple of half a step, so that it does not change with
 * every value.
 * @param {number} max
 * @param {number} minSteps
 * @returns {{ top: number, marks: Mark[] }}
 */
export function valueAxis(max, minSteps = 3) {
  const needed = (Number.isFinite(max) && max > 0 ? max : 1) * 1.04;
  const step = stepFor(needed, minSteps);
  const top = (Math.ceil((needed / step) * 2 - 1e-9) * step) / 2;
  const count = Math.floor(top / step + 1e-9);
  const marks = Array.from({ length: count + 1 }, (_, index) => index * step);
  return { top, marks: marks.map((at) => ({ at, label: axisNumber(at) })) };
}

/**
 * The largest round step that fits so often.
 * @param {number} needed
 * @param {number} times
 */
function stepFor(needed, times) {
  const power = 10 ** Math.floor(Math.log10(needed / times));
  const steps = [10, 5, 4, 2, 1].map((factor) => factor * power);
  return steps.find((step) => needed / step >= times - 1e-9) ?? power;
}

/** How long an axis stays too long, so that it does not change back and forth. */
const SHRINK_AFTER_MS = 30_000;

/**
 * The end of an axis over time: it grows at once and shrinks only when all values of 30 s need
 * less.
 */
export function createStickyTop() {
  let top = 0;
  let lowSince = NaN;
  let needed = 0;

  return {
    /**
     * @param {number} max highest value shown
     * @param {number} nowMs
     * @returns {number} a maximum for `valueAxis`
     */
    fit(max, nowMs) {
      const wanted = valueAxis(max).top;
      if (wanted >= top) {
        [top, lowSince] = [wanted, NaN];
      } else if (Number.isNaN(lowSince)) {
        [lowSince, needed] = [nowMs, wanted];
      } else {
        needed = Math.max(needed, wanted);
        if (nowMs - lowSince >= SHRINK_AFTER_MS) [top, lowSince] = [needed, NaN];
      }
      // The inverse of what `valueAxis` adds.
      return top / 1.04;
    },
  };
}

/**
 * Clock times on round seconds or minutes.
 * @param {number} fromMs
 * @param {number} toMs
 * @param {number} maxCount
 * @returns {Mark[]}
 */
export function clockAxis(fromMs, toMs, maxCount) {
  const least = (toMs - fromMs) / Math.max(1, maxCount);
  const step = CLOCK_STEPS_S.map((s) => s * 1000).find((ms) => ms >= least) ?? 86_400_000;
  /** @type {Mark[]} */
  const marks = [];
  for (let at = Math.ceil(fromMs / step) * step; at <= toMs; at += step) {
    const date = new Date(at);
    const parts = [date.getHours(), date.getMinutes()];
    if (step < 60_000) parts.push(date.getSeconds());
    marks.push({ at, label: parts.map((part) => String(part).padStart(2, '0')).join(':') });
  }
  return marks;
}

const CLOCK_STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600];

/**
 * Seconds, minutes or hours since 0, as in the report of a simulation.
 * @param {number} endMs
 * @param {number} maxCount
 * @returns {Mark[]}
 */
export function elapsedAxis(endMs, maxCount) {
  const end = Math.max(endMs / 1000, 1e-3);
  const [unitS, unit] = end <= 600 ? [1, 's'] : end <= 36_000 ? [60, 'min'] : [3600, 'h'];
  const least = end / Math.max(1, maxCount);
  const step = least <= 10 ? roundUp(least) : CLOCK_STEPS_S.find((s) => s >= least) ?? 43_200;
  const count = Math.floor(end / step + 1e-9);
  return Array.from({ length: count + 1 }, (_, index) => {
    const at = index * step;
    return { at: at * 1000, label: `${axisNumber(at / unitS)} ${unit}` };
  });
}

/**
 * The smallest of 1, 2, 5, 10, 20, 50 … that is not below a value.
 * @param {number} value
 */
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 5].find((factor) => factor * power >= value * (1 - 1e-9)) ?? 10) * power;
}

/**
 * A round number without superfluous zeros, with separated thousands.
 * @param {number} value
 */
export function axisNumber(value) {
  if (!Number.isFinite(value)) return MISSING;
  return value.toLocaleString('en', { maximumSignificantDigits: 4 });
}
