//! What every call does in its transaction.
//!
//! Several nodes do this at once. A row that a call changes is locked from when it is read. Of the
//! operations with one order key, which row may be claimed depends on the others, so whatever inserts,
//! ends or starts one of them holds a lock of the order key first, and then locks the rows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::try_join;
use policy::operation::{IllegalTransition, OperationState};
use policy::time::WallTime;
use tokio_postgres::Row;

use super::payloads::{self, request_columns};
use super::rows::{self, number, select, unsigned};
use crate::error::StoreError;
use crate::operations::entry::{Entry, front};
use crate::operations::{
    AttemptRecord, ClaimId, ClaimResult, Claimed, Claims, Decision, DecisionError,
    ExportedOperation, Inserted, Lane, Lease, NewOperation, RuleDecision, Settlement,
    StoredOperation, Swept,
};
use crate::postgres::call::{ClaimArguments, Pending};
use crate::postgres::database::Work;
use crate::postgres::problem::PostgresError;
use crate::postgres::text::{Text, text};

pub(super) async fn insert(
    work: &mut Work<'_>,
    calls: &mut [&mut Pending<NewOperation, Inserted>],
) -> Result<(), PostgresError> {
    let new: Vec<&NewOperation> = calls.iter().map(|call| &call.arguments).collect();
    let results = insert_all(work, &new).await?;
    for (call, result) in calls.iter_mut().zip(results) {
        call.set(result);
    }
    Ok(())
}

/// Inserts operations; those that name the same id, key or order key in one round after the other.
async fn insert_all(
    work: &mut Work<'_>,
    new: &[&NewOperation],
) -> Result<Vec<Result<Inserted, StoreError>>, PostgresError> {
    let order_keys: BTreeSet<&str> = new
        .iter()
        .filter_map(|new| new.order_key.as_deref())
        .collect();
    if !order_keys.is_empty() {
        let keys: Vec<Text<'_>> = order_keys.into_iter().map(Text).collect();
        work.connection.query(LOCK_ORDER_KEYS, &[&keys]).await?;
    }
    let mut results: Vec<Option<Result<Inserted, StoreError>>> = Vec::new();
    results.resize_with(new.len(), || None);
    let mut left: Vec<usize> = (0..new.len()).collect();
    while !left.is_empty() {
        let known = Known::read(work, left.iter().map(|&place| new[place])).await?;
        left.retain(|&place| {
            results[place] = known.result(new[place]);
            results[place].is_none()
        });
        let round = Round::of(&left, new);
        let work_now = &*work;
        let inserted = work_now.connection.each(round.0, |place: usize| {
            let (new, known) = (new[place], &known);
            async move {
                let order_key = new.order_key.as_deref();
                let is_blocked = order_key.is_some_and(|key| known.unfinished.contains(key));
                let mut entry = Entry::new(0, new, is_blocked);
                let number = rows::insert(work_now, &entry).await?;
                let entry = number.map(|number| {
                    entry.operation.number = number;
                    entry
                });
                Ok::<_, PostgresError>((place, entry))
            }
        });
        let inserted = inserted.await?;
        let stored = inserted
            .iter()
            .filter_map(|(place, entry)| Some((*place, entry.as_ref()?)));
        let requests = stored.map(|(place, entry)| {
            payloads::write_request(work_now, entry.operation.number, &new[place].request)
        });
        work_now
            .connection
            .each(requests, |request| request)
            .await?;
        for (place, entry) in inserted {
            // One that another process has stored at this moment is found in the next round.
            let Some(entry) = entry else { continue };
            work.deltas.change(entry.operation.state, 1);
            if !entry.operation.is_blocked {
                expect(work, entry.operation.lane(), entry.due_at);
            }
            results[place] = Some(Ok(Inserted::New(entry.operation)));
            left.retain(|&other| other != place);
        }
    }
    Ok(results.into_iter().flatten().collect())
}

pub(super) async fn import(
    work: &mut Work<'_>,
    call: &mut Pending<(Vec<ExportedOperation>, WallTime), usize>,
) -> Result<(), PostgresError> {
    let (operations, now) = &call.arguments;
    let mut imported = 0;
    for operation in operations {
        imported += usize::from(import_one(work, operation, *now).await?);
    }
    call.set(Ok(imported));
    Ok(())
}

/// Whether it was not there before.
async fn import_one(
    work: &mut Work<'_>,
    operation: &ExportedOperation,
    now: WallTime,
) -> Result<bool, PostgresError> {
    let mut entry = operation.entry.clone();
    let is_blocked = match &entry.operation.order_key {
        Some(key) => {
            let keys = [Text(key)];
            let keys = &keys[..];
            work.connection.query(LOCK_ORDER_KEYS, &[&keys]).await?;
            let unfinished = work.connection.query(UNFINISHED_KEYS, &[&keys]).await?;
            !unfinished.is_empty()
        }
        None => false,
    };
    transition(entry.import(is_blocked, now))?;
    let Some(number) = rows::insert(work, &entry).await? else {
        return Ok(false);
    };
    entry.operation.number = number;
    rows::update(work, &entry).await?;
    payloads::write_request(work, number, &operation.request).await?;
    if let Some(conflict) = &operation.conflict {
        payloads::write_conflict(work, number, conflict).await?;
    }
    if let Some(response) = &operation.response {
        payloads::write_response(work, number, response).await?;
    }
    let attempts: Vec<_> = operation
        .attempts
        .iter()
        .map(|record| (number, record))
        .collect();
    payloads::add_attempts(work, &attempts).await?;
    work.deltas.change(entry.operation.state, 1);
    if entry.is_waiting() && !entry.operation.is_blocked {
        expect(work, entry.operation.lane(), entry.due_at);
    }
    Ok(true)
}

pub(super) async fn forget(
    work: &mut Work<'_>,
    call: &mut Pending<Vec<u64>, ()>,
) -> Result<(), PostgresError> {
    let numbers: Vec<i64> = call.arguments.iter().copied().map(number).collect();
    for entry in rows::lock(work, &numbers).await? {
        work.deltas.change(entry.operation.state, -1);
    }
    payloads::delete(work, &numbers).await?;
    call.set(Ok(()));
    Ok(())
}

/// The operations of which no two have the same id, key or order key.
struct Round(Vec<usize>);

impl Round {
    fn of(left: &[usize], new: &[&NewOperation]) -> Self {
        let (mut ids, mut keys, mut order_keys) =
            (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let mut chosen = Vec::new();
        for &place in left {
            let new = new[place];
            let key = (&new.client, &new.idempotency_key);
            let order_key = new.order_key.as_ref();
            if ids.contains(&new.id)
                || keys.contains(&key)
                || order_key.is_some_and(|key| order_keys.contains(key))
            {
                continue;
            }
            ids.insert(&new.id);
            keys.insert(key);
            order_keys.extend(order_key);
            chosen.push(place);
        }
        Self(chosen)
    }
}

/// What is stored already of operations that are to be inserted.
struct Known {
    by_key: BTreeMap<(String, String), Entry>,
    ids: BTreeSet<String>,
    /// Order keys with unfinished operations.
    unfinished: BTreeSet<String>,
}

impl Known {
    async fn read<'n>(
        work: &Work<'_>,
        new: impl Iterator<Item = &'n NewOperation> + Clone,
    ) -> Result<Self, PostgresError> {
        let clients: Vec<Text<'_>> = new.clone().map(|new| Text(&new.client)).collect();
        let keys: Vec<Text<'_>> = new.clone().map(|new| Text(&new.idempotency_key)).collect();
        let ids: Vec<Text<'_>> = new.clone().map(|new| Text(&new.id)).collect();
        let order_keys = new.filter_map(|new| new.order_key.as_deref().map(Text));
        let order_keys: Vec<Text<'_>> = order_keys.collect();
        let connection = work.connection;
        let by_key = connection.query(BY_KEYS, &[&clients, &keys]).await?;
        let ids = connection.query(IDS, &[&ids]).await?;
        let unfinished = match order_keys.is_empty() {
            true => Vec::new(),
            false => connection.query(UNFINISHED_KEYS, &[&order_keys]).await?,
        };
        let entries = by_key.iter().map(rows::entry);
        let by_key = entries.map(|entry| {
            let entry = entry?;
            let key = (entry.operation.client.clone(), entry.accepted_key.clone());
            Ok::<_, PostgresError>((key, entry))
        });
        let texts = |rows: Vec<Row>| -> Result<BTreeSet<String>, PostgresError> {
            rows.iter().map(|row| text(row, 0)).collect()
        };
        Ok(Self {
            by_key: by_key.collect::<Result<_, _>>()?,
            ids: texts(ids)?,
            unfinished: texts(unfinished)?,
        })
    }

    fn result(&self, new: &NewOperation) -> Option<Result<Inserted, StoreError>> {
        let key = (new.client.clone(), new.idempotency_key.clone());
        if let Some(entry) = self.by_key.get(&key) {
            return Some(Ok(match entry.fingerprint == new.fingerprint {
                true => Inserted::Same(entry.operation.clone()),
                false => Inserted::OtherRequest,
            }));
        }
        let id = new.id.clone();
        self.ids
            .contains(&id)
            .then_some(Err(StoreError::SameId { id }))
    }
}

const BY_KEYS: &str = select!(
    "FROM unnest($1::text[], $2::text[]) AS k(client, key)
     JOIN operations o ON o.client = k.client AND o.accepted_key = k.key"
);

const IDS: &str = "SELECT id FROM operations WHERE id = ANY($1)";

const UNFINISHED_KEYS: &str = "
    SELECT DISTINCT order_key FROM operations
    WHERE order_key = ANY($1) AND state NOT IN ('completed', 'failed', 'cancelled')";

/// Locks of order keys, until the transaction ends.
const LOCK_ORDER_KEYS: &str = "
    SELECT pg_advisory_xact_lock(key) FROM (
        SELECT DISTINCT hashtextextended(name, 7) AS key FROM unnest($1::text[]) AS name
        ORDER BY key) AS keys";

/// Locks the order keys of operations.
async fn lock_order_keys(work: &Work<'_>, numbers: &[i64]) -> Result<(), PostgresError> {
    if !numbers.is_empty() {
        let sql = "
            SELECT pg_advisory_xact_lock(key) FROM (
                SELECT DISTINCT hashtextextended(order_key, 7) AS key FROM operations
                WHERE number = ANY($1) AND order_key IS NOT NULL ORDER BY key) AS keys";
        work.connection.query(sql, &[&numbers]).await?;
    }
    Ok(())
}

/// Other nodes may claim an operation of a lane.
fn expect(work: &mut Work<'_>, lane: Lane, at: WallTime) {
    let first = work.ready.entry(lane).or_insert(at);
    *first = at.min(*first);
}

pub(super) async fn claim(
    work: &mut Work<'_>,
    calls: &mut [&mut Pending<ClaimArguments, Claims>],
) -> Result<(), PostgresError> {
    let mut lanes: BTreeMap<Lane, Vec<usize>> = BTreeMap::new();
    for (place, call) in calls.iter().enumerate() {
        let lane = call.arguments.lane.clone();
        lanes.entry(lane).or_default().push(place);
    }
    for (lane, places) in lanes {
        let mut claims = claim_in(
            work,
            &lane,
            places.iter().map(|&place| &calls[place].arguments),
        )
        .await?
        .into_iter();
        for place in places {
            calls[place].set(Ok(claims.next().unwrap_or_default()));
        }
    }
    Ok(())
}

/// What each of several claims in one lane gets.
async fn claim_in(
    work: &mut Work<'_>,
    lane: &Lane,
    claims: impl Iterator<Item = &ClaimArguments> + Clone,
) -> Result<Vec<Claims>, PostgresError> {
    let limits: Vec<usize> = claims.clone().map(|claim| claim.limit).collect();
    let lease = Lease {
        now: claims
            .clone()
            .map(|claim| claim.lease.now)
            .max()
            .unwrap_or(EARLIEST),
        until: claims
            .map(|claim| claim.lease.until)
            .max()
            .unwrap_or(EARLIEST),
    };
    let limit: usize = limits
        .iter()
        .fold(0, |sum, &limit| sum.saturating_add(limit));
    let mut due = due(work, lane, lease.now, limit).await?.into_iter();
    let is_empty = due.len() == 0;
    let mut results = Vec::new();
    let mut changed = Vec::new();
    for limit in limits {
        let mut claims = Claims::default();
        for (mut entry, request) in due.by_ref().take(limit) {
            let from = entry.operation.state;
            if entry.has_expired(lease.now) {
                transition(entry.expire(lease.now))?;
                lock_order_keys(work, &[number(entry.operation.number)]).await?;
                store(work, from, &mut entry).await?;
                claims.expired.push(entry.operation);
                continue;
            }
            match request {
                Ok(request) => {
                    let claim = transition(entry.claim(lease, work.session))?;
                    work.deltas.moved(from, entry.operation.state);
                    claims.claimed.push(Claimed {
                        claim,
                        operation: entry.operation.clone(),
                        request,
                    });
                }
                Err(problem) => {
                    entry.put_off(lease.now);
                    let operation = entry.operation.clone();
                    claims.unreadable.push((operation, work.error(problem)));
                }
            }
            changed.push(entry);
        }
        results.push(claims);
    }
    let work = &*work;
    let updates = changed.iter().map(|entry| rows::update(work, entry));
    // The next one is looked for behind these.
    work.connection.prepare(rows::UPDATE).await?;
    work.connection.prepare(FIRST_DUE).await?;
    let updates = work.connection.each(updates, |update| update);
    let (_, first_due) = try_join(updates, first_due(work, lane)).await?;
    let next_at = first_due.map(|at| match at <= lease.now {
        // All of it is locked by others, who claim or change it at this moment.
        true if is_empty && limit > 0 => lease.now + LOCKED_WAIT,
        true => lease.now,
        false => at,
    });
    for claims in &mut results {
        claims.next_at = next_at;
    }
    Ok(results)
}

/// Longer than another's transaction mostly takes.
const LOCKED_WAIT: Duration = Duration::from_millis(20);

const EARLIEST: WallTime = WallTime::from_unix_millis(i64::MIN);

type DueRow = (
    Entry,
    Result<crate::operations::StoredRequest, PostgresError>,
);

/// Locks the first operations of a lane that are due, by priority and time, but for those that are
/// locked by others.
async fn due(
    work: &Work<'_>,
    lane: &Lane,
    now: WallTime,
    limit: usize,
) -> Result<Vec<DueRow>, PostgresError> {
    if limit == 0 {
        return Ok(Vec::new());
    }
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let now = now.as_unix_millis();
    let found = work
        .connection
        .query(
            DUE,
            &[&Text(&lane.destination), &Text(&lane.kind), &now, &limit],
        )
        .await?;
    let mut due = Vec::new();
    for row in &found {
        let entry = rows::entry(row)?;
        let request = payloads::request_of(row, rows::COLUMNS, work.keys, entry.operation.number);
        match request {
            Err(problem) if problem.is_serious() => return Err(problem),
            request => due.push((entry, request)),
        }
    }
    due.sort_by_key(|(entry, _)| {
        let operation = &entry.operation;
        let priority = std::cmp::Reverse(operation.priority);
        (priority, entry.due_at, operation.number)
    });
    Ok(due)
}

/// For every priority in use, from the highest, the rows that are due, until there are enough: each is
/// found by one search of the index.
pub(super) const DUE: &str = select!(
    ", ",
    request_columns!(),
    " FROM (
        WITH RECURSIVE priorities AS (
            (SELECT priority FROM operations
             WHERE state IN ('available', 'retryable') AND NOT is_blocked
                AND destination = $1 AND kind = $2
             ORDER BY priority DESC LIMIT 1)
            UNION ALL
            SELECT (SELECT n.priority FROM operations n
                    WHERE n.state IN ('available', 'retryable') AND NOT n.is_blocked
                        AND n.destination = $1 AND n.kind = $2 AND n.priority < p.priority
                    ORDER BY n.priority DESC LIMIT 1)
            FROM priorities p WHERE p.priority IS NOT NULL
        )
        SELECT d.* FROM priorities p CROSS JOIN LATERAL (
            SELECT n.* FROM operations n
            WHERE n.state IN ('available', 'retryable') AND NOT n.is_blocked
                AND n.destination = $1 AND n.kind = $2
                AND n.priority = p.priority AND n.next_at_ms <= $3
            ORDER BY n.next_at_ms, n.number LIMIT $4 FOR UPDATE SKIP LOCKED
        ) AS d
        WHERE p.priority IS NOT NULL LIMIT $4
     ) AS o
     CROSS JOIN LATERAL (
        SELECT * FROM operation_requests r WHERE r.number = o.number LIMIT 1
     ) AS r"
);

async fn first_due(work: &Work<'_>, lane: &Lane) -> Result<Option<WallTime>, PostgresError> {
    let Lane { destination, kind } = lane;
    let rows = work
        .connection
        .query(FIRST_DUE, &[&Text(destination), &Text(kind)])
        .await?;
    let at: Option<i64> = rows
        .first()
        .map(|row| row.try_get(0))
        .transpose()?
        .flatten();
    Ok(at.map(WallTime::from_unix_millis))
}

pub(super) const FIRST_DUE: &str = "SELECT first_due($1, $2)";

type SettleCall = Pending<(ClaimId, Settlement), Option<StoredOperation>>;

pub(super) async fn settle(
    work: &mut Work<'_>,
    calls: &mut [&mut SettleCall],
) -> Result<(), PostgresError> {
    if calls.is_empty() {
        return Ok(());
    }
    let numbers: BTreeSet<i64> = calls
        .iter()
        .map(|call| number(call.arguments.0.number))
        .collect();
    let numbers: Vec<i64> = numbers.into_iter().collect();
    let ((), entries) =
        tokio::try_join!(lock_order_keys(work, &numbers), rows::lock(work, &numbers))?;
    let mut entries: BTreeMap<u64, Entry> = entries
        .into_iter()
        .map(|entry| (entry.operation.number, entry))
        .collect();
    let mut attempts: Vec<(u64, &AttemptRecord)> = Vec::new();
    let mut settled: Vec<(usize, u64)> = Vec::new();
    let mut results: Vec<Result<Option<StoredOperation>, StoreError>> = Vec::new();
    for (place, call) in calls.iter().enumerate() {
        let (claim, settlement) = &call.arguments;
        results.push(Ok(None));
        let Some(entry) = entries.get_mut(&claim.number) else {
            continue;
        };
        attempts.extend(
            settlement
                .attempts
                .iter()
                .map(|record| (claim.number, record)),
        );
        if !entry.is_claimed_by(*claim) {
            continue;
        }
        let from = entry.operation.state;
        let mut changed = entry.clone();
        match transition(changed.settle(settlement)) {
            Ok(()) => {
                work.deltas.moved(from, changed.operation.state);
                *entry = changed;
                entry.operation.is_blocked &= entry.is_unfinished();
                settled.push((place, claim.number));
            }
            Err(problem) => results[place] = Err(work.error(problem)),
        }
    }
    let shared = &*work;
    let writes = settled.iter().map(|&(place, number)| {
        write_settled(shared, &entries[&number], &calls[place].arguments.1)
    });
    let attempts = payloads::add_attempts(shared, &attempts);
    try_join(attempts, shared.connection.each(writes, |write| write)).await?;
    for (place, number) in settled {
        let mut entry = entries[&number].clone();
        reorder(work, &mut entry).await?;
        results[place] = Ok(Some(entry.operation));
    }
    for (call, result) in calls.iter_mut().zip(results) {
        call.set(result);
    }
    Ok(())
}

/// Writes an operation that was settled, and what came of it.
async fn write_settled(
    work: &Work<'_>,
    entry: &Entry,
    settlement: &Settlement,
) -> Result<(), PostgresError> {
    rows::update(work, entry).await?;
    let number = entry.operation.number;
    match &settlement.result {
        ClaimResult::Completed(Some(response)) => {
            payloads::write_response(work, number, response).await
        }
        ClaimResult::Conflict(conflict, rule) => match rule {
            _ if entry.operation.state == OperationState::Conflict => {
                payloads::write_conflict(work, number, conflict).await
            }
            Some(RuleDecision::Send(change)) => {
                payloads::write_request(work, number, &change.request).await
            }
            Some(RuleDecision::Complete) | None => Ok(()),
        },
        ClaimResult::Completed(None)
        | ClaimResult::Retry(_)
        | ClaimResult::Failed(_)
        | ClaimResult::Released => Ok(()),
    }
}

pub(super) async fn heartbeat(
    work: &Work<'_>,
    call: &mut Pending<(Vec<ClaimId>, Lease), ()>,
) -> Result<(), PostgresError> {
    let (claims, lease) = &call.arguments;
    let numbers: Vec<i64> = claims.iter().map(|claim| number(claim.number)).collect();
    let fences: Vec<i64> = claims.iter().map(|claim| number(claim.fence)).collect();
    let until = lease.until.as_unix_millis();
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 3] = [&until, &numbers, &fences];
    work.connection.execute(HEARTBEAT, &values).await?;
    call.set(Ok(()));
    Ok(())
}

const HEARTBEAT: &str = "
    UPDATE operations o SET lease_until_ms = $1
    FROM unnest($2::bigint[], $3::bigint[]) AS c(number, fence)
    WHERE o.number = c.number AND o.fence = c.fence
        AND o.state = 'running' AND o.lease_until_ms < $1";

pub(super) async fn decide(
    work: &mut Work<'_>,
    call: &mut Pending<Decision, Result<StoredOperation, DecisionError>>,
) -> Result<(), PostgresError> {
    let decided = decide_one(work, &call.arguments).await?;
    call.set(Ok(decided));
    Ok(())
}

async fn decide_one(
    work: &mut Work<'_>,
    decision: &Decision,
) -> Result<Result<StoredOperation, DecisionError>, PostgresError> {
    let found = work
        .connection
        .query(NUMBER_OF_ID, &[&Text(&decision.id)])
        .await?;
    let Some(row) = found.first() else {
        return Ok(Err(DecisionError::Unknown));
    };
    let number: i64 = row.try_get(0)?;
    lock_order_keys(work, &[number]).await?;
    let Some(mut entry) = rows::lock(work, &[number]).await?.pop() else {
        return Ok(Err(DecisionError::Unknown));
    };
    let from = entry.operation.state;
    if let Err(illegal) = entry.decide(decision.event, decision.now) {
        return Ok(Err(illegal.into()));
    }
    if let Some(change) = &decision.request {
        entry
            .operation
            .idempotency_key
            .clone_from(&change.idempotency_key);
        payloads::write_request(work, entry.operation.number, &change.request).await?;
    }
    if from == OperationState::Conflict {
        payloads::delete_conflict(work, entry.operation.number).await?;
    }
    store(work, from, &mut entry).await?;
    Ok(Ok(entry.operation))
}

const NUMBER_OF_ID: &str = "SELECT number FROM operations WHERE id = $1";

pub(super) async fn sweep(
    work: &mut Work<'_>,
    call: &mut Pending<(WallTime, usize), Swept>,
) -> Result<(), PostgresError> {
    let (now, limit) = call.arguments;
    let mut swept = Swept::default();
    for mut entry in lock_due(work, EXPIRED, now, limit).await? {
        if entry.has_expired(now) {
            let from = entry.operation.state;
            transition(entry.expire(now))?;
            store(work, from, &mut entry).await?;
            swept.expired.push(entry.operation);
        }
    }
    for mut entry in lock_due(work, LEASE_ENDED, now, limit).await? {
        if entry.lease.is_some_and(|lease| lease.until <= now) {
            let from = entry.operation.state;
            transition(entry.take_back(now))?;
            store(work, from, &mut entry).await?;
            swept.reclaimed.push(entry.operation);
        }
    }
    let retained = lock_due(work, RETAINED, now, limit).await?;
    let ended = |entry: &Entry| entry.retain_until.is_some_and(|until| until <= now);
    let mut deleted = Vec::new();
    for entry in retained.into_iter().filter(ended) {
        work.deltas.change(entry.operation.state, -1);
        deleted.push(number(entry.operation.number));
    }
    if !deleted.is_empty() {
        payloads::delete(work, &deleted).await?;
    }
    swept.deleted = deleted.len();
    call.set(Ok(swept));
    Ok(())
}

pub(super) const EXPIRED: &str = "
    SELECT number FROM operations
    WHERE state IN ('available', 'retryable') AND expires_at_ms <= $1
    ORDER BY expires_at_ms, number LIMIT $2";

pub(super) const LEASE_ENDED: &str = "
    SELECT number FROM operations WHERE state = 'running' AND lease_until_ms <= $1
    ORDER BY lease_until_ms, number LIMIT $2";

pub(super) const RETAINED: &str = "
    SELECT number FROM operations WHERE retain_until_ms <= $1
    ORDER BY retain_until_ms, number LIMIT $2";

/// Locks the operations that a statement finds, in its order, but for those that are locked by others.
/// They may have changed since they were found.
async fn lock_due(
    work: &Work<'_>,
    sql: &'static str,
    now: WallTime,
    limit: usize,
) -> Result<Vec<Entry>, PostgresError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let found = work
        .connection
        .query(sql, &[&now.as_unix_millis(), &limit])
        .await?;
    let numbers: Vec<i64> = found
        .iter()
        .map(|row| row.try_get(0))
        .collect::<Result<_, _>>()?;
    if numbers.is_empty() {
        return Ok(Vec::new());
    }
    lock_order_keys(work, &numbers).await?;
    let locked = work.connection.query(LOCK_FREE, &[&numbers]).await?;
    locked.iter().map(rows::entry).collect()
}

const LOCK_FREE: &str = select!(
    "FROM operations o WHERE o.number = ANY($1)
     ORDER BY array_position($1, o.number) FOR UPDATE SKIP LOCKED"
);

pub(super) async fn recover(
    work: &mut Work<'_>,
    call: &mut Pending<WallTime, Vec<StoredOperation>>,
) -> Result<(), PostgresError> {
    let now = call.arguments;
    let later = work
        .connection
        .query(UPDATED_AFTER, &[&now.as_unix_millis()])
        .await?;
    for row in &later {
        let mut entry = rows::entry(row)?;
        if entry.was_updated_after(now) {
            entry.move_back(now);
            rows::update(work, &entry).await?;
        }
    }
    let session = number(work.session);
    let lost = work
        .connection
        .query(LEASES_BEFORE, &[&work.node, &session])
        .await?;
    let numbers: Vec<i64> = lost
        .iter()
        .map(|row| row.try_get(0))
        .collect::<Result<_, _>>()?;
    lock_order_keys(work, &numbers).await?;
    let mut recovered = Vec::new();
    for mut entry in rows::lock(work, &numbers).await? {
        let is_lost = entry
            .lease
            .is_some_and(|lease| lease.session != work.session);
        if is_lost {
            let from = entry.operation.state;
            transition(entry.take_back(now))?;
            store(work, from, &mut entry).await?;
            recovered.push(entry.operation);
        }
    }
    call.set(Ok(recovered));
    Ok(())
}

/// Reads all that is pending, once at the start.
const UPDATED_AFTER: &str = select!(
    "FROM operations o WHERE o.state IN ('available', 'running', 'retryable')
        AND o.updated_at_ms > $1 FOR UPDATE SKIP LOCKED"
);

/// What this node was sending before its last restart. What others send is none of its business.
const LEASES_BEFORE: &str = "
    SELECT number FROM operations WHERE state = 'running' AND node = $1 AND session <> $2
    ORDER BY number";

pub(super) async fn report(
    work: &mut Work<'_>,
    call: &mut Pending<(u64, Option<NewOperation>), ()>,
) -> Result<(), PostgresError> {
    let (reported, report) = &call.arguments;
    let reported = number(*reported);
    let unreported = work.connection.query(UNREPORTED, &[&reported]).await?;
    if unreported.is_empty() {
        call.set(Ok(()));
        return Ok(());
    }
    let inserted = match report {
        Some(report) => insert_all(work, &[report]).await?.pop(),
        None => None,
    };
    if let Some(Err(error)) = inserted {
        call.set(Err(error));
        return Ok(());
    }
    work.connection.execute(REPORTED, &[&reported]).await?;
    call.set(Ok(()));
    Ok(())
}

const UNREPORTED: &str =
    "SELECT number FROM operations WHERE number = $1 AND is_unreported FOR UPDATE";

const REPORTED: &str = "UPDATE operations SET is_unreported = false WHERE number = $1";

/// Stores an entry that has changed, and blocks all unfinished operations with its order key, but for
/// the first. The order key is locked.
async fn store(
    work: &mut Work<'_>,
    from: OperationState,
    entry: &mut Entry,
) -> Result<(), PostgresError> {
    entry.operation.is_blocked &= entry.is_unfinished();
    rows::update(work, entry).await?;
    work.deltas.moved(from, entry.operation.state);
    reorder(work, entry).await
}

async fn reorder(work: &mut Work<'_>, entry: &mut Entry) -> Result<(), PostgresError> {
    let Some(key) = &entry.operation.order_key else {
        return Ok(());
    };
    let members = unfinished(work, key).await?;
    let front = front(
        members
            .iter()
            .map(|member| (member.number, member.is_running)),
    );
    for member in members {
        let is_blocked = front != Some(member.number);
        if is_blocked != member.is_blocked {
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 2] =
                [&is_blocked, &number(member.number)];
            work.connection.execute(BLOCK, &values).await?;
        }
        if member.number == entry.operation.number {
            entry.operation.is_blocked = is_blocked;
        } else if member.is_blocked && !is_blocked {
            entry.operation.unblocked = member.due;
        }
    }
    if let Some((lane, at)) = &entry.operation.unblocked {
        expect(work, lane.clone(), *at);
    }
    Ok(())
}

const BLOCK: &str = "UPDATE operations SET is_blocked = $1 WHERE number = $2";

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
async fn unfinished(work: &Work<'_>, order_key: &str) -> Result<Vec<Member>, PostgresError> {
    let mut members = Vec::new();
    for sql in [UNBLOCKED, OLDEST_BLOCKED] {
        for row in work.connection.query(sql, &[&Text(order_key)]).await? {
            let state: String = row.try_get(1)?;
            let lane = Lane {
                destination: text(&row, 2)?,
                kind: text(&row, 3)?,
            };
            let due_at = rows::time(&row, 4)?;
            members.push(Member {
                number: unsigned(&row, 0)?,
                is_running: state == "running",
                is_blocked: sql == OLDEST_BLOCKED,
                due: (state == "available" || state == "retryable").then_some((lane, due_at)),
            });
        }
    }
    Ok(members)
}

const UNBLOCKED: &str = "
    SELECT number, state, destination, kind, next_at_ms FROM operations
    WHERE order_key = $1 AND NOT is_blocked
        AND state NOT IN ('completed', 'failed', 'cancelled')
    ORDER BY number FOR UPDATE";

const OLDEST_BLOCKED: &str = "
    SELECT number, state, destination, kind, next_at_ms FROM operations
    WHERE order_key = $1 AND is_blocked
        AND state NOT IN ('completed', 'failed', 'cancelled')
    ORDER BY number LIMIT 1 FOR UPDATE";

/// The statements above find only operations whose transition is legal.
fn transition<T>(result: Result<T, IllegalTransition>) -> Result<T, PostgresError> {
    result.map_err(|illegal| PostgresError::Row {
        table: "operations",
        reason: illegal.to_string(),
    })
}
