//! What nodes share about pools: states of endpoints, and what people changed at run time.
//!
//! Of two nodes that write the state of an endpoint, the later one counts. A state has a version, so
//! that a node knows what it has applied, and the session that wrote it, so that a node does not apply
//! its own. Ages are by the clock of the database: the clocks of nodes do not matter.

use std::collections::BTreeMap;
use std::time::Duration;

use policy::ladder::LadderRecord;
use tokio_postgres::Row;

use super::connection::Connection;
use super::problem::PostgresError;
use super::text::{Text, optional_text, text};
use super::{duration, nanoseconds};
use crate::change::Change;
use crate::record::{
    self, AddedEndpoint, Protection, RemovedEndpoint, SharedEndpoint, SharedPools, StoredEndpoint,
};

/// Makes one change; those that are not shared change nothing.
pub(super) async fn write(
    connection: &Connection,
    session: u64,
    change: &Change,
) -> Result<(), PostgresError> {
    match change {
        Change::Endpoint(endpoint) => write_endpoint(connection, session, endpoint).await,
        Change::ForgetEndpoint { pool, name } => {
            let sql = "DELETE FROM endpoints WHERE pool = $1 AND name = $2";
            run(connection, sql, pool, name).await
        }
        Change::Protection { pool, protection } => {
            protect(connection, pool, protection.as_ref()).await
        }
        Change::EndpointAdded(added) => add(connection, added).await,
        Change::EndpointRemoved { pool, name } => {
            run(connection, FORGET_ADDED, pool, name).await?;
            let sql = "INSERT INTO removed_endpoints VALUES ($1, $2) ON CONFLICT DO NOTHING";
            run(connection, sql, pool, name).await
        }
        Change::EndpointAsConfigured { pool, name } => {
            run(connection, FORGET_ADDED, pool, name).await?;
            run(connection, FORGET_REMOVED, pool, name).await
        }
        Change::Gate(_)
        | Change::ForgetGate { .. }
        | Change::ForgetGatesBefore(_)
        | Change::Rotated(_)
        | Change::ForgetRotated { .. } => Ok(()),
    }
}

const FORGET_ADDED: &str = "DELETE FROM added_endpoints WHERE pool = $1 AND name = $2";
const FORGET_REMOVED: &str = "DELETE FROM removed_endpoints WHERE pool = $1 AND name = $2";

async fn run(
    connection: &Connection,
    sql: &'static str,
    pool: &str,
    name: &str,
) -> Result<(), PostgresError> {
    connection.execute(sql, &[&Text(pool), &Text(name)]).await?;
    Ok(())
}

async fn write_endpoint(
    connection: &Connection,
    session: u64,
    endpoint: &StoredEndpoint,
) -> Result<(), PostgresError> {
    const WRITE: &str = "
        INSERT INTO endpoints VALUES (
            $1, $2, $3, $4, $5, $6, $7, $8, $9,
            (extract(epoch FROM clock_timestamp()) * 1000)::bigint, $10, nextval('endpoint_versions'))
        ON CONFLICT (pool, name) DO UPDATE SET
            consecutive_errors = excluded.consecutive_errors, pause_ns = excluded.pause_ns,
            paused_for_ns = excluded.paused_for_ns, last_error = excluded.last_error,
            disabled = excluded.disabled, disabled_errors = excluded.disabled_errors,
            disabled_for_ns = excluded.disabled_for_ns, written_at_ms = excluded.written_at_ms,
            session = excluded.session, version = nextval('endpoint_versions')";
    let StoredEndpoint {
        pool, name, record, ..
    } = endpoint;
    let (disabled, errors) = record::disabled_words(record.disabled);
    let last_error = record.last_error.as_deref().map(Text);
    connection
        .execute(
            WRITE,
            &[
                &Text(pool),
                &Text(name),
                &i64::from(record.consecutive_errors),
                &record.pause.map(nanoseconds),
                &record.paused_for.map(nanoseconds),
                &last_error,
                &disabled,
                &errors.map(i64::from),
                &record.disabled_for.map(nanoseconds),
                &session.cast_signed(),
            ],
        )
        .await?;
    Ok(())
}

async fn protect(
    connection: &Connection,
    pool: &str,
    protection: Option<&Protection>,
) -> Result<(), PostgresError> {
    let forget = "DELETE FROM protections WHERE pool = $1";
    connection.execute(forget, &[&Text(pool)]).await?;
    let Some(protection) = protection else {
        return Ok(());
    };
    let insert = "INSERT INTO protections VALUES ($1, $2, $3)";
    // A pool whose values are all as by default has one row without a name.
    connection
        .execute(insert, &[&Text(pool), &Text(""), &Text("")])
        .await?;
    for (name, value) in &protection.values {
        connection
            .execute(insert, &[&Text(pool), &Text(name), &Text(value)])
            .await?;
    }
    Ok(())
}

/// One that is there already has the same number as before, and so the same place in the order.
async fn add(connection: &Connection, added: &AddedEndpoint) -> Result<(), PostgresError> {
    run(connection, FORGET_REMOVED, &added.pool, &added.name).await?;
    let sql = "INSERT INTO added_endpoints (pool, name, url, headers) VALUES ($1, $2, $3, $4)
         ON CONFLICT (pool, name) DO UPDATE SET url = excluded.url, headers = excluded.headers";
    let headers = record::headers_to_text(&added.headers);
    connection
        .execute(
            sql,
            &[
                &Text(&added.pool),
                &Text(&added.name),
                &Text(&added.url),
                &Text(&headers),
            ],
        )
        .await?;
    Ok(())
}

/// Everything that is shared about pools.
pub(super) async fn read(
    connection: &Connection,
    session: u64,
) -> Result<SharedPools, PostgresError> {
    let sql =
        "SELECT pool, name, consecutive_errors, pause_ns, paused_for_ns, last_error, disabled,
            disabled_errors, disabled_for_ns, session, version,
            (extract(epoch FROM clock_timestamp()) * 1000)::bigint - written_at_ms
        FROM endpoints ORDER BY pool, name";
    let rows = connection.query(sql, &[]).await?;
    let endpoints = rows.iter().map(|row| endpoint(row, session));
    let endpoints: Result<Vec<SharedEndpoint>, PostgresError> = endpoints.collect();
    let sql = "SELECT pool, name, value FROM protections ORDER BY pool, name";
    let mut protections: BTreeMap<String, Protection> = BTreeMap::new();
    for row in &connection.query(sql, &[]).await? {
        let values = &mut protections.entry(text(row, 0)?).or_default().values;
        let name = text(row, 1)?;
        if !name.is_empty() {
            values.insert(name, text(row, 2)?);
        }
    }
    let sql = "SELECT pool, name, url, headers FROM added_endpoints ORDER BY number";
    let rows = connection.query(sql, &[]).await?;
    let added: Result<Vec<AddedEndpoint>, PostgresError> = rows.iter().map(added).collect();
    let sql = "SELECT pool, name FROM removed_endpoints ORDER BY pool, name";
    let mut removed = Vec::new();
    for row in &connection.query(sql, &[]).await? {
        removed.push(RemovedEndpoint {
            pool: text(row, 0)?,
            name: text(row, 1)?,
        });
    }
    Ok(SharedPools {
        endpoints: endpoints?,
        protections,
        added: added?,
        removed,
    })
}

fn endpoint(row: &Row, session: u64) -> Result<SharedEndpoint, PostgresError> {
    let length =
        |index| Ok::<_, PostgresError>(row.try_get::<_, Option<i64>>(index)?.map(duration));
    let disabled = match optional_text(row, 6)? {
        None => None,
        Some(word) => {
            let errors: Option<i64> = row.try_get(7)?;
            let errors = errors.and_then(|errors| u32::try_from(errors).ok());
            let known = record::disabled_of(&word, errors);
            Some(known.ok_or_else(|| PostgresError::Row {
                table: "endpoints",
                reason: format!("`{word}` is no reason to disable an endpoint"),
            })?)
        }
    };
    let errors: i64 = row.try_get(2)?;
    let written_by: i64 = row.try_get(9)?;
    let version: i64 = row.try_get(10)?;
    let age: i64 = row.try_get(11)?;
    Ok(SharedEndpoint {
        pool: text(row, 0)?,
        name: text(row, 1)?,
        record: LadderRecord {
            consecutive_errors: u32::try_from(errors).unwrap_or(0),
            pause: length(3)?,
            paused_for: length(4)?,
            last_error: optional_text(row, 5)?.map(String::into_boxed_str),
            disabled,
            disabled_for: length(8)?,
        },
        age: Duration::from_millis(u64::try_from(age).unwrap_or(0)),
        is_own: written_by == session.cast_signed(),
        version: version.cast_unsigned(),
    })
}

fn added(row: &Row) -> Result<AddedEndpoint, PostgresError> {
    let headers = record::headers_from_text(&text(row, 3)?);
    Ok(AddedEndpoint {
        pool: text(row, 0)?,
        name: text(row, 1)?,
        url: text(row, 2)?,
        headers: headers.map_err(|reason| PostgresError::Row {
            table: "added_endpoints",
            reason,
        })?,
    })
}
