//! A controller driven by hand: everything that it sends is answered as a test says.

use std::collections::VecDeque;
use std::time::Duration;

use policy::random::Random;
use policy::time::Timestamp;

use sim::client::{Attempt, Controller, FlightId, Next};
use sim::upstream::{Answer, Pace};

pub(super) struct Driven<C> {
    pub(super) controller: C,
    pub(super) sent: u64,
    pub(super) refused: u64,
    now: Timestamp,
    under_way: VecDeque<(FlightId, Timestamp)>,
    names: usize,
    random: Random,
}

impl<C: Controller> Driven<C> {
    pub(super) fn new(controller: C) -> Self {
        Self {
            controller,
            sent: 0,
            refused: 0,
            now: Timestamp::ZERO,
            under_way: VecDeque::new(),
            names: 0,
            random: Random::from_seed(1),
        }
    }

    /// Lets it send until `end`; each answer comes after 50 ms and is what `answer` says then.
    pub(super) fn answer_all(&mut self, answer: impl Fn(Timestamp) -> Answer, end: Timestamp) {
        while self.now < end {
            self.send();
            while let Some((id, sent_at)) = self.under_way.front().copied()
                && self.now.since(sent_at) >= LATENCY
            {
                self.under_way.pop_front();
                self.end(id, sent_at, answer(self.now));
                self.send();
            }
            self.now = self.now + Duration::from_millis(1);
        }
    }

    fn send(&mut self) {
        loop {
            let id = FlightId(self.names);
            match self.controller.next(id, true, self.now, &mut self.random) {
                Next::SendFresh | Next::SendAgain(_) => {
                    self.names += 1;
                    self.sent += 1;
                    self.under_way.push_back((id, self.now));
                }
                Next::Wait { .. } => return,
            }
        }
    }

    fn end(&mut self, id: FlightId, sent_at: Timestamp, answer: Answer) {
        self.refused += u64::from(!answer.is_accepted());
        let attempt = Attempt::answered(&answer, self.now.since(sent_at));
        self.controller
            .answered(id, &attempt, self.now, &mut self.random);
    }
}

const LATENCY: Duration = Duration::from_millis(50);

pub(super) fn accepted(_: Timestamp) -> Answer {
    answer(200)
}

/// A server that tells how many are left, and for how long.
pub(super) fn left(remaining: u64, reset: Duration) -> Answer {
    let pace = Pace {
        limit: 300,
        remaining,
        reset,
    };
    Answer {
        pace: Some(pace),
        ..answer(200)
    }
}

pub(super) const REFUSED: Answer = answer(429);
pub(super) const DIRECTED: Answer = Answer {
    retry_after: Some(5),
    ..answer(429)
};
pub(super) const BANNED: Answer = answer(403);

const fn answer(status: u16) -> Answer {
    Answer {
        status,
        retry_after: None,
        pace: None,
    }
}
