// JSON documents of conflicts. Numbers stay as they were written, because JSON.parse changes long
// ones; two numbers are equal if they have the same value. As in `policy::merge`, ambiguous
// documents are refused: duplicate names, half surrogates, nesting deeper than MAX_DEPTH.

/** @typedef {null | boolean | string | JsonNumber | any[] | JsonObject} Json */
/** @typedef {Map<string, any>} JsonObject of Json; a Map inherits no names */

/** The limit of common parsers. */
const MAX_DEPTH = 128;

/** A number as written. */
export class JsonNumber {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
  }
}

/**
 * Reads a document; undefined if it is invalid or ambiguous.
 * @param {string} text
 * @returns {Json | undefined}
 */
export function parseJson(text) {
  let at = 0;
  try {
    const value = readValue(0);
    return at === text.length ? value : undefined;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }

  /**
   * @param {number} depth
   * @returns {Json}
   */
  function readValue(depth) {
    skipSpace();
    const value = readBare(depth);
    skipSpace();
    return value;
  }

  /**
   * @param {number} depth
   * @returns {Json}
   */
  function readBare(depth) {
    if (depth > MAX_DEPTH) throw new SyntaxError('nested too deeply');
    switch (text[at]) {
      case '{': return readObject(depth);
      case '[': return readArray(depth);
      case '"': return readString();
      default: return readWord();
    }
  }

  /** @param {number} depth */
  function readObject(depth) {
    /** @type {JsonObject} */
    const object = new Map();
    readMembers('}', () => {
      skipSpace();
      const name = readString();
      skipSpace();
      if (object.has(name) || text[at] !== ':') throw new SyntaxError('not a member');
      at += 1;
      object.set(name, readValue(depth + 1));
    });
    return object;
  }

  /** @param {number} depth */
  function readArray(depth) {
    /** @type {Json[]} */
    const array = [];
    readMembers(']', () => array.push(readValue(depth + 1)));
    return array;
  }

  /**
   * @param {string} end
   * @param {() => void} readMember
   */
  function readMembers(end, readMember) {
    at += 1;
    skipSpace();
    if (text[at] === end) {
      at += 1;
      return;
    }
    for (;;) {
      readMember();
      const next = text[at];
      at += 1;
      if (next === end) return;
      if (next !== ',') throw new SyntaxError('not a separator');
    }
  }

  function readString() {
    const start = at;
    if (text[at] !== '"') throw new SyntaxError('not a string');
    at += 1;
    while (at < text.length && text[at] !== '"') at += text[at] === '\\' ? 2 : 1;
    at += 1;
    /** @type {string} */
    const string = JSON.parse(text.slice(start, at));
    if (HALF_SURROGATE.test(string)) throw new SyntaxError('half a surrogate');
    return string;
  }

  function readWord() {
    for (const [word, value] of WORDS) {
      if (text.startsWith(word, at)) {
        at += word.length;
        return value;
      }
    }
    NUMBER.lastIndex = at;
    const number = NUMBER.exec(text)?.[0];
    if (number === undefined) throw new SyntaxError('not a value');
    at += number.length;
    return new JsonNumber(number);
  }

  function skipSpace() {
    while (at < text.length && ' \t\n\r'.includes(text[at])) at += 1;
  }
}

const WORDS = /** @type {[string, null | boolean][]} */ (
  [['null', null], ['true', true], ['false', false]]);
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const HALF_SURROGATE = /\p{Cs}/u;

/**
 * A document as text; with `indent`, on several lines.
 * @param {Json} value
 * @param {string} indent
 * @returns {string}
 */
export function writeJson(value, indent = '', start = '\n') {
  if (value instanceof JsonNumber) return value.text;
  if (!(value instanceof Map) && !Array.isArray(value)) return JSON.stringify(value);
  const inner = indent && start + indent;
  const members = value instanceof Map
    ? Array.from(value, ([name, member]) =>
      `${JSON.stringify(name)}:${indent && ' '}${writeJson(member, indent, inner)}`)
    : value.map((member) => writeJson(member, indent, inner));
  const [open, close] = value instanceof Map ? '{}' : '[]';
  if (members.length === 0) return open + close;
  return open + inner + members.join(`,${inner}`) + (indent && start) + close;
}

/**
 * Whether two documents are equal; undefined is a missing one.
 * @param {Json | undefined} one
 * @param {Json | undefined} other
 * @returns {boolean}
 */
export function isEqual(one, other) {
  if (one instanceof JsonNumber && other instanceof JsonNumber) {
    return one.text === other.text || valueOf(one.text) === valueOf(other.text);
  }
  if (Array.isArray(one) && Array.isArray(other)) {
    return one.length === other.length && one.every((value, at) => isEqual(value, other[at]));
  }
  if (one instanceof Map && other instanceof Map) {
    return one.size === other.size &&
      Array.from(one).every(([name, value]) => other.has(name) && isEqual(value, other.get(name)));
  }
  return one === other;
}

/**
 * The same text for the same value: sign, digits without zeros at the ends, exponent of ten.
 * @param {string} number
 */
function valueOf(number) {
  const [mantissa, exponent = '0'] = number.toLowerCase().split('e');
  const [whole, fraction = ''] = mantissa.replace('-', '').split('.');
  const digits = (whole + fraction).replace(/^0+/, '');
  const significant = digits.replace(/0+$/, '');
  const power = Number(exponent) - fraction.length + digits.length - significant.length;
  if (significant === '') return '0';
  if (!Number.isSafeInteger(power)) return number;
  return `${mantissa.startsWith('-') ? '-' : ''}${significant}e${power}`;
}
