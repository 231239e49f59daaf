// Heights of the names at the ends of lines.

/** Lines of text closer than this overlap. */
export const LINE_HEIGHT = 14;

/**
 * Moves names apart that would overlap, each group around its middle, and into `min`..`max`.
 * Names that need more room than there is begin at `min` and are closer.
 *
 * @param {number[]} preferred heights, in order
 * @param {number} min
 * @param {number} max
 * @returns {number[]}
 */
export function spread(preferred, min, max) {
  const room = preferred.length > 1 ? (max - min) / (preferred.length - 1) : LINE_HEIGHT;
  const gap = Math.max(0, Math.min(LINE_HEIGHT, room));
  /** @type {{ sum: number, count: number }[]} */
  const groups = [];
  const top = (/** @type {{ sum: number, count: number }} */ { sum, count }) =>
    Math.max(min, Math.min(sum / count - (gap * (count - 1)) / 2, max - gap * (count - 1)));
  for (const y of preferred) {
    let group = { sum: y, count: 1 };
    for (let above = groups.at(-1); above; above = groups.at(-1)) {
      if (top(above) + above.count * gap <= top(group)) break;
      group = { sum: group.sum + above.sum, count: group.count + above.count };
      groups.pop();
    }
    groups.push(group);
  }
  return groups.flatMap((group) =>
    Array.from({ length: group.count }, (_, index) => top(group) + index * gap));
}
