// Draws a chart on a canvas: grid, periods, areas, lines, names at line ends, and the instant that
// is read. All charts of one width have the same margins, so that their time axes line up.

import { wordOf } from './chart_text.js';
import { spread } from './labels.js';
import { reduce } from './series.js';

/** @typedef {import('./chart_text.js').Band} Band */
/** @typedef {import('./chart_text.js').Data} Data */
/** @typedef {import('./scale.js').Mark} Mark */

/**
 * @typedef {object} Line
 * @property {string} name
 * @property {string} color `rate` is the CSS variable `--c-rate`
 * @property {boolean} [dashed]
 * @property {boolean} [area] filled down to zero
 */

/**
 * @typedef {object} Plot
 * @property {Data} data
 * @property {Line[]} lines
 * @property {number} from
 * @property {number} to
 * @property {{ top: number, marks: Mark[] }} axis
 * @property {Mark[]} times
 * @property {string} unit
 * @property {{ line: Line, text: string, value: number }[]} names at the ends of lines
 * @property {string} note at the right above the plot
 * @property {string} message instead of lines, if there are none
 * @property {number | null} at the instant that is read
 */

/**
 * @typedef {object} Frame the area between the axes, in CSS pixels
 * @property {number} left
 * @property {number} right
 * @property {number} top
 * @property {number} bottom
 * @property {number} lane height of the periods' words below it
 */

const FONT_PX = 12;
const LINE_PX = 1.75;
const LANE_PX = 15;
/** Margins: left, right, top, bottom; narrow ones for phones. */
const WIDE = [62, 108, 22, 24];
const NARROW = [48, 26, 22, 24];
const MIN_BAND_PX = 1.5;
/** @type {Record<Band['state'], string>} */
const BAND_COLORS = { held: 'held', open: 'open', half_open: 'half', isolated: 'isolated' };
/** Where periods overlap, the later in this list is seen. */
const BAND_ORDER = ['held', 'half_open', 'open', 'isolated'];

/**
 * @param {number} width of the whole chart
 * @param {number} height of the area between the axes
 * @param {boolean} hasLane
 * @param {boolean} isNarrow
 * @returns {Frame & { height: number }}
 */
export function frameOf(width, height, hasLane, isNarrow) {
  const [left, right, top, bottom] = isNarrow ? NARROW : WIDE;
  const lane = hasLane ? LANE_PX + 2 : 0;
  return {
    left, right: Math.max(left + 1, width - right), top, bottom: top + height, lane,
    height: top + height + lane + bottom,
  };
}

/**
 * Reads the colours and the font of the theme.
 * @param {Element} element
 * @returns {(name: string) => string}
 */
export function readPalette(element) {
  const style = getComputedStyle(element);
  /** @type {Map<string, string>} */
  const known = new Map();
  return (name) => {
    const color = known.get(name) ?? style.getPropertyValue(`--${name}`).trim();
    known.set(name, color);
    return color;
  };
}

/**
 * @param {CanvasRenderingContext2D} context in CSS pixels
 * @param {Frame} frame
 * @param {Plot} plot
 * @param {(name: string) => string} palette
 */
export function drawPlot(context, frame, plot, palette) {
  const { left, right, top, bottom } = frame;
  const { data, from, to } = plot;
  const x = (/** @type {number} */ ms) => left + ((ms - from) / (to - from)) * (right - left);
  const y = (/** @type {number} */ value) => bottom - (value / plot.axis.top) * (bottom - top);
  context.font = `${FONT_PX}px ${palette('font')}`;
  context.textBaseline = 'middle';
  context.lineJoin = 'round';

  drawGrid();
  context.save();
  context.beginPath();
  context.rect(left, top - 2, right - left, bottom - top + 3);
  context.clip();
  drawWashes();
  for (const line of plot.lines) drawLine(line);
  context.restore();
  stroke([[left, bottom + 0.5], [right, bottom + 0.5]], palette('axis'), 1);
  if (frame.lane > 0) drawLane();
  drawNames();
  if (plot.message) write(plot.message, (left + right) / 2, (top + bottom) / 2, 'center');
  if (plot.at !== null) drawCrosshair(plot.at);

  function drawGrid() {
    for (const { at, label } of plot.axis.marks) {
      const height = Math.round(y(at)) + 0.5;
      stroke([[left, height], [right, height]], palette('grid'), 1);
      write(label, left - 8, height, 'right');
    }
    for (const { at, label } of plot.times) {
      const across = Math.round(x(at)) + 0.5;
      stroke([[across, top], [across, bottom]], palette('grid'), 1);
      write(label, across, bottom + frame.lane + 14, 'center');
    }
    write(plot.unit, left, 9, 'left');
    write(plot.note, right, 9, 'right');
  }

  /** @param {(band: Band, start: number, width: number, color: string) => void} draw */
  function eachBand(draw) {
    for (const state of BAND_ORDER) {
      for (const band of data.bands) {
        if (band.state !== state || band.from_ms > to || (band.to_ms ?? to) < from) continue;
        const start = Math.max(left, x(band.from_ms));
        const end = Math.min(right, x(band.to_ms ?? to));
        const width = Math.max(MIN_BAND_PX, end - start);
        draw(band, Math.min(start, right - width), width, palette(`c-${BAND_COLORS[band.state]}`));
      }
    }
  }

  function drawWashes() {
    eachBand((_band, start, width, color) => {
      context.globalAlpha = 0.12;
      context.fillStyle = color;
      context.fillRect(start, top, width, bottom - top);
      context.globalAlpha = 1;
    });
  }

  function drawLane() {
    const height = frame.lane - 2;
    const lower = bottom + 2;
    eachBand((band, start, width, color) => {
      context.fillStyle = color;
      context.fillRect(start, lower, width, height);
      context.save();
      context.beginPath();
      context.rect(start, lower, width, height);
      context.clip();
      context.fillStyle = context.strokeStyle = palette('surface');
      if (band.state === 'held') hatch(start, lower, width, height);
      if (band.state === 'half_open') dot(start, lower, width, height);
      const word = wordOf(band);
      const room = context.measureText(word).width + 10;
      if (width >= room) {
        context.fillStyle = color;
        context.fillRect(start + (width - room) / 2, lower, room, height);
        write(word, start + width / 2, lower + height / 2 + 0.5, 'center', palette('surface'));
      }
      context.restore();
    });
  }

  /** @type {(start: number, lower: number, width: number, height: number) => void} */
  function hatch(start, lower, width, height) {
    context.lineWidth = 1;
    context.globalAlpha = 0.45;
    context.beginPath();
    // The pattern is fixed to the axis, so that it does not crawl with a period's start.
    for (let at = Math.floor((start - height) / 6) * 6; at < start + width; at += 6) {
      context.moveTo(at, lower + height);
      context.lineTo(at + height, lower);
    }
    context.stroke();
    context.globalAlpha = 1;
  }

  /** @type {(start: number, lower: number, width: number, height: number) => void} */
  function dot(start, lower, width, height) {
    context.globalAlpha = 0.6;
    for (let at = Math.floor(start / 5) * 5; at < start + width; at += 5) {
      for (let down = 3; down < height; down += 5) context.fillRect(at, lower + down, 1.5, 1.5);
    }
    context.globalAlpha = 1;
  }

  /** @param {Line} line */
  function drawLine({ name, color, dashed, area }) {
    const stroked = palette(`c-${color}`);
    for (const points of runsOf(name)) {
      if (area) {
        context.globalAlpha = color === 'capacity' ? 0.16 : 0.18;
        context.fillStyle = stroked;
        context.beginPath();
        context.moveTo(points[0][0], bottom);
        for (const [across, height] of points) context.lineTo(across, height);
        context.lineTo(points[points.length - 1][0], bottom);
        context.fill();
        context.globalAlpha = 1;
      }
      const dash = !dashed ? [] : color === 'capacity' ? [4, 3] : [5, 3];
      stroke(points, stroked, color === 'capacity' && area ? 1 : LINE_PX, dash);
    }
  }

  /**
   * Points of a series in view, in runs without a gap.
   * @param {string} name
   * @returns {[number, number][][]}
   */
  function runsOf(name) {
    const values = data.values[name] ?? new Float32Array();
    const { start_ms, step_ms } = data;
    const first = Math.max(0, Math.floor((from - start_ms) / step_ms));
    const last = Math.min(values.length, Math.ceil((to - start_ms) / step_ms) + 1);
    const perPixel = (last - first) / Math.max(1, right - left);
    const reduced = reduce(values, first, Math.max(first, last), Math.max(1, Math.ceil(perPixel)),
      Math.round(start_ms / step_ms));
    /** @type {[number, number][][]} */
    const runs = [];
    let isGap = true;
    reduced.values.forEach((value, index) => {
      if (Number.isNaN(value)) {
        isGap = true;
        return;
      }
      if (isGap) runs.push([]);
      isGap = false;
      runs[runs.length - 1].push([x(start_ms + reduced.indexes[index] * step_ms), y(value)]);
    });
    return runs;
  }

  function drawNames() {
    const named = plot.names.map(({ line, text, value }) => ({
      text, color: palette(`c-${line.color}`), height: y(Math.min(value, plot.axis.top)),
    }));
    named.sort((a, b) => a.height - b.height);
    const heights = spread(named.map(({ height }) => height), top, bottom - 4);
    named.forEach(({ text, color }, index) => {
      write(text, right + 8, heights[index], 'left', color, WIDE[1] - 8);
    });
  }

  /** @param {number} at */
  function drawCrosshair(at) {
    const across = Math.round(x(at)) + 0.5;
    if (across < left || across > right + 1) return;
    stroke([[across, top], [across, bottom + frame.lane]], palette('muted'), 1);
    const index = Math.round((at - data.start_ms) / data.step_ms);
    for (const { name, color } of plot.lines) {
      const value = data.values[name]?.[index] ?? NaN;
      if (Number.isNaN(value) || value > plot.axis.top) continue;
      context.beginPath();
      context.arc(across, y(value), 3.5, 0, 2 * Math.PI);
      context.fillStyle = palette(`c-${color}`);
      context.fill();
      context.lineWidth = 1.5;
      context.strokeStyle = palette('surface');
      context.stroke();
    }
  }

  /** @type {(points: [number, number][], color: string, width: number, dash?: number[]) => void} */
  function stroke(points, color, width, dash = []) {
    context.strokeStyle = color;
    context.lineWidth = width;
    context.setLineDash(dash);
    // A single point has a length of 0, which only a round end shows.
    context.lineCap = points.length === 1 ? 'round' : 'butt';
    context.beginPath();
    context.moveTo(points[0][0], points[0][1]);
    for (const [across, height] of points) context.lineTo(across, height);
    context.stroke();
    context.setLineDash([]);
  }

  /** @type {(text: string, x: number, y: number, align: CanvasTextAlign, color?: string, max?: number) => void} */
  function write(text, across, height, align, color = palette('muted'), max = undefined) {
    if (!text) return;
    context.textAlign = align;
    context.fillStyle = color;
    context.fillText(text, across, height, max);
  }
}
