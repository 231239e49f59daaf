//! Python's requests, with nothing changed but the base URL.

use serde_json::Value;

use crate::client::{ClientOutput, of_python, run, script};
use crate::servers::Servers;

fn python(name: &str, servers: &Servers) -> ClientOutput {
    run(of_python("python").arg(script(name)).arg(servers.base()))
}

#[test]
fn requests_session_works_through_the_gateway() {
    let servers = Servers::start(&[], "[gate]\ninitial_rate = 1000.0\n");
    python("requests_session.py", &servers);
    servers.end();
}

#[test]
fn requests_threads_stay_within_a_limit_without_failures() {
    let servers = Servers::start(&["--limit", "100/s burst 20", "--retry-after"], "");
    let ClientOutput { stdout, .. } = python("requests_limit.py", &servers);
    let responses: Vec<Value> = serde_json::from_str(&stdout).unwrap();
    assert_eq!(responses.len(), 200);
    assert!(
        responses.iter().all(|response| response["status"] == 200),
        "{responses:?}"
    );
    let waits = responses
        .iter()
        .filter_map(|response| response["wait_ms"].as_u64());
    // 200 requests take a second or more: most of them waited, and their responses say so.
    assert!(waits.max().unwrap() >= 500, "{responses:?}");
    let stats = servers.stats();
    assert_eq!(stats["accepted"], 200, "{stats}");
    assert_eq!(stats["early"], 0, "a Retry-After was not kept: {stats}");
    let attempts = responses
        .iter()
        .filter_map(|response| response["attempts"].as_u64());
    assert_eq!(attempts.sum::<u64>(), stats["received"], "{stats}");
    servers.end();
}

#[test]
fn post_is_resent_only_with_an_idempotency_key() {
    let servers = Servers::start(&["--script", "503,200,503,200"], "");
    python("requests_idempotency.py", &servers);
    assert_eq!(servers.stats()["received"], 3);
    servers.end();
}
