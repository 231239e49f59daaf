//! The adaptive retry mode of the AWS SDKs: a token bucket whose rate moves like the window of
//! TCP CUBIC.
//!
//! From its public description: nothing is limited until the first throttling answer. From then on
//! such an answer sets the rate to 0.7 of what was sent; every other answer, errors included, lets
//! it grow by a cubic curve that is flat around the rate at which throttling last happened, but to
//! no more than twice of what is really sent. What is sent is measured in halves of seconds and
//! smoothed by 0.8. Hints are not read.
//!
//! The retries that go with it are left out: what was refused goes back into the backlog, and the
//! limiter alone decides.

use std::time::Duration;

use policy::outcome::{Answer, Verdict};
use policy::random::Random;
use policy::time::Timestamp;
use sim::client::{Afterwards, Attempt, Controller, FlightId, Next, Standing};

use super::bucket::Bucket;

#[derive(Debug)]
pub(crate) struct Cubic {
    most: u32,
    in_flight: u32,
    measured: Measured,
    /// `None` until something was throttled.
    bucket: Option<Bucket>,
    /// The rate at which throttling last happened.
    last_max_rate: f64,
    last_throttle: Timestamp,
    /// After a failed connection, when the next request leaves at the earliest.
    not_before: Timestamp,
}

impl Cubic {
    pub(crate) fn new(most: u32) -> Self {
        Self {
            most,
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
        self.move_to(rate * BETA, now);
    }

    fn grow(&mut self, now: Timestamp) {
        let flat_after = (self.last_max_rate * (1.0 - BETA) / SCALE).cbrt();
        let elapsed = now.seconds_since(self.last_throttle) - flat_after;
        self.move_to(SCALE * elapsed.powi(3) + self.last_max_rate, now);
    }

    fn move_to(&mut self, rate: f64, now: Timestamp) {
        let rate = rate.min(2.0 * self.measured.rate);
        if let Some(bucket) = &mut self.bucket {
            bucket.move_to(rate.max(MIN_RATE), rate.max(MIN_CAPACITY), now);
        }
    }
}

/// How far the rate falls.
const BETA: f64 = 0.7;
/// How steep the curve is.
const SCALE: f64 = 0.4;
/// Less than any real connection takes to fail. Without it, time would stand still before a server
/// that refuses connections in no time.
const AFTER_FAILURE: Duration = Duration::from_millis(1);

impl Controller for Cubic {
    fn next(&mut self, _: FlightId, has_fresh: bool, now: Timestamp, _: &mut Random) -> Next {
        if !has_fresh || self.in_flight >= self.most {
            return Next::Wait { until: None };
        }
        if now < self.not_before {
            return Next::Wait {
                until: Some(self.not_before),
            };
        }
        if let Some(bucket) = &mut self.bucket
            && let Err(until) = bucket.take(now)
        {
            return Next::Wait { until: Some(until) };
        }
        self.in_flight += 1;
        Next::SendFresh
    }

    fn answered(
        &mut self,
        _: FlightId,
        attempt: &Attempt,
        now: Timestamp,
        _: &mut Random,
    ) -> Afterwards {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.measured.count(now);
        if matches!(attempt.outcome.answer, Answer::Failed { .. }) {
            self.not_before = now + AFTER_FAILURE;
        }
        if is_throttling(attempt) {
            self.throttled(now);
        } else {
            self.grow(now);
        }
        Afterwards::until_accepted(attempt)
    }

    fn standing(&self, _: Timestamp) -> Standing {
        Standing {
            rate: self.bucket.as_ref().map(|bucket| bucket.rate),
            ..Standing::default()
        }
    }
}

/// What the SDKs know as throttling: 429, and a 503 that means "slow down".
fn is_throttling(attempt: &Attempt) -> bool {
    let is_503 = attempt.outcome.answer == Answer::Status(503);
    attempt.verdict == Some(Verdict::Throttled) || is_503
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
    fn nothing_is_limited_before_the_first_throttling_answer() {
        let mut cubic = Cubic::new(3);
        let mut random = Random::from_seed(1);
        for id in 0..3 {
            let next = cubic.next(FlightId(id), true, Timestamp::ZERO, &mut random);
            assert_eq!(next, Next::SendFresh);
        }
        let next = cubic.next(FlightId(3), true, Timestamp::ZERO, &mut random);
        assert_eq!(next, Next::Wait { until: None }, "three are under way");
    }

    #[test]
    fn throttling_takes_a_third_and_the_curve_comes_back_to_where_it_was() {
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
    fn a_failed_connection_does_not_let_time_stand_still() {
        let mut cubic = Cubic::new(256);
        let mut random = Random::from_seed(1);
        let failed = Attempt {
            outcome: Outcome::failure(Failure::Connect, Phase::Connecting, Duration::ZERO),
            verdict: Some(Verdict::Unreachable),
        };
        let now = Timestamp::from_secs(1);
        assert_eq!(
            cubic.next(FlightId(0), true, now, &mut random),
            Next::SendFresh
        );
        cubic.answered(FlightId(0), &failed, now, &mut random);
        let until = Some(Timestamp::from_millis(1001));
        assert_eq!(
            cubic.next(FlightId(0), true, now, &mut random),
            Next::Wait { until }
        );
    }

    #[test]
    fn the_rate_has_a_floor() {
        let mut cubic = Cubic::new(256);
        cubic.throttled(Timestamp::ZERO);
        let bucket = cubic.bucket.as_mut().unwrap();
        assert!(close(bucket.rate, 0.5) && close(bucket.capacity, 1.0));
        assert_eq!(bucket.take(Timestamp::ZERO), Err(Timestamp::from_secs(2)));
        assert_eq!(bucket.take(Timestamp::from_secs(2)), Ok(()));
    }
}
