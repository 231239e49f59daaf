// Points of charts: a ring that stores the last minutes of several series, and their reduction to
// what a screen can show. A missing point is NaN and leaves a gap in the line.

/** @typedef {ArrayLike<number | null>} Values with null or NaN where nothing was recorded */

/**
 * Points at equal distances; the first is at `start_ms`.
 * @typedef {object} Samples
 * @property {number} start_ms
 * @property {number} step_ms
 * @property {Record<string, Values>} values
 */

/** 15 minutes of points a second apart. */
const MAX_POINTS = 900;
/** How far from its place a point may be, in steps. */
const MAX_JITTER = 0.75;

/**
 * Stores the last points of the named series.
 * @param {string[]} names
 * @param {number} size how many points of each
 */
export function createSeries(names, size = MAX_POINTS) {
  const rings = names.map(() => new Float32Array(size).fill(NaN));
  let stepMs = 1000;
  /** The number of the newest point: its time divided by the step. */
  let newest = -1;

  return { load, append, clear, samples };

  /**
   * Replaces everything by recorded points; those that do not fit are left out, oldest first. What is
   * missing at the end may still come.
   * @param {Samples} recorded
   */
  function load({ start_ms, step_ms, values }) {
    clear();
    stepMs = step_ms;
    const first = Math.round(start_ms / step_ms);
    let count = Math.max(0, ...names.map((name) => values[name]?.length ?? 0));
    while (count > 0 && names.every((name) => Number.isNaN(values[name]?.[count - 1] ?? NaN))) count -= 1;
    for (let index = Math.max(0, count - size); index < count; index += 1) {
      write(first + index, (name) => values[name]?.[index]);
    }
  }

  /**
   * Adds the values at a time. Points between it and the newest are gaps; a time that is a little
   * early or late is that of the next point, so that it neither leaves a gap nor replaces a point.
   * @param {number} atMs
   * @param {Record<string, number | null | undefined>} values
   */
  function append(atMs, values) {
    const place = atMs / stepMs;
    const isNext = newest >= 0 && Math.abs(place - (newest + 1)) < MAX_JITTER;
    write(isNext ? newest + 1 : Math.round(place), (name) => values[name]);
  }

  /**
   * @param {number} point
   * @param {(name: string) => number | null | undefined} valueOf
   */
  function write(point, valueOf) {
    if (!Number.isSafeInteger(point) || point < 0 || point <= newest - size) return;
    if (newest >= 0) {
      const gap = Math.max(newest + 1, point - size + 1);
      for (let missing = gap; missing < point; missing += 1) set(missing, () => NaN);
    }
    set(point, valueOf);
    newest = Math.max(newest, point);
  }

  /**
   * @param {number} point
   * @param {(name: string) => number | null | undefined} valueOf
   */
  function set(point, valueOf) {
    names.forEach((name, index) => {
      rings[index][point % size] = valueOf(name) ?? NaN;
    });
  }

  function clear() {
    for (const ring of rings) ring.fill(NaN);
    newest = -1;
  }

  /**
   * The points of the last `windowMs` before the newest.
   * @param {number} windowMs
   * @returns {Samples}
   */
  function samples(windowMs) {
    const count = newest < 0 ? 0 : Math.min(size, newest + 1, Math.floor(windowMs / stepMs) + 1);
    const first = newest - count + 1;
    /** @type {Record<string, Float32Array>} */
    const values = {};
    names.forEach((name, index) => {
      const line = new Float32Array(count);
      for (let offset = 0; offset < count; offset += 1) {
        line[offset] = rings[index][(first + offset) % size];
      }
      values[name] = line;
    });
    return { start_ms: Math.max(0, first) * stepMs, step_ms: stepMs, values };
  }
}

/**
 * Missing points as NaN.
 * @param {Values} values
 */
export function toFloats(values) {
  if (values instanceof Float32Array) return values;
  const floats = new Float32Array(values.length);
  for (let index = 0; index < floats.length; index += 1) floats[index] = values[index] ?? NaN;
  return floats;
}

/**
 * Reduces the points `from` to `to` (exclusive) to the lowest and the highest of each `width`
 * neighbours, in their order. Groups begin at multiples of `width` after `offset`, so that a line
 * that moves to the left keeps its shape. A group without any value is a gap.
 *
 * @param {Float32Array} values
 * @param {number} from
 * @param {number} to
 * @param {number} width
 * @param {number} offset number of the first value
 * @returns {{ indexes: number[], values: number[] }}
 */
export function reduce(values, from, to, width, offset = 0) {
  /** @type {{ indexes: number[], values: number[] }} */
  const reduced = { indexes: [], values: [] };
  const push = (/** @type {number} */ index) => {
    reduced.indexes.push(index);
    reduced.values.push(values[index]);
  };
  let start = from;
  while (start < to) {
    const end = Math.min(to, start + width - ((start + offset) % width));
    const [low, high] = extremes(values, start, end);
    push(Math.min(low, high));
    if (low !== high) push(Math.max(low, high));
    start = end;
  }
  return reduced;
}

/**
 * Indexes of the lowest and the highest value; both `start` if there is none.
 * @param {Float32Array} values
 * @param {number} start
 * @param {number} end
 */
function extremes(values, start, end) {
  let [low, high] = [start, start];
  for (let index = start; index < end; index += 1) {
    const value = values[index];
    if (Number.isNaN(value)) continue;
    if (!(value >= values[low])) low = index;
    if (!(value <= values[high])) high = index;
  }
  return [low, high];
}
