//! A person's decision about many operations: those that a filter matches, or those that are named.

use std::collections::BTreeMap;

use policy::item::Safety;
use policy::operation::OperationEvent;
use store::StoreError;
use store::operations::{Decision, OperationFilter, StoredOperation};

use super::State;

/// What is decided, and about which operations.
#[derive(Clone, Debug)]
pub struct BulkRequest {
    /// Ids of operations; `None`: all that the filter matches.
    pub ids: Option<Vec<String>>,
    /// Which operations; of those with ids, the others are left out.
    pub filter: OperationFilter,
    /// Words of the states that the event is possible in.
    pub states: Vec<String>,
    /// What happens to them.
    pub event: OperationEvent,
    /// Are operations retried, too, that the server may act on twice?
    pub includes_unsafe: bool,
    /// Are they only counted?
    pub is_dry_run: bool,
    /// Only those with numbers below.
    pub before: Option<u64>,
    /// At most so many.
    pub limit: usize,
}

/// What was done to operations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BulkDecision {
    /// How many match, or are named.
    pub matched: u64,
    /// How many of them would be changed, or were.
    pub will: u64,
    /// How many were changed.
    pub changed: u64,
    /// How many were not, or would not be, by reason.
    pub left_out: BTreeMap<LeftOut, u64>,
    /// The first of those that match, as they are now.
    pub sample: Vec<StoredOperation>,
    /// The number below which there may be more; `None`: there are none.
    pub before: Option<u64>,
}

/// Why an operation is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeftOut {
    /// The server may act on it twice.
    NotReplaySafe,
    /// It is in a state in which that is not possible, or does not match the filter.
    OtherState,
    /// Something else changed it meanwhile.
    Changed,
    /// There is none of this id.
    NotFound,
}

/// So many are read at a time. Their decisions share a commit.
const PAGE: usize = 500;

/// So many are shown.
const MAX_SAMPLE: usize = 10;

impl State {
    /// Applies an event to operations, newest first, or in the order of their ids. Only counts them in
    /// a dry run.
    ///
    /// # Errors
    ///
    /// If the queue cannot be read or changed. What was changed before stays changed.
    pub async fn decide_operations(
        &self,
        request: &BulkRequest,
    ) -> Result<BulkDecision, StoreError> {
        let mut done = BulkDecision {
            before: request.before,
            ..BulkDecision::default()
        };
        if let Some(ids) = &request.ids {
            for ids in ids.chunks(PAGE) {
                let named = self.named(ids, &mut done).await?;
                self.decide_page(request, named, &mut done).await?;
            }
            done.before = None;
            return Ok(done);
        }
        let mut left = request.limit;
        while left > 0 {
            let size = left.min(PAGE);
            let filter = request.filter.clone();
            let page = self.operations().page(filter, done.before, size).await?;
            let is_last = page.len() < size;
            done.before = page.last().map(|operation| operation.number);
            left -= size;
            self.decide_page(request, page, &mut done).await?;
            if is_last {
                done.before = None;
                break;
            }
        }
        Ok(done)
    }

    async fn named(
        &self,
        ids: &[String],
        done: &mut BulkDecision,
    ) -> Result<Vec<StoredOperation>, StoreError> {
        let found: Vec<_> = ids.iter().map(|id| self.operations().get(id)).collect();
        let mut operations = Vec::new();
        for found in found {
            match found.await? {
                Some(operation) => operations.push(operation),
                None => {
                    done.matched += 1;
                    done.leave_out(LeftOut::NotFound);
                }
            }
        }
        Ok(operations)
    }

    async fn decide_page(
        &self,
        request: &BulkRequest,
        page: Vec<StoredOperation>,
        done: &mut BulkDecision,
    ) -> Result<(), StoreError> {
        done.matched += page.len() as u64;
        let now = self.clock().wall();
        // All calls are made before the first result is awaited, so that they share commits.
        let mut calls = Vec::new();
        for operation in page {
            let place = done.sample.len();
            if place < MAX_SAMPLE {
                done.sample.push(operation.clone());
            }
            if let Some(reason) = request.leaves_out(&operation) {
                done.leave_out(reason);
            } else if request.is_dry_run {
                done.will += 1;
            } else {
                let decision = Decision {
                    id: operation.id,
                    now,
                    event: request.event,
                    request: None,
                };
                calls.push((place, self.operations().decide(decision)));
            }
        }
        for (place, call) in calls {
            match call.await? {
                Ok(operation) => {
                    self.announce(&operation);
                    done.will += 1;
                    done.changed += 1;
                    if let Some(sample) = done.sample.get_mut(place) {
                        *sample = operation;
                    }
                }
                Err(_) => done.leave_out(LeftOut::Changed),
            }
        }
        Ok(())
    }
}

impl BulkRequest {
    fn leaves_out(&self, operation: &StoredOperation) -> Option<LeftOut> {
        let state = operation.state.as_str();
        let is_possible = self.states.iter().any(|possible| possible == state);
        if !is_possible || !self.filter.matches(operation) {
            return Some(LeftOut::OtherState);
        }
        let is_unsafe = self.event == OperationEvent::Retry && !is_replay_safe(operation);
        (is_unsafe && !self.includes_unsafe).then_some(LeftOut::NotReplaySafe)
    }
}

impl BulkDecision {
    fn leave_out(&mut self, reason: LeftOut) {
        *self.left_out.entry(reason).or_default() += 1;
    }
}

/// Does a second send do no harm: by its method, or because the server knows it by its key?
pub fn is_replay_safe(operation: &StoredOperation) -> bool {
    let method = operation.summary.split(' ').next().unwrap_or_default();
    !operation.idempotency_key.is_empty() || Safety::of(method) != Safety::Unsafe
}
