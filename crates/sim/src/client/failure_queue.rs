//! A client paced by `policy::failure_queue`: a gap between the end of one attempt and the start of
//! the next.

use std::collections::VecDeque;
use std::time::Duration;

use policy::failure_queue::{FailureQueue, FailureQueueSettings};
use policy::outcome::Verdict;
use policy::random::Random;
use policy::time::Timestamp;

use super::controller::{
    Action, AttemptId, AttemptResult, Controller, FollowUp, InFlight, ResendId,
};

#[derive(Debug)]
pub(super) struct FailureQueueController {
    settings: FailureQueueSettings,
    queue: FailureQueue,
    /// Even with several in flight, starts are a gap apart.
    max_in_flight: u32,
    in_flight: u32,
    /// Earlier attempts of each request in flight.
    attempts: InFlight<u32>,
    /// Requests to be sent again, with their attempts so far.
    resends: VecDeque<(ResendId, u32)>,
    next_resend: usize,
    last_end: Option<Timestamp>,
    /// Whether an attempt has started since the last end. The next one then waits for another end.
    has_started: bool,
    last_success: Timestamp,
    /// Drawn once per gap, so that asking again gives the same time.
    jitter: Option<Duration>,
}

impl FailureQueueController {
    pub(super) fn new(settings: FailureQueueSettings, max_in_flight: u32, now: Timestamp) -> Self {
        Self {
            settings,
            queue: FailureQueue::new(),
            max_in_flight,
            in_flight: 0,
            attempts: InFlight::new(),
            resends: VecDeque::new(),
            next_resend: 0,
            last_end: None,
            has_started: false,
            last_success: now,
            jitter: None,
        }
    }

    fn has_given_up(&self, now: Timestamp) -> bool {
        let give_up_after = self.settings.give_up_after();
        give_up_after.is_some_and(|time| now.since(self.last_success) > time)
    }

    /// When the next attempt may start. Old failures expire, so a later call may return an earlier
    /// time.
    fn start_at(&mut self, now: Timestamp, random: &mut Random) -> Timestamp {
        let Some(last_end) = self.last_end else {
            return now;
        };
        let gap = self.queue.gap(&self.settings, now);
        let draw = || {
            self.queue
                .wait(&self.settings, now, random)
                .saturating_sub(gap)
        };
        let jitter = *self.jitter.get_or_insert_with(draw);
        last_end + gap.saturating_add(jitter)
    }

    /// When the oldest failure expires, which shortens the gap.
    fn next_expiry(&self, now: Timestamp) -> Option<Timestamp> {
        let oldest = self.queue.oldest(&self.settings, now)?;
        Some(oldest + self.settings.max_age()?)
    }
}

impl Controller for FailureQueueController {
    fn next_action(
        &mut self,
        id: AttemptId,
        has_backlog: bool,
        now: Timestamp,
        random: &mut Random,
    ) -> Action {
        let is_idle = !has_backlog && self.resends.is_empty();
        let waits_for_end =
            self.in_flight > 0 && (self.has_started || self.in_flight >= self.max_in_flight);
        if is_idle || waits_for_end || self.has_given_up(now) {
            return Action::Wait { until: None };
        }
        let start_at = self.start_at(now, random);
        if start_at > now {
            let expiry = self.next_expiry(now).filter(|expiry| *expiry > now);
            let until = expiry.map_or(start_at, |expiry| expiry.min(start_at));
            return Action::Wait { until: Some(until) };
        }
        self.has_started = true;
        self.in_flight += 1;
        match self.resends.pop_front() {
            Some((resend, attempts)) => {
                self.attempts.insert(id, attempts);
                Action::Resend(resend)
            }
            None => {
                self.attempts.insert(id, 0);
                Action::Send
            }
        }
    }

    fn attempt_ended(
        &mut self,
        id: AttemptId,
        result: &AttemptResult,
        now: Timestamp,
        _: &mut Random,
    ) -> FollowUp {
        let attempts = self.attempts.remove(id).unwrap_or(0) + 1;
        self.in_flight = self.in_flight.saturating_sub(1);
        self.last_end = Some(now);
        self.has_started = false;
        self.jitter = None;
        match result.verdict {
            Some(Verdict::Success) => {
                self.queue.succeeded(&self.settings, now);
                self.last_success = now;
                FollowUp::Done
            }
            Some(Verdict::Throttled | Verdict::Overloaded | Verdict::Unreachable) => {
                self.queue.failed(&self.settings, now);
                if attempts >= self.settings.attempts() {
                    return FollowUp::Done;
                }
                let resend = ResendId(self.next_resend);
                self.next_resend += 1;
                self.resends.push_back((resend, attempts));
                FollowUp::Resend(resend)
            }
            Some(
                Verdict::QuotaExhausted
                | Verdict::Unauthorized
                | Verdict::Conflict
                | Verdict::Rejected,
            )
            | None => FollowUp::Done,
        }
    }
}
