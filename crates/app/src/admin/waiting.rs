//! Why operations that are to be sent are not sent now.
//!
//! An operation leaves when its own delay is over and its gate lets it through, so the later of the
//! two is what it waits for. A wait at the gate that ends by itself within moments, such as that for
//! its turn, is only named when nothing else delays it.

use std::collections::BTreeMap;

use policy::breaker::BreakerState;
use policy::key::endpoint_key;
use policy::operation::OperationState;
use store::operations::StoredOperation;
use tidegate::Timestamp;
use tidegate::pool::EndpointView;

use super::bodies::{WaitReason, WaitingFor};
use crate::core::unix_millis;
use crate::state::State;

/// What operations wait for at this moment. What a destination is waiting for is looked up once.
pub(super) struct Waits<'a> {
    state: &'a State,
    now: Timestamp,
    destinations: BTreeMap<String, Option<Wait>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Wait {
    reason: WaitReason,
    key: String,
    until: Until,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Until {
    /// In moments, or as soon as others have left.
    Soon,
    At(Timestamp),
    /// A person ends it.
    Unknown,
}

impl<'a> Waits<'a> {
    pub(super) fn new(state: &'a State) -> Self {
        Self {
            state,
            now: state.clock().now(),
            destinations: BTreeMap::new(),
        }
    }

    /// Why this operation is not sent now; `None` if it is not to be sent, or nothing delays it.
    pub(super) fn of(&mut self, operation: &StoredOperation) -> Option<WaitingFor> {
        let (OperationState::Available | OperationState::Retryable) = operation.state else {
            return None;
        };
        let key = &operation.destination;
        let waiting = |reason, until_ms| WaitingFor {
            reason,
            key: key.clone(),
            until_ms,
        };
        if operation.is_blocked {
            return Some(waiting(WaitReason::Order, None));
        }
        let clock = self.state.clock();
        let due = operation.next_at.map(|at| at.as_unix_millis());
        let due = due.filter(|due| *due > clock.wall().as_unix_millis());
        let own = due.map(|due| waiting(WaitReason::Backoff, Some(due)));
        let Some(wait) = self.at(key) else { return own };
        let until_ms = match wait.until {
            Until::At(until) => Some(unix_millis(clock, until)),
            Until::Soon | Until::Unknown => None,
        };
        let is_later = match wait.until {
            Until::Soon => due.is_none(),
            Until::At(_) => until_ms >= due,
            Until::Unknown => true,
        };
        match is_later {
            true => Some(WaitingFor {
                reason: wait.reason,
                key: wait.key,
                until_ms,
            }),
            false => own,
        }
    }

    fn at(&mut self, destination: &str) -> Option<Wait> {
        if let Some(known) = self.destinations.get(destination) {
            return known.clone();
        }
        let wait = match destination.strip_prefix('/') {
            Some(pool) => self.at_pool(destination, pool),
            None => self.at_gate(destination),
        };
        self.destinations
            .insert(destination.to_owned(), wait.clone());
        wait
    }

    /// The wait at the endpoint that is ready first.
    fn at_pool(&self, destination: &str, name: &str) -> Option<Wait> {
        let wait = |reason, until| Wait {
            reason,
            key: destination.to_owned(),
            until,
        };
        let configuration = self.state.configuration();
        let endpoints = configuration.pool(name).map(|pool| pool.view());
        let endpoints: Vec<EndpointView> = endpoints.unwrap_or_default();
        if endpoints.is_empty() {
            return Some(wait(WaitReason::NoEndpoint, Until::Unknown));
        }
        let mut enabled = endpoints
            .into_iter()
            .filter(|endpoint| endpoint.disabled.is_none())
            .peekable();
        if enabled.peek().is_none() {
            return Some(wait(WaitReason::Disabled, Until::Unknown));
        }
        let waits = enabled.map(|endpoint| {
            let at_gate = self.at_gate(&endpoint_key(name, &endpoint.name));
            let pause = endpoint.paused_until.map(Until::At);
            match (pause, at_gate) {
                (Some(pause), at_gate)
                    if at_gate.as_ref().is_none_or(|gate| gate.until <= pause) =>
                {
                    Some(wait(WaitReason::Pause, pause))
                }
                (_, at_gate) => at_gate,
            }
        });
        // One that is ready, `None`, comes first.
        waits.min_by_key(|wait| wait.as_ref().map(|wait| wait.until))?
    }

    fn at_gate(&self, key: &str) -> Option<Wait> {
        let gate = self.state.limiter().gate(key)?.gate;
        let wait = |reason, until| {
            Some(Wait {
                reason,
                key: key.to_owned(),
                until,
            })
        };
        let hold = gate.hold.map(|(until, _)| until);
        let hold = hold.filter(|until| *until > self.now);
        let open = match gate.breaker {
            BreakerState::Isolated => return wait(WaitReason::Isolated, Until::Unknown),
            BreakerState::Open => gate.breaker_until.filter(|until| *until > self.now),
            BreakerState::Closed | BreakerState::HalfOpen => None,
        };
        match (hold, open) {
            (hold, Some(open)) if hold.is_none_or(|hold| hold <= open) => {
                wait(WaitReason::BreakerOpen, Until::At(open))
            }
            (Some(hold), _) => wait(WaitReason::Hold, Until::At(hold)),
            (None, _) if gate.breaker != BreakerState::Closed => {
                wait(WaitReason::HalfOpen, Until::Soon)
            }
            (None, _) if gate.waiting > 0 || gate.tokens < 1.0 => {
                wait(WaitReason::Rate, Until::Soon)
            }
            (None, _) => None,
        }
    }
}
