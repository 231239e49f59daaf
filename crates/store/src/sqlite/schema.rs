//! The tables, and how a file of an older version gets those of today.
//!
//! `user_version` counts the steps that a file has had. A step is never changed once it was
//! released: what comes later is a step of its own.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::problem::SqliteError;
use crate::error::OpenError;

/// The steps, each from one version to the next.
const STEPS: &[&str] = &[
    FIRST,
    REFRESH_TOKENS,
    OPERATIONS,
    CHEAPER_STATES,
    JOBS,
    SINCE,
    LISTS,
    COSTS,
    BANS,
    REJECTED_CREDENTIALS,
    JOB_CLAIMS,
];

const FIRST: &str = "
    CREATE TABLE gates (
        key TEXT NOT NULL PRIMARY KEY,
        rate_per_second REAL,
        ceiling_per_second REAL,
        hold_ns INTEGER,
        hold_source TEXT,
        breaker TEXT NOT NULL
            CHECK (breaker IN ('closed', 'open', 'half_open', 'isolated')),
        breaker_open_ns INTEGER NOT NULL,
        breaker_openings INTEGER NOT NULL,
        written_at_ms INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE endpoints (
        pool TEXT NOT NULL,
        name TEXT NOT NULL,
        consecutive_errors INTEGER NOT NULL,
        pause_ns INTEGER,
        last_error TEXT,
        disabled TEXT CHECK (disabled IN ('errors', 'quota_exhausted', 'person')),
        disabled_errors INTEGER,
        written_at_ms INTEGER NOT NULL,
        PRIMARY KEY (pool, name)
    ) STRICT, WITHOUT ROWID;

    -- A pool without values has all defaults; one that is not here is as configured.
    CREATE TABLE protections (
        pool TEXT NOT NULL PRIMARY KEY
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE protection_values (
        pool TEXT NOT NULL,
        name TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (pool, name)
    ) STRICT, WITHOUT ROWID;

    -- Headers are a list of pairs: a name, and where the secret is found.
    CREATE TABLE added_endpoints (
        number INTEGER PRIMARY KEY,
        pool TEXT NOT NULL,
        name TEXT NOT NULL,
        url TEXT NOT NULL,
        headers TEXT NOT NULL,
        UNIQUE (pool, name)
    ) STRICT;

    CREATE TABLE removed_endpoints (
        pool TEXT NOT NULL,
        name TEXT NOT NULL,
        PRIMARY KEY (pool, name)
    ) STRICT, WITHOUT ROWID;
";

const REFRESH_TOKENS: &str = "
    -- The origin is a fingerprint of the configuration that the token descends from.
    CREATE TABLE refresh_tokens (
        credential TEXT NOT NULL PRIMARY KEY,
        origin TEXT NOT NULL,
        token TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
";

const OPERATIONS: &str = "
    -- What changes often, without bodies. Times are unix milliseconds. The client's own key is
    -- accepted_key; a replaced request is sent with another idempotency_key.
    CREATE TABLE operations (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL,
        client TEXT NOT NULL,
        accepted_key TEXT NOT NULL,
        fingerprint BLOB NOT NULL,
        kind TEXT NOT NULL,
        destination TEXT NOT NULL,
        summary TEXT NOT NULL,
        credential TEXT,
        backoff TEXT,
        order_key TEXT,
        priority INTEGER NOT NULL,
        trace_id TEXT,
        accepted_at_ms INTEGER NOT NULL,
        lifetime_ms INTEGER NOT NULL,
        retain_ms INTEGER NOT NULL,
        is_reported INTEGER NOT NULL,
        idempotency_key TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN
            ('available', 'running', 'retryable', 'completed', 'failed', 'conflict', 'cancelled')),
        reason TEXT,
        merges INTEGER NOT NULL,
        sent INTEGER NOT NULL,
        attempts INTEGER NOT NULL,
        directed_waits INTEGER NOT NULL,
        is_refreshed INTEGER NOT NULL,
        is_blocked INTEGER NOT NULL,
        next_at_ms INTEGER NOT NULL,
        expires_at_ms INTEGER NOT NULL,
        ended_at_ms INTEGER,
        retain_until_ms INTEGER,
        fence INTEGER NOT NULL,
        session INTEGER,
        lease_until_ms INTEGER,
        is_unreported INTEGER NOT NULL,
        updated_at_ms INTEGER NOT NULL
    ) STRICT;

    CREATE UNIQUE INDEX operations_id ON operations (id);
    CREATE UNIQUE INDEX operations_key ON operations (client, accepted_key);
    CREATE INDEX operations_claim ON operations (destination, kind, priority, next_at_ms)
        WHERE state IN ('available', 'retryable') AND is_blocked = 0;
    CREATE INDEX operations_expiry ON operations (expires_at_ms)
        WHERE state IN ('available', 'retryable');
    CREATE INDEX operations_lease ON operations (state, lease_until_ms) WHERE state = 'running';
    CREATE INDEX operations_order ON operations (order_key, is_blocked)
        WHERE order_key IS NOT NULL
            AND state IN ('available', 'running', 'retryable', 'conflict');
    CREATE INDEX operations_retention ON operations (retain_until_ms)
        WHERE retain_until_ms IS NOT NULL;
    CREATE INDEX operations_unreported ON operations (is_unreported, ended_at_ms)
        WHERE is_unreported = 1;
    CREATE INDEX operations_state ON operations (state, kind, number, updated_at_ms);
    CREATE INDEX operations_reason ON operations (reason) WHERE reason IS NOT NULL;

    -- With a key_id, all values but method, status and times are sealed with that key: nonce and
    -- tag at their end.
    CREATE TABLE operation_requests (
        number INTEGER PRIMARY KEY,
        key_id BLOB,
        method TEXT NOT NULL,
        url ANY NOT NULL,
        headers ANY NOT NULL,
        base BLOB,
        resource ANY,
        body BLOB NOT NULL
    ) STRICT;

    CREATE TABLE operation_conflicts (
        number INTEGER PRIMARY KEY,
        key_id BLOB,
        fetched_at_ms INTEGER NOT NULL,
        etag ANY,
        theirs BLOB
    ) STRICT;

    CREATE TABLE operation_responses (
        number INTEGER PRIMARY KEY,
        key_id BLOB,
        status INTEGER NOT NULL,
        headers ANY NOT NULL,
        body BLOB NOT NULL
    ) STRICT;

    CREATE TABLE operation_attempts (
        number INTEGER NOT NULL,
        ordinal INTEGER NOT NULL,
        at_ms INTEGER NOT NULL,
        phase TEXT NOT NULL,
        status INTEGER,
        latency_ns INTEGER NOT NULL,
        waited_ns INTEGER NOT NULL,
        reason TEXT NOT NULL,
        PRIMARY KEY (number, ordinal)
    ) STRICT, WITHOUT ROWID;

    -- With a key_id, the token is sealed with that key, in hex.
    ALTER TABLE refresh_tokens ADD COLUMN key_id BLOB;
";

/// Makes a change of an operation's state cheaper.
///
/// For a list of more than two values, SQLite builds a table of them whenever a row is written. A
/// constraint can be replaced by one that allows the same rows in the text of the schema, as
/// <https://sqlite.org/lang_altertable.html#otheralter> describes it, without copying the table.
///
/// Running operations are few, and found by their state.
const CHEAPER_STATES: &str = "
    PRAGMA writable_schema = ON;
    UPDATE sqlite_schema
    SET sql = replace(sql,
        'CHECK (state IN
            (''available'', ''running'', ''retryable'', ''completed'', ''failed'', ''conflict'', ''cancelled''))',
        'CHECK (state = ''completed'' OR state = ''running'' OR state = ''available''
            OR state = ''retryable'' OR state = ''failed'' OR state = ''conflict''
            OR state = ''cancelled'')')
    WHERE name = 'operations';
    PRAGMA writable_schema = RESET;

    DROP INDEX operations_lease;
    DROP INDEX operations_order;
    CREATE INDEX operations_order ON operations (order_key, is_blocked)
        WHERE order_key IS NOT NULL
            AND state <> 'completed' AND state <> 'failed' AND state <> 'cancelled';
";

const JOBS: &str = "
    -- Times are unix milliseconds; the counts are of URLs, requests and bytes.
    CREATE TABLE jobs (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL,
        slug TEXT NOT NULL,
        summary TEXT NOT NULL,
        status TEXT NOT NULL
            CHECK (status IN ('queued', 'running', 'done', 'error', 'cancelled')),
        stage TEXT NOT NULL,
        permille INTEGER NOT NULL DEFAULT 0,
        error TEXT,
        created_at_ms INTEGER NOT NULL,
        started_at_ms INTEGER,
        finished_at_ms INTEGER,
        known INTEGER NOT NULL DEFAULT 0,
        queued INTEGER NOT NULL DEFAULT 0,
        in_flight INTEGER NOT NULL DEFAULT 0,
        retrying INTEGER NOT NULL DEFAULT 0,
        done INTEGER NOT NULL DEFAULT 0,
        failed INTEGER NOT NULL DEFAULT 0,
        denied INTEGER NOT NULL DEFAULT 0,
        not_modified INTEGER NOT NULL DEFAULT 0,
        sent INTEGER NOT NULL DEFAULT 0,
        bytes INTEGER NOT NULL DEFAULT 0
    ) STRICT;

    CREATE UNIQUE INDEX jobs_id ON jobs (id);
    CREATE UNIQUE INDEX jobs_slug ON jobs (slug);
    CREATE INDEX jobs_status ON jobs (status);
    CREATE INDEX jobs_finished ON jobs (finished_at_ms) WHERE finished_at_ms IS NOT NULL;

    -- With a key_id, the request is sealed with that key: nonce and tag at its end.
    CREATE TABLE job_requests (
        number INTEGER PRIMARY KEY,
        key_id BLOB,
        request BLOB NOT NULL
    ) STRICT;
";

/// Since when an endpoint is paused or disabled.
const SINCE: &str = "
    ALTER TABLE endpoints ADD COLUMN paused_for_ns INTEGER;
    ALTER TABLE endpoints ADD COLUMN disabled_for_ns INTEGER;
";

/// Lists by destination and by reason. No index here has a column that a delivery changes: of those
/// with a reason, only failed, conflicting and cancelled operations are in the index.
const LISTS: &str = "
    CREATE INDEX operations_destination ON operations (destination, kind, number);
    DROP INDEX operations_reason;
    CREATE INDEX operations_reason ON operations (reason, kind, number) WHERE reason IS NOT NULL;
    CREATE INDEX operations_ended ON operations (destination, reason, number)
        WHERE reason IS NOT NULL;
";

/// What gates learned of limits on cost; no mean if costs are not counted.
const COSTS: &str = "
    ALTER TABLE gates ADD COLUMN cost_per_second REAL;
    ALTER TABLE gates ADD COLUMN cost_ceiling_per_second REAL;
    ALTER TABLE gates ADD COLUMN cost_mean REAL;
";

/// The rates that gates may not exceed since a server banned this client.
const BANS: &str = "
    ALTER TABLE gates ADD COLUMN banned_above_per_second REAL;
";

/// One more reason to disable an endpoint. The constraint is replaced as in [`CHEAPER_STATES`].
const REJECTED_CREDENTIALS: &str = "
    PRAGMA writable_schema = ON;
    UPDATE sqlite_schema
    SET sql = replace(sql,
        'CHECK (disabled IN (''errors'', ''quota_exhausted'', ''person''))',
        'CHECK (disabled IN (''errors'', ''quota_exhausted'', ''credential_rejected'', ''person''))')
    WHERE name = 'endpoints';
    PRAGMA writable_schema = RESET;
";

/// Which claim of a job is its last, and when it ends.
const JOB_CLAIMS: &str = "
    ALTER TABLE jobs ADD COLUMN fence INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE jobs ADD COLUMN lease_until_ms INTEGER;
";

/// Says whose file it is: \"TIDG\".
const APPLICATION: i32 = 0x5449_4447;

/// Files up to this size are checked at the start, which takes less than a second. In larger ones
/// damage is found when its page is read.
const CHECKED_UP_TO: u64 = 64 << 20;

/// Brings a file to the present version, after a check that it is one of ours and
/// undamaged. Any other file stays as it is.
pub(super) fn prepare(connection: &mut Connection, path: &Path) -> Result<(), OpenError> {
    let opening = |problem: SqliteError| problem.opening(path);
    let found = version(connection).map_err(opening)?;
    let known = STEPS.len() as i64;
    let Some(found) = found else {
        let path = path.to_owned();
        return Err(OpenError::Foreign { path });
    };
    if found > known {
        let path = path.to_owned();
        return Err(OpenError::Newer { path, found, known });
    }
    check(connection, path)?;
    use_log(connection).map_err(opening)?;
    migrate(connection, found).map_err(opening)
}

/// How many steps the file has had; `None` if it is not ours.
fn version(connection: &Connection) -> Result<Option<i64>, SqliteError> {
    let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let application = number("application_id")?;
    let version = number("user_version")?;
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let is_ours = application == i64::from(APPLICATION);
    let is_new = application == 0 && version == 0 && tables == 0;
    Ok((is_ours || is_new).then_some(version))
}

fn check(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let size = std::fs::metadata(path).map_or(0, |data| data.len());
    if size > CHECKED_UP_TO {
        return Ok(());
    }
    let found: rusqlite::Result<String> =
        connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0));
    match found.map_err(|error| SqliteError::from(error).opening(path))? {
        fine if fine == "ok" => Ok(()),
        reason => Err(OpenError::Damaged {
            path: path.to_owned(),
            reason,
        }),
    }
}

/// With a write-ahead log a commit is one sync, and readers do not wait for the writer.
fn use_log(connection: &Connection) -> Result<(), SqliteError> {
    connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    Ok(())
}

fn migrate(connection: &mut Connection, found: i64) -> Result<(), SqliteError> {
    let done = usize::try_from(found).unwrap_or(0);
    match STEPS.get(done..) {
        None | Some([]) => Ok(()),
        Some(missing) => take_steps(connection, missing, STEPS.len()),
    }
}

fn take_steps(
    connection: &mut Connection,
    missing: &[&str],
    version: usize,
) -> Result<(), SqliteError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for step in missing {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", version as i64)?;
    transaction.commit()?;
    Ok(())
}

/// Makes an empty file one of an older version.
#[cfg(test)]
pub(super) fn create_version(path: &Path, version: usize) -> Connection {
    let mut connection = Connection::open(path).unwrap();
    take_steps(&mut connection, &STEPS[..version], version).unwrap();
    connection
}
