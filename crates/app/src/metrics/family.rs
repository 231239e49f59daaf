//! Every family of metrics: its name, its kind, its labels and what it says. What is rendered and
//! the page of the reference are both made from this list.

/// A family of metrics: samples of one name that differ in their labels.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// The names of its labels, in the order of their values.
    pub(super) labels: &'static [&'static str],
    /// One sentence without its full stop.
    pub(super) help: &'static str,
    /// What else is worth knowing, for the page; may be empty.
    pub(super) more: &'static str,
}

/// What can be done with the samples of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// They only grow.
    Counter,
    /// They go up and down.
    Gauge,
    /// They count lengths of time by how long these are.
    Histogram,
}

impl Kind {
    /// The word for it in the format.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Declares the families and the list of them.
macro_rules! families {
    ($($constant:ident: $kind:ident $name:literal [$($label:literal),*] $help:literal $more:literal;)*) => {
        $(pub(super) static $constant: Family = Family {
            name: $name,
            kind: Kind::$kind,
            labels: &[$($label),*],
            help: $help,
            more: $more,
        };)*

        /// Every family, in the order in which they are rendered.
        pub(super) static ALL: &[&Family] = &[$(&$constant),*];
    };
}

families! {
    REQUESTS: Counter "tidegate_requests_total" ["route", "outcome"]
        "Requests of the data plane that have ended, by route and by how they ended"
        "Answers that Tidegate makes itself count too, with their reason as `outcome`. A path without a route is `_none`.";
    ATTEMPTS: Counter "tidegate_attempts_total" ["key", "verdict"]
        "Attempts, each a request sent upstream, by gate and by what came of them"
        "`verdict` is `none` for an answer that says nothing, such as a 1xx.";
    LATENCY: Histogram "tidegate_gate_latency_seconds" ["key"]
        "From sending an attempt to the head of its answer or to its failure"
        "";
    WAIT: Histogram "tidegate_wait_seconds" ["reason"]
        "How long calls were kept from being sent, by what kept them"
        "One for each wait; who was admitted at once has none. Waits that ended in a refusal are included. \
         `reason` is `rate`, `hold`, `breaker_open`, `in_flight`, `queue_full`, `deadline`, `too_many_gates`, `retry_budget`, \
         `paused` or `no_endpoint`.";
    BACKOFF: Histogram "tidegate_backoff_delay_seconds" []
        "Delays between an attempt and the next one of the same call"
        "Those that a server named are included. Attempts that follow at once, by failover or with a new credential, are not.";
    RETRIES: Counter "tidegate_retries_total" ["attempt"]
        "Attempts that were not the first of their call, by number"
        "`attempt` is the number of the retry: `1` is the second time it was sent; `1` to `10`, then `more`.";
    EXHAUSTED: Counter "tidegate_retries_exhausted_total" []
        "Calls that used up all the sends they may have"
        "A request that must not be sent twice may have one.";
    RETRY_SUCCESS: Counter "tidegate_retry_success_total" ["attempt"]
        "Calls that had success by a retry, by its number"
        "`attempt` as above.";
    RETRY_AFTER_HONORED: Counter "tidegate_retry_after_honored_total" []
        "Delays that were taken from what a server said"
        "";
    RETRY_AFTER: Histogram "tidegate_retry_after_seconds" []
        "How long the delays were that servers asked for"
        "With the jitter that is added to them; none is ever taken away.";
    GATES: Gauge "tidegate_gates" []
        "Gates there are now"
        "";
    GATES_EVICTED: Counter "tidegate_gates_evicted_total" []
        "Gates that were forgotten, being idle or to make room"
        "";
    GATE_RATE: Gauge "tidegate_gate_rate" ["key"]
        "Attempts per second that the gate admits now"
        "";
    GATE_IN_FLIGHT: Gauge "tidegate_gate_in_flight" ["key"]
        "Attempts under way"
        "`_other` is the sum of all gates that are not shown.";
    GATE_WAITING: Gauge "tidegate_gate_waiting" ["key"]
        "How many wait in the gate's line"
        "`_other` is the sum of all gates that are not shown.";
    GATE_ERROR_RATE: Gauge "tidegate_gate_error_rate" ["key"]
        "Share of failed attempts in the breaker's window, 0 to 1"
        "";
    BREAKER: Gauge "tidegate_breaker_state" ["key", "state"]
        "1 for the state that the breaker is in, 0 for the others"
        "`state` is `closed`, `open`, `half_open` or `isolated`.";
    HOLD: Gauge "tidegate_hold_seconds" ["key"]
        "What is left of the gate's hold; 0 without one"
        "";
    ENDPOINT_ENABLED: Gauge "tidegate_endpoint_enabled" ["pool", "endpoint"]
        "1 if the endpoint may be used, 0 if it is disabled until a person enables it"
        "";
    ENDPOINT_PAUSED: Gauge "tidegate_endpoint_paused" ["pool", "endpoint"]
        "1 while the endpoint is left alone after errors, else 0"
        "";
    STORE_DEGRADED: Gauge "tidegate_store_degraded" []
        "1 while what has to survive a restart cannot be written down, else 0"
        "";
    LOG_DROPPED: Counter "tidegate_log_lines_dropped_total" []
        "Lines of the log that were dropped because it could not be written as fast as they came"
        "";
}
