//! Every family of metrics: its name, its type, its labels and its meaning. The output and the page
//! of the reference are both made from this list.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::histogram::Histogram;

/// A family of metrics: samples of one name that differ in their labels.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) kind: MetricType,
    /// The names of its labels, in the order of their values.
    pub(super) labels: &'static [&'static str],
    /// One sentence without its full stop.
    pub(super) help: &'static str,
    /// What else is worth knowing, for the page; may be empty.
    pub(super) more: &'static str,
}

/// The value of a sample.
#[derive(Clone, Copy)]
pub(super) enum Sample<'a> {
    Number(u64),
    Float(f64),
    Histogram(&'a Histogram),
}

impl Sample<'_> {
    fn encode(self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        match self {
            // As a gauge also for a counter, whose name has its `_total` already.
            Self::Number(number) => encoder.encode_gauge(&number),
            Self::Float(number) => encoder.encode_gauge(&number),
            Self::Histogram(histogram) => histogram.encode(encoder),
        }
    }
}

impl Family {
    /// Encodes samples, each with the values of all labels in order. A family without samples is
    /// left out.
    pub(super) fn encode<'a, const N: usize>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        samples: impl IntoIterator<Item = ([&'a str; N], Sample<'a>)>,
    ) -> fmt::Result {
        debug_assert_eq!(self.labels.len(), N);
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return Ok(());
        }
        let help = format!("{}.", self.help);
        let mut encoder = encoder.encode_descriptor(self.name, &help, None, self.kind)?;
        for (values, sample) in samples {
            if N == 0 {
                return sample.encode(encoder);
            }
            let names = self.labels.iter().copied();
            let labels: Vec<(&str, &str)> = names.zip(values).collect();
            sample.encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// A histogram of times. All have the same bounds, so that any two can be compared: from what a
/// server nearby takes to what a quota makes one wait.
pub(super) fn histogram() -> Histogram {
    Histogram::new(BOUNDS)
}

/// In seconds.
pub(super) const BOUNDS: [f64; 15] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0,
];

/// Counts a time. One longer than a year counts as a year, because a server may name any number.
pub(super) fn observe(histogram: &Histogram, time: Duration) {
    const YEAR: Duration = Duration::from_secs(366 * 86_400);
    histogram.observe(time.min(YEAR).as_secs_f64());
}

/// Declares the families and the list of them.
macro_rules! families {
    ($($constant:ident: $kind:ident $name:literal [$($label:literal),*] $help:literal $more:literal;)*) => {
        $(pub(super) static $constant: Family = Family {
            name: $name,
            kind: MetricType::$kind,
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
        "Requests of the data plane that have ended"
        "Responses made by Tidegate itself count too, with their reason as `outcome`. A path without a route is `_none`, forward mode `_forward`, its tunnels `_connect`.";
    ATTEMPTS: Counter "tidegate_attempts_total" ["key", "verdict"]
        "Attempts, each a request sent upstream"
        "`verdict` is `none` for a response that has none, such as a 1xx.";
    LATENCY: Histogram "tidegate_gate_latency_seconds" ["key"]
        "Time from sending an attempt to the head of its response or to its failure"
        "";
    WAIT: Histogram "tidegate_wait_seconds" ["reason"]
        "Time that calls waited at their gate or pool"
        "One for each wait; a call that is admitted at once has none. Waits that ended in a refusal are included. \
         `reason` is `rate`, `hold`, `breaker_open`, `in_flight`, `queue_full`, `deadline`, `too_many_gates`, `retry_budget`, \
         `paused` or `no_endpoint`.";
    BACKOFF: Histogram "tidegate_backoff_delay_seconds" []
        "Delays between an attempt and the next one of the same call"
        "Those that a server asked for are included. Attempts that follow at once, by failover or with a new credential, are not.";
    EXHAUSTED: Counter "tidegate_retries_exhausted_total" []
        "Calls that used all attempts they may have"
        "A request that must not be sent twice has one.";
    RETRY_AFTER_HONORED: Counter "tidegate_retry_after_honored_total" []
        "Delays that a server asked for and that were waited"
        "";
    RETRY_AFTER: Histogram "tidegate_retry_after_seconds" []
        "Length of the delays that servers asked for"
        "With the added jitter.";
    OPERATION_DELIVERY: Histogram "tidegate_operation_delivery_seconds" []
        "Time from accepting an operation to its delivery"
        "";
    CLAIMS_LOST: Counter "tidegate_operation_claims_lost_total" []
        "Results of operations that came too late, because their claim was lost"
        "Another machine, or this one, has sent such an operation again, or a person has decided about it.";
    RETRIES: Counter "tidegate_retries_total" ["attempt"]
        "Attempts that were not the first of their call"
        "`attempt` is the number of the retry: `1` is the second attempt; `1` to `10`, then `more`.";
    RETRY_SUCCESS: Counter "tidegate_retry_success_total" ["attempt"]
        "Calls that succeeded with a retry"
        "`attempt` as above.";
    GATES: Gauge "tidegate_gates" []
        "Number of gates"
        "";
    GATES_EVICTED: Counter "tidegate_gates_evicted_total" []
        "Gates that were evicted, because they were idle or to make room"
        "";
    GATE_RATE: Gauge "tidegate_gate_rate" ["key"]
        "Attempts per second that the gate admits"
        "";
    GATE_ERROR_RATE: Gauge "tidegate_gate_error_rate" ["key"]
        "Share of failed attempts in the breaker's window, 0 to 1"
        "";
    HOLD: Gauge "tidegate_hold_seconds" ["key"]
        "Time until the end of the gate's hold; 0 without one"
        "";
    GATE_IN_FLIGHT: Gauge "tidegate_gate_in_flight" ["key"]
        "Attempts in flight"
        "`_other` is the sum of all gates that are not shown.";
    GATE_WAITING: Gauge "tidegate_gate_waiting" ["key"]
        "Callers in the gate's line"
        "`_other` is the sum of all gates that are not shown.";
    BREAKER: Gauge "tidegate_breaker_state" ["key", "state"]
        "1 for the present state of the breaker, 0 for the others"
        "`state` is `closed`, `open`, `half_open` or `isolated`.";
    LOG_DROPPED: Counter "tidegate_log_lines_dropped_total" []
        "Log lines that were dropped because stderr was not read fast enough"
        "";
    REPLAY_BYTES: Gauge "tidegate_replay_bytes" []
        "Bytes of request bodies that are kept for sending them again; `http.replay_memory` bounds them"
        "";
    ACCESS_LOG_DROPPED: Counter "tidegate_access_log_lines_dropped_total" []
        "Lines of the access log that were dropped because it could not be written fast enough"
        "";
    SPANS_DROPPED: Counter "tidegate_otlp_requests_dropped_total" []
        "Requests, operations, URLs and their attempts whose spans were dropped because the collector did not accept them fast enough"
        "";
    OTLP_FAILURES: Counter "tidegate_otlp_failures_total" ["signal"]
        "Exports that the collector did not accept"
        "`signal` is `spans` or `metrics`.";
    ENDPOINT_ENABLED: Gauge "tidegate_endpoint_enabled" ["pool", "endpoint"]
        "1 if the endpoint is enabled, 0 if it is disabled until a person enables it"
        "";
    ENDPOINT_PAUSED: Gauge "tidegate_endpoint_paused" ["pool", "endpoint"]
        "1 while the endpoint is paused after errors, else 0"
        "";
    OPERATIONS: Gauge "tidegate_operations" ["state"]
        "Operations that are stored, by state"
        "`state` is `available`, `running`, `retryable`, `completed`, `failed`, `conflict` or `cancelled`.";
    JOBS: Gauge "tidegate_jobs" ["status"]
        "Jobs that are stored, by status"
        "`status` is `queued`, `running`, `done`, `error` or `cancelled`.";
    STORE_DEGRADED: Gauge "tidegate_store_degraded" []
        "1 while state cannot be stored, or the server that gates are shared through is silent, else 0"
        "";
    STORE_SILENCE: Gauge "tidegate_store_silence_seconds" []
        "For how long the server that gates are shared through has not answered; 0 while it does"
        "Only with `storage.gates`.";
}
