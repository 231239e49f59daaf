//! Holds and the breaker of one gate, kept a second time.

use policy::breaker::{BreakerSettings, BreakerState, MIN_PROBE_LOST_AFTER};
use policy::bucket::Pause;
use policy::gate::GateSettings;
use policy::outcome::Verdict;
use policy::rate::Strategy;
use policy::time::Timestamp;

use super::{Found, Promise};
use crate::client::{Attempt, GateView};

#[derive(Debug)]
pub(super) struct Pauses {
    /// The end of the hold, whoever began it.
    hold: Timestamp,
    /// The end of the longest wait that the server named.
    directed: Timestamp,
    breaker: BreakerState,
    open_until: Timestamp,
    /// Counts the times of being HalfOpen, so that a late probe is known as such.
    round: u64,
    probes_out: u32,
    probed_at: Timestamp,
    successes: u32,
    /// The end of the last pause that has ended.
    ended: Timestamp,
}

impl Pauses {
    pub(super) fn new() -> Self {
        Self {
            hold: Timestamp::ZERO,
            directed: Timestamp::ZERO,
            breaker: BreakerState::Closed,
            open_until: Timestamp::ZERO,
            round: 0,
            probes_out: 0,
            probed_at: Timestamp::ZERO,
            successes: 0,
            ended: Timestamp::ZERO,
        }
    }

    pub(super) fn directed_until(&self) -> Timestamp {
        self.directed
    }

    /// The end of the last pause that is over by `now`. Probing is part of a pause.
    pub(super) fn ended_by(&self, now: Timestamp) -> Timestamp {
        if self.breaker != BreakerState::Closed {
            return now;
        }
        if self.hold <= now {
            self.ended.max(self.hold)
        } else {
            self.ended
        }
    }

    /// Nothing leaves before this.
    pub(super) fn until(&self) -> Timestamp {
        match self.breaker {
            BreakerState::Open => self.hold.max(self.open_until),
            BreakerState::Closed | BreakerState::HalfOpen | BreakerState::Isolated => self.hold,
        }
    }

    /// The pause that is on or ends now, and what it leaves of what was saved.
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

    /// Time has passed: Open becomes HalfOpen, and probes that never come back are given up.
    pub(super) fn pass(&mut self, now: Timestamp) {
        if self.breaker == BreakerState::Open && now >= self.open_until {
            self.breaker = BreakerState::HalfOpen;
            self.ended = self.open_until;
            self.begin_round();
        }
        let is_lost = self.probes_out > 0 && now >= self.probed_at + MIN_PROBE_LOST_AFTER;
        if self.breaker == BreakerState::HalfOpen && is_lost {
            self.round += 1;
            self.probes_out = 0;
        }
    }

    /// A request leaves. Gives the round in which it is a probe.
    pub(super) fn leave(
        &mut self,
        settings: &GateSettings,
        is_probe: bool,
        now: Timestamp,
        found: &mut Found,
    ) -> Option<u64> {
        found.expect(now >= self.hold, Promise::HoldIsKept, || {
            format!("sent {:?} before the end", self.hold.since(now))
        });
        match self.breaker {
            BreakerState::Closed => {
                found.expect(!is_probe, Promise::ProbesAreFew, || {
                    "a probe through a Closed breaker".to_owned()
                });
                None
            }
            BreakerState::HalfOpen => {
                self.probes_out += 1;
                self.probed_at = now;
                let (out, most) = (self.probes_out, settings.breaker().half_open_probes);
                let is_right = is_probe && out <= u32::from(most);
                found.expect(is_right, Promise::ProbesAreFew, || {
                    format!("{out} out of {most}, marked as a probe: {is_probe}")
                });
                Some(self.round)
            }
            state @ (BreakerState::Open | BreakerState::Isolated) => {
                found.expect(false, Promise::OpenLetsNobodyThrough, || {
                    format!("sent while {state:?} until {:?}", self.open_until)
                });
                None
            }
        }
    }

    /// A request has ended, and its gate has learned from it what it does; `exhausted` if the
    /// answer says that nothing is left.
    pub(super) fn learn(
        &mut self,
        view: &GateView<'_>,
        attempt: &Attempt,
        ended: Ended,
        now: Timestamp,
        found: &mut Found,
    ) {
        if self.hold <= now {
            self.ended = self.ended.max(self.hold);
        }
        if let Some(wait) = named_wait(attempt, ended.exhausted) {
            self.directed = self.directed.max(now + wait);
            self.hold = self.hold.max(now + wait);
        }
        self.compare_hold(view, now, found);
        if ended.probe == Some(self.round) && self.breaker == BreakerState::HalfOpen {
            self.probes_out = self.probes_out.saturating_sub(1);
            self.successes += u32::from(attempt.is_accepted());
        }
        self.follow_breaker(view, attempt, now, found);
    }

    fn compare_hold(&mut self, view: &GateView<'_>, now: Timestamp, found: &mut Found) {
        let told = view.gate.hold_until(now).unwrap_or(Timestamp::ZERO);
        found.expect(
            self.hold <= now || told >= self.hold,
            Promise::HoldOnlyGrows,
            || {
                let [told, known] = [told, self.hold].map(|at| at.since(now));
                format!("held for {told:?}, but {known:?} were named")
            },
        );
        if told > self.hold {
            let assumed = told.since(now);
            let may_assume = view.settings.strategy() == Strategy::Adaptive;
            found.expect(
                may_assume && assumed.as_secs_f64() <= LONGEST_ASSUMED_SECONDS,
                Promise::WaitIsNotInvented,
                || format!("held for {assumed:?} that nobody named"),
            );
            self.hold = told;
        }
    }

    fn follow_breaker(
        &mut self,
        view: &GateView<'_>,
        attempt: &Attempt,
        now: Timestamp,
        found: &mut Found,
    ) {
        let (before, after) = (self.breaker, view.gate.breaker_state(now));
        let settings = view.settings.breaker();
        if before == after {
            let row = view.gate.consecutive_failures();
            let trips = after == BreakerState::Closed && row >= settings.consecutive_failures;
            found.expect(!trips, Promise::FailuresOpen, || {
                format!("Closed after {row} failures in a row")
            });
            return;
        }
        self.breaker = after;
        match (before, after) {
            (BreakerState::Closed | BreakerState::HalfOpen, BreakerState::Open) => {
                self.open(view, attempt, now, found);
            }
            (BreakerState::HalfOpen, BreakerState::Closed) => {
                let (seen, needed) = (self.successes, settings.half_open_probes);
                found.expect(
                    seen >= u32::from(needed),
                    Promise::BreakerMovesAsDrawn,
                    || format!("Closed after {seen} of {needed} successes"),
                );
                self.ended = now;
            }
            _ => found.expect(false, Promise::BreakerMovesAsDrawn, || {
                format!("from {before:?} to {after:?}")
            }),
        }
    }

    fn open(&mut self, view: &GateView<'_>, attempt: &Attempt, now: Timestamp, found: &mut Found) {
        let snapshot = view.gate.snapshot(view.settings, view.tickets, now);
        self.open_until = snapshot.breaker_until.unwrap_or(now);
        let length = self.open_until.since(now);
        let BreakerSettings {
            open_first,
            open_for,
            ..
        } = *view.settings.breaker();
        let fits = open_first <= length && length <= open_for;
        found.expect(
            fits && is_failure(view.settings, attempt),
            Promise::BreakerMovesAsDrawn,
            || {
                format!(
                    "Open for {length:?} of {open_first:?} to {open_for:?} by {:?}",
                    attempt.verdict
                )
            },
        );
    }

    fn begin_round(&mut self) {
        self.round += 1;
        self.probes_out = 0;
        self.successes = 0;
    }
}

/// A request that has ended, as the books know it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    /// Does its answer say that nothing is left?
    pub(super) exhausted: bool,
    /// The round in which it was a probe.
    pub(super) probe: Option<u64>,
}

/// How long the server asked to be left alone: a refusal or a failure with a wait, or a success
/// after which nothing is left.
fn named_wait(attempt: &Attempt, exhausted: bool) -> Option<std::time::Duration> {
    let hint = &attempt.outcome.hint;
    match attempt.verdict? {
        Verdict::Throttled | Verdict::Overloaded => hint.wait,
        Verdict::QuotaExhausted => hint.wait.or(hint.reset),
        Verdict::Success => hint.reset.filter(|_| exhausted),
        Verdict::Unreachable | Verdict::Unauthorized | Verdict::Conflict | Verdict::Rejected => {
            None
        }
    }
}

/// May it open a breaker? Who names a wait is well enough to talk.
fn is_failure(settings: &GateSettings, attempt: &Attempt) -> bool {
    let counts_throttled = settings.strategy() == Strategy::Aimd && settings.aimd().count_throttled;
    let is_counted = match attempt.verdict {
        Some(Verdict::Overloaded | Verdict::Unreachable) => true,
        Some(Verdict::Throttled) => counts_throttled,
        _ => false,
    };
    is_counted && !attempt.outcome.is_directed()
}

/// What `adaptive` assumes where nothing passes.
pub(super) const LONGEST_ASSUMED_SECONDS: f64 = 10.0;
