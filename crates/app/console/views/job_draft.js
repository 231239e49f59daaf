// What was typed into the form of jobs: kept while another page is shown, and to start a job again.

/** @typedef {{ urls: string, crawl: boolean, depth: string, same_host: boolean }} Draft */

/** @type {Map<string, Draft>} What this tab has started. */
const started = new Map();

export const form = {
  /** @type {Draft | null} What was typed and not yet sent. */
  draft: null,
};

/**
 * @param {string} id
 * @param {Draft} draft
 */
export function rememberStarted(id, draft) {
  started.set(id, draft);
  form.draft = null;
}

/**
 * Fills the form with what a job was started with, if this tab did it.
 * @param {string} id
 */
export function fillFrom(id) {
  form.draft = started.get(id) ?? form.draft;
}
