//! Lists of operations.
//!
//! A list by state or by type takes the newest of every pair of state and type from the index, and
//! merges them: there are seven states and few types.

use policy::item::TerminalReason;
use policy::operation::OperationState;
use policy::time::WallTime;
use rusqlite::{Connection, named_params, params};

use super::calls::first_due;
use super::rows::{self, select, value};
use crate::operations::entry::Entry;
use crate::operations::{Lane, OperationFilter, StoredOperation};
use crate::sqlite::limit_of;
use crate::sqlite::problem::SqliteError;

pub(super) fn lanes(
    connection: &Connection,
    after: Option<Lane>,
    limit: usize,
) -> Result<Vec<(Lane, WallTime)>, SqliteError> {
    let mut lanes = Vec::new();
    let mut last = after;
    while lanes.len() < limit {
        let Some(lane) = next_lane(connection, last.as_ref())? else {
            break;
        };
        if let Some(at) = first_due(connection, &lane)? {
            lanes.push((lane.clone(), at));
        }
        last = Some(lane);
    }
    Ok(lanes)
}

fn next_lane(connection: &Connection, after: Option<&Lane>) -> Result<Option<Lane>, SqliteError> {
    let destination = match after {
        None => value(connection, FIRST_DESTINATION, [])?,
        Some(Lane { destination, kind }) => {
            let kind = value(connection, NEXT_KIND, [destination, kind])?;
            if let Some(kind) = kind {
                let destination = destination.clone();
                return Ok(Some(Lane { destination, kind }));
            }
            value(connection, NEXT_DESTINATION, [destination])?
        }
    };
    let Some(destination): Option<String> = destination else {
        return Ok(None);
    };
    let kind = value(connection, FIRST_KIND, [&destination])?;
    Ok(kind.map(|kind| Lane { destination, kind }))
}

pub(super) const FIRST_DESTINATION: &str = "
    SELECT destination FROM operations INDEXED BY operations_claim
    WHERE state IN ('available', 'retryable') AND is_blocked = 0 AND destination >= ''
    ORDER BY destination LIMIT 1";

pub(super) const NEXT_DESTINATION: &str = "
    SELECT destination FROM operations INDEXED BY operations_claim
    WHERE state IN ('available', 'retryable') AND is_blocked = 0 AND destination > ?
    ORDER BY destination LIMIT 1";

pub(super) const FIRST_KIND: &str = "
    SELECT kind FROM operations INDEXED BY operations_claim
    WHERE state IN ('available', 'retryable') AND is_blocked = 0 AND destination = ?
    ORDER BY kind LIMIT 1";

pub(super) const NEXT_KIND: &str = "
    SELECT kind FROM operations INDEXED BY operations_claim
    WHERE state IN ('available', 'retryable') AND is_blocked = 0 AND destination = ? AND kind > ?
    ORDER BY kind LIMIT 1";

pub(super) fn unreported(
    connection: &Connection,
    limit: usize,
) -> Result<Vec<StoredOperation>, SqliteError> {
    let statement = connection.prepare_cached(UNREPORTED)?;
    Ok(operations(rows::all(statement, [limit_of(limit)])?))
}

pub(super) const UNREPORTED: &str = select!(
    "INDEXED BY operations_unreported
     WHERE is_unreported = 1 ORDER BY ended_at_ms, number LIMIT ?"
);

pub(super) fn page(
    connection: &Connection,
    filter: &OperationFilter,
    before: Option<u64>,
    limit: usize,
) -> Result<Vec<StoredOperation>, SqliteError> {
    let page = Page {
        connection,
        filter,
        before: before.map_or(i64::MAX, |before| i64::try_from(before).unwrap_or(i64::MAX)),
        limit: limit_of(limit),
    };
    let mut entries = match filter {
        OperationFilter {
            reason: Some(reason),
            ..
        } => page.with_reason(*reason)?,
        OperationFilter {
            state: None,
            kind: None,
            ..
        } => page.of_all()?,
        OperationFilter {
            state: Some(state), ..
        } => page.in_state(state)?,
        OperationFilter { state: None, .. } => {
            let mut entries = Vec::new();
            for state in STATES {
                entries.extend(page.in_state(state.as_str())?);
            }
            entries
        }
    };
    entries.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.operation.number));
    entries.truncate(limit);
    Ok(operations(entries))
}

struct Page<'a> {
    connection: &'a Connection,
    filter: &'a OperationFilter,
    before: i64,
    limit: i64,
}

impl Page<'_> {
    fn of_all(&self) -> Result<Vec<Entry>, SqliteError> {
        let statement = self.connection.prepare_cached(PAGE)?;
        let params = named_params! {
            ":before": self.before,
            ":limit": self.limit,
            ":destination": self.filter.destination,
        };
        rows::all(statement, params)
    }

    fn with_reason(&self, reason: TerminalReason) -> Result<Vec<Entry>, SqliteError> {
        let statement = self.connection.prepare_cached(PAGE_BY_REASON)?;
        let params = named_params! {
            ":reason": reason.as_str(),
            ":before": self.before,
            ":limit": self.limit,
            ":state": self.filter.state,
            ":kind": self.filter.kind,
            ":destination": self.filter.destination,
        };
        rows::all(statement, params)
    }

    fn in_state(&self, state: &str) -> Result<Vec<Entry>, SqliteError> {
        if let Some(kind) = &self.filter.kind {
            return self.in_state_of_kind(state, kind);
        }
        let mut entries = Vec::new();
        let mut kind: Option<String> = value(self.connection, FIRST_KIND_IN_STATE, [state])?;
        while let Some(name) = kind {
            entries.extend(self.in_state_of_kind(state, &name)?);
            kind = value(self.connection, NEXT_KIND_IN_STATE, params![state, name])?;
        }
        Ok(entries)
    }

    fn in_state_of_kind(&self, state: &str, kind: &str) -> Result<Vec<Entry>, SqliteError> {
        let statement = self.connection.prepare_cached(PAGE_BY_STATE)?;
        let params = named_params! {
            ":state": state,
            ":kind": kind,
            ":before": self.before,
            ":limit": self.limit,
            ":destination": self.filter.destination,
        };
        rows::all(statement, params)
    }
}

pub(super) const PAGE: &str = select!(
    "WHERE number < :before AND (:destination IS NULL OR destination = :destination)
     ORDER BY number DESC LIMIT :limit"
);

pub(super) const PAGE_BY_STATE: &str = select!(
    "INDEXED BY operations_state
     WHERE state = :state AND kind = :kind AND number < :before
        AND (:destination IS NULL OR destination = :destination)
     ORDER BY number DESC LIMIT :limit"
);

pub(super) const PAGE_BY_REASON: &str = select!(
    "INDEXED BY operations_reason
     WHERE reason = :reason AND number < :before
        AND (:state IS NULL OR state = :state)
        AND (:kind IS NULL OR kind = :kind)
        AND (:destination IS NULL OR destination = :destination)
     ORDER BY number DESC LIMIT :limit"
);

pub(super) const FIRST_KIND_IN_STATE: &str = "
    SELECT kind FROM operations INDEXED BY operations_state
    WHERE state = ? ORDER BY kind LIMIT 1";

pub(super) const NEXT_KIND_IN_STATE: &str = "
    SELECT kind FROM operations INDEXED BY operations_state
    WHERE state = ? AND kind > ? ORDER BY kind LIMIT 1";

/// One of each word.
const STATES: [OperationState; 7] = [
    OperationState::Available,
    OperationState::Running,
    OperationState::Retryable,
    OperationState::Completed,
    OperationState::Failed(TerminalReason::Expired),
    OperationState::Conflict,
    OperationState::Cancelled,
];

fn operations(entries: Vec<Entry>) -> Vec<StoredOperation> {
    entries.into_iter().map(|entry| entry.operation).collect()
}
