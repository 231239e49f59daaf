// The server's time, computed from the times in its responses.
//
// A response that was sent at `sent`, received at `received` and says `server` bounds the
// difference of the clocks: it is between `server - received` and `server - sent`. All responses
// together bound it better than the best of them. When they contradict each other, one of the
// clocks was set, and only the newest counts.

/**
 * @typedef {object} Clock
 * @property {() => number} now The server's Unix time in milliseconds; the local time until the
 *   first response.
 * @property {(serverMs: number, sentMs: number, receivedMs: number) => void} observe Takes the
 *   time in a response, with the local times around it.
 */

/**
 * @param {() => number} localNow Unix time in milliseconds
 * @returns {Clock}
 */
export function createClock(localNow = Date.now) {
  let [low, high] = [-Infinity, Infinity];

  return {
    now: () => localNow() + (low === -Infinity ? 0 : (low + high) / 2),
    observe(serverMs, sentMs, receivedMs) {
      if (![serverMs, sentMs, receivedMs].every(Number.isFinite)) return;
      if (sentMs > receivedMs) return;
      // The server's time has its fractions cut off.
      const [from, to] = [serverMs - receivedMs, serverMs + 1 - sentMs];
      const agrees = from <= high && to >= low;
      low = agrees ? Math.max(low, from) : from;
      high = agrees ? Math.min(high, to) : to;
    },
  };
}
