//! Jobs in the database: any node lists and cancels them, one runs each, and another goes on with it when
//! its lease has ended.
//!
//! Beside its row, a job has a copy of its state in parts, each as it was appended, and its report. With a
//! key, requests, parts and reports are sealed.

use policy::time::WallTime;
use tokio_postgres::Row;

use super::Postgres;
use super::call::{Call, Pending};
use super::connection::{Connection, Values};
use super::database::Work;
use super::problem::PostgresError;
use super::text::{Text, optional_text, text};
use crate::error::StoreError;
use crate::jobs::{
    CancelError, ClaimedJob, JobClaim, JobCounts, JobEnd, JobFiles, JobListener, JobProgress,
    JobStatus, JobStore, JobTotals, NewJob, StateCopy, StoredJob,
};
use crate::operations::{Lease, QueueFuture, SealError};
use crate::queue::Share;
use crate::seal::{Keys, Place};

/// A call about jobs that waits.
pub(super) enum JobCall {
    Insert(Pending<(NewJob, u64), Option<StoredJob>>),
    Recover(Pending<(), u64>),
    Claim(Pending<Lease, Option<ClaimedJob>>),
    Update(Pending<(JobClaim, JobProgress, WallTime), bool>),
    Release(Pending<JobClaim, bool>),
    Finish(Pending<(JobClaim, JobEnd), Option<StoredJob>>),
    Sweep(Pending<WallTime, u64>),
    Cancel(Pending<(String, WallTime), Result<StoredJob, CancelError>>),
    Delete(Pending<u64, ()>),
    Append(Pending<(JobClaim, u64, Vec<u8>), Option<u64>>),
    SaveReport(Pending<(JobClaim, Vec<u8>), bool>),
}

/// Does the same with a call, whichever it is.
macro_rules! with_call {
    ($self:ident, $call:ident => $result:expr) => {
        match $self {
            Self::Insert($call) => $result,
            Self::Recover($call) => $result,
            Self::Claim($call) => $result,
            Self::Update($call) => $result,
            Self::Release($call) => $result,
            Self::Finish($call) => $result,
            Self::Sweep($call) => $result,
            Self::Cancel($call) => $result,
            Self::Delete($call) => $result,
            Self::Append($call) => $result,
            Self::SaveReport($call) => $result,
        }
    };
}

impl JobCall {
    pub(super) fn has_failed(&self) -> bool {
        with_call!(self, call => call.has_failed())
    }

    pub(super) fn finish(self, committed: Result<(), StoreError>) {
        with_call!(self, call => call.finish(committed));
    }
}

impl JobStore for Postgres {
    fn insert(&self, job: NewJob, max_queued: u64) -> QueueFuture<Option<StoredJob>> {
        let call = |call| Call::Job(JobCall::Insert(call));
        self.call(job.request.len(), Share::Half, call, (job, max_queued))
    }

    fn recover(&self) -> QueueFuture<u64> {
        self.job_call(JobCall::Recover, ())
    }

    fn claim(&self, lease: Lease) -> QueueFuture<Option<ClaimedJob>> {
        self.job_call(JobCall::Claim, lease)
    }

    fn update(&self, claim: JobClaim, progress: JobProgress, until: WallTime) -> QueueFuture<bool> {
        self.job_call(JobCall::Update, (claim, progress, until))
    }

    fn release(&self, claim: JobClaim) -> QueueFuture<bool> {
        self.job_call(JobCall::Release, claim)
    }

    fn finish(&self, claim: JobClaim, end: JobEnd) -> QueueFuture<Option<StoredJob>> {
        self.job_call(JobCall::Finish, (claim, end))
    }

    fn sweep(&self, now: WallTime) -> QueueFuture<u64> {
        self.job_call(JobCall::Sweep, now)
    }

    fn cancel(&self, id: &str, now: WallTime) -> QueueFuture<Result<StoredJob, CancelError>> {
        self.job_call(JobCall::Cancel, (id.to_owned(), now))
    }

    fn get(&self, id: &str) -> QueueFuture<Option<StoredJob>> {
        let id = id.to_owned();
        self.reader
            .read(async move |connection, _| one(&connection, BY_ID, &[&Text(&id)]).await)
    }

    fn by_slug(&self, slug: &str) -> QueueFuture<Option<StoredJob>> {
        let slug = slug.to_owned();
        self.reader
            .read(async move |connection, _| one(&connection, BY_SLUG, &[&Text(&slug)]).await)
    }

    fn page(&self, before: Option<u64>, limit: usize) -> QueueFuture<Vec<StoredJob>> {
        let before = signed(before.unwrap_or(u64::MAX));
        let limit = signed(limit as u64);
        self.reader
            .read(async move |connection, _| all(&connection, PAGE, &[&before, &limit]).await)
    }

    fn ended(&self, until: WallTime, limit: usize) -> QueueFuture<Vec<StoredJob>> {
        let (until, limit) = (until.as_unix_millis(), signed(limit as u64));
        self.reader
            .read(async move |connection, _| all(&connection, ENDED, &[&until, &limit]).await)
    }

    fn delete(&self, number: u64) -> QueueFuture<()> {
        self.job_call(JobCall::Delete, number)
    }

    fn totals(&self) -> JobTotals {
        self.counts.jobs()
    }

    fn listen(&self, listener: JobListener) {
        self.notifications.set_job_listener(listener);
    }
}

impl JobFiles for Postgres {
    fn append(&self, claim: JobClaim, at: u64, bytes: Vec<u8>) -> QueueFuture<Option<u64>> {
        let call = |call| Call::Job(JobCall::Append(call));
        self.call(bytes.len(), Share::Whole, call, (claim, at, bytes))
    }

    fn part(&self, number: u64, at: u64) -> QueueFuture<Option<Vec<u8>>> {
        self.reader
            .read(async move |connection, keys| part(&connection, &keys, number, at).await)
    }

    fn save_report(&self, claim: JobClaim, report: Vec<u8>) -> QueueFuture<bool> {
        let call = |call| Call::Job(JobCall::SaveReport(call));
        self.call(report.len(), Share::Whole, call, (claim, report))
    }

    fn report(&self, number: u64) -> QueueFuture<Option<Vec<u8>>> {
        self.reader.read(async move |connection, keys| {
            let sql = "SELECT key_id, report FROM job_reports WHERE number = $1";
            let rows = connection.query(sql, &[&signed(number)]).await?;
            let row = rows.first();
            row.map(|row| open(&keys, row, 0, place(REPORTS, &number.to_string())))
                .transpose()
        })
    }
}

impl Postgres {
    fn job_call<A, T: Send + 'static>(
        &self,
        call: impl FnOnce(Pending<A, T>) -> JobCall,
        arguments: A,
    ) -> QueueFuture<T> {
        let call = |pending| Call::Job(call(pending));
        self.call(0, Share::Whole, call, arguments)
    }
}

/// Makes a call.
pub(super) async fn make(work: &mut Work<'_>, call: &mut JobCall) -> Result<(), PostgresError> {
    match call {
        JobCall::Insert(call) => {
            let (job, max_queued) = &call.arguments;
            let inserted = insert(work, job, *max_queued).await?;
            call.set(Ok(inserted));
        }
        JobCall::Recover(call) => {
            let recovered = work.connection.execute(RECOVER, &[&work.node]).await?;
            call.set(Ok(queued_again(work, recovered)));
        }
        JobCall::Claim(call) => {
            let claimed = claim(work, call.arguments).await?;
            call.set(Ok(claimed));
        }
        JobCall::Update(call) => {
            let (claim, progress, until) = &call.arguments;
            let job = running(work, *claim).await?;
            let is_running = job.is_some();
            if let Some(mut job) = job {
                job.update(progress.clone());
                write(work, &job, Some(*until)).await?;
            }
            call.set(Ok(is_running));
        }
        JobCall::Release(call) => {
            let job = running(work, call.arguments).await?;
            let is_running = job.is_some();
            if let Some(mut job) = job {
                job.status = JobStatus::Queued;
                write(work, &job, None).await?;
                queued_again(work, 1);
            }
            call.set(Ok(is_running));
        }
        JobCall::Finish(call) => {
            let (claim, end) = &call.arguments;
            let mut job = running(work, *claim).await?;
            if let Some(job) = &mut job {
                job.finish(end.clone());
                end_job(work, job).await?;
            }
            call.set(Ok(job));
        }
        JobCall::Sweep(call) => {
            let now = call.arguments.as_unix_millis();
            let swept = work.connection.execute(SWEEP, &[&now]).await?;
            call.set(Ok(queued_again(work, swept)));
        }
        JobCall::Cancel(call) => {
            let (id, now) = &call.arguments;
            let cancelled = cancel(work, id, *now).await?;
            call.set(Ok(cancelled));
        }
        JobCall::Delete(call) => {
            delete(work, call.arguments).await?;
            call.set(Ok(()));
        }
        JobCall::Append(call) => {
            let (claim, at, bytes) = &call.arguments;
            let length = append(work, *claim, *at, bytes).await?;
            call.set(Ok(length));
        }
        JobCall::SaveReport(call) => {
            let (claim, report) = &call.arguments;
            let is_saved = save_report(work, *claim, report).await?;
            call.set(Ok(is_saved));
        }
    }
    Ok(())
}

/// Nodes that insert at the same moment do not see each other's jobs, so a few more may be queued.
async fn insert(
    work: &mut Work<'_>,
    job: &NewJob,
    max_queued: u64,
) -> Result<Option<StoredJob>, PostgresError> {
    const INSERT: &str = "
        INSERT INTO jobs (id, slug, summary, status, stage, created_at_ms)
        SELECT $1::text, $2::text, $3::text, 'queued', $4::text, $5::bigint
        WHERE (SELECT count(*) FROM jobs WHERE status = 'queued') < $6::bigint
        RETURNING number";
    let values: Values<'_> = &[
        &Text(&job.id),
        &Text(&job.slug),
        &Text(&job.summary),
        &Text(&job.stage),
        &job.created_at.as_unix_millis(),
        &signed(max_queued),
    ];
    let rows = work.connection.query(INSERT, values).await?;
    let Some(row) = rows.first() else {
        return Ok(None);
    };
    let number = unsigned(row, 0)?;
    let sealed = seal(
        work.keys,
        place(REQUESTS, &number.to_string()),
        job.request.as_bytes(),
    )?;
    let sql = "INSERT INTO job_requests (number, key_id, request) VALUES ($1, $2, $3)";
    let values: Values<'_> = &[&signed(number), &key_id(work.keys), &sealed];
    work.connection.execute(sql, values).await?;
    queued_again(work, 1);
    Ok(Some(StoredJob::new(number, job)))
}

/// Notes that so many jobs were queued, which other nodes may claim.
fn queued_again(work: &mut Work<'_>, jobs: u64) -> u64 {
    work.changes_jobs |= jobs > 0;
    work.announces_jobs |= jobs > 0;
    jobs
}

const RECOVER: &str = "
    UPDATE jobs SET status = 'queued', lease_until_ms = NULL
    WHERE status = 'running' AND node = $1";

const SWEEP: &str = "
    UPDATE jobs SET status = 'queued', lease_until_ms = NULL
    WHERE number IN (
        SELECT number FROM jobs WHERE status = 'running' AND lease_until_ms <= $1
        FOR UPDATE SKIP LOCKED)";

async fn claim(work: &mut Work<'_>, lease: Lease) -> Result<Option<ClaimedJob>, PostgresError> {
    let Some(mut job) = one(work.connection, FIRST_QUEUED, &[]).await? else {
        return Ok(None);
    };
    job.claim(lease.now);
    write(work, &job, Some(lease.until)).await?;
    work.changes_jobs = true;
    let sql = "UPDATE jobs SET node = $2 WHERE number = $1
               RETURNING state_bytes, coalesce(state_node = $2, true)";
    let rows = work
        .connection
        .query(sql, &[&signed(job.number), &work.node])
        .await?;
    let copy = match rows.first() {
        Some(row) => StateCopy {
            length: unsigned(row, 0)?,
            is_own: row.try_get(1)?,
        },
        None => StateCopy::default(),
    };
    let request = request(work, job.number).await?;
    Ok(Some(ClaimedJob { job, request, copy }))
}

/// A request that cannot be opened is an error of its own, not of the transaction.
async fn request(
    work: &Work<'_>,
    number: u64,
) -> Result<Result<String, StoreError>, PostgresError> {
    let sql = "SELECT key_id, request FROM job_requests WHERE number = $1";
    let rows = work.connection.query(sql, &[&signed(number)]).await?;
    let row = rows.first().ok_or_else(|| PostgresError::Row {
        table: REQUESTS,
        reason: format!("there is no row {number}"),
    });
    let name = number.to_string();
    let opened = row.and_then(|row| open(work.keys, row, 0, place(REQUESTS, &name)));
    let text = opened.and_then(|bytes| {
        let text = String::from_utf8(bytes).map_err(|_| SealError::Tampered);
        text.map_err(|error| PostgresError::sealed(place(REQUESTS, &name), error))
    });
    Ok(text.map_err(|problem| work.error(problem)))
}

async fn cancel(
    work: &mut Work<'_>,
    id: &str,
    now: WallTime,
) -> Result<Result<StoredJob, CancelError>, PostgresError> {
    let Some(mut job) = one(work.connection, LOCK_BY_ID, &[&Text(id)]).await? else {
        return Ok(Err(CancelError::Unknown));
    };
    if let Err(error) = job.cancel(now) {
        return Ok(Err(error));
    }
    end_job(work, &job).await?;
    // The node that runs it stops.
    work.announces_jobs = true;
    Ok(Ok(job))
}

/// Stores the end of a job, which needs its state no more.
async fn end_job(work: &mut Work<'_>, job: &StoredJob) -> Result<(), PostgresError> {
    write(work, job, None).await?;
    let sql = "DELETE FROM job_states WHERE number = $1";
    work.connection.execute(sql, &[&signed(job.number)]).await?;
    work.changes_jobs = true;
    Ok(())
}

async fn delete(work: &mut Work<'_>, number: u64) -> Result<(), PostgresError> {
    let sql = "DELETE FROM jobs WHERE number = $1 AND status IN ('done', 'error', 'cancelled')";
    let number = signed(number);
    if work.connection.execute(sql, &[&number]).await? == 0 {
        return Ok(());
    }
    for sql in [
        "DELETE FROM job_requests WHERE number = $1",
        "DELETE FROM job_states WHERE number = $1",
        "DELETE FROM job_reports WHERE number = $1",
    ] {
        work.connection.execute(sql, &[&number]).await?;
    }
    work.changes_jobs = true;
    Ok(())
}

async fn append(
    work: &Work<'_>,
    claim: JobClaim,
    at: u64,
    bytes: &[u8],
) -> Result<Option<u64>, PostgresError> {
    if running(work, claim).await?.is_none() {
        return Ok(None);
    }
    let number = signed(claim.number);
    let sql = "SELECT state_bytes FROM jobs WHERE number = $1";
    let rows = work.connection.query(sql, &[&number]).await?;
    let length = rows.first().map_or(Ok(0), |row| unsigned(row, 0))?;
    if length != at || bytes.is_empty() {
        return Ok(Some(length));
    }
    let sealed = seal(
        work.keys,
        place(STATES, &part_name(claim.number, at)),
        bytes,
    )?;
    let sql = "INSERT INTO job_states (number, at, key_id, bytes) VALUES ($1, $2, $3, $4)";
    let values: Values<'_> = &[&number, &signed(at), &key_id(work.keys), &sealed];
    work.connection.execute(sql, values).await?;
    let length = at + bytes.len() as u64;
    let sql = "UPDATE jobs SET state_bytes = $2, state_node = $3 WHERE number = $1";
    let values: Values<'_> = &[&number, &signed(length), &work.node];
    work.connection.execute(sql, values).await?;
    Ok(Some(length))
}

/// Several parts at once: some are as short as what a job does in a second.
async fn part(
    connection: &Connection,
    keys: &Keys,
    number: u64,
    at: u64,
) -> Result<Option<Vec<u8>>, PostgresError> {
    let sql = "SELECT at, key_id, bytes FROM job_states WHERE number = $1 AND at >= $2
               ORDER BY at LIMIT 16";
    let rows = connection
        .query(sql, &[&signed(number), &signed(at)])
        .await?;
    let mut bytes = Vec::new();
    for row in &rows {
        let name = part_name(number, unsigned(row, 0)?);
        bytes.extend(open(keys, row, 1, place(STATES, &name))?);
    }
    Ok((!bytes.is_empty()).then_some(bytes))
}

fn part_name(number: u64, at: u64) -> String {
    format!("{number}/{at}")
}

async fn save_report(
    work: &Work<'_>,
    claim: JobClaim,
    report: &[u8],
) -> Result<bool, PostgresError> {
    if running(work, claim).await?.is_none() {
        return Ok(false);
    }
    let sealed = seal(work.keys, place(REPORTS, &claim.number.to_string()), report)?;
    let sql = "INSERT INTO job_reports (number, key_id, report) VALUES ($1, $2, $3)
               ON CONFLICT (number) DO UPDATE SET key_id = excluded.key_id, report = excluded.report";
    let values: Values<'_> = &[&signed(claim.number), &key_id(work.keys), &sealed];
    work.connection.execute(sql, values).await?;
    Ok(true)
}

/// Locks a job that runs under this claim.
async fn running(work: &Work<'_>, claim: JobClaim) -> Result<Option<StoredJob>, PostgresError> {
    let job = one(work.connection, LOCK_BY_NUMBER, &[&signed(claim.number)]).await?;
    Ok(job.filter(|job| job.runs_under(claim)))
}

/// Writes what can change of a job. `until` is the end of its lease, if it has one.
async fn write(
    work: &Work<'_>,
    job: &StoredJob,
    until: Option<WallTime>,
) -> Result<(), PostgresError> {
    let millis = |at: Option<WallTime>| at.map(WallTime::as_unix_millis);
    let JobProgress {
        stage,
        permille,
        counts,
    } = &job.progress;
    let values: Values<'_> = &[
        &signed(job.number),
        &job.status.as_str(),
        &Text(stage),
        &i32::from(*permille),
        &job.error.as_deref().map(Text),
        &millis(job.started_at),
        &millis(job.finished_at),
        &signed(counts.known),
        &signed(counts.queued),
        &signed(counts.in_flight),
        &signed(counts.retrying),
        &signed(counts.done),
        &signed(counts.failed),
        &signed(counts.denied),
        &signed(counts.not_modified),
        &signed(counts.sent),
        &signed(counts.bytes),
        &signed(job.fence),
        &millis(until),
    ];
    work.connection.execute(WRITE, values).await?;
    Ok(())
}

const WRITE: &str = "
    UPDATE jobs SET status = $2, stage = $3, permille = $4, error = $5, started_at_ms = $6,
        finished_at_ms = $7, known = $8, queued = $9, in_flight = $10, retrying = $11, done = $12,
        failed = $13, denied = $14, not_modified = $15, sent = $16, bytes = $17, fence = $18,
        lease_until_ms = $19
    WHERE number = $1";

/// How many jobs there are.
pub(super) async fn totals(connection: &Connection) -> Result<JobTotals, PostgresError> {
    let mut totals = JobTotals::default();
    let sql = "SELECT status, count(*) FROM jobs GROUP BY status";
    for row in &connection.query(sql, &[]).await? {
        totals.add(status(&text(row, 0)?)?, unsigned(row, 1)?);
    }
    Ok(totals)
}

/// The columns that [`job`] reads.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT number, id, slug, summary, status, stage, permille, error, created_at_ms,
                started_at_ms, finished_at_ms, known, queued, in_flight, retrying, done, failed,
                denied, not_modified, sent, bytes, fence
             FROM jobs ",
            $rest
        )
    };
}

const LOCK_BY_NUMBER: &str = select!("WHERE number = $1 FOR UPDATE");
const LOCK_BY_ID: &str = select!("WHERE id = $1 FOR UPDATE");
const BY_ID: &str = select!("WHERE id = $1");
const BY_SLUG: &str = select!("WHERE slug = $1");
const FIRST_QUEUED: &str =
    select!("WHERE status = 'queued' ORDER BY number LIMIT 1 FOR UPDATE SKIP LOCKED");
const PAGE: &str = select!("WHERE number < $1 ORDER BY number DESC LIMIT $2");
const ENDED: &str = select!("WHERE finished_at_ms <= $1 ORDER BY finished_at_ms, number LIMIT $2");

async fn one(
    connection: &Connection,
    sql: &'static str,
    values: Values<'_>,
) -> Result<Option<StoredJob>, PostgresError> {
    Ok(all(connection, sql, values).await?.pop())
}

/// Reads all rows of a statement that begins with [`select`].
async fn all(
    connection: &Connection,
    sql: &'static str,
    values: Values<'_>,
) -> Result<Vec<StoredJob>, PostgresError> {
    let rows = connection.query(sql, values).await?;
    rows.iter().map(job).collect()
}

fn job(row: &Row) -> Result<StoredJob, PostgresError> {
    let time = |index| -> Result<Option<WallTime>, PostgresError> {
        let millis: Option<i64> = row.try_get(index)?;
        Ok(millis.map(WallTime::from_unix_millis))
    };
    let permille: i32 = row.try_get(6)?;
    Ok(StoredJob {
        number: unsigned(row, 0)?,
        id: text(row, 1)?,
        slug: text(row, 2)?,
        summary: text(row, 3)?,
        status: status(&text(row, 4)?)?,
        progress: JobProgress {
            stage: text(row, 5)?,
            permille: u16::try_from(permille).unwrap_or(0),
            counts: JobCounts {
                known: unsigned(row, 11)?,
                queued: unsigned(row, 12)?,
                in_flight: unsigned(row, 13)?,
                retrying: unsigned(row, 14)?,
                done: unsigned(row, 15)?,
                failed: unsigned(row, 16)?,
                denied: unsigned(row, 17)?,
                not_modified: unsigned(row, 18)?,
                sent: unsigned(row, 19)?,
                bytes: unsigned(row, 20)?,
            },
        },
        error: optional_text(row, 7)?,
        created_at: WallTime::from_unix_millis(row.try_get(8)?),
        started_at: time(9)?,
        finished_at: time(10)?,
        fence: unsigned(row, 21)?,
    })
}

fn status(word: &str) -> Result<JobStatus, PostgresError> {
    JobStatus::named(word).ok_or_else(|| PostgresError::Row {
        table: "jobs",
        reason: format!("there is no status `{word}`"),
    })
}

const REQUESTS: &str = "job_requests";
const STATES: &str = "job_states";
const REPORTS: &str = "job_reports";

fn place<'a>(table: &'static str, row: &'a str) -> Place<'a> {
    Place {
        table,
        row,
        column: "bytes",
    }
}

fn key_id(keys: &Keys) -> Option<Vec<u8>> {
    keys.id().map(Vec::from)
}

fn seal(keys: &Keys, place: Place<'_>, bytes: &[u8]) -> Result<Vec<u8>, PostgresError> {
    let sealed = keys.seal(place, bytes);
    sealed.map_err(|error| PostgresError::sealed(place, error))
}

/// The value behind the column of its key, as it was sealed.
fn open(keys: &Keys, row: &Row, first: usize, place: Place<'_>) -> Result<Vec<u8>, PostgresError> {
    let key_id: Option<Vec<u8>> = row.try_get(first)?;
    let stored: Vec<u8> = row.try_get(first + 1)?;
    let opened = match key_id {
        None => Ok(stored),
        Some(key_id) => keys.open(&key_id, place, stored),
    };
    opened.map_err(|error| PostgresError::sealed(place, error))
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(row: &Row, index: usize) -> Result<u64, PostgresError> {
    let value: i64 = row.try_get(index)?;
    Ok(u64::try_from(value).unwrap_or(0))
}
