// A chart of values over time, live or of a finished run: a canvas with names at line ends, periods
// below it, a box that reads an instant by pointer or keys, a sentence for screen readers and the
// same values as a table.

import * as text from './chart_text.js';
import { createCrosshair } from './crosshair.js';
import { h, setAttribute, setText } from './dom.js';
import { clockTime, count, latency, rate } from './format.js';
import { drawPlot, frameOf, readPalette } from './plot.js';
import { clockAxis, createStickyTop, elapsedAxis, valueAxis } from './scale.js';
import { toFloats } from './series.js';
import { visible } from './text.js';

/** @typedef {import('./series.js').Samples & { bands?: text.Band[], max?: number }} Update */

/**
 * @typedef {object} ChartOptions
 * @property {string} title
 * @property {string} unit in words, above the axis: `requests per second`
 * @property {number} height of the area between the axes
 * @property {import('./plot.js').Line[]} series
 * @property {() => number} [now] the server's time; without it the chart is of a finished run, and
 *   its axis has the seconds since 0
 * @property {number} [window] in milliseconds; for live charts
 * @property {boolean} [lane] whether periods have a lane below the plot and a line of text
 * @property {(value: number) => string} [format]
 * @property {import('./crosshair.js').Crosshair} [crosshair] of the page
 */

/** Below this width names stand above the plot. */
const NARROW_PX = 520;
/** Below this height there is no room for more than a few marks. */
const LOW_PX = 100;
/** How long after the last key the values are announced. */
const SPEAK_AFTER_MS = 500;
const SENTENCE_EVERY_MS = 5000;
const DEFAULT_WINDOW_MS = 300_000;

/** @type {Record<string, (value: number) => string>} */
const FORMATS = { 'requests per second': rate, 'responses per second': rate, milliseconds: latency };

/** @param {ChartOptions} options */
export function createChart(options) {
  const { title, unit, height, series, now, lane = true } = options;
  const crosshair = options.crosshair ?? createCrosshair();
  const words = {
    isLive: now !== undefined,
    time: now ? text.clock : text.elapsed,
    value: options.format ?? FORMATS[unit] ?? count,
  };
  const names = series.map(({ name }) => name);
  const createdAt = now?.() ?? 0;
  const sticky = createStickyTop();
  const minSteps = height < LOW_PX ? 2 : 3;
  const leastMax = words.value === count ? minSteps : 0;
  let windowMs = options.window ?? DEFAULT_WINDOW_MS;
  /** @type {text.Data & { max?: number | undefined }} */
  let data = { start_ms: 0, step_ms: 1000, values: {}, bands: [] };
  /** What arrived while an instant is read. @type {typeof data | null} */
  let pending = null;
  let [width, isInView, isTable] = [0, true, false];
  let describedAt = -Infinity;
  let spoken = 0;
  /** @type {ReturnType<typeof readPalette> | null} */
  let palette = null;

  const canvas = h('canvas', { 'aria-hidden': 'true' });
  const context = canvas.getContext('2d');
  const boxTime = h('strong');
  const boxValues = series.map(({ name }) => ({ name, element: h('dd') }));
  const boxForce = h('p');
  const box = h('div', { class: 'chart-box', hidden: true, 'aria-hidden': 'true' }, boxTime,
    h('dl', null, series.map((line, index) =>
      h('div', null, h('dt', null, swatch(line), line.name), boxValues[index].element))), boxForce);
  const plot = h('div', { class: 'chart-plot', role: 'img', tabindex: 0 }, canvas, box);
  const nameValues = series.map(() => h('b'));
  const nameRow = h('p', { class: 'chart-names', 'aria-hidden': 'true', hidden: true },
    series.map((line, index) => h('span', null, swatch(line), `${line.name} `, nameValues[index])));
  const bands = h('p', { class: 'chart-bands' });
  const speech = h('p', { class: 'unseen', role: 'status' });
  const body = h('tbody');
  const table = h('div', { class: 'chart-table', hidden: true, tabindex: 0, role: 'region',
    'aria-label': `${visible(title)}, table` },
  h('table', null, h('caption', null, `${visible(title)}, ${unit}`), h('thead', null, h('tr', null,
    ['Time', ...names, 'In force'].map((name) => h('th', { scope: 'col' }, name)))), body));
  const toggle = h('button', { type: 'button', class: 'link', onclick: showTable }, 'Show as table');
  /** Has the width of the chart and no height, so that drawing does not change its size. */
  const ruler = h('div');
  const element = h('figure', { class: 'chart' },
    h('figcaption', null, h('span', null, visible(title)), toggle),
    nameRow, plot, table, lane && bands, speech, ruler);

  const leaveGroup = crosshair.add({ draw, msPerPixel });
  const sizes = new ResizeObserver(([entry]) => {
    width = Math.floor(entry.contentRect.width);
    // Its room is reserved before it comes into view, so that nothing below moves then.
    canvas.style.height = `${frameOf(width, height, lane, width < NARROW_PX).height}px`;
    crosshair.request();
  });
  sizes.observe(ruler);
  const views = new IntersectionObserver((entries) => {
    isInView = entries[entries.length - 1].isIntersecting;
    if (isInView) crosshair.request();
  });
  views.observe(element);
  const stopThemes = onThemeChange(() => {
    palette = null;
    crosshair.request();
  });
  plot.addEventListener('pointermove', readPointer);
  plot.addEventListener('pointerdown', readPointer);
  plot.addEventListener('pointerleave', (event) => {
    if (event.pointerType === 'mouse') crosshair.leave();
  });
  plot.addEventListener('keydown', readKey);
  plot.addEventListener('blur', crosshair.leave);
  crosshair.request();

  return { element, update, setWindow, destroy };

  /**
   * Shows other values. While an instant is read they wait.
   * @param {Update} next
   */
  function update(next) {
    /** @type {Record<string, Float32Array>} */
    const values = {};
    for (const name of names) values[name] = toFloats(next.values[name] ?? []);
    const { start_ms, step_ms, bands: periods = [], max } = next;
    pending = { start_ms, step_ms, values, bands: periods, max };
    crosshair.request();
  }

  /** @param {number} ms */
  function setWindow(ms) {
    windowMs = ms;
    describedAt = -Infinity;
    crosshair.request();
  }

  function destroy() {
    leaveGroup();
    stopThemes();
    sizes.disconnect();
    views.disconnect();
    clearTimeout(spoken);
    element.remove();
  }

  function msPerPixel() {
    return words.isLive && isInView && !isTable && width > 0 ? windowMs / width : Infinity;
  }

  /** @returns {[from: number, to: number]} */
  function range() {
    if (!now) {
      const points = Math.max(2, ...names.map((name) => data.values[name]?.length ?? 0));
      return [data.start_ms, data.start_ms + (points - 1) * data.step_ms];
    }
    const to = crosshair.frozenAt ?? now();
    return [to - windowMs, to];
  }

  function draw() {
    if (pending && crosshair.frozenAt === null) {
      if (!words.isLive || highest(-Infinity) === -Infinity) describedAt = -Infinity;
      [data, pending] = [pending, null];
    }
    const [from, to] = range();
    describe(from, to);
    if (!context || width === 0 || !isInView) return;
    setText(bands, lane ? text.bandList(data.bands, from, to, words) : '');
    if (isTable) {
      fillTable(from, to);
      return;
    }
    const isNarrow = width < NARROW_PX;
    const present = series.map((line) => ({ line, value: text.presentValue(data, line.name, to) }));
    nameRow.hidden = !isNarrow;
    present.forEach(({ value }, index) => setText(nameValues[index], text.valueText(words, value)));
    const frame = frameOf(width, height, lane, isNarrow);
    fit(frame.height);
    palette ??= readPalette(element);
    const isEmpty = highest(-Infinity) === -Infinity;
    const max = Math.max(data.max ?? highest(from), leastMax);
    const axis = valueAxis(now && data.max === undefined ? sticky.fit(max, to) : max, minSteps);
    const maxTimes = Math.min(isNarrow ? 4 : 8, Math.floor((frame.right - frame.left) / 64));
    drawPlot(context, frame, {
      data, from, to, unit, lines: series,
      axis: isEmpty ? { ...axis, marks: [] } : axis,
      times: now ? clockAxis(from, to, maxTimes) : elapsedAxis(to, maxTimes),
      names: isNarrow ? [] : present.flatMap(atLineEnd),
      note: now && crosshair.frozenAt !== null ? `Frozen at ${clockTime(to)}` : '',
      message: isEmpty ? (now ? `Collecting since ${clockTime(createdAt)}.` : 'No values.') : '',
      at: crosshair.at,
    }, palette);
    showBox(frame, from, to);
  }

  /** @param {{ line: import('./plot.js').Line, value: number }} present */
  function atLineEnd({ line, value }) {
    const values = data.values[line.name] ?? new Float32Array();
    const last = values[text.lastIndex(values)];
    if (last === undefined) return [];
    return { line, value: last, text: `${line.name} ${text.valueText(words, value)}` };
  }

  /** @param {number} from */
  function highest(from) {
    let max = -Infinity;
    const first = Math.max(0, Math.floor((from - data.start_ms) / data.step_ms));
    for (const values of Object.values(data.values)) {
      for (let index = first; index < values.length; index += 1) {
        if (values[index] > max) max = values[index];
      }
    }
    return max;
  }

  /** @param {number} cssHeight */
  function fit(cssHeight) {
    const scale = devicePixelRatio;
    const size = [Math.round(width * scale), Math.round(cssHeight * scale)];
    if (canvas.width !== size[0] || canvas.height !== size[1]) {
      [canvas.width, canvas.height] = size;
      canvas.style.width = `${width}px`;
      canvas.style.height = `${cssHeight}px`;
    }
    context?.setTransform(scale, 0, 0, scale, 0, 0);
    context?.clearRect(0, 0, width, cssHeight);
  }

  /**
   * @param {number} from
   * @param {number} to
   */
  function describe(from, to) {
    if (Math.abs(to - describedAt) < SENTENCE_EVERY_MS) return;
    describedAt = to;
    setAttribute(plot, 'aria-label', text.sentence(title, names, data, from, to, words));
  }

  /**
   * @param {import('./plot.js').Frame} frame
   * @param {number} from
   * @param {number} to
   */
  function showBox(frame, from, to) {
    const { at } = crosshair;
    box.hidden = at === null;
    if (at === null) return;
    const index = Math.round((at - data.start_ms) / data.step_ms);
    setText(boxTime, words.time(at));
    for (const { name, element: value } of boxValues) {
      setText(value, text.valueText(words, data.values[name]?.[index] ?? NaN));
    }
    setText(boxForce, text.inForceAt(data.bands, at, words));
    const x = frame.left + ((at - from) / (to - from)) * (frame.right - frame.left);
    const isRight = x > (frame.left + frame.right) / 2;
    box.style.left = isRight ? '' : `${x + 12}px`;
    box.style.right = isRight ? `${width - x + 12}px` : '';
  }

  /** @param {PointerEvent} event */
  function readPointer(event) {
    const [from, to] = range();
    const frame = frameOf(width, height, lane, width < NARROW_PX);
    const across = event.clientX - canvas.getBoundingClientRect().left;
    const share = (across - frame.left) / (frame.right - frame.left);
    readAt(from + Math.max(0, Math.min(1, share)) * (to - from));
  }

  /** @param {KeyboardEvent} event */
  function readKey(event) {
    if (event.key === 'Escape' && crosshair.at !== null) crosshair.leave();
    else if (event.key in KEYS && !event.ctrlKey && !event.metaKey && !event.altKey) {
      const [from, to] = range();
      const start = crosshair.at ?? to;
      const points = KEYS[event.key] * (event.shiftKey ? 10 : 1);
      const at = Number.isFinite(points) ? start + points * data.step_ms : points;
      readAt(Math.max(from, Math.min(to, at)));
      clearTimeout(spoken);
      spoken = window.setTimeout(speak, SPEAK_AFTER_MS);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /**
   * Reads the point next to an instant.
   * @param {number} at
   */
  function readAt(at) {
    const points = Math.max(0, ...names.map((name) => data.values[name]?.length ?? 0));
    if (points === 0) return;
    const index = Math.round((at - data.start_ms) / data.step_ms);
    const inside = Math.max(0, Math.min(points - 1, index));
    crosshair.read(data.start_ms + inside * data.step_ms, now?.() ?? 0);
  }

  function speak() {
    const values = boxValues.map(({ name, element: value }) => `${name} ${value.textContent}`);
    const parts = [boxTime.textContent, ...values, boxForce.textContent].filter(Boolean);
    if (!box.hidden) setText(speech, parts.join(', '));
  }

  function showTable() {
    isTable = !isTable;
    plot.hidden = isTable;
    nameRow.hidden = true;
    table.hidden = !isTable;
    setText(toggle, isTable ? 'Show as chart' : 'Show as table');
    crosshair.request();
  }

  /**
   * @param {number} from
   * @param {number} to
   */
  function fillTable(from, to) {
    const rows = text.tableRows(names, data, from, to, words);
    while (body.rows.length > rows.length) body.deleteRow(-1);
    rows.forEach((cells, index) => {
      const row = body.rows[index] ?? body.appendChild(h('tr', null,
        cells.map((_, column) => (column === 0 ? h('th', { scope: 'row' }) : h('td')))));
      cells.forEach((cell, column) => setText(row.cells[column], cell));
    });
  }
}

/** Points to move; an end that is not finite is that end. @type {Record<string, number>} */
const KEYS = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };

/** @param {import('./plot.js').Line} line */
function swatch({ color, dashed }) {
  const element = h('i', { class: dashed ? 'swatch dashed' : 'swatch' });
  element.style.color = `var(--c-${color})`;
  return element;
}

/**
 * @param {() => void} run
 * @returns {() => void} stops it
 */
function onThemeChange(run) {
  const system = matchMedia('(prefers-color-scheme: dark)');
  system.addEventListener('change', run);
  const chosen = new MutationObserver(run);
  chosen.observe(document.documentElement, { attributeFilter: ['data-theme'] });
  return () => {
    system.removeEventListener('change', run);
    chosen.disconnect();
  };
}
