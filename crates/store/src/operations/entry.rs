//! An operation with everything that a backend stores about it, and what every call does to it.
//!
//! Both backends read an entry, change it here and write it back, so that they cannot differ in what
//! a call means. [`policy::operation`] decides every transition.

use std::time::Duration;

use policy::operation::{Attempts, IllegalTransition, Operation, OperationEvent, OperationState};
use policy::time::WallTime;

use super::{
    ClaimId, ClaimResult, Counters, Lease, NewOperation, RuleDecision, Settlement, StoredOperation,
};

/// One row of the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) operation: StoredOperation,
    /// The idempotency key that it was accepted with. A replaced request is sent with another one,
    /// and the client's own key still finds the operation.
    pub(crate) accepted_key: String,
    pub(crate) fingerprint: Vec<u8>,
    /// When it is due; in other states, when it was.
    pub(crate) due_at: WallTime,
    /// How long it may take, from each start by a person or a rule.
    pub(crate) lifetime: Duration,
    pub(crate) retain: Duration,
    pub(crate) retain_until: Option<WallTime>,
    /// The number of the last claim.
    pub(crate) fence: u64,
    /// While it is running.
    pub(crate) lease: Option<HeldLease>,
    /// Has it ended, with a report to come?
    pub(crate) is_unreported: bool,
    pub(crate) updated_at: WallTime,
}

/// The lease of a running operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldLease {
    /// The process, more exactly the opening of the store, that has claimed it.
    pub(crate) session: u64,
    pub(crate) until: WallTime,
}

/// How long an operation waits whose lease was lost: its request may still be under way.
const LOST_LEASE_WAIT: Duration = Duration::from_secs(1);

/// How long an operation waits whose request cannot be read, until it is read again.
const UNREADABLE_WAIT: Duration = Duration::from_secs(60);

/// Clocks are corrected by seconds all the time; only more than this is a clock that was set back.
const CLOCK_CORRECTION: Duration = Duration::from_secs(60);

impl Entry {
    pub(crate) fn new(number: u64, new: &NewOperation, is_blocked: bool) -> Self {
        let lifetime = new.accepted_at.until(new.expires_at).unwrap_or_default();
        Self {
            operation: StoredOperation {
                number,
                id: new.id.clone(),
                kind: new.kind.clone(),
                destination: new.destination.clone(),
                summary: new.summary.clone(),
                idempotency_key: new.idempotency_key.clone(),
                client: new.client.clone(),
                credential: new.credential.clone(),
                backoff: new.backoff.clone(),
                order_key: new.order_key.clone(),
                priority: new.priority,
                trace_id: new.trace_id.clone(),
                state: Operation::new().state(),
                merges: 0,
                counters: Counters::default(),
                accepted_at: new.accepted_at,
                next_at: Some(new.accepted_at),
                expires_at: new.expires_at,
                ended_at: None,
                is_blocked,
                unblocked: None,
                is_reported: new.is_reported,
            },
            accepted_key: new.idempotency_key.clone(),
            fingerprint: new.fingerprint.clone(),
            due_at: new.accepted_at,
            lifetime,
            retain: new.retain,
            retain_until: None,
            fence: 0,
            lease: None,
            is_unreported: false,
            updated_at: new.accepted_at,
        }
    }

    /// As it is stored in another queue, where it may have to wait for others with its order key.
    pub(crate) fn import(
        &mut self,
        is_blocked: bool,
        now: WallTime,
    ) -> Result<(), IllegalTransition> {
        if self.is_running() {
            self.apply(OperationEvent::Release, now)?;
        }
        self.operation.is_blocked = is_blocked && self.is_unfinished();
        Ok(())
    }

    /// Is it waiting for a worker, blocked or not?
    pub(crate) fn is_waiting(&self) -> bool {
        is_waiting(self.operation.state)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.operation.state == OperationState::Running
    }

    /// Does it block later operations with its order key?
    pub(crate) fn is_unfinished(&self) -> bool {
        self.is_waiting() || self.is_running() || self.operation.state == OperationState::Conflict
    }

    pub(crate) fn has_expired(&self, now: WallTime) -> bool {
        self.is_waiting() && self.operation.expires_at <= now
    }

    /// Gives it to a worker of `session`.
    pub(crate) fn claim(
        &mut self,
        lease: Lease,
        session: u64,
    ) -> Result<ClaimId, IllegalTransition> {
        self.apply(OperationEvent::Claim, lease.now)?;
        self.fence += 1;
        self.lease = Some(HeldLease {
            session,
            until: lease.until,
        });
        Ok(ClaimId {
            number: self.operation.number,
            fence: self.fence,
        })
    }

    /// Is this claim its present one?
    pub(crate) fn is_claimed_by(&self, claim: ClaimId) -> bool {
        self.is_running() && self.fence == claim.fence
    }

    pub(crate) fn settle(&mut self, settlement: &Settlement) -> Result<(), IllegalTransition> {
        let event = match &settlement.result {
            ClaimResult::Completed(_) => OperationEvent::Complete,
            ClaimResult::Retry(_) => OperationEvent::Postpone,
            ClaimResult::Failed(reason) => OperationEvent::Fail(*reason),
            ClaimResult::Conflict(..) => OperationEvent::Conflict,
            ClaimResult::Released => OperationEvent::Release,
        };
        self.operation.counters = settlement.counters;
        if let ClaimResult::Retry(at) = settlement.result {
            self.due_at = at;
        }
        self.apply(event, settlement.now)?;
        match &settlement.result {
            ClaimResult::Conflict(_, Some(RuleDecision::Send(change))) => {
                // After too many rounds it stays a conflict.
                if self.apply(OperationEvent::Merge, settlement.now).is_ok() {
                    let key = &change.idempotency_key;
                    self.operation.idempotency_key.clone_from(key);
                }
                Ok(())
            }
            ClaimResult::Conflict(_, Some(RuleDecision::Complete)) => {
                self.apply(OperationEvent::Reconcile, settlement.now)
            }
            _ => Ok(()),
        }
    }

    /// Applies what a person decided. Only their events are possible: a worker's are not.
    pub(crate) fn decide(
        &mut self,
        event: OperationEvent,
        now: WallTime,
    ) -> Result<(), IllegalTransition> {
        let is_decision = matches!(
            event,
            OperationEvent::Resolve(_) | OperationEvent::Retry | OperationEvent::Cancel
        );
        if !is_decision {
            let state = self.operation.state;
            return Err(IllegalTransition { state, event });
        }
        self.apply(event, now)
    }

    pub(crate) fn expire(&mut self, now: WallTime) -> Result<(), IllegalTransition> {
        self.apply(OperationEvent::Expire, now)
    }

    /// Takes it back from a worker that has ended, or does not extend its lease.
    pub(crate) fn take_back(&mut self, now: WallTime) -> Result<(), IllegalTransition> {
        self.due_at = now + LOST_LEASE_WAIT;
        self.apply(OperationEvent::LeaseLost, now)
    }

    /// Puts off one whose request cannot be read, so that it is not in the way of others.
    pub(crate) fn put_off(&mut self, now: WallTime) {
        self.due_at = now + UNREADABLE_WAIT;
        self.updated_at = now;
        self.show_due();
    }

    /// Was it changed at a time that is still to come, because the clock was set back since?
    pub(crate) fn was_updated_after(&self, now: WallTime) -> bool {
        let state = self.operation.state;
        state.is_pending() && self.updated_at > now + CLOCK_CORRECTION
    }

    /// Moves its times back by as much as the clock was set back.
    pub(crate) fn move_back(&mut self, now: WallTime) {
        let ahead = now.until(self.updated_at).unwrap_or_default();
        self.due_at = before(self.due_at, ahead);
        self.operation.expires_at = before(self.operation.expires_at, ahead);
        self.updated_at = now;
        self.show_due();
    }

    fn apply(&mut self, event: OperationEvent, now: WallTime) -> Result<(), IllegalTransition> {
        let operation = &mut self.operation;
        let present = Operation::restore(operation.state, operation.merges);
        let transition = present.apply(event)?;
        let state = transition.operation.state();
        operation.state = state;
        operation.merges = transition.operation.merges();
        if state == OperationState::Available && transition.attempts == Attempts::Restarted {
            operation.counters = Counters::default();
            operation.expires_at = now + self.lifetime;
            self.due_at = now;
        }
        let is_ended = !state.is_pending();
        operation.ended_at = is_ended.then_some(now);
        self.is_unreported = is_ended && operation.is_reported;
        self.retain_until = is_retained(state).then(|| now + self.retain);
        self.lease = None;
        self.updated_at = now;
        self.show_due();
        Ok(())
    }

    fn show_due(&mut self) {
        self.operation.next_at = self.is_waiting().then_some(self.due_at);
    }
}

/// The one of several operations with one order key that may be sent: the one that is being sent,
/// else the oldest. Pairs of number and whether it is running.
pub(crate) fn front(unfinished: impl IntoIterator<Item = (u64, bool)>) -> Option<u64> {
    let first = unfinished
        .into_iter()
        .min_by_key(|&(number, is_running)| (!is_running, number));
    first.map(|(number, _)| number)
}

fn is_waiting(state: OperationState) -> bool {
    matches!(state, OperationState::Available | OperationState::Retryable)
}

/// Is it deleted after its retention? Others stay until a person has decided.
fn is_retained(state: OperationState) -> bool {
    matches!(state, OperationState::Completed | OperationState::Cancelled)
}

/// The moment so much earlier, at least the beginning of time.
fn before(at: WallTime, length: Duration) -> WallTime {
    let length = i64::try_from(length.as_millis()).unwrap_or(i64::MAX);
    WallTime::from_unix_millis(at.as_unix_millis().saturating_sub(length))
}
