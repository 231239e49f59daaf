//! The state of one call between its attempts: its item, and what is written down about it.

use std::ops::ControlFlow;
use std::time::Duration;

use policy::backoff::BackoffSettings;
use policy::gate::Reason;
use policy::item::{Item, Step, TerminalReason};
use policy::outcome::{Outcome, Verdict};
use policy::pool::EndpointId;
use policy::preset::Preset;
use policy::random::Random;
use policy::time::Timestamp;

use super::way::{NotNow, Right, Way};
use super::{Call, CallError, Called, Trail, Watcher, What};
use crate::ask::Ask;
use crate::credential::Refresh;
use crate::event::Event;
use crate::limiter::Limiter;
use crate::permit::InFlight;

pub(super) struct Course<'a, E> {
    limiter: &'a Limiter,
    way: Way<'a, E>,
    ask: Ask<'a>,
    backoff: BackoffSettings,
    item: Item,
    random: Random,
    trail: Trail,
    /// Where the last attempt failed.
    failed_at: Option<EndpointId>,
    watcher: Option<Watcher<'a>>,
    is_in_line_only: bool,
}

/// Where a step leads.
pub(super) enum Taken {
    Again,
    Done,
    Over(TerminalReason),
}

impl<'a, E> Course<'a, E> {
    pub(super) fn new<P>(call: &Call<'a, P>, way: Way<'a, E>) -> Self {
        let backoff = call.backoff.cloned();
        Self {
            limiter: call.limiter,
            way,
            ask: call.ask,
            backoff: backoff.unwrap_or_else(|| Preset::Standard.settings()),
            item: Item::new(call.kind, call.limiter.clock().now()),
            random: call.limiter.shared().random(),
            trail: Trail::default(),
            failed_at: None,
            watcher: call.watcher,
            is_in_line_only: call.is_in_line_only,
        }
    }

    pub(super) fn next_at(&self) -> Timestamp {
        self.item.next_at()
    }

    /// Waits until its gate or pool lets it out.
    pub(super) async fn leave(&mut self) -> Result<Right<'a, E>, NotNow> {
        let ask = self.ask_in_time();
        let so_far = self.trail.steps().len();
        let left = self.way.leave(ask, self.failed_at, &mut self.trail).await;
        if let Some(watcher) = self.watcher {
            let new = self.trail.steps().get(so_far..);
            new.unwrap_or_default().iter().for_each(watcher);
        }
        left
    }

    /// The ask, with what is left of its time. Whoever has none asks once all the same: a gate that
    /// is free keeps nobody waiting, and between the call's beginning and now the clock went on.
    fn ask_in_time(&self) -> Ask<'a> {
        let is_first = self.trail.steps().is_empty();
        match self.item.expires_at() {
            None => self.ask,
            Some(at) if is_first && at <= self.limiter.clock().now() => {
                self.ask.within(Duration::ZERO)
            }
            Some(at) => self.ask.until(at),
        }
    }

    /// Writes a step down, and tells who watches.
    fn note(&mut self, at: Timestamp, what: What) {
        self.trail.push(at, what);
        if let (Some(watcher), Some(step)) = (self.watcher, self.trail.steps().last()) {
            watcher(step);
        }
    }

    pub(super) fn sent(&self) -> u32 {
        self.item.sent()
    }

    /// It was not let out: whether to ask again.
    pub(super) fn refused(&mut self, refused: &NotNow) -> ControlFlow<TerminalReason> {
        let (reason, until) = match *refused {
            NotNow::Never(reason) => return ControlFlow::Break(reason),
            NotNow::Refused { reason, until } => (reason, until),
        };
        let has_no_place = matches!(reason, Reason::QueueFull | Reason::TooManyGates);
        if self.is_in_line_only && has_no_place {
            return ControlFlow::Break(TerminalReason::Expired);
        }
        self.ask_again(reason, until)
    }

    fn ask_again(
        &mut self,
        reason: Reason,
        until: Option<Timestamp>,
    ) -> ControlFlow<TerminalReason> {
        let now = self.look_at_gate();
        let step = self
            .item
            .refused(&self.backoff, reason, until, now, &mut self.random);
        match self.take(step) {
            Taken::Again | Taken::Done => ControlFlow::Continue(()),
            Taken::Over(reason) => ControlFlow::Break(reason),
        }
    }

    /// Pays for the attempt that is about to be made. The first is ordinary and pays in; a retry
    /// needs the budget of all retries. Without that it waits for it, as long as there is time.
    pub(super) fn pay(&mut self) -> Result<(), ControlFlow<TerminalReason>> {
        let shared = self.limiter.shared();
        let now = shared.clock.now();
        if self.item.sent() == 0 {
            shared.pay_in(now);
            return Ok(());
        }
        let Err(until) = shared.withdraw(now) else {
            return Ok(());
        };
        self.note(now, What::NoBudget { until });
        Err(match until {
            Some(_) => self.ask_again(Reason::Rate, until),
            None => ControlFlow::Break(TerminalReason::Exhausted),
        })
    }

    /// An attempt was made, at an endpoint if it went through a pool.
    pub(super) fn after(
        &mut self,
        endpoint: Option<EndpointId>,
        outcome: &Outcome,
        verdict: Option<Verdict>,
    ) -> Step {
        let is_good = matches!(verdict, None | Some(Verdict::Success));
        self.failed_at = endpoint.filter(|_| !is_good);
        let now = self.look_at_gate();
        let what = What::Answered {
            answer: outcome.answer,
            verdict,
            latency: outcome.latency,
        };
        self.note(now, what);
        let elsewhere = self
            .failed_at
            .and_then(|endpoint| self.way.elsewhere(endpoint));
        let (backoff, random) = (&self.backoff, &mut self.random);
        self.item
            .after_at(backoff, outcome, verdict, elsewhere, now, random)
    }

    pub(super) fn refreshed(&mut self, credential: &dyn Refresh, succeeded: bool) -> Step {
        let now = self.limiter.clock().now();
        self.note(now, What::Refreshed { succeeded });
        let event = Event::Refreshed {
            credential: credential.name(),
            succeeded,
        };
        self.limiter.shared().tell(now, &event);
        self.item.refreshed(succeeded, now)
    }

    /// Writes a step down and says where it leads.
    pub(super) fn take(&mut self, step: Step) -> Taken {
        match step {
            Step::Done => Taken::Done,
            Step::SendAt {
                at,
                delay,
                source,
                reason,
            } => {
                let now = self.limiter.clock().now();
                let what = What::Scheduled {
                    until: at,
                    delay,
                    source,
                    reason,
                };
                self.note(now, what);
                let event = Event::RetryScheduled {
                    key: self.ask.key,
                    sent: self.item.sent(),
                    delay,
                    reason,
                };
                self.limiter.shared().tell(now, &event);
                Taken::Again
            }
            // Nobody gave a credential, so there is nothing to refresh.
            Step::Refresh => Taken::Over(TerminalReason::AuthFailed),
            Step::Conflict => Taken::Over(TerminalReason::Conflict),
            Step::Failed(reason) => Taken::Over(reason),
        }
    }

    /// The attempt was not made after all, and that is the end of it. What was paid into or out of
    /// the budget of all retries stays so: it is an estimate of the load, and this is rare.
    pub(super) fn unsent<T>(mut self, value: T) -> Called<T> {
        let now = self.limiter.clock().now();
        self.note(now, What::Unsent);
        self.done(value, None)
    }

    pub(super) fn done<T>(self, value: T, in_flight: Option<InFlight>) -> Called<T> {
        Called {
            value,
            sent: self.item.sent(),
            trail: self.trail,
            in_flight,
        }
    }

    /// The one place where a call ends without success, so that it is told once, whatever the way.
    pub(super) fn over<T>(mut self, reason: TerminalReason, last: Option<T>) -> CallError<T> {
        let now = self.limiter.clock().now();
        self.note(now, What::Over { reason });
        let sent = self.item.sent();
        let event = Event::Failed {
            key: self.ask.key,
            sent,
            reason,
        };
        self.limiter.shared().tell(now, &event);
        CallError {
            reason,
            sent,
            last,
            trail: self.trail,
            in_flight: None,
        }
    }

    /// Others may have had success at the gate meanwhile, which is reason to go on hoping.
    fn look_at_gate(&mut self) -> Timestamp {
        if self.item.kind().give_up_after.is_some()
            && let Some(at) = self.way.last_success(self.ask.key)
        {
            self.item.gate_succeeded(at);
        }
        self.limiter.clock().now()
    }
}
