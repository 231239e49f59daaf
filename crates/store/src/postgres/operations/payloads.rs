//! Requests, conflicts, responses and attempts of operations. All but attempts are sealed if there is
//! a key.

use futures_util::future::try_join;
use policy::time::WallTime;
use tokio_postgres::Row;

use super::rows::{number as column, time};
use crate::operations::columns::{headers_from_text, headers_to_text};
use crate::operations::{
    AttemptRecord, Headers, MAX_ATTEMPT_RECORDS, StoredConflict, StoredRequest, StoredResponse,
};
use crate::postgres::connection::Connection;
use crate::postgres::database::Work;
use crate::postgres::problem::PostgresError;
use crate::postgres::text::{Text, text};
use crate::postgres::{duration, nanoseconds};
use crate::seal::{Keys, Place};

const REQUESTS: &str = "operation_requests";
const CONFLICTS: &str = "operation_conflicts";
const RESPONSES: &str = "operation_responses";

pub(super) async fn write_request(
    work: &Work<'_>,
    number: u64,
    request: &StoredRequest,
) -> Result<(), PostgresError> {
    let sealer = Sealer::new(work.keys, REQUESTS, number);
    let sql = "INSERT INTO operation_requests
                   (number, key_id, method, url, headers, base, resource, body)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
               ON CONFLICT (number) DO UPDATE SET
                   key_id = excluded.key_id, method = excluded.method, url = excluded.url,
                   headers = excluded.headers, base = excluded.base,
                   resource = excluded.resource, body = excluded.body";
    let url = sealer.seal("url", request.url.as_bytes())?;
    let headers = sealer.seal("headers", headers_to_text(&request.headers).as_bytes())?;
    let base = sealer.optional("base", request.base.as_deref())?;
    let resource = sealer.optional("resource", request.resource.as_deref().map(str::as_bytes))?;
    let body = sealer.seal("body", &request.body)?;
    work.connection
        .execute(
            sql,
            &[
                &column(number),
                &sealer.key_id(),
                &Text(&request.method),
                &url,
                &headers,
                &base,
                &resource,
                &body,
            ],
        )
        .await?;
    Ok(())
}

/// The columns that [`request_of`] reads.
macro_rules! request_columns {
    () => {
        "r.key_id, r.method, r.url, r.headers, r.base, r.resource, r.body"
    };
}
pub(super) use request_columns;

pub(super) async fn request(
    connection: &Connection,
    keys: &Keys,
    number: u64,
) -> Result<Option<StoredRequest>, PostgresError> {
    let sql = concat!(
        "SELECT ",
        request_columns!(),
        " FROM operation_requests r WHERE r.number = $1"
    );
    let rows = connection.query(sql, &[&column(number)]).await?;
    let row = rows.first();
    row.map(|row| request_of(row, 0, keys, number)).transpose()
}

/// The request in a row, whose columns begin at `first`.
pub(super) fn request_of(
    row: &Row,
    first: usize,
    keys: &Keys,
    number: u64,
) -> Result<StoredRequest, PostgresError> {
    let opener = Opener::new(keys, REQUESTS, number, row, first)?;
    Ok(StoredRequest {
        method: text(row, first + 1)?,
        url: opener.text("url", first + 2)?.unwrap_or_default(),
        headers: opener.headers(first + 3)?,
        base: opener.bytes("base", first + 4)?,
        resource: opener.text("resource", first + 5)?,
        body: opener.bytes("body", first + 6)?.unwrap_or_default(),
    })
}

pub(super) async fn write_conflict(
    work: &Work<'_>,
    number: u64,
    conflict: &StoredConflict,
) -> Result<(), PostgresError> {
    let sealer = Sealer::new(work.keys, CONFLICTS, number);
    let sql = "INSERT INTO operation_conflicts (number, key_id, fetched_at_ms, etag, theirs)
               VALUES ($1, $2, $3, $4, $5)
               ON CONFLICT (number) DO UPDATE SET
                   key_id = excluded.key_id, fetched_at_ms = excluded.fetched_at_ms,
                   etag = excluded.etag, theirs = excluded.theirs";
    let etag = sealer.optional("etag", conflict.etag.as_deref().map(str::as_bytes))?;
    let theirs = sealer.optional("theirs", conflict.theirs.as_deref())?;
    work.connection
        .execute(
            sql,
            &[
                &column(number),
                &sealer.key_id(),
                &conflict.fetched_at.as_unix_millis(),
                &etag,
                &theirs,
            ],
        )
        .await?;
    Ok(())
}

pub(super) async fn conflict(
    connection: &Connection,
    keys: &Keys,
    number: u64,
) -> Result<Option<StoredConflict>, PostgresError> {
    let sql = "SELECT key_id, fetched_at_ms, etag, theirs
               FROM operation_conflicts WHERE number = $1";
    let rows = connection.query(sql, &[&column(number)]).await?;
    let Some(row) = rows.first() else {
        return Ok(None);
    };
    let opener = Opener::new(keys, CONFLICTS, number, row, 0)?;
    Ok(Some(StoredConflict {
        theirs: opener.bytes("theirs", 3)?,
        etag: opener.text("etag", 2)?,
        fetched_at: time(row, 1)?,
    }))
}

pub(super) async fn delete_conflict(work: &Work<'_>, number: u64) -> Result<(), PostgresError> {
    let sql = "DELETE FROM operation_conflicts WHERE number = $1";
    work.connection.execute(sql, &[&column(number)]).await?;
    Ok(())
}

pub(super) async fn write_response(
    work: &Work<'_>,
    number: u64,
    response: &StoredResponse,
) -> Result<(), PostgresError> {
    let sealer = Sealer::new(work.keys, RESPONSES, number);
    let sql = "INSERT INTO operation_responses (number, key_id, status, headers, body)
               VALUES ($1, $2, $3, $4, $5)
               ON CONFLICT (number) DO UPDATE SET
                   key_id = excluded.key_id, status = excluded.status,
                   headers = excluded.headers, body = excluded.body";
    let headers = sealer.seal("headers", headers_to_text(&response.headers).as_bytes())?;
    let body = sealer.seal("body", &response.body)?;
    work.connection
        .execute(
            sql,
            &[
                &column(number),
                &sealer.key_id(),
                &i32::from(response.status),
                &headers,
                &body,
            ],
        )
        .await?;
    Ok(())
}

pub(super) async fn response(
    connection: &Connection,
    keys: &Keys,
    number: u64,
) -> Result<Option<StoredResponse>, PostgresError> {
    let sql = "SELECT key_id, status, headers, body FROM operation_responses WHERE number = $1";
    let rows = connection.query(sql, &[&column(number)]).await?;
    let Some(row) = rows.first() else {
        return Ok(None);
    };
    let opener = Opener::new(keys, RESPONSES, number, row, 0)?;
    Ok(Some(StoredResponse {
        status: status(row, 1)?.unwrap_or_default(),
        headers: opener.headers(2)?,
        body: opener.bytes("body", 3)?.unwrap_or_default(),
    }))
}

/// Adds attempts after those that are stored, and drops the oldest above [`MAX_ATTEMPT_RECORDS`].
pub(super) async fn add_attempts(
    work: &Work<'_>,
    attempts: &[(u64, &AttemptRecord)],
) -> Result<(), PostgresError> {
    if attempts.is_empty() {
        return Ok(());
    }
    let each = |attempt: &dyn Fn(&AttemptRecord) -> i64| -> Vec<i64> {
        attempts.iter().map(|(_, record)| attempt(record)).collect()
    };
    let numbers: Vec<i64> = attempts.iter().map(|(number, _)| column(*number)).collect();
    let phases: Vec<Text<'_>> = attempts
        .iter()
        .map(|(_, record)| Text(&record.phase))
        .collect();
    let reasons: Vec<Text<'_>> = attempts
        .iter()
        .map(|(_, record)| Text(&record.reason))
        .collect();
    let statuses: Vec<Option<i32>> = attempts
        .iter()
        .map(|(_, record)| record.status.map(i32::from))
        .collect();
    let (at, latency, waited) = (
        each(&|record| record.at.as_unix_millis()),
        each(&|record| nanoseconds(record.latency)),
        each(&|record| nanoseconds(record.waited)),
    );
    let insert = "
        INSERT INTO operation_attempts (number, at_ms, phase, status, latency_ns, waited_ns, reason)
        SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::int[], $5::bigint[],
            $6::bigint[], $7::text[])";
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 7] = [
        &numbers, &at, &phases, &statuses, &latency, &waited, &reasons,
    ];
    let trim = "
        DELETE FROM operation_attempts a USING unnest($1::bigint[]) AS n(number)
        WHERE a.number = n.number AND a.ordinal <= (
            SELECT ordinal FROM operation_attempts WHERE number = n.number
            ORDER BY ordinal DESC OFFSET $2 LIMIT 1)";
    let most = i64::try_from(MAX_ATTEMPT_RECORDS).unwrap_or(i64::MAX);
    let bounds: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&numbers, &most];
    let inserted = work.connection.execute(insert, &values);
    try_join(inserted, work.connection.execute(trim, &bounds)).await?;
    Ok(())
}

pub(super) async fn attempts(
    connection: &Connection,
    number: u64,
) -> Result<Vec<AttemptRecord>, PostgresError> {
    let sql = "SELECT at_ms, phase, status, latency_ns, waited_ns, reason
               FROM operation_attempts WHERE number = $1 ORDER BY ordinal";
    let rows = connection.query(sql, &[&column(number)]).await?;
    let attempt = |row: &Row| {
        Ok(AttemptRecord {
            at: WallTime::from_unix_millis(row.try_get(0)?),
            phase: text(row, 1)?,
            status: status(row, 2)?,
            latency: duration(row.try_get(3)?),
            waited: duration(row.try_get(4)?),
            reason: text(row, 5)?,
        })
    };
    rows.iter().map(attempt).collect()
}

/// Deletes operations and all that belongs to them.
pub(super) async fn delete(work: &Work<'_>, numbers: &[i64]) -> Result<(), PostgresError> {
    for sql in [
        "DELETE FROM operation_attempts WHERE number = ANY($1)",
        "DELETE FROM operation_conflicts WHERE number = ANY($1)",
        "DELETE FROM operation_responses WHERE number = ANY($1)",
        "DELETE FROM operation_requests WHERE number = ANY($1)",
        "DELETE FROM operations WHERE number = ANY($1)",
    ] {
        work.connection.execute(sql, &[&numbers]).await?;
    }
    Ok(())
}

fn status(row: &Row, index: usize) -> Result<Option<u16>, PostgresError> {
    let status: Option<i32> = row.try_get(index)?;
    Ok(status.and_then(|status| u16::try_from(status).ok()))
}

/// Seals the columns of one row.
struct Sealer<'a> {
    keys: &'a Keys,
    table: &'static str,
    row: String,
}

impl<'a> Sealer<'a> {
    fn new(keys: &'a Keys, table: &'static str, number: u64) -> Self {
        let row = number.to_string();
        Self { keys, table, row }
    }

    fn key_id(&self) -> Option<Vec<u8>> {
        self.keys.id().map(|id| id.to_vec())
    }

    fn seal(&self, column: &'static str, value: &[u8]) -> Result<Vec<u8>, PostgresError> {
        let place = Place {
            table: self.table,
            row: &self.row,
            column,
        };
        let sealed = self.keys.seal(place, value);
        sealed.map_err(|error| PostgresError::sealed(place, error))
    }

    fn optional(
        &self,
        column: &'static str,
        value: Option<&[u8]>,
    ) -> Result<Option<Vec<u8>>, PostgresError> {
        value.map(|value| self.seal(column, value)).transpose()
    }
}

/// Opens the columns of one row.
struct Opener<'a> {
    keys: &'a Keys,
    table: &'static str,
    name: String,
    row: &'a Row,
    key_id: Option<Vec<u8>>,
}

impl<'a> Opener<'a> {
    /// `key_id` is the index of that column.
    fn new(
        keys: &'a Keys,
        table: &'static str,
        number: u64,
        row: &'a Row,
        key_id: usize,
    ) -> Result<Self, PostgresError> {
        Ok(Self {
            keys,
            table,
            name: number.to_string(),
            row,
            key_id: row.try_get(key_id)?,
        })
    }

    fn bytes(&self, column: &'static str, index: usize) -> Result<Option<Vec<u8>>, PostgresError> {
        let stored: Option<Vec<u8>> = self.row.try_get(index)?;
        let (Some(stored), Some(key_id)) = (&stored, &self.key_id) else {
            return Ok(stored);
        };
        let place = Place {
            table: self.table,
            row: &self.name,
            column,
        };
        let opened = self.keys.open(key_id, place, stored.clone());
        opened
            .map(Some)
            .map_err(|error| PostgresError::sealed(place, error))
    }

    fn text(&self, column: &'static str, index: usize) -> Result<Option<String>, PostgresError> {
        let bytes = self.bytes(column, index)?;
        let text = bytes.map(String::from_utf8).transpose();
        text.map_err(|_| self.problem(format!("`{column}` is no text")))
    }

    fn headers(&self, index: usize) -> Result<Headers, PostgresError> {
        let text = self.text("headers", index)?;
        let headers = text.as_deref().and_then(headers_from_text);
        headers.ok_or_else(|| self.problem("headers are no list of pairs".to_owned()))
    }

    fn problem(&self, reason: String) -> PostgresError {
        PostgresError::Row {
            table: self.table,
            reason: format!("row {}: {reason}", self.name),
        }
    }
}
