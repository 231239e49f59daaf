//! The options of a gate: each by name, optional, checked on its own.

use std::ops::Bound;
use std::time::Duration;

use crate::limits::Limit;
use crate::rate::Strategy;
use crate::setting::Kind;

crate::settings! {
    /// What was written about a gate; `None` leaves the default of the strategy.
    pub struct GateOptions;
    /// All values of a gate, not fitted together yet.
    pub(crate) struct GateValues(pub(crate)) {
        /// Off, every request is admitted and nothing is learned.
        enabled: bool = "true", Kind::Switch;
        /// How the rate moves: adaptive learns the limit, aimd rises and halves, fixed stays.
        strategy: Strategy = "adaptive", Strategy::KIND;
        /// Requests per second to begin with, while nothing is known yet.
        initial_rate: f64 = "2.0", RATE;
        /// The rate never falls below this, so that the gate goes on learning.
        min_rate: f64 = "0.1", RATE, aimd "0.25";
        /// The rate never rises above this.
        max_rate: f64 = "10_000", RATE, aimd "8";
        /// Known limits, which apply besides the rate: at most this many in any interval, such as ["10/1s", "5000/1d"].
        limits: Vec<Limit> = "", LIMITS;
        /// Attempts in flight at once; more wait.
        max_in_flight: u32 = "256", Kind::whole(1, 1_000_000);
        /// Callers that may wait; the next one is refused with queue_full.
        max_waiting: u32 = "10_000", Kind::whole(0, 10_000_000);
        /// How long a caller may wait.
        max_wait: Duration = "30s", Kind::DURATION;
        /// During a longer hold callers are refused at once instead of waiting; the hold is not shortened.
        max_hold: Duration = "1h", Kind::DURATION;
        /// The share of failures in the window that opens the breaker.
        error_rate_threshold: f64 = "0.5", SHARE, aimd "0.4";
        /// With fewer outcomes in the window the share is not judged.
        min_samples: u32 = "20", Kind::whole(1, 1_000_000), aimd "10";
        /// This many failures in a row open the breaker, whatever the share.
        consecutive_failures: u16 = "5", Kind::whole(1, 65_535);
        /// The time span that the breaker looks at.
        window: Duration = "10s", Kind::POSITIVE, aimd "30s";
        /// The window moves in steps of this.
        window_slice: Duration = "1s", Kind::POSITIVE, aimd "2s";
        /// How long the breaker stays open before the first probe.
        open_first: Duration = "1s", Kind::POSITIVE, aimd "15s";
        /// Later times grow by 1.6 up to this.
        open_for: Duration = "4s", Kind::POSITIVE, aimd "15s";
        /// Probes at once while half-open, and successes needed to close again.
        half_open_probes: u8 = "3", Kind::whole(1, 100);
        /// A gate that was not used for this long is removed.
        idle_after: Duration = "120s", Kind::POSITIVE;
        /// How many gates there may be, so that memory has a bound.
        max_gates: u32 = "100_000", Kind::whole(1, 100_000_000);
        /// Parts of the registry that lock separately; a power of two.
        shards: u32 = "64", Kind::PowerOfTwo(65_536);
        /// A wait longer than this counts as throttled in the figures.
        throttled_after: Duration = "100ms", Kind::DURATION;
        /// aimd: tokens that may be saved for a burst.
        burst: f64 = "4", Kind::number("a number of tokens", 1.0, 1e6);
        /// aimd: a fast success adds this to the rate.
        increase: f64 = "0.25", INCREASE;
        /// aimd: a decrease multiplies the rate by this.
        decrease: f64 = "0.5", DECREASE;
        /// aimd: responses faster than this let the rate rise.
        latency_target: Duration = "1s", Kind::POSITIVE;
        /// aimd: responses slower than the target times this make it fall.
        latency_degrade_factor: f64 = "2.0", Kind::number("a factor", 1.0, 1e6);
        /// aimd: a 429 without a hint counts as a failure in the breaker.
        count_throttled: bool = "true", Kind::Switch;
    }
}

/// One request in eleven days is the slowest useful rate, and beyond a billion per second a
/// nanosecond clock cannot distinguish two requests.
const RATE: Kind = Kind::number(
    "a number of requests per second",
    RATE_BOUNDS.0,
    RATE_BOUNDS.1,
);
pub(super) const RATE_BOUNDS: (f64, f64) = (1e-6, 1e9);

const SHARE: Kind = Kind::Number {
    noun: "a share",
    min: Bound::Excluded(0.0),
    max: Bound::Included(1.0),
};

const INCREASE: Kind = Kind::Number {
    noun: "a number",
    min: Bound::Excluded(0.0),
    max: Bound::Included(1e6),
};

const DECREASE: Kind = Kind::Number {
    noun: "a factor",
    min: Bound::Excluded(0.0),
    max: Bound::Excluded(1.0),
};

/// Each costs up to a kilobyte per gate; no known API publishes more than four.
const LIMITS: Kind = Kind::list(&Limit::KIND, 8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_every_setting_by_name() {
        for name in GateOptions::NAMES.iter().copied() {
            let value = match name {
                "enabled" | "count_throttled" => "true",
                "strategy" => "fixed",
                "limits" => "[\"10/1s\", \"5000/1d\"]",
                "max_wait" | "max_hold" | "window" | "window_slice" | "open_first" | "open_for"
                | "idle_after" | "throttled_after" | "latency_target" => "10s",
                "error_rate_threshold" | "decrease" => "0.3",
                _ => "1_024",
            };
            let value = if name == "half_open_probes" {
                "7"
            } else {
                value
            };
            let mut options = GateOptions::default();
            assert_eq!(options.set(name, value), Ok(()), "{name}");
            assert_ne!(options, GateOptions::default(), "{name} was set");
        }
    }

    #[test]
    fn refuses_invalid_values_with_expectation() {
        let check = |name: &str, values: &[&str], expected: &str| {
            for value in values {
                let error = GateOptions::default().set(name, value).unwrap_err();
                assert_eq!(
                    error.to_string(),
                    format!("`{name}` is `{value}`, expected {expected}")
                );
            }
        };
        let rate = "a number of requests per second from 0.000001 to 1000000000";
        check(
            "max_rate",
            &["0", "-1", "NaN", "inf", "1e10", "fast", ""],
            rate,
        );
        check("enabled", &["yes", "1"], "`true` or `false`");
        check(
            "strategy",
            &["AIMD", "constant"],
            "`adaptive`, `aimd` or `fixed`",
        );
        check(
            "max_in_flight",
            &["0", "-1", "1.5", "99999999999"],
            "a whole number from 1 to 1000000",
        );
        check(
            "half_open_probes",
            &["0", "256"],
            "a whole number from 1 to 100",
        );
        check(
            "error_rate_threshold",
            &["0", "1.1", "NaN"],
            "a share above 0 and at most 1",
        );
        check("window", &["0s"], "a duration above zero");
        check(
            "max_wait",
            &["30"],
            "a number with a unit such as `500ms`, `30s` or `5m`",
        );
        check(
            "shards",
            &["0", "3", "131072"],
            "a power of two from 1 to 65536",
        );
        check(
            "burst",
            &["0.5", "NaN"],
            "a number of tokens from 1 to 1000000",
        );
        check("decrease", &["0", "1", "2"], "a factor above 0 and below 1");
        check(
            "latency_degrade_factor",
            &["0.9"],
            "a factor from 1 to 1000000",
        );
        check("increase", &["0"], "a number above 0 and at most 1000000");
        check(
            "limits",
            &["10"],
            "a count and a period such as `10/1s` or `5000/1d`",
        );
        check(
            "limits",
            &["1/1s,1/2s,1/3s,1/4s,1/5s,1/6s,1/7s,1/8s,1/9s"],
            "at most 8 values",
        );
    }

    #[test]
    fn suggests_a_name_for_an_unknown_one() {
        let error = |name| {
            GateOptions::default()
                .set(name, "1")
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            error("max_rat"),
            "`max_rat` is `1`, expected a known setting; did you mean `max_rate`?"
        );
        assert!(error("zzzzzzzzzzzz").contains("a known setting: enabled, strategy"));
    }
}
