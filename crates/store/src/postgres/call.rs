//! Calls that wait for a transaction, and their results.

use std::fmt;

use policy::time::WallTime;

use super::jobs::JobCall;
use crate::call::Reply;
use crate::error::StoreError;
use crate::operations::{
    ClaimId, Claims, Decision, DecisionError, ExportedOperation, Inserted, Lane, Lease,
    NewOperation, Settlement, StoredOperation, Swept,
};

/// A call that waits.
pub(super) enum Call {
    Insert(Pending<NewOperation, Inserted>),
    Claim(Pending<ClaimArguments, Claims>),
    Settle(Pending<(ClaimId, Settlement), Option<StoredOperation>>),
    Heartbeat(Pending<(Vec<ClaimId>, Lease), ()>),
    Decide(Pending<Decision, Result<StoredOperation, DecisionError>>),
    Sweep(Pending<(WallTime, usize), Swept>),
    Recover(Pending<WallTime, Vec<StoredOperation>>),
    Report(Pending<(u64, Option<NewOperation>), ()>),
    Import(Pending<(Vec<ExportedOperation>, WallTime), usize>),
    Forget(Pending<Vec<u64>, ()>),
    Job(JobCall),
}

/// What is claimed.
#[derive(Debug)]
pub(super) struct ClaimArguments {
    pub(super) lane: Lane,
    pub(super) lease: Lease,
    pub(super) limit: usize,
}

impl Call {
    /// Has it failed, although its transaction has not?
    pub(super) fn has_failed(&self) -> bool {
        match self {
            Self::Insert(call) => call.has_failed(),
            Self::Claim(call) => call.has_failed(),
            Self::Settle(call) => call.has_failed(),
            Self::Heartbeat(call) => call.has_failed(),
            Self::Decide(call) => call.has_failed(),
            Self::Sweep(call) => call.has_failed(),
            Self::Recover(call) => call.has_failed(),
            Self::Report(call) => call.has_failed(),
            Self::Import(call) => call.has_failed(),
            Self::Forget(call) => call.has_failed(),
            Self::Job(call) => call.has_failed(),
        }
    }

    /// Gives its result to the caller, if its transaction was committed.
    pub(super) fn finish(self, committed: Result<(), StoreError>) {
        match self {
            Self::Insert(call) => call.finish(committed),
            Self::Claim(call) => call.finish(committed),
            Self::Settle(call) => call.finish(committed),
            Self::Heartbeat(call) => call.finish(committed),
            Self::Decide(call) => call.finish(committed),
            Self::Sweep(call) => call.finish(committed),
            Self::Recover(call) => call.finish(committed),
            Self::Report(call) => call.finish(committed),
            Self::Import(call) => call.finish(committed),
            Self::Forget(call) => call.finish(committed),
            Self::Job(call) => call.finish(committed),
        }
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Call")
    }
}

/// A call with its arguments, and the result that it has when its transaction is committed.
pub(super) struct Pending<A, T> {
    pub(super) arguments: A,
    result: Option<Result<T, StoreError>>,
    reply: Reply<T>,
}

impl<A, T> Pending<A, T> {
    pub(super) fn new(arguments: A, reply: Reply<T>) -> Self {
        Self {
            arguments,
            result: None,
            reply,
        }
    }

    /// Sets the result. A transaction that is made again sets it again.
    pub(super) fn set(&mut self, result: Result<T, StoreError>) {
        self.result = Some(result);
    }

    pub(super) fn has_failed(&self) -> bool {
        matches!(self.result, Some(Err(_)))
    }

    pub(super) fn finish(self, committed: Result<(), StoreError>) {
        let result = self.result.unwrap_or(Err(StoreError::Stopped));
        self.reply.give(committed.and(result));
    }
}
