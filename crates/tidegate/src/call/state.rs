//! The state of a call between attempts: its item, the source of its permits, and its trail.

use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use policy::backoff::BackoffSettings;
use policy::gate::Reason;
use policy::item::{Item, ItemKind, Step, TerminalReason};
use policy::jitter::RetryAfterJitter;
use policy::outcome::{Failure, Outcome, Phase, Verdict};
use policy::pool::EndpointId;
use policy::preset::Preset;
use policy::random::Random;
use policy::time::Timestamp;

use super::attempt::FailedAttempt;
use super::hedge::{AttemptEnd, Running};
use super::{
    AttemptResult, BoxError, Call, CallDecision, CallError, CallResult, IntoAttemptResult, Trail,
    Watcher,
};
use crate::ask::Ask;
use crate::credential::{Refresh, RefreshError};
use crate::event::Event;
use crate::limiter::Limiter;
use crate::permit::{InFlight, Permit};
use crate::pool::{Endpoint, Pool, PoolPermit, PoolRefusal, RefusalReason, Selection};

/// Where a call's permits come from.
pub(super) enum PermitSource<'a, E> {
    Limiter(&'a Limiter),
    Pool(&'a Pool<E>),
}

/// A permit of a gate or of a pool's endpoint.
pub(super) enum AnyPermit<'a, E> {
    Gate(Permit<'a>),
    Pool(PoolPermit<'a, E>),
}

pub(super) struct CallState<'a, E> {
    pub(super) limiter: &'a Limiter,
    pub(super) source: PermitSource<'a, E>,
    pub(super) ask: Ask<'a>,
    backoff: &'a BackoffSettings,
    retry_after_jitter: RetryAfterJitter,
    pub(super) item: Item,
    /// Conflicts that were resolved so far.
    pub(super) conflicts: u32,
    /// Created on first use, because most calls are never resent.
    random: Option<Random>,
    trail: Trail,
    /// The verdict on the last attempt.
    verdict: Option<Verdict>,
    /// The error of the last attempt, or of the refresh after it.
    error: Option<BoxError>,
    /// The endpoint of the last failed attempt.
    failed_at: Option<EndpointId>,
    /// The endpoint whose credential was just refreshed.
    refreshed_at: Option<EndpointId>,
    /// Endpoints whose own credential was refreshed since the last response other than 401.
    refreshed: Vec<EndpointId>,
    /// Endpoints that rejected the credential or whose quota is used up.
    pub(super) rejected: Vec<EndpointId>,
    watcher: Option<Watcher<'a>>,
    is_in_line_only: bool,
}

/// The backoff of calls that set none.
static STANDARD: LazyLock<BackoffSettings> = LazyLock::new(|| Preset::Standard.settings());

/// What follows an attempt.
pub(super) enum Next {
    Again,
    Done,
    Failed(TerminalReason),
}

impl<'a, E> CallState<'a, E> {
    pub(super) fn new<P>(call: &Call<'a, P>, source: PermitSource<'a, E>) -> Self {
        let now = call.limiter.clock().now();
        let bounds = [call.ask.bound(now), call.kind.expires_after];
        let kind = ItemKind {
            expires_after: bounds.into_iter().flatten().min(),
            ..call.kind
        };
        Self {
            limiter: call.limiter,
            source,
            ask: call.ask,
            backoff: call.backoff.unwrap_or_else(|| &STANDARD),
            retry_after_jitter: call.retry_after_jitter,
            item: Item::new(kind, now),
            conflicts: 0,
            random: None,
            trail: Trail::default(),
            verdict: None,
            error: None,
            failed_at: None,
            refreshed_at: None,
            refreshed: Vec::new(),
            rejected: Vec::new(),
            watcher: call.watcher,
            is_in_line_only: call.is_in_line_only,
        }
    }

    /// When the next attempt is due; `None` if that is the first, which is due at once.
    pub(super) fn next_at(&self) -> Option<Timestamp> {
        let is_first = self.trail.steps().is_empty();
        (!is_first).then(|| self.item.next_at())
    }

    pub(super) fn sent(&self) -> u32 {
        self.item.sent()
    }

    /// A permit for the next attempt, counted in the retry budget. `Err` says whether to ask again
    /// after [`next_at`](Self::next_at).
    pub(super) async fn acquire(
        &mut self,
    ) -> Result<AnyPermit<'a, E>, ControlFlow<TerminalReason>> {
        let now = self.limiter.clock().now();
        let ask = self.ask_in_time(now);
        let permit = match self.source {
            PermitSource::Limiter(limiter) => self.acquire_from_gate(limiter, ask, now).await,
            PermitSource::Pool(pool) => self.acquire_from_pool(pool, ask, now).await,
        }?;
        match self.charge_retry_budget(&permit) {
            Ok(()) => Ok(permit),
            Err(flow) => {
                permit.give_back();
                Err(flow)
            }
        }
    }

    /// The ask, bounded by the remaining time. The first ask of a call is made even if no time is
    /// left, because the gate may admit it at once.
    fn ask_in_time(&self, now: Timestamp) -> Ask<'a> {
        if self.ask.is_fail_fast() {
            return self.ask;
        }
        let is_first = self.trail.steps().is_empty();
        match self.item.expires_at() {
            None => self.ask,
            Some(at) if is_first && at <= now => self.ask.within(Duration::ZERO),
            Some(at) => self.ask.until(at),
        }
    }

    async fn acquire_from_gate(
        &mut self,
        limiter: &'a Limiter,
        ask: Ask<'_>,
        asked_at: Timestamp,
    ) -> Result<AnyPermit<'a, E>, ControlFlow<TerminalReason>> {
        let key: Arc<str> = ask.key.into();
        let mut delayed = None;
        let decision = limiter.acquire_noting(ask, &mut delayed).await;
        if let Some((at, reason, until)) = delayed {
            self.note_waiting(at, Arc::clone(&key), RefusalReason::Gate(reason), until);
        }
        match decision {
            Ok(permit) => {
                self.note_admitted(key, asked_at);
                Ok(AnyPermit::Gate(permit))
            }
            Err(refusal) => {
                let reason = refusal.reason();
                self.note_refused(key, RefusalReason::Gate(reason), refusal.until());
                Err(self.refused(reason, refusal.until()))
            }
        }
    }

    async fn acquire_from_pool(
        &mut self,
        pool: &'a Pool<E>,
        ask: Ask<'_>,
        asked_at: Timestamp,
    ) -> Result<AnyPermit<'a, E>, ControlFlow<TerminalReason>> {
        let mut delayed = None;
        let selection = Selection {
            first: self.refreshed_at,
            avoid: self.failed_at,
            excluded: &self.rejected,
        };
        let decision = pool.acquire_noting(ask, selection, &mut delayed).await;
        if let Some((at, refusal)) = delayed {
            self.note_waiting(at, pool.name().into(), refusal.reason(), refusal.until());
        }
        match decision {
            Ok(permit) => {
                self.note_admitted(Arc::clone(permit.endpoint().key()), asked_at);
                Ok(AnyPermit::Pool(permit))
            }
            Err(refusal) => {
                self.note_refused(pool.name().into(), refusal.reason(), refusal.until());
                Err(match refusal {
                    PoolRefusal::NoEndpoint => ControlFlow::Break(TerminalReason::Disabled),
                    // For an item, a paused endpoint is the same as a held gate.
                    PoolRefusal::Paused { until } => self.refused(Reason::Hold, until),
                    PoolRefusal::Gate(refusal) => self.refused(refusal.reason(), refusal.until()),
                })
            }
        }
    }

    fn note_waiting(
        &mut self,
        at: Timestamp,
        key: Arc<str>,
        reason: RefusalReason,
        until: Option<Timestamp>,
    ) {
        self.note(at, CallDecision::Waiting { key, reason, until });
    }

    fn note_admitted(&mut self, key: Arc<str>, asked_at: Timestamp) {
        let now = self.limiter.clock().now();
        let waited = now.since(asked_at);
        self.note(now, CallDecision::Admitted { key, waited });
    }

    fn note_refused(&mut self, key: Arc<str>, reason: RefusalReason, until: Option<Timestamp>) {
        let now = self.limiter.clock().now();
        self.note(now, CallDecision::Refused { key, reason, until });
    }

    /// Adds a step to the trail and passes it to the watcher.
    pub(super) fn note(&mut self, at: Timestamp, decision: CallDecision) {
        self.trail.push(at, decision);
        if let (Some(watcher), Some(step)) = (self.watcher, self.trail.steps().last()) {
            watcher(step);
        }
    }

    /// Handles a refusal: whether to ask again.
    fn refused(&mut self, reason: Reason, until: Option<Timestamp>) -> ControlFlow<TerminalReason> {
        if self.ask.is_fail_fast() {
            return ControlFlow::Break(match reason {
                Reason::BreakerOpen => TerminalReason::BreakerOpen,
                _ => TerminalReason::Expired,
            });
        }
        let has_no_room = matches!(reason, Reason::QueueFull | Reason::TooManyGates);
        if self.is_in_line_only && has_no_room {
            return ControlFlow::Break(TerminalReason::Expired);
        }
        self.ask_again(reason, until)
    }

    fn ask_again(
        &mut self,
        reason: Reason,
        until: Option<Timestamp>,
    ) -> ControlFlow<TerminalReason> {
        self.update_last_success();
        let now = self.limiter.clock().now();
        let random = random(&mut self.random, self.limiter);
        let step = self.item.refused(self.backoff, reason, until, now, random);
        match self.apply_step(step) {
            Next::Again | Next::Done => ControlFlow::Continue(()),
            Next::Failed(reason) => ControlFlow::Break(reason),
        }
    }

    /// Counts the attempt about to be made: the first adds to its gate's retry budget, a retry
    /// takes from it or waits until it can.
    fn charge_retry_budget(
        &mut self,
        permit: &AnyPermit<'a, E>,
    ) -> Result<(), ControlFlow<TerminalReason>> {
        let limiter = &self.limiter;
        let now = limiter.clock().now();
        let location = permit.permit().location();
        if self.item.sent() == 0 {
            limiter.deposit(location, now);
            return Ok(());
        }
        let Err(until) = limiter.withdraw(location, now) else {
            return Ok(());
        };
        let key = match permit.endpoint() {
            Some(endpoint) => Arc::clone(endpoint.key()),
            None => self.ask.key.into(),
        };
        let reason = Reason::RetryBudget;
        self.note_refused(key, RefusalReason::Gate(reason), until);
        Err(match until {
            Some(_) if !self.ask.is_fail_fast() => self.ask_again(reason, until),
            _ => ControlFlow::Break(TerminalReason::Exhausted),
        })
    }

    /// What is known of an attempt that has ended: `None` if it was dropped, because it took too long
    /// or because the call's time is up. `Err` if its result is unknown and the call is over.
    pub(super) fn ended<R: IntoAttemptResult>(
        &mut self,
        ended: Option<R>,
        running: &Running<'a, E>,
    ) -> AttemptEnd<R::Value> {
        self.error = None;
        let latency = || self.limiter.clock().now().since(running.started);
        let error = match ended.map(IntoAttemptResult::into_attempt_result) {
            Some(Ok(result)) => return Ok(result.map(Some)),
            Some(Err(error)) => error,
            None if running.is_bound_by_timeout() => {
                let timeout = Outcome::failure(Failure::Timeout, Phase::Waiting, latency());
                return Ok(AttemptResult::new(None, timeout));
            }
            None => return Err(TerminalReason::Expired),
        };
        let (error, attempt) = error.into_parts(latency());
        self.error = Some(error);
        match attempt {
            FailedAttempt::Known(outcome) => Ok(AttemptResult::new(None, outcome)),
            FailedAttempt::Unsent => Ok(AttemptResult::unsent(None)),
            FailedAttempt::Unknown => Err(TerminalReason::Unusable),
        }
    }

    pub(super) fn credential_of<'e>(&self, endpoint: &'e Endpoint<E>) -> Option<&'e dyn Refresh> {
        match self.source {
            PermitSource::Limiter(_) => None,
            PermitSource::Pool(pool) => pool.credential_of(endpoint),
        }
    }

    /// Whether a response rejects the endpoint's credential for good or its quota is used up, so
    /// that only another endpoint can help.
    pub(super) fn is_rejected<T>(
        &self,
        result: &AttemptResult<T>,
        sent_to: Option<SentTo>,
        has_credential: bool,
    ) -> bool {
        let Some(sent_to) = sent_to else {
            return false;
        };
        let has_refreshed = match sent_to.has_own_credential {
            true => self.refreshed.contains(&sent_to.endpoint),
            false => self.item.has_refreshed(),
        };
        match result.verdict {
            Some(Verdict::QuotaExhausted) => true,
            Some(Verdict::Unauthorized) if has_credential && !has_refreshed => false,
            _ => result.rejects_credential(),
        }
    }

    /// Handles the result of an attempt, made at an endpoint if its permit came from a pool.
    pub(super) fn after(
        &mut self,
        sent_to: Option<SentTo>,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        is_rejected: bool,
    ) -> Step {
        let is_good = matches!(verdict, None | Some(Verdict::Success));
        self.failed_at = sent_to.filter(|_| !is_good).map(|sent_to| sent_to.endpoint);
        self.refreshed_at = None;
        self.verdict = verdict;
        let now = self.limiter.clock().now();
        let decision = CallDecision::Settled {
            response: outcome.response,
            verdict,
            latency: outcome.latency,
        };
        self.note(now, decision);
        if is_good {
            // A success draws no random numbers, so it needs no generator.
            let unused = &mut Random::from_seed(0);
            return self.item.after(self.backoff, outcome, verdict, now, unused);
        }
        self.update_last_success();
        if let (true, Some(sent_to), Some(verdict)) = (is_rejected, sent_to, verdict) {
            let other = self.reject(sent_to.endpoint);
            return self.item.after_rejected(verdict, other, now);
        }
        match (verdict, sent_to) {
            (Some(Verdict::Unauthorized), Some(sent_to)) if sent_to.has_own_credential => {
                self.item.allow_refresh();
            }
            (Some(Verdict::Unauthorized | Verdict::Unreachable), _) => {}
            _ => self.refreshed.clear(),
        }
        let other_ready_at = match (&self.source, self.failed_at) {
            (PermitSource::Pool(pool), Some(endpoint)) => {
                pool.ready_at_other_than(endpoint, &self.rejected)
            }
            _ => None,
        };
        let random = random(&mut self.random, self.limiter);
        // A copy only where it is used: most outcomes name no wait.
        let is_other = self.backoff.retry_after_jitter() != self.retry_after_jitter;
        let own = (is_other && outcome.hint.wait.is_some()).then(|| {
            let backoff = self.backoff.clone();
            backoff.with_retry_after_jitter(self.retry_after_jitter)
        });
        let backoff = own.as_ref().unwrap_or(self.backoff);
        self.item
            .after_at(backoff, outcome, verdict, other_ready_at, now, random)
    }

    /// Sends nothing more to an endpoint. Returns when another may be ready, if one is left.
    fn reject(&mut self, endpoint: EndpointId) -> Option<Timestamp> {
        self.rejected.push(endpoint);
        match self.source {
            PermitSource::Limiter(_) => None,
            PermitSource::Pool(pool) => pool.other_left(&self.rejected),
        }
    }

    /// Handles the end of a refresh after a 401.
    pub(super) fn refreshed<T>(
        &mut self,
        credential: &dyn Refresh,
        refreshed: Result<(), RefreshError>,
        sent_to: Option<SentTo>,
        outcome: &Outcome,
        result: &AttemptResult<T>,
    ) -> Step {
        let now = self.limiter.clock().now();
        let succeeded = refreshed.is_ok();
        self.error = refreshed.err().map(Into::into);
        self.note(now, CallDecision::Refreshed { succeeded });
        let event = Event::Refreshed {
            credential: credential.name(),
            succeeded,
        };
        self.limiter.emit(now, &event);
        let (PermitSource::Pool(pool), Some(sent_to)) = (&self.source, sent_to) else {
            return self.item.refreshed(succeeded, now);
        };
        let (endpoint, epoch) = (sent_to.endpoint, sent_to.epoch);
        if succeeded {
            self.refreshed_at = Some(endpoint);
            self.refreshed.push(endpoint);
            return self.item.refreshed(succeeded, now);
        }
        let (verdict, text) = (result.verdict, &*result.text);
        pool.reject_credential(endpoint, epoch, outcome, verdict, text);
        let other = self.reject(endpoint);
        self.item.move_on(Verdict::Unauthorized, other, now)
    }

    /// Records a step and returns what follows.
    pub(super) fn apply_step(&mut self, step: Step) -> Next {
        match step {
            Step::Done => Next::Done,
            // Past the end of the clock: it would come at once, again and again.
            Step::SendAt { at, .. } if at == Timestamp::MAX => {
                Next::Failed(TerminalReason::Expired)
            }
            Step::SendAt {
                at,
                delay,
                source,
                reason,
            } => {
                let now = self.limiter.clock().now();
                let decision = CallDecision::Scheduled {
                    until: at,
                    delay,
                    source,
                    reason,
                };
                self.note(now, decision);
                let event = Event::RetryScheduled {
                    key: self.ask.key,
                    sent: self.item.sent(),
                    delay,
                    reason,
                };
                self.limiter.emit(now, &event);
                Next::Again
            }
            // The call has no credential to refresh.
            Step::Refresh => Next::Failed(TerminalReason::AuthFailed),
            Step::Conflict => Next::Failed(TerminalReason::Conflict),
            Step::Failed(reason) => Next::Failed(reason),
        }
    }

    /// Ends the call because the attempt was not made. The retry budget is not corrected: it only
    /// estimates the load, and this is rare.
    pub(super) fn unsent<T>(mut self, value: Option<T>) -> Result<CallResult<T>, CallError<T>> {
        let now = self.limiter.clock().now();
        self.note(now, CallDecision::Unsent);
        match value {
            Some(value) => Ok(self.done(value, None)),
            None => Err(self.fail(TerminalReason::Rejected, None, None)),
        }
    }

    pub(super) fn done<T>(self, value: T, in_flight: Option<InFlight>) -> CallResult<T> {
        CallResult {
            value,
            sent: self.item.sent(),
            trail: self.trail,
            in_flight,
        }
    }

    /// Ends the call after an attempt whose result is unknown.
    pub(super) fn cut_off<T>(mut self, reason: TerminalReason) -> CallError<T> {
        self.item.abandoned();
        self.fail(reason, None, None)
    }

    /// Ends the call without success. The only place that does, so that there is one event per
    /// call.
    pub(super) fn fail<T>(
        mut self,
        reason: TerminalReason,
        last: Option<T>,
        in_flight: Option<InFlight>,
    ) -> CallError<T> {
        let now = self.limiter.clock().now();
        self.note(now, CallDecision::Over { reason });
        let sent = self.item.sent();
        let event = Event::Failed {
            key: self.ask.key,
            sent,
            reason,
        };
        self.limiter.emit(now, &event);
        CallError {
            reason,
            sent,
            last,
            trail: self.trail,
            in_flight,
            verdict: self.verdict,
            error: self.error.map(Box::new),
        }
    }

    /// Updates the item with the last success of any call at its gates.
    fn update_last_success(&mut self) {
        if self.item.kind().give_up_after.is_some() {
            let last_success = match self.source {
                PermitSource::Limiter(limiter) => limiter.last_success(self.ask.key),
                PermitSource::Pool(pool) => pool.last_success(),
            };
            if let Some(at) = last_success {
                self.item.gate_succeeded(at);
            }
        }
    }
}

fn random<'r>(random: &'r mut Option<Random>, limiter: &Limiter) -> &'r mut Random {
    random.get_or_insert_with(|| limiter.random())
}

/// The endpoint that an attempt was made at.
#[derive(Clone, Copy)]
pub(super) struct SentTo {
    endpoint: EndpointId,
    /// The epoch of its ladder in which the attempt was admitted.
    epoch: u32,
    has_own_credential: bool,
}

impl<'a, E> AnyPermit<'a, E> {
    pub(super) fn endpoint_used(&self, has_own_credential: bool) -> Option<SentTo> {
        match self {
            Self::Gate(_) => None,
            Self::Pool(permit) => Some(SentTo {
                endpoint: permit.endpoint().id,
                epoch: permit.epoch(),
                has_own_credential,
            }),
        }
    }

    /// The endpoint of the attempt, in a pool.
    pub(super) fn endpoint(&self) -> Option<&Arc<Endpoint<E>>> {
        match self {
            Self::Gate(_) => None,
            Self::Pool(permit) => Some(permit.endpoint()),
        }
    }

    pub(super) fn permit(&self) -> &Permit<'a> {
        match self {
            Self::Gate(permit) => permit,
            Self::Pool(permit) => permit.permit(),
        }
    }

    /// Returns the permit of an attempt that was dropped after `elapsed`, because another one was
    /// answered first.
    pub(super) fn overtaken(self, elapsed: Duration) {
        match self {
            Self::Gate(mut permit) => permit.overtaken(elapsed),
            Self::Pool(permit) => permit.overtaken(elapsed),
        }
    }

    pub(super) fn give_back(self) {
        match self {
            Self::Gate(permit) => permit.give_back(),
            Self::Pool(permit) => permit.give_back(),
        }
    }

    /// Reports the result of the attempt. It stays in flight while its body is unread. Returns the
    /// verdict that decides what follows.
    pub(super) fn settle<T>(
        self,
        result: &AttemptResult<T>,
        outcome: &Outcome,
        is_rejected: bool,
    ) -> (Option<Verdict>, Option<InFlight>) {
        let (verdict, text) = (result.verdict, &*result.text);
        let is_credential_rejected = is_rejected && verdict != Some(Verdict::QuotaExhausted);
        let this = match self {
            Self::Pool(permit) if is_credential_rejected => {
                Self::Pool(permit.credential_rejected())
            }
            this => this,
        };
        let in_flight = match (this, result.has_body) {
            (Self::Gate(permit), true) => permit.settle_head(outcome, verdict),
            (Self::Pool(permit), true) => permit.settle_head(outcome, verdict, text),
            (Self::Gate(permit), false) => return (permit.settle_as(outcome, verdict), None),
            (Self::Pool(permit), false) => return (permit.settle_as(outcome, verdict, text), None),
        };
        (in_flight.verdict(), Some(in_flight))
    }
}
