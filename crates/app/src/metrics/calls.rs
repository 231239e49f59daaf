//! Waits and retries of calls, read from their trails, and those of operations.

use std::array;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use policy::item::{DelaySource, ResendReason, TerminalReason};
use policy::time::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use tidegate::RefusalReason;
use tidegate::call::{CallDecision, Trail};

use super::family::{self, Family, Sample, histogram, observe};

/// What is counted of calls, all routes together.
#[derive(Debug)]
pub(super) struct Calls {
    /// By the word of the reason.
    waits: Mutex<BTreeMap<&'static str, Histogram>>,
    backoff: Histogram,
    retries: ByAttempt,
    exhausted: Counter,
    successes: ByAttempt,
    honored: Counter,
    retry_after: Histogram,
    delivery: Histogram,
    claims_lost: Counter,
}

impl Calls {
    /// Counts a call that has ended. Steps that a long trail leaves out are missing here too.
    pub(super) fn count(&self, trail: &Trail, sent: u32, succeeded: bool) {
        let mut waiting = None;
        for step in trail.steps() {
            match &step.decision {
                CallDecision::Waiting { reason, .. } => waiting = Some((*reason, step.at)),
                CallDecision::Admitted { waited, .. } => {
                    if let Some((reason, _)) = waiting.take() {
                        self.waited(reason, *waited);
                    }
                }
                CallDecision::Refused { .. } => self.refused(waiting.take(), step.at),
                CallDecision::Scheduled {
                    delay,
                    source,
                    reason,
                    ..
                } => self.scheduled(*delay, *source, *reason),
                CallDecision::Over { reason } => self.over(*reason),
                CallDecision::Settled { .. }
                | CallDecision::Hedged { .. }
                | CallDecision::Overtaken { .. }
                | CallDecision::Unsent
                | CallDecision::Refreshed { .. } => {}
            }
        }
        self.sent(sent, succeeded);
    }

    /// Counts an operation or a URL that is to be sent again.
    pub(super) fn retry(&self, delay: Duration, source: DelaySource, reason: ResendReason) {
        self.scheduled(delay, source, reason);
    }

    /// Counts an operation that has ended after `sent` attempts: after this time from its acceptance,
    /// or for this reason.
    pub(super) fn ended(&self, sent: u32, result: Result<Duration, TerminalReason>) {
        match result {
            Ok(time) => observe(&self.delivery, time),
            Err(reason) => self.over(reason),
        }
        self.sent(sent, result.is_ok());
    }

    /// Counts a result of an operation that came too late.
    pub(super) fn claim_lost(&self) {
        self.claims_lost.inc();
    }

    /// Counts a URL that has ended.
    pub(super) fn url_ended(&self, sent: u32, result: Result<(), TerminalReason>) {
        if let Err(reason) = result {
            self.over(reason);
        }
        self.sent(sent, result.is_ok());
    }

    pub(super) fn waited(&self, reason: RefusalReason, time: Duration) {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        observe(waits.entry(reason.as_str()).or_insert_with(histogram), time);
    }

    /// A wait that ended in a refusal counts too.
    fn refused(&self, waiting: Option<(RefusalReason, Timestamp)>, at: Timestamp) {
        if let Some((reason, since)) = waiting {
            self.waited(reason, at.since(since));
        }
    }

    fn scheduled(&self, delay: Duration, source: DelaySource, reason: ResendReason) {
        match (source, reason) {
            // It was not sent, so this is a wait at its gate and no delay between two attempts.
            (_, ResendReason::Refused(reason)) => self.waited(RefusalReason::Gate(reason), delay),
            (DelaySource::RetryAfter, _) => {
                observe(&self.backoff, delay);
                self.honored.inc();
                observe(&self.retry_after, delay);
            }
            (DelaySource::Backoff | DelaySource::Gate, _) => observe(&self.backoff, delay),
            (DelaySource::Refresh | DelaySource::Failover | DelaySource::Resolution, _) => {}
        }
    }

    fn over(&self, reason: TerminalReason) {
        if reason == TerminalReason::Exhausted {
            self.exhausted.inc();
        }
    }

    fn sent(&self, sent: u32, succeeded: bool) {
        let retries = sent.saturating_sub(1);
        if retries == 0 {
            return;
        }
        self.retries.each_up_to(retries);
        if succeeded {
            self.successes.at(retries).inc();
        }
    }
}

impl Default for Calls {
    fn default() -> Self {
        Self {
            waits: Mutex::default(),
            backoff: histogram(),
            retries: ByAttempt::default(),
            exhausted: Counter::default(),
            successes: ByAttempt::default(),
            honored: Counter::default(),
            retry_after: histogram(),
            delivery: histogram(),
            claims_lost: Counter::default(),
        }
    }
}

impl Collector for Calls {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = waits
            .iter()
            .map(|(reason, wait)| ([*reason], Sample::Histogram(wait)));
        family::WAIT.encode(&mut encoder, waits)?;
        let mut single =
            |family: &Family, sample: Sample<'_>| family.encode(&mut encoder, [([], sample)]);
        single(&family::BACKOFF, Sample::Histogram(&self.backoff))?;
        single(&family::EXHAUSTED, Sample::Number(self.exhausted.get()))?;
        single(
            &family::RETRY_AFTER_HONORED,
            Sample::Number(self.honored.get()),
        )?;
        single(&family::RETRY_AFTER, Sample::Histogram(&self.retry_after))?;
        single(
            &family::OPERATION_DELIVERY,
            Sample::Histogram(&self.delivery),
        )?;
        single(&family::CLAIMS_LOST, Sample::Number(self.claims_lost.get()))?;
        family::RETRIES.encode(&mut encoder, self.retries.samples())?;
        family::RETRY_SUCCESS.encode(&mut encoder, self.successes.samples())
    }
}

/// Counts by the number of a retry.
#[derive(Debug)]
struct ByAttempt([Counter; ATTEMPTS.len()]);

/// The values of the label.
const ATTEMPTS: [&str; 11] = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "more"];

/// How many have a value of their own.
const NAMED: u32 = 10;
const _: () = assert!(ATTEMPTS.len() == NAMED as usize + 1);

impl ByAttempt {
    /// The count of a retry by its number, from 1.
    fn at(&self, number: u32) -> &Counter {
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        &self.0[index.clamp(1, ATTEMPTS.len()) - 1]
    }

    /// Counts each from the first to the `last`.
    fn each_up_to(&self, last: u32) {
        for number in 1..=last.min(NAMED) {
            self.at(number).inc();
        }
        if last > NAMED {
            self.at(last).inc_by(u64::from(last - NAMED));
        }
    }

    fn samples(&self) -> impl Iterator<Item = ([&str; 1], Sample<'_>)> {
        let counts = ATTEMPTS.iter().zip(&self.0);
        counts.map(|(attempt, counter)| ([*attempt], Sample::Number(counter.get())))
    }
}

impl Default for ByAttempt {
    fn default() -> Self {
        Self(array::from_fn(|_| Counter::default()))
    }
}
