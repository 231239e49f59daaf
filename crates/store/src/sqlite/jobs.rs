//! Jobs in the file. Requests are in a table of their own, so that neither a list of jobs nor a change
//! of a status reads or writes one.

use policy::time::WallTime;
use rusqlite::{CachedStatement, Connection, OptionalExtension, Params, Row, named_params, params};

use super::database::Work;
use super::problem::SqliteError;
use super::{Sqlite, limit_of};
use crate::jobs::{
    CancelError, ClaimedJob, JobClaim, JobCounts, JobEnd, JobProgress, JobStatus, JobStore,
    JobTotals, NewJob, StateCopy, StoredJob,
};
use crate::operations::{Lease, QueueFuture, SealError};
use crate::queue::Share;
use crate::seal::{Keys, Place};

impl JobStore for Sqlite {
    fn insert(&self, job: NewJob, max_queued: u64) -> QueueFuture<Option<StoredJob>> {
        self.call(job.request.len(), Share::Half, move |work| {
            insert(work, &job, max_queued)
        })
    }

    fn recover(&self) -> QueueFuture<u64> {
        self.call(0, Share::Whole, |work| queue_again(work, RECOVER, []))
    }

    fn claim(&self, lease: Lease) -> QueueFuture<Option<ClaimedJob>> {
        let path = self.path.clone();
        self.call(0, Share::Whole, move |work| {
            let Some(mut job) = one(work.connection, FIRST_QUEUED, [])? else {
                return Ok(None);
            };
            job.claim(lease.now);
            write(work, &job, JobStatus::Queued)?;
            extend(work, &job, lease.until)?;
            let request = request(work.connection, work.keys, job.number);
            let request = request.map_err(|problem| problem.at(&path));
            Ok(Some(ClaimedJob {
                job,
                request,
                copy: StateCopy::default(),
            }))
        })
    }

    fn update(&self, claim: JobClaim, progress: JobProgress, until: WallTime) -> QueueFuture<bool> {
        self.call(0, Share::Whole, move |work| {
            let Some(mut job) = running(work, claim)? else {
                return Ok(false);
            };
            job.update(progress);
            write(work, &job, JobStatus::Running)?;
            extend(work, &job, until)?;
            Ok(true)
        })
    }

    fn release(&self, claim: JobClaim) -> QueueFuture<bool> {
        self.call(0, Share::Whole, move |work| {
            let Some(mut job) = running(work, claim)? else {
                return Ok(false);
            };
            job.status = JobStatus::Queued;
            write(work, &job, JobStatus::Running)?;
            Ok(true)
        })
    }

    fn finish(&self, claim: JobClaim, end: JobEnd) -> QueueFuture<Option<StoredJob>> {
        self.call(0, Share::Whole, move |work| {
            let Some(mut job) = running(work, claim)? else {
                return Ok(None);
            };
            job.finish(end);
            write(work, &job, JobStatus::Running)?;
            Ok(Some(job))
        })
    }

    fn sweep(&self, now: WallTime) -> QueueFuture<u64> {
        let now = now.as_unix_millis();
        self.call(0, Share::Whole, move |work| queue_again(work, SWEEP, [now]))
    }

    fn cancel(&self, id: &str, now: WallTime) -> QueueFuture<Result<StoredJob, CancelError>> {
        let id = id.to_owned();
        self.call(0, Share::Whole, move |work| {
            let Some(mut job) = one(work.connection, BY_ID, [&id])? else {
                return Ok(Err(CancelError::Unknown));
            };
            let before = job.status;
            if let Err(error) = job.cancel(now) {
                return Ok(Err(error));
            }
            write(work, &job, before)?;
            Ok(Ok(job))
        })
    }

    fn get(&self, id: &str) -> QueueFuture<Option<StoredJob>> {
        let id = id.to_owned();
        self.readers
            .read(move |connection, _| one(connection, BY_ID, [&id]))
    }

    fn by_slug(&self, slug: &str) -> QueueFuture<Option<StoredJob>> {
        let slug = slug.to_owned();
        self.readers
            .read(move |connection, _| one(connection, BY_SLUG, [&slug]))
    }

    fn page(&self, before: Option<u64>, limit: usize) -> QueueFuture<Vec<StoredJob>> {
        let before = before.map_or(i64::MAX, |before| i64::try_from(before).unwrap_or(i64::MAX));
        self.readers.read(move |connection, _| {
            all(
                connection.prepare_cached(PAGE)?,
                params![before, limit_of(limit)],
            )
        })
    }

    fn ended(&self, until: WallTime, limit: usize) -> QueueFuture<Vec<StoredJob>> {
        let until = until.as_unix_millis();
        self.readers.read(move |connection, _| {
            all(
                connection.prepare_cached(ENDED)?,
                params![until, limit_of(limit)],
            )
        })
    }

    fn delete(&self, number: u64) -> QueueFuture<()> {
        self.call(0, Share::Whole, move |work| {
            let job = one(work.connection, BY_NUMBER, [number])?;
            if let Some(job) = job.filter(|job| job.status.is_ended()) {
                work.execute("DELETE FROM job_requests WHERE number = ?", [number])?;
                work.execute("DELETE FROM jobs WHERE number = ?", [number])?;
                work.jobs.remove(job.status, 1);
            }
            Ok(())
        })
    }

    fn totals(&self) -> JobTotals {
        self.counts.jobs()
    }
}

fn insert(
    work: &mut Work<'_>,
    job: &NewJob,
    max_queued: u64,
) -> Result<Option<StoredJob>, SqliteError> {
    if work.jobs.of(JobStatus::Queued) >= max_queued {
        return Ok(None);
    }
    let sql = "INSERT INTO jobs (id, slug, summary, status, stage, created_at_ms)
               VALUES (?, ?, ?, ?, ?, ?)";
    work.execute(
        sql,
        params![
            job.id,
            job.slug,
            job.summary,
            JobStatus::Queued.as_str(),
            job.stage,
            job.created_at.as_unix_millis(),
        ],
    )?;
    let number = u64::try_from(work.connection.last_insert_rowid()).unwrap_or_default();
    let row = number.to_string();
    let sealed = work.keys.seal(place(&row), job.request.as_bytes());
    let sealed = sealed.map_err(|error| SqliteError::sealed(place(&row), error))?;
    let sql = "INSERT INTO job_requests (number, key_id, request) VALUES (?, ?, ?)";
    work.execute(sql, params![number, work.keys.id(), sealed])?;
    work.jobs.add(JobStatus::Queued, 1);
    Ok(Some(StoredJob::new(number, job)))
}

/// Queues running jobs again by a statement; how many there are.
fn queue_again(
    work: &mut Work<'_>,
    sql: &'static str,
    params: impl Params,
) -> Result<u64, SqliteError> {
    let queued = work.execute(sql, params)? as u64;
    work.jobs
        .change(JobStatus::Running, JobStatus::Queued, queued);
    Ok(queued)
}

const RECOVER: &str = "UPDATE jobs INDEXED BY jobs_status SET status = 'queued'
                       WHERE status = 'running'";

const SWEEP: &str = "UPDATE jobs INDEXED BY jobs_status SET status = 'queued'
                     WHERE status = 'running' AND lease_until_ms <= ?";

fn running(work: &Work<'_>, claim: JobClaim) -> Result<Option<StoredJob>, SqliteError> {
    let job = one(work.connection, BY_NUMBER, [claim.number])?;
    Ok(job.filter(|job| job.runs_under(claim)))
}

/// Writes until when a running job is claimed.
fn extend(work: &Work<'_>, job: &StoredJob, until: WallTime) -> Result<(), SqliteError> {
    let sql = "UPDATE jobs SET lease_until_ms = ? WHERE number = ?";
    work.execute(sql, params![until.as_unix_millis(), job.number])?;
    Ok(())
}

/// Writes what can change of a job that had another status before.
fn write(work: &mut Work<'_>, job: &StoredJob, before: JobStatus) -> Result<(), SqliteError> {
    let millis = |at: Option<WallTime>| at.map(WallTime::as_unix_millis);
    let JobProgress {
        stage,
        permille,
        counts,
    } = &job.progress;
    work.execute(
        WRITE,
        named_params! {
            ":number": job.number,
            ":status": job.status.as_str(),
            ":stage": stage,
            ":permille": permille,
            ":error": job.error,
            ":started_at_ms": millis(job.started_at),
            ":finished_at_ms": millis(job.finished_at),
            ":known": counts.known,
            ":queued": counts.queued,
            ":in_flight": counts.in_flight,
            ":retrying": counts.retrying,
            ":done": counts.done,
            ":failed": counts.failed,
            ":denied": counts.denied,
            ":not_modified": counts.not_modified,
            ":sent": counts.sent,
            ":bytes": counts.bytes,
            ":fence": job.fence,
        },
    )?;
    work.jobs.change(before, job.status, 1);
    Ok(())
}

const WRITE: &str = "
    UPDATE jobs SET status = :status, stage = :stage, permille = :permille, error = :error,
        started_at_ms = :started_at_ms, finished_at_ms = :finished_at_ms, known = :known,
        queued = :queued, in_flight = :in_flight, retrying = :retrying, done = :done,
        failed = :failed, denied = :denied, not_modified = :not_modified, sent = :sent,
        bytes = :bytes, fence = :fence
    WHERE number = :number";

/// How many jobs there are in the file.
pub(super) fn count(connection: &Connection) -> Result<JobTotals, SqliteError> {
    let mut totals = JobTotals::default();
    let mut statement = connection.prepare(COUNT)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        totals.add(status(&row.get::<_, String>(0)?)?, row.get(1)?);
    }
    Ok(totals)
}

const COUNT: &str = "SELECT status, count(*) FROM jobs INDEXED BY jobs_status GROUP BY status";

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

const BY_NUMBER: &str = select!("WHERE number = ?");
const BY_ID: &str = select!("INDEXED BY jobs_id WHERE id = ?");
const BY_SLUG: &str = select!("INDEXED BY jobs_slug WHERE slug = ?");
const FIRST_QUEUED: &str =
    select!("INDEXED BY jobs_status WHERE status = 'queued' ORDER BY number LIMIT 1");
const PAGE: &str = select!("WHERE number < ? ORDER BY number DESC LIMIT ?");
const ENDED: &str = select!(
    "INDEXED BY jobs_finished WHERE finished_at_ms <= ? ORDER BY finished_at_ms, number LIMIT ?"
);

fn one(
    connection: &Connection,
    sql: &str,
    params: impl Params,
) -> Result<Option<StoredJob>, SqliteError> {
    Ok(all(connection.prepare_cached(sql)?, params)?.pop())
}

/// Reads all rows of a statement that begins with [`select`].
fn all(
    mut statement: CachedStatement<'_>,
    params: impl Params,
) -> Result<Vec<StoredJob>, SqliteError> {
    let mut rows = statement.query(params)?;
    let mut jobs = Vec::new();
    while let Some(row) = rows.next()? {
        jobs.push(job(row)?);
    }
    Ok(jobs)
}

fn job(row: &Row<'_>) -> Result<StoredJob, SqliteError> {
    let time = |name| Ok::<_, SqliteError>(row.get::<_, Option<i64>>(name)?);
    let counts = JobCounts {
        known: row.get("known")?,
        queued: row.get("queued")?,
        in_flight: row.get("in_flight")?,
        retrying: row.get("retrying")?,
        done: row.get("done")?,
        failed: row.get("failed")?,
        denied: row.get("denied")?,
        not_modified: row.get("not_modified")?,
        sent: row.get("sent")?,
        bytes: row.get("bytes")?,
    };
    Ok(StoredJob {
        number: row.get("number")?,
        id: row.get("id")?,
        slug: row.get("slug")?,
        summary: row.get("summary")?,
        status: status(&row.get::<_, String>("status")?)?,
        progress: JobProgress {
            stage: row.get("stage")?,
            permille: row.get("permille")?,
            counts,
        },
        error: row.get("error")?,
        created_at: WallTime::from_unix_millis(row.get("created_at_ms")?),
        started_at: time("started_at_ms")?.map(WallTime::from_unix_millis),
        finished_at: time("finished_at_ms")?.map(WallTime::from_unix_millis),
        fence: row.get("fence")?,
    })
}

fn status(word: &str) -> Result<JobStatus, SqliteError> {
    JobStatus::named(word).ok_or_else(|| SqliteError::Row {
        table: "jobs",
        reason: format!("there is no status `{word}`"),
    })
}

fn request(connection: &Connection, keys: &Keys, number: u64) -> Result<String, SqliteError> {
    let sql = "SELECT key_id, request FROM job_requests WHERE number = ?";
    let mut statement = connection.prepare_cached(sql)?;
    let row = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let row: Option<(Option<Vec<u8>>, Vec<u8>)> = statement.query_row([number], row).optional()?;
    let name = number.to_string();
    let (key_id, stored) = row.ok_or_else(|| SqliteError::Row {
        table: "job_requests",
        reason: format!("there is no row {number}"),
    })?;
    let bytes = match key_id {
        None => Ok(stored),
        Some(key_id) => keys.open(&key_id, place(&name), stored),
    };
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).map_err(|_| SealError::Tampered));
    text.map_err(|error| SqliteError::sealed(place(&name), error))
}

fn place(row: &str) -> Place<'_> {
    Place {
        table: "job_requests",
        row,
        column: "request",
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;
    use tempfile::TempDir;

    use super::*;
    use crate::conformance::jobs::{job, lease};
    use crate::operations::wait;
    use crate::sqlite::schema;
    use crate::{Store, StoreError};

    fn open(folder: &TempDir, keys: &str) -> Store {
        Store::open_encrypted(folder.path(), keys.parse().unwrap_or_default()).unwrap()
    }

    const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

    #[test]
    fn every_statement_searches_its_index() {
        let folder = tempfile::tempdir().unwrap();
        drop(open(&folder, ""));
        let connection = Connection::open(folder.path().join("tidegate.db")).unwrap();
        for (sql, expected) in [
            (BY_NUMBER, "SEARCH jobs USING INTEGER PRIMARY KEY (rowid=?)"),
            (BY_ID, "SEARCH jobs USING INDEX jobs_id (id=?)"),
            (BY_SLUG, "SEARCH jobs USING INDEX jobs_slug (slug=?)"),
            (
                FIRST_QUEUED,
                "SEARCH jobs USING INDEX jobs_status (status=?)",
            ),
            (RECOVER, "SEARCH jobs USING INDEX jobs_status (status=?)"),
            (SWEEP, "SEARCH jobs USING INDEX jobs_status (status=?)"),
            (PAGE, "SEARCH jobs USING INTEGER PRIMARY KEY (rowid<?)"),
            (
                ENDED,
                "SEARCH jobs USING INDEX jobs_finished (finished_at_ms<?)",
            ),
            (WRITE, "SEARCH jobs USING INTEGER PRIMARY KEY (rowid=?)"),
            (COUNT, "SCAN jobs USING COVERING INDEX jobs_status"),
        ] {
            let mut statement = connection
                .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
                .unwrap();
            let mut rows = statement.raw_query();
            let mut plan: Vec<String> = Vec::new();
            while let Some(row) = rows.next().unwrap() {
                plan.push(row.get("detail").unwrap());
            }
            assert_eq!(plan, [expected], "{sql}");
        }
    }

    #[test]
    fn a_file_without_jobs_gets_their_tables() {
        let folder = tempfile::tempdir().unwrap();
        let old = schema::create_version(&folder.path().join("tidegate.db"), 4);
        old.execute_batch("INSERT INTO removed_endpoints VALUES ('llm', 'a')")
            .unwrap();
        drop(old);
        let store = open(&folder, "");
        assert_eq!(store.load().unwrap().removed.len(), 1);
        assert!(wait(store.jobs().insert(job("a"), 1)).unwrap().is_some());
    }

    #[test]
    fn requests_are_encrypted_with_a_key() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&folder, KEY);
        for id in ["a", "b"] {
            wait(store.jobs().insert(job(id), 9)).unwrap();
        }
        let claimed = wait(store.jobs().claim(lease(1)));
        assert_eq!(claimed.unwrap().unwrap().request, Ok(job("a").request));
        drop(store);
        for file in std::fs::read_dir(folder.path()).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            assert!(!bytes.windows(6).any(|part| part == b"secret"));
        }
        let without_key = open(&folder, "");
        let claimed = wait(without_key.jobs().claim(lease(1)));
        let claimed = claimed.unwrap().unwrap();
        assert_eq!(claimed.job.id, "b");
        assert!(matches!(claimed.request, Err(StoreError::Sealed { .. })));
    }
}
