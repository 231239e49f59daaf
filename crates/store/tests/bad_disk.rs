//! Operations on a disk that is full, read-only or damaged: a clear error, nothing is accepted, and
//! nothing that was accepted is lost.
//!
//! A process cannot make its own disk bad, so the test runs itself as a child: with a bound on the
//! size of files, or as a user who may not write.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use policy::time::WallTime;
use store::operations::{Inserted, NewOperation, StoredRequest, wait};
use store::{OpenError, Store, StoreError};
use tempfile::TempDir;

/// The folder that a child uses.
const FOLDER: &str = "TIDEGATE_BAD_DISK";

/// Not a test of its own: what a child does. It inserts until it is refused, and prints what was
/// accepted.
#[test]
fn a_child_inserts_until_it_is_refused() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let store = match Store::open(Path::new(&folder)) {
        Ok(store) => store,
        Err(error) => {
            println!("\nrefused to open: {error}");
            return;
        }
    };
    let queue = store.operations();
    for number in 0..1000 {
        match wait(queue.insert(operation(&format!("child-{number}"), 64 << 10))) {
            Ok(Inserted::New(operation)) => println!("\naccepted {}", operation.id),
            Ok(other) => panic!("{other:?}"),
            Err(error) => {
                println!("\nrefused: {error}");
                assert!(store.is_degraded());
                break;
            }
        }
    }
    // What is read is still there.
    assert!(wait(queue.get("before")).unwrap().is_some());
}

/// A folder with one operation.
fn prepared() -> (TempDir, PathBuf) {
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("data");
    let store = Store::open(&folder).unwrap();
    wait(store.operations().insert(operation("before", 10))).unwrap();
    (outer, folder)
}

/// The test as a child, by way of a shell that runs `before` first.
fn child(folder: &Path, before: &str) -> Command {
    let mut command = Command::new("sh");
    command
        .arg("-c")
        .arg(format!("{before} exec \"$0\" \"$@\""))
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "a_child_inserts_until_it_is_refused",
            "--nocapture",
        ])
        .env(FOLDER, folder);
    command
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn accepted(text: &str) -> Vec<&str> {
    text.lines()
        .filter_map(|line| line.strip_prefix("accepted "))
        .collect()
}

/// What was accepted is there after all, and more can be.
fn check(folder: &Path, accepted: &[&str]) {
    let store = Store::open(folder).unwrap();
    let queue = store.operations();
    for id in accepted.iter().chain(&["before"]) {
        assert!(wait(queue.get(id)).unwrap().is_some(), "lost: {id}");
    }
    assert_eq!(queue.counts().available, accepted.len() as u64 + 1);
    wait(queue.insert(operation("after", 10))).unwrap();
}

#[test]
fn a_full_disk_refuses_and_loses_nothing() {
    let (_outer, folder) = prepared();
    // In blocks of 512 bytes: 2 MiB. Without the signal, a write fails.
    let output = child(&folder, "trap '' XFSZ; ulimit -f 4096;")
        .output()
        .unwrap();
    let text = text(&output);
    let accepted = accepted(&text);
    assert!(!accepted.is_empty() && accepted.len() < 100, "{text}");
    assert!(text.contains("refused: `"), "{text}");
    check(&folder, &accepted);
}

#[test]
fn a_read_only_file_is_refused_with_its_name() {
    let (outer, folder) = prepared();
    let file = folder.join("tidegate.db");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o400)).unwrap();
    let mut child = child(&folder, "");
    if fs::metadata(&folder).unwrap().uid() == 0 {
        // The superuser may write everything.
        const NOBODY: u32 = 65_534;
        for path in [outer.path(), &folder, &file, &folder.join("tidegate.lock")] {
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        child.uid(NOBODY).gid(NOBODY);
    }
    let output = child.output().unwrap();
    let text = text(&output);
    assert!(text.contains("refused to open: `"), "{text}");
    assert!(
        text.contains("tidegate.db") && text.contains("hint: "),
        "{text}"
    );
    assert!(accepted(&text).is_empty());
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    check(&folder, &[]);
}

#[test]
fn damage_in_the_middle_of_a_file_is_reported_and_not_written_over() {
    let (_outer, folder) = prepared();
    let path = folder.join("tidegate.db");
    let queue = Store::open(&folder).unwrap().operations();
    for number in 0..50 {
        wait(queue.insert(operation(&number.to_string(), 4 << 10))).unwrap();
    }
    drop(queue);
    let whole = fs::read(&path).unwrap();
    let mut damaged = whole.clone();
    let pages = damaged.len() / 4096;
    for page in damaged.chunks_mut(4096).skip(3).take(pages / 2) {
        page.fill(0xA5);
    }
    fs::write(&path, &damaged).unwrap();
    let error = Store::open(&folder).unwrap_err();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    assert_eq!(fs::read(&path).unwrap(), damaged);
    // The copy that the message asks for.
    fs::write(&path, whole).unwrap();
    let queue = Store::open(&folder).unwrap().operations();
    assert_eq!(queue.counts().available, 51);
}

#[test]
fn damage_while_it_runs_fails_reads_until_the_file_is_put_back() {
    let (_outer, folder) = prepared();
    let store = Store::open(&folder).unwrap();
    let queue = store.operations();
    // A connection reads the schema with its first statement.
    let path = folder.join("tidegate.db");
    let whole = fs::read(&path).unwrap();
    let mut damaged = whole.clone();
    damaged[100..].fill(0xA5);
    fs::write(&path, &damaged).unwrap();
    let error = wait(queue.get("before")).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("hint: "), "{error}");
    fs::write(&path, whole).unwrap();
    assert!(wait(queue.get("before")).unwrap().is_some());
}

fn operation(id: &str, body: usize) -> NewOperation {
    NewOperation {
        id: id.to_owned(),
        kind: "default".to_owned(),
        destination: "api.example.com".to_owned(),
        request: StoredRequest {
            method: "POST".to_owned(),
            body: vec![7; body],
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
