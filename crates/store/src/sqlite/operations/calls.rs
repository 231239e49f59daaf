//! What every call does in its transaction.

use std::path::Path;

use policy::operation::{IllegalTransition, OperationState};
use policy::time::WallTime;
use rusqlite::params;

use super::payloads;
use super::rows::{self, numbers, value};
use crate::error::StoreError;
use crate::operations::entry::{Entry, front};
use crate::operations::{
    ClaimId, ClaimResult, Claimed, Claims, Decision, DecisionError, ExportedOperation, Inserted,
    Lane, Lease, NewOperation, RuleDecision, Settlement, StoredOperation, Swept,
};
use crate::sqlite::database::Work;
use crate::sqlite::limit_of;
use crate::sqlite::problem::SqliteError;

pub(super) fn insert(work: &mut Work<'_>, new: &NewOperation) -> Result<Inserted, SqliteError> {
    let known = rows::by_key(work.connection, &new.client, &new.idempotency_key)?;
    if let Some(entry) = known {
        return Ok(match entry.fingerprint == new.fingerprint {
            true => Inserted::Same(entry.operation),
            false => Inserted::OtherRequest,
        });
    }
    let same_id: Option<u64> = value(work.connection, NUMBER_OF_ID, [&new.id])?;
    if same_id.is_some() {
        let id = new.id.clone();
        return Err(StoreError::SameId { id }.into());
    }
    let is_blocked = match &new.order_key {
        Some(key) => !unfinished(work, key)?.is_empty(),
        None => false,
    };
    let mut entry = Entry::new(0, new, is_blocked);
    rows::insert(work, &mut entry)?;
    payloads::write_request(work, entry.operation.number, &new.request)?;
    Ok(Inserted::New(entry.operation))
}

pub(super) fn import(
    work: &mut Work<'_>,
    operations: Vec<ExportedOperation>,
    now: WallTime,
) -> Result<usize, SqliteError> {
    let mut imported = 0;
    for operation in operations {
        imported += usize::from(import_one(work, operation, now)?);
    }
    Ok(imported)
}

/// Whether it was not there before.
fn import_one(
    work: &mut Work<'_>,
    operation: ExportedOperation,
    now: WallTime,
) -> Result<bool, SqliteError> {
    let mut entry = operation.entry;
    let (id, client) = (&entry.operation.id, &entry.operation.client);
    if rows::by_id(work.connection, id)?.is_some()
        || rows::by_key(work.connection, client, &entry.accepted_key)?.is_some()
    {
        return Ok(false);
    }
    let is_blocked = match &entry.operation.order_key {
        Some(key) => !unfinished(work, key)?.is_empty(),
        None => false,
    };
    transition(entry.import(is_blocked, now))?;
    rows::insert(work, &mut entry)?;
    rows::update(work, entry.operation.state, &entry)?;
    let number = entry.operation.number;
    payloads::write_request(work, number, &operation.request)?;
    if let Some(conflict) = &operation.conflict {
        payloads::write_conflict(work, number, conflict)?;
    }
    if let Some(response) = &operation.response {
        payloads::write_response(work, number, response)?;
    }
    payloads::add_attempts(work, number, &operation.attempts)?;
    Ok(true)
}

pub(super) fn forget(work: &mut Work<'_>, numbers: &[u64]) -> Result<(), SqliteError> {
    for &number in numbers {
        delete(work, number)?;
    }
    Ok(())
}

/// Deletes an operation; whether it was there.
fn delete(work: &mut Work<'_>, number: u64) -> Result<bool, SqliteError> {
    let Some(entry) = rows::by_number(work.connection, number)? else {
        return Ok(false);
    };
    payloads::delete(work, number)?;
    let left = work.counts.of(entry.operation.state);
    *left = left.saturating_sub(1);
    Ok(true)
}

pub(super) const NUMBER_OF_ID: &str =
    "SELECT number FROM operations INDEXED BY operations_id WHERE id = ?";

pub(super) fn claim(
    work: &mut Work<'_>,
    path: &Path,
    lane: &Lane,
    lease: Lease,
    limit: usize,
) -> Result<Claims, SqliteError> {
    let mut claims = Claims::default();
    // If there is one more, the lane need not be searched again for the next.
    let mut due = due(work, lane, lease.now, limit.saturating_add(1))?;
    let has_more = due.len() > limit;
    due.truncate(limit);
    for number in due {
        let Some(mut entry) = rows::by_number(work.connection, number)? else {
            continue;
        };
        let from = entry.operation.state;
        if entry.has_expired(lease.now) {
            transition(entry.expire(lease.now))?;
            store(work, from, &mut entry)?;
            claims.expired.push(entry.operation);
            continue;
        }
        match payloads::request(work.connection, work.keys, number) {
            Ok(request) => {
                let claim = transition(entry.claim(lease, work.session))?;
                rows::update_claimed(work, from, &entry)?;
                claims.claimed.push(Claimed {
                    claim,
                    operation: entry.operation,
                    request: request.unwrap_or_default(),
                });
            }
            Err(problem) if problem.is_serious() => return Err(problem),
            Err(problem) => {
                entry.put_off(lease.now);
                rows::update(work, from, &entry)?;
                claims.unreadable.push((entry.operation, problem.at(path)));
            }
        }
    }
    claims.next_at = match has_more {
        true => Some(lease.now),
        false => first_due(work.connection, lane)?.map(|at| at.max(lease.now)),
    };
    Ok(claims)
}

/// The first operations of a lane that are due, by priority and time.
fn due(work: &Work<'_>, lane: &Lane, now: WallTime, limit: usize) -> Result<Vec<u64>, SqliteError> {
    let Lane { destination, kind } = lane;
    let mut due = Vec::new();
    for priority in Priorities::of(work.connection, lane) {
        if due.len() >= limit {
            break;
        }
        let priority = priority?;
        let left = limit - due.len();
        let now = now.as_unix_millis();
        let params = params![destination, kind, priority, now, limit_of(left)];
        due.extend(numbers(work.connection, DUE, params)?);
    }
    Ok(due)
}

pub(super) const DUE: &str = "
    SELECT number FROM operations INDEXED BY operations_claim
    WHERE state IN ('available', 'retryable') AND is_blocked = 0
        AND destination = ? AND kind = ? AND priority = ? AND next_at_ms <= ?
    ORDER BY next_at_ms, number LIMIT ?";

/// When the first operation of a lane is due.
pub(super) fn first_due(
    connection: &rusqlite::Connection,
    lane: &Lane,
) -> Result<Option<WallTime>, SqliteError> {
    let Lane { destination, kind } = lane;
    let mut first: Option<i64> = None;
    for priority in Priorities::of(connection, lane) {
        let at: Option<i64> = value(connection, FIRST_DUE, params![destination, kind, priority?])?;
        first = first.into_iter().chain(at).min();
    }
    Ok(first.map(WallTime::from_unix_millis))
}

pub(super) const FIRST_DUE: &str = "
    SELECT next_at_ms FROM operations INDEXED BY operations_claim
    WHERE state IN ('available', 'retryable') AND is_blocked = 0
        AND destination = ? AND kind = ? AND priority = ?
    ORDER BY next_at_ms LIMIT 1";

/// The priorities that operations of a lane have, from the highest: each is found by one search of
/// the index, however many operations have it.
struct Priorities<'a> {
    connection: &'a rusqlite::Connection,
    lane: &'a Lane,
    below: i64,
}

impl<'a> Priorities<'a> {
    fn of(connection: &'a rusqlite::Connection, lane: &'a Lane) -> Self {
        Self {
            connection,
            lane,
            below: i64::MAX,
        }
    }
}

impl Iterator for Priorities<'_> {
    type Item = Result<i64, SqliteError>;

    fn next(&mut self) -> Option<Self::Item> {
        let params = params![self.lane.destination, self.lane.kind, self.below];
        let next = value(self.connection, NEXT_PRIORITY, params).transpose();
        if let Some(Ok(priority)) = next {
            self.below = priority;
        }
        next
    }
}

pub(super) const NEXT_PRIORITY: &str = "
    SELECT priority FROM operations INDEXED BY operations_claim
    WHERE state IN ('available', 'retryable') AND is_blocked = 0
        AND destination = ? AND kind = ? AND priority < ?
    ORDER BY priority DESC LIMIT 1";

pub(super) fn settle(
    work: &mut Work<'_>,
    claim: ClaimId,
    settlement: &Settlement,
) -> Result<Option<StoredOperation>, SqliteError> {
    let number = claim.number;
    let Some(mut entry) = rows::by_number(work.connection, number)? else {
        return Ok(None);
    };
    payloads::add_attempts(work, number, &settlement.attempts)?;
    if !entry.is_claimed_by(claim) {
        return Ok(None);
    }
    let from = entry.operation.state;
    transition(entry.settle(settlement))?;
    store(work, from, &mut entry)?;
    match &settlement.result {
        ClaimResult::Completed(Some(response)) => {
            payloads::write_response(work, number, response)?;
        }
        ClaimResult::Conflict(conflict, rule) => match rule {
            _ if entry.operation.state == OperationState::Conflict => {
                payloads::write_conflict(work, number, conflict)?;
            }
            Some(RuleDecision::Send(change)) => {
                payloads::write_request(work, number, &change.request)?;
            }
            Some(RuleDecision::Complete) | None => {}
        },
        ClaimResult::Completed(None)
        | ClaimResult::Retry(_)
        | ClaimResult::Failed(_)
        | ClaimResult::Released => {}
    }
    Ok(Some(entry.operation))
}

pub(super) fn heartbeat(
    work: &Work<'_>,
    claims: &[ClaimId],
    lease: Lease,
) -> Result<(), SqliteError> {
    let until = lease.until.as_unix_millis();
    for claim in claims {
        work.execute(HEARTBEAT, params![until, claim.number, claim.fence])?;
    }
    Ok(())
}

pub(super) const HEARTBEAT: &str = "
    UPDATE operations SET lease_until_ms = ?1
    WHERE number = ?2 AND fence = ?3 AND state = 'running' AND lease_until_ms < ?1";

pub(super) fn decide(
    work: &mut Work<'_>,
    decision: Decision,
) -> Result<Result<StoredOperation, DecisionError>, SqliteError> {
    let Some(mut entry) = rows::by_id(work.connection, &decision.id)? else {
        return Ok(Err(DecisionError::Unknown));
    };
    let from = entry.operation.state;
    let number = entry.operation.number;
    if let Err(illegal) = entry.decide(decision.event, decision.now) {
        return Ok(Err(illegal.into()));
    }
    if let Some(change) = decision.request {
        entry.operation.idempotency_key = change.idempotency_key;
        payloads::write_request(work, number, &change.request)?;
    }
    if from == OperationState::Conflict {
        payloads::delete_conflict(work, number)?;
    }
    store(work, from, &mut entry)?;
    Ok(Ok(entry.operation))
}

pub(super) fn sweep(
    work: &mut Work<'_>,
    now: WallTime,
    limit: usize,
) -> Result<Swept, SqliteError> {
    let mut swept = Swept::default();
    let first = |work: &Work<'_>, sql| {
        numbers(
            work.connection,
            sql,
            params![now.as_unix_millis(), limit_of(limit)],
        )
    };
    for number in first(work, EXPIRED)? {
        swept
            .expired
            .extend(change(work, number, |entry| entry.expire(now))?);
    }
    for number in leases_ended(work, now, limit)? {
        swept
            .reclaimed
            .extend(change(work, number, |entry| entry.take_back(now))?);
    }
    for number in first(work, RETAINED)? {
        swept.deleted += usize::from(delete(work, number)?);
    }
    Ok(swept)
}

/// The running operations whose lease has ended, the longest ended first.
fn leases_ended(work: &Work<'_>, now: WallTime, limit: usize) -> Result<Vec<u64>, SqliteError> {
    let mut statement = work.connection.prepare_cached(LEASE_ENDED)?;
    let rows = statement.query_map([now.as_unix_millis()], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut ended: Vec<(i64, u64)> = rows.collect::<rusqlite::Result<_>>()?;
    ended.sort_unstable();
    ended.truncate(limit);
    Ok(ended.into_iter().map(|(_, number)| number).collect())
}

pub(super) const EXPIRED: &str = "
    SELECT number FROM operations INDEXED BY operations_expiry
    WHERE state IN ('available', 'retryable') AND expires_at_ms <= ?
    ORDER BY expires_at_ms, number LIMIT ?";

pub(super) const LEASE_ENDED: &str = "
    SELECT lease_until_ms, number FROM operations INDEXED BY operations_state
    WHERE state = 'running' AND lease_until_ms <= ?";

pub(super) const RETAINED: &str = "
    SELECT number FROM operations INDEXED BY operations_retention
    WHERE retain_until_ms <= ?
    ORDER BY retain_until_ms, number LIMIT ?";

pub(super) fn recover(
    work: &mut Work<'_>,
    now: WallTime,
) -> Result<Vec<StoredOperation>, SqliteError> {
    for number in numbers(work.connection, UPDATED_AFTER, [now.as_unix_millis()])? {
        let entry = rows::by_number(work.connection, number)?;
        if let Some(mut entry) = entry.filter(|entry| entry.was_updated_after(now)) {
            entry.move_back(now);
            rows::update(work, entry.operation.state, &entry)?;
        }
    }
    let mut lost = numbers(work.connection, LEASES_OF_OTHERS, [work.session])?;
    lost.sort_unstable();
    let mut recovered = Vec::new();
    for number in lost {
        recovered.extend(change(work, number, |entry| entry.take_back(now))?);
    }
    Ok(recovered)
}

/// Reads the index of all that is pending, once at the start.
pub(super) const UPDATED_AFTER: &str = "
    SELECT number FROM operations INDEXED BY operations_state
    WHERE state IN ('available', 'running', 'retryable') AND updated_at_ms > ?";

pub(super) const LEASES_OF_OTHERS: &str = "
    SELECT number FROM operations INDEXED BY operations_state
    WHERE state = 'running' AND session <> ?";

pub(super) fn report(
    work: &mut Work<'_>,
    number: u64,
    report: Option<&NewOperation>,
) -> Result<(), SqliteError> {
    if work.execute(REPORT, [number])? == 0 {
        return Ok(());
    }
    if let Some(report) = report {
        insert(work, report)?;
    }
    Ok(())
}

pub(super) const REPORT: &str =
    "UPDATE operations SET is_unreported = 0 WHERE number = ? AND is_unreported = 1";

/// Changes an operation, and returns it as it is then.
fn change<T>(
    work: &mut Work<'_>,
    number: u64,
    change: impl FnOnce(&mut Entry) -> Result<T, IllegalTransition>,
) -> Result<Option<StoredOperation>, SqliteError> {
    let Some(mut entry) = rows::by_number(work.connection, number)? else {
        return Ok(None);
    };
    let from = entry.operation.state;
    transition(change(&mut entry))?;
    store(work, from, &mut entry)?;
    Ok(Some(entry.operation))
}

/// Stores an entry that has changed, and blocks all unfinished operations with its order key, but for
/// the first.
fn store(work: &mut Work<'_>, from: OperationState, entry: &mut Entry) -> Result<(), SqliteError> {
    entry.operation.is_blocked &= entry.is_unfinished();
    rows::update(work, from, entry)?;
    let Some(key) = &entry.operation.order_key else {
        return Ok(());
    };
    let members = unfinished(work, key)?;
    let front = front(
        members
            .iter()
            .map(|member| (member.number, member.is_running)),
    );
    for member in members {
        let is_blocked = front != Some(member.number);
        if is_blocked != member.is_blocked {
            work.execute(BLOCK, params![is_blocked, member.number])?;
        }
        if member.number == entry.operation.number {
            entry.operation.is_blocked = is_blocked;
        } else if member.is_blocked && !is_blocked {
            entry.operation.unblocked = member.due;
        }
    }
    Ok(())
}

pub(super) const BLOCK: &str = "UPDATE operations SET is_blocked = ? WHERE number = ?";

/// An unfinished operation with an order key.
struct Member {
    number: u64,
    is_running: bool,
    is_blocked: bool,
    /// Its lane and when it is due, if it waits for a worker.
    due: Option<(Lane, WallTime)>,
}

/// Of the unfinished operations with an order key: those that are not blocked, which are at most two,
/// and the oldest that is blocked.
fn unfinished(work: &Work<'_>, order_key: &str) -> Result<Vec<Member>, SqliteError> {
    let mut members = Vec::new();
    for sql in [UNBLOCKED, OLDEST_BLOCKED] {
        let mut statement = work.connection.prepare_cached(sql)?;
        let mut rows = statement.query([order_key])?;
        while let Some(row) = rows.next()? {
            let state: String = row.get(1)?;
            let lane = Lane {
                destination: row.get(2)?,
                kind: row.get(3)?,
            };
            let due_at = WallTime::from_unix_millis(row.get(4)?);
            members.push(Member {
                number: row.get(0)?,
                is_running: state == "running",
                is_blocked: sql == OLDEST_BLOCKED,
                due: (state == "available" || state == "retryable").then_some((lane, due_at)),
            });
        }
    }
    Ok(members)
}

pub(super) const UNBLOCKED: &str = "
    SELECT number, state, destination, kind, next_at_ms
    FROM operations INDEXED BY operations_order
    WHERE order_key = ? AND is_blocked = 0
        AND state <> 'completed' AND state <> 'failed' AND state <> 'cancelled'";

pub(super) const OLDEST_BLOCKED: &str = "
    SELECT number, state, destination, kind, next_at_ms
    FROM operations INDEXED BY operations_order
    WHERE order_key = ? AND is_blocked = 1
        AND state <> 'completed' AND state <> 'failed' AND state <> 'cancelled'
    ORDER BY number LIMIT 1";

/// The statements above find only operations whose transition is legal.
fn transition<T>(result: Result<T, IllegalTransition>) -> Result<T, SqliteError> {
    result.map_err(|illegal| SqliteError::Row {
        table: "operations",
        reason: illegal.to_string(),
    })
}
