// Settings as TOML, to be copied into the configuration file.

/** @typedef {string | number | boolean | (string | number)[]} Value */

/**
 * The protection of a pool as `[pool.NAME.protection]`.
 * @param {string} pool
 * @param {Record<string, Value>} settings
 */
export function protectionToml(pool, settings) {
  const lines = Object.entries(settings).map(([name, value]) => `${key(name)} = ${write(value)}`);
  return [`[pool.${key(pool)}.protection]`, ...lines, ''].join('\n');
}

/** @param {string} name */
function key(name) {
  return /^[A-Za-z0-9_-]+$/.test(name) ? name : string(name);
}

/**
 * @param {Value} value
 * @returns {string}
 */
function write(value) {
  if (Array.isArray(value)) return `[${value.map(write).join(', ')}]`;
  return typeof value === 'string' ? string(value) : String(value);
}

/**
 * A basic string. JSON escapes the same characters, but for DEL.
 * @param {string} text
 */
function string(text) {
  return JSON.stringify(text.replace(/\p{Cs}/gu, '\ufffd')).replaceAll('\x7f', '\\u007F');
}
