//! The adaptive retry mode of the AWS SDKs: a token bucket whose rate moves like the window of
//! TCP CUBIC.
//!
//! From its public description: nothing is limited until the first throttling response. From then on
//! such a response sets the rate to 0.7 of the measured rate; every other result, errors included,
//! raises it along a cubic curve that is flat around the rate of the last throttling, to at most twice
//! the measured rate. The measured rate is counted in half seconds and smoothed with 0.8. Hints are not
//! read.
//!
//! The retries of that mode are left out: refused requests return to the backlog, and the limiter alone
//! decides.

use std::time::Duration;

use policy::outcome::{UpstreamResponse, Verdict};
use policy::random::Random;
use policy::time::Timestamp;
use sim::client::{Action, AttemptId, AttemptResult, Controller, ControllerState, FollowUp};

use super::bucket::Bucket;

#[derive(Debug)]
pub(crate) struct Cubic {
    max_in_flight: u32,
    in_flight: u32,
    measured: Measured,
    /// `None` until something was throttled.
    bucket: Option<Bucket>,
    /// The rate at which throttling last happened.
    last_max_rate: f64,
    last_throttle: Timestamp,
    /// Nothing is sent before this, after a failed connection.
    not_before: Timestamp,
}

impl Cubic {
    pub(crate) fn new(max_in_flight: u32) -> Self {
        Self {
            max_in_flight,
            in_flight: 0,
            measured: Measured::default(),
            bucket: None,
            last_max_rate: 0.0,
            last_throttle: Timestamp::ZERO,
            not_before: Timestamp::ZERO,
        }
    }

    fn throttled(&mut self, now: Timestamp) {
        let measured = self.measured.rate;
        let rate = match &self.bucket {
            Some(bucket) => measured.min(bucket.rate),
            None => measured,
        };
        self.last_max_rate = rate;
        self.last_throttle = now;
        self.bucket
            .get_or_insert_with(|| Bucket::new(MIN_RATE, MIN_CAPACITY, 0.0, now));
        self.set_rate(rate * BETA, now);
    }

    fn grow(&mut self, now: Timestamp) {
        let flat_after = (self.last_max_rate * (1.0 - BETA) / SCALE).cbrt();
        let elapsed = now.seconds_since(self.last_throttle) - flat_after;
        self.set_rate(SCALE * elapsed.powi(3) + self.last_max_rate, now);
    }

    fn set_rate(&mut self, rate: f64, now: Timestamp) {
        let rate = rate.min(2.0 * self.measured.rate);
        if let Some(bucket) = &mut self.bucket {
            bucket.set_rate(rate.max(MIN_RATE), rate.max(MIN_CAPACITY), now);
        }
    }
}

/// How far the rate falls.
const BETA: f64 = 0.7;
/// How steep the curve is.
const SCALE: f64 = 0.4;
/// Shorter than any real failure of a connection. Without it, virtual time would not advance at a
/// server that refuses connections in zero time.
const AFTER_FAILURE: Duration = Duration::from_millis(1);

impl Controller for Cubic {
    fn next_action(
        &mut self,
        _: AttemptId,
        has_backlog: bool,
        now: Timestamp,
        _: &mut Random,
    ) -> Action {
        if !has_backlog || self.in_flight >= self.max_in_flight {
            return Action::Wait { until: None };
        }
        if now < self.not_before {
            return Action::Wait {
                until: Some(self.not_before),
            };
        }
        if let Some(bucket) = &mut self.bucket
            && let Err(until) = bucket.take(now)
        {
            return Action::Wait { until: Some(until) };
        }
        self.in_flight += 1;
        Action::Send
    }

    fn attempt_ended(
        &mut self,
        _: AttemptId,
        result: &AttemptResult,
        now: Timestamp,
        _: &mut Random,
    ) -> FollowUp {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.measured.count(now);
        if matches!(result.outcome.response, UpstreamResponse::Failed { .. }) {
            self.not_before = now + AFTER_FAILURE;
        }
        if is_throttling(result) {
            self.throttled(now);
        } else {
            self.grow(now);
        }
        FollowUp::until_accepted(result)
    }

    fn state(&self, _: Timestamp) -> ControllerState {
        ControllerState {
            rate: self.bucket.as_ref().map(|bucket| bucket.rate),
            ..ControllerState::default()
        }
    }
}

/// What the SDKs know as throttling: 429, and a 503 that means "slow down".
fn is_throttling(result: &AttemptResult) -> bool {
    let is_503 = result.outcome.response == UpstreamResponse::Status(503);
    result.verdict == Some(Verdict::Throttled) || is_503
}

/// What is really sent per second.
#[derive(Debug, Default)]
struct Measured {
    rate: f64,
    /// Answers since the last half second ended.
    count: u32,
    half: u64,
}

impl Measured {
    /// An answer has come. The rate is that of answers, as in the description.
    fn count(&mut self, now: Timestamp) {
        self.count += 1;
        let half = now.as_nanos() / 500_000_000;
        if half > self.half {
            let rate = f64::from(self.count) / ((half - self.half) as f64 / 2.0);
            self.rate = SMOOTH * rate + (1.0 - SMOOTH) * self.rate;
            self.count = 0;
            self.half = half;
        }
    }
}

/// The weight of the last half second.
const SMOOTH: f64 = 0.8;

const MIN_RATE: f64 = 0.5;
const MIN_CAPACITY: f64 = 1.0;

#[cfg(test)]
mod tests {
    use policy::outcome::{Failure, Outcome, Phase};

    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-6
    }

    /// A limiter that has measured ten answers per second and is at `at` now.
    fn measured(at: Timestamp) -> Cubic {
        let mut cubic = Cubic::new(256);
        for tenth in 1..=at.as_nanos() / 100_000_000 {
            cubic.measured.count(Timestamp::from_millis(tenth * 100));
        }
        cubic
    }

    #[test]
    fn limits_nothing_before_the_first_throttling_response() {
        let mut cubic = Cubic::new(3);
        let mut random = Random::from_seed(1);
        for id in 0..3 {
            let next = cubic.next_action(AttemptId(id), true, Timestamp::ZERO, &mut random);
            assert_eq!(next, Action::Send);
        }
        let next = cubic.next_action(AttemptId(3), true, Timestamp::ZERO, &mut random);
        assert_eq!(next, Action::Wait { until: None }, "three are in flight");
    }

    #[test]
    fn throttling_cuts_to_0_7_and_the_curve_returns() {
        let now = Timestamp::from_secs(60);
        let mut cubic = measured(now);
        assert!(close(cubic.measured.rate, 10.0), "{}", cubic.measured.rate);
        cubic.throttled(now);
        assert!(close(cubic.bucket.as_ref().unwrap().rate, 7.0));
        // (10 · 0.3 / 0.4)^(1/3) = 1.9574 s.
        cubic.grow(now.after_seconds(7.5_f64.cbrt()));
        assert!(close(cubic.bucket.as_ref().unwrap().rate, 10.0));
        cubic.grow(now.after_seconds(60.0));
        let rate = cubic.bucket.as_ref().unwrap().rate;
        assert!(close(rate, 20.0), "no more than twice of what is sent");
    }

    #[test]
    fn waits_a_millisecond_after_a_failed_connection() {
        let mut cubic = Cubic::new(256);
        let mut random = Random::from_seed(1);
        let failed = AttemptResult {
            outcome: Outcome::failure(Failure::Connect, Phase::Connecting, Duration::ZERO),
            verdict: Some(Verdict::Unreachable),
        };
        let now = Timestamp::from_secs(1);
        assert_eq!(
            cubic.next_action(AttemptId(0), true, now, &mut random),
            Action::Send
        );
        cubic.attempt_ended(AttemptId(0), &failed, now, &mut random);
        let until = Some(Timestamp::from_millis(1001));
        assert_eq!(
            cubic.next_action(AttemptId(0), true, now, &mut random),
            Action::Wait { until }
        );
    }

    #[test]
    fn rate_has_a_minimum() {
        let mut cubic = Cubic::new(256);
        cubic.throttled(Timestamp::ZERO);
        let bucket = cubic.bucket.as_mut().unwrap();
        assert!(close(bucket.rate, 0.5) && close(bucket.capacity, 1.0));
        assert_eq!(bucket.take(Timestamp::ZERO), Err(Timestamp::from_secs(2)));
        assert_eq!(bucket.take(Timestamp::from_secs(2)), Ok(()));
    }
}
