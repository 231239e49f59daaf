//! Python's requests, with nothing changed but the base URL.

use serde_json::Value;

use crate::client::{Said, of_python, run, script};
use crate::servers::Servers;

fn python(name: &str, servers: &Servers) -> Said {
    run(of_python("python").arg(script(name)).arg(servers.base()))
}

#[test]
fn a_session_works_as_before() {
    let servers = Servers::start(&[], "[gate]\ninitial_rate = 1000.0\n");
    python("requests_session.py", &servers);
    servers.end();
}

#[test]
fn threads_are_kept_within_a_limit_and_none_of_them_fails() {
    let servers = Servers::start(&["--limit", "100/s burst 20", "--retry-after"], "");
    let Said { stdout, .. } = python("requests_limit.py", &servers);
    let told: Vec<Value> = serde_json::from_str(&stdout).unwrap();
    assert_eq!(told.len(), 200);
    assert!(
        told.iter().all(|answer| answer["status"] == 200),
        "{told:?}"
    );
    let waits = told.iter().filter_map(|answer| answer["wait_ms"].as_u64());
    // 200 within a second or more: most of them waited, and were told so.
    assert!(waits.max().unwrap() >= 500, "{told:?}");
    let stats = servers.stats();
    assert_eq!(stats["accepted"], 200, "{stats}");
    assert_eq!(stats["early"], 0, "a Retry-After was not kept: {stats}");
    let attempts = told.iter().filter_map(|answer| answer["attempts"].as_u64());
    assert_eq!(attempts.sum::<u64>(), stats["received"], "{stats}");
    servers.end();
}

#[test]
fn a_post_is_sent_again_only_with_an_idempotency_key() {
    let servers = Servers::start(&["--script", "503,200,503,200"], "");
    python("requests_idempotency.py", &servers);
    assert_eq!(servers.stats()["received"], 3);
    servers.end();
}
