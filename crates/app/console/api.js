// Calls of the admin API. A problem becomes an ApiError; a missing sign-in is asked for, and the
// call is repeated.

/** @typedef {{ field: string, value: string | null, expected: string }} InvalidField */

/** A call that failed: with the server's problem, or without any response (`status` 0). */
export class ApiError extends Error {
  /**
   * @param {number} status
   * @param {{ title?: string, detail?: string, reason?: string, problems?: InvalidField[] }} problem
   */
  constructor(status, problem) {
    super(problem.detail ?? problem.title ?? `HTTP ${status}`);
    this.status = status;
    this.title = problem.title ?? '';
    this.reason = problem.reason ?? '';
    this.problems = problem.problems ?? [];
  }
}

const NO_ANSWER = {
  title: 'No answer',
  reason: 'no_answer',
  detail:
    'No answer. The change may or may not have been made; the page shows what is true as soon as Tidegate is back.',
};
const NO_ANSWER_TO_GET = {
  title: 'No answer',
  reason: 'no_answer',
  detail: 'Tidegate does not answer. The page tries again by itself.',
};

/**
 * @typedef {ReturnType<typeof createApi>} Api
 * @param {{ observe(serverNow: number, sentAt: number, receivedAt: number): void }} clock
 * @param {() => Promise<void>} signIn Returns when there is a sign-in again.
 */
export function createApi(clock, signIn) {
  /**
   * @param {string} method
   * @param {string} path
   * @param {{ body?: unknown, signal?: AbortSignal | undefined }} [options]
   * @returns {Promise<Response>}
   */
  async function request(method, path, options = {}) {
    for (;;) {
      const response = await send(method, path, options);
      if (response.status !== 401) return response;
      await signIn();
    }
  }

  /**
   * @param {string} method
   * @param {string} path
   * @param {{ body?: unknown, signal?: AbortSignal | undefined }} options
   */
  async function send(method, path, { body, signal }) {
    const sentAt = Date.now();
    /** @type {RequestInit} */
    const init = { method, signal: signal ?? null, credentials: 'same-origin', cache: 'no-store' };
    if (method !== 'GET') {
      init.headers = { 'content-type': 'application/json' };
      init.body = typeof body === 'string' ? body : JSON.stringify(body ?? {});
    }
    let response;
    try {
      response = await fetch(path, init);
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new ApiError(0, method === 'GET' ? NO_ANSWER_TO_GET : NO_ANSWER);
    }
    const now = Number(response.headers.get('tidegate-now'));
    if (now > 0) clock.observe(now, sentAt, Date.now());
    return response;
  }

  /**
   * @param {Response} response
   * @returns {Promise<any>}
   */
  async function read(response) {
    if (response.ok) return response.status === 204 ? null : response.json();
    throw new ApiError(response.status, await problem(response));
  }

  return {
    /**
     * @param {string} path
     * @param {AbortSignal} [signal]
     * @returns {Promise<any>}
     */
    get: async (path, signal) => read(await request('GET', path, { signal })),

    /**
     * @param {'POST' | 'PUT' | 'PATCH' | 'DELETE'} method
     * @param {string} path
     * @param {unknown} [body] A string is JSON already.
     * @param {AbortSignal} [signal]
     * @returns {Promise<any>}
     */
    send: async (method, path, body, signal) => read(await request(method, path, { body, signal })),

    /**
     * The response itself, whatever its status.
     * @param {string} path
     * @param {AbortSignal} [signal]
     */
    response: (path, signal) => request('GET', path, { signal }),
  };
}

/** @param {Response} response */
export async function problem(response) {
  try {
    return await response.json();
  } catch {
    return { title: `HTTP ${response.status}` };
  }
}

/** @param {string} key */
export const gateUrl = (key) => `/api/v1/gates/${encodeURIComponent(key)}`;

/** @param {string} id */
export const operationUrl = (id) => `/api/v1/operations/${encodeURIComponent(id)}`;

/** @param {string} pool */
export const poolUrl = (pool) => `/api/v1/pools/${encodeURIComponent(pool)}`;
