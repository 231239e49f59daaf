//! The shares of this node, in a file of the data folder: with them a node starts while Redis cannot be
//! reached.
//!
//! The file is written as a whole every few seconds, and not synced: after a crash of the machine the
//! shares of a minute ago do as well. It belongs to one fleet; another namespace starts without shares.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tidegate::fleet::Claim;

/// What the file contains.
#[derive(Debug, Serialize, Deserialize)]
struct Shares {
    namespace: String,
    gates: BTreeMap<String, Share>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Share {
    rate_per_second: f64,
    share: f64,
    epoch: u32,
    #[serde(default)]
    overrides: u32,
    #[serde(default)]
    is_isolated: bool,
}

const FILE: &str = "fleet-shares.json";

/// The shares that were stored last; none if there is no file, or if it belongs to another fleet.
///
/// # Errors
///
/// If the file cannot be read.
pub(super) fn read(folder: &Path, namespace: &str) -> io::Result<Vec<(String, Claim)>> {
    let text = match fs::read(folder.join(FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read?,
    };
    let stored: Shares = serde_json::from_slice(&text)?;
    if stored.namespace != namespace {
        return Ok(Vec::new());
    }
    let claims = stored.gates.into_iter().filter_map(|(key, stored)| {
        let claim = Claim {
            rate: stored.rate_per_second,
            epoch: stored.epoch,
            share: stored.share,
            overrides: stored.overrides,
            is_isolated: stored.is_isolated,
        };
        let is_sound = claim.rate.is_finite() && claim.rate > 0.0 && claim.share.is_finite();
        is_sound.then_some((key, claim))
    });
    Ok(claims.collect())
}

/// Replaces the stored shares.
///
/// # Errors
///
/// If the file cannot be written; then it is as before.
pub(super) fn write(folder: &Path, namespace: &str, claims: &[(String, Claim)]) -> io::Result<()> {
    let gates = claims.iter().map(|(key, claim)| {
        let share = Share {
            rate_per_second: claim.rate,
            share: claim.share,
            epoch: claim.epoch,
            overrides: claim.overrides,
            is_isolated: claim.is_isolated,
        };
        (key.clone(), share)
    });
    let shares = Shares {
        namespace: namespace.to_owned(),
        gates: gates.collect(),
    };
    let new = folder.join(format!("{FILE}.new"));
    fs::write(&new, serde_json::to_vec_pretty(&shares)?)?;
    fs::rename(new, folder.join(FILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_was_written_for_the_same_fleet_only() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read(folder.path(), "a").unwrap().is_empty());
        let claim = Claim {
            rate: 98.5,
            epoch: 7,
            share: 0.125,
            overrides: 2,
            is_isolated: true,
        };
        let claims = [("llm/a".to_owned(), claim)];
        write(folder.path(), "a", &claims).unwrap();
        assert_eq!(read(folder.path(), "a").unwrap(), claims);
        assert!(read(folder.path(), "b").unwrap().is_empty());
        fs::write(folder.path().join(FILE), "{").unwrap();
        assert!(read(folder.path(), "a").is_err());
    }
}
