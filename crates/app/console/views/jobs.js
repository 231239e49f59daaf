// Jobs: a form that starts one, and the list, fetched anew while one is queued or running.

import { actionButton, clearProblems, showProblems } from '../action.js';
import { ApiError } from '../api.js';
import { jobState, showStates } from '../badge.js';
import { h, replace, setText } from '../dom.js';
import { count, instant } from '../format.js';
import { copyCommand, copyCurl, empty, every, failed, foreign, linkButton, loading, pageHead, timeOf } from '../page.js';
import { jobPath, withQuery } from '../router.js';
import { createPager, createTable } from '../table.js';
import { visible } from '../text.js';
import { form as typedForm, rememberStarted } from './job_draft.js';
import { isActive, lineOf, lineProblems, percent, rangeOfLine, readLines } from './job_words.js';

/**
 * @typedef {import('../types.js').Job} Job
 * @typedef {import('../types.js').Console} Console
 */

const PAGE = 50;
/** Between two fetches of the list while a job is queued or running; otherwise every fifth time. */
const RENEW = 2000;
const SELDOM = 5;

/**
 * @param {HTMLElement} root
 * @param {import('../router.js').Route} route
 * @param {Console} app
 * @returns {import('../types.js').View}
 */
export function mount(root, route, app) {
  let cursor = route.query.get('cursor') ?? '';
  /** Cursors of the first pages, as far as they were shown. */
  let pages = [''];
  /** @type {string | null} */
  let next = null;
  /** @type {Job[]} */
  let jobs = [];
  /** @type {AbortController | null} */
  let fetching = null;
  let ticks = 0;

  const form = createForm(app);
  const table = createTable({ caption: 'Jobs, newest first', columns: columns(app), keyOf: (/** @type {Job} */ job) => job.id });
  const pager = createPager((by) => turn(by));
  const card = h('div', { class: 'card table-card jobs' }, loading('jobs'));
  root.append(
    pageHead({ title: 'Jobs' }),
    h('div', { class: 'stack' }, form.element, card),
    h('div', { class: 'actions page-tools' }, copyCurl(app, 'GET', '/api/v1/jobs'), copyCommand(app, 'tidegate jobs list')),
  );
  refresh();
  const stop = every(RENEW, renew);

  /** @param {boolean} [mayMove] Rows may be inserted, whatever has the focus. */
  async function refresh(mayMove = true) {
    fetching?.abort();
    const controller = (fetching = new AbortController());
    try {
      const list = await app.api.get(withQuery('/api/v1/jobs', { cursor, limit: PAGE }), controller.signal);
      show(list, mayMove);
    } catch (error) {
      if (controller.signal.aborted) return;
      if (jobs.length === 0) replace(card, failed(error, refresh));
      else setText(pager.note, 'The list could not be fetched. It is tried again.');
    }
    if (fetching === controller) fetching = null;
  }

  function renew() {
    ticks += 1;
    if (app.isFrozen() || fetching || (!jobs.some(isActive) && ticks % SELDOM > 0)) return;
    refresh(false);
  }

  /**
   * @param {{ jobs: Job[], next_cursor: string | null }} list
   * @param {boolean} mayMove
   */
  function show(list, mayMove) {
    next = list.next_cursor;
    if (list.jobs.length === 0) {
      jobs = [];
      const first = h('a', { class: 'button plain', href: '/jobs' }, 'First page');
      return replace(card, cursor ? empty('There are no more jobs.', first) : empty('No jobs yet. Start one above.'));
    }
    const known = new Set(jobs.map((job) => job.id));
    const added = list.jobs.filter((job) => !known.has(job.id)).length;
    if (mayMove || added === 0 || !table.isInUse()) {
      table.setRows(list.jobs);
      jobs = list.jobs;
      setText(pager.note, '');
    } else {
      table.updateRows(list.jobs);
      const fresh = new Map(list.jobs.map((job) => [job.id, job]));
      jobs = jobs.map((job) => fresh.get(job.id) ?? job);
      replace(pager.note, `${added} new · `, linkButton('Show', refresh));
    }
    pager.update(shown(), cursor !== '', next !== null);
    if (table.element.parentElement !== card) replace(card, table.element, pager.element);
  }

  /** The places of the jobs, if the pages before are known. */
  function shown() {
    const page = pages.indexOf(cursor);
    if (page < 0) return `${count(jobs.length)} jobs`;
    return `${count(page * PAGE + 1)}–${count(page * PAGE + jobs.length)}`;
  }

  /** @param {1 | -1} by */
  function turn(by) {
    const page = pages.indexOf(cursor);
    if (by === 1 && next) {
      if (page >= 0) pages = [...pages.slice(0, page + 1), next];
      app.go(withQuery('/jobs', { cursor: next }));
    } else if (by === -1 && cursor) app.go(withQuery('/jobs', { cursor: pages[page - 1] }));
  }

  return {
    title: () => 'Jobs',
    refresh: () => refresh(false),
    onRoute(to) {
      cursor = to.query.get('cursor') ?? '';
      refresh();
    },
    shortcuts: {
      j: () => table.move(1),
      k: () => table.move(-1),
      s: () => refresh(),
      '[': () => turn(-1),
      ']': () => turn(1),
    },
    unmount() {
      stop();
      fetching?.abort();
    },
  };
}

/** @param {Console} app */
function createForm(app) {
  const settings = app.settings.jobs;
  const values = typedForm.draft ?? { urls: '', crawl: true, depth: String(settings.depth), same_host: true };
  const urls = h('textarea', { name: 'urls', id: 'urls', rows: '3', spellcheck: 'false', autocapitalize: 'off', placeholder: 'https://docs.example.com/', 'aria-describedby': 'urls-hint', value: values.urls, oninput: remember });
  const crawl = h('input', { type: 'checkbox', name: 'crawl', checked: values.crawl, onchange: remember });
  const depth = h('input', { name: 'depth', id: 'depth', inputmode: 'numeric', value: values.depth, oninput: remember });
  const sameHost = h('input', { type: 'checkbox', name: 'same_host', checked: values.same_host, onchange: remember });
  const lines = h('ul', { class: 'line-problems', id: 'urls-problems' });
  const start = actionButton({ label: 'Start job', busy: 'Starting…', kind: 'main', run, onError });
  const hint = `At most ${count(settings.max_given_urls)} URLs.`;
  const element = h(
    'form',
    { class: 'card job-form', 'aria-label': 'New job', novalidate: true, onsubmit: (/** @type {Event} */ event) => (event.preventDefault(), start.click()) },
    h('h2', null, 'New job'),
    h('p', { class: 'form-problem', role: 'alert' }),
    h('div', { class: 'field' }, h('label', { for: 'urls' }, 'URLs, one per line'), urls, h('p', { class: 'hint', id: 'urls-hint' }, hint), lines),
    h(
      'div',
      { class: 'job-options' },
      h('label', { class: 'check' }, crawl, 'Crawl'),
      h('div', { class: 'field depth' }, h('label', { for: 'depth' }, 'Depth'), depth),
      h('label', { class: 'check' }, sameHost, 'Same host'),
      h('div', { class: 'actions' }, start),
    ),
  );
  showUse();

  /** @returns {import('./job_draft.js').Draft} */
  const typed = () => ({ urls: urls.value, crawl: crawl.checked, depth: depth.value, same_host: sameHost.checked });

  function remember() {
    typedForm.draft = typed();
    showUse();
  }

  /** Depth and host matter only to a crawl. */
  function showUse() {
    depth.disabled = !crawl.checked;
    sameHost.disabled = !crawl.checked;
  }

  async function run() {
    clear();
    const given = typed();
    const body = { urls: readLines(given.urls).map(({ url }) => url), crawl: given.crawl };
    const more = given.crawl ? { depth: number(given.depth), same_host: given.same_host } : {};
    const job = await app.api.send('POST', '/api/v1/jobs', { ...body, ...more });
    rememberStarted(job.id, given);
    app.go(jobPath(job.id));
  }

  function clear() {
    clearProblems(element);
    lines.replaceChildren();
    urls.setAttribute('aria-describedby', 'urls-hint');
  }

  /** @param {unknown} error */
  function onError(error) {
    clear();
    if (!(error instanceof ApiError) || error.problems.length === 0) return false;
    const given = readLines(urls.value);
    const atLines = lineProblems(error.problems, given);
    const others = error.problems.filter(({ field }) => lineOf(field, given) === null);
    const isShown = showProblems(element, new ApiError(error.status, { problems: others }), 'used');
    if (atLines.length === 0) return isShown;
    replace(lines, atLines.map(({ line, text }) => h('li', { class: 'field-problem' }, lineLink(line), ` ${visible(text, 400)}`)));
    urls.setAttribute('aria-invalid', 'true');
    urls.setAttribute('aria-describedby', 'urls-hint urls-problems');
    const summary = element.querySelector('.form-problem');
    const all = error.problems.length;
    if (summary) setText(summary, all === 1 ? '1 value cannot be used.' : `${all} values cannot be used.`);
    selectLine(atLines[0].line);
    return true;
  }

  /** @param {number} line */
  const lineLink = (line) => linkButton(`Line ${line}:`, () => selectLine(line));

  /** @param {number} line */
  function selectLine(line) {
    urls.focus();
    urls.setSelectionRange(...rangeOfLine(urls.value, line));
  }

  return { element };
}

/**
 * A number if it is one; otherwise the text, for the server to name what it expects.
 * @param {string} text
 */
const number = (text) => (/^\d+$/.test(text.trim()) ? Number(text) : text);

/**
 * @param {Console} app
 * @returns {import('../table.js').Column<Job>[]}
 */
function columns(app) {
  return [
    { id: 'status', label: 'Status', show: (cell, job) => showStates(app, cell, [jobState(job.status)]) },
    { id: 'job', label: 'Job', show: showJob },
    { id: 'stage', label: 'Stage', on: 'wide', show: (cell, job) => setText(cell, job.status === 'queued' || job.status === 'done' ? '–' : job.stage) },
    { id: 'progress', label: 'Progress', show: showProgress },
    { id: 'pages', label: 'Pages', isNumber: true, show: (cell, job) => setText(cell, count(job.counts.total)) },
    { id: 'failed', label: 'Failed', isNumber: true, show: (cell, job) => (cell.classList.toggle('zero', job.counts.failed === 0), setText(cell, count(job.counts.failed))) },
    { id: 'started', label: 'Started', isNumber: true, show: (cell, job) => showTime(app, cell, job.started_at_ms) },
  ];
}

/**
 * @param {HTMLTableCellElement} cell
 * @param {Job} job
 */
function showJob(cell, job) {
  if (!cell.firstElementChild) cell.append(h('a', { href: jobPath(job.id) }, foreign(job.summary)));
}

/**
 * @param {HTMLTableCellElement} cell
 * @param {Job} job
 */
function showProgress(cell, job) {
  if (job.status === 'done') {
    if (!cell.querySelector('a')) replace(cell, h('a', { href: `/r/${encodeURIComponent(job.slug)}` }, 'View Report'));
    return;
  }
  if (!cell.firstElementChild) {
    cell.append(h('span', { class: 'meter', 'aria-hidden': 'true' }, h('i', null)), h('span', { class: 'percent' }));
  }
  const [meter, text] = cell.children;
  /** @type {HTMLElement} */ (meter.firstElementChild).style.width = `${job.progress}%`;
  setText(text, `${percent(job.progress)} %`);
}

/**
 * @param {Console} app
 * @param {HTMLTableCellElement} cell
 * @param {number | null} at
 */
function showTime(app, cell, at) {
  const text = instant(at, app.clock.now());
  if (cell.textContent === text) return;
  replace(cell, timeOf(at, app.clock.now()));
}
