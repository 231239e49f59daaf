//! Rows of gates.

use policy::breaker::{BreakerRecord, BreakerState};
use policy::gate::{CostRecord, GateRecord};
use policy::hint::Source;
use policy::time::WallTime;
use rusqlite::{Connection, Row, named_params};

use super::problem::SqliteError;
use super::{duration, nanoseconds};
use crate::record::{self, StoredGate};

pub(super) fn write(connection: &Connection, gate: &StoredGate) -> rusqlite::Result<()> {
    let record = &gate.record;
    let mut statement = connection.prepare_cached(
        "INSERT OR REPLACE INTO gates VALUES (
            :key, :rate, :ceiling, :hold, :hold_source, :breaker, :open, :openings, :at,
            :cost, :cost_ceiling, :cost_mean, :banned_above)",
    )?;
    statement.execute(named_params! {
        ":key": gate.key,
        // A number that is none has no column of its own: SQLite makes it NULL.
        ":rate": record.rate,
        ":ceiling": record.ceiling,
        ":hold": record.hold.map(nanoseconds),
        ":hold_source": record.hold_source.map(Source::as_str),
        ":breaker": record.breaker.state.as_str(),
        ":open": nanoseconds(record.breaker.open_for),
        ":openings": record.breaker.openings,
        ":at": gate.at.as_unix_millis(),
        ":cost": record.cost.map(|cost| cost.rate),
        ":cost_ceiling": record.cost.and_then(|cost| cost.ceiling),
        ":cost_mean": record.cost.map(|cost| cost.mean),
        ":banned_above": record.banned_above,
    })?;
    Ok(())
}

pub(super) fn forget(connection: &Connection, key: &str) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached("DELETE FROM gates WHERE key = ?")?;
    statement.execute([key])?;
    Ok(())
}

pub(super) fn forget_before(connection: &Connection, at: WallTime) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached("DELETE FROM gates WHERE written_at_ms < ?")?;
    statement.execute([at.as_unix_millis()])?;
    Ok(())
}

pub(super) fn read(connection: &Connection) -> Result<Vec<StoredGate>, SqliteError> {
    let mut statement = connection.prepare("SELECT * FROM gates ORDER BY key")?;
    let mut rows = statement.query([])?;
    let mut gates = Vec::new();
    while let Some(row) = rows.next()? {
        gates.push(gate(row)?);
    }
    Ok(gates)
}

fn gate(row: &Row<'_>) -> Result<StoredGate, SqliteError> {
    let hold_source: Option<String> = row.get("hold_source")?;
    Ok(StoredGate {
        key: row.get("key")?,
        record: GateRecord {
            rate: row
                .get::<_, Option<f64>>("rate_per_second")?
                .unwrap_or(f64::NAN),
            ceiling: row.get("ceiling_per_second")?,
            banned_above: row.get("banned_above_per_second")?,
            hold: row.get::<_, Option<i64>>("hold_ns")?.map(duration),
            hold_source: hold_source.as_deref().map(record::source),
            breaker: BreakerRecord {
                state: state(&row.get::<_, String>("breaker")?)?,
                open_for: duration(row.get("breaker_open_ns")?),
                openings: row.get("breaker_openings")?,
            },
            cost: cost(row)?,
        },
        at: WallTime::from_unix_millis(row.get("written_at_ms")?),
    })
}

fn cost(row: &Row<'_>) -> rusqlite::Result<Option<CostRecord>> {
    let Some(mean) = row.get("cost_mean")? else {
        return Ok(None);
    };
    Ok(Some(CostRecord {
        rate: row
            .get::<_, Option<f64>>("cost_per_second")?
            .unwrap_or(f64::NAN),
        ceiling: row.get("cost_ceiling_per_second")?,
        mean,
    }))
}

fn state(word: &str) -> Result<BreakerState, SqliteError> {
    record::breaker_state(word).ok_or_else(|| SqliteError::Row {
        table: "gates",
        reason: format!("`{word}` is no state of a breaker"),
    })
}
