//! Operations, and this binary as a child.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use policy::time::WallTime;
use store::operations::{Lane, NewOperation, StoredRequest};

/// The folder that a child uses. A test that is run only as a child does nothing without it.
pub(crate) const FOLDER: &str = "STORE_TEST_FOLDER";

/// Runs one test of this binary as a child.
pub(crate) fn child(test: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", test, "--nocapture"])
        .env(FOLDER, folder);
    command
}

pub(crate) fn lane() -> Lane {
    Lane {
        destination: "api.example.com".to_owned(),
        kind: "default".to_owned(),
    }
}

pub(crate) fn operation(id: &str, body: Vec<u8>) -> NewOperation {
    NewOperation {
        id: id.to_owned(),
        kind: lane().kind,
        destination: lane().destination,
        request: StoredRequest {
            method: "POST".to_owned(),
            body,
            ..StoredRequest::default()
        },
        summary: "POST api.example.com".to_owned(),
        idempotency_key: id.to_owned(),
        fingerprint: id.into(),
        client: String::new(),
        credential: None,
        backoff: None,
        order_key: None,
        priority: 0,
        trace_id: None,
        accepted_at: WallTime::from_unix_millis(0),
        expires_at: WallTime::from_unix_millis(i64::MAX),
        retain: Duration::MAX,
        is_reported: false,
    }
}
