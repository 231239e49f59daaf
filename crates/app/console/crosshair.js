// What the charts of a page have in common: the instant that is read, and the one timer that moves
// them to the left.

/**
 * A chart, as its group uses it.
 * @typedef {object} Member
 * @property {() => void} draw
 * @property {() => number} msPerPixel
 */

/** Lines do not move more often than this. */
const MIN_TICK_MS = 250;

/**
 * Joins charts: a pointer or key on one of them shows a line at the same instant in all. While an
 * instant is read they stand still.
 */
export function createCrosshair() {
  /** @type {Set<Member>} */
  const members = new Set();
  let timer = 0;
  let frame = 0;
  const stillImage = matchMedia('(prefers-reduced-motion: reduce)');

  const group = {
    /** The instant that is read. @type {number | null} */
    at: null,
    /** Since when the charts stand still. @type {number | null} */
    frozenAt: null,
    add, read, leave, request,
  };
  return group;

  /**
   * @param {Member} member
   * @returns {() => void} removes it
   */
  function add(member) {
    if (members.size === 0) document.addEventListener('visibilitychange', request);
    members.add(member);
    return () => {
      members.delete(member);
      if (members.size === 0) document.removeEventListener('visibilitychange', request);
      wait();
    };
  }

  /**
   * Reads an instant.
   * @param {number} at
   * @param {number} now
   */
  function read(at, now) {
    group.at = at;
    group.frozenAt ??= now;
    request();
  }

  function leave() {
    if (group.frozenAt === null) return;
    group.at = group.frozenAt = null;
    request();
  }

  /** Draws all in the next frame. */
  function request() {
    if (frame === 0 && members.size > 0) frame = requestAnimationFrame(draw);
  }

  function draw() {
    frame = 0;
    for (const member of members) member.draw();
    wait();
  }

  /** Draws again when a line has moved by a pixel. */
  function wait() {
    clearTimeout(timer);
    if (document.hidden || group.frozenAt !== null || stillImage.matches) return;
    const pixel = Math.min(...Array.from(members, (member) => member.msPerPixel()));
    if (Number.isFinite(pixel)) timer = window.setTimeout(request, Math.max(MIN_TICK_MS, pixel));
  }
}

/** @typedef {ReturnType<typeof createCrosshair>} Crosshair */
