//! The tables, in a schema of their own, and how a database of an older version gets those of today.
//!
//! Nodes that start at the same time take the steps one after the other, under a lock; a later node
//! finds them taken. A step is never changed once it was released: what comes later is a step
//! of its own. Nodes of the version before still run meanwhile, so a step only adds.

use std::time::Duration;

use policy::time::WallTime;

use super::address::DatabaseAddress;
use super::connection::Connection;
use super::problem::PostgresError;
use crate::error::OpenError;

/// The steps, each from one version to the next.
const STEPS: &[&str] = &[FIRST, POOLS, JOBS];

/// Every change of an operation writes into all indexes that its row is in, so there are few, and most
/// have only rows in some states.
///
/// Times are unix milliseconds. Texts that are compared sort by their bytes, as in every other store.
const FIRST: &str = r#"
    CREATE TABLE operations (
        number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        id TEXT COLLATE "C" NOT NULL,
        client TEXT COLLATE "C" NOT NULL,
        accepted_key TEXT COLLATE "C" NOT NULL,
        fingerprint BYTEA NOT NULL,
        kind TEXT COLLATE "C" NOT NULL,
        destination TEXT COLLATE "C" NOT NULL,
        summary TEXT NOT NULL,
        credential TEXT,
        backoff TEXT,
        order_key TEXT COLLATE "C",
        priority INTEGER NOT NULL,
        trace_id TEXT,
        accepted_at_ms BIGINT NOT NULL,
        lifetime_ms BIGINT NOT NULL,
        retain_ms BIGINT NOT NULL,
        is_reported BOOLEAN NOT NULL,
        idempotency_key TEXT NOT NULL,
        state TEXT COLLATE "C" NOT NULL CHECK (state IN
            ('available', 'running', 'retryable', 'completed', 'failed', 'conflict', 'cancelled')),
        reason TEXT COLLATE "C",
        merges SMALLINT NOT NULL DEFAULT 0,
        sent BIGINT NOT NULL DEFAULT 0,
        attempts BIGINT NOT NULL DEFAULT 0,
        directed_waits BIGINT NOT NULL DEFAULT 0,
        is_refreshed BOOLEAN NOT NULL DEFAULT false,
        is_blocked BOOLEAN NOT NULL,
        next_at_ms BIGINT NOT NULL,
        expires_at_ms BIGINT NOT NULL,
        ended_at_ms BIGINT,
        retain_until_ms BIGINT,
        fence BIGINT NOT NULL DEFAULT 0,
        node BIGINT,
        session BIGINT,
        lease_until_ms BIGINT,
        is_unreported BOOLEAN NOT NULL DEFAULT false,
        updated_at_ms BIGINT NOT NULL
    ) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02,
            autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

    CREATE UNIQUE INDEX operations_id ON operations (id);
    CREATE UNIQUE INDEX operations_key ON operations (client, accepted_key);
    CREATE INDEX operations_claim ON operations (destination, kind, priority, next_at_ms, number)
        WHERE state IN ('available', 'retryable') AND NOT is_blocked;
    CREATE INDEX operations_expiry ON operations (expires_at_ms, number)
        WHERE state IN ('available', 'retryable');
    CREATE INDEX operations_lease ON operations (lease_until_ms, number) WHERE state = 'running';
    CREATE INDEX operations_order ON operations (order_key, is_blocked, number)
        WHERE order_key IS NOT NULL AND state NOT IN ('completed', 'failed', 'cancelled');
    CREATE INDEX operations_retention ON operations (retain_until_ms, number)
        WHERE retain_until_ms IS NOT NULL;
    CREATE INDEX operations_unreported ON operations (ended_at_ms, number) WHERE is_unreported;
    CREATE INDEX operations_ended ON operations (reason, number) WHERE reason IS NOT NULL;
    CREATE INDEX operations_state ON operations (state, number);
    CREATE INDEX operations_destination ON operations (destination, number);

    -- With a key_id, all values but method, status and times are sealed with that key: nonce and tag
    -- at their end. Without, texts are readable as convert_from(url, 'UTF8').
    CREATE TABLE operation_requests (
        number BIGINT PRIMARY KEY,
        key_id BYTEA,
        method TEXT NOT NULL,
        url BYTEA NOT NULL,
        headers BYTEA NOT NULL,
        base BYTEA,
        resource BYTEA,
        body BYTEA NOT NULL
    );

    CREATE TABLE operation_conflicts (
        number BIGINT PRIMARY KEY,
        key_id BYTEA,
        fetched_at_ms BIGINT NOT NULL,
        etag BYTEA,
        theirs BYTEA
    );

    CREATE TABLE operation_responses (
        number BIGINT PRIMARY KEY,
        key_id BYTEA,
        status INTEGER NOT NULL,
        headers BYTEA NOT NULL,
        body BYTEA NOT NULL
    );

    CREATE TABLE operation_attempts (
        number BIGINT NOT NULL,
        ordinal BIGINT GENERATED ALWAYS AS IDENTITY,
        at_ms BIGINT NOT NULL,
        phase TEXT NOT NULL,
        status INTEGER,
        latency_ns BIGINT NOT NULL,
        waited_ns BIGINT NOT NULL,
        reason TEXT NOT NULL,
        PRIMARY KEY (number, ordinal)
    );

    -- How many operations each node has moved into a state, less those that it has moved out of it.
    -- The sum over all rows is how many there are. A node writes only its own row, so that none waits
    -- for another.
    CREATE TABLE operation_counts (
        node BIGINT PRIMARY KEY,
        available BIGINT NOT NULL,
        running BIGINT NOT NULL,
        retryable BIGINT NOT NULL,
        completed BIGINT NOT NULL,
        failed BIGINT NOT NULL,
        conflict BIGINT NOT NULL,
        cancelled BIGINT NOT NULL
    ) WITH (fillfactor = 50);

    -- When the first operation of a lane is due: one search of the index for every priority in use.
    CREATE FUNCTION first_due(in_destination TEXT, in_kind TEXT) RETURNS BIGINT
    LANGUAGE sql STABLE SET search_path = tidegate AS $$
        WITH RECURSIVE priorities AS (
            (SELECT priority FROM operations
             WHERE state IN ('available', 'retryable') AND NOT is_blocked
                AND destination = in_destination AND kind = in_kind
             ORDER BY priority DESC LIMIT 1)
            UNION ALL
            SELECT (SELECT o.priority FROM operations o
                    WHERE o.state IN ('available', 'retryable') AND NOT o.is_blocked
                        AND o.destination = in_destination AND o.kind = in_kind
                        AND o.priority < p.priority
                    ORDER BY o.priority DESC LIMIT 1)
            FROM priorities p WHERE p.priority IS NOT NULL
        )
        SELECT min(
            (SELECT o.next_at_ms FROM operations o
             WHERE o.state IN ('available', 'retryable') AND NOT o.is_blocked
                AND o.destination = in_destination AND o.kind = in_kind
                AND o.priority = p.priority
             ORDER BY o.next_at_ms LIMIT 1))
        FROM priorities p WHERE p.priority IS NOT NULL
    $$;
"#;

/// What nodes share about pools.
const POOLS: &str = r#"
    CREATE SEQUENCE endpoint_versions;

    CREATE TABLE endpoints (
        pool TEXT COLLATE "C" NOT NULL,
        name TEXT COLLATE "C" NOT NULL,
        consecutive_errors BIGINT NOT NULL,
        pause_ns BIGINT,
        paused_for_ns BIGINT,
        last_error TEXT,
        disabled TEXT,
        disabled_errors BIGINT,
        disabled_for_ns BIGINT,
        written_at_ms BIGINT NOT NULL,
        session BIGINT NOT NULL,
        version BIGINT NOT NULL,
        PRIMARY KEY (pool, name)
    );

    -- A pool that is not here is as configured; the row without a name is there for every changed pool.
    CREATE TABLE protections (
        pool TEXT COLLATE "C" NOT NULL,
        name TEXT COLLATE "C" NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (pool, name)
    );

    -- Headers are a list of pairs: a name, and where the secret is found.
    CREATE TABLE added_endpoints (
        number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        pool TEXT COLLATE "C" NOT NULL,
        name TEXT COLLATE "C" NOT NULL,
        url TEXT NOT NULL,
        headers TEXT NOT NULL,
        UNIQUE (pool, name)
    );

    CREATE TABLE removed_endpoints (
        pool TEXT COLLATE "C" NOT NULL,
        name TEXT COLLATE "C" NOT NULL,
        PRIMARY KEY (pool, name)
    );
"#;

/// Jobs, of which each node runs some.
const JOBS: &str = r#"
    -- Times are unix milliseconds; the counts are of URLs, requests and bytes.
    CREATE TABLE jobs (
        number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        id TEXT COLLATE "C" NOT NULL UNIQUE,
        slug TEXT COLLATE "C" NOT NULL UNIQUE,
        summary TEXT NOT NULL,
        status TEXT COLLATE "C" NOT NULL
            CHECK (status IN ('queued', 'running', 'done', 'error', 'cancelled')),
        stage TEXT NOT NULL,
        permille INTEGER NOT NULL DEFAULT 0,
        error TEXT,
        created_at_ms BIGINT NOT NULL,
        started_at_ms BIGINT,
        finished_at_ms BIGINT,
        known BIGINT NOT NULL DEFAULT 0,
        queued BIGINT NOT NULL DEFAULT 0,
        in_flight BIGINT NOT NULL DEFAULT 0,
        retrying BIGINT NOT NULL DEFAULT 0,
        done BIGINT NOT NULL DEFAULT 0,
        failed BIGINT NOT NULL DEFAULT 0,
        denied BIGINT NOT NULL DEFAULT 0,
        not_modified BIGINT NOT NULL DEFAULT 0,
        sent BIGINT NOT NULL DEFAULT 0,
        bytes BIGINT NOT NULL DEFAULT 0,
        fence BIGINT NOT NULL DEFAULT 0,
        node BIGINT,
        lease_until_ms BIGINT,
        -- How long the copy of its state is, and which node has appended to it last.
        state_bytes BIGINT NOT NULL DEFAULT 0,
        state_node BIGINT
    ) WITH (fillfactor = 50);

    CREATE INDEX jobs_status ON jobs (status, number);
    CREATE INDEX jobs_finished ON jobs (finished_at_ms, number) WHERE finished_at_ms IS NOT NULL;

    -- With a key_id, values are sealed with that key: nonce and tag at their end.
    CREATE TABLE job_requests (
        number BIGINT PRIMARY KEY,
        key_id BYTEA,
        request BYTEA NOT NULL
    );

    -- The copy of the state of a job that has not ended, in parts as they were appended.
    CREATE TABLE job_states (
        number BIGINT NOT NULL,
        at BIGINT NOT NULL,
        key_id BYTEA,
        bytes BYTEA NOT NULL,
        PRIMARY KEY (number, at)
    );

    -- As JSON.
    CREATE TABLE job_reports (
        number BIGINT PRIMARY KEY,
        key_id BYTEA,
        report BYTEA NOT NULL
    );
"#;

/// Brings a database to the present version, after a check that it can be used. Any other stays as it
/// is.
pub(super) async fn prepare(
    connection: &Connection,
    address: &DatabaseAddress,
    now: impl Fn() -> WallTime,
) -> Result<(), OpenError> {
    let opening = |problem: PostgresError| problem.opening(address);
    check_server(connection, address, now).await?;
    connection.batch(LOCK).await.map_err(opening)?;
    let migrated = migrate(connection, address).await;
    let end = if migrated.is_ok() {
        "COMMIT"
    } else {
        "ROLLBACK"
    };
    connection.batch(end).await.map_err(opening)?;
    migrated
}

/// One node at a time, until it has committed.
const LOCK: &str = "BEGIN; SELECT pg_advisory_xact_lock(1414087751)";

/// Ten seconds: servers have the same time within milliseconds, and a lease lasts longer.
const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_secs(10);

/// The oldest that is supported by its makers.
const MIN_VERSION: i32 = 140_000;

async fn check_server(
    connection: &Connection,
    address: &DatabaseAddress,
    now: impl Fn() -> WallTime,
) -> Result<(), OpenError> {
    let before = now();
    let rows = connection.query(SERVER, &[]).await;
    let rows = rows.map_err(|problem| problem.opening(address))?;
    let after = now();
    let refused = |reason: String, hint| {
        Err(OpenError::Database {
            server: address.to_string(),
            reason,
            hint,
        })
    };
    let [row] = &rows[..] else {
        return refused("it does not tell its version".to_owned(), "use PostgreSQL");
    };
    let (version, is_standby, time): (i32, bool, i64) = (row.get(0), row.get(1), row.get(2));
    if version < MIN_VERSION {
        let reason = format!(
            "it is PostgreSQL {}, expected at least {}",
            version / 10_000,
            MIN_VERSION / 10_000
        );
        return refused(reason, "use a later server");
    }
    if is_standby {
        return refused(
            "it is a standby, which only reads".to_owned(),
            "name the primary server in `storage.operations`, or all of them with \
             `?target_session_attrs=read-write`",
        );
    }
    let time = WallTime::from_unix_millis(time);
    let slower = after.until(time).unwrap_or_default();
    let faster = time.until(before).unwrap_or_default();
    let difference = slower.max(faster);
    if difference > MAX_CLOCK_DIFFERENCE {
        let reason = format!(
            "its clock is {} s {} the one of this machine",
            difference.as_secs(),
            if faster > slower {
                "behind"
            } else {
                "ahead of"
            }
        );
        return refused(reason, "set both clocks, such as by NTP");
    }
    Ok(())
}

const SERVER: &str = "
    SELECT current_setting('server_version_num')::int, pg_is_in_recovery(),
        (extract(epoch FROM clock_timestamp()) * 1000)::bigint";

async fn migrate(connection: &Connection, address: &DatabaseAddress) -> Result<(), OpenError> {
    let opening = |problem: PostgresError| problem.opening(address);
    let server = address.to_string();
    let rows = connection.query(FOUND, &[]).await.map_err(opening)?;
    let (has_schema, is_ours, has_others): (bool, bool, bool) =
        (rows[0].get(0), rows[0].get(1), rows[0].get(2));
    if has_others && !is_ours {
        return Err(OpenError::ForeignSchema { server });
    }
    let found = match is_ours {
        false => 0,
        true => {
            let rows = connection.query_once(VERSION, &[]).await.map_err(opening)?;
            rows.first().map_or(0, |row| row.get::<_, i64>(0))
        }
    };
    let known = STEPS.len() as i64;
    if found > known {
        return Err(OpenError::NewerSchema {
            server,
            found,
            known,
        });
    }
    if found == known {
        return Ok(());
    }
    if !has_schema {
        connection.batch(CREATE_SCHEMA).await.map_err(opening)?;
    }
    if !is_ours {
        connection.batch(CREATE_VERSION).await.map_err(opening)?;
    }
    for step in STEPS.iter().skip(usize::try_from(found).unwrap_or(0)) {
        connection.batch(step).await.map_err(opening)?;
    }
    let version = format!("UPDATE tidegate.schema_version SET version = {known}");
    connection.batch(&version).await.map_err(opening)
}

const FOUND: &str = "
    SELECT to_regnamespace('tidegate') IS NOT NULL,
        to_regclass('tidegate.schema_version') IS NOT NULL,
        EXISTS (SELECT FROM pg_class WHERE relnamespace = to_regnamespace('tidegate'))";

const VERSION: &str = "SELECT version FROM tidegate.schema_version";

const CREATE_SCHEMA: &str = "CREATE SCHEMA tidegate";

const CREATE_VERSION: &str = "
    CREATE TABLE tidegate.schema_version (version BIGINT NOT NULL);
    INSERT INTO tidegate.schema_version VALUES (0)";
