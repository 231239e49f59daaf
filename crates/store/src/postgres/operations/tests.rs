//! How much of the tables each statement reads.

use serde_json::Value;

use super::{calls, pages};
use crate::conformance::open_shared;
use crate::postgres::connection::PLANNING;
use crate::private_postgres::PrivatePostgres;

/// Fifty thousand operations: most of one lane wait for later, at a high priority; the last are due.
const FILL: &str = "
    INSERT INTO operations (
        id, client, accepted_key, fingerprint, kind, destination, summary, priority, accepted_at_ms,
        lifetime_ms, retain_ms, is_reported, idempotency_key, state, reason, is_blocked, next_at_ms,
        expires_at_ms, retain_until_ms, updated_at_ms, node, session, lease_until_ms)
    SELECT
        'id-' || n, '', 'key-' || n, '', 'default', 'd-' || n % 3, 's', CASE WHEN n < 49000 THEN 5 ELSE 0 END, 0,
        1, 1, false, 'k', CASE n % 5 WHEN 0 THEN 'available' WHEN 1 THEN 'retryable'
            WHEN 2 THEN 'completed' WHEN 3 THEN 'failed' ELSE 'running' END,
        CASE WHEN n % 5 = 3 THEN 'expired' END, false, CASE WHEN n < 49000 THEN 1000000 ELSE n END,
        1000000 + n, CASE WHEN n % 5 = 2 THEN 1000000 + n END, 0,
        1, 1, CASE WHEN n % 5 = 4 THEN 1000000 + n END
    FROM generate_series(1, 50000) n;
    INSERT INTO operation_requests (number, method, url, headers, body)
    SELECT number, 'POST', 'u', '[]', repeat('x', 100)::bytea FROM operations;";

/// How many pages a statement reads. Its plan is made while the tables are empty, as on a new database,
/// and does not depend on its values.
fn pages_read(server: &PrivatePostgres, sql: &str, values: &str) -> u64 {
    server.query("TRUNCATE tidegate.operations, tidegate.operation_requests RESTART IDENTITY");
    server.query("VACUUM ANALYZE tidegate.operations");
    // The first execution afterwards reads what the catalogue says about the tables.
    let explained = format!(
        "SET search_path = tidegate; SET plan_cache_mode = force_generic_plan; {PLANNING};
         PREPARE p AS {sql}; EXPLAIN (ANALYZE) EXECUTE p({values});
         {FILL} EXPLAIN (ANALYZE) EXECUTE p({values});
         EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) EXECUTE p({values})"
    );
    let output = server.query(&explained);
    let begin = output.rfind("[\n  {\n    \"Plan\"").unwrap();
    let plan: Value = serde_json::from_str(&output[begin..]).unwrap();
    let plan = &plan[0]["Plan"];
    let blocks = |name: &str| plan[name].as_u64().unwrap();
    blocks("Shared Hit Blocks") + blocks("Shared Read Blocks")
}

#[test]
fn every_statement_reads_few_of_many_rows() {
    let server = PrivatePostgres::start();
    let folder = tempfile::tempdir().unwrap();
    drop(open_shared(&folder, &server));
    let mut slow = Vec::new();
    for (name, sql, values) in [
        ("due", calls::DUE, "'d-0', 'default', 60000, 5"),
        ("first due", calls::FIRST_DUE, "'d-0', 'default'"),
        ("lanes", pages::LANES, "'', '', 10"),
        ("expired", calls::EXPIRED, "1000010, 10"),
        ("lease ended", calls::LEASE_ENDED, "1000010, 10"),
        ("retained", calls::RETAINED, "1000010, 10"),
        ("export", pages::EXPORT, "100, 10"),
        ("unreported", pages::UNREPORTED, "10"),
        ("id", pages::BY_ID, "'id-7'"),
    ] {
        let read = pages_read(&server, sql, values);
        slow.extend((read >= 100).then(|| format!("{name}: {read} pages")));
    }
    // The table of operations has more than 1600.
    assert_eq!(slow, Vec::<String>::new());
}
