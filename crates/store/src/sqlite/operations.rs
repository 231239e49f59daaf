//! The queue of operations in the file.
//!
//! What changes often is in a narrow table; requests, responses, conflicts and attempts are in tables
//! of their own, so that no change of a state writes a body again. Every statement finds its rows by
//! an index: `tests` checks the plan of each.

mod calls;
mod pages;
mod payloads;
mod rows;

#[cfg(test)]
mod tests;

use policy::time::WallTime;
use rusqlite::Connection;

use super::Sqlite;
use super::problem::SqliteError;
use crate::operations::size::{exported_bytes, request_bytes, result_bytes};
use crate::operations::{
    AttemptRecord, ClaimId, Claims, Decision, DecisionError, ExportedOperation, Inserted, Lane,
    Lease, NewOperation, OperationCounts, OperationFilter, OperationQueue, QueueFuture, Settlement,
    StoredConflict, StoredOperation, StoredRequest, StoredResponse, Swept,
};
use crate::queue::Share;

impl OperationQueue for Sqlite {
    fn insert(&self, operation: NewOperation) -> QueueFuture<Inserted> {
        let bytes = request_bytes(&operation.request);
        self.call(bytes, Share::Half, move |work| {
            calls::insert(work, &operation)
        })
    }

    fn claim(&self, lane: &Lane, lease: Lease, limit: usize) -> QueueFuture<Claims> {
        let lane = lane.clone();
        let path = self.path.clone();
        self.call(0, Share::Whole, move |work| {
            calls::claim(work, &path, &lane, lease, limit)
        })
    }

    fn settle(
        &self,
        claim: ClaimId,
        settlement: Settlement,
    ) -> QueueFuture<Option<StoredOperation>> {
        let bytes = result_bytes(&settlement.result);
        self.call(bytes, Share::Whole, move |work| {
            calls::settle(work, claim, &settlement)
        })
    }

    fn heartbeat(&self, claims: Vec<ClaimId>, lease: Lease) -> QueueFuture<()> {
        self.call(0, Share::Whole, move |work| {
            calls::heartbeat(work, &claims, lease)
        })
    }

    fn decide(&self, decision: Decision) -> QueueFuture<Result<StoredOperation, DecisionError>> {
        let change = decision.request.as_ref();
        let bytes = change.map_or(0, |change| request_bytes(&change.request));
        self.call(bytes, Share::Whole, move |work| {
            calls::decide(work, decision)
        })
    }

    fn sweep(&self, now: WallTime, limit: usize) -> QueueFuture<Swept> {
        self.call(0, Share::Whole, move |work| calls::sweep(work, now, limit))
    }

    fn recover(&self, now: WallTime) -> QueueFuture<Vec<StoredOperation>> {
        self.call(0, Share::Whole, move |work| calls::recover(work, now))
    }

    fn lanes(&self, after: Option<&Lane>, limit: usize) -> QueueFuture<Vec<(Lane, WallTime)>> {
        let after = after.cloned();
        self.readers
            .read(move |connection, _| pages::lanes(connection, after, limit))
    }

    fn unreported(&self, limit: usize) -> QueueFuture<Vec<StoredOperation>> {
        self.readers
            .read(move |connection, _| pages::unreported(connection, limit))
    }

    fn report(&self, number: u64, report: Option<NewOperation>) -> QueueFuture<()> {
        let bytes = report
            .as_ref()
            .map_or(0, |report| request_bytes(&report.request));
        self.call(bytes, Share::Whole, move |work| {
            calls::report(work, number, report.as_ref())
        })
    }

    fn get(&self, id: &str) -> QueueFuture<Option<StoredOperation>> {
        let id = id.to_owned();
        self.readers.read(move |connection, _| {
            let entry = rows::by_id(connection, &id)?;
            Ok(entry.map(|entry| entry.operation))
        })
    }

    fn attempts(&self, number: u64) -> QueueFuture<Vec<AttemptRecord>> {
        self.readers
            .read(move |connection, _| payloads::attempts(connection, number))
    }

    fn request(&self, number: u64) -> QueueFuture<Option<StoredRequest>> {
        self.readers
            .read(move |connection, keys| payloads::request(connection, keys, number))
    }

    fn conflict(&self, number: u64) -> QueueFuture<Option<StoredConflict>> {
        self.readers
            .read(move |connection, keys| payloads::conflict(connection, keys, number))
    }

    fn response(&self, number: u64) -> QueueFuture<Option<StoredResponse>> {
        self.readers
            .read(move |connection, keys| payloads::response(connection, keys, number))
    }

    fn page(
        &self,
        filter: OperationFilter,
        before: Option<u64>,
        limit: usize,
    ) -> QueueFuture<Vec<StoredOperation>> {
        self.readers
            .read(move |connection, _| pages::page(connection, &filter, before, limit))
    }

    fn export(&self, after: u64, limit: usize) -> QueueFuture<Vec<ExportedOperation>> {
        self.readers
            .read(move |connection, keys| pages::export(connection, keys, after, limit))
    }

    fn import(&self, operations: Vec<ExportedOperation>, now: WallTime) -> QueueFuture<usize> {
        let bytes = operations.iter().map(exported_bytes).sum();
        self.call(bytes, Share::Whole, move |work| {
            calls::import(work, operations, now)
        })
    }

    fn forget(&self, numbers: Vec<u64>) -> QueueFuture<()> {
        self.call(0, Share::Whole, move |work| calls::forget(work, &numbers))
    }

    fn counts(&self) -> OperationCounts {
        self.counts.operations()
    }
}

/// How many operations there are in the file.
pub(super) fn count(connection: &Connection) -> Result<OperationCounts, SqliteError> {
    let mut counts = OperationCounts::default();
    let mut statement = connection.prepare(COUNT)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let word: String = row.get(0)?;
        // The reason does not matter for the count.
        let reason = (word == "failed").then(|| "expired".to_owned());
        *counts.of(rows::state(&word, reason.as_deref())?) = row.get(1)?;
    }
    Ok(counts)
}

const COUNT: &str =
    "SELECT state, count(*) FROM operations INDEXED BY operations_state GROUP BY state";
