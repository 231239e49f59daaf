//! Rows of what changed at run time: protection, endpoints added and removed, refresh tokens.

use std::collections::BTreeMap;

use rusqlite::{Connection, Row};

use super::problem::SqliteError;
use crate::operations::SealError;
use crate::record::{self, AddedEndpoint, Protection, RemovedEndpoint, RotatedToken};
use crate::seal::{Keys, Place, bytes_of_hex, to_hex};

pub(super) fn protect(
    connection: &Connection,
    pool: &str,
    protection: Option<&Protection>,
) -> rusqlite::Result<()> {
    run(
        connection,
        "DELETE FROM protection_values WHERE pool = ?",
        [pool],
    )?;
    let Some(protection) = protection else {
        return run(connection, "DELETE FROM protections WHERE pool = ?", [pool]);
    };
    run(
        connection,
        "INSERT OR IGNORE INTO protections VALUES (?)",
        [pool],
    )?;
    for (name, value) in &protection.values {
        let row = [pool, name, value];
        run(
            connection,
            "INSERT INTO protection_values VALUES (?, ?, ?)",
            row,
        )?;
    }
    Ok(())
}

/// One that is there already has the same number as before, and so the same place in the order.
pub(super) fn add(connection: &Connection, endpoint: &AddedEndpoint) -> rusqlite::Result<()> {
    let AddedEndpoint {
        pool,
        name,
        url,
        headers,
    } = endpoint;
    forget_removed(connection, pool, name)?;
    let headers = record::headers_to_text(headers);
    run(
        connection,
        "INSERT INTO added_endpoints (pool, name, url, headers) VALUES (?, ?, ?, ?)
         ON CONFLICT DO UPDATE SET url = excluded.url, headers = excluded.headers",
        [pool, name, url, &headers],
    )
}

pub(super) fn remove(connection: &Connection, pool: &str, name: &str) -> rusqlite::Result<()> {
    forget_added(connection, pool, name)?;
    let row = [pool, name];
    run(
        connection,
        "INSERT OR IGNORE INTO removed_endpoints VALUES (?, ?)",
        row,
    )
}

pub(super) fn as_configured(
    connection: &Connection,
    pool: &str,
    name: &str,
) -> rusqlite::Result<()> {
    forget_added(connection, pool, name)?;
    forget_removed(connection, pool, name)
}

fn forget_added(connection: &Connection, pool: &str, name: &str) -> rusqlite::Result<()> {
    let sql = "DELETE FROM added_endpoints WHERE pool = ? AND name = ?";
    run(connection, sql, [pool, name])
}

fn forget_removed(connection: &Connection, pool: &str, name: &str) -> rusqlite::Result<()> {
    let sql = "DELETE FROM removed_endpoints WHERE pool = ? AND name = ?";
    run(connection, sql, [pool, name])
}

pub(super) fn rotate(
    connection: &Connection,
    keys: &Keys,
    rotated: &RotatedToken,
) -> Result<(), SqliteError> {
    let RotatedToken {
        credential,
        origin,
        token,
    } = rotated;
    let place = token_place(credential);
    let sealed = keys
        .seal(place, token.as_bytes())
        .map_err(|error| SqliteError::sealed(place, error))?;
    let key_id = keys.id();
    // Text, as the column was before anything was sealed.
    let stored = if key_id.is_some() {
        to_hex(&sealed)
    } else {
        token.clone()
    };
    let sql = "INSERT OR REPLACE INTO refresh_tokens (credential, origin, token, key_id)
               VALUES (?, ?, ?, ?)";
    let row = rusqlite::params![credential, origin, stored, key_id];
    connection.prepare_cached(sql)?.execute(row)?;
    Ok(())
}

fn token_place(credential: &str) -> Place<'_> {
    Place {
        table: "refresh_tokens",
        row: credential,
        column: "token",
    }
}

pub(super) fn forget_rotated(connection: &Connection, credential: &str) -> rusqlite::Result<()> {
    let sql = "DELETE FROM refresh_tokens WHERE credential = ?";
    run(connection, sql, [credential])
}

fn run<const N: usize>(
    connection: &Connection,
    sql: &str,
    values: [&str; N],
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(sql)?
        .execute(rusqlite::params_from_iter(values))?;
    Ok(())
}

pub(super) fn protections(
    connection: &Connection,
) -> Result<BTreeMap<String, Protection>, SqliteError> {
    let mut protections = BTreeMap::new();
    let mut statement = connection.prepare("SELECT pool FROM protections")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        protections.insert(row.get("pool")?, Protection::default());
    }
    let mut statement = connection.prepare("SELECT pool, name, value FROM protection_values")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let protection = protections.entry(row.get("pool")?).or_default();
        protection
            .values
            .insert(row.get("name")?, row.get("value")?);
    }
    Ok(protections)
}

pub(super) fn added(connection: &Connection) -> Result<Vec<AddedEndpoint>, SqliteError> {
    let mut statement = connection.prepare("SELECT * FROM added_endpoints ORDER BY number")?;
    let mut rows = statement.query([])?;
    let mut added = Vec::new();
    while let Some(row) = rows.next()? {
        added.push(endpoint(row)?);
    }
    Ok(added)
}

fn endpoint(row: &Row<'_>) -> Result<AddedEndpoint, SqliteError> {
    let headers: String = row.get("headers")?;
    Ok(AddedEndpoint {
        pool: row.get("pool")?,
        name: row.get("name")?,
        url: row.get("url")?,
        headers: record::headers_from_text(&headers).map_err(|reason| SqliteError::Row {
            table: "added_endpoints",
            reason,
        })?,
    })
}

pub(super) fn removed(connection: &Connection) -> Result<Vec<RemovedEndpoint>, SqliteError> {
    let mut statement =
        connection.prepare("SELECT pool, name FROM removed_endpoints ORDER BY pool, name")?;
    let mut rows = statement.query([])?;
    let mut removed = Vec::new();
    while let Some(row) = rows.next()? {
        removed.push(RemovedEndpoint {
            pool: row.get("pool")?,
            name: row.get("name")?,
        });
    }
    Ok(removed)
}

/// All tokens, and the errors of those that cannot be read.
pub(super) fn rotated(
    connection: &Connection,
    keys: &Keys,
) -> Result<(Vec<RotatedToken>, Vec<SqliteError>), SqliteError> {
    let sql = "SELECT credential, origin, token, key_id FROM refresh_tokens ORDER BY credential";
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query([])?;
    let (mut rotated, mut unreadable) = (Vec::new(), Vec::new());
    while let Some(row) = rows.next()? {
        let credential: String = row.get("credential")?;
        let key_id: Option<Vec<u8>> = row.get("key_id")?;
        match open_token(keys, &credential, row.get("token")?, key_id) {
            Ok(token) => rotated.push(RotatedToken {
                credential,
                origin: row.get("origin")?,
                token,
            }),
            Err(error) => unreadable.push(SqliteError::sealed(token_place(&credential), error)),
        }
    }
    Ok((rotated, unreadable))
}

fn open_token(
    keys: &Keys,
    credential: &str,
    stored: String,
    key_id: Option<Vec<u8>>,
) -> Result<String, SealError> {
    let Some(key_id) = key_id else {
        return Ok(stored);
    };
    let sealed = bytes_of_hex(&stored).ok_or(SealError::Tampered)?;
    let token = keys.open(&key_id, token_place(credential), sealed)?;
    String::from_utf8(token).map_err(|_| SealError::Tampered)
}
