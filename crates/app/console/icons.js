// Icons: strokes of 16 × 16 in the colour of the text. The word beside one says what it means.

const PATHS = {
  check: 'M3 8.5l3.2 3.2L13 4.8',
  open: 'M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8zM5.8 5.8l4.4 4.4M10.2 5.8l-4.4 4.4',
  half: 'M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8z',
  lock: 'M3.5 7h9v6.8h-9zM5.5 7V4.6a2.5 2.5 0 0 1 5 0V7',
  hourglass: 'M4 2h8M4 14h8M5 2v2.5L8 8l3-3.5V2M5 14v-2.5L8 8l3 3.5V14',
  clock: 'M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8zM8 4.6V8l2.4 1.6',
  warning: 'M8 2.2L14.4 13.4H1.6zM8 6.4v3.4M8 11.4v.4',
  turning: 'M13 8a5 5 0 1 1-1.6-3.7M13 2.2v3h-3',
  crossed: 'M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8zM3.6 3.6l8.8 8.8',
  dot: 'M8 6.4a1.6 1.6 0 1 0 0 3.2 1.6 1.6 0 0 0 0-3.2z',
  cross: 'M4 4l8 8M12 4l-8 8',
  arrows: 'M2.5 5.5h9M9 3l2.5 2.5L9 8M13.5 10.5h-9M7 8l-2.5 2.5L7 13',
  broken: 'M6.5 9.5l-2 2a2.1 2.1 0 0 1-3-3l2-2M9.5 6.5l2-2a2.1 2.1 0 0 1 3 3l-2 2M5 2.5V4M2.5 5H4M11 13.5V12M13.5 11H12',
  gauge: 'M2.5 12a6 6 0 1 1 11 0M8 9.5L5 6.5',
  key: 'M10.5 2.5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM8.3 7.7L2.5 13.5M4.5 11.5l1.8 1.8',
  gear: 'M8 5.6a2.4 2.4 0 1 0 0 4.8 2.4 2.4 0 0 0 0-4.8zM8 1.6v2M8 12.4v2M1.6 8h2M12.4 8h2M3.5 3.5l1.4 1.4M11.1 11.1l1.4 1.4M12.5 3.5l-1.4 1.4M4.9 11.1l-1.4 1.4',
  plus: 'M8 3v10M3 8h10',
  more: 'M3 8h.01M8 8h.01M13 8h.01',
  search: 'M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9zM10.4 10.4l3.1 3.1',
  moon: 'M13 9.6A5.6 5.6 0 1 1 6.4 3a4.4 4.4 0 0 0 6.6 6.6z',
  sun: 'M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6zM8 1.4v1.4M8 13.2v1.4M1.4 8h1.4M13.2 8h1.4M3.3 3.3l1 1M11.7 11.7l1 1M12.7 3.3l-1 1M4.3 11.7l-1 1',
  menu: 'M2.5 4.5h11M2.5 8h11M2.5 11.5h11',
  copy: 'M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3',
  left: 'M10 3L5 8l5 5',
  right: 'M6 3l5 5-5 5',
  info: 'M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8zM8 7.4v3.6M8 4.8v.4',
};

/** @typedef {keyof typeof PATHS} IconName */

const SVG = 'http://www.w3.org/2000/svg';

/**
 * @param {IconName} name
 * @returns {SVGSVGElement}
 */
export function icon(name) {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', '0 0 16 16');
  svg.setAttribute('class', 'icon');
  svg.setAttribute('aria-hidden', 'true');
  svg.appendChild(path(PATHS[name], false));
  if (name === 'half') svg.appendChild(path('M8 1.8a6.2 6.2 0 0 1 0 12.4z', true));
  return svg;
}

/** The wordmark's picture: a gate over waves. */
export function mark() {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', '0 0 24 24');
  svg.setAttribute('class', 'mark');
  svg.setAttribute('aria-hidden', 'true');
  const gate = path('M4 3v18M20 3v18M4 6h16', false);
  gate.setAttribute('class', 'mark-gate');
  svg.append(gate, path('M8 12q2-2 4 0t4 0M8 17q2-2 4 0t4 0', false));
  return svg;
}

/**
 * @param {string} d
 * @param {boolean} isFilled
 */
function path(d, isFilled) {
  const element = document.createElementNS(SVG, 'path');
  element.setAttribute('d', d);
  if (isFilled) element.setAttribute('class', 'filled');
  return element;
}
