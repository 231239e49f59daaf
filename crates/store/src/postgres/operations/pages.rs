//! Lists of operations.

use std::collections::BTreeSet;
use std::fmt::Write;

use policy::time::WallTime;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::payloads;
use super::rows::{self, number, select};
use crate::operations::{ExportedOperation, Lane, OperationFilter, StoredOperation};
use crate::postgres::connection::Connection;
use crate::postgres::problem::PostgresError;
use crate::postgres::text::{Text, escaped, text};
use crate::seal::Keys;

pub(super) async fn lanes(
    connection: &Connection,
    after: Option<Lane>,
    limit: usize,
) -> Result<Vec<(Lane, WallTime)>, PostgresError> {
    let Lane { destination, kind } = after.unwrap_or_else(|| Lane {
        destination: String::new(),
        kind: String::new(),
    });
    let values: [&(dyn ToSql + Sync); 3] = [&Text(&destination), &Text(&kind), &limit_of(limit)];
    let rows = connection.query(LANES, &values).await?;
    let lane = |row: &Row| {
        let lane = Lane {
            destination: text(row, 0)?,
            kind: text(row, 1)?,
        };
        Ok((lane, rows::time(row, 2)?))
    };
    rows.iter().map(lane).collect()
}

/// Every lane is found by one search of the index, however many operations it has.
pub(super) const LANES: &str = "
    WITH RECURSIVE lanes AS (
        (SELECT destination, kind FROM operations
         WHERE state IN ('available', 'retryable') AND NOT is_blocked
            AND (destination, kind) > ($1, $2)
         ORDER BY destination, kind LIMIT 1)
        UNION ALL
        SELECT n.destination, n.kind FROM lanes l CROSS JOIN LATERAL (
            SELECT o.destination, o.kind FROM operations o
            WHERE o.state IN ('available', 'retryable') AND NOT o.is_blocked
                AND (o.destination, o.kind) > (l.destination, l.kind)
            ORDER BY o.destination, o.kind LIMIT 1) AS n
    )
    SELECT destination, kind, first_due(destination, kind) FROM lanes LIMIT $3";

pub(super) async fn unreported(
    connection: &Connection,
    limit: usize,
) -> Result<Vec<StoredOperation>, PostgresError> {
    let rows = connection.query(UNREPORTED, &[&limit_of(limit)]).await?;
    operations(&rows)
}

pub(super) const UNREPORTED: &str =
    select!("FROM operations o WHERE o.is_unreported ORDER BY o.ended_at_ms, o.number LIMIT $1");

pub(super) async fn by_id(
    connection: &Connection,
    id: &str,
) -> Result<Option<StoredOperation>, PostgresError> {
    let rows = connection.query(BY_ID, &[&Text(id)]).await?;
    Ok(operations(&rows)?.pop())
}

pub(super) const BY_ID: &str = select!("FROM operations o WHERE o.id = $1");

pub(super) async fn export(
    connection: &Connection,
    keys: &Keys,
    after: u64,
    limit: usize,
) -> Result<Vec<ExportedOperation>, PostgresError> {
    let found = connection
        .query(EXPORT, &[&number(after), &limit_of(limit)])
        .await?;
    let entries = found
        .iter()
        .map(rows::entry)
        .collect::<Result<Vec<_>, _>>()?;
    let exported = connection.each(entries, |entry| async move {
        let number = entry.operation.number;
        let request = payloads::request(connection, keys, number).await?;
        Ok(ExportedOperation {
            request: request.unwrap_or_default(),
            conflict: payloads::conflict(connection, keys, number).await?,
            response: payloads::response(connection, keys, number).await?,
            attempts: payloads::attempts(connection, number).await?,
            entry,
        })
    });
    exported.await
}

pub(super) const EXPORT: &str =
    select!("FROM operations o WHERE o.number > $1 ORDER BY o.number LIMIT $2");

pub(super) async fn page(
    connection: &Connection,
    filter: &OperationFilter,
    before: Option<u64>,
    limit: usize,
) -> Result<Vec<StoredOperation>, PostgresError> {
    let mut page = Page::new(before.map_or(i64::MAX, number), limit_of(limit));
    page.filter(filter);
    let sql = page.sql(&filter.states);
    let rows = connection.query_once(&sql, &page.values()).await?;
    operations(&rows)
}

/// A statement with those conditions only that a filter has, so that the database can choose the
/// index that fits.
struct Page {
    conditions: String,
    values: Vec<Box<dyn ToSql + Sync>>,
}

impl Page {
    fn new(before: i64, limit: i64) -> Self {
        Self {
            conditions: "o.number < $1".to_owned(),
            values: vec![Box::new(before), Box::new(limit)],
        }
    }

    fn filter(&mut self, filter: &OperationFilter) {
        if let Some(kind) = &filter.kind {
            self.and("o.kind =", kind);
        }
        if let Some(reason) = filter.reason {
            self.and("o.reason =", reason.as_str());
        }
        if let Some(destination) = &filter.destination {
            self.and("o.destination =", destination);
        }
        if let Some(prefix) = &filter.id_prefix {
            self.and("o.id >=", prefix);
            self.and("o.id <", &format!("{prefix}\u{10FFFF}"));
        }
    }

    fn and(&mut self, condition: &str, value: &str) {
        self.values.push(Box::new(escaped(value).into_owned()));
        let place = self.values.len();
        // Writing to a text does not fail.
        let _ = write!(self.conditions, " AND {condition} ${place}");
    }

    /// The newest of every listed state, merged: each part is found by the index of states.
    fn sql(&mut self, states: &[String]) -> String {
        let newest = |conditions: &str| {
            let columns = select!("FROM operations o WHERE");
            format!("({columns} {conditions} ORDER BY o.number DESC LIMIT $2)")
        };
        let states: BTreeSet<&String> = states.iter().collect();
        if states.is_empty() {
            return newest(&self.conditions);
        }
        let mut parts = Vec::new();
        for state in states {
            self.values.push(Box::new(state.clone()));
            let place = self.values.len();
            parts.push(newest(&format!(
                "{} AND o.state = ${place}",
                self.conditions
            )));
        }
        let parts = parts.join(" UNION ALL ");
        format!("SELECT * FROM ({parts}) AS o ORDER BY o.number DESC LIMIT $2")
    }

    fn values(&self) -> Vec<&(dyn ToSql + Sync)> {
        self.values.iter().map(|value| &**value).collect()
    }
}

fn operations(rows: &[Row]) -> Result<Vec<StoredOperation>, PostgresError> {
    let operation = |row| Ok(rows::entry(row)?.operation);
    rows.iter().map(operation).collect()
}

fn limit_of(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
