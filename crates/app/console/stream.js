// Live events: one stream while the page is visible, opened again when it ends or when the page
// shows other gates. It is read with fetch, because an EventSource does not tell why it failed.

import { createReader } from './sse.js';

/**
 * @typedef {'off' | 'connecting' | 'live' | 'lost' | 'polling'} StreamState
 * @typedef {{ now_ms: number, boot_id: string, version: string, demo: boolean }} Hello
 * @typedef {import('./types.js').Sample} Sample
 * @typedef {import('./types.js').ChangeEvent} ChangeEvent
 *
 * @typedef {object} Handlers
 * @property {(hello: Hello, isSwitch: boolean) => void} onHello A stream has begun; what was before it
 *   is unknown, unless it only has other gates than the one before.
 * @property {(sample: Sample) => void} onSample
 * @property {(event: ChangeEvent) => void} onEvent
 * @property {() => void} onMissed Events were left out.
 * @property {(state: StreamState, retryAt: number | null) => void} onState
 * @property {() => Promise<void>} signIn
 */

const DELAYS = [1000, 2000, 4000, 8000, 15_000];
/** The server sends something every second; without anything for so long it is gone. */
const SILENCE = 10_000;
/** Between refreshes when there are too many streams. */
const POLL = 5000;
/** A tab that is hidden for so long gives its connection back. */
const HIDDEN = 30_000;

/**
 * @typedef {ReturnType<typeof createStream>} Stream
 * @param {Handlers} handlers
 */
export function createStream(handlers) {
  /** @type {string[]} */
  let keys = [];
  let isWanted = false;
  let isLive = false;
  /** Whether a stream is replaced by one with other gates. */
  let isSwitch = false;
  let failures = 0;
  /** @type {AbortController | null} */
  let current = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let hiding;

  function open() {
    close();
    if (!isWanted || document.hidden) return;
    const controller = new AbortController();
    current = controller;
    if (failures === 0 && !isSwitch) handlers.onState('connecting', null);
    run(controller).then(
      () => controller.signal.aborted || retry(),
      () => controller.signal.aborted || retry(),
    );
  }

  function close() {
    clearTimeout(timer);
    current?.abort();
    current = null;
  }

  function retry() {
    const delay = DELAYS[Math.min(failures, DELAYS.length - 1)] * (0.8 + 0.4 * Math.random());
    failures += 1;
    isLive = isSwitch = false;
    handlers.onState('lost', Date.now() + delay);
    timer = setTimeout(open, delay);
  }

  /** @param {AbortController} controller */
  async function run(controller) {
    const response = await fetch(address(), { signal: controller.signal, cache: 'no-store' });
    if (response.status === 401) {
      await handlers.signIn();
      return open();
    }
    if (response.status === 503 && (await response.json()).reason === 'too_many_streams') {
      handlers.onState('polling', null);
      handlers.onMissed();
      timer = setTimeout(open, POLL);
      return controller.abort();
    }
    if (!response.ok || !response.body) throw new Error(`HTTP ${response.status}`);
    const reader = response.body.getReader();
    const events = createReader(dispatch);
    const decoder = new TextDecoder();
    for (;;) {
      const silence = setTimeout(() => reader.cancel(), SILENCE);
      const { done, value } = await reader.read().finally(() => clearTimeout(silence));
      if (done || controller.signal.aborted) return;
      events.push(decoder.decode(value, { stream: true }));
    }
  }

  function address() {
    const query = new URLSearchParams({ kinds: 'changes', sample: '1s' });
    for (const key of keys) query.append('key', key);
    return `/api/v1/events?${query}`;
  }

  /** @param {{ event: string, data: string }} message */
  function dispatch({ event, data }) {
    const body = JSON.parse(data);
    if (event === 'hello') {
      failures = 0;
      isLive = true;
      handlers.onState('live', null);
      handlers.onHello(body, isSwitch);
      isSwitch = false;
    } else if (event === 'sample') handlers.onSample(body);
    else if (event === 'missed') handlers.onMissed();
    else handlers.onEvent({ kind: event, data: body });
  }

  document.addEventListener('visibilitychange', () => {
    clearTimeout(hiding);
    if (document.hidden) hiding = setTimeout(close, HIDDEN);
    else if (!current) {
      handlers.onMissed();
      open();
    }
  });

  // A page that the browser keeps for Back would keep its connection, of which there are six.
  addEventListener('pagehide', close);
  addEventListener('pageshow', (event) => {
    if (!event.persisted) return;
    handlers.onMissed();
    open();
  });

  return {
    /**
     * Samples these gates from now on.
     * @param {string[]} wanted
     * @param {boolean} isSamePage
     */
    watch(wanted, isSamePage) {
      const sorted = [...new Set(wanted)].sort().slice(0, 100);
      if (isWanted && sorted.join('\n') === keys.join('\n')) return;
      keys = sorted;
      isWanted = true;
      isSwitch = isSamePage && isLive;
      open();
    },
    /** For a page without a stream. */
    stop() {
      isWanted = isLive = isSwitch = false;
      failures = 0;
      close();
      handlers.onState('off', null);
    },
    tryNow: open,
  };
}
