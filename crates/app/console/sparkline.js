// A small line without axes, for a row of a table: SVG, drawn anew only when its values change.

import { toFloats } from './series.js';

const SVG = 'http://www.w3.org/2000/svg';

/** @typedef {import('./series.js').Values} Values */

/**
 * A line of the given values, oldest first, from 0 to the highest of them. Missing values are
 * gaps. It is decoration for screen readers: the row has the numbers.
 *
 * @param {Values} values
 * @param {{ width?: number, height?: number }} size
 * @returns {SVGSVGElement & { update: (values: Values) => void }}
 */
export function sparkline(values, { width = 96, height = 24 } = {}) {
  const element = document.createElementNS(SVG, 'svg');
  element.setAttribute('class', 'sparkline');
  element.setAttribute('width', String(width));
  element.setAttribute('height', String(height));
  element.setAttribute('viewBox', `0 0 ${width} ${height}`);
  element.setAttribute('aria-hidden', 'true');
  const area = document.createElementNS(SVG, 'path');
  area.setAttribute('class', 'sparkline-area');
  const line = document.createElementNS(SVG, 'path');
  line.setAttribute('class', 'sparkline-line');
  element.append(area, line);

  let shown = '';
  const update = (/** @type {Values} */ next) => {
    const paths = sparkPaths(toFloats(next), width, height);
    if (paths.line === shown) return;
    shown = paths.line;
    line.setAttribute('d', paths.line);
    area.setAttribute('d', paths.area);
  };
  update(values);
  return Object.assign(element, { update });
}

/**
 * The line and the area below it, as paths.
 * @param {Float32Array} values
 * @param {number} width
 * @param {number} height
 */
export function sparkPaths(values, width, height) {
  // Half of the stroke stays inside.
  const [top, bottom] = [1, height - 1];
  const max = values.reduce((highest, value) => (value > highest ? value : highest), 0) || 1;
  const x = (/** @type {number} */ index) => {
    const share = values.length > 1 ? index / (values.length - 1) : 1;
    return tenths(share * width);
  };
  const y = (/** @type {number} */ value) =>
    tenths(bottom - (Math.max(0, value) / max) * (bottom - top));
  let line = '';
  let area = '';
  for (const [from, to] of runs(values)) {
    let points = '';
    for (let index = from; index < to; index += 1) {
      points += `${index === from ? '' : 'L'}${x(index)} ${y(values[index])}`;
    }
    // A single point has a length of 0, which a round end makes visible.
    line += `M${points}${to - from === 1 ? 'h0' : ''}`;
    area += `M${x(from)} ${bottom}L${points}L${x(to - 1)} ${bottom}Z`;
  }
  return { line, area };
}

/**
 * First and last index (exclusive) of each run of values without a gap.
 * @param {Float32Array} values
 * @returns {[from: number, to: number][]}
 */
function runs(values) {
  /** @type {[number, number][]} */
  const found = [];
  let from = -1;
  for (let index = 0; index <= values.length; index += 1) {
    const isGap = index === values.length || Number.isNaN(values[index]);
    if (!isGap && from < 0) from = index;
    if (isGap && from >= 0) {
      found.push([from, index]);
      from = -1;
    }
  }
  return found;
}

/** @param {number} value */
function tenths(value) {
  return Math.round(value * 10) / 10;
}
