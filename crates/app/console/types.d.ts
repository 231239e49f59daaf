// The bodies of the admin API as the pages read them, and what a page is.

export interface Gate {
  key: string;
  strategy: string;
  rate_per_second: number;
  tokens: number;
  in_flight: number;
  waiting: number;
  latency_ms: { ewma: number, p95: number | null };
  error_rate: number;
  breaker: { state: BreakerState, until_ms: number | null, since_ms?: number | null, reason?: string | null };
  consecutive_failures: number;
  hold: { until_ms: number, reason: string, source: string, since_ms?: number | null } | null;
  counts: { admitted: number, success: number, throttled: number, failed: number };
  phase: string | null;
  ceiling: number | null;
  cost: { per_second: number, ceiling: number | null, available: number, mean: number } | null;
  fleet?: { rate_per_second: number, share: number, servers: number, is_owner: boolean, is_degraded: boolean };
  why: string;
  accepted_per_second: number;
  refused_per_second: number;
  failed_per_second: number;
  recent?: (number | null)[] | null;
}

export type BreakerState = 'closed' | 'open' | 'half_open' | 'isolated';

export interface GateMore {
  initial_rate: number;
  min_rate: number;
  max_rate: number;
  max_in_flight: number;
  limits: string[];
  first_leaves_ms: number | null;
  waiting_by_reason: Record<string, number>;
}

export type GateDetail = Gate & GateMore;

/** What one server of a fleet has of a gate. */
export interface GateServer {
  server: string;
  share: number;
  demand_per_second: number;
}

export interface GateTotals {
  requests: number;
  throttled: number;
  denied: number;
  retries: number;
  open: number;
  half_open: number;
  held: number;
  isolated: number;
  waiting: number;
  in_flight: number;
  gates: number;
  evicted: number;
}

export type GateList = { totals: GateTotals, total: number, gates: Gate[] };

export interface Band {
  state: 'held' | 'open' | 'half_open' | 'isolated';
  from_ms: number;
  to_ms: number | null;
  source: string | null;
}

export type Values = (number | null)[];

export interface History {
  key: string;
  start_ms: number;
  step_ms: number;
  rate: Values;
  ceiling: Values;
  accepted: Values;
  refused: Values;
  failed: Values;
  latency_ms: Values;
  p95_ms: Values;
  waiting: Values;
  in_flight: Values;
  bands: Band[];
  changes: { at_ms: number, from: number, to: number, why: string }[];
}

export interface Trail {
  id: string;
  at_ms: number;
  route: string;
  method: string;
  status: number;
  endpoint: string | null;
  outcome: string;
  attempts: number;
  waited_ms: number;
}

export type Explanation = Trail & { steps: { at_ms: number, kind: string, text: string }[], left_out: number };

export interface Sample {
  at_ms: number;
  totals: GateTotals;
  operations: OperationCounts;
  /** What needs a person. */
  attention: number;
  disabled_endpoints?: number;
  gates: Gate[];
}

export type ChangeEvent = { kind: string, data: any };

export type RecentEvent = { id: number, at_ms: number, kind: string, data: any, text: string };

export interface Summary {
  version: string;
  started_ms: number;
  health: { status: string, reason?: string };
  stores: { name: string, status: string, detail: string | null }[];
  totals: GateTotals;
  rates: { requests: number, accepted: number, refused: number, failed: number, retries: number };
  waiting_by_reason: Record<string, number>;
  operations: OperationCounts;
  jobs: Record<string, number>;
  pools: { pools: number, endpoints: number, paused: number, disabled: number };
  series: { start_ms: number, step_ms: number, requests: Values, accepted: Values, refused: Values, failed: Values, retries: Values, waiting: Values, waiting_by_reason: Record<string, Values> };
  attention: Attention[];
  attention_total: number;
}

export interface Attention {
  kind: string;
  key?: string;
  pool?: string;
  endpoint?: string;
  since_ms?: number | null;
  until_ms?: number | null;
  count?: number;
  text: string;
  link: string;
}

export interface Protection {
  enabled: boolean;
  pauses: string[];
  disable_after: number;
  unreachable: boolean;
  show_test_tool: boolean;
  probing_after: number;
  statuses: number[];
  texts: string[];
}

export interface Endpoint {
  name: string;
  url: string;
  key: string;
  enabled: boolean;
  paused_until_ms: number | null;
  pause_started_ms: number | null;
  consecutive_errors: number;
  last_error: string | null;
  recovering: boolean;
  disabled_reason: string | null;
  disabled_kind: string | null;
  disabled_at_ms: number | null;
  in_flight: number;
}

export type Pool = { name: string, balance: string, protection: Protection, configured: Protection, changed: boolean, endpoints: Endpoint[] };

export interface TestStep {
  event: string;
  status: number | null;
  at_ms: number;
  enabled: boolean;
  paused: boolean;
  pause_ms: number;
  consecutive_errors: number;
  last_error: string | null;
  text: string;
}

export type OperationState = 'available' | 'running' | 'retryable' | 'completed' | 'failed' | 'conflict' | 'cancelled';

export type OperationCounts = Record<OperationState, number>;

export interface Operation {
  id: string;
  type: string;
  state: OperationState;
  reason: string | null;
  key: string;
  summary: string;
  accepted_at_ms: number;
  next_at_ms: number | null;
  expires_at_ms: number | null;
  ended_at_ms: number | null;
  sent: number;
  /** Without those after which the server named a wait. */
  counted: number;
  max_attempts: number;
  replay_safe: boolean;
  blocked: boolean;
  order_key: string | null;
  priority: number;
  backoff: string | null;
  credential: string | null;
  trace_id: string | null;
  conflict: { rounds: number } | null;
  waiting_for: { reason: string, key: string, until_ms: number | null } | null;
  attempts?: OperationAttempt[];
  delays?: { backoff: string, estimate_ms: number, min_ms: number, max_ms: number };
}

export type OperationAttempt = { at_ms: number, phase: string, status: number | null, latency_ms: number, wait_ms: number, reason: string };

export type OperationList = { operations: Operation[], next_cursor: string | null, counts: OperationCounts };

export interface BulkResult {
  matched: number;
  /** How many would be, or were, changed. */
  will: number;
  changed: number;
  dry_run: boolean;
  left_out: { reason: string, count: number }[];
  sample: Operation[];
  next_cursor: string | null;
}

export interface Job {
  id: string;
  slug: string;
  summary: string;
  status: 'queued' | 'running' | 'done' | 'error' | 'cancelled';
  stage: 'discovery' | 'extraction' | 'processing' | 'output';
  progress: number;
  counts: { total: number, done: number, failed: number, denied: number, queued: number, in_flight: number, retrying: number, sent: number, bytes: number };
  error?: string;
  created_at_ms: number;
  started_at_ms: number | null;
  finished_at_ms: number | null;
}

export interface Settings {
  poll: { early_ms: number, middle_ms: number, late_ms: number, first_ms: number, base_ms: number, max_ms: number, give_up_after_ms: number, other_retries: number };
  jobs: { retain: string, max_urls: number, max_given_urls: number, depth: number, max_depth: number };
  operations: { types: string[] };
}

export type Version = { version: string, boot_id: string, started_ms: number, demo: boolean };

/** A page while it is shown. `main.js` calls it; everything is optional but `title`. */
export interface View {
  title: () => string;
  /** Gates to sample while it is shown. */
  keys?: () => string[];
  onSample?: (sample: Sample) => void;
  onEvent?: (event: ChangeEvent) => void;
  /** Fetch everything anew: after a reconnect, and on return to the tab. */
  refresh?: () => void;
  /** The server was restarted: charts start afresh. */
  restart?: () => void;
  /** The query or fragment changed. */
  onRoute?: (route: import('./router.js').Route) => void;
  /** Keys of this page, by name of the action. */
  shortcuts?: Record<string, () => void>;
  unmount?: () => void;
  /** It has no stream. */
  isStatic?: boolean;
}

/** What a page uses. */
export interface Console {
  api: import('./api.js').Api;
  clock: { now(): number };
  /**
   * Shows a countdown in an element while it is in the page; another call replaces it. At its end
   * the element gets an event `over`, which bubbles; `onEnd` comes a moment later, to fetch anew.
   */
  countdown: (element: HTMLElement, untilMs: number, text: (remainingMs: number) => string, onEnd?: () => void) => void;
  go: (address: string, how?: 'push' | 'replace') => void;
  toast: (text: string, undo?: () => void) => void;
  announce: (text: string) => void;
  titleChanged: () => void;
  keysChanged: () => void;
  settings: Settings;
  isFrozen: () => boolean;
  /** When the server was started. */
  startedMs: () => number;
}
