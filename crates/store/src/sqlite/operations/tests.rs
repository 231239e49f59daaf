//! What is special about operations in a file: the plans of statements, savepoints, encryption, faults.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use policy::item::TerminalReason;
use policy::operation::{OperationEvent, Resolution};
use rusqlite::{Connection, StatementStatus, params};
use tempfile::TempDir;

use super::calls::{self, DUE, FIRST_DUE, NEXT_PRIORITY};
use super::{COUNT, pages, rows};
use crate::call::reply;
use crate::conformance::operations::{
    at, attempt, conflict, contents, lane, lease, operation, request, settlement,
};
use crate::conformance::rotated;
use crate::faulty::Faults;
use crate::operations::{
    ClaimId, ClaimResult, Decision, Inserted, NewOperation, OperationFilter, QueueFuture,
    RequestChange, SealError, Settlement, StoredRequest, StoredResponse, wait,
};
use crate::queue::Taken;
use crate::sqlite::database::{BoxedCall, FunctionCall, SqliteDatabase, Work};
use crate::sqlite::problem::SqliteError;
use crate::sqlite::{connect, folder};
use crate::writer::Database;
use crate::{Change, Keys, Store, StoreError};

fn temporary() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tidegate.db");
    (folder, path)
}

mod plans {
    use super::*;

    /// A file with tables, and no process that has it open.
    fn tables() -> (TempDir, Connection) {
        let (folder, path) = temporary();
        drop(Store::open(folder.path()).unwrap());
        (folder, Connection::open(path).unwrap())
    }

    fn plan(connection: &Connection, sql: &str) -> Vec<String> {
        let mut statement = connection
            .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
            .unwrap();
        // Values are not bound: the plan must not depend on them.
        let mut rows = statement.raw_query();
        let mut plan = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            plan.push(row.get("detail").unwrap());
        }
        plan
    }

    #[test]
    fn every_statement_searches_its_index() {
        let (_folder, connection) = tables();
        for (sql, index) in [
            (DUE, "operations_claim"),
            (FIRST_DUE, "operations_claim"),
            (NEXT_PRIORITY, "operations_claim"),
            (pages::FIRST_DESTINATION, "operations_claim"),
            (pages::NEXT_DESTINATION, "operations_claim"),
            (pages::FIRST_KIND, "operations_claim"),
            (pages::NEXT_KIND, "operations_claim"),
            (calls::NUMBER_OF_ID, "operations_id"),
            (rows::BY_ID, "operations_id"),
            (rows::BY_KEY, "operations_key"),
            (calls::EXPIRED, "operations_expiry"),
            (calls::LEASE_ENDED, "operations_state"),
            (calls::LEASES_OF_OTHERS, "operations_state"),
            (calls::RETAINED, "operations_retention"),
            (calls::UNBLOCKED, "operations_order"),
            (calls::OLDEST_BLOCKED, "operations_order"),
            (calls::UPDATED_AFTER, "operations_state"),
            (pages::UNREPORTED, "operations_unreported"),
            (pages::PAGE_OF_ENDED, "operations_ended"),
            (pages::BY_STATE.page, "operations_state"),
            (pages::BY_STATE.first_kind, "operations_state"),
            (pages::BY_STATE.next_kind, "operations_state"),
            (pages::BY_REASON.page, "operations_reason"),
            (pages::BY_REASON.first_kind, "operations_reason"),
            (pages::BY_REASON.next_kind, "operations_reason"),
            (pages::BY_DESTINATION.page, "operations_destination"),
            (pages::BY_DESTINATION.first_kind, "operations_destination"),
            (pages::BY_DESTINATION.next_kind, "operations_destination"),
        ] {
            let plan = plan(&connection, sql);
            let searches = |covering| format!("SEARCH operations USING {covering}INDEX {index} (");
            assert!(
                plan.len() == 1
                    && (plan[0].starts_with(&searches(""))
                        || plan[0].starts_with(&searches("COVERING "))),
                "{sql}: {plan:?}"
            );
        }
        for sql in [
            rows::BY_NUMBER,
            pages::PAGE,
            calls::REPORT,
            calls::BLOCK,
            calls::HEARTBEAT,
        ] {
            let plan = plan(&connection, sql);
            assert!(
                plan.len() == 1
                    && plan[0].starts_with("SEARCH operations USING INTEGER PRIMARY KEY ("),
                "{sql}: {plan:?}"
            );
        }
        // Of the index alone, and of at most so many rows.
        for (sql, index) in [
            (pages::COUNT_IN_STATE, "operations_state"),
            (pages::COUNT_IDS, "operations_id"),
            (pages::IDS, "operations_id"),
        ] {
            let plan = plan(&connection, sql);
            let search = format!("SEARCH operations USING COVERING INDEX {index} (");
            assert!(
                plan.iter().any(|step| step.starts_with(&search)),
                "{sql}: {plan:?}"
            );
            assert!(
                !plan.iter().any(|step| step.starts_with("SCAN operations")),
                "{sql}: {plan:?}"
            );
        }
        // Once at the start, and of the index alone.
        let count = plan(&connection, COUNT);
        assert_eq!(
            count,
            ["SCAN operations USING COVERING INDEX operations_state"]
        );
    }

    /// Fills a file with operations: most are completed, some failed at another destination.
    fn fill(folder: &TempDir, count: u64) {
        let connection = Connection::open(folder.path().join("tidegate.db")).unwrap();
        connection
            .execute(
                "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?1)
                 INSERT INTO operations (
                     number, id, client, accepted_key, fingerprint, kind, destination, summary,
                     priority, accepted_at_ms, lifetime_ms, retain_ms, is_reported,
                     idempotency_key, state, reason, merges, sent, attempts, directed_waits,
                     is_refreshed, is_blocked, next_at_ms, expires_at_ms, fence, is_unreported,
                     updated_at_ms)
                 SELECT n, printf('op_%08d', n), '', n, x'', CASE n % 4 WHEN 0 THEN 'mail' ELSE 'default' END,
                     CASE n % 500 WHEN 7 THEN 'b' ELSE 'a' END, 'POST https://a', 0, 0, 1, 1, 0, n,
                     CASE n % 1000 WHEN 7 THEN 'failed' ELSE 'completed' END,
                     CASE n % 1000 WHEN 7 THEN 'exhausted' END,
                     0, 1, 1, 0, 0, 0, 0, 90000, 1, 0, 0
                 FROM n",
                [count],
            )
            .unwrap();
    }

    #[test]
    fn lists_from_many_operations_what_each_filter_matches() {
        let (folder, _) = temporary();
        drop(Store::open(folder.path()).unwrap());
        fill(&folder, 32_000);
        let store = Store::open(folder.path()).unwrap();
        let queue = store.operations();
        let check = |filter: OperationFilter, before, expected: &[u64]| {
            let page = wait(queue.page(filter.clone(), before, 3)).unwrap();
            let numbers: Vec<u64> = page.iter().map(|operation| operation.number).collect();
            assert_eq!(numbers, expected, "{filter:?}");
        };
        let text = |text: &str| Some(text.to_owned());
        let any = OperationFilter::default;
        let ids = |prefix: &str| OperationFilter {
            id_prefix: text(prefix),
            ..any()
        };
        // More than are looked up one by one, and fewer.
        check(ids("op_"), None, &[32_000, 31_999, 31_998]);
        check(ids("op_0000"), Some(5), &[4, 3, 2]);
        check(ids("op_0000"), None, &[9999, 9998, 9997]);
        check(ids("op_00032"), None, &[32_000]);
        let to_b = OperationFilter {
            destination: text("b"),
            ..ids("op_")
        };
        check(to_b, None, &[31_507, 31_007, 30_507]);
        let failed = OperationFilter {
            states: vec!["failed".to_owned()],
            ..ids("op_")
        };
        check(failed, Some(10_000), &[9007, 8007, 7007]);
        let to_b = |states: &[&str]| OperationFilter {
            states: states.iter().map(|word| (*word).to_owned()).collect(),
            destination: text("b"),
            ..any()
        };
        check(to_b(&[]), None, &[31_507, 31_007, 30_507]);
        check(to_b(&["completed"]), None, &[31_507, 30_507, 29_507]);
        check(to_b(&["failed"]), None, &[31_007, 30_007, 29_007]);
    }

    /// An ephemeral table is what SQLite builds for a longer list of values, each time.
    #[test]
    fn no_statement_of_a_delivery_builds_a_table() {
        let (_folder, connection) = tables();
        for sql in [
            rows::INSERT,
            rows::UPDATE,
            rows::UPDATE_CLAIMED,
            rows::BY_NUMBER,
            DUE,
            NEXT_PRIORITY,
            calls::BLOCK,
            calls::UNBLOCKED,
            calls::OLDEST_BLOCKED,
        ] {
            let mut statement = connection.prepare(&format!("EXPLAIN {sql}")).unwrap();
            let mut rows = statement.raw_query();
            while let Some(row) = rows.next().unwrap() {
                let opcode: String = row.get("opcode").unwrap();
                assert_ne!(opcode, "OpenEphemeral", "{sql}");
            }
        }
    }

    #[test]
    fn no_value_makes_a_statement_be_prepared_again() {
        let (folder, _) = temporary();
        drop(Store::open(folder.path()).unwrap());
        let connection = connect(&folder.path().join("tidegate.db")).unwrap();
        for sql in [
            DUE,
            FIRST_DUE,
            NEXT_PRIORITY,
            rows::BY_ID,
            rows::BY_KEY,
            rows::BY_NUMBER,
            calls::NUMBER_OF_ID,
            calls::EXPIRED,
            calls::LEASE_ENDED,
            calls::UNBLOCKED,
            calls::OLDEST_BLOCKED,
        ] {
            let mut statement = connection.prepare(sql).unwrap();
            for value in 0..10 {
                for parameter in 1..=statement.parameter_count() {
                    statement.raw_bind_parameter(parameter, value).unwrap();
                }
                assert!(statement.raw_query().next().unwrap().is_none());
            }
            let status = statement.get_status(StatementStatus::RePrepare);
            assert_eq!(status, 0, "{sql}");
        }
    }

    /// Fifty thousand operations that are not due, as many of another destination, and some that are
    /// due behind them.
    fn many(connection: &Connection) {
        connection
            .execute_batch(
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100010)
                 INSERT INTO operations (
                     number, id, client, accepted_key, fingerprint, kind, destination, summary,
                     priority, accepted_at_ms, lifetime_ms, retain_ms, is_reported,
                     idempotency_key, state, merges, sent, attempts, directed_waits, is_refreshed,
                     is_blocked, next_at_ms, expires_at_ms, fence, is_unreported, updated_at_ms)
                 SELECT i, i, '', i, x'', 'default',
                     iif(i <= 50000, 'api.example.com', iif(i <= 100000, 'other', 'api.example.com')),
                     '', iif(i % 2, 5, 0), 0, 1, 1, 0,
                     i, iif(i % 3, 'available', 'retryable'), 0, 0, 0, 0, 0,
                     0, iif(i <= 50000, 1000000 + i, 0), 2000000, 0, 0, 0
                 FROM n;
                 ANALYZE;",
            )
            .unwrap();
    }

    /// How many steps of its program a statement takes.
    fn steps(connection: &Connection, sql: &str, params: impl rusqlite::Params) -> (usize, i32) {
        let mut statement = connection.prepare(sql).unwrap();
        let mut rows = statement.query(params).unwrap();
        let mut count = 0;
        while rows.next().unwrap().is_some() {
            count += 1;
        }
        drop(rows);
        assert_eq!(
            statement.get_status(StatementStatus::FullscanStep),
            0,
            "{sql}"
        );
        assert_eq!(statement.get_status(StatementStatus::Sort), 0, "{sql}");
        (count, statement.get_status(StatementStatus::VmStep))
    }

    #[test]
    fn a_claim_visits_few_of_many_rows() {
        let (folder, connection) = tables();
        many(&connection);
        let here = "api.example.com";
        let due = params![here, "default", 5, 10, 3];
        let (found, visited) = steps(&connection, DUE, due);
        assert_eq!(found, 3);
        assert!(visited < 60, "{visited}");
        let none = params!["other", "default", 7, 10, 3];
        let (found, visited) = steps(&connection, DUE, none);
        assert_eq!(found, 0);
        assert!(visited < 30, "{visited}");
        for (sql, visits) in [(NEXT_PRIORITY, 40), (FIRST_DUE, 40)] {
            let (found, visited) = steps(&connection, sql, params![here, "default", 5]);
            assert_eq!(found, 1);
            assert!(visited < visits, "{sql}: {visited}");
        }
        let (found, visited) = steps(&connection, pages::NEXT_DESTINATION, params![here]);
        assert_eq!(found, 1);
        assert!(visited < 40, "{visited}");
        let (found, visited) = steps(&connection, calls::EXPIRED, params![10, 3]);
        assert_eq!(found, 0);
        assert!(visited < 30, "{visited}");
        drop(connection);

        // And together they find the right ones.
        let store = Store::open(folder.path()).unwrap();
        let queue = store.operations();
        assert_eq!(queue.counts().available + queue.counts().retryable, 100_010);
        let claims = wait(queue.claim(&lane(here), lease(0), 7)).unwrap();
        let numbers = claims.claimed.iter().map(|claimed| claimed.claim.number);
        let expected = [
            100_001, 100_003, 100_005, 100_007, 100_009, 100_002, 100_004,
        ];
        assert_eq!(numbers.collect::<Vec<_>>(), expected);
        let lanes = wait(queue.lanes(None, 10)).unwrap();
        assert_eq!(lanes, [(lane(here), at(0)), (lane("other"), at(0))]);
    }
}

mod savepoints {
    use super::*;

    fn call<T: Send + 'static>(
        function: impl FnOnce(&mut Work<'_>) -> Result<T, SqliteError> + Send + 'static,
    ) -> (BoxedCall, QueueFuture<T>) {
        let (reply, future) = reply();
        (Box::new(FunctionCall::new(function, reply)), future)
    }

    fn inserting(id: &'static str) -> (BoxedCall, QueueFuture<Inserted>) {
        call(move |work| calls::insert(work, &operation(id)))
    }

    fn open(folder: &Path, faults: Faults) -> SqliteDatabase {
        let (path, lock) = folder::prepare(folder).unwrap();
        SqliteDatabase::open(path, lock, Keys::none(), faults).unwrap()
    }

    fn write(database: &mut SqliteDatabase, changes: Vec<Change>, calls: Vec<BoxedCall>) {
        for (call, result) in database.write(Taken { changes, calls }).1 {
            call.finish(result);
        }
    }

    #[test]
    fn a_call_that_fails_takes_back_only_what_it_did() {
        let (folder, _) = temporary();
        let mut database = open(folder.path(), Faults::none());
        let (first, first_result) = inserting("a");
        let (bad, bad_result) = call(|work| {
            calls::insert(work, &operation("half"))?;
            work.execute("INSERT INTO operations (id) VALUES ('half')", [])?;
            Ok(())
        });
        let (last, last_result) = inserting("b");
        let changes = vec![Change::Rotated(rotated("crm", "r-1"))];
        write(&mut database, changes, vec![first, bad, last]);
        wait(first_result).unwrap();
        assert!(matches!(wait(bad_result), Err(StoreError::Failed { .. })));
        wait(last_result).unwrap();
        assert_eq!(database.counts().operations().available, 2);
        drop(database);
        let store = Store::open(folder.path()).unwrap();
        assert_eq!(store.operations().counts().available, 2);
        assert_eq!(wait(store.operations().get("half")), Ok(None));
        assert_eq!(store.load().unwrap().rotated.len(), 1);
    }

    /// One transaction with changes and calls in which the n-th call of the store fails.
    fn check(faults: Faults) -> usize {
        let (folder, _) = temporary();
        let mut database = open(folder.path(), faults);
        let ids = ["a", "b", "c"];
        let (calls, results): (Vec<_>, Vec<_>) = ids.into_iter().map(inserting).unzip();
        write(
            &mut database,
            vec![Change::Rotated(rotated("crm", "r-1"))],
            calls,
        );
        let results = ids.into_iter().zip(results.into_iter().map(wait));
        let accepted: BTreeSet<&str> = results
            .filter_map(|(id, result)| result.ok().map(|_| id))
            .collect();
        assert_eq!(
            database.counts().operations().available,
            accepted.len() as u64
        );
        drop(database);
        let store = Store::open(folder.path()).unwrap();
        let queue = store.operations();
        for id in ids {
            let stored = wait(queue.get(id)).unwrap();
            assert_eq!(stored.is_some(), accepted.contains(id), "{id}");
            if let Some(stored) = stored {
                assert_eq!(
                    wait(queue.request(stored.number)).unwrap(),
                    Some(request(id))
                );
            }
        }
        let orphans = "SELECT count(*) FROM operation_requests";
        let path = folder.path().join("tidegate.db");
        let count: usize = Connection::open(path)
            .unwrap()
            .query_row(orphans, [], |row| row.get(0))
            .unwrap();
        assert_eq!(count, accepted.len());
        accepted.len()
    }

    #[test]
    fn a_fault_fails_one_call_or_the_whole_transaction() {
        // It begins, writes a change, inserts two rows for each call, and commits.
        let calls = 1 + 1 + 3 * 2 + 1;
        let accepted: Vec<usize> = (1..=calls + 1).map(|n| check(Faults::once(n))).collect();
        assert_eq!(accepted, [0, 3, 2, 2, 2, 2, 2, 2, 0, 3]);
        // For ever: the commit fails as well.
        assert!((1..=calls).all(|n| check(Faults::from(n)) == 0));
    }

    #[test]
    fn a_full_disk_refuses_and_loses_nothing() {
        let (folder, _) = temporary();
        let mut database = open(folder.path(), Faults::none());
        let (first, first_result) = inserting("a");
        write(&mut database, Vec::new(), vec![first]);
        wait(first_result).unwrap();
        database.limit_pages(50);
        let (large, large_result) = call(|work| {
            let request = StoredRequest {
                body: vec![7; 1 << 20],
                ..request("large")
            };
            calls::insert(
                work,
                &NewOperation {
                    request,
                    ..operation("large")
                },
            )
        });
        write(&mut database, Vec::new(), vec![large]);
        assert!(matches!(
            wait(large_result),
            Err(StoreError::DiskFull { .. })
        ));
        let (after, after_result) = inserting("b");
        write(&mut database, Vec::new(), vec![after]);
        wait(after_result).unwrap();
        drop(database);
        let queue = Store::open(folder.path()).unwrap().operations();
        assert_eq!(queue.counts().available, 2);
        assert_eq!(wait(queue.get("large")), Ok(None));
    }

    #[test]
    fn waiting_calls_share_a_commit() {
        let (folder, path) = temporary();
        let store = Store::open(folder.path()).unwrap();
        let queue = store.operations();
        let other = Connection::open(path).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let ids = (0..100).map(|number| number.to_string());
        let calls: Vec<_> = ids.map(|id| queue.insert(operation(&id))).collect();
        // The first ones wait for the lock, and the others for them.
        drop(other);
        for call in calls {
            wait(call).unwrap();
        }
        assert_eq!(store.state().written, 100);
        assert_eq!(queue.counts().available, 100);
    }

    #[test]
    fn a_call_is_made_although_its_future_is_dropped() {
        let (folder, _) = temporary();
        let store = Store::open(folder.path()).unwrap();
        drop(store.operations().insert(operation("a")));
        drop(store);
        let queue = Store::open(folder.path()).unwrap().operations();
        assert!(wait(queue.get("a")).unwrap().is_some());
    }
}

mod faults {
    use super::*;

    /// What a call is made of, so that it can be made twice.
    enum Step {
        Insert(Box<NewOperation>),
        Claim,
        Settle(ClaimResult),
        Decide(&'static str, OperationEvent, Option<RequestChange>),
        Sweep(i64),
        Heartbeat,
        Recover,
        Report,
    }

    fn script() -> Vec<Step> {
        let ordered = |id| NewOperation {
            order_key: Some("one".to_owned()),
            is_reported: true,
            ..operation(id)
        };
        let response = StoredResponse {
            status: 200,
            headers: Vec::new(),
            body: b"fine".to_vec(),
        };
        let replaced = RequestChange {
            request: request("other"),
            idempotency_key: "other".to_owned(),
        };
        vec![
            Step::Insert(Box::new(ordered("a"))),
            Step::Insert(Box::new(ordered("b"))),
            Step::Insert(Box::new(operation("c"))),
            Step::Claim,
            Step::Heartbeat,
            Step::Settle(ClaimResult::Conflict(conflict("theirs"), None)),
            Step::Decide(
                "a",
                OperationEvent::Resolve(Resolution::Replace),
                Some(replaced),
            ),
            Step::Claim,
            Step::Settle(ClaimResult::Completed(Some(response))),
            Step::Report,
            Step::Claim,
            Step::Settle(ClaimResult::Failed(TerminalReason::Rejected)),
            Step::Decide("b", OperationEvent::Retry, None),
            Step::Claim,
            Step::Settle(ClaimResult::Retry(at(50))),
            Step::Recover,
            Step::Sweep(40),
            Step::Sweep(100 * 86_400),
        ]
    }

    /// Makes a call; `Err` if the store has failed.
    fn make(store: &Store, step: &Step, claim: &mut Option<ClaimId>) -> Result<String, StoreError> {
        let queue = store.operations();
        Ok(match step {
            Step::Insert(operation) => format!("{:?}", wait(queue.insert(*operation.clone()))?),
            Step::Claim => {
                let claims = wait(queue.claim(&lane("api.example.com"), lease(1), 1))?;
                *claim = claims.claimed.first().map(|claimed| claimed.claim);
                format!("{claims:?}")
            }
            Step::Settle(result) => {
                let settlement = Settlement {
                    attempts: vec![attempt(1), attempt(2)],
                    ..settlement(2, result.clone())
                };
                let claim = claim.unwrap_or(ClaimId {
                    number: 1,
                    fence: 99,
                });
                format!("{:?}", wait(queue.settle(claim, settlement))?)
            }
            Step::Decide(id, event, request) => {
                let decision = Decision {
                    id: (*id).to_owned(),
                    now: at(3),
                    event: *event,
                    request: request.clone(),
                };
                format!("{:?}", wait(queue.decide(decision))?)
            }
            Step::Sweep(now) => format!("{:?}", wait(queue.sweep(at(*now), 10))?),
            Step::Heartbeat => {
                let claims = claim.iter().copied().collect();
                format!("{:?}", wait(queue.heartbeat(claims, lease(5)))?)
            }
            Step::Recover => format!("{:?}", wait(queue.recover(at(6)))?),
            Step::Report => format!("{:?}", wait(queue.report(1, Some(operation("report"))))?),
        })
    }

    /// What was acknowledged has happened whole, what failed has not happened at all.
    fn check(faults: &Faults) -> usize {
        let (folder, _) = temporary();
        let store = Store::open_faulty(folder.path(), faults.clone()).unwrap();
        let model = Store::memory();
        let (mut claim, mut model_claim) = (None, None);
        let mut failed = 0;
        for step in script() {
            match make(&store, &step, &mut claim) {
                Ok(result) => {
                    assert_eq!(Ok(result), make(&model, &step, &mut model_claim));
                    assert_eq!(claim, model_claim);
                }
                Err(_) => failed += 1,
            }
            assert_eq!(store.operations().counts(), model.operations().counts());
        }
        faults.heal();
        assert_eq!(contents(&store), contents(&model));
        drop(store);
        assert_eq!(
            contents(&Store::open(folder.path()).unwrap()),
            contents(&model)
        );
        failed
    }

    #[test]
    fn every_call_of_the_store_may_fail() {
        let faults = Faults::once(u64::MAX);
        assert_eq!(check(&faults), 0);
        let calls = faults.calls();
        assert!(calls > 60, "{calls}");
        for n in 1..=calls {
            // Those after the script are of the comparison.
            assert!(check(&Faults::once(n)) <= 1, "call {n}");
            check(&Faults::from(n));
        }
    }

    #[test]
    fn a_failing_read_fails_alone() {
        let (folder, _) = temporary();
        let faults = Faults::once(6);
        let store = Store::open_faulty(folder.path(), faults).unwrap();
        let queue = store.operations();
        // Begins, two rows, commits.
        wait(queue.insert(operation("a"))).unwrap();
        assert!(wait(queue.get("a")).unwrap().is_some());
        wait(queue.get("a")).unwrap_err();
        assert!(wait(queue.get("a")).unwrap().is_some());
        assert!(!store.is_degraded());
    }

    #[test]
    fn a_row_that_cannot_be_read_fails_alone() {
        let (folder, path) = temporary();
        let queue = Store::open(folder.path()).unwrap().operations();
        for id in ["a", "b"] {
            wait(queue.insert(operation(id))).unwrap();
        }
        drop(queue);
        let headers = "UPDATE operation_requests SET headers = 'secret' WHERE number = 1";
        Connection::open(path)
            .unwrap()
            .execute_batch(headers)
            .unwrap();
        let store = Store::open(folder.path()).unwrap();
        let queue = store.operations();
        let error = wait(queue.request(1)).unwrap_err();
        assert!(matches!(error, StoreError::Unreadable { .. }), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
        let claims = wait(queue.claim(&lane("api.example.com"), lease(1), 9)).unwrap();
        assert_eq!(claims.claimed[0].operation.id, "b");
        assert_eq!(claims.unreadable[0].1, error);
        assert_eq!(claims.unreadable[0].0.next_at, Some(at(61)));
        assert_eq!(claims.next_at, Some(at(61)));
        assert!(!store.is_degraded());
    }
}

mod encryption {
    use super::*;

    const OLD: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    const NEW: &str = "f00102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    const CANARY: &str = "canary-7c1d";

    fn open(folder: &TempDir, keys: &str) -> Store {
        let keys = match keys {
            "" => Keys::none(),
            keys => keys.parse().unwrap(),
        };
        Store::open_encrypted(folder.path(), keys).unwrap()
    }

    fn secret(id: &str) -> NewOperation {
        NewOperation {
            request: StoredRequest {
                method: "PUT".to_owned(),
                url: format!("https://api.example.com/?token={CANARY}"),
                headers: vec![("authorization".to_owned(), CANARY.into())],
                body: CANARY.into(),
                base: Some(CANARY.into()),
                resource: Some(CANARY.to_owned()),
            },
            ..operation(id)
        }
    }

    /// Stores a secret in every place that has one: a request that conflicts, a response, a token.
    fn fill(store: &Store) {
        let queue = store.operations();
        for id in ["a", "b", "c"] {
            wait(queue.insert(secret(id))).unwrap();
        }
        let claims = wait(queue.claim(&lane("api.example.com"), lease(1), 2)).unwrap();
        let response = StoredResponse {
            status: 200,
            headers: vec![("set-cookie".to_owned(), CANARY.into())],
            body: CANARY.into(),
        };
        let mut conflict = conflict(CANARY);
        conflict.etag = Some(CANARY.to_owned());
        let results = [
            ClaimResult::Completed(Some(response)),
            ClaimResult::Conflict(conflict, None),
        ];
        for (claimed, result) in claims.claimed.iter().zip(results) {
            wait(queue.settle(claimed.claim, settlement(2, result)))
                .unwrap()
                .unwrap();
        }
        store
            .save(Change::Rotated(rotated("crm", CANARY)))
            .wait()
            .unwrap();
    }

    /// How often the secret is in the files.
    fn found(folder: &TempDir) -> usize {
        let files = std::fs::read_dir(folder.path()).unwrap();
        let bytes = files.flat_map(|file| std::fs::read(file.unwrap().path()).unwrap());
        let bytes: Vec<u8> = bytes.collect();
        bytes
            .windows(CANARY.len())
            .filter(|part| part == &CANARY.as_bytes())
            .count()
    }

    #[test]
    fn no_secret_is_in_the_files_with_a_key() {
        let plain = tempfile::tempdir().unwrap();
        let store = open(&plain, "");
        fill(&store);
        assert!(found(&plain) > 10);
        let sealed = tempfile::tempdir().unwrap();
        let store_sealed = open(&sealed, OLD);
        fill(&store_sealed);
        assert_eq!(found(&sealed), 0);
        assert_eq!(contents(&store_sealed), contents(&store));
        assert_eq!(store_sealed.load(), store.load());
    }

    #[test]
    fn keys_are_rotated_and_plain_rows_stay_readable() {
        let folder = tempfile::tempdir().unwrap();
        let plain = Store::memory();
        let queue = plain.operations();
        wait(queue.insert(operation("plain"))).unwrap();
        fill(&plain);
        wait(queue.insert(operation("new"))).unwrap();

        let store = open(&folder, "");
        wait(store.operations().insert(operation("plain"))).unwrap();
        drop(store);
        let store = open(&folder, OLD);
        fill(&store);
        drop(store);
        let store = open(&folder, &format!("{NEW} {OLD}"));
        wait(store.operations().insert(operation("new"))).unwrap();
        assert_eq!(contents(&store), contents(&plain));
        assert_eq!(store.load().unwrap().rotated, plain.load().unwrap().rotated);
        drop(store);

        let store = open(&folder, NEW);
        let queue = store.operations();
        let ids: Vec<(u64, bool)> = (1..=5)
            .map(|number| (number, wait(queue.request(number)).is_ok()))
            .collect();
        assert_eq!(
            ids,
            [(1, true), (2, false), (3, false), (4, false), (5, true)]
        );
    }

    #[test]
    fn a_row_without_its_key_is_an_error_of_that_row() {
        let folder = tempfile::tempdir().unwrap();
        fill(&open(&folder, OLD));
        let store = open(&folder, NEW);
        let queue = store.operations();
        wait(queue.insert(operation("d"))).unwrap();
        let error = wait(queue.request(3)).unwrap_err();
        let path = folder.path().join("tidegate.db");
        let sealed = |table, row: &str| StoreError::Sealed {
            path: path.clone(),
            table,
            row: row.to_owned(),
            reason: SealError::OtherKey,
        };
        assert_eq!(error, sealed("operation_requests", "3"));
        assert_eq!(
            error.to_string(),
            format!(
                "`{}`, table `operation_requests`, row `3`: it was encrypted with another key\n\
                 hint: add that key to `storage.key`, after the present one",
                path.display()
            )
        );
        assert_eq!(
            wait(queue.response(1)),
            Err(sealed("operation_responses", "1"))
        );
        assert_eq!(
            wait(queue.conflict(2)),
            Err(sealed("operation_conflicts", "2"))
        );
        let claims = wait(queue.claim(&lane("api.example.com"), lease(5), 9)).unwrap();
        assert_eq!(claims.claimed[0].operation.id, "d");
        assert_eq!(claims.unreadable.len(), 1);
        assert_eq!(claims.unreadable[0].0.id, "c");
        let state = store.load().unwrap();
        assert_eq!(state.rotated, []);
        assert_eq!(state.unreadable, [sealed("refresh_tokens", "crm")]);
        assert!(!store.is_degraded());
        drop((store, queue));

        // Nothing is lost: with both keys it is claimed.
        let store = open(&folder, &format!("{NEW},{OLD}"));
        let claims = wait(
            store
                .operations()
                .claim(&lane("api.example.com"), lease(70), 9),
        )
        .unwrap();
        assert_eq!(claims.claimed[0].request, secret("c").request);
        assert_eq!(store.load().unwrap().rotated, [rotated("crm", CANARY)]);
    }

    #[test]
    fn values_cannot_be_swapped() {
        let folder = tempfile::tempdir().unwrap();
        fill(&open(&folder, OLD));
        Connection::open(folder.path().join("tidegate.db"))
            .unwrap()
            .execute_batch(
                "UPDATE operation_requests SET body = base WHERE number = 1;
                 UPDATE operation_requests
                 SET body = (SELECT body FROM operation_requests WHERE number = 3)
                 WHERE number = 2;",
            )
            .unwrap();
        let queue = open(&folder, OLD).operations();
        for number in [1, 2] {
            let error = wait(queue.request(number)).unwrap_err();
            let is_tampered = matches!(
                error,
                StoreError::Sealed {
                    reason: SealError::Tampered,
                    ..
                }
            );
            assert!(is_tampered, "{error}");
        }
        assert!(wait(queue.request(3)).is_ok());
    }
}
