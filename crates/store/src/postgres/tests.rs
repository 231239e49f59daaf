//! What is special about Postgres: several processes at once, a server that cannot be used, and one
//! that fails.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use policy::operation::OperationState;
use tempfile::TempDir;

use crate::conformance::jobs::{job, lease as job_lease};
use crate::conformance::operations::{at, lane, lease, operation, settlement};
use crate::conformance::{open_shared, wall};
use crate::jobs::{JobEnd, JobFiles, JobProgress, JobStatus};
use crate::operations::{
    ClaimResult, Inserted, Lane, NewOperation, OperationFilter, OperationQueue, wait,
};
use crate::private_postgres::PrivatePostgres;
use crate::{Keys, OpenError, Store, StoreError};

/// A node: a store with a folder of its own.
struct Node {
    _folder: TempDir,
    store: Store,
}

impl Node {
    fn on(server: &PrivatePostgres) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = open_shared(&folder, server);
        Self {
            _folder: folder,
            store,
        }
    }

    fn queue(&self) -> Arc<dyn OperationQueue> {
        self.store.operations()
    }

    fn insert(&self, id: &str) {
        let inserted = wait(self.queue().insert(operation(id))).unwrap();
        assert!(matches!(inserted, Inserted::New(_)), "{inserted:?}");
    }

    fn claim(&self, now: i64, limit: usize) -> Vec<crate::operations::Claimed> {
        let claims = self
            .queue()
            .claim(&lane("api.example.com"), lease(now), limit);
        wait(claims).unwrap().claimed
    }

    fn state_of(&self, id: &str) -> OperationState {
        wait(self.queue().get(id)).unwrap().unwrap().state
    }
}

mod several_nodes {
    use super::*;

    #[test]
    fn start_at_once_on_an_empty_database() {
        let server = PrivatePostgres::start();
        let barrier = Barrier::new(6);
        thread::scope(|scope| {
            for number in 0..6 {
                let (server, barrier) = (&server, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    Node::on(server).insert(&format!("of-{number}"));
                });
            }
        });
        let counts = Node::on(&server).queue().counts();
        assert_eq!(counts.available, 6);
    }

    #[test]
    fn claim_every_operation_once() {
        let server = PrivatePostgres::start();
        let nodes: Vec<Node> = (0..4).map(|_| Node::on(&server)).collect();
        let inserts: Vec<_> = (0..200)
            .map(|number| nodes[0].queue().insert(operation(&format!("{number:03}"))))
            .collect();
        for insert in inserts {
            wait(insert).unwrap();
        }
        let claimed: Vec<Vec<u64>> = thread::scope(|scope| {
            let claiming: Vec<_> = nodes
                .iter()
                .map(|node| {
                    scope.spawn(|| {
                        let mut claimed = Vec::new();
                        loop {
                            let queue = node.queue();
                            let claims = queue.claim(&lane("api.example.com"), lease(1), 3);
                            let claims = wait(claims).unwrap();
                            claimed.extend(claims.claimed.iter().map(|claim| claim.claim.number));
                            if claims.claimed.is_empty() && claims.next_at.is_none() {
                                return claimed;
                            }
                        }
                    })
                })
                .collect();
            claiming
                .into_iter()
                .map(|node| node.join().unwrap())
                .collect()
        });
        let mut all: Vec<u64> = claimed.concat();
        all.sort_unstable();
        assert_eq!(all, (1..=200).collect::<Vec<u64>>());
    }

    #[test]
    fn one_runs_a_job_and_another_goes_on_from_its_copy() {
        let server = PrivatePostgres::start();
        let (first, other) = (Node::on(&server), Node::on(&server));
        let jobs = [&first, &other].map(|node| node.store.jobs());
        let files = [&first, &other].map(|node| node.store.job_files().unwrap());
        wait(jobs[0].insert(job("a"), 9)).unwrap();
        let claimed = wait(jobs[0].claim(job_lease(0))).unwrap().unwrap();
        assert_eq!(claimed.copy.length, 0);
        assert!(wait(jobs[1].claim(job_lease(0))).unwrap().is_none());
        let late = claimed.job.last_claim();
        let append = |files: &Arc<dyn JobFiles>, claim, at, bytes: &str| {
            wait(files.append(claim, at, bytes.as_bytes().to_vec())).unwrap()
        };
        assert_eq!(append(&files[0], late, 0, "one\n"), Some(4));
        // A call that was not answered is made again.
        assert_eq!(append(&files[0], late, 0, "one\n"), Some(4));
        assert_eq!(append(&files[0], late, 4, "two\n"), Some(8));

        assert_eq!(wait(jobs[1].sweep(at(10))), Ok(1));
        let claimed = wait(jobs[1].claim(job_lease(10))).unwrap().unwrap();
        assert_eq!((claimed.copy.length, claimed.copy.is_own), (8, false));
        let number = claimed.job.number;
        assert_eq!(
            wait(files[1].part(number, 0)),
            Ok(Some(b"one\ntwo\n".to_vec()))
        );
        assert_eq!(wait(files[1].part(number, 4)), Ok(Some(b"two\n".to_vec())));
        assert_eq!(wait(files[1].part(number, 8)), Ok(None));
        let claim = claimed.job.last_claim();
        assert_eq!(append(&files[0], late, 8, "late\n"), None);
        assert_eq!(
            wait(files[0].save_report(late, b"late".to_vec())),
            Ok(false)
        );
        assert_eq!(append(&files[1], claim, 8, "three\n"), Some(14));
        assert_eq!(
            wait(files[1].save_report(claim, b"report".to_vec())),
            Ok(true)
        );
        let end = JobEnd {
            now: at(20),
            error: None,
            progress: JobProgress::default(),
        };
        assert!(wait(jobs[0].finish(late, end.clone())).unwrap().is_none());
        assert!(wait(jobs[1].finish(claim, end)).unwrap().is_some());
        assert_eq!(wait(files[0].report(number)), Ok(Some(b"report".to_vec())));
        assert_eq!(wait(files[0].part(number, 0)), Ok(None));
        wait(jobs[0].delete(number)).unwrap();
        assert_eq!(wait(files[0].report(number)), Ok(None));
    }

    #[test]
    fn recover_only_jobs_of_their_own() {
        let server = PrivatePostgres::start();
        let (first, other) = (Node::on(&server), Node::on(&server));
        for id in ["a", "b"] {
            wait(first.store.jobs().insert(job(id), 9)).unwrap();
        }
        wait(first.store.jobs().claim(job_lease(0))).unwrap();
        wait(other.store.jobs().claim(job_lease(0))).unwrap();
        assert_eq!(wait(other.store.jobs().recover()), Ok(1));
        let status = |id| wait(first.store.jobs().get(id)).unwrap().unwrap().status;
        assert_eq!(
            [status("a"), status("b")],
            [JobStatus::Running, JobStatus::Queued]
        );
    }

    #[test]
    fn hear_of_jobs_that_others_queue_and_cancel() {
        let server = PrivatePostgres::start();
        let (first, other) = (Node::on(&server), Node::on(&server));
        let (sender, heard) = mpsc::channel();
        other
            .store
            .jobs()
            .listen(Box::new(move || _ = sender.send(())));
        // What it may have missed before it listened.
        while heard.recv_timeout(Duration::from_secs(1)).is_ok() {}
        wait(first.store.jobs().insert(job("a"), 9)).unwrap();
        // Sooner than it looks without a message.
        heard.recv_timeout(Duration::from_secs(3)).unwrap();
        wait(first.store.jobs().cancel("a", at(1)))
            .unwrap()
            .unwrap();
        heard.recv_timeout(Duration::from_secs(3)).unwrap();
    }

    #[test]
    fn do_not_show_what_jobs_fetch_without_the_key() {
        let server = PrivatePostgres::start();
        let folder = tempfile::tempdir().unwrap();
        let keys: Keys = "0f".repeat(32).parse().unwrap();
        let store = Store::open_shared(folder.path(), keys, server.address(), wall).unwrap();
        wait(store.jobs().insert(job("a"), 9)).unwrap();
        let claimed = wait(store.jobs().claim(job_lease(0))).unwrap().unwrap();
        assert_eq!(claimed.request, Ok(job("a").request));
        let (claim, number) = (claimed.job.last_claim(), claimed.job.number);
        let files = store.job_files().unwrap();
        wait(files.append(claim, 0, b"secret\n".to_vec())).unwrap();
        wait(files.save_report(claim, b"secret".to_vec())).unwrap();
        assert_eq!(wait(files.part(number, 0)), Ok(Some(b"secret\n".to_vec())));
        for sql in [
            "SELECT request FROM tidegate.job_requests",
            "SELECT bytes FROM tidegate.job_states",
            "SELECT report FROM tidegate.job_reports",
        ] {
            let stored = server.query(sql);
            assert!(
                stored.len() > 20 && !stored.contains("736563726574"),
                "{stored}"
            );
        }
        wait(store.jobs().release(claim)).unwrap();
        let other = Node::on(&server);
        let claimed = wait(other.store.jobs().claim(job_lease(1)))
            .unwrap()
            .unwrap();
        assert!(matches!(claimed.request, Err(StoreError::Sealed { .. })));
        let read = wait(other.store.job_files().unwrap().part(number, 0));
        assert!(matches!(read, Err(StoreError::Sealed { .. })));
    }

    #[test]
    fn a_late_node_cannot_finish_what_another_has_claimed() {
        let server = PrivatePostgres::start();
        let (late, other) = (Node::on(&server), Node::on(&server));
        late.insert("a");
        let first = late.claim(0, 1).remove(0).claim;
        assert_eq!(
            wait(other.queue().sweep(at(30), 10))
                .unwrap()
                .reclaimed
                .len(),
            1
        );
        let second = other.claim(31, 1).remove(0).claim;
        assert!(second.fence > first.fence);
        let completed = || settlement(32, ClaimResult::Completed(None));
        assert_eq!(wait(late.queue().settle(first, completed())).unwrap(), None);
        assert_eq!(other.state_of("a"), OperationState::Running);
        wait(late.queue().heartbeat(vec![first], lease(1000))).unwrap();
        assert!(
            wait(other.queue().settle(second, completed()))
                .unwrap()
                .is_some()
        );
        assert_eq!(late.state_of("a"), OperationState::Completed);
    }

    #[test]
    fn a_node_that_starts_leaves_the_claims_of_others() {
        let server = PrivatePostgres::start();
        let node = Node::on(&server);
        node.insert("a");
        let claimed = node.claim(0, 1).remove(0);
        let other = Node::on(&server);
        assert_eq!(wait(other.queue().recover(at(1))).unwrap(), []);
        let settled = settlement(2, ClaimResult::Completed(None));
        assert!(
            wait(node.queue().settle(claimed.claim, settled))
                .unwrap()
                .is_some()
        );
    }

    #[test]
    fn one_of_two_inserts_with_one_key_is_stored() {
        let server = PrivatePostgres::start();
        let nodes = [Node::on(&server), Node::on(&server)];
        for round in 0..20 {
            let key = format!("key-{round}");
            let inserted: Vec<Inserted> = thread::scope(|scope| {
                let inserting: Vec<_> = nodes
                    .iter()
                    .enumerate()
                    .map(|(number, node)| {
                        let new = NewOperation {
                            idempotency_key: key.clone(),
                            ..operation(&format!("{round}-{number}"))
                        };
                        scope.spawn(move || wait(node.queue().insert(new)).unwrap())
                    })
                    .collect();
                inserting
                    .into_iter()
                    .map(|insert| insert.join().unwrap())
                    .collect()
            });
            let new = inserted
                .iter()
                .filter(|result| matches!(result, Inserted::New(_)));
            assert_eq!(new.count(), 1, "{inserted:?}");
        }
    }

    #[test]
    fn keep_the_order_of_an_order_key() {
        let server = PrivatePostgres::start();
        let nodes = [Node::on(&server), Node::on(&server), Node::on(&server)];
        thread::scope(|scope| {
            for (number, node) in nodes.iter().enumerate() {
                scope.spawn(move || {
                    for round in 0..10 {
                        let new = NewOperation {
                            order_key: Some("one".to_owned()),
                            ..operation(&format!("{number}-{round}"))
                        };
                        wait(node.queue().insert(new)).unwrap();
                    }
                });
            }
        });
        let mut last = 0;
        for round in 0..30 {
            let now = i64::from(round) + 1;
            // One at a time, whichever node asks.
            let node = &nodes[round as usize % 3];
            let claimed = node.claim(now, 10);
            assert_eq!(claimed.len(), 1, "round {round}");
            let claim = claimed[0].claim;
            assert!(claim.number > last);
            last = claim.number;
            assert!(nodes[(round as usize + 1) % 3].claim(now, 10).is_empty());
            let done = settlement(now, ClaimResult::Completed(None));
            wait(node.queue().settle(claim, done)).unwrap().unwrap();
        }
    }

    #[test]
    fn look_for_lanes_while_they_announce_their_own_and_without_notifications() {
        let server = PrivatePostgres::start();
        let node = Node::on(&server);
        let (sender, looked) = mpsc::channel();
        node.queue().listen(Box::new(move |ready| {
            if ready.is_none() {
                _ = sender.send(());
            }
        }));
        // The connection that listens is made, which is a reason to look, too.
        looked.recv_timeout(Duration::from_secs(10)).unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0.. {
                    node.insert(&format!("of-{number}"));
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
            let looks = || looked.recv_timeout(Duration::from_secs(7)).is_ok();
            let while_announcing = looks();
            // From now on nothing connects any more.
            server.query(
                "UPDATE pg_database SET datallowconn = false;
                 SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                 WHERE pid <> pg_backend_pid() AND (query LIKE 'LISTEN%' OR query LIKE '%pg_notify%')",
            );
            _ = looked.try_iter().count();
            let without_notifications = looks();
            is_over.store(true, Ordering::Relaxed);
            assert!(while_announcing);
            assert!(without_notifications);
        });
    }

    #[test]
    fn notify_each_other_of_what_is_due() {
        let server = PrivatePostgres::start();
        let (node, other) = (Node::on(&server), Node::on(&server));
        let (sender, notified) = mpsc::channel::<(Lane, policy::time::WallTime)>();
        other.queue().listen(Box::new(move |ready| {
            // The first lanes are read without being named.
            if let Some(ready) = ready {
                sender.send(ready).unwrap();
            }
        }));
        let (own_sender, own) = mpsc::channel();
        node.queue().listen(Box::new(move |ready| {
            if ready.is_some() {
                own_sender.send(()).unwrap();
            }
        }));
        // The connection that listens is made meanwhile, so notifications are sent until it is there.
        for number in 0.. {
            node.insert(&format!("{number}"));
            if let Ok((ready, due)) = notified.recv_timeout(Duration::from_millis(200)) {
                assert_eq!((ready, due), (lane("api.example.com"), at(0)));
                break;
            }
            assert!(number < 100, "no notification came");
        }
        assert!(
            own.try_recv().is_err(),
            "a node gets no notification of its own"
        );
    }

    #[test]
    fn are_opened_and_dropped_by_a_task_of_another_runtime() {
        let server = PrivatePostgres::start();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let node = Node::on(&server);
            node.queue().insert(operation("a")).await.unwrap();
            let folder = tempfile::tempdir().unwrap();
            let address = server.url().replace("/work", "/missing").parse().unwrap();
            let opened = Store::open_shared(folder.path(), Keys::none(), address, wall);
            assert!(opened.is_err());
        });
    }

    #[test]
    fn count_what_others_have_done() {
        let server = PrivatePostgres::start();
        let (node, other) = (Node::on(&server), Node::on(&server));
        for id in ["a", "b", "c"] {
            node.insert(id);
        }
        let claimed = other.claim(0, 1).remove(0);
        let done = settlement(1, ClaimResult::Completed(None));
        wait(other.queue().settle(claimed.claim, done)).unwrap();
        let third = Node::on(&server).queue().counts();
        assert_eq!((third.available, third.running, third.completed), (2, 0, 1));
    }
}

mod refused {
    use super::*;

    /// Why a store cannot be opened with this address.
    fn open(url: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let address = url.parse().unwrap();
        let opened = Store::open_shared(folder.path(), Keys::none(), address, wall);
        let error = opened.unwrap_err();
        let mut text = error.to_string();
        assert_eq!(text.matches("\nhint: ").count(), 1, "{text}");
        if let Some(at) = text.find("127.0.0.1:") {
            let end = text[at..].find('/').unwrap() + at;
            text.replace_range(at..end, "HOST");
        }
        assert!(!text.contains(crate::private_postgres::PASSWORD), "{text}");
        text
    }

    #[track_caller]
    fn check(url: &str, expected: &str) {
        assert_eq!(open(url), expected);
    }

    #[test]
    fn a_wrong_password_user_or_database() {
        let server = PrivatePostgres::start();
        let url = server.url();
        check(
            &url.replace("pass-of-tests", "WRONG"),
            "`postgres://tidegate@HOST/work` cannot be used: password authentication failed for user \
             \"tidegate\" (28P01)\nhint: check the user and the password in `storage.operations`",
        );
        check(
            &url.replace("/work", "/other"),
            "`postgres://tidegate@HOST/other` cannot be used: database \"other\" does not exist (3D000)\n\
             hint: create the database, or check its name in `storage.operations`",
        );
        server.query("CREATE USER poor PASSWORD 'pass-of-tests'");
        check(
            &url.replace("tidegate:", "poor:"),
            "`postgres://poor@HOST/work` cannot be used: permission denied for database work (42501)\n\
             hint: the user must be allowed to create the schema `tidegate`, or own it",
        );
    }

    #[test]
    fn a_port_where_nothing_listens() {
        let mut server = PrivatePostgres::start();
        server.crash();
        check(
            &server.url(),
            "`postgres://tidegate@HOST/work` cannot be used: error connecting to server: Connection \
             refused (os error 111)\nhint: check host and port in `storage.operations`, and whether the \
             server is running",
        );
    }

    #[test]
    fn a_schema_of_a_later_version_or_of_another_program() {
        let server = PrivatePostgres::start();
        drop(Node::on(&server));
        server.query("UPDATE tidegate.schema_version SET version = 99");
        let error = open(&server.url());
        assert!(
            error.starts_with(
                "the schema `tidegate` in `postgres://tidegate@HOST/work` has version 99, expected at most "
            ),
            "{error}"
        );
        assert_eq!(
            server.query("SELECT version FROM tidegate.schema_version"),
            "99"
        );
        server.query(
            "DROP SCHEMA tidegate CASCADE; CREATE SCHEMA tidegate; CREATE TABLE tidegate.x ()",
        );
        check(
            &server.url(),
            "the schema `tidegate` in `postgres://tidegate@HOST/work` is of another program\n\
             hint: give tidegate a database of its own: `storage.operations`",
        );
    }

    #[test]
    fn a_copy_of_the_folder_of_a_node_that_runs() {
        let server = PrivatePostgres::start();
        let (folder, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let store = open_shared(&folder, &server);
        std::fs::copy(folder.path().join("node"), copy.path().join("node")).unwrap();
        let open = || Store::open_shared(copy.path(), Keys::none(), server.address(), wall);
        let error = open().unwrap_err().to_string();
        assert!(
            error.contains("another server with the number of this node"),
            "{error}"
        );
        assert!(
            error.contains("\nhint: the data folder was copied"),
            "{error}"
        );
        drop(store);
        open().unwrap();
    }

    #[test]
    fn a_clock_that_is_an_hour_off() {
        let server = PrivatePostgres::start();
        for (off, words) in [(3600, "behind"), (-3600, "ahead of")] {
            let folder = tempfile::tempdir().unwrap();
            let now = || {
                let millis = wall().as_unix_millis() + off * 1000;
                policy::time::WallTime::from_unix_millis(millis)
            };
            let opened = Store::open_shared(folder.path(), Keys::none(), server.address(), now);
            let error = opened.unwrap_err();
            assert!(matches!(error, OpenError::Database { .. }));
            let error = error.to_string();
            let is_told = ["3599", "3600"].iter().any(|seconds| {
                error.contains(&format!(
                    "its clock is {seconds} s {words} the one of this machine"
                ))
            });
            assert!(is_told, "{error}");
        }
    }

    #[test]
    fn a_server_without_tls_or_with_a_certificate_of_a_stranger() {
        let plain = PrivatePostgres::start();
        let error = open(&format!("{}?sslmode=verify-full", plain.url()));
        assert!(error.contains("error performing TLS handshake"), "{error}");
        assert!(error.contains("add `?sslmode=disable`"), "{error}");
        let (server, roots) = with_tls();
        let (other, _) = with_tls();
        let url = |server: &PrivatePostgres| {
            let roots = roots.path().join("ca.pem");
            format!(
                "{}?sslmode=verify-full&sslrootcert={}",
                server.url(),
                roots.display()
            )
        };
        let error = open(&url(&other));
        assert!(error.contains("invalid peer certificate"), "{error}");
        let folder = tempfile::tempdir().unwrap();
        let address = url(&server).parse().unwrap();
        let store = Store::open_shared(folder.path(), Keys::none(), address, wall).unwrap();
        wait(store.operations().insert(operation("a"))).unwrap();
        let encrypted = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
                         WHERE application_name = 'tidegate'";
        assert_eq!(server.query(encrypted), "t");
    }

    /// A server with a certificate, and a folder with the authority that signed it.
    fn with_tls() -> (PrivatePostgres, TempDir) {
        let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let roots = tempfile::tempdir().unwrap();
        std::fs::write(roots.path().join("ca.pem"), certified.cert.pem()).unwrap();
        let server = PrivatePostgres::start_with(&["ssl=on"], |folder| {
            std::fs::write(folder.join("server.crt"), certified.cert.pem()).unwrap();
            let key = folder.join("server.key");
            std::fs::write(&key, certified.signing_key.serialize_pem()).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(&key, mode).unwrap();
        });
        (server, roots)
    }
}

mod failing {
    use super::*;

    /// Makes a call until it succeeds.
    fn until_it_works<T>(call: impl Fn() -> Result<T, StoreError>) -> T {
        loop {
            match call() {
                Ok(value) => return value,
                Err(error) => assert!(matches!(error, StoreError::Unreachable { .. }), "{error}"),
            }
        }
    }

    #[test]
    fn says_so_while_the_server_is_away_and_goes_on_when_it_is_back() {
        let mut server = PrivatePostgres::start();
        let node = Node::on(&server);
        node.insert("a");
        let claim = node.claim(0, 1).remove(0).claim;
        server.crash();
        let settled = || {
            let done = settlement(1, ClaimResult::Completed(None));
            wait(node.queue().settle(claim, done))
        };
        let error = settled().unwrap_err();
        assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
        assert_eq!(node.store.state().degraded, Some(error));
        assert_eq!(node.store.own_state().degraded, None);
        assert!(wait(node.queue().get("a")).is_err());
        server.resume_service();
        let operation = until_it_works(settled);
        assert_eq!(operation.unwrap().state, OperationState::Completed);
        assert_eq!(node.store.state().degraded, None);
        let listed =
            until_it_works(|| wait(node.queue().page(OperationFilter::default(), None, 10)));
        assert_eq!(listed.len(), 1);
    }

    #[test]
    fn a_connection_that_was_ended_is_replaced_without_an_error() {
        let server = PrivatePostgres::start();
        let node = Node::on(&server);
        node.insert("a");
        let end = "SELECT count(pg_terminate_backend(pid)) > 0 FROM pg_stat_activity
                   WHERE application_name = 'tidegate'";
        assert_eq!(server.query(end), "t");
        node.insert("b");
        assert!(!node.store.is_degraded());
    }

    #[test]
    fn a_claim_that_was_committed_but_not_answered_is_taken_back() {
        let server = PrivatePostgres::start();
        let node = Node::on(&server);
        node.insert("a");
        // As if the answer to the commit were lost: no node knows the claim.
        drop(node.claim(0, 1));
        wait(node.queue().heartbeat(Vec::new(), lease(20))).unwrap();
        let swept = wait(node.queue().sweep(at(30), 10)).unwrap();
        assert_eq!(swept.reclaimed.len(), 1);
    }

    #[test]
    fn a_call_that_is_refused_does_not_fail_the_others() {
        let server = PrivatePostgres::start();
        let node = Node::on(&server);
        server.query("ALTER TABLE tidegate.operations ADD CONSTRAINT refused CHECK (id <> 'bad')");
        let queue = node.queue();
        let calls: Vec<_> = ["a", "bad", "b", "c"]
            .map(|id| (id, queue.insert(operation(id))))
            .into();
        for (id, call) in calls {
            assert_eq!(wait(call).is_ok(), id != "bad", "{id}");
        }
        assert_eq!(queue.counts().available, 3);
        assert!(!node.store.is_degraded());
    }

    #[test]
    fn a_frozen_server_is_noticed() {
        let server = PrivatePostgres::start();
        let node = Node::on(&server);
        server.freeze();
        let error = wait(node.queue().insert(operation("a"))).unwrap_err();
        assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
        server.thaw();
        until_it_works(|| wait(node.queue().insert(operation("a"))));
    }
}
