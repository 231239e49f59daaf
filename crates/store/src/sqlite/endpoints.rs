//! Rows of the states of endpoints.

use policy::ladder::{Disabled, LadderRecord};
use policy::time::WallTime;
use rusqlite::{Connection, Row, named_params};

use super::problem::SqliteError;
use super::{duration, nanoseconds};
use crate::record::{self, StoredEndpoint};

pub(super) fn write(connection: &Connection, endpoint: &StoredEndpoint) -> rusqlite::Result<()> {
    let (disabled, disabled_errors) = record::disabled_words(endpoint.record.disabled);
    let record = &endpoint.record;
    let mut statement = connection.prepare_cached(
        "INSERT OR REPLACE INTO endpoints VALUES (
            :pool, :name, :errors, :pause, :last_error, :disabled, :disabled_errors, :at,
            :paused_for, :disabled_for)",
    )?;
    statement.execute(named_params! {
        ":pool": endpoint.pool,
        ":name": endpoint.name,
        ":errors": record.consecutive_errors,
        ":pause": record.pause.map(nanoseconds),
        ":last_error": record.last_error,
        ":disabled": disabled,
        ":disabled_errors": disabled_errors,
        ":at": endpoint.at.as_unix_millis(),
        ":paused_for": record.paused_for.map(nanoseconds),
        ":disabled_for": record.disabled_for.map(nanoseconds),
    })?;
    Ok(())
}

pub(super) fn forget(connection: &Connection, pool: &str, name: &str) -> rusqlite::Result<()> {
    let mut statement =
        connection.prepare_cached("DELETE FROM endpoints WHERE pool = ? AND name = ?")?;
    statement.execute([pool, name])?;
    Ok(())
}

pub(super) fn read(connection: &Connection) -> Result<Vec<StoredEndpoint>, SqliteError> {
    let mut statement = connection.prepare("SELECT * FROM endpoints ORDER BY pool, name")?;
    let mut rows = statement.query([])?;
    let mut endpoints = Vec::new();
    while let Some(row) = rows.next()? {
        endpoints.push(endpoint(row)?);
    }
    Ok(endpoints)
}

fn endpoint(row: &Row<'_>) -> Result<StoredEndpoint, SqliteError> {
    let disabled: Option<String> = row.get("disabled")?;
    let errors: Option<u32> = row.get("disabled_errors")?;
    let length = |name| Ok::<_, SqliteError>(row.get::<_, Option<i64>>(name)?.map(duration));
    Ok(StoredEndpoint {
        pool: row.get("pool")?,
        name: row.get("name")?,
        record: LadderRecord {
            consecutive_errors: row.get("consecutive_errors")?,
            pause: length("pause_ns")?,
            paused_for: length("paused_for_ns")?,
            last_error: row.get("last_error")?,
            disabled: match disabled {
                Some(word) => Some(reason(&word, errors)?),
                None => None,
            },
            disabled_for: length("disabled_for_ns")?,
        },
        at: WallTime::from_unix_millis(row.get("written_at_ms")?),
    })
}

fn reason(word: &str, errors: Option<u32>) -> Result<Disabled, SqliteError> {
    record::disabled_of(word, errors).ok_or_else(|| SqliteError::Row {
        table: "endpoints",
        reason: format!("`{word}` is no reason to disable an endpoint"),
    })
}
