// Charts of the last minutes: recorded points from the server, and those that the stream adds. All
// share one time axis and one line to read an instant.

import { createChart } from './chart.js';
import { createCrosshair } from './crosshair.js';
import { h, setAttribute } from './dom.js';
import { createSeries } from './series.js';

/**
 * @typedef {import('./series.js').Samples} Samples
 * @typedef {import('./chart_text.js').Band} Band
 */

const WINDOWS = [1, 5, 15];
const DEFAULT_MIN = 5;
const MINUTE_MS = 60_000;
/** Of a server that is younger there is about a minute to show. */
const YOUNG_MS = 100_000;

/**
 * @param {import('./types.js').Console} app
 * @param {object} options
 * @param {import('./chart.js').ChartOptions[]} options.charts Without time and window.
 * @param {() => void} options.onWindow Another window was chosen: load what was recorded.
 */
export function createLiveCharts(app, { charts: options, onWindow }) {
  const series = createSeries(options.flatMap((chart) => chart.series.map((line) => line.name)));
  const crosshair = createCrosshair();
  let minutes = app.clock.now() - app.startedMs() < YOUNG_MS ? WINDOWS[0] : DEFAULT_MIN;
  /** @type {Band[]} */
  let bands = [];
  let frozenAt = 0;
  const now = () => (app.isFrozen() && frozenAt ? frozenAt : (frozenAt = app.clock.now()));
  const charts = options.map((chart) => createChart({ ...chart, now, window: minutes * MINUTE_MS, crosshair }));
  const choices = WINDOWS.map((choice) =>
    h('button', { class: 'chip', type: 'button', 'aria-pressed': String(choice === minutes), onclick: () => choose(choice) }, `${choice} min`));

  /** @param {number} choice */
  function choose(choice) {
    minutes = choice;
    WINDOWS.forEach((each, index) => setAttribute(choices[index], 'aria-pressed', String(each === choice)));
    for (const chart of charts) chart.setWindow(choice * MINUTE_MS);
    onWindow();
  }

  function show() {
    // One point more than the window has, so that the line reaches the left edge.
    const samples = series.samples(minutes * MINUTE_MS + 1000);
    for (const chart of charts) chart.update({ ...samples, bands });
  }

  return {
    elements: charts.map((chart) => chart.element),
    windows: h('div', { class: 'chips windows', role: 'group', 'aria-label': 'Time shown' }, ...choices),
    /** As the API names it: `5m`. */
    window: () => `${minutes}m`,

    /**
     * Shows what was recorded, instead of everything.
     * @param {Samples} recorded
     * @param {Band[]} [periods]
     */
    load(recorded, periods = []) {
      series.load(recorded);
      bands = periods;
      show();
    },

    /**
     * Adds what was recorded lately. A point that the server does not have stays as it is.
     * @param {Samples} recorded
     */
    merge({ start_ms, step_ms, values }) {
      const names = Object.keys(values);
      const length = Math.max(0, ...names.map((name) => values[name].length));
      for (let index = 0; index < length; index += 1) {
        const point = Object.fromEntries(names.map((name) => [name, values[name][index]]));
        if (Object.values(point).some((value) => value !== null)) series.append(start_ms + index * step_ms, point);
      }
      show();
    },

    /**
     * Adds a point.
     * @param {number} atMs
     * @param {Record<string, number | null>} values
     */
    append(atMs, values) {
      series.append(atMs, values);
      show();
    },

    clear() {
      series.clear();
      bands = [];
      show();
    },

    destroy() {
      for (const chart of charts) chart.destroy();
    },
  };
}
