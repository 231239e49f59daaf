// A job: how far it is, asked for by the rules of poll.js and by nothing else.

import { ApiError, problem } from '../api.js';
import { confirmAction } from '../dialog.js';
import { h, render, setAttribute, setText } from '../dom.js';
import { count, duration } from '../format.js';
import { icon } from '../icons.js';
import { copyCommand, copyCurl, foreign, longForeign, pageHead, timeOf } from '../page.js';
import { visible } from '../text.js';
import { fillFrom } from './job_draft.js';
import { createPolling } from './job_polling.js';
import { headingOf, isActive, pagesText, percent, retainText, stageText, stoppedText } from './job_words.js';

/**
 * @typedef {import('../types.js').Job} Job
 * @typedef {import('./job_words.js').JobResponse} JobResponse
 * @typedef {import('../poll.js').PollStep} PollStep
 */

const BANNER_TITLE = 'Automatic Rate Limit Protection';
const BANNER_TEXT =
  "We're automatically slowing down status checks to respect server limits. Your scan is still running normally. We'll automatically speed up again once the rate limit clears.";
/** A response that takes longer is waited for visibly. */
const SLOW = 300;

/**
 * @param {HTMLElement} root
 * @param {import('../router.js').Route} route
 * @param {import('../types.js').Console} app
 * @returns {import('../types.js').View}
 */
export function mount(root, route, app) {
  const { id } = route;
  const url = `/api/v1/jobs/${encodeURIComponent(id)}`;
  const { poll: settings, jobs } = app.settings;
  /** @type {Job | null} */
  let job = null;
  let heading = headingOf(null, null);
  /** It never falls. */
  let progress = 0;
  let stage = '';
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let slow;

  const name = h('span', null, foreign(id));
  const head = pageHead({ title: heading, before: [h('a', { href: '/jobs' }, 'Jobs'), ' / ', name] });
  const title = /** @type {HTMLElement} */ (head.querySelector('h1'));
  const line = h('strong', null);
  const share = h('strong', { class: 'percent' });
  const filled = h('i', null);
  const bar = h('div', { class: 'progress', role: 'progressbar', 'aria-label': 'Progress of the scan', 'aria-valuemin': 0, 'aria-valuemax': 100 }, filled);
  const done = h('div', { class: 'job-progress', hidden: true }, h('div', { class: 'job-line' }, line, share), bar);
  const pages = h('span', null);
  const next = h('span', null, 'Asking for the status');
  const banner = h('div', { class: 'banner', role: 'status' });
  const message = h('div', { class: 'job-message' });
  const actions = h('div', { class: 'actions' });
  const facts = h('dl', { class: 'facts card', hidden: true });
  // The banner is below the buttons: when it appears, nothing moves that is clicked.
  root.append(
    h('div', { class: 'job-page stack' },
      head,
      h('div', { class: 'card stack' }, done, message, h('p', { class: 'muted job-state' }, pages, next), actions, banner),
      facts,
      h('div', { class: 'actions page-tools' }, copyCurl(app, 'GET', url), copyCommand(app, `tidegate jobs show ${id}`))),
  );

  const polling = createPolling({ settings, ask, onAsk, onStep, isPaused: () => document.hidden || app.isFrozen() });
  document.addEventListener('visibilitychange', polling.resume);
  polling.start();

  /**
   * @param {AbortSignal} signal
   * @returns {Promise<JobResponse>}
   */
  async function ask(signal) {
    try {
      const response = await app.api.response(url, signal);
      const { status } = response;
      const wait = waitOf(response.headers.get('retry-after'), app.clock.now());
      if (response.ok) return { status, job: await response.json(), retry_after_ms: null, problem: '' };
      const { detail, title: kind } = await problem(response);
      return { status, job: null, retry_after_ms: wait, problem: detail ?? kind ?? `HTTP ${status}` };
    } catch (error) {
      if (signal.aborted) throw error;
      return { status: null, job: null, retry_after_ms: null, problem: error instanceof ApiError ? 'no answer' : 'a response that cannot be read' };
    }
  }

  function onAsk() {
    clearTimeout(slow);
    slow = setTimeout(() => say(next, 'waiting for the status'), SLOW);
  }

  /**
   * @param {PollStep} step
   * @param {JobResponse} response
   * @param {boolean} isRecent
   */
  function onStep(step, response, isRecent) {
    clearTimeout(slow);
    if (response.job) showJob(response.job, step);
    heading = headingOf(step, job);
    if (title.textContent !== heading && step.next_ms === null) app.announce(heading);
    setText(title, heading);
    app.titleChanged();
    const hasBanner = step.banner && step.next_ms !== null;
    render(banner, hasBanner, () => (hasBanner ? [icon('clock'), h('div', null, h('strong', null, BANNER_TITLE), h('p', null, BANNER_TEXT))] : []));
    render(message, [step.state, response.problem, job?.error], () => messageOf(step, response, isRecent));
    showNext(step, response);
    showActions(step);
  }

  /**
   * @param {Job} fresh
   * @param {PollStep} step
   */
  function showJob(fresh, step) {
    job = fresh;
    progress = step.state === 'done' ? 100 : Math.max(progress, fresh.progress);
    const whole = percent(progress);
    const text = step.state === 'done' ? 'Done' : stageText(fresh.stage);
    done.hidden = false;
    render(name, fresh.summary, () => foreign(fresh.summary));
    setText(line, text);
    setText(share, `${whole} %`);
    filled.style.width = `${progress}%`;
    setAttribute(bar, 'aria-valuenow', whole);
    setAttribute(bar, 'aria-valuetext', `${whole} %, ${text}`);
    if (stage !== text && isActive(fresh)) app.announce(text);
    stage = text;
    setText(pages, pagesText(fresh));
    facts.hidden = false;
    render(facts, fresh, () => factsOf(fresh));
  }

  /** @param {Job} shown */
  function factsOf({ id: of, status, counts, created_at_ms: created, started_at_ms: started, finished_at_ms: finished }) {
    const now = app.clock.now();
    const isRunning = status === 'running';
    /** @type {[string, import('../dom.js').Child][]} */
    const pairs = [
      ['Accepted', timeOf(created, now)],
      ['Started', started !== null && timeOf(started, now)],
      ['Ended', finished !== null && timeOf(finished, now)],
      ['Took', started !== null && finished !== null && duration(finished - started)],
      ['Requests sent', count(counts.sent)],
      ['In flight', isRunning && count(counts.in_flight)],
      ['Waiting to be sent again', isRunning && counts.retrying > 0 && count(counts.retrying)],
      ['Refused by robots.txt', counts.denied > 0 && count(counts.denied)],
      ['ID', foreign(of)],
    ];
    return pairs.filter(([, value]) => value !== false).map(([label, value]) => h('div', null, h('dt', null, label), h('dd', null, value)));
  }

  /**
   * @param {PollStep} step
   * @param {JobResponse} response
   * @param {boolean} isRecent
   */
  function messageOf({ state, next_ms: wait, ...rest }, response, isRecent) {
    if (wait !== null || state === 'done') return [];
    if (state === 'not_found') return h('p', null, 'There is no job ', foreign(id), `. Jobs are kept for ${retainText(jobs.retain)}.`);
    if (state === 'gave_up' || !job || isActive(job)) return h('p', null, stoppedText({ state, next_ms: wait, ...rest }, response, isRecent, settings.give_up_after_ms));
    return job.error ? h('p', { class: 'problem' }, icon('warning'), longForeign(job.error)) : [];
  }

  /**
   * @param {PollStep} step
   * @param {JobResponse} response
   */
  function showNext({ next_ms: wait }, response) {
    if (wait === null) return say(next, '');
    const isProblem = response.status !== 429 && response.problem !== '';
    const before = isProblem ? `status check failed (${visible(response.problem, 120)}) · ` : '';
    say(next, '');
    app.countdown(next, app.clock.now() + wait, (left) => join(`${before}next status check in ${duration(left)}`));
    return undefined;
  }

  /**
   * The last part of the line below the bar.
   * @param {HTMLElement} element
   * @param {string} text
   */
  function say(element, text) {
    app.countdown(element, 0, () => '');
    setText(element, text && join(text));
  }

  /** @param {string} text */
  const join = (text) => (pages.textContent ? ` · ${text}` : text[0].toUpperCase() + text.slice(1));

  /** @param {PollStep} step */
  function showActions({ state, next_ms: wait }) {
    const isOver = job !== null && !isActive(job);
    const wanted = wait !== null ? (job ? 'cancel' : '') : state === 'not_found' ? 'new' : state === 'done' ? 'report' : isOver ? 'again' : 'check';
    const hadFocus = actions.contains(document.activeElement);
    render(actions, wanted, () => actionsOf(wanted));
    if (hadFocus && !actions.contains(document.activeElement)) title.focus();
  }

  /** @param {string} wanted */
  function actionsOf(wanted) {
    switch (wanted) {
      case 'cancel':
        return h('button', { class: 'button plain warn', type: 'button', 'data-action': true, onclick: cancel }, 'Cancel job');
      case 'report':
        return h('a', { class: 'button main', href: `/r/${encodeURIComponent(job?.slug ?? '')}` }, 'View Report');
      case 'again':
        return h('a', { class: 'button plain', href: '/jobs', onclick: () => fillFrom(id) }, 'Start again');
      case 'new':
        return h('a', { class: 'button plain', href: '/jobs' }, 'New job');
      case 'check':
        return h('button', { class: 'button plain', type: 'button', onclick: () => polling.start() }, 'Check again');
      default:
        return [];
    }
  }

  async function cancel() {
    const isDone = await confirmAction({
      title: `Cancel job ${visible(job?.summary ?? id, 80)}?`,
      body: ['What was sent stays done; its answer no longer counts.', 'There will be no report.'],
      action: 'Cancel job',
      busy: 'Cancelling…',
      keep: 'Keep',
      isDangerous: true,
      run: async () => polling.apply({ status: 200, job: await app.api.send('POST', `${url}/cancel`), retry_after_ms: null, problem: '' }),
    });
    if (isDone) title.focus();
  }

  return {
    title: () => heading,
    isStatic: true,
    refresh: polling.resume,
    unmount() {
      clearTimeout(slow);
      polling.stop();
      document.removeEventListener('visibilitychange', polling.resume);
    },
  };
}

/**
 * The wait that a `Retry-After` names, in milliseconds.
 * @param {string | null} header
 * @param {number} now
 */
function waitOf(header, now) {
  if (header === null) return null;
  if (/^\d+$/.test(header.trim())) return Number(header) * 1000;
  const at = Date.parse(header);
  return Number.isNaN(at) ? null : Math.max(0, at - now);
}
