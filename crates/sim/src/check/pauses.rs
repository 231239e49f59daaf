//! Holds and breaker of one gate, computed a second time.

use std::time::Duration;

use policy::breaker::{BreakerSettings, BreakerState, MIN_PROBE_LOST_AFTER};
use policy::bucket::Pause;
use policy::gate::GateSettings;
use policy::outcome::{UpstreamResponse, Verdict};
use policy::rate::Strategy;
use policy::time::Timestamp;

use super::{Invariant, Violations};
use crate::client::{AttemptResult, GateView};

#[derive(Debug)]
pub(super) struct Pauses {
    /// The end of the hold.
    hold: Timestamp,
    /// The end of the longest wait that the server named.
    directed: Timestamp,
    /// The latest end of a quota that the server named.
    quota_ends: Timestamp,
    /// When the server refused for the first time.
    first_refused: Option<Timestamp>,
    breaker: BreakerState,
    open_until: Timestamp,
    /// Counts the HalfOpen periods, to recognise late probes.
    round: u64,
    probes_in_flight: u32,
    probed_at: Timestamp,
    successes: u32,
    /// When the last pause ended.
    last_end: Timestamp,
}

impl Pauses {
    pub(super) fn new() -> Self {
        Self {
            hold: Timestamp::ZERO,
            directed: Timestamp::ZERO,
            quota_ends: Timestamp::ZERO,
            first_refused: None,
            breaker: BreakerState::Closed,
            open_until: Timestamp::ZERO,
            round: 0,
            probes_in_flight: 0,
            probed_at: Timestamp::ZERO,
            successes: 0,
            last_end: Timestamp::ZERO,
        }
    }

    pub(super) fn directed_until(&self) -> Timestamp {
        self.directed
    }

    /// When the last pause that is over by `now` ended. HalfOpen is part of a pause.
    pub(super) fn last_end(&self, now: Timestamp) -> Timestamp {
        if self.breaker != BreakerState::Closed {
            return now;
        }
        if self.hold <= now {
            self.last_end.max(self.hold)
        } else {
            self.last_end
        }
    }

    /// Nothing may be sent before this.
    pub(super) fn until(&self) -> Timestamp {
        match self.breaker {
            BreakerState::Open => self.hold.max(self.open_until),
            BreakerState::Closed | BreakerState::HalfOpen | BreakerState::Isolated => self.hold,
        }
    }

    /// The current pause and the tokens it leaves.
    pub(super) fn pause(&self, settings: &GateSettings) -> Pause {
        let is_open = self.breaker == BreakerState::Open && self.open_until >= self.hold;
        let keep = if is_open {
            f64::from(settings.breaker().half_open_probes)
        } else {
            1.0
        };
        Pause {
            until: self.until(),
            keep,
        }
    }

    /// Moves to `now`: Open becomes HalfOpen, and probes that take too long are lost.
    pub(super) fn advance(&mut self, now: Timestamp) {
        if self.breaker == BreakerState::Open && now >= self.open_until {
            self.breaker = BreakerState::HalfOpen;
            self.last_end = self.open_until;
            self.begin_round();
        }
        let is_lost = self.probes_in_flight > 0 && now >= self.probed_at + MIN_PROBE_LOST_AFTER;
        if self.breaker == BreakerState::HalfOpen && is_lost {
            self.round += 1;
            self.probes_in_flight = 0;
        }
    }

    /// Checks a request that is sent. Returns the round in which it is a probe.
    pub(super) fn sent(
        &mut self,
        settings: &GateSettings,
        is_probe: bool,
        now: Timestamp,
        violations: &mut Violations,
    ) -> Option<u64> {
        violations.require(now >= self.hold, Invariant::NoSendDuringHold, || {
            format!("sent {:?} before the end", self.hold.since(now))
        });
        match self.breaker {
            BreakerState::Closed => {
                violations.require(!is_probe, Invariant::ProbesAreBounded, || {
                    "a probe through a Closed breaker".to_owned()
                });
                None
            }
            BreakerState::HalfOpen => {
                self.probes_in_flight += 1;
                self.probed_at = now;
                let (count, max) = (self.probes_in_flight, settings.breaker().half_open_probes);
                let is_right = is_probe && count <= u32::from(max);
                violations.require(is_right, Invariant::ProbesAreBounded, || {
                    format!("{count} in flight of {max}, marked as a probe: {is_probe}")
                });
                Some(self.round)
            }
            state @ (BreakerState::Open | BreakerState::Isolated) => {
                violations.require(false, Invariant::NoSendWhileOpen, || {
                    format!("sent while {state:?} until {:?}", self.open_until)
                });
                None
            }
        }
    }

    /// Checks the gate after the end of an attempt. `is_exhausted`: the response says that nothing is
    /// left; `probe`: the round in which the attempt was a probe.
    pub(super) fn attempt_ended(
        &mut self,
        view: &GateView<'_>,
        result: &AttemptResult,
        is_exhausted: bool,
        probe: Option<u64>,
        now: Timestamp,
        violations: &mut Violations,
    ) {
        if self.hold <= now {
            self.last_end = self.last_end.max(self.hold);
        }
        if let Some(wait) = named_wait(result, is_exhausted) {
            self.directed = self.directed.max(now + wait);
            self.hold = self.hold.max(now + wait);
        }
        let hint = &result.outcome.hint;
        let of_requests = hint
            .quotas
            .as_ref()
            .and_then(|quotas| quotas.requests?.reset);
        for reset in [hint.reset, of_requests].into_iter().flatten() {
            self.quota_ends = self.quota_ends.max(now + reset);
        }
        let max_assumed = match result.outcome.response {
            UpstreamResponse::Status(403) => MAX_BAN_PAUSE_S,
            UpstreamResponse::Status(429) => {
                let first = *self.first_refused.get_or_insert(now);
                MAX_ASSUMED_HOLD_S.max(now.seconds_since(first))
            }
            _ => MAX_ASSUMED_HOLD_S,
        };
        self.check_hold(view, max_assumed, now, violations);
        if probe == Some(self.round) && self.breaker == BreakerState::HalfOpen {
            self.probes_in_flight = self.probes_in_flight.saturating_sub(1);
            self.successes += u32::from(result.is_accepted());
        }
        self.check_breaker(view, result, now, violations);
    }

    fn check_hold(
        &mut self,
        view: &GateView<'_>,
        max_assumed: f64,
        now: Timestamp,
        violations: &mut Violations,
    ) {
        let reported = view.gate.hold_until(now).unwrap_or(Timestamp::ZERO);
        violations.require(
            self.hold <= now || reported >= self.hold,
            Invariant::HoldOnlyGrows,
            || {
                let [reported, named] = [reported, self.hold].map(|at| at.since(now));
                format!("held for {reported:?}, but {named:?} were named")
            },
        );
        if reported > self.hold {
            let assumed = reported.since(now);
            let may_assume = view.settings.strategy() == Strategy::Adaptive;
            // The gate stores it in milliseconds.
            let quota_ends = self.quota_ends + Duration::from_millis(1);
            let is_bounded = assumed.as_secs_f64() <= max_assumed || reported <= quota_ends;
            violations.require(
                may_assume && is_bounded,
                Invariant::AssumedHoldIsBounded,
                || format!("held for {assumed:?} without a hint"),
            );
            self.hold = reported;
        }
    }

    fn check_breaker(
        &mut self,
        view: &GateView<'_>,
        result: &AttemptResult,
        now: Timestamp,
        violations: &mut Violations,
    ) {
        let (before, after) = (self.breaker, view.gate.breaker_state(now));
        let settings = view.settings.breaker();
        if before == after {
            let count = view.gate.consecutive_failures();
            let trips = after == BreakerState::Closed && count >= settings.consecutive_failures;
            violations.require(!trips, Invariant::FailuresOpenBreaker, || {
                format!("Closed after {count} failures in a row")
            });
            return;
        }
        self.breaker = after;
        match (before, after) {
            (BreakerState::Closed | BreakerState::HalfOpen, BreakerState::Open) => {
                self.check_open(view, result, now, violations);
            }
            (BreakerState::HalfOpen, BreakerState::Closed) => {
                let (counted, needed) = (self.successes, settings.half_open_probes);
                violations.require(
                    counted >= u32::from(needed),
                    Invariant::BreakerTransitionIsLegal,
                    || format!("Closed after {counted} of {needed} successes"),
                );
                self.last_end = now;
            }
            _ => violations.require(false, Invariant::BreakerTransitionIsLegal, || {
                format!("from {before:?} to {after:?}")
            }),
        }
    }

    fn check_open(
        &mut self,
        view: &GateView<'_>,
        result: &AttemptResult,
        now: Timestamp,
        violations: &mut Violations,
    ) {
        let snapshot = view.gate.snapshot(view.settings, view.tickets, now);
        self.open_until = snapshot.breaker_until.unwrap_or(now);
        let length = self.open_until.since(now);
        let BreakerSettings {
            open_first,
            open_for,
            ..
        } = *view.settings.breaker();
        let is_in_range = open_first <= length && length <= open_for;
        violations.require(
            is_in_range && is_failure(view.settings, result),
            Invariant::BreakerTransitionIsLegal,
            || {
                format!(
                    "Open for {length:?} of {open_first:?} to {open_for:?} by {:?}",
                    result.verdict
                )
            },
        );
    }

    fn begin_round(&mut self) {
        self.round += 1;
        self.probes_in_flight = 0;
        self.successes = 0;
    }
}

/// The wait that the server named: with a refusal or a failure, or until the reset after a success
/// that leaves nothing.
fn named_wait(result: &AttemptResult, is_exhausted: bool) -> Option<Duration> {
    let hint = &result.outcome.hint;
    match result.verdict? {
        Verdict::Throttled | Verdict::Overloaded => hint.wait,
        Verdict::QuotaExhausted => hint.wait.or(hint.reset),
        Verdict::Success => hint.reset.filter(|_| is_exhausted),
        Verdict::Unreachable | Verdict::Unauthorized | Verdict::Conflict | Verdict::Rejected => {
            None
        }
    }
}

/// Whether the result counts as a failure in the breaker. Directed ones do not.
fn is_failure(settings: &GateSettings, result: &AttemptResult) -> bool {
    let counts_throttled = settings.strategy() == Strategy::Aimd && settings.aimd().count_throttled;
    let is_counted = match result.verdict {
        Some(Verdict::Overloaded | Verdict::Unreachable) => true,
        Some(Verdict::Throttled) => counts_throttled,
        _ => false,
    };
    is_counted && !result.outcome.is_directed()
}

/// The longest hold of `adaptive` without a hint, while nothing is accepted.
pub(super) const MAX_ASSUMED_HOLD_S: f64 = 10.0;
/// The longest pause after a ban.
const MAX_BAN_PAUSE_S: f64 = 600.0;
