// Text from elsewhere (keys, headers, URLs, errors of servers) made safe to read: nothing in it
// can reorder or hide what stands beside it, and it has a bounded length.

/** The longest text in a list. */
export const MAX_SHORT = 200;
/** The longest text in details. */
export const MAX_LONG = 10_000;

/**
 * Makes characters without a shape of their own visible, as in `⟨U+202E⟩`, and shortens to at
 * most `max` characters with `…` at the end.
 *
 * Visible become control characters, direction marks, invisible and unassigned ones, half
 * surrogates, and combining marks beyond the fourth on one letter. With `lines`, line breaks and
 * tabs stay as they are.
 *
 * @param {string} text
 * @param {number} max
 * @param {{ lines?: boolean }} options
 */
export function visible(text, max = MAX_SHORT, { lines = false } = {}) {
  if (text.length <= max && !NEEDS_CARE.test(text)) return text;
  /** @type {string[]} */
  const pieces = [];
  let length = 0;
  let marks = 0;
  for (const character of text) {
    marks = COMBINING.test(character) ? marks + 1 : 0;
    const stays = lines && (character === '\n' || character === '\t');
    const isHidden = !stays && (INVISIBLE.test(character) || marks > MAX_MARKS);
    pieces.push(isHidden ? codeOf(character) : character);
    length += isHidden ? codeOf(character).length : 1;
    if (length > max) return shorten(pieces, length, max);
  }
  return pieces.join('');
}

/**
 * Whether a text may become a link: an absolute URL with `http` or `https`, without a user name
 * (which can pass for the host) and without invisible characters.
 * @param {string} text
 */
export function isHttpUrl(text) {
  if (!/^https?:\/\//i.test(text) || visible(text, Infinity) !== text || /\s/.test(text)) {
    return false;
  }
  try {
    const url = new URL(text);
    return url.username === '' && url.password === '';
  } catch {
    return false;
  }
}

/** Other, that is control, format, surrogate, private or unassigned; line and paragraph ends. */
const INVISIBLE = /[\p{C}\p{Zl}\p{Zp}\u034f\u115f\u1160\u3164\uffa0]/u;
const COMBINING = /\p{M}/u;
/** Most texts have neither; for them one search is enough. */
const NEEDS_CARE = new RegExp(`${INVISIBLE.source}|${COMBINING.source}`, 'u');
/** Vietnamese and Hebrew need three. */
const MAX_MARKS = 4;

/** @param {string} character */
function codeOf(character) {
  const code = character.codePointAt(0) ?? 0;
  return `⟨U+${code.toString(16).toUpperCase().padStart(4, '0')}⟩`;
}

/**
 * Removes whole pieces from the end until `…` fits.
 * @param {string[]} pieces
 * @param {number} length
 * @param {number} max
 */
function shorten(pieces, length, max) {
  while (length >= max && pieces.length > 0) {
    const last = pieces.pop() ?? '';
    length -= last.startsWith('⟨U+') ? last.length : 1;
  }
  return pieces.join('') + '…';
}
