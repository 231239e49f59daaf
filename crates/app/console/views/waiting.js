// What requests wait for, in words.

import { count } from '../format.js';
import { visible } from '../text.js';

/**
 * A reason of the API as words: `breaker open`.
 * @param {string} reason
 */
export const reasonText = (reason) => visible(reason.replaceAll('_', ' '), 40);

/**
 * How many wait for what, most first: `hold 30 · rate 7`.
 * @param {Record<string, number>} byReason
 */
export function waitingText(byReason) {
  const reasons = Object.entries(byReason).filter(([, waiting]) => waiting > 0);
  reasons.sort(([, a], [, b]) => b - a);
  return reasons.map(([reason, waiting]) => `${reasonText(reason)} ${count(waiting)}`).join(' · ');
}
