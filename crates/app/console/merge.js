// The three versions of a conflict as rows, one for each JSON pointer, with the rules of
// `policy::merge`: objects are merged by key, anything else is one value.

import { isEqual } from './json.js';

/** @typedef {import('./json.js').Json} Json */
/** @typedef {'same' | 'changed' | 'added' | 'removed' | 'unknown'} Change since the base */

/**
 * @typedef {object} Row a value in three versions; undefined where it is missing
 * @property {string} pointer as in RFC 6901
 * @property {string[]} path names from the root
 * @property {Json | undefined} base
 * @property {Json | undefined} ours
 * @property {Json | undefined} theirs
 * @property {{ ours: Change, theirs: Change }} change
 * @property {'ours' | 'theirs' | null} default null if both sides changed it differently
 */

/** @typedef {'ours' | 'theirs' | { value: Json | undefined }} Choice */

/** Objects with more values than this are one row. */
export const MAX_ROWS = 1000;

/**
 * All values in the order of the documents. Without a base it is unknown which side changed a
 * value, and every difference needs a choice.
 *
 * @param {Json | undefined} base undefined if there is none
 * @param {Json} ours
 * @param {Json} theirs
 * @returns {Row[]}
 */
export function rows(base, ours, theirs) {
  const hasBase = base !== undefined;
  /** @type {Row[]} */
  const found = [];
  /** Rows that objects on the way still need. */
  let reserved = 0;
  visit([], base, ours, theirs);
  return found;

  /**
   * @param {string[]} path
   * @param {Json | undefined} baseValue
   * @param {Json | undefined} ourValue
   * @param {Json | undefined} theirValue
   */
  function visit(path, baseValue, ourValue, theirValue) {
    const names = sharedNames(baseValue, ourValue, theirValue);
    if (names === null || names.length === 0 ||
      found.length + reserved + names.length > MAX_ROWS) {
      found.push(rowOf(path, baseValue, ourValue, theirValue));
      return;
    }
    reserved += names.length;
    for (const name of names) {
      reserved -= 1;
      visit([...path, name], member(baseValue, name), member(ourValue, name),
        member(theirValue, name));
    }
  }

  /**
   * The names of objects that can be merged by key; null for anything else.
   * @param {(Json | undefined)[]} versions base, ours, theirs
   */
  function sharedNames(...versions) {
    const objects = (hasBase ? versions : versions.slice(1)).filter((value) => value instanceof Map);
    if (objects.length < (hasBase ? 3 : 2)) return null;
    const [first, ...others] = [...objects.slice(hasBase ? 1 : 0), ...objects.slice(0, 1)];
    return [...new Set([first, ...others].flatMap((object) => [...object.keys()]))];
  }

  /**
   * @param {string[]} path
   * @param {Json | undefined} baseValue
   * @param {Json | undefined} ourValue
   * @param {Json | undefined} theirValue
   * @returns {Row}
   */
  function rowOf(path, baseValue, ourValue, theirValue) {
    const isAgreed = isEqual(ourValue, theirValue);
    const change = {
      ours: changeOf(baseValue, ourValue, isAgreed),
      theirs: changeOf(baseValue, theirValue, isAgreed),
    };
    /** @type {Row['default']} */
    let side = null;
    if (isAgreed || change.theirs === 'same') side = 'ours';
    else if (change.ours === 'same') side = 'theirs';
    const pointer = path.map((name) => `/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`);
    return {
      pointer: pointer.join(''), path, base: baseValue, ours: ourValue, theirs: theirValue, change,
      default: side,
    };
  }

  /**
   * @param {Json | undefined} from
   * @param {Json | undefined} to
   * @param {boolean} isAgreed
   * @returns {Change}
   */
  function changeOf(from, to, isAgreed) {
    if (!hasBase) return isAgreed ? 'same' : 'unknown';
    if (isEqual(from, to)) return 'same';
    if (from === undefined) return 'added';
    return to === undefined ? 'removed' : 'changed';
  }
}

/**
 * Whether any side of a row differs.
 * @param {Row} row
 */
export function isChanged({ change }) {
  return change.ours !== 'same' || change.theirs !== 'same';
}

/**
 * The document of the chosen values; the default where there is no choice. Lists the pointers of
 * rows that still need a choice, and then there is no document.
 *
 * @param {Row[]} all what `rows` returned
 * @param {Map<string, Choice>} choices by pointer
 * @returns {{ document: Json | undefined, missing: string[] }}
 */
export function apply(all, choices) {
  const chosen = all.map((row) => choices.get(row.pointer) ?? row.default);
  const missing = all.filter((_, at) => chosen[at] === null).map(({ pointer }) => pointer);
  if (missing.length > 0) return { document: undefined, missing };
  /** @type {import('./json.js').JsonObject} */
  const root = new Map();
  all.forEach((row, at) => {
    const choice = chosen[at];
    const value = choice === 'ours' || choice === 'theirs' ? row[choice] : choice?.value;
    place(root, ['', ...row.path], value);
  });
  return { document: root.get(''), missing };
}

/**
 * Makes the objects on the way, also if the value itself is missing.
 * @param {import('./json.js').JsonObject} root
 * @param {string[]} path
 * @param {Json | undefined} value
 */
function place(root, path, value) {
  let object = root;
  for (const name of path.slice(0, -1)) {
    const inner = object.get(name);
    const next = inner instanceof Map ? inner : new Map();
    object.set(name, next);
    object = next;
  }
  if (value !== undefined) object.set(path[path.length - 1], value);
}

/**
 * @param {Json | undefined} value
 * @param {string} name
 */
function member(value, name) {
  return value instanceof Map ? value.get(name) : undefined;
}
