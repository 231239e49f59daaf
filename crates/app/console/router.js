// Paths and views: which page an address shows, and the address of a page.

/**
 * @typedef {'overview' | 'gates' | 'gate' | 'pools' | 'operations' | 'operation' | 'jobs' | 'job' | 'simulate' | 'login' | 'missing'} ViewName
 * @typedef {object} Route
 * @property {ViewName} view
 * @property {string} section The link of the navigation that it belongs to.
 * @property {string} id What the page is about: a key or an ID; empty for lists.
 * @property {URLSearchParams} query
 * @property {string} hash Without `#`.
 */

/** @type {[RegExp, ViewName, string][]} */
const ROUTES = [
  [/^\/$/, 'overview', '/'],
  [/^\/login$/, 'login', ''],
  [/^\/gates\/?$/, 'gates', '/gates'],
  // Everything after `/gates/` is the key, which may have a slash.
  [/^\/gates\/(.+)$/, 'gate', '/gates'],
  [/^\/pools\/?$/, 'pools', '/pools'],
  [/^\/operations\/?$/, 'operations', '/operations'],
  [/^\/operations\/([^/]+)$/, 'operation', '/operations'],
  [/^\/jobs\/?$/, 'jobs', '/jobs'],
  [/^\/jobs\/([^/]+)$/, 'job', '/jobs'],
  [/^\/simulate\/?$/, 'simulate', '/simulate'],
];

/**
 * @param {string} address Path, query and fragment.
 * @returns {Route}
 */
export function routeOf(address) {
  const url = new URL(address, 'http://console');
  const rest = { query: url.searchParams, hash: decode(url.hash.slice(1)) };
  for (const [pattern, view, section] of ROUTES) {
    const match = pattern.exec(url.pathname);
    if (match) return { view, section, id: decode(match[1] ?? ''), ...rest };
  }
  return { view: 'missing', section: '', id: url.pathname, ...rest };
}

/** @param {string} text */
function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** @param {string} key */
export const gatePath = (key) => `/gates/${key.split('/').map(encodeURIComponent).join('/')}`;

/** @param {string} id */
export const operationPath = (id) => `/operations/${encodeURIComponent(id)}`;

/** @param {string} id */
export const jobPath = (id) => `/jobs/${encodeURIComponent(id)}`;

/**
 * A path with those parameters that have a value.
 * @param {string} path
 * @param {Record<string, string | number | boolean | null | undefined>} parameters
 */
export function withQuery(path, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== '' && value !== false) {
      query.set(name, String(value));
    }
  }
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}
