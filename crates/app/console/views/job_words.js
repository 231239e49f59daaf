// What the pages of jobs say, as functions of what the server said.

import { count, duration } from '../format.js';
import { visible } from '../text.js';

/** @typedef {import('../types.js').Job} Job */

/** @type {Record<string, string>} */
const STAGES = {
  discovery: 'Finding pages',
  extraction: 'Analyzing content',
  processing: 'Checking trackers',
  output: 'Finalizing report',
};

/** @param {string} stage */
export const stageText = (stage) => STAGES[stage] ?? stage;

/** @param {Job} job */
export const isActive = ({ status }) => status === 'queued' || status === 'running';

/**
 * Whole per cent, rounded down: 100 is for the end.
 * @param {number} progress
 */
export const percent = (progress) => Math.floor(Math.min(100, Math.max(0, progress)));

/**
 * How far a job is: `212 of about 530 pages · 3 failed`. While pages are found, their number grows.
 * @param {Job} job
 */
export function pagesText({ status, stage, counts }) {
  if (status === 'queued') return 'Waits for its turn: it starts when another job ends';
  if (counts.total === 0) return 'No page is known yet';
  const isGrowing = status === 'running' && (stage === 'discovery' || stage === 'extraction');
  const about = isGrowing ? 'about ' : '';
  const pages = counts.total === 1 ? 'page' : 'pages';
  const failed = counts.failed > 0 ? ` · ${count(counts.failed)} failed` : '';
  return `${count(counts.done)} of ${about}${count(counts.total)} ${pages}${failed}`;
}

/**
 * How long jobs are kept, `30d`, in words: `30 days`.
 * @param {string} text A duration as in the settings
 */
export function retainText(text) {
  const days = /^(\d+)d$/.exec(text)?.[1];
  if (!days) return text;
  return days === '1' ? '1 day' : `${days} days`;
}

/**
 * `5 minutes`, or a duration where that is not exact.
 * @param {number} ms
 */
export function minutesText(ms) {
  const minutes = ms / 60_000;
  if (!Number.isInteger(minutes)) return duration(ms);
  return minutes === 1 ? '1 minute' : `${minutes} minutes`;
}

/**
 * The URLs in a text with one per line, and the number of each line, counted from 1. Empty lines
 * are left out.
 * @param {string} text
 */
export function readLines(text) {
  const lines = text.split('\n').map((line, at) => ({ url: line.trim(), line: at + 1 }));
  return lines.filter(({ url }) => url !== '');
}

/**
 * The line that a problem is about; null if it is not about one.
 * @param {string} field As the API names it: `urls[2]`, counted from 0
 * @param {{ line: number }[]} lines
 */
export function lineOf(field, lines) {
  const place = /^urls\[(\d+)\]$/.exec(field)?.[1];
  return place === undefined ? null : (lines[Number(place)]?.line ?? null);
}

/**
 * What is wrong with which lines. The server does not repeat URLs, which can contain secrets; here
 * the line says it.
 * @param {{ field: string, value: string | null, expected: string }[]} problems
 * @param {{ url: string, line: number }[]} lines
 */
export function lineProblems(problems, lines) {
  return problems.flatMap(({ field, value, expected }) => {
    const found = lines.find(({ line }) => line === lineOf(field, lines));
    if (!found) return [];
    const text = expected.replace(/^`[^`]*`/, () => `\`${visible(found.url, 100)}\``);
    return [{ line: found.line, text: value === null ? text : `${value}: expected ${text}` }];
  });
}

/**
 * Where a line begins and ends in a text.
 * @param {string} text
 * @param {number} line Counted from 1
 * @returns {[start: number, end: number]}
 */
export function rangeOfLine(text, line) {
  const lines = text.split('\n');
  const start = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
  return [start, start + (lines[line - 1] ?? '').length];
}

/**
 * @typedef {object} JobResponse A response to a request for the status.
 * @property {number | null} status HTTP's; null without a response
 * @property {Job | null} job
 * @property {number | null} retry_after_ms The wait that the server names
 * @property {string} problem What is wrong with it; empty if nothing
 */

/**
 * The heading: what is known of the job after a response.
 * @param {import('../poll.js').PollStep | null} step Null before the first response
 * @param {Job | null} job As last seen
 */
export function headingOf(step, job) {
  switch (step?.state) {
    case 'not_found':
      return 'Scan not found';
    case 'done':
      return 'Scan Complete!';
    case 'gave_up':
      return 'Status unknown';
    case 'failed':
      if (!job || isActive(job)) return 'Status unknown';
      return job.status === 'cancelled' ? 'Scan cancelled' : 'Scan failed';
    default:
      return job || step?.banner ? 'Scanning in Progress' : 'Job';
  }
}

/**
 * Why the page has stopped asking although the job may go on.
 * @param {import('../poll.js').PollStep} step
 * @param {JobResponse} response The last one
 * @param {boolean} isRecent The last success is not longer ago than `giveUpAfterMs`.
 * @param {number} giveUpAfterMs
 */
export function stoppedText({ state }, response, isRecent, giveUpAfterMs) {
  const end = 'so this page stopped asking. The scan may still be running.';
  const minutes = minutesText(giveUpAfterMs);
  if (state === 'failed') return `Status checks failed too often (${response.problem}), ${end}`;
  if (isRecent && response.retry_after_ms) {
    return `The next status check is allowed in ${duration(response.retry_after_ms)}, which is too long to wait, ${end}`;
  }
  return `Status checks were refused for more than ${minutes}, ${end}`;
}
