//! The queue of operations in the database.

mod calls;
mod pages;
mod payloads;
mod rows;

#[cfg(test)]
mod tests;

use policy::time::WallTime;

use super::Postgres;
use super::call::{Call, ClaimArguments, Pending};
use super::connection::Connection;
use super::database::{Deltas, Work, fields};
use super::jobs;
use super::problem::PostgresError;
use crate::call::reply;
use crate::operations::size::{exported_bytes, request_bytes, result_bytes};
use crate::operations::{
    AttemptRecord, ClaimId, Claims, Decision, DecisionError, ExportedOperation, Inserted, Lane,
    Lease, NewOperation, OperationCounts, OperationFilter, OperationQueue, QueueFuture,
    ReadyListener, Settlement, StoredConflict, StoredOperation, StoredRequest, StoredResponse,
    Swept,
};
use crate::queue::Share;

impl OperationQueue for Postgres {
    fn insert(&self, operation: NewOperation) -> QueueFuture<Inserted> {
        let bytes = request_bytes(&operation.request);
        self.call(bytes, Share::Half, Call::Insert, operation)
    }

    fn claim(&self, lane: &Lane, lease: Lease, limit: usize) -> QueueFuture<Claims> {
        let lane = lane.clone();
        let arguments = ClaimArguments { lane, lease, limit };
        self.call(0, Share::Whole, Call::Claim, arguments)
    }

    fn settle(
        &self,
        claim: ClaimId,
        settlement: Settlement,
    ) -> QueueFuture<Option<StoredOperation>> {
        let bytes = result_bytes(&settlement.result);
        self.call(bytes, Share::Whole, Call::Settle, (claim, settlement))
    }

    fn heartbeat(&self, claims: Vec<ClaimId>, lease: Lease) -> QueueFuture<()> {
        self.call(0, Share::Whole, Call::Heartbeat, (claims, lease))
    }

    fn decide(&self, decision: Decision) -> QueueFuture<Result<StoredOperation, DecisionError>> {
        let change = decision.request.as_ref();
        let bytes = change.map_or(0, |change| request_bytes(&change.request));
        self.call(bytes, Share::Whole, Call::Decide, decision)
    }

    fn sweep(&self, now: WallTime, limit: usize) -> QueueFuture<Swept> {
        self.call(0, Share::Whole, Call::Sweep, (now, limit))
    }

    fn recover(&self, now: WallTime) -> QueueFuture<Vec<StoredOperation>> {
        self.call(0, Share::Whole, Call::Recover, now)
    }

    fn lanes(&self, after: Option<&Lane>, limit: usize) -> QueueFuture<Vec<(Lane, WallTime)>> {
        let after = after.cloned();
        self.reader
            .read(async move |connection, _| pages::lanes(&connection, after, limit).await)
    }

    fn unreported(&self, limit: usize) -> QueueFuture<Vec<StoredOperation>> {
        self.reader
            .read(async move |connection, _| pages::unreported(&connection, limit).await)
    }

    fn report(&self, number: u64, report: Option<NewOperation>) -> QueueFuture<()> {
        let request = report.as_ref().map(|report| &report.request);
        let bytes = request.map_or(0, request_bytes);
        self.call(bytes, Share::Whole, Call::Report, (number, report))
    }

    fn get(&self, id: &str) -> QueueFuture<Option<StoredOperation>> {
        let id = id.to_owned();
        self.reader
            .read(async move |connection, _| pages::by_id(&connection, &id).await)
    }

    fn attempts(&self, number: u64) -> QueueFuture<Vec<AttemptRecord>> {
        self.reader
            .read(async move |connection, _| payloads::attempts(&connection, number).await)
    }

    fn request(&self, number: u64) -> QueueFuture<Option<StoredRequest>> {
        self.reader
            .read(async move |connection, keys| payloads::request(&connection, &keys, number).await)
    }

    fn conflict(&self, number: u64) -> QueueFuture<Option<StoredConflict>> {
        self.reader.read(async move |connection, keys| {
            payloads::conflict(&connection, &keys, number).await
        })
    }

    fn response(&self, number: u64) -> QueueFuture<Option<StoredResponse>> {
        self.reader.read(async move |connection, keys| {
            payloads::response(&connection, &keys, number).await
        })
    }

    fn page(
        &self,
        filter: OperationFilter,
        before: Option<u64>,
        limit: usize,
    ) -> QueueFuture<Vec<StoredOperation>> {
        self.reader
            .read(async move |connection, _| pages::page(&connection, &filter, before, limit).await)
    }

    fn export(&self, after: u64, limit: usize) -> QueueFuture<Vec<ExportedOperation>> {
        self.reader.read(async move |connection, keys| {
            pages::export(&connection, &keys, after, limit).await
        })
    }

    fn import(&self, operations: Vec<ExportedOperation>, now: WallTime) -> QueueFuture<usize> {
        let bytes = operations.iter().map(exported_bytes).sum();
        self.call(bytes, Share::Whole, Call::Import, (operations, now))
    }

    fn forget(&self, numbers: Vec<u64>) -> QueueFuture<()> {
        self.call(0, Share::Whole, Call::Forget, numbers)
    }

    fn counts(&self) -> OperationCounts {
        self.counts.operations()
    }

    fn listen(&self, listener: ReadyListener) {
        self.notifications.set_listener(listener);
    }
}

impl Postgres {
    /// Makes a call in the next transaction, with `bytes` to hold until then.
    pub(super) fn call<A, T: Send + 'static>(
        &self,
        bytes: usize,
        share: Share,
        call: impl FnOnce(Pending<A, T>) -> Call,
        arguments: A,
    ) -> QueueFuture<T> {
        let (reply, future) = reply();
        let call = call(Pending::new(arguments, reply));
        let queued = self.writer.queue().call(call, bytes + CALL_BYTES, share);
        if let Err((call, error)) = queued {
            call.finish(Err(error));
        }
        future
    }
}

/// What a call takes besides its bodies and headers, roughly.
const CALL_BYTES: usize = 1024;

/// Makes all calls. Those of a kind that comes in numbers are made together; claims come last, so that
/// they find what the others made due.
pub(super) async fn make(work: &mut Work<'_>, calls: &mut [Call]) -> Result<(), PostgresError> {
    let (mut inserts, mut settlements, mut claims) = (Vec::new(), Vec::new(), Vec::new());
    for call in calls {
        match call {
            Call::Insert(call) => inserts.push(call),
            Call::Settle(call) => settlements.push(call),
            Call::Claim(call) => claims.push(call),
            Call::Heartbeat(call) => calls::heartbeat(work, call).await?,
            Call::Decide(call) => calls::decide(work, call).await?,
            Call::Sweep(call) => calls::sweep(work, call).await?,
            Call::Recover(call) => calls::recover(work, call).await?,
            Call::Report(call) => calls::report(work, call).await?,
            Call::Import(call) => calls::import(work, call).await?,
            Call::Forget(call) => calls::forget(work, call).await?,
            Call::Job(call) => jobs::make(work, call).await?,
        }
    }
    calls::insert(work, &mut inserts).await?;
    calls::settle(work, &mut settlements).await?;
    calls::claim(work, &mut claims).await
}

/// Adds what a transaction has changed to the row of its node.
pub(super) async fn add_counts(
    connection: &Connection,
    node: i64,
    deltas: Deltas,
) -> Result<(), PostgresError> {
    if deltas == Deltas::default() {
        return Ok(());
    }
    let [
        available,
        running,
        retryable,
        completed,
        failed,
        conflict,
        cancelled,
    ] = &deltas.0;
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 8] = [
        &node, available, running, retryable, completed, failed, conflict, cancelled,
    ];
    connection.execute(ADD_COUNTS, &values).await?;
    Ok(())
}

const ADD_COUNTS: &str = "
    INSERT INTO operation_counts AS c VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
    ON CONFLICT (node) DO UPDATE SET
        available = c.available + excluded.available,
        running = c.running + excluded.running,
        retryable = c.retryable + excluded.retryable,
        completed = c.completed + excluded.completed,
        failed = c.failed + excluded.failed,
        conflict = c.conflict + excluded.conflict,
        cancelled = c.cancelled + excluded.cancelled";

/// How many operations there are, of all nodes together.
pub(super) async fn counts(connection: &Connection) -> Result<OperationCounts, PostgresError> {
    let rows = connection.query(COUNTS, &[]).await?;
    let mut counts = OperationCounts::default();
    if let Some(row) = rows.first() {
        for (index, count) in fields(&mut counts).into_iter().enumerate() {
            *count = u64::try_from(row.try_get::<_, i64>(index)?).unwrap_or(0);
        }
    }
    Ok(counts)
}

const COUNTS: &str = "
    SELECT coalesce(sum(available), 0)::bigint, coalesce(sum(running), 0)::bigint,
        coalesce(sum(retryable), 0)::bigint, coalesce(sum(completed), 0)::bigint,
        coalesce(sum(failed), 0)::bigint, coalesce(sum(conflict), 0)::bigint,
        coalesce(sum(cancelled), 0)::bigint
    FROM operation_counts";
