//! Tests of the file alone: permissions, lock, errors about a file that cannot be used, migrations, and
//! a disk that fails.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use rusqlite::{Connection, params};
use tempfile::TempDir;

use super::database::SqliteDatabase;
use super::{folder, schema};
use crate::conformance::operations::{at, lane, lease, operation};
use crate::conformance::{endpoint, forget_gate, gate, removed, state};
use crate::faulty::Faults;
use crate::operations::{Inserted, wait};
use crate::queue::Taken;
use crate::writer::Database;
use crate::{Change, Keys, OpenError, Protection, SaveFuture, Store, StoreError, StoredState};

fn temporary() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tidegate.db");
    (folder, path)
}

/// A file with a hundred gates that no process has open.
fn written() -> (TempDir, PathBuf) {
    let (folder, path) = temporary();
    let store = Store::open(folder.path()).unwrap();
    let gates = (0..100).map(|number| Change::Gate(gate(&format!("{number:03}"), 1.0, 1)));
    store.save_all(gates).wait().unwrap();
    (folder, path)
}

/// The file cannot be used, and stays as it is.
fn refused(folder: &Path, path: &Path) -> OpenError {
    let before = fs::read(path).unwrap();
    let error = Store::open(folder).unwrap_err();
    assert_eq!(fs::read(path).unwrap(), before);
    assert!(error.to_string().contains("hint: "), "{error}");
    error
}

mod permissions {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn only_the_owner_may_read() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("made/here");
        let store = Store::open(&folder).unwrap();
        store.save(Change::Gate(gate("a", 1.0, 1))).wait().unwrap();
        assert_eq!(mode(&folder), 0o700);
        let names = [
            "tidegate.db",
            "tidegate.db-wal",
            "tidegate.db-shm",
            "tidegate.lock",
        ];
        for name in names {
            assert_eq!(mode(&folder.join(name)), 0o600, "{name}");
        }
    }

    #[test]
    fn a_folder_that_is_there_keeps_its_mode() {
        let (folder, _) = temporary();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Store::open(folder.path()).unwrap();
        assert_eq!(mode(folder.path()), 0o755);
    }
}

mod ownership {
    use super::*;

    #[test]
    fn a_folder_has_one_owner() {
        let (folder, _) = temporary();
        let first = Store::open(folder.path()).unwrap();
        let error = Store::open(folder.path()).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "the folder `{}` is used by another tidegate (process {})\nhint: stop that one, \
                 or give this one another folder: `server.data`",
                folder.path().display(),
                std::process::id()
            )
        );
        let clone = first.clone();
        drop(first);
        assert!(Store::open(folder.path()).is_err());
        drop(clone);
        Store::open(folder.path()).unwrap();
    }

    #[test]
    fn operators_may_read_meanwhile() {
        let (folder, path) = temporary();
        let store = Store::open(folder.path()).unwrap();
        store.save(Change::Gate(gate("a", 2.5, 1))).wait().unwrap();
        let row: (String, f64, i64, String) = Connection::open(path)
            .unwrap()
            .query_row(
                "SELECT key, rate_per_second, hold_ns / 1000000000, breaker FROM gates",
                [],
                |row| row.try_into(),
            )
            .unwrap();
        assert_eq!(row, ("a".to_owned(), 2.5, 60, "closed".to_owned()));
    }

    struct DropsTheStore {
        store: Mutex<Option<Store>>,
        done: mpsc::Sender<()>,
    }

    impl Wake for DropsTheStore {
        fn wake(self: Arc<Self>) {
            drop(self.store.lock().unwrap().take());
            self.done.send(()).unwrap();
        }
    }

    /// A change that is not written yet when this returns: another connection has the file locked.
    fn blocked(store: &Store, path: &Path) -> (SaveFuture, Connection) {
        let other = Connection::open(path).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let saved = store.save(Change::Gate(gate("a", 1.0, 1)));
        (saved, other)
    }

    #[test]
    fn the_last_store_may_go_on_the_thread_that_writes() {
        let (folder, path) = temporary();
        let store = Store::open(folder.path()).unwrap();
        let (mut saved, other) = blocked(&store, &path);
        let (done, is_done) = mpsc::channel();
        let waker = Waker::from(Arc::new(DropsTheStore {
            store: Mutex::new(Some(store)),
            done,
        }));
        let poll = std::pin::Pin::new(&mut saved).poll(&mut Context::from_waker(&waker));
        assert!(poll.is_pending());
        drop(other);
        is_done.recv().unwrap();
        assert_eq!(saved.wait(), Ok(()));
    }

    #[test]
    fn drop_writes_queued_changes() {
        let (folder, path) = temporary();
        let store = Store::open(folder.path()).unwrap();
        let (saved, other) = blocked(&store, &path);
        drop(store.save(Change::Gate(gate("b", 2.0, 2))));
        let dropping = std::thread::spawn(move || drop(store));
        drop(other);
        dropping.join().unwrap();
        assert_eq!(saved.wait(), Ok(()));
        let stored = Store::open(folder.path()).unwrap().load().unwrap();
        assert_eq!(stored.gates, [gate("a", 1.0, 1), gate("b", 2.0, 2)]);
    }
}

mod unusable {
    use super::*;

    fn run(path: &Path, sql: &str) {
        Connection::open(path).unwrap().execute_batch(sql).unwrap();
    }

    #[test]
    fn refuses_a_later_version_without_changing_it() {
        let (folder, path) = written();
        run(&path, "PRAGMA user_version = 99");
        let error = refused(folder.path(), &path);
        let text = format!("`{}` has version 99, expected at most 11", path.display());
        assert!(error.to_string().contains(&text), "{error}");
        assert!(matches!(error, OpenError::Newer { found: 99, .. }));
        run(&path, "PRAGMA user_version = 11");
        assert_eq!(
            Store::open(folder.path())
                .unwrap()
                .load()
                .unwrap()
                .gates
                .len(),
            100
        );
    }

    #[test]
    fn a_file_of_an_older_version_gets_the_tables_it_lacks() {
        for version in 1..=2 {
            let (folder, path) = temporary();
            let old = schema::create_version(&path, version);
            old.execute_batch("INSERT INTO removed_endpoints VALUES ('llm', 'a')")
                .unwrap();
            if version == 2 {
                old.execute_batch("INSERT INTO refresh_tokens VALUES ('mail', 'o', 'r-0')")
                    .unwrap();
            }
            drop(old);
            let store = Store::open(folder.path()).unwrap();
            let rotated = crate::conformance::rotated("crm", "r-1");
            store.save(Change::Rotated(rotated.clone())).wait().unwrap();
            wait(store.operations().insert(operation("a"))).unwrap();
            let state = store.load().unwrap();
            assert_eq!(state.removed.len(), 1);
            assert_eq!(state.rotated[0], rotated);
            assert_eq!(state.rotated.len(), version);
            assert_eq!(store.operations().counts().available, 1);
        }
    }

    #[test]
    fn endpoints_of_version_5_do_not_know_since_when_they_are_disabled() {
        let (folder, path) = temporary();
        let old = schema::create_version(&path, 5);
        old.execute_batch(
            "INSERT INTO endpoints VALUES ('llm', 'a', 5, 30, 'HTTP 503', 'errors', 5, 1000)",
        )
        .unwrap();
        drop(old);
        let store = Store::open(folder.path()).unwrap();
        let record = store.load().unwrap().endpoints[0].record.clone();
        assert_eq!(record.disabled, Some(policy::ladder::Disabled::Errors(5)));
        assert_eq!((record.paused_for, record.disabled_for), (None, None));
    }

    #[test]
    fn operations_of_version_3_are_still_there() {
        let (folder, path) = temporary();
        let old = schema::create_version(&path, 3);
        let insert = |number: u64, state: &str, session: Option<u64>| {
            old.execute(
                "INSERT INTO operations (
                     number, id, client, accepted_key, fingerprint, kind, destination, summary,
                     order_key, priority, accepted_at_ms, lifetime_ms, retain_ms, is_reported,
                     idempotency_key, state, merges, sent, attempts, directed_waits, is_refreshed,
                     is_blocked, next_at_ms, expires_at_ms, fence, is_unreported, updated_at_ms,
                     session, lease_until_ms)
                 VALUES (?1, 'op-' || ?1, '', ?1, x'', 'default', 'api.example.com', '',
                     'one', 0, 0, 1, 1, 0, ?1, ?2, 0, 0, 0, 0, 0, ?1 = 3, 0, 90000, 1, 0, 0, ?3, ?3)",
                params![number, state, session],
            )
        };
        insert(1, "completed", None).unwrap();
        insert(2, "running", Some(7)).unwrap();
        insert(3, "available", None).unwrap();
        insert(9, "cancelled", None).unwrap();
        old.execute_batch("DELETE FROM operations WHERE number = 9")
            .unwrap();
        insert(4, "lost", None).unwrap_err();
        drop(old);

        let store = Store::open(folder.path()).unwrap();
        let queue = store.operations();
        let recovered = wait(queue.recover(at(0))).unwrap();
        assert_eq!(recovered.len(), 1);
        assert_eq!((recovered[0].number, recovered[0].is_blocked), (2, false));
        let claims = wait(queue.claim(&lane("api.example.com"), lease(5), 9)).unwrap();
        assert_eq!(claims.claimed.len(), 1);
        assert_eq!(claims.claimed[0].claim.number, 2);
        let Ok(Inserted::New(new)) = wait(queue.insert(operation("new"))) else {
            panic!("not inserted");
        };
        assert_eq!(new.number, 10);
        drop((store, queue));

        let file = Connection::open(&path).unwrap();
        let update = "UPDATE operations SET state = 'lost' WHERE number = 3";
        file.execute_batch(update).unwrap_err();
        let check = "PRAGMA integrity_check";
        let found: String = file.query_row(check, [], |row| row.get(0)).unwrap();
        assert_eq!(found, "ok");
    }

    #[test]
    fn refuses_the_file_of_another_program_without_changing_it() {
        for sql in [
            "CREATE TABLE theirs (a)",
            "PRAGMA application_id = 7",
            "PRAGMA user_version = 1",
        ] {
            let (folder, path) = temporary();
            run(&path, sql);
            let error = refused(folder.path(), &path);
            assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
        }
    }

    #[test]
    fn reports_damage_without_changing_the_file() {
        let (_folder, path) = written();
        let whole = fs::read(path).unwrap();
        let mut overwritten = whole.clone();
        overwritten[4096..8192].fill(0xA5);
        let mut header = whole.clone();
        header[..16].fill(b'x');
        let half = whole[..whole.len() / 2].to_vec();
        for damaged in [half, overwritten, header, whole[..50].to_vec(), vec![7; 10]] {
            let (folder, path) = temporary();
            fs::write(&path, damaged).unwrap();
            let error = refused(folder.path(), &path);
            assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
        }
    }

    #[test]
    fn refuses_a_database_that_was_cut_to_nothing() {
        let (folder, path) = written();
        fs::write(&path, "").unwrap();
        for _ in 0..2 {
            let error = refused(folder.path(), &path);
            assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
        }
    }

    #[test]
    fn an_empty_file_is_a_new_one() {
        let (folder, path) = temporary();
        fs::write(path, "").unwrap();
        assert_eq!(
            Store::open(folder.path()).unwrap().load(),
            Ok(StoredState::default())
        );
    }

    #[test]
    fn reports_a_folder_that_is_a_file() {
        let (folder, _) = temporary();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = Store::open(&file).unwrap_err();
        assert!(matches!(error, OpenError::Io { .. }), "{error}");
        assert_eq!(fs::read(file).unwrap(), b"");
    }

    #[test]
    fn reports_an_unknown_value_with_its_table() {
        let (folder, path) = written();
        run(
            &path,
            "PRAGMA ignore_check_constraints = 1;
             UPDATE gates SET breaker = 'ajar' WHERE key = '007'",
        );
        let error = Store::open(folder.path()).map(|store| store.load());
        // Found at the start already: the check knows the words as well.
        assert!(matches!(error, Err(OpenError::Damaged { .. })), "{error:?}");
    }

    #[test]
    fn a_literal_secret_in_a_row_is_not_shown() {
        let (folder, path) = written();
        run(
            &path,
            r#"INSERT INTO added_endpoints VALUES (1, 'llm', 'a', 'u', '[["x", "hunter2"]]')"#,
        );
        let error = Store::open(folder.path()).unwrap().load().unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "`{}`, table `added_endpoints`: the header `x`: a secret must not be written out, \
                 expected `env:NAME` or `file:PATH`\nhint: correct or delete that row",
                path.display()
            )
        );
    }
}

mod faults {
    use super::*;

    /// Changes of every kind, in groups of one write each.
    fn groups() -> Vec<Vec<Change>> {
        let pool = || "llm".to_owned();
        vec![
            vec![
                Change::Gate(gate("a", 1.0, 1)),
                Change::Gate(gate("b", 1.0, 2)),
                Change::Endpoint(state("llm", "a", 1, 1)),
            ],
            vec![Change::Protection {
                pool: pool(),
                protection: Some(Protection {
                    values: [("enabled".to_owned(), "true".to_owned())].into(),
                }),
            }],
            vec![
                removed("llm", "a"),
                Change::ForgetEndpoint {
                    pool: pool(),
                    name: "a".to_owned(),
                },
                forget_gate("a"),
            ],
            vec![Change::EndpointAdded(endpoint("llm", "c", "u"))],
            vec![
                Change::EndpointAsConfigured {
                    pool: pool(),
                    name: "a".to_owned(),
                },
                Change::Protection {
                    pool: pool(),
                    protection: None,
                },
            ],
            vec![Change::Gate(gate("b", 2.0, 3))],
        ]
    }

    /// Saves all groups, with these faults. What was acknowledged is there afterwards, what failed
    /// is not, and the store knows how it is doing.
    fn check(faults: &Faults) -> usize {
        let (folder, _) = temporary();
        let store = Store::open_faulty(folder.path(), faults.clone()).unwrap();
        let model = Store::memory();
        let mut failed = 0;
        for group in groups() {
            let result = store.save_all(group.clone()).wait();
            assert_eq!(store.state().degraded, result.clone().err());
            match result {
                Ok(()) => model.save_all(group).wait().unwrap(),
                Err(_) => failed += 1,
            }
            assert_eq!(store.load(), model.load());
        }
        let state = store.state();
        assert_eq!(state.lost > 0, failed > 0);
        assert_eq!(state.queued, 0);

        faults.heal();
        store
            .save(Change::Gate(gate("healed", 1.0, 1)))
            .wait()
            .unwrap();
        model
            .save(Change::Gate(gate("healed", 1.0, 1)))
            .wait()
            .unwrap();
        assert!(!store.is_degraded());
        drop(store);
        assert_eq!(Store::open(folder.path()).unwrap().load(), model.load());
        failed
    }

    /// How many calls all groups take: each begins, writes its rows and commits.
    fn calls() -> u64 {
        groups().iter().map(|group| group.len() as u64 + 2).sum()
    }

    #[test]
    fn without_faults_nothing_fails() {
        let faults = Faults::once(u64::MAX);
        assert_eq!(check(&faults), 0);
        // And three for what is written after they were healed.
        assert_eq!(faults.calls(), calls() + 3);
    }

    #[test]
    fn every_call_may_fail_once() {
        for n in 1..=calls() {
            assert_eq!(check(&Faults::once(n)), 1, "call {n}");
        }
    }

    #[test]
    fn every_call_may_fail_and_all_after_it() {
        for n in 1..=calls() {
            assert!(check(&Faults::from(n)) > 0, "call {n}");
        }
    }

    #[test]
    fn reports_a_full_disk_and_writes_later_changes() {
        let (folder, _) = temporary();
        let (path, lock) = folder::prepare(folder.path()).unwrap();
        let mut database =
            SqliteDatabase::open(path.clone(), lock, Keys::none(), Faults::none()).unwrap();
        database.limit_pages(40);
        let gates: Vec<Change> = (0..2000)
            .map(|number| Change::Gate(gate(&number.to_string(), 1.0, 1)))
            .collect();
        let full = StoreError::DiskFull { path };
        let mut write = |gates: &[Change]| {
            let (changes, calls) = (gates.to_vec(), Vec::new());
            database.write(Taken { changes, calls }).0.changes
        };
        assert_eq!(write(&gates), Err(full));
        // The next one has a connection of its own, without that bound.
        assert_eq!(write(&gates[..5]), Ok(()));
        drop(database);
        let stored = Store::open(folder.path()).unwrap().load().unwrap();
        assert_eq!(stored.gates.len(), 5);
    }

    #[test]
    fn a_file_that_was_taken_away_is_not_begun_anew() {
        let (folder, path) = temporary();
        let faults = Faults::once(4);
        let store = Store::open_faulty(folder.path(), faults).unwrap();
        let save = || store.save(Change::Gate(gate("a", 1.0, 1))).wait();
        save().unwrap();
        save().unwrap_err();
        let elsewhere = folder.path().join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        assert!(matches!(save(), Err(StoreError::Failed { .. })));
        assert!(!path.exists());
        assert!(store.is_degraded());
        fs::rename(&elsewhere, &path).unwrap();
        assert_eq!(save(), Ok(()));
        assert!(!store.is_degraded());
        assert_eq!(store.load().unwrap().gates, [gate("a", 1.0, 1)]);
    }
}
