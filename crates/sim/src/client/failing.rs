//! A client paced by a queue of recent failures: a gap from the end of one attempt to the start of
//! the next.

use std::collections::VecDeque;
use std::time::Duration;

use policy::failure_queue::{FailureQueue, FailureQueueSettings};
use policy::outcome::Verdict;
use policy::random::Random;
use policy::time::Timestamp;

use super::controller::{Afterwards, Attempt, Controller, FlightId, Kept, Next, Outstanding};

#[derive(Debug)]
pub(super) struct Failing {
    settings: FailureQueueSettings,
    queue: FailureQueue,
    /// How many at once; their starts are still a gap apart.
    most: u32,
    in_flight: u32,
    under_way: Outstanding<u32>,
    /// Those that are to be tried again, with their attempts.
    kept: VecDeque<(Kept, u32)>,
    /// How many were ever kept.
    named: usize,
    last_end: Option<Timestamp>,
    /// Has one started since the last end? Then the next waits for the next end.
    started: bool,
    last_success: Timestamp,
    /// As drawn for the present gap: whoever asks again must not be told another.
    jitter: Option<Duration>,
}

impl Failing {
    pub(super) fn new(settings: FailureQueueSettings, most: u32, now: Timestamp) -> Self {
        Self {
            settings,
            queue: FailureQueue::new(),
            most,
            in_flight: 0,
            under_way: Outstanding::new(),
            kept: VecDeque::new(),
            named: 0,
            last_end: None,
            started: false,
            last_success: now,
            jitter: None,
        }
    }

    fn has_given_up(&self, now: Timestamp) -> bool {
        now.since(self.last_success) > self.settings.give_up_after()
    }

    /// When the next may start. Failures are counted as of `now`, so this may come nearer.
    fn start_at(&mut self, now: Timestamp, random: &mut Random) -> Timestamp {
        let Some(ended) = self.last_end else {
            return now;
        };
        let gap = self.queue.gap(&self.settings, now);
        let draw = || {
            self.queue
                .wait(&self.settings, now, random)
                .saturating_sub(gap)
        };
        let jitter = *self.jitter.get_or_insert_with(draw);
        ended + gap.saturating_add(jitter)
    }

    /// When the oldest failure is forgotten, which makes the gap shorter.
    fn forgets_at(&self, now: Timestamp) -> Option<Timestamp> {
        let oldest = self.queue.oldest(&self.settings, now)?;
        Some(oldest + self.settings.max_age()?)
    }
}

impl Controller for Failing {
    fn next(&mut self, id: FlightId, has_fresh: bool, now: Timestamp, random: &mut Random) -> Next {
        let nothing = !has_fresh && self.kept.is_empty();
        let waits_for_end = self.in_flight > 0 && (self.started || self.in_flight >= self.most);
        if nothing || waits_for_end || self.has_given_up(now) {
            return Next::Wait { until: None };
        }
        let at = self.start_at(now, random);
        if at > now {
            let forgets_at = self.forgets_at(now).filter(|forgets| *forgets > now);
            let until = forgets_at.map_or(at, |forgets| forgets.min(at));
            return Next::Wait { until: Some(until) };
        }
        self.started = true;
        self.in_flight += 1;
        match self.kept.pop_front() {
            Some((kept, attempts)) => {
                self.under_way.put(id, attempts);
                Next::SendAgain(kept)
            }
            None => {
                self.under_way.put(id, 0);
                Next::SendFresh
            }
        }
    }

    fn answered(
        &mut self,
        id: FlightId,
        attempt: &Attempt,
        now: Timestamp,
        _: &mut Random,
    ) -> Afterwards {
        let attempts = self.under_way.take(id).unwrap_or(0) + 1;
        self.in_flight = self.in_flight.saturating_sub(1);
        self.last_end = Some(now);
        self.started = false;
        self.jitter = None;
        match attempt.verdict {
            Some(Verdict::Success) => {
                self.queue.succeeded(&self.settings, now);
                self.last_success = now;
                Afterwards::Over
            }
            Some(Verdict::Throttled | Verdict::Overloaded | Verdict::Unreachable) => {
                self.queue.failed(&self.settings, now);
                if attempts >= self.settings.attempts() {
                    return Afterwards::Over;
                }
                let kept = Kept(self.named);
                self.named += 1;
                self.kept.push_back((kept, attempts));
                Afterwards::Kept(kept)
            }
            Some(
                Verdict::QuotaExhausted
                | Verdict::Unauthorized
                | Verdict::Conflict
                | Verdict::Rejected,
            )
            | None => Afterwards::Over,
        }
    }
}
