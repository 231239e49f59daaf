//! Operations on a disk that is full, read-only or damaged: a clear error, nothing is accepted, and
//! nothing that was accepted is lost.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use store::operations::{Inserted, wait};
use store::{OpenError, Store, StoreError};
use tempfile::TempDir;

use super::support::{FOLDER, child, operation};

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
        match wait(queue.insert(operation(&format!("child-{number}"), vec![7; 64 << 10]))) {
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
    wait(store.operations().insert(operation("before", vec![7; 10]))).unwrap();
    (outer, folder)
}

const INSERTING: &str = "bad::a_child_inserts_until_it_is_refused";

/// The command as arguments of another one.
fn wrapped(program: &str, args: &[&str], command: &Command) -> Command {
    let mut outer = Command::new(program);
    outer.args(args).arg(command.get_program());
    outer.args(command.get_args());
    outer.envs(
        command
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    outer
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
    wait(queue.insert(operation("after", vec![7; 10]))).unwrap();
}

#[test]
fn a_bound_on_files_refuses_and_loses_nothing() {
    let (_outer, folder) = prepared();
    // In blocks of 512 bytes: 2 MiB. Without the signal, a write fails.
    let output = wrapped(
        "sh",
        &["-c", "trap '' XFSZ; ulimit -f 4096; exec \"$0\" \"$@\""],
        &child(INSERTING, &folder),
    )
    .output()
    .unwrap();
    let text = text(&output);
    let accepted = accepted(&text);
    assert!(!accepted.is_empty() && accepted.len() < 100, "{text}");
    assert!(text.contains("refused: `"), "{text}");
    check(&folder, &accepted);
}

/// Not a test of its own: what a child does on a disk of [`SMALL_DISK`].
#[test]
fn a_child_fills_a_small_disk() {
    let Some(disk) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    let folder = disk.join("data");
    let other_file = disk.join("other");
    fs::write(&other_file, vec![7; 1 << 20]).unwrap();
    let store = Store::open(&folder).unwrap();
    let queue = store.operations();
    let insert = |id: &str| wait(queue.insert(operation(id, vec![7; 64 << 10])));
    let mut accepted = Vec::new();
    let error = loop {
        let id = accepted.len().to_string();
        match insert(&id) {
            Ok(_) => accepted.push(id),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::DiskFull { .. }), "{error}");
    assert!(store.is_degraded());
    insert("refused").unwrap_err();
    assert!(!accepted.is_empty());
    for id in &accepted {
        assert!(wait(queue.get(id)).unwrap().is_some(), "lost: {id}");
    }

    fs::remove_file(other_file).unwrap();
    insert("after").unwrap();
    assert!(!store.is_degraded());
    accepted.push("after".to_owned());
    drop((queue, store));
    let queue = Store::open(&folder).unwrap().operations();
    assert_eq!(queue.counts().available, accepted.len() as u64);
    for id in accepted {
        assert!(wait(queue.get(&id)).unwrap().is_some(), "lost: {id}");
    }
    println!("\nall were there");
}

/// Larger than the 1 MiB of the other file and the store's own files together.
const SMALL_DISK: &str = "size=4m";

/// Where no disk can be mounted, only the bound on files is tested.
#[test]
fn a_full_disk_refuses_until_there_is_space() {
    let disk = tempfile::tempdir().unwrap();
    let mount = format!("mount -t tmpfs -o {SMALL_DISK} none \"${FOLDER}\" && exec \"$0\" \"$@\"");
    // In a namespace of its own, where any user may mount, and which ends with the child.
    let mounted = |command: &mut Command| {
        let unshare = ["--map-root-user", "--mount", "sh", "-c", &mount];
        let command = command.env(FOLDER, disk.path());
        wrapped("unshare", &unshare, command).output()
    };
    let probe = mounted(&mut Command::new("true"));
    if !probe.is_ok_and(|output| output.status.success()) {
        println!("no disk can be mounted here");
        return;
    }
    let test = "bad::a_child_fills_a_small_disk";
    let output = mounted(&mut child(test, disk.path()));
    let text = text(&output.unwrap());
    assert!(text.contains("all were there"), "{text}");
}

#[test]
fn a_read_only_file_is_refused_with_its_name() {
    let (outer, folder) = prepared();
    let file = folder.join("tidegate.db");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o400)).unwrap();
    let mut child = child(INSERTING, &folder);
    if fs::metadata(&folder).unwrap().uid() == 0 {
        // The superuser may write everything.
        const UNPRIVILEGED_USER: u32 = 65_534;
        for path in [outer.path(), &folder, &file, &folder.join("tidegate.lock")] {
            chown(path, Some(UNPRIVILEGED_USER), Some(UNPRIVILEGED_USER)).unwrap();
        }
        child.uid(UNPRIVILEGED_USER).gid(UNPRIVILEGED_USER);
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
        wait(queue.insert(operation(&number.to_string(), vec![7; 4 << 10]))).unwrap();
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
