//! Rows of operations.

use policy::item::TerminalReason;
use policy::operation::OperationState;
use policy::time::WallTime;
use tokio_postgres::Row;

use crate::operations::columns::{self, length, millis};
use crate::operations::entry::{Entry, HeldLease};
use crate::operations::{Counters, StoredOperation};
use crate::postgres::database::Work;
use crate::postgres::problem::PostgresError;
use crate::postgres::text::{Text, optional_text, text};

/// The columns that [`entry`] reads, in its order.
macro_rules! select {
    ($($rest:expr),+) => {
        concat!(
            "SELECT o.number, o.id, o.client, o.accepted_key, o.fingerprint, o.kind, o.destination,
                o.summary, o.credential, o.backoff, o.order_key, o.priority, o.trace_id,
                o.accepted_at_ms, o.lifetime_ms, o.retain_ms, o.is_reported, o.idempotency_key,
                o.state, o.reason, o.merges, o.sent, o.attempts, o.directed_waits, o.is_refreshed,
                o.is_blocked, o.next_at_ms, o.expires_at_ms, o.ended_at_ms, o.retain_until_ms,
                o.fence, o.session, o.lease_until_ms, o.is_unreported, o.updated_at_ms ",
            $($rest),+
        )
    };
}
pub(super) use select;

/// How many columns [`select`] has; others may follow.
pub(super) const COLUMNS: usize = 35;

/// Locks rows, in their order, until the transaction ends, and reads them.
pub(super) async fn lock(work: &Work<'_>, numbers: &[i64]) -> Result<Vec<Entry>, PostgresError> {
    let rows = work.connection.query(LOCK, &[&numbers]).await?;
    rows.iter().map(entry).collect()
}

const LOCK: &str =
    select!("FROM operations o WHERE o.number = ANY($1) ORDER BY o.number FOR UPDATE");

/// Stores a new entry, and returns its number; `None` if another process stored one with its id or key
/// at the same moment. What an operation has from its first claim on is not stored.
pub(super) async fn insert(work: &Work<'_>, entry: &Entry) -> Result<Option<u64>, PostgresError> {
    let operation = &entry.operation;
    let rows = work
        .connection
        .query(
            INSERT,
            &[
                &Text(&operation.id),
                &Text(&operation.client),
                &Text(&entry.accepted_key),
                &entry.fingerprint,
                &Text(&operation.kind),
                &Text(&operation.destination),
                &Text(&operation.summary),
                &operation.credential.as_deref().map(Text),
                &operation.backoff.as_deref().map(Text),
                &operation.order_key.as_deref().map(Text),
                &operation.priority,
                &operation.trace_id.as_deref().map(Text),
                &operation.accepted_at.as_unix_millis(),
                &millis(entry.lifetime),
                &millis(entry.retain),
                &operation.is_reported,
                &operation.state.as_str(),
                &operation.is_blocked,
                &entry.due_at.as_unix_millis(),
                &operation.expires_at.as_unix_millis(),
            ],
        )
        .await?;
    rows.first().map(|row| unsigned(row, 0)).transpose()
}

const INSERT: &str = "
    INSERT INTO operations (
        id, client, accepted_key, fingerprint, kind, destination, summary, credential, backoff,
        order_key, priority, trace_id, accepted_at_ms, lifetime_ms, retain_ms, is_reported,
        idempotency_key, state, is_blocked, next_at_ms, expires_at_ms, updated_at_ms)
    VALUES (
        $1, $2, $3, $4, $5, $6, $7, $8, $9,
        $10, $11, $12, $13, $14, $15, $16,
        $3, $17, $18, $19, $20, $13)
    ON CONFLICT DO NOTHING
    RETURNING number";

/// Writes an entry.
pub(super) async fn update(work: &Work<'_>, entry: &Entry) -> Result<(), PostgresError> {
    let operation = &entry.operation;
    let counters = operation.counters;
    let lease = entry.lease;
    work.connection
        .execute(
            UPDATE,
            &[
                &number(operation.number),
                &Text(&operation.idempotency_key),
                &operation.state.as_str(),
                &operation.state.reason().map(TerminalReason::as_str),
                &i16::from(operation.merges),
                &i64::from(counters.sent),
                &i64::from(counters.attempts),
                &i64::from(counters.directed_waits),
                &counters.refreshed,
                &operation.is_blocked,
                &entry.due_at.as_unix_millis(),
                &operation.expires_at.as_unix_millis(),
                &operation.ended_at.map(WallTime::as_unix_millis),
                &entry.retain_until.map(WallTime::as_unix_millis),
                &number(entry.fence),
                &lease.map(|_| work.node),
                &lease.map(|lease| number(lease.session)),
                &lease.map(|lease| lease.until.as_unix_millis()),
                &entry.is_unreported,
                &entry.updated_at.as_unix_millis(),
            ],
        )
        .await?;
    Ok(())
}

pub(super) const UPDATE: &str = "
    UPDATE operations SET
        idempotency_key = $2, state = $3, reason = $4, merges = $5, sent = $6, attempts = $7,
        directed_waits = $8, is_refreshed = $9, is_blocked = $10, next_at_ms = $11,
        expires_at_ms = $12, ended_at_ms = $13, retain_until_ms = $14, fence = $15, node = $16,
        session = $17, lease_until_ms = $18, is_unreported = $19, updated_at_ms = $20
    WHERE number = $1";

pub(super) fn entry(row: &Row) -> Result<Entry, PostgresError> {
    let word: String = row.try_get(18)?;
    let reason: Option<String> = row.try_get(19)?;
    let state = columns::state(&word, reason.as_deref()).map_err(|reason| PostgresError::Row {
        table: "operations",
        reason,
    })?;
    let due_at = time(row, 26)?;
    let session: Option<i64> = row.try_get(31)?;
    let lease = match (session, optional_time(row, 32)?) {
        (Some(session), Some(until)) => Some(HeldLease {
            session: session.cast_unsigned(),
            until,
        }),
        _ => None,
    };
    let is_waiting = matches!(state, OperationState::Available | OperationState::Retryable);
    Ok(Entry {
        operation: StoredOperation {
            number: unsigned(row, 0)?,
            id: text(row, 1)?,
            client: text(row, 2)?,
            kind: text(row, 5)?,
            destination: text(row, 6)?,
            summary: text(row, 7)?,
            credential: optional_text(row, 8)?,
            backoff: optional_text(row, 9)?,
            order_key: optional_text(row, 10)?,
            priority: row.try_get(11)?,
            trace_id: optional_text(row, 12)?,
            accepted_at: time(row, 13)?,
            is_reported: row.try_get(16)?,
            idempotency_key: text(row, 17)?,
            state,
            merges: u8::try_from(row.try_get::<_, i16>(20)?).unwrap_or(u8::MAX),
            counters: Counters {
                sent: count(row, 21)?,
                attempts: count(row, 22)?,
                directed_waits: count(row, 23)?,
                refreshed: row.try_get(24)?,
            },
            is_blocked: row.try_get(25)?,
            unblocked: None,
            next_at: is_waiting.then_some(due_at),
            expires_at: time(row, 27)?,
            ended_at: optional_time(row, 28)?,
        },
        accepted_key: text(row, 3)?,
        fingerprint: row.try_get(4)?,
        due_at,
        lifetime: length(row.try_get(14)?),
        retain: length(row.try_get(15)?),
        retain_until: optional_time(row, 29)?,
        fence: unsigned(row, 30)?,
        lease,
        is_unreported: row.try_get(33)?,
        updated_at: time(row, 34)?,
    })
}

/// A number for a column. Numbers and fences never come near the end of its range.
pub(super) fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(row: &Row, index: usize) -> Result<u64, PostgresError> {
    let value: i64 = row.try_get(index)?;
    Ok(u64::try_from(value).unwrap_or(0))
}

pub(super) fn time(row: &Row, index: usize) -> Result<WallTime, PostgresError> {
    Ok(WallTime::from_unix_millis(row.try_get(index)?))
}

fn optional_time(row: &Row, index: usize) -> Result<Option<WallTime>, PostgresError> {
    let millis: Option<i64> = row.try_get(index)?;
    Ok(millis.map(WallTime::from_unix_millis))
}

fn count(row: &Row, index: usize) -> Result<u32, PostgresError> {
    let value: i64 = row.try_get(index)?;
    Ok(u32::try_from(value).unwrap_or(u32::MAX))
}
