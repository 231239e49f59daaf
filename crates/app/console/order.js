// When rows may change their places. The server's order is taken over every few seconds, but not
// while that could hit a click, a focus or a selection: then every row stays where it is.

/** How often the order is renewed. */
export const RENEW_MS = 5000;

/**
 * @typedef {object} Arrangement
 * @property {string[]} keys The rows to show, in this order.
 * @property {string[]} added New rows that wait until the order is renewed.
 * @property {Set<string>} gone Rows that stay, although they are no more.
 */

/**
 * @param {string[]} shown Keys of the rows that are shown.
 * @param {string[]} fresh Keys in the server's order.
 * @param {boolean} isPaused
 * @returns {Arrangement}
 */
export function arrange(shown, fresh, isPaused) {
  if (!isPaused || shown.length === 0) return { keys: fresh, added: [], gone: new Set() };
  const [known, present] = [new Set(shown), new Set(fresh)];
  return {
    keys: shown,
    added: fresh.filter((key) => !known.has(key)),
    gone: new Set(shown.filter((key) => !present.has(key))),
  };
}

/**
 * How many rows of a list of which one page is shown are new: the others only changed their page.
 * @param {number} total Rows of the whole list when its order was renewed.
 * @param {number} freshTotal Rows of the whole list now.
 * @param {Arrangement} arrangement
 */
export function countNew(total, freshTotal, { added, gone }) {
  return Math.min(added.length, Math.max(0, freshTotal - total + gone.size));
}
