//! The figures of one run, by the names they have everywhere.

/// What a run came to. The names are those of the machine-readable output.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Accepted over what could have been, whole run; `None` if nothing could.
    pub goodput_ratio: Option<f64>,
    /// The same from 60 s on.
    pub goodput_ratio_settled: Option<f64>,
    /// Requests that left a client.
    pub sent: u64,
    /// Answers with 2xx or 3xx that arrived.
    pub accepted: u64,
    /// Answers with 429, 403 or 503 that arrived.
    pub refused: u64,
    /// Everything else that ended: 500s, refused connections, timeouts.
    pub failed: u64,
    /// Refused over sent; `None` if nothing was sent.
    pub refused_ratio: Option<f64>,
    /// Requests that left after a hint had arrived at that client and before its end.
    pub early_after_hint: u64,
    /// How often a client was banned.
    pub bans: u64,
    /// How often a breaker opened.
    pub breaker_opened: u64,
    /// The most that waited in the server's queue; `None` if it has none.
    pub max_queue: Option<u64>,
    /// When the first stretch begins that carries 90 % of what is possible, in seconds.
    pub time_to_90_s: Option<f64>,
    /// One for each outage.
    pub outages: Vec<OutageFigures>,
    /// One for each step of the limit.
    pub steps: Vec<StepFigures>,
    /// What failures cost.
    pub after_failures: AfterFailures,
    /// From sending to answer, accepted requests from 60 s on.
    pub mean_latency_ms: Option<f64>,
    /// 99 in 100 of those take no longer.
    pub p99_latency_ms: Option<f64>,
    /// Jain's index over accepted requests per client from 100 s on.
    pub jain: Option<f64>,
}

impl Figures {
    /// Every figure that is one number, by its name, in the order in which they are shown; `None`
    /// where it does not apply.
    pub fn numbers(&self) -> [(&'static str, Option<f64>); 15] {
        let count = |number: u64| Some(number as f64);
        [
            ("goodput_ratio", self.goodput_ratio),
            ("goodput_ratio_settled", self.goodput_ratio_settled),
            ("sent", count(self.sent)),
            ("accepted", count(self.accepted)),
            ("refused", count(self.refused)),
            ("failed", count(self.failed)),
            ("refused_ratio", self.refused_ratio),
            ("early_after_hint", count(self.early_after_hint)),
            ("bans", count(self.bans)),
            ("breaker_opened", count(self.breaker_opened)),
            ("max_queue", self.max_queue.and_then(count)),
            ("time_to_90_s", self.time_to_90_s),
            ("mean_latency_ms", self.mean_latency_ms),
            ("p99_latency_ms", self.p99_latency_ms),
            ("jain", self.jain),
        ]
    }
}

/// What came of an outage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutageFigures {
    /// Requests that left while it lasted.
    pub sent: u64,
    /// From its end to the first stretch with 90 % of what is possible, in seconds; `None` if there
    /// was none before the next outage.
    pub recovery_s: Option<f64>,
}

/// What came of a step of the limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepFigures {
    /// When the limit changed, in seconds.
    pub at_s: f64,
    /// From then to the first stretch with 90 % of what is possible, after a step down also with at
    /// most 10 % refused, in seconds; `None` if there was none before the next step.
    pub settle_s: Option<f64>,
}

/// What became of things that failed at least once and were accepted in the end. Refusals are no
/// failures, but to be refused afterwards costs a send as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AfterFailures {
    /// How often they failed.
    pub failures: u64,
    /// How often they were sent after their first failure.
    pub sends: u64,
}

impl AfterFailures {
    /// How many sends a failure costs: 1 if nothing else goes wrong. `None` if nothing failed.
    pub fn sends_per_failure(&self) -> Option<f64> {
        (self.failures > 0).then(|| self.sends as f64 / self.failures as f64)
    }
}
