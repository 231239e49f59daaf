// Every decision about one request, in a drawer.

import { openDialog } from '../dialog.js';
import { h, replace } from '../dom.js';
import { clockTime, duration, latency } from '../format.js';
import { copyCommand, copyCurl, failed, loading, quote, sentence, timeOf } from '../page.js';
import { visible } from '../text.js';

/**
 * @param {import('../types.js').Console} app
 * @param {string} id
 * @param {() => void} onClose
 */
export function openTrail(app, id, onClose) {
  const path = `/api/v1/explain/${encodeURIComponent(id)}`;
  const body = h('div', { class: 'stack' }, loading('request', 4));
  load();

  async function load() {
    try {
      replace(body, trail(await app.api.get(path), app.clock.now()));
    } catch (error) {
      replace(body, failed(error, load));
    }
  }

  return openDialog({
    title: `Request ${visible(id, 40)}`,
    kind: 'drawer',
    body: [body],
    footer: [copyCurl(app, 'GET', path), copyCommand(app, `tidegate explain ${quote(id)}`)],
    onClose,
  });
}

/**
 * @param {import('../types.js').Explanation} explanation
 * @param {number} now
 */
function trail(explanation, now) {
  const { at_ms, route, method, status, endpoint, outcome, attempts, waited_ms, steps, left_out } = explanation;
  /** @type {[string, Node | string][]} */
  const facts = [
    ['Time', timeOf(at_ms, now)],
    ['Request', `${visible(method, 20)} ${visible(route)}`],
    ['Endpoint', endpoint === null ? '–' : visible(endpoint)],
    ['Outcome', `${visible(outcome.replaceAll('_', ' '), 40)}${status ? `, HTTP ${status}` : ''}`],
    ['Attempts', String(attempts)],
    ['Waited', waited_ms < 1000 ? latency(waited_ms) : duration(waited_ms)],
  ];
  const start = steps[0]?.at_ms ?? at_ms;
  const rows = steps.map((step) =>
    h('li', null, h('p', { class: 'muted small' }, `${clockTime(step.at_ms)}, after ${latency(Math.max(0, step.at_ms - start))}`), h('p', null, ...sentence(step.text))),
  );
  return [
    h('dl', { class: 'facts' }, ...facts.map(([label, value]) => h('div', null, h('dt', null, label), h('dd', null, value)))),
    h('h3', null, 'What was decided'),
    h('ol', { class: 'steps' }, ...rows),
    left_out > 0 && h('p', { class: 'muted' }, left_out === 1 ? '1 more step was not recorded.' : `${left_out} more steps were not recorded.`),
  ];
}
