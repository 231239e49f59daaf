//! The life of an operation: a request that was accepted for durable delivery.
//!
//! The transitions are one table, so that every store and every worker has the same: what is not in
//! the table cannot happen. An illegal transition is a normal result, not a fault: a worker whose
//! lease was lost reports late, a person clicks twice, two people decide at the same time. The loser
//! of such a race gets the present state, and nothing changes.
//!
//! - **`conflict` and `failed` need a person.** They keep their reason until a person decides; expiry
//!   does not touch them.
//! - **A conflict is resolved, not retried.** A retry of everything that failed, by filter, must
//!   not resend conflicts blindly, so `retry` does not apply to them.
//! - **A new body is a new request.** After a merge or a replacement the idempotency key changes,
//!   or the server would answer from its memory of the old one; a retry by a person keeps the key,
//!   so that what was done after all is not done twice. Both start with all attempts.
//! - **A lost lease says nothing about the request.** It may have been sent, so the operation waits
//!   a little and keeps its attempts and its key, which makes a second copy harmless.

use std::fmt;

use crate::item::{Step, TerminalReason};

/// Where an operation is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperationState {
    /// Waiting for a worker.
    Available,
    /// A worker has it.
    Running,
    /// Waiting for a time: it is sent again then.
    Retryable,
    /// Delivered.
    Completed,
    /// It will not be tried again by itself, for this reason.
    Failed(TerminalReason),
    /// The server has something else; waits for a rule or a person.
    Conflict,
    /// A person cancelled it.
    Cancelled,
}

impl OperationState {
    /// The word for it in records, the API and the console.
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

    /// Why it is not tried by itself, if it is not.
    pub const fn reason(self) -> Option<TerminalReason> {
        match self {
            Self::Failed(reason) => Some(reason),
            Self::Conflict => Some(TerminalReason::Conflict),
            Self::Cancelled => Some(TerminalReason::Cancelled),
            Self::Available | Self::Running | Self::Retryable | Self::Completed => None,
        }
    }

    /// Will something happen to it without a person?
    pub const fn is_pending(self) -> bool {
        matches!(self, Self::Available | Self::Running | Self::Retryable)
    }
}

impl fmt::Display for OperationState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What happens to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperationEvent {
    /// A worker takes it; a retryable one when its time has come.
    Claim,
    /// It was delivered.
    Complete,
    /// It is to be sent again, later.
    Postpone,
    /// It will not be sent again.
    Fail(TerminalReason),
    /// The server has something else.
    Conflict,
    /// The worker gives it back unsent, such as when it stops.
    Release,
    /// The worker's lease has ended without a heartbeat.
    LeaseLost,
    /// Its time is over.
    Expire,
    /// A rule has merged both sides: the result is to be sent. At most [`MAX_MERGES`] times.
    Merge,
    /// A rule has found that the server already has what was wanted: nothing has to be sent.
    Reconcile,
    /// A person decides a conflict.
    Resolve(Resolution),
    /// A person wants it tried again.
    Retry,
    /// A person cancels it.
    Cancel,
}

impl OperationEvent {
    /// What a worker reports after an attempt; `None` while the credential is being refreshed,
    /// when it still runs.
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

/// What a person decides about a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resolution {
    /// Send it again as it is: what the server has may be overwritten.
    Resend,
    /// Leave what the server has; this one is not sent any more.
    Discard,
    /// Send this other body instead.
    Replace,
}

impl Resolution {
    /// The resolution that the API calls `name`.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "resend" => Some(Self::Resend),
            "discard" => Some(Self::Discard),
            "replace" => Some(Self::Replace),
            _ => None,
        }
    }
}

/// How often rules may merge a conflict before a person has to look. The other side wins a race
/// now and then; three times in a row is not a race any more.
pub const MAX_MERGES: u8 = 3;

/// What of an operation decides its transitions: small, and stored with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    state: OperationState,
    merges: u8,
}

impl Operation {
    /// A new one, waiting for a worker.
    pub const fn new() -> Self {
        Self {
            state: OperationState::Available,
            merges: 0,
        }
    }

    /// One that was stored.
    pub const fn restore(state: OperationState, merges: u8) -> Self {
        Self { state, merges }
    }

    /// Its state.
    pub const fn state(self) -> OperationState {
        self.state
    }

    /// How often rules have merged it since a person last decided.
    pub const fn merges(self) -> u8 {
        self.merges
    }

    /// Where `event` takes it.
    ///
    /// ```
    /// use policy::operation::{OperationEvent, Operation, OperationState};
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
    /// If that cannot happen now. Nothing has changed then.
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

/// Reasons that are states of their own go there, however a worker reports them.
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
        | TerminalReason::BreakerOpen => OperationState::Failed(reason),
    }
}

/// A transition that was made, and what goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The operation as it is now.
    pub operation: Operation,
    /// What becomes of the attempts it has used up.
    pub attempts: Attempts,
    /// Is it still the same request?
    pub body: Body,
}

/// What becomes of the attempts that were used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempts {
    /// They stay used up.
    Kept,
    /// It has all of them again: a person, or a merge, started it again.
    Restarted,
}

/// Whether what is sent stays the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// The same request under the same idempotency key.
    Same,
    /// Another body, which needs a new idempotency key.
    New,
}

/// A transition that cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IllegalTransition {
    /// The state it is in, and stays in.
    pub state: OperationState,
    /// What was to happen.
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
        events.extend(TerminalReason::ALL.map(OperationEvent::Fail));
        events
    }

    /// The whole table, as a person would draw it: everything else is illegal.
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
                transitions.extend(TerminalReason::ALL.map(|reason| {
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
    fn transitions_are_those_of_the_table_and_no_others() {
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
    fn rules_may_merge_three_times_then_a_person_has_to_look() {
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
    fn a_person_retries_with_all_attempts_and_the_same_key() {
        let transition = Operation::restore(EXHAUSTED, 0)
            .apply(OperationEvent::Retry)
            .unwrap();
        assert_eq!(
            (transition.attempts, transition.body),
            (Attempts::Restarted, Body::Same)
        );
    }

    #[test]
    fn another_body_needs_another_key() {
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
    fn a_lost_lease_keeps_attempts_and_key() {
        let running = Operation::restore(OperationState::Running, 0);
        let transition = running.apply(OperationEvent::LeaseLost).unwrap();
        assert_eq!(
            (transition.attempts, transition.body),
            (Attempts::Kept, Body::Same)
        );
    }

    #[test]
    fn a_worker_that_comes_too_late_changes_nothing() {
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
    fn steps_of_an_item_are_events() {
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
    fn states_and_resolutions_have_their_words() {
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
        fn random_events_never_leave_the_table_and_reasons_stay(
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
                // Only a person ends what waits for a person, or a rule for conflicts.
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
