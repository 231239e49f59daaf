//! One logical request over all its attempts: may it be sent again, and when?
//!
//! The gateway, durable operations, fetch, run and replay all drive the same item, and none of them
//! makes retry decisions. It takes the outcome of each attempt and returns one [`Step`]:
//!
//! | verdict | counts as an attempt | then |
//! |---|---|---|
//! | success, or none (1xx) | – | done |
//! | throttled, overloaded, with a server-named wait above zero | no | resent after that wait, at most 100 times |
//! | throttled, overloaded, unreachable | yes | resent after its own delay, if an attempt is left |
//! | unauthorized | no | one refresh and one immediate resend; 401 again: `auth_failed` |
//! | conflict | – | waits for reconciliation |
//! | rejected, quota exhausted | – | failed |
//!
//! **Attempts bound retries after unexplained failures.** A server that names a wait has said when
//! the request may be resent, so that wait does not count. A refusal by a gate does not count
//! either, because nothing was sent. These are bounded by time instead: `expires_after`, and
//! `give_up_after` without any success at the gate. An item that could only be sent too late fails
//! at once, without waiting.
//!
//! **Nothing is done twice.** An unsafe request (POST, PATCH …) is resent only if the server cannot
//! have acted on the last attempt: none of it was written, the HTTP/2 stream was refused, or the
//! response says that it was refused (throttled; 401, which by RFC 9110 "has not been applied").
//! Otherwise it needs an idempotency key, or a route that allows it. Without either it ends as
//! `exhausted` after one send, and the last response is passed on.
//!
//! **Waiting does not help after a 401.** It does not make a credential valid, and every further
//! attempt may lock the account. There is one refresh and one resend. Any other response in between
//! shows that the credential was valid and allows another refresh later. A timeout is not a
//! response.

mod record;
mod safety;
mod step;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use self::record::ItemRecord;
pub use self::safety::Safety;
pub use self::step::{DelaySource, ResendReason, Step, TerminalReason};
use crate::backoff::BackoffSettings;
use crate::gate::Reason;
use crate::outcome::{Outcome, UpstreamResponse, Verdict};
use crate::random::Random;
use crate::time::Timestamp;

/// After this many server-named waits an item is `exhausted`.
pub const MAX_DIRECTED_WAITS: u32 = 100;

/// The properties of an item that do not change between attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemKind {
    /// The effect of sending it twice.
    pub safety: Safety,
    /// Whether it carries an idempotency key, by which the server recognises a duplicate.
    pub has_idempotency_key: bool,
    /// Whether its route declares resending safe.
    pub retry_unsafe: bool,
    /// How long it may take from now: the expiry of an operation, or the time left until a caller's
    /// deadline. `None`: no bound.
    pub expires_after: Option<Duration>,
    /// How long its gate may go without any success. `None`: no bound.
    pub give_up_after: Option<Duration>,
}

impl ItemKind {
    /// A request with this method, without idempotency key, permission or time bounds.
    pub fn of(method: &str) -> Self {
        Self {
            safety: Safety::of(method),
            has_idempotency_key: false,
            retry_unsafe: false,
            expires_after: None,
            give_up_after: None,
        }
    }

    /// Whether resending it after this outcome cannot execute it twice. Does not consider attempts.
    pub fn is_safe_to_resend(&self, outcome: &Outcome, verdict: Verdict) -> bool {
        let harmless = match self.safety {
            Safety::Safe | Safety::Idempotent => true,
            Safety::Unsafe => self.has_idempotency_key || self.retry_unsafe,
        };
        let refused = matches!(verdict, Verdict::Throttled | Verdict::Unauthorized);
        harmless || refused || !outcome.server_may_have_acted()
    }
}

/// The state of an item. Small and plain, so that it can be recorded and restored.
///
/// ```
/// use std::time::Duration;
/// use tidegate_policy::backoff::BackoffSettings;
/// use tidegate_policy::item::{Item, ItemKind, Step, TerminalReason};
/// use tidegate_policy::outcome::{Outcome, Verdict};
/// use tidegate_policy::random::Random;
/// use tidegate_policy::time::Timestamp;
///
/// let settings = BackoffSettings::default();
/// let mut random = Random::from_seed(1);
/// let failed = Outcome::status(502, Duration::from_millis(80));
/// let mut after = |kind, now| {
///     let mut item = Item::new(kind, now);
///     item.after(&settings, &failed, Some(Verdict::Overloaded), now, &mut random)
/// };
/// assert!(matches!(after(ItemKind::of("GET"), Timestamp::ZERO), Step::SendAt { .. }));
/// // The server may have acted on it already.
/// let exhausted = Step::Failed(TerminalReason::Exhausted);
/// assert_eq!(after(ItemKind::of("POST"), Timestamp::ZERO), exhausted);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    kind: ItemKind,
    sent: u32,
    attempts: u32,
    directed_waits: u32,
    refreshed: bool,
    next_at: Timestamp,
    expires_at: Timestamp,
    gives_up_at: Timestamp,
}

impl Item {
    /// A new item that may be sent at once.
    pub fn new(kind: ItemKind, now: Timestamp) -> Self {
        let after = |wait: Option<Duration>| wait.map_or(Timestamp::MAX, |wait| now + wait);
        Self {
            kind,
            sent: 0,
            attempts: 0,
            directed_waits: 0,
            refreshed: false,
            next_at: now,
            expires_at: after(kind.expires_after),
            gives_up_at: after(kind.give_up_after),
        }
    }

    /// The properties that do not change.
    pub fn kind(&self) -> &ItemKind {
        &self.kind
    }

    /// How many times it was sent.
    pub fn sent(&self) -> u32 {
        self.sent
    }

    /// The sends that count against `max_attempts` so far: failed ones, except 401s and those
    /// answered with a wait above zero.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Sets how many sends count so far; zero when a person restarts it.
    pub fn set_attempts(&mut self, attempts: u32) {
        self.attempts = attempts;
    }

    /// When the item may be sent next; its gate may delay it further.
    pub fn next_at(&self) -> Timestamp {
        self.next_at
    }

    /// From when on it must not be sent.
    pub fn expires_at(&self) -> Option<Timestamp> {
        (self.expires_at < Timestamp::MAX).then_some(self.expires_at)
    }

    /// Records a success of any item at its gate: `give_up_after` counts from there.
    pub fn gate_succeeded(&mut self, at: Timestamp) {
        if let Some(give_up_after) = self.kind.give_up_after {
            self.gives_up_at = self.gives_up_at.max(at + give_up_after);
        }
    }

    /// Decides what follows an attempt that ended at `now` with this `outcome` and `verdict`.
    pub fn after(
        &mut self,
        settings: &BackoffSettings,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        now: Timestamp,
        random: &mut Random,
    ) -> Step {
        self.after_at(settings, outcome, verdict, None, now, random)
    }

    /// [`Item::after`] for an attempt at an endpoint of a pool. A delay applies to the server that
    /// failed or asked for it, so it is skipped if another endpoint is ready sooner:
    /// `other_ready_at` is when the gate of another endpoint would admit it, if there is one.
    pub fn after_at(
        &mut self,
        settings: &BackoffSettings,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        other_ready_at: Option<Timestamp>,
        now: Timestamp,
        random: &mut Random,
    ) -> Step {
        self.sent = self.sent.saturating_add(1);
        if verdict != Some(Verdict::Unauthorized)
            && matches!(outcome.response, UpstreamResponse::Status(_))
        {
            self.refreshed = false;
        }
        match verdict {
            None | Some(Verdict::Success) => Step::Done,
            Some(Verdict::Rejected) => Step::Failed(TerminalReason::Rejected),
            Some(Verdict::QuotaExhausted) => Step::Failed(TerminalReason::QuotaExhausted),
            Some(Verdict::Conflict) => Step::Conflict,
            Some(Verdict::Unauthorized) => self.refresh(now),
            Some(verdict @ (Verdict::Throttled | Verdict::Overloaded | Verdict::Unreachable)) => {
                self.again(settings, outcome, verdict, other_ready_at, now, random)
            }
        }
    }

    /// Decides what follows a response that rejected the credential or the used-up quota of an
    /// endpoint, not the item. The server has refused it, so even an unsafe item moves to another
    /// endpoint: `other_ready_at` is when that may be, `None` if no endpoint is left. It does not
    /// count as an attempt; there are only as many such responses as endpoints.
    pub fn after_rejected(
        &mut self,
        verdict: Verdict,
        other_ready_at: Option<Timestamp>,
        now: Timestamp,
    ) -> Step {
        self.sent = self.sent.saturating_add(1);
        self.move_on(verdict, other_ready_at, now)
    }

    /// Like [`Item::after_rejected`], after a refresh that failed.
    pub fn move_on(
        &mut self,
        verdict: Verdict,
        other_ready_at: Option<Timestamp>,
        now: Timestamp,
    ) -> Step {
        match other_ready_at {
            Some(at) if self.too_late(at.max(now)).is_none() => {
                let reason = ResendReason::Verdict(verdict);
                self.send_after(at.since(now), DelaySource::Failover, reason, now)
            }
            _ => Step::Failed(match verdict {
                Verdict::Unauthorized => TerminalReason::AuthFailed,
                Verdict::QuotaExhausted => TerminalReason::QuotaExhausted,
                _ => TerminalReason::Rejected,
            }),
        }
    }

    /// Counts a second attempt, made while the first has not been answered. Both together are one
    /// of `max_attempts`.
    pub fn hedged(&mut self) {
        self.sent = self.sent.saturating_add(1);
    }

    /// Counts an attempt that was cut off: it was sent, and its result is unknown.
    pub fn abandoned(&mut self) {
        self.sent = self.sent.saturating_add(1);
    }

    /// Whether its credential was refreshed since the last response other than 401.
    pub fn has_refreshed(&self) -> bool {
        self.refreshed
    }

    /// Allows a refresh again, because the next one is of another credential.
    pub fn allow_refresh(&mut self) {
        self.refreshed = false;
    }

    /// Decides what follows the refresh requested by [`Step::Refresh`].
    pub fn refreshed(&mut self, succeeded: bool, now: Timestamp) -> Step {
        if !succeeded {
            return Step::Failed(TerminalReason::AuthFailed);
        }
        let reason = ResendReason::Verdict(Verdict::Unauthorized);
        self.send_after(Duration::ZERO, DelaySource::Refresh, reason, now)
    }

    /// Decides what follows a conflict that was resolved: the next attempt sends something else, at
    /// once.
    pub fn resolved(&mut self, now: Timestamp) -> Step {
        let reason = ResendReason::Verdict(Verdict::Conflict);
        self.send_after(Duration::ZERO, DelaySource::Resolution, reason, now)
    }

    /// Decides what follows a refusal by its gate, with the end if known. Nothing was sent, so it
    /// does not count as an attempt. If the end is unknown, it asks again after the backoff's first
    /// step.
    pub fn refused(
        &mut self,
        settings: &BackoffSettings,
        reason: Reason,
        until: Option<Timestamp>,
        now: Timestamp,
        random: &mut Random,
    ) -> Step {
        let (delay, source) = match until {
            Some(until) => (until.since(now), DelaySource::Gate),
            None => (settings.delay(1, random), DelaySource::Backoff),
        };
        let step = self.send_after(delay, source, ResendReason::Refused(reason), now);
        match step {
            Step::Failed(TerminalReason::Expired | TerminalReason::GaveUp)
                if reason == Reason::BreakerOpen =>
            {
                Step::Failed(TerminalReason::BreakerOpen)
            }
            step => step,
        }
    }

    fn refresh(&mut self, now: Timestamp) -> Step {
        if self.refreshed {
            return Step::Failed(TerminalReason::AuthFailed);
        }
        self.refreshed = true;
        match self.too_late(now) {
            Some(reason) => Step::Failed(reason),
            None => Step::Refresh,
        }
    }

    fn again(
        &mut self,
        settings: &BackoffSettings,
        outcome: &Outcome,
        verdict: Verdict,
        other_ready_at: Option<Timestamp>,
        now: Timestamp,
        random: &mut Random,
    ) -> Step {
        if !self.kind.is_safe_to_resend(outcome, verdict) {
            self.attempts = self.attempts.saturating_add(1);
            return Step::Failed(TerminalReason::Exhausted);
        }
        let reason = ResendReason::Verdict(verdict);
        // A wait of zero counts as an attempt; otherwise a server that always names it would be
        // asked forever.
        let is_directed = outcome.hint.wait.is_some_and(|wait| !wait.is_zero());
        let may_retry = if is_directed {
            self.directed_waits = self.directed_waits.saturating_add(1);
            self.directed_waits <= MAX_DIRECTED_WAITS
        } else {
            self.attempts = self.attempts.saturating_add(1);
            settings.may_retry(self.attempts)
        };
        if !may_retry {
            return Step::Failed(TerminalReason::Exhausted);
        }
        let (delay, source) = match outcome.hint.wait {
            Some(wait) => (settings.directed(wait, random), DelaySource::RetryAfter),
            None => (settings.delay(self.attempts, random), DelaySource::Backoff),
        };
        match other_ready_at {
            Some(at) if at < now + delay => {
                self.send_after(at.since(now), DelaySource::Failover, reason, now)
            }
            _ => self.send_after(delay, source, reason, now),
        }
    }

    fn send_after(
        &mut self,
        delay: Duration,
        source: DelaySource,
        reason: ResendReason,
        now: Timestamp,
    ) -> Step {
        let at = now + delay;
        if let Some(reason) = self.too_late(at) {
            return Step::Failed(reason);
        }
        self.next_at = at;
        Step::SendAt {
            at,
            delay,
            source,
            reason,
        }
    }

    /// Why it must not be sent at `at`, if it must not.
    fn too_late(&self, at: Timestamp) -> Option<TerminalReason> {
        if at >= self.expires_at && self.expires_at < Timestamp::MAX {
            Some(TerminalReason::Expired)
        } else if at > self.gives_up_at {
            Some(TerminalReason::GaveUp)
        } else {
            None
        }
    }
}
