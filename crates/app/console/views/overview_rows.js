// Which rows Overview shows: events that repeat are one, and what needs a person does not come and
// go with every probe of a breaker.

/** @typedef {import('../types.js').RecentEvent} RecentEvent */

/** Events that say the same within this time are one. */
const SAME_MS = 10_000;
/** A row stays for so long after it is over. */
const LINGER_MS = 10_000;

/**
 * Joins events in a row that say the same; the newest stands for them.
 * @param {RecentEvent[]} events Newest first.
 * @returns {(RecentEvent & { times: number, firstId: number })[]}
 */
export function joinEvents(events) {
  /** @type {(RecentEvent & { times: number, firstId: number })[]} */
  const joined = [];
  for (const event of events) {
    const last = joined.at(-1);
    if (last && last.text === event.text && last.at_ms - event.at_ms <= SAME_MS) {
      last.times += 1;
      last.firstId = event.id;
    } else joined.push({ ...event, times: 1, firstId: event.id });
  }
  return joined;
}

/**
 * Rows with those that are over for a moment, at their places.
 * @template Item
 * @param {(item: Item) => string} keyOf
 */
export function createLingering(keyOf) {
  /** @type {{ key: string, item: Item, seenMs: number }[]} */
  let rows = [];
  /**
   * @param {Item[]} items
   * @param {number} nowMs
   * @returns {{ item: Item, isOver: boolean }[]}
   */
  return function update(items, nowMs) {
    const before = rows;
    rows = items.map((item) => ({ key: keyOf(item), item, seenMs: nowMs }));
    const present = new Set(rows.map(({ key }) => key));
    before.forEach((row, place) => {
      if (!present.has(row.key) && nowMs - row.seenMs < LINGER_MS) rows.splice(Math.min(place, rows.length), 0, row);
    });
    return rows.map(({ key, item }) => ({ item, isOver: !present.has(key) }));
  };
}
