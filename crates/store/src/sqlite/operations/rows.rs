//! Rows of operations.

use policy::item::TerminalReason;
use policy::operation::OperationState;
use policy::time::WallTime;
use rusqlite::{CachedStatement, Connection, OptionalExtension, Params, Row, params};

use crate::operations::columns::{self, length, millis};
use crate::operations::entry::{Entry, HeldLease};
use crate::operations::{Counters, StoredOperation};
use crate::sqlite::database::Work;
use crate::sqlite::problem::SqliteError;

/// The columns that [`entry`] reads, in its order.
macro_rules! select {
    ($($rest:expr),+) => {
        concat!(
            "SELECT number, id, client, accepted_key, fingerprint, kind, destination, summary,
                credential, backoff, order_key, priority, trace_id, accepted_at_ms, lifetime_ms,
                retain_ms, is_reported, idempotency_key, state, reason, merges, sent, attempts,
                directed_waits, is_refreshed, is_blocked, next_at_ms, expires_at_ms, ended_at_ms,
                retain_until_ms, fence, session, lease_until_ms, is_unreported, updated_at_ms
             FROM operations ",
            $($rest),+
        )
    };
}
pub(super) use select;

pub(super) const BY_NUMBER: &str = select!("WHERE number = ?");
pub(super) const BY_ID: &str = select!("INDEXED BY operations_id WHERE id = ?");
pub(super) const BY_KEY: &str =
    select!("INDEXED BY operations_key WHERE client = ? AND accepted_key = ?");

pub(super) fn by_number(
    connection: &Connection,
    number: u64,
) -> Result<Option<Entry>, SqliteError> {
    one(connection, BY_NUMBER, [number])
}

pub(super) fn by_id(connection: &Connection, id: &str) -> Result<Option<Entry>, SqliteError> {
    one(connection, BY_ID, [id])
}

pub(super) fn by_key(
    connection: &Connection,
    client: &str,
    key: &str,
) -> Result<Option<Entry>, SqliteError> {
    one(connection, BY_KEY, [client, key])
}

fn one(
    connection: &Connection,
    sql: &str,
    params: impl Params,
) -> Result<Option<Entry>, SqliteError> {
    Ok(all(connection.prepare_cached(sql)?, params)?.pop())
}

/// Reads all rows of a statement that begins with [`select`].
pub(super) fn all(
    mut statement: CachedStatement<'_>,
    params: impl Params,
) -> Result<Vec<Entry>, SqliteError> {
    let mut rows = statement.query(params)?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next()? {
        entries.push(entry(row)?);
    }
    Ok(entries)
}

/// The first column of the first row.
pub(super) fn value<T: rusqlite::types::FromSql>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
) -> Result<Option<T>, SqliteError> {
    let mut statement = connection.prepare_cached(sql)?;
    Ok(statement.query_row(params, |row| row.get(0)).optional()?)
}

/// The first column of all rows.
pub(super) fn numbers(
    connection: &Connection,
    sql: &str,
    params: impl Params,
) -> Result<Vec<u64>, SqliteError> {
    let mut statement = connection.prepare_cached(sql)?;
    let numbers: rusqlite::Result<Vec<u64>> =
        statement.query_map(params, |row| row.get(0))?.collect();
    Ok(numbers?)
}

/// Stores a new entry, which gets its number. What an operation has from its first claim on is not
/// stored.
pub(super) fn insert(work: &mut Work<'_>, entry: &mut Entry) -> Result<(), SqliteError> {
    let operation = &entry.operation;
    let params = params![
        operation.id,
        operation.client,
        entry.accepted_key,
        entry.fingerprint,
        operation.kind,
        operation.destination,
        operation.summary,
        operation.credential,
        operation.backoff,
        operation.order_key,
        operation.priority,
        operation.trace_id,
        operation.accepted_at.as_unix_millis(),
        millis(entry.lifetime),
        millis(entry.retain),
        operation.is_reported,
        operation.state.as_str(),
        operation.is_blocked,
        entry.due_at.as_unix_millis(),
        operation.expires_at.as_unix_millis(),
    ];
    work.execute(INSERT, params)?;
    entry.operation.number = work.connection.last_insert_rowid().cast_unsigned();
    *work.counts.of(entry.operation.state) += 1;
    Ok(())
}

pub(super) const INSERT: &str = "
    INSERT INTO operations (
        id, client, accepted_key, fingerprint, kind, destination, summary, credential, backoff,
        order_key, priority, trace_id, accepted_at_ms, lifetime_ms, retain_ms, is_reported,
        idempotency_key, state, merges, sent, attempts, directed_waits, is_refreshed, is_blocked,
        next_at_ms, expires_at_ms, fence, is_unreported, updated_at_ms)
    VALUES (
        ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9,
        ?10, ?11, ?12, ?13, ?14, ?15, ?16,
        ?3, ?17, 0, 0, 0, 0, 0, ?18,
        ?19, ?20, 0, 0, ?13)";

/// Writes an entry that was claimed in the state `from`: only what a claim changes.
pub(super) fn update_claimed(
    work: &mut Work<'_>,
    from: OperationState,
    entry: &Entry,
) -> Result<(), SqliteError> {
    let params = params![
        entry.operation.state.as_str(),
        entry.fence,
        entry.lease.map(|lease| lease.session),
        entry.lease.map(|lease| lease.until.as_unix_millis()),
        entry.updated_at.as_unix_millis(),
        entry.operation.number,
    ];
    work.execute(UPDATE_CLAIMED, params)?;
    count(work, from, entry);
    Ok(())
}

pub(super) const UPDATE_CLAIMED: &str = "
    UPDATE operations
    SET state = ?, fence = ?, session = ?, lease_until_ms = ?, updated_at_ms = ?
    WHERE number = ?";

/// Writes an entry that was in the state `from` before.
pub(super) fn update(
    work: &mut Work<'_>,
    from: OperationState,
    entry: &Entry,
) -> Result<(), SqliteError> {
    let operation = &entry.operation;
    let counters = operation.counters;
    let params = params![
        operation.idempotency_key,
        operation.state.as_str(),
        operation.state.reason().map(TerminalReason::as_str),
        operation.merges,
        counters.sent,
        counters.attempts,
        counters.directed_waits,
        counters.refreshed,
        operation.is_blocked,
        entry.due_at.as_unix_millis(),
        operation.expires_at.as_unix_millis(),
        operation.ended_at.map(WallTime::as_unix_millis),
        entry.retain_until.map(WallTime::as_unix_millis),
        entry.fence,
        entry.lease.map(|lease| lease.session),
        entry.lease.map(|lease| lease.until.as_unix_millis()),
        entry.is_unreported,
        entry.updated_at.as_unix_millis(),
        operation.number,
    ];
    work.execute(UPDATE, params)?;
    count(work, from, entry);
    Ok(())
}

pub(super) const UPDATE: &str = "
    UPDATE operations SET
        idempotency_key = ?, state = ?, reason = ?, merges = ?, sent = ?, attempts = ?,
        directed_waits = ?, is_refreshed = ?, is_blocked = ?, next_at_ms = ?, expires_at_ms = ?,
        ended_at_ms = ?, retain_until_ms = ?, fence = ?, session = ?, lease_until_ms = ?,
        is_unreported = ?, updated_at_ms = ?
    WHERE number = ?";

fn count(work: &mut Work<'_>, from: OperationState, entry: &Entry) {
    let left = work.counts.of(from);
    *left = left.saturating_sub(1);
    *work.counts.of(entry.operation.state) += 1;
}

fn entry(row: &Row<'_>) -> Result<Entry, SqliteError> {
    let time = |index| row.get(index).map(WallTime::from_unix_millis);
    let optional_time = |index| -> rusqlite::Result<Option<WallTime>> {
        let millis: Option<i64> = row.get(index)?;
        Ok(millis.map(WallTime::from_unix_millis))
    };
    let word: String = row.get(18)?;
    let reason: Option<String> = row.get(19)?;
    let state = state(&word, reason.as_deref())?;
    let due_at = time(26)?;
    let lease = match (row.get(31)?, optional_time(32)?) {
        (Some(session), Some(until)) => Some(HeldLease { session, until }),
        _ => None,
    };
    let is_waiting = matches!(state, OperationState::Available | OperationState::Retryable);
    Ok(Entry {
        operation: StoredOperation {
            number: row.get(0)?,
            id: row.get(1)?,
            client: row.get(2)?,
            kind: row.get(5)?,
            destination: row.get(6)?,
            summary: row.get(7)?,
            credential: row.get(8)?,
            backoff: row.get(9)?,
            order_key: row.get(10)?,
            priority: row.get(11)?,
            trace_id: row.get(12)?,
            accepted_at: time(13)?,
            is_reported: row.get(16)?,
            idempotency_key: row.get(17)?,
            state,
            merges: row.get(20)?,
            counters: Counters {
                sent: row.get(21)?,
                attempts: row.get(22)?,
                directed_waits: row.get(23)?,
                refreshed: row.get(24)?,
            },
            is_blocked: row.get(25)?,
            unblocked: None,
            next_at: is_waiting.then_some(due_at),
            expires_at: time(27)?,
            ended_at: optional_time(28)?,
        },
        accepted_key: row.get(3)?,
        fingerprint: row.get(4)?,
        due_at,
        lifetime: length(row.get(14)?),
        retain: length(row.get(15)?),
        retain_until: optional_time(29)?,
        fence: row.get(30)?,
        lease,
        is_unreported: row.get(33)?,
        updated_at: time(34)?,
    })
}

/// The state of a row.
pub(super) fn state(word: &str, reason: Option<&str>) -> Result<OperationState, SqliteError> {
    columns::state(word, reason).map_err(|reason| SqliteError::Row {
        table: "operations",
        reason,
    })
}
