//! Lists of operations.
//!
//! A list by state, reason or destination takes the newest of each type from an index, and merges
//! them: there are seven states, ten reasons and few types.

use policy::item::TerminalReason;
use policy::operation::OperationState;
use policy::time::WallTime;
use rusqlite::{Connection, named_params, params};

use super::calls::first_due;
use super::payloads;
use super::rows::{self, select, value};
use crate::operations::columns::STATES;
use crate::operations::entry::Entry;
use crate::operations::{ExportedOperation, Lane, OperationFilter, StoredOperation};
use crate::seal::Keys;
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

pub(super) fn export(
    connection: &Connection,
    keys: &Keys,
    after: u64,
    limit: usize,
) -> Result<Vec<ExportedOperation>, SqliteError> {
    let statement = connection.prepare_cached(EXPORT)?;
    let entries = rows::all(statement, params![after, limit_of(limit)])?;
    let exported = entries.into_iter().map(|entry| {
        let number = entry.operation.number;
        Ok(ExportedOperation {
            request: payloads::request(connection, keys, number)?.unwrap_or_default(),
            conflict: payloads::conflict(connection, keys, number)?,
            response: payloads::response(connection, keys, number)?,
            attempts: payloads::attempts(connection, number)?,
            entry,
        })
    });
    exported.collect()
}

pub(super) const EXPORT: &str = select!("WHERE number > ? ORDER BY number LIMIT ?");

pub(super) fn page(
    connection: &Connection,
    filter: &OperationFilter,
    before: Option<u64>,
    limit: usize,
) -> Result<Vec<StoredOperation>, SqliteError> {
    let prefix = filter.id_prefix.as_deref();
    let page = Page {
        connection,
        filter,
        ids: prefix.map(|prefix| (prefix, format!("{prefix}\u{10FFFF}"))),
        before: before.map_or(i64::MAX, |before| i64::try_from(before).unwrap_or(i64::MAX)),
        limit: limit_of(limit),
    };
    let mut entries = match filter {
        _ if page.has_few_ids()? => page.by_id(limit)?,
        OperationFilter {
            destination: Some(destination),
            ..
        } => page.to_destination(destination)?,
        OperationFilter {
            reason: Some(reason),
            ..
        } => page.with_reason(*reason)?,
        OperationFilter {
            states, kind: None, ..
        } if states.is_empty() => page.of_all()?,
        OperationFilter { .. } => {
            let mut entries = Vec::new();
            for state in page.states() {
                entries.extend(page.in_state(state)?);
            }
            entries
        }
    };
    entries.retain(|entry| filter.matches(&entry.operation));
    entries.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.operation.number));
    entries.truncate(limit);
    Ok(operations(entries))
}

/// A page of a list. Every method returns the newest `limit` operations of a part of it, and all
/// parts together have the page.
struct Page<'a> {
    connection: &'a Connection,
    filter: &'a OperationFilter,
    /// Ids that are listed: from here on, and before there.
    ids: Option<(&'a str, String)>,
    before: i64,
    limit: i64,
}

impl<'a> Page<'a> {
    /// The states that are listed.
    fn states(&self) -> Vec<&'a str> {
        match &*self.filter.states {
            [] => STATES.iter().map(|state| state.as_str()).collect(),
            states => states.iter().map(String::as_str).collect(),
        }
    }

    fn of_all(&self) -> Result<Vec<Entry>, SqliteError> {
        let statement = self.connection.prepare_cached(PAGE)?;
        let params = named_params! {
            ":before": self.before,
            ":limit": self.limit,
            ":from": self.first_id(),
            ":to": self.end_of_ids(),
        };
        rows::all(statement, params)
    }

    fn first_id(&self) -> Option<&str> {
        self.ids.as_ref().map(|(from, _)| *from)
    }

    fn end_of_ids(&self) -> Option<&str> {
        self.ids.as_ref().map(|(_, to)| to.as_str())
    }

    fn in_state(&self, state: &str) -> Result<Vec<Entry>, SqliteError> {
        self.of_kinds(&BY_STATE, state, None)
    }

    fn with_reason(&self, reason: TerminalReason) -> Result<Vec<Entry>, SqliteError> {
        self.of_kinds(&BY_REASON, reason.as_str(), None)
    }

    /// Those under a key of an index, of the filter's type or of every type in turn.
    fn of_kinds(
        &self,
        index: &KindIndex,
        key: &str,
        state: Option<&str>,
    ) -> Result<Vec<Entry>, SqliteError> {
        if let Some(kind) = &self.filter.kind {
            return self.of_kind(index, key, kind, state);
        }
        let mut entries = Vec::new();
        let mut kind: Option<String> = value(self.connection, index.first_kind, [key])?;
        while let Some(name) = kind {
            entries.extend(self.of_kind(index, key, &name, state)?);
            kind = value(self.connection, index.next_kind, params![key, name])?;
        }
        Ok(entries)
    }

    fn of_kind(
        &self,
        index: &KindIndex,
        key: &str,
        kind: &str,
        state: Option<&str>,
    ) -> Result<Vec<Entry>, SqliteError> {
        let statement = self.connection.prepare_cached(index.page)?;
        let params = named_params! {
            ":key": key,
            ":kind": kind,
            ":before": self.before,
            ":limit": self.limit,
            ":state": state,
            ":destination": self.filter.destination,
            ":from": self.first_id(),
            ":to": self.end_of_ids(),
        };
        rows::all(statement, params)
    }

    fn to_destination(&self, destination: &str) -> Result<Vec<Entry>, SqliteError> {
        if self.filter.states.is_empty() && self.filter.reason.is_none() {
            return self.of_kinds(&BY_DESTINATION, destination, None);
        }
        let mut entries = Vec::new();
        for state in self.states() {
            if ["failed", "conflict", "cancelled"].contains(&state) {
                entries.extend(self.ended(state, destination)?);
            } else if self.filter.reason.is_none() {
                entries.extend(match self.is_rare(state)? {
                    true => self.in_state(state)?,
                    false => self.of_kinds(&BY_DESTINATION, destination, Some(state))?,
                });
            }
        }
        Ok(entries)
    }

    /// Those in a state that has a reason.
    fn ended(&self, state: &str, destination: &str) -> Result<Vec<Entry>, SqliteError> {
        let mut entries = Vec::new();
        for &reason in TerminalReason::ALL {
            let is_listed = self.filter.reason.is_none_or(|listed| listed == reason);
            if !is_listed || state_of(reason).as_str() != state {
                continue;
            }
            let statement = self.connection.prepare_cached(PAGE_OF_ENDED)?;
            let params = named_params! {
                ":destination": destination,
                ":reason": reason.as_str(),
                ":kind": self.filter.kind,
                ":before": self.before,
                ":limit": self.limit,
                ":from": self.first_id(),
                ":to": self.end_of_ids(),
            };
            entries.extend(rows::all(statement, params)?);
        }
        Ok(entries)
    }

    /// Are there few operations in this state? Then it is faster to look for the destination among
    /// them than for the state among the destination's.
    fn is_rare(&self, state: &str) -> Result<bool, SqliteError> {
        let found: Option<i64> = value(self.connection, COUNT_IN_STATE, params![state, FEW])?;
        Ok(found.unwrap_or_default() < FEW)
    }

    /// Are ids listed, and few of them? Many are rather found among what the rest of the filter lists.
    fn has_few_ids(&self) -> Result<bool, SqliteError> {
        let Some((from, to)) = &self.ids else {
            return Ok(false);
        };
        let found: Option<i64> = value(self.connection, COUNT_IDS, params![from, to, FEW_IDS])?;
        Ok(found.unwrap_or_default() < FEW_IDS)
    }

    /// Those with the listed ids. Ids sort as they were made, but not exactly, so their order is not
    /// that of the list.
    fn by_id(&self, limit: usize) -> Result<Vec<Entry>, SqliteError> {
        let params = params![self.first_id(), self.end_of_ids(), self.before];
        let mut entries = Vec::new();
        for number in rows::numbers(self.connection, IDS, params)? {
            let entry = rows::by_number(self.connection, number)?;
            entries.extend(entry.filter(|entry| self.filter.matches(&entry.operation)));
            if entries.len() >= limit {
                break;
            }
        }
        Ok(entries)
    }
}

/// What a list of so many takes is not noticed.
const FEW: i64 = 5000;

/// Ids alone are read and sorted faster.
const FEW_IDS: i64 = 20_000;

/// The state that an operation with this reason is in.
const fn state_of(reason: TerminalReason) -> OperationState {
    match reason {
        TerminalReason::Conflict => OperationState::Conflict,
        TerminalReason::Cancelled => OperationState::Cancelled,
        reason => OperationState::Failed(reason),
    }
}

pub(super) const PAGE: &str = select!(
    "WHERE number < :before AND (:from IS NULL OR (id >= :from AND id < :to))
     ORDER BY number DESC LIMIT :limit"
);

/// Statements over an index of a key, the type and the number.
pub(super) struct KindIndex {
    pub(super) page: &'static str,
    pub(super) first_kind: &'static str,
    pub(super) next_kind: &'static str,
}

macro_rules! kind_index {
    ($name:literal, $key:literal) => {
        KindIndex {
            page: select!(
                "INDEXED BY ",
                $name,
                " WHERE ",
                $key,
                " = :key AND kind = :kind
                    AND number < :before
                    AND (:state IS NULL OR state = :state)
                    AND (:destination IS NULL OR destination = :destination)
                    AND (:from IS NULL OR (id >= :from AND id < :to))
                 ORDER BY number DESC LIMIT :limit"
            ),
            first_kind: concat!(
                "SELECT kind FROM operations INDEXED BY ",
                $name,
                " WHERE ",
                $key,
                " = ? ORDER BY kind LIMIT 1"
            ),
            next_kind: concat!(
                "SELECT kind FROM operations INDEXED BY ",
                $name,
                " WHERE ",
                $key,
                " = ? AND kind > ? ORDER BY kind LIMIT 1"
            ),
        }
    };
}

pub(super) const BY_STATE: KindIndex = kind_index!("operations_state", "state");
pub(super) const BY_REASON: KindIndex = kind_index!("operations_reason", "reason");
pub(super) const BY_DESTINATION: KindIndex = kind_index!("operations_destination", "destination");

pub(super) const PAGE_OF_ENDED: &str = select!(
    "INDEXED BY operations_ended
     WHERE destination = :destination AND reason = :reason AND number < :before
        AND (:kind IS NULL OR kind = :kind)
        AND (:from IS NULL OR (id >= :from AND id < :to))
     ORDER BY number DESC LIMIT :limit"
);

pub(super) const COUNT_IN_STATE: &str = "
    SELECT count(*) FROM (
        SELECT 1 FROM operations INDEXED BY operations_state WHERE state = ? LIMIT ?)";

pub(super) const COUNT_IDS: &str = "
    SELECT count(*) FROM (
        SELECT 1 FROM operations INDEXED BY operations_id WHERE id >= ? AND id < ? LIMIT ?)";

pub(super) const IDS: &str = "
    SELECT number FROM operations INDEXED BY operations_id
    WHERE id >= ? AND id < ? AND number < ? ORDER BY number DESC";

fn operations(entries: Vec<Entry>) -> Vec<StoredOperation> {
    entries.into_iter().map(|entry| entry.operation).collect()
}
