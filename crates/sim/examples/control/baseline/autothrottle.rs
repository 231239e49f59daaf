//! Scrapy's AutoThrottle: a delay between requests that follows the latency.
//!
//! From its documentation: the first delay is 5 s; the target of a response is its latency over the
//! target concurrency (1); the next delay is the mean of the last delay and the target, but at least
//! the target; a response other than 200 never shortens it; the maximum is 60 s. Requests without a
//! response change nothing. As in Scrapy by default, each delay is drawn from 0.5 to 1.5 of its value,
//! and at most 8 requests are in flight.

use policy::outcome::UpstreamResponse;
use policy::random::Random;
use policy::time::Timestamp;
use sim::client::{Action, AttemptId, AttemptResult, Controller, ControllerState, FollowUp};

#[derive(Debug)]
pub(crate) struct AutoThrottle {
    max_in_flight: u32,
    in_flight: u32,
    delay_s: f64,
    last_sent: Option<Timestamp>,
    /// Drawn once per request, so that asking again gives the same time.
    next_at: Option<Timestamp>,
}

impl AutoThrottle {
    pub(crate) fn new(max_in_flight: u32) -> Self {
        Self {
            max_in_flight: max_in_flight.min(CONCURRENT_REQUESTS),
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
/// Below every real latency. Without it, virtual time would not advance at a server with zero latency.
const MIN_DELAY_S: f64 = 0.001;
const TARGET_CONCURRENCY: f64 = 1.0;
/// To one server.
const CONCURRENT_REQUESTS: u32 = 8;

impl Controller for AutoThrottle {
    fn next_action(
        &mut self,
        _: AttemptId,
        has_backlog: bool,
        now: Timestamp,
        random: &mut Random,
    ) -> Action {
        if !has_backlog || self.in_flight >= self.max_in_flight {
            return Action::Wait { until: None };
        }
        let at = self.next_at(now, random);
        if at > now {
            return Action::Wait { until: Some(at) };
        }
        self.in_flight += 1;
        self.last_sent = Some(now);
        self.next_at = None;
        Action::Send
    }

    fn attempt_ended(
        &mut self,
        _: AttemptId,
        result: &AttemptResult,
        _: Timestamp,
        _: &mut Random,
    ) -> FollowUp {
        self.in_flight = self.in_flight.saturating_sub(1);
        match result.outcome.response {
            UpstreamResponse::Status(status) => {
                self.adjust(status, result.outcome.latency.as_secs_f64());
            }
            UpstreamResponse::Failed { .. } => {}
        }
        FollowUp::until_accepted(result)
    }

    fn state(&self, _: Timestamp) -> ControllerState {
        ControllerState {
            rate: Some(1.0 / self.delay_s),
            ..ControllerState::default()
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
    fn delay_follows_the_latency_of_200s() {
        let mut throttle = AutoThrottle::new(256);
        assert_eq!(throttle.max_in_flight, 8);
        throttle.adjust(200, 1.0);
        assert!(close(throttle.delay_s, 3.0), "the mean of 5 and 1");
        throttle.adjust(200, 4.0);
        assert!(close(throttle.delay_s, 4.0), "no less than the target");
        throttle.adjust(200, 500.0);
        assert!(close(throttle.delay_s, 60.0), "no more than the maximum");
    }

    #[test]
    fn errors_never_shorten_the_delay() {
        let mut throttle = AutoThrottle::new(256);
        throttle.adjust(429, 0.02);
        assert!(close(throttle.delay_s, 5.0));
        throttle.adjust(503, 9.0);
        assert!(close(throttle.delay_s, 9.0));
    }
}
