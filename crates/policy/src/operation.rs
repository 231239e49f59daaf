//! The states of an operation: a request accepted for durable delivery.
//!
//! The transitions are one table, so that every store and worker agrees: what is not in the table
//! cannot happen. An illegal transition is a normal result, not a bug: a worker whose lease was
//! lost reports late, a person clicks twice, two people decide at the same time. The loser of such
//! a race gets the current state, and nothing changes.
//!
//! - **`conflict` and `failed` need a person.** They keep their reason until a person decides; they
//!   do not expire.
//! - **A conflict is resolved, not retried.** A bulk retry of failed operations must not resend
//!   conflicts blindly, so `retry` does not apply to them.
//! - **A new body is a new request.** After a merge or a replacement the idempotency key changes,
//!   otherwise the server would answer with its stored response to the old one. A retry by a person
//!   keeps the key, so that a request that did succeed is not executed twice. Both start with all
//!   attempts.
//! - **A lost lease says nothing about the request.** It may have been sent, so the operation waits
//!   a little and keeps its attempts and its key, which makes a resend harmless.

use std::fmt;

use crate::item::{Step, TerminalReason};

/// The state of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperationState {
    /// Waiting for a worker.
    Available,
    /// Claimed by a worker.
    Running,
    /// Waiting for the time of its next attempt.
    Retryable,
    /// Delivered.
    Completed,
    /// It will not be retried automatically, for this reason.
    Failed(TerminalReason),
    /// It conflicts with the server's version and waits for a rule or a person.
    Conflict,
    /// A person cancelled it.
    Cancelled,
}

impl OperationState {
    /// The name in records, the API and the console.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Available => "available",
            Self::Running => "running",
            Self::Retryable => "retryable",
            Self::Completed => "completed",
            Self::Failed(_) => "failed",
            Self::Conflict => "conflict",
            Self::Cancelled => "cancelled",
        }
    }

    /// Why it is not retried automatically, if it is not.
    pub const fn reason(self) -> Option<TerminalReason> {
        match self {
            Self::Failed(reason) => Some(reason),
            Self::Conflict => Some(TerminalReason::Conflict),
            Self::Cancelled => Some(TerminalReason::Cancelled),
            Self::Available | Self::Running | Self::Retryable | Self::Completed => None,
        }
    }

    /// Whether it will proceed without a person.
    pub const fn is_pending(self) -> bool {
        matches!(self, Self::Available | Self::Running | Self::Retryable)
    }
}

impl fmt::Display for OperationState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An event in the life of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperationEvent {
    /// A worker claims it; a retryable one once it is due.
    Claim,
    /// It was delivered.
    Complete,
    /// It will be resent later.
    Postpone,
    /// It will not be resent.
    Fail(TerminalReason),
    /// The server has a conflicting version.
    Conflict,
    /// The worker returns it unsent, for example on shutdown.
    Release,
    /// The worker's lease ended without a heartbeat.
    LeaseLost,
    /// It expired.
    Expire,
    /// A rule merged both sides, and the result is to be sent. At most [`MAX_MERGES`] times.
    Merge,
    /// A rule found that the server already has the requested state: nothing has to be sent.
    Reconcile,
    /// A person decides a conflict.
    Resolve(Resolution),
    /// A person retries it.
    Retry,
    /// A person cancels it.
    Cancel,
}

impl OperationEvent {
    /// The event for a worker's attempt; `None` while the credential is being refreshed and it is
    /// still running.
    pub const fn of_step(step: Step) -> Option<Self> {
        match step {
            Step::Done => Some(Self::Complete),
            Step::SendAt { .. } => Some(Self::Postpone),
            Step::Conflict => Some(Self::Conflict),
            Step::Failed(reason) => Some(Self::Fail(reason)),
            Step::Refresh => None,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Complete => "complete",
            Self::Postpone => "postpone",
            Self::Fail(_) => "fail",
            Self::Conflict => "mark as conflict",
            Self::Release => "release",
            Self::LeaseLost => "take the lease of",
            Self::Expire => "expire",
            Self::Merge => "merge",
            Self::Reconcile => "reconcile",
            Self::Resolve(_) => "resolve",
            Self::Retry => "retry",
            Self::Cancel => "cancel",
        }
    }
}

/// A person's decision about a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resolution {
    /// Resend it unchanged: the server's version may be overwritten.
    Resend,
    /// Keep the server's version; this operation is not sent again.
    Discard,
    /// Send this other body instead.
    Replace,
}

impl Resolution {
    /// The resolution with this name in the API.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "resend" => Some(Self::Resend),
            "discard" => Some(Self::Discard),
            "replace" => Some(Self::Replace),
            _ => None,
        }
    }
}

/// How many times rules may merge a conflict before a person has to decide. Losing a race is
/// normal; losing three in a row is not.
pub const MAX_MERGES: u8 = 3;

/// The part of an operation that determines its transitions. Small, and stored with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    state: OperationState,
    merges: u8,
}

impl Operation {
    /// A new operation, waiting for a worker.
    pub const fn new() -> Self {
        Self {
            state: OperationState::Available,
            merges: 0,
        }
    }

    /// Restores a stored operation.
    pub const fn restore(state: OperationState, merges: u8) -> Self {
        Self { state, merges }
    }

    /// Its state.
    pub const fn state(self) -> OperationState {
        self.state
    }

    /// How many times rules have merged it since a person last decided.
    pub const fn merges(self) -> u8 {
        self.merges
    }

    /// Applies `event`.
    ///
    /// ```
    /// use tidegate_policy::operation::{OperationEvent, Operation, OperationState};
    ///
    /// let running = Operation::new().apply(OperationEvent::Claim).unwrap().operation;
    /// let done = running.apply(OperationEvent::Complete).unwrap().operation;
    /// assert_eq!(done.state(), OperationState::Completed);
    /// assert_eq!(
    ///     done.apply(OperationEvent::Retry).unwrap_err().to_string(),
    ///     "cannot retry an operation that is completed"
    /// );
    /// ```
    ///
    /// # Errors
    ///
    /// If the transition is illegal. Nothing changes then.
    pub fn apply(self, event: OperationEvent) -> Result<Transition, IllegalTransition> {
        let illegal = IllegalTransition {
            state: self.state,
            event,
        };
        let to = match (self.state, event) {
            (OperationState::Available | OperationState::Retryable, OperationEvent::Claim) => {
                OperationState::Running
            }
            (OperationState::Available | OperationState::Retryable, OperationEvent::Expire) => {
                OperationState::Failed(TerminalReason::Expired)
            }
            (OperationState::Running, OperationEvent::Complete)
            | (OperationState::Conflict, OperationEvent::Reconcile) => OperationState::Completed,
            (OperationState::Running, OperationEvent::Postpone | OperationEvent::LeaseLost) => {
                OperationState::Retryable
            }
            (OperationState::Running, OperationEvent::Release) => OperationState::Available,
            (OperationState::Running, OperationEvent::Conflict) => OperationState::Conflict,
            (OperationState::Running, OperationEvent::Fail(reason)) => failed(reason),
            (OperationState::Conflict, OperationEvent::Merge) if self.merges < MAX_MERGES => {
                OperationState::Available
            }
            (
                OperationState::Conflict,
                OperationEvent::Resolve(Resolution::Resend | Resolution::Replace),
            )
            | (
                OperationState::Failed(_) | OperationState::Cancelled | OperationState::Retryable,
                OperationEvent::Retry,
            ) => OperationState::Available,
            (
                OperationState::Conflict,
                OperationEvent::Resolve(Resolution::Discard) | OperationEvent::Cancel,
            )
            | (
                OperationState::Available
                | OperationState::Running
                | OperationState::Retryable
                | OperationState::Failed(_),
                OperationEvent::Cancel,
            ) => OperationState::Cancelled,
            _ => return Err(illegal),
        };
        Ok(self.transition(to, event))
    }

    fn transition(self, to: OperationState, event: OperationEvent) -> Transition {
        let (merges, body) = match event {
            OperationEvent::Merge => (self.merges + 1, Body::New),
            OperationEvent::Resolve(Resolution::Replace) => (0, Body::New),
            OperationEvent::Resolve(Resolution::Resend | Resolution::Discard)
            | OperationEvent::Retry => (0, Body::Same),
            _ => (self.merges, Body::Same),
        };
        let restarts = matches!(
            event,
            OperationEvent::Merge | OperationEvent::Retry | OperationEvent::Resolve(_)
        );
        Transition {
            operation: Self { state: to, merges },
            attempts: if restarts {
                Attempts::Restarted
            } else {
                Attempts::Kept
            },
            body,
        }
    }
}

impl Default for Operation {
    fn default() -> Self {
        Self::new()
    }
}

/// Maps reasons that have their own state to that state, however a worker reports them.
const fn failed(reason: TerminalReason) -> OperationState {
    match reason {
        TerminalReason::Conflict => OperationState::Conflict,
        TerminalReason::Cancelled => OperationState::Cancelled,
        TerminalReason::Exhausted
        | TerminalReason::Rejected
        | TerminalReason::AuthFailed
        | TerminalReason::QuotaExhausted
        | TerminalReason::Expired
        | TerminalReason::Disabled
        | TerminalReason::GaveUp
        | TerminalReason::BreakerOpen
        | TerminalReason::Unusable => OperationState::Failed(reason),
    }
}

/// The result of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The operation after the event.
    pub operation: Operation,
    /// Whether its used attempts still count.
    pub attempts: Attempts,
    /// Whether it is still the same request.
    pub body: Body,
}

/// What happens to the used attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempts {
    /// They still count.
    Kept,
    /// They no longer count: a person or a merge restarted it.
    Restarted,
}

/// Whether the request changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// The same request under the same idempotency key.
    Same,
    /// Another body, which needs a new idempotency key.
    New,
}

/// A transition that is not in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IllegalTransition {
    /// The current state, which does not change.
    pub state: OperationState,
    /// The rejected event.
    pub event: OperationEvent,
}

impl fmt::Display for IllegalTransition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let event = self.event.as_str();
        match self.state {
            OperationState::Conflict => write!(f, "cannot {event} an operation in conflict"),
            state => write!(f, "cannot {event} an operation that is {state}"),
        }
    }
}

impl std::error::Error for IllegalTransition {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EXHAUSTED: OperationState = OperationState::Failed(TerminalReason::Exhausted);

    const STATES: [OperationState; 7] = [
        OperationState::Available,
        OperationState::Running,
        OperationState::Retryable,
        OperationState::Completed,
        EXHAUSTED,
        OperationState::Conflict,
        OperationState::Cancelled,
    ];

    fn events() -> Vec<OperationEvent> {
        let resolutions = [Resolution::Resend, Resolution::Discard, Resolution::Replace];
        let mut events = vec![
            OperationEvent::Claim,
            OperationEvent::Complete,
            OperationEvent::Postpone,
            OperationEvent::Conflict,
            OperationEvent::Release,
            OperationEvent::LeaseLost,
            OperationEvent::Expire,
            OperationEvent::Merge,
            OperationEvent::Reconcile,
            OperationEvent::Retry,
            OperationEvent::Cancel,
        ];
        events.extend(resolutions.map(OperationEvent::Resolve));
        events.extend(
            TerminalReason::ALL
                .iter()
                .copied()
                .map(OperationEvent::Fail),
        );
        events
    }

    /// The whole table, spelled out: everything else is illegal.
    fn legal(from: OperationState) -> Vec<(OperationEvent, OperationState)> {
        let cancel = (OperationEvent::Cancel, OperationState::Cancelled);
        let expire = (
            OperationEvent::Expire,
            OperationState::Failed(TerminalReason::Expired),
        );
        let retry = (OperationEvent::Retry, OperationState::Available);
        match from {
            OperationState::Available => vec![
                (OperationEvent::Claim, OperationState::Running),
                expire,
                cancel,
            ],
            OperationState::Retryable => vec![
                (OperationEvent::Claim, OperationState::Running),
                expire,
                cancel,
                retry,
            ],
            OperationState::Running => {
                let mut transitions = vec![
                    (OperationEvent::Complete, OperationState::Completed),
                    (OperationEvent::Postpone, OperationState::Retryable),
                    (OperationEvent::LeaseLost, OperationState::Retryable),
                    (OperationEvent::Release, OperationState::Available),
                    (OperationEvent::Conflict, OperationState::Conflict),
                    cancel,
                ];
                transitions.extend(TerminalReason::ALL.iter().copied().map(|reason| {
                    let to = match reason {
                        TerminalReason::Conflict => OperationState::Conflict,
                        TerminalReason::Cancelled => OperationState::Cancelled,
                        reason => OperationState::Failed(reason),
                    };
                    (OperationEvent::Fail(reason), to)
                }));
                transitions
            }
            OperationState::Conflict => vec![
                (OperationEvent::Merge, OperationState::Available),
                (OperationEvent::Reconcile, OperationState::Completed),
                (
                    OperationEvent::Resolve(Resolution::Resend),
                    OperationState::Available,
                ),
                (
                    OperationEvent::Resolve(Resolution::Replace),
                    OperationState::Available,
                ),
                (
                    OperationEvent::Resolve(Resolution::Discard),
                    OperationState::Cancelled,
                ),
                cancel,
            ],
            OperationState::Failed(_) => vec![retry, cancel],
            OperationState::Cancelled => vec![retry],
            OperationState::Completed => vec![],
        }
    }

    #[test]
    fn only_transitions_of_the_table_are_legal() {
        for state in STATES {
            for event in events() {
                let expected = legal(state).into_iter().find(|(legal, _)| *legal == event);
                let transition = Operation::restore(state, 0).apply(event);
                assert_eq!(
                    transition
                        .map(|transition| transition.operation.state())
                        .ok(),
                    expected.map(|(_, to)| to),
                    "{event:?} from {state:?}"
                );
            }
        }
    }

    #[test]
    fn rules_merge_at_most_three_times() {
        let mut operation = Operation::new();
        let mut apply = |event| {
            let transition: Result<Transition, IllegalTransition> = operation.apply(event);
            if let Ok(transition) = transition {
                operation = transition.operation;
            }
            transition
        };
        for _ in 0..MAX_MERGES {
            apply(OperationEvent::Claim).unwrap();
            apply(OperationEvent::Conflict).unwrap();
            let transition = apply(OperationEvent::Merge).unwrap();
            assert_eq!(
                (transition.attempts, transition.body),
                (Attempts::Restarted, Body::New)
            );
        }
        apply(OperationEvent::Claim).unwrap();
        apply(OperationEvent::Conflict).unwrap();
        let refused = apply(OperationEvent::Merge).unwrap_err();
        assert_eq!(refused.state, OperationState::Conflict);
        let transition = apply(OperationEvent::Resolve(Resolution::Resend)).unwrap();
        assert_eq!(
            transition.operation.merges(),
            0,
            "a person's decision resets the count"
        );
    }

    #[test]
    fn retry_restarts_attempts_and_keeps_the_key() {
        let transition = Operation::restore(EXHAUSTED, 0)
            .apply(OperationEvent::Retry)
            .unwrap();
        assert_eq!(
            (transition.attempts, transition.body),
            (Attempts::Restarted, Body::Same)
        );
    }

    #[test]
    fn new_body_needs_new_key() {
        let conflict = Operation::restore(OperationState::Conflict, 0);
        let body = |resolution| {
            conflict
                .apply(OperationEvent::Resolve(resolution))
                .unwrap()
                .body
        };
        assert_eq!(body(Resolution::Replace), Body::New);
        assert_eq!(body(Resolution::Resend), Body::Same);
    }

    #[test]
    fn lost_lease_keeps_attempts_and_key() {
        let running = Operation::restore(OperationState::Running, 0);
        let transition = running.apply(OperationEvent::LeaseLost).unwrap();
        assert_eq!(
            (transition.attempts, transition.body),
            (Attempts::Kept, Body::Same)
        );
    }

    #[test]
    fn late_worker_changes_nothing() {
        for state in [
            OperationState::Retryable,
            OperationState::Cancelled,
            OperationState::Completed,
        ] {
            let late = Operation::restore(state, 0).apply(OperationEvent::Complete);
            assert_eq!(late.unwrap_err().state, state);
        }
    }

    #[test]
    fn maps_item_steps_to_events() {
        assert_eq!(
            OperationEvent::of_step(Step::Done),
            Some(OperationEvent::Complete)
        );
        assert_eq!(OperationEvent::of_step(Step::Refresh), None);
        assert_eq!(
            OperationEvent::of_step(Step::Conflict),
            Some(OperationEvent::Conflict)
        );
        let gave_up = TerminalReason::GaveUp;
        assert_eq!(
            OperationEvent::of_step(Step::Failed(gave_up)),
            Some(OperationEvent::Fail(gave_up))
        );
    }

    #[test]
    fn states_and_resolutions_have_names() {
        assert_eq!(
            STATES.map(OperationState::as_str),
            [
                "available",
                "running",
                "retryable",
                "completed",
                "failed",
                "conflict",
                "cancelled"
            ]
        );
        for (name, resolution) in [
            ("resend", Some(Resolution::Resend)),
            ("discard", Some(Resolution::Discard)),
            ("replace", Some(Resolution::Replace)),
            ("Resend", None),
        ] {
            assert_eq!(Resolution::named(name), resolution);
        }
    }

    proptest! {
        #[test]
        fn random_events_follow_the_table_and_keep_reasons(
            events in prop::collection::vec(prop::sample::select(events()), 1..200),
        ) {
            let mut operation = Operation::new();
            for event in events {
                let before = operation;
                match operation.apply(event) {
                    Ok(transition) => {
                        let to = transition.operation.state();
                        prop_assert!(legal(before.state()).contains(&(event, to)));
                        operation = transition.operation;
                    }
                    Err(illegal) => prop_assert_eq!(illegal, IllegalTransition { state: before.state(), event }),
                }
                prop_assert!(operation.merges() <= MAX_MERGES);
                // Only a person, or a rule for conflicts, ends what waits for a person.
                let is_person = matches!(event, OperationEvent::Resolve(_) | OperationEvent::Retry | OperationEvent::Cancel);
                let is_rule = matches!(event, OperationEvent::Merge | OperationEvent::Reconcile);
                if let Some(reason) = before.state().reason()
                    && !is_person
                    && !(is_rule && before.state() == OperationState::Conflict)
                {
                    prop_assert_eq!(operation.state().reason(), Some(reason));
                }
                if before.state() == OperationState::Completed {
                    prop_assert_eq!(operation, before);
                }
            }
        }
    }
}
