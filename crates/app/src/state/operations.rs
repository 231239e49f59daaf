//! Operations as the rest of the program sees them: the queue, which lanes have work, and what is
//! announced when an operation ends.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use policy::operation::OperationState;
use policy::time::WallTime;
use store::StoreError;
use store::jobs::JobStatus;
use store::operations::{Decision, DecisionError, Lane, OperationQueue, StoredOperation};
use tidegate::event::{Event, EventListener};
use tokio::sync::Notify;

use super::State;

/// Lanes with new work, for the worker.
#[derive(Debug, Default)]
pub struct ReadyLanes {
    /// When the first of it is due, by lane.
    lanes: Mutex<BTreeMap<Lane, WallTime>>,
    /// More lanes than fit: the queue has to be read.
    has_overflowed: AtomicBool,
    notify: Notify,
}

/// So many lanes are noted by name.
const MAX_READY: usize = 10_000;

impl ReadyLanes {
    /// Adds an operation of a lane that is due at `at`.
    pub fn add(&self, lane: Lane, at: WallTime) {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(first) = lanes.get_mut(&lane) {
            *first = at.min(*first);
        } else if lanes.len() < MAX_READY {
            lanes.insert(lane, at);
        } else {
            self.has_overflowed.store(true, Ordering::Relaxed);
        }
        drop(lanes);
        self.notify.notify_one();
    }

    /// Another machine has made operations due; `None`: the queue has to be read.
    pub fn ready_elsewhere(&self, ready: Option<(Lane, WallTime)>) {
        match ready {
            Some((lane, at)) => self.add(lane, at),
            None => {
                self.has_overflowed.store(true, Ordering::Relaxed);
                self.notify.notify_one();
            }
        }
    }

    /// Waits for lanes with new work, and says when each is due. `None`: there are too many to name.
    pub async fn next(&self) -> Option<BTreeMap<Lane, WallTime>> {
        self.notify.notified().await;
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let lanes = std::mem::take(&mut *lanes);
        let has_overflowed = self.has_overflowed.swap(false, Ordering::Relaxed);
        (!has_overflowed).then_some(lanes)
    }
}

/// Why a decision about an operation was not applied.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// It cannot be applied.
    #[error(transparent)]
    Decision(#[from] DecisionError),
    /// The body that replaces the present one is longer than the type allows.
    #[error(
        "the body has {length} bytes, at most {most} are accepted (`operation.{kind}.max_body`)"
    )]
    BodyTooLarge {
        /// How long it is.
        length: usize,
        /// How long it may be.
        most: u64,
        /// The type.
        kind: String,
    },
    /// It cannot be stored.
    #[error("the decision cannot be stored, so nothing was changed: {0}")]
    Store(#[from] StoreError),
}

impl State {
    /// The queue of operations.
    pub fn operations(&self) -> &Arc<dyn OperationQueue> {
        &self.operations
    }

    /// Whether other machines deliver these operations, too.
    pub fn shares_operations(&self) -> bool {
        self.store.shares_operations()
    }

    /// A warning about operations in the data folder that are not delivered, because those in a
    /// database are.
    pub(super) fn left_behind(&self) -> Option<String> {
        let left = self.store.own_operations().counts().unresolved();
        let configuration = self.configuration();
        let folder = &configuration.settings().server.data;
        (self.shares_operations() && left > 0).then(|| {
            format!(
                "{left} operations in the folder `{}` are not delivered, because `storage.operations` \
                 names another place; move them there with `tidegate ops migrate --to postgres`",
                folder.display()
            )
        })
    }

    /// A warning about jobs in the data folder that are not run, because those in a database are.
    pub(super) fn jobs_left_behind(&self) -> Option<String> {
        let totals = self.store.own_jobs().totals();
        let left = totals.of(JobStatus::Queued) + totals.of(JobStatus::Running);
        let configuration = self.configuration();
        let folder = &configuration.settings().server.data;
        (self.shares_operations() && left > 0).then(|| {
            format!(
                "{left} jobs in the folder `{}` are not run, because `storage.operations` names another \
                 place; they go on when a server runs without it",
                folder.display()
            )
        })
    }

    /// Lanes whose operations are due.
    pub fn ready_lanes(&self) -> &ReadyLanes {
        &self.ready_lanes
    }

    /// Waits until an operation has ended that is to be reported.
    pub async fn report_due(&self) {
        self.report_due.notified().await;
    }

    /// Applies what a person or a merge rule decided: stored first, then announced.
    ///
    /// # Errors
    ///
    /// If it cannot be applied or stored. Nothing has changed then.
    pub async fn decide_operation(
        &self,
        decision: Decision,
    ) -> Result<StoredOperation, OperationError> {
        let operation = self.operations.decide(decision).await??;
        self.announce(&operation);
        Ok(operation)
    }

    /// Announces what became of an operation: that it is due, or that it has ended.
    pub fn announce(&self, operation: &StoredOperation) {
        if let Some((lane, at)) = &operation.unblocked {
            self.ready_lanes.add(lane.clone(), *at);
        }
        if matches!(
            operation.state,
            OperationState::Available | OperationState::Retryable
        ) {
            let at = operation.next_at.unwrap_or(operation.accepted_at);
            self.ready_lanes.add(operation.lane(), at);
            return;
        }
        if operation.state == OperationState::Running {
            return;
        }
        if operation.is_reported {
            self.report_due.notify_one();
        }
        let sent = operation.counters.sent;
        let delivery = || operation.accepted_at.until(operation.ended_at?);
        let result = match operation.state.reason() {
            Some(reason) => Err(reason),
            None => Ok(delivery().unwrap_or_default()),
        };
        self.core.metrics().operation_ended(sent, result);
        if let OperationState::Failed(reason) = operation.state {
            let trace_id = operation.trace_id.as_deref().unwrap_or_default();
            self.log().operation_failed(
                &operation.id,
                &operation.destination,
                sent,
                reason,
                trace_id,
            );
        }
        let event = Event::OperationEnded {
            id: &operation.id,
            kind: &operation.kind,
            destination: &operation.destination,
            state: operation.state,
            sent,
        };
        self.core.events().on_event(self.clock().now(), &event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(number: usize) -> Lane {
        Lane {
            destination: format!("{number}.example.com"),
            kind: "default".to_owned(),
        }
    }

    fn at(seconds: i64) -> WallTime {
        WallTime::from_unix_millis(seconds * 1000)
    }

    fn next(ready: &ReadyLanes) -> Option<BTreeMap<Lane, WallTime>> {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(ready.next())
    }

    #[test]
    fn a_lane_is_ready_when_its_first_operation_is_due() {
        let ready = ReadyLanes::default();
        for seconds in [5, 3, 7] {
            ready.add(lane(1), at(seconds));
        }
        ready.add(lane(2), at(9));
        let expected = BTreeMap::from([(lane(1), at(3)), (lane(2), at(9))]);
        assert_eq!(next(&ready), Some(expected));
    }

    #[test]
    fn lanes_of_other_machines_are_ready_or_have_to_be_read() {
        let ready = ReadyLanes::default();
        ready.ready_elsewhere(Some((lane(1), at(3))));
        assert_eq!(next(&ready), Some(BTreeMap::from([(lane(1), at(3))])));
        ready.ready_elsewhere(None);
        assert_eq!(next(&ready), None);
    }

    #[test]
    fn more_lanes_than_fit_have_to_be_read_from_the_queue() {
        let ready = ReadyLanes::default();
        for number in 0..=MAX_READY {
            ready.add(lane(number), at(1));
        }
        assert_eq!(next(&ready), None);
        // Only once.
        ready.add(lane(0), at(1));
        assert_eq!(next(&ready), Some(BTreeMap::from([(lane(0), at(1))])));
    }
}
