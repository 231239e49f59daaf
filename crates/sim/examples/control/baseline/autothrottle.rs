//! Scrapy's AutoThrottle: a delay between requests that follows the latency.
//!
//! From its documentation: begin with a delay of 5 s; an answer's target is its latency over the
//! concurrency that is wanted (1); the next delay is the mean of the last and the target, but no
//! less than the target; an answer other than 200 never makes it shorter; never more than 60 s. What
//! gets no answer changes nothing. As in Scrapy by default, each delay is drawn from half of it to
//! one and a half, and at most 8 requests to a server are under way.

use policy::outcome::Answer;
use policy::random::Random;
use policy::time::Timestamp;
use sim::client::{Afterwards, Attempt, Controller, FlightId, Next, Standing};

#[derive(Debug)]
pub(crate) struct AutoThrottle {
    most: u32,
    in_flight: u32,
    delay_s: f64,
    last_sent: Option<Timestamp>,
    /// As drawn since the last request: whoever asks again must not be told another.
    next_at: Option<Timestamp>,
}

impl AutoThrottle {
    pub(crate) fn new(most: u32) -> Self {
        Self {
            most: most.min(CONCURRENT_REQUESTS),
            in_flight: 0,
            delay_s: START_DELAY_S,
            last_sent: None,
            next_at: None,
        }
    }

    fn next_at(&mut self, now: Timestamp, random: &mut Random) -> Timestamp {
        let Some(last_sent) = self.last_sent else {
            return now;
        };
        let delay_s = self.delay_s;
        let draw = || last_sent.after_seconds(delay_s * (0.5 + random.unit()));
        *self.next_at.get_or_insert_with(draw)
    }

    fn adjust(&mut self, status: u16, latency_s: f64) {
        let target = latency_s / TARGET_CONCURRENCY;
        let mean = f64::midpoint(self.delay_s, target);
        let delay_s = mean.max(target).clamp(MIN_DELAY_S, MAX_DELAY_S);
        if status == 200 || delay_s > self.delay_s {
            self.delay_s = delay_s;
        }
    }
}

const START_DELAY_S: f64 = 5.0;
const MAX_DELAY_S: f64 = 60.0;
/// Below every real latency. Without it, time would stand still before a server that takes none.
const MIN_DELAY_S: f64 = 0.001;
const TARGET_CONCURRENCY: f64 = 1.0;
/// To one server.
const CONCURRENT_REQUESTS: u32 = 8;

impl Controller for AutoThrottle {
    fn next(&mut self, _: FlightId, has_fresh: bool, now: Timestamp, random: &mut Random) -> Next {
        if !has_fresh || self.in_flight >= self.most {
            return Next::Wait { until: None };
        }
        let at = self.next_at(now, random);
        if at > now {
            return Next::Wait { until: Some(at) };
        }
        self.in_flight += 1;
        self.last_sent = Some(now);
        self.next_at = None;
        Next::SendFresh
    }

    fn answered(
        &mut self,
        _: FlightId,
        attempt: &Attempt,
        _: Timestamp,
        _: &mut Random,
    ) -> Afterwards {
        self.in_flight = self.in_flight.saturating_sub(1);
        match attempt.outcome.answer {
            Answer::Status(status) => {
                self.adjust(status, attempt.outcome.latency.as_secs_f64());
            }
            Answer::Failed { .. } => {}
        }
        Afterwards::until_accepted(attempt)
    }

    fn standing(&self, _: Timestamp) -> Standing {
        Standing {
            rate: Some(1.0 / self.delay_s),
            ..Standing::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn the_delay_follows_the_latency_of_good_answers() {
        let mut throttle = AutoThrottle::new(256);
        assert_eq!(throttle.most, 8);
        throttle.adjust(200, 1.0);
        assert!(close(throttle.delay_s, 3.0), "the mean of 5 and 1");
        throttle.adjust(200, 4.0);
        assert!(close(throttle.delay_s, 4.0), "no less than the target");
        throttle.adjust(200, 500.0);
        assert!(close(throttle.delay_s, 60.0), "no more than the maximum");
    }

    #[test]
    fn an_error_never_makes_it_faster() {
        let mut throttle = AutoThrottle::new(256);
        throttle.adjust(429, 0.02);
        assert!(close(throttle.delay_s, 5.0));
        throttle.adjust(503, 9.0);
        assert!(close(throttle.delay_s, 9.0));
    }
}
