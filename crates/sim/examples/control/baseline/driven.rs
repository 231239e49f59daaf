//! Drives a controller in tests: every request gets the response that the test chooses.

use std::collections::VecDeque;
use std::time::Duration;

use policy::random::Random;
use policy::time::Timestamp;

use sim::client::{Action, AttemptId, AttemptResult, Controller};
use sim::upstream::{LimitStatus, UpstreamResponse};

pub(super) struct Driven<C> {
    pub(super) controller: C,
    pub(super) sent: u64,
    pub(super) refused: u64,
    now: Timestamp,
    in_flight: VecDeque<(AttemptId, Timestamp)>,
    next_id: usize,
    random: Random,
}

impl<C: Controller> Driven<C> {
    pub(super) fn new(controller: C) -> Self {
        Self {
            controller,
            sent: 0,
            refused: 0,
            now: Timestamp::ZERO,
            in_flight: VecDeque::new(),
            next_id: 0,
            random: Random::from_seed(1),
        }
    }

    /// Lets it send until `end`. Each response arrives after 50 ms and is that of `respond` at that time.
    pub(super) fn respond_until(
        &mut self,
        respond: impl Fn(Timestamp) -> UpstreamResponse,
        end: Timestamp,
    ) {
        while self.now < end {
            self.send();
            while let Some((id, sent_at)) = self.in_flight.front().copied()
                && self.now.since(sent_at) >= LATENCY
            {
                self.in_flight.pop_front();
                self.end(id, sent_at, respond(self.now));
                self.send();
            }
            self.now = self.now + Duration::from_millis(1);
        }
    }

    fn send(&mut self) {
        loop {
            let id = AttemptId(self.next_id);
            match self
                .controller
                .next_action(id, true, self.now, &mut self.random)
            {
                Action::Send | Action::Resend(_) => {
                    self.next_id += 1;
                    self.sent += 1;
                    self.in_flight.push_back((id, self.now));
                }
                Action::Wait { .. } => return,
            }
        }
    }

    fn end(&mut self, id: AttemptId, sent_at: Timestamp, response: UpstreamResponse) {
        self.refused += u64::from(!response.is_accepted());
        let result = AttemptResult::of_response(&response, self.now.since(sent_at));
        self.controller
            .attempt_ended(id, &result, self.now, &mut self.random);
    }
}

const LATENCY: Duration = Duration::from_millis(50);

pub(super) fn accepted(_: Timestamp) -> UpstreamResponse {
    response(200)
}

/// A response with limit headers.
pub(super) fn with_limit(remaining: u64, reset: Duration) -> UpstreamResponse {
    let limit = LimitStatus {
        limit: 300,
        remaining,
        reset,
    };
    UpstreamResponse {
        limit: Some(limit),
        ..response(200)
    }
}

pub(super) const REFUSED: UpstreamResponse = response(429);
pub(super) const DIRECTED: UpstreamResponse = UpstreamResponse {
    retry_after: Some(5),
    ..response(429)
};
pub(super) const BANNED: UpstreamResponse = response(403);

const fn response(status: u16) -> UpstreamResponse {
    UpstreamResponse {
        status,
        retry_after: None,
        limit: None,
        tokens: None,
    }
}
