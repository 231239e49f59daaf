//! Requests, conflicts, responses and attempts of operations. All but attempts are sealed if there is
//! a key.

use policy::time::WallTime;
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params};

use crate::operations::columns::{self, headers_to_text};
use crate::operations::{
    AttemptRecord, Headers, MAX_ATTEMPT_RECORDS, StoredConflict, StoredRequest, StoredResponse,
};
use crate::seal::{Keys, Place};
use crate::sqlite::database::Work;
use crate::sqlite::problem::SqliteError;
use crate::sqlite::{duration, nanoseconds};

const REQUESTS: &str = "operation_requests";
const CONFLICTS: &str = "operation_conflicts";
const RESPONSES: &str = "operation_responses";

pub(super) fn write_request(
    work: &Work<'_>,
    number: u64,
    request: &StoredRequest,
) -> Result<(), SqliteError> {
    let row = number.to_string();
    let sealer = Sealer::new(work.keys, REQUESTS, &row);
    let sql = "INSERT OR REPLACE INTO operation_requests
               (number, key_id, method, url, headers, base, resource, body)
               VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
    work.execute(
        sql,
        params![
            number,
            work.keys.id(),
            request.method,
            sealer.text("url", &request.url)?,
            sealer.text("headers", &headers_to_text(&request.headers))?,
            optional(request.base.as_ref(), |base| sealer.bytes("base", base))?,
            optional(request.resource.as_ref(), |url| sealer
                .text("resource", url))?,
            sealer.bytes("body", &request.body)?,
        ],
    )?;
    Ok(())
}

pub(super) fn request(
    connection: &Connection,
    keys: &Keys,
    number: u64,
) -> Result<Option<StoredRequest>, SqliteError> {
    let sql = "SELECT key_id, method, url, headers, base, resource, body
               FROM operation_requests WHERE number = ?";
    read(connection, sql, number, |row| {
        let name = number.to_string();
        let opener = Opener::new(keys, REQUESTS, &name, row)?;
        Ok(StoredRequest {
            method: row.get("method")?,
            url: opener.text("url")?.unwrap_or_default(),
            headers: headers_from_text(REQUESTS, opener.text("headers")?)?,
            base: opener.bytes("base")?,
            resource: opener.text("resource")?,
            body: opener.bytes("body")?.unwrap_or_default(),
        })
    })
}

pub(super) fn write_conflict(
    work: &Work<'_>,
    number: u64,
    conflict: &StoredConflict,
) -> Result<(), SqliteError> {
    let row = number.to_string();
    let sealer = Sealer::new(work.keys, CONFLICTS, &row);
    let sql = "INSERT OR REPLACE INTO operation_conflicts
               (number, key_id, fetched_at_ms, etag, theirs) VALUES (?, ?, ?, ?, ?)";
    work.execute(
        sql,
        params![
            number,
            work.keys.id(),
            conflict.fetched_at.as_unix_millis(),
            optional(conflict.etag.as_ref(), |etag| sealer.text("etag", etag))?,
            optional(conflict.theirs.as_ref(), |theirs| sealer
                .bytes("theirs", theirs))?,
        ],
    )?;
    Ok(())
}

pub(super) fn conflict(
    connection: &Connection,
    keys: &Keys,
    number: u64,
) -> Result<Option<StoredConflict>, SqliteError> {
    let sql = "SELECT key_id, fetched_at_ms, etag, theirs
               FROM operation_conflicts WHERE number = ?";
    read(connection, sql, number, |row| {
        let name = number.to_string();
        let opener = Opener::new(keys, CONFLICTS, &name, row)?;
        Ok(StoredConflict {
            theirs: opener.bytes("theirs")?,
            etag: opener.text("etag")?,
            fetched_at: WallTime::from_unix_millis(row.get("fetched_at_ms")?),
        })
    })
}

pub(super) fn write_response(
    work: &Work<'_>,
    number: u64,
    response: &StoredResponse,
) -> Result<(), SqliteError> {
    let row = number.to_string();
    let sealer = Sealer::new(work.keys, RESPONSES, &row);
    let sql = "INSERT OR REPLACE INTO operation_responses
               (number, key_id, status, headers, body) VALUES (?, ?, ?, ?, ?)";
    work.execute(
        sql,
        params![
            number,
            work.keys.id(),
            response.status,
            sealer.text("headers", &headers_to_text(&response.headers))?,
            sealer.bytes("body", &response.body)?,
        ],
    )?;
    Ok(())
}

pub(super) fn response(
    connection: &Connection,
    keys: &Keys,
    number: u64,
) -> Result<Option<StoredResponse>, SqliteError> {
    let sql = "SELECT key_id, status, headers, body FROM operation_responses WHERE number = ?";
    read(connection, sql, number, |row| {
        let name = number.to_string();
        let opener = Opener::new(keys, RESPONSES, &name, row)?;
        Ok(StoredResponse {
            status: row.get("status")?,
            headers: headers_from_text(RESPONSES, opener.text("headers")?)?,
            body: opener.bytes("body")?.unwrap_or_default(),
        })
    })
}

/// Adds attempts after those that are stored, and drops the oldest above [`MAX_ATTEMPT_RECORDS`].
pub(super) fn add_attempts(
    work: &Work<'_>,
    number: u64,
    attempts: &[AttemptRecord],
) -> Result<(), SqliteError> {
    if attempts.is_empty() {
        return Ok(());
    }
    let last = "SELECT max(ordinal) FROM operation_attempts WHERE number = ?";
    let mut statement = work.connection.prepare_cached(last)?;
    let last: Option<i64> = statement.query_row([number], |row| row.get(0))?;
    let insert = "INSERT INTO operation_attempts
                  (number, ordinal, at_ms, phase, status, latency_ns, waited_ns, reason)
                  VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
    let mut ordinal = last.unwrap_or(0);
    for attempt in attempts {
        ordinal += 1;
        work.execute(
            insert,
            params![
                number,
                ordinal,
                attempt.at.as_unix_millis(),
                attempt.phase,
                attempt.status,
                nanoseconds(attempt.latency),
                nanoseconds(attempt.waited),
                attempt.reason,
            ],
        )?;
    }
    let dropped = ordinal - MAX_ATTEMPT_RECORDS as i64;
    if dropped > 0 {
        let sql = "DELETE FROM operation_attempts WHERE number = ? AND ordinal <= ?";
        work.execute(sql, params![number, dropped])?;
    }
    Ok(())
}

pub(super) fn attempts(
    connection: &Connection,
    number: u64,
) -> Result<Vec<AttemptRecord>, SqliteError> {
    let sql = "SELECT at_ms, phase, status, latency_ns, waited_ns, reason
               FROM operation_attempts WHERE number = ? ORDER BY ordinal";
    let mut statement = connection.prepare_cached(sql)?;
    let attempts = statement.query_map([number], |row| {
        Ok(AttemptRecord {
            at: WallTime::from_unix_millis(row.get("at_ms")?),
            phase: row.get("phase")?,
            status: row.get("status")?,
            latency: duration(row.get("latency_ns")?),
            waited: duration(row.get("waited_ns")?),
            reason: row.get("reason")?,
        })
    })?;
    let attempts: rusqlite::Result<Vec<AttemptRecord>> = attempts.collect();
    Ok(attempts?)
}

/// Deletes all that belongs to an operation, and the operation.
pub(super) fn delete(work: &Work<'_>, number: u64) -> Result<(), SqliteError> {
    for sql in [
        "DELETE FROM operation_attempts WHERE number = ?",
        "DELETE FROM operation_conflicts WHERE number = ?",
        "DELETE FROM operation_responses WHERE number = ?",
        "DELETE FROM operation_requests WHERE number = ?",
        "DELETE FROM operations WHERE number = ?",
    ] {
        work.execute(sql, [number])?;
    }
    Ok(())
}

pub(super) fn delete_conflict(work: &Work<'_>, number: u64) -> Result<(), SqliteError> {
    work.execute("DELETE FROM operation_conflicts WHERE number = ?", [number])?;
    Ok(())
}

fn read<T>(
    connection: &Connection,
    sql: &str,
    number: u64,
    read: impl FnOnce(&Row<'_>) -> Result<T, SqliteError>,
) -> Result<Option<T>, SqliteError> {
    let mut statement = connection.prepare_cached(sql)?;
    let row = statement
        .query_row([number], |row| Ok(read(row)))
        .optional()?;
    row.transpose()
}

/// A value of a column: as it is, or sealed.
enum Stored<'a> {
    Text(&'a str),
    Bytes(&'a [u8]),
    Sealed(Vec<u8>),
}

impl ToSql for Stored<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
            Self::Sealed(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// Seals the columns of one row.
struct Sealer<'a> {
    keys: &'a Keys,
    table: &'static str,
    row: &'a str,
}

impl<'a> Sealer<'a> {
    fn new(keys: &'a Keys, table: &'static str, row: &'a str) -> Self {
        Self { keys, table, row }
    }

    fn text<'v>(&self, column: &'static str, text: &'v str) -> Result<Stored<'v>, SqliteError> {
        self.value(column, text.as_bytes(), Stored::Text(text))
    }

    fn bytes<'v>(&self, column: &'static str, bytes: &'v [u8]) -> Result<Stored<'v>, SqliteError> {
        self.value(column, bytes, Stored::Bytes(bytes))
    }

    fn value<'v>(
        &self,
        column: &'static str,
        bytes: &[u8],
        plain: Stored<'v>,
    ) -> Result<Stored<'v>, SqliteError> {
        if self.keys.id().is_none() {
            return Ok(plain);
        }
        let place = Place {
            table: self.table,
            row: self.row,
            column,
        };
        let sealed = self.keys.seal(place, bytes);
        sealed
            .map(Stored::Sealed)
            .map_err(|error| SqliteError::sealed(place, error))
    }
}

fn optional<T, R>(
    value: Option<T>,
    seal: impl FnOnce(T) -> Result<R, SqliteError>,
) -> Result<Option<R>, SqliteError> {
    value.map(seal).transpose()
}

/// Opens the columns of one row.
struct Opener<'a> {
    keys: &'a Keys,
    table: &'static str,
    name: &'a str,
    row: &'a Row<'a>,
    key_id: Option<Vec<u8>>,
}

impl<'a> Opener<'a> {
    fn new(
        keys: &'a Keys,
        table: &'static str,
        name: &'a str,
        row: &'a Row<'a>,
    ) -> Result<Self, SqliteError> {
        let key_id = row.get("key_id")?;
        Ok(Self {
            keys,
            table,
            name,
            row,
            key_id,
        })
    }

    fn bytes(&self, column: &'static str) -> Result<Option<Vec<u8>>, SqliteError> {
        let stored = match self.row.get(column)? {
            Value::Blob(bytes) => bytes,
            Value::Text(text) => text.into_bytes(),
            Value::Null => return Ok(None),
            Value::Integer(_) | Value::Real(_) => return Err(self.problem(column)),
        };
        let Some(key_id) = &self.key_id else {
            return Ok(Some(stored));
        };
        let place = Place {
            table: self.table,
            row: self.name,
            column,
        };
        let opened = self.keys.open(key_id, place, stored);
        opened
            .map(Some)
            .map_err(|error| SqliteError::sealed(place, error))
    }

    fn text(&self, column: &'static str) -> Result<Option<String>, SqliteError> {
        let bytes = self.bytes(column)?;
        let text = bytes.map(String::from_utf8).transpose();
        text.map_err(|_| self.problem(column))
    }

    fn problem(&self, column: &'static str) -> SqliteError {
        SqliteError::Row {
            table: self.table,
            reason: format!("row {}: `{column}` is no text", self.name),
        }
    }
}

fn headers_from_text(table: &'static str, text: Option<String>) -> Result<Headers, SqliteError> {
    let headers = text.as_deref().and_then(columns::headers_from_text);
    headers.ok_or_else(|| SqliteError::Row {
        table,
        reason: "headers are no list of pairs".to_owned(),
    })
}
