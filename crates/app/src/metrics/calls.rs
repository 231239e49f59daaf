//! Waits and retries of calls, read from what was decided about each.

use std::time::Duration;

use policy::gate::Reason;
use policy::item::{DelaySource, ResendReason, TerminalReason};
use policy::time::Timestamp;
use tidegate::RefusalReason;
use tidegate::call::{CallDecision, Trail};

use super::counter::Counter;
use super::family::{self, Family};
use super::histogram::Histogram;
use super::text::Exposition;

/// What is counted of calls, all routes together.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// By reason, in the order of [`REASONS`].
    waits: [Histogram; REASONS.len()],
    backoff: Histogram,
    retries: ByAttempt,
    exhausted: Counter,
    successes: ByAttempt,
    honored: Counter,
    retry_after: Histogram,
}

/// Every reason to wait, in the order that they are shown in.
pub(super) const REASONS: [RefusalReason; 10] = [
    RefusalReason::Gate(Reason::Rate),
    RefusalReason::Gate(Reason::Hold),
    RefusalReason::Gate(Reason::BreakerOpen),
    RefusalReason::Gate(Reason::InFlight),
    RefusalReason::Gate(Reason::QueueFull),
    RefusalReason::Gate(Reason::Deadline),
    RefusalReason::Gate(Reason::TooManyGates),
    RefusalReason::Gate(Reason::RetryBudget),
    RefusalReason::Paused,
    RefusalReason::NoEndpoint,
];

impl Calls {
    /// Counts a call that has ended. Of a trail that is too long to be whole, the steps that are
    /// left out are missing here too.
    pub(super) fn count(&self, trail: &Trail, sent: u32, succeeded: bool) {
        let mut kept = None;
        for step in trail.steps() {
            match &step.decision {
                CallDecision::Waiting { reason, .. } => kept = Some((*reason, step.at)),
                CallDecision::Admitted { waited, .. } => {
                    if let Some((reason, _)) = kept.take() {
                        self.waited(reason, *waited);
                    }
                }
                CallDecision::Refused { .. } => self.kept_in_vain(kept.take(), step.at),
                CallDecision::Scheduled {
                    delay,
                    source,
                    reason,
                    ..
                } => self.scheduled(*delay, *source, *reason),
                CallDecision::Over { reason } => self.over(*reason),
                CallDecision::Answered { .. }
                | CallDecision::Unsent
                | CallDecision::Refreshed { .. } => {}
            }
        }
        self.sent(sent, succeeded);
    }

    fn waited(&self, reason: RefusalReason, time: Duration) {
        let index = REASONS.iter().position(|known| *known == reason);
        if let Some(wait) = index.and_then(|index| self.waits.get(index)) {
            wait.observe(time);
        }
    }

    /// Who waited and was refused then has waited all the same.
    fn kept_in_vain(&self, kept: Option<(RefusalReason, Timestamp)>, at: Timestamp) {
        if let Some((reason, since)) = kept {
            self.waited(reason, at.since(since));
        }
    }

    fn scheduled(&self, delay: Duration, source: DelaySource, reason: ResendReason) {
        match (source, reason) {
            // It was not sent, so this is no delay between two attempts: the gate keeps it.
            (_, ResendReason::Refused(reason)) => self.waited(RefusalReason::Gate(reason), delay),
            (DelaySource::RetryAfter, _) => {
                self.backoff.observe(delay);
                self.honored.increment();
                self.retry_after.observe(delay);
            }
            (DelaySource::Backoff | DelaySource::Gate, _) => self.backoff.observe(delay),
            (DelaySource::Refresh | DelaySource::Failover, _) => {}
        }
    }

    fn over(&self, reason: TerminalReason) {
        if reason == TerminalReason::Exhausted {
            self.exhausted.increment();
        }
    }

    fn sent(&self, sent: u32, succeeded: bool) {
        let retries = sent.saturating_sub(1);
        if retries == 0 {
            return;
        }
        self.retries.each_up_to(retries);
        if succeeded {
            self.successes.at(retries).increment();
        }
    }

    pub(super) fn render(&self, out: &mut Exposition) {
        let mut waits = out.family(&family::WAIT);
        for (reason, wait) in REASONS.iter().zip(&self.waits) {
            let measured = wait.measured();
            if measured.count() > 0 {
                waits.histogram(&[reason.as_str()], &measured);
            }
        }
        histogram(&self.backoff, &family::BACKOFF, out);
        self.retries.render(&family::RETRIES, out);
        counter(&self.exhausted, &family::EXHAUSTED, out);
        self.successes.render(&family::RETRY_SUCCESS, out);
        counter(&self.honored, &family::RETRY_AFTER_HONORED, out);
        histogram(&self.retry_after, &family::RETRY_AFTER, out);
    }
}

fn counter(counter: &Counter, family: &'static Family, out: &mut Exposition) {
    out.family(family).number(&[], counter.value());
}

fn histogram(histogram: &Histogram, family: &'static Family, out: &mut Exposition) {
    out.family(family).histogram(&[], &histogram.measured());
}

/// Counts by the number of a retry.
#[derive(Debug, Default)]
struct ByAttempt([Counter; ATTEMPTS.len()]);

/// The values of the label: more are rare, and nobody looks at them one by one.
pub(super) const ATTEMPTS: [&str; 11] = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "more"];

/// How many have a value of their own.
const NAMED: u32 = 10;
const _: () = assert!(ATTEMPTS.len() == NAMED as usize + 1);

impl ByAttempt {
    /// The count of the `number`-th, from 1.
    fn at(&self, number: u32) -> &Counter {
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        &self.0[index.clamp(1, ATTEMPTS.len()) - 1]
    }

    /// Counts each from the first to the `last`.
    fn each_up_to(&self, last: u32) {
        for number in 1..=last.min(NAMED) {
            self.at(number).increment();
        }
        if last > NAMED {
            self.at(last).add(u64::from(last - NAMED));
        }
    }

    fn render(&self, family: &'static Family, out: &mut Exposition) {
        let mut samples = out.family(family);
        for (attempt, counter) in ATTEMPTS.iter().zip(&self.0) {
            samples.number(&[attempt], counter.value());
        }
    }
}
