//! What is read from Retry-After, through `tidegate replay --policy hint`.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::check;

#[test]
fn retry_after() {
    check(
        include_str!("cases/001_retry_after.json"),
        &[
            ("120s", waits),
            ("120s-u0", waits),
            ("zero", waits),
            ("negative-number", says_nothing),
            ("http-date-imf-future", waits),
            ("http-date-past", says_nothing),
            ("garbage", says_nothing),
            ("fractional-seconds", waits),
            ("on-503", waits),
            ("body-details-fallback", waits),
            ("429-without-any-hint", says_nothing),
        ],
        &[
            (
                "120s-u0.5",
                "pending: jitter on top of a hint is policy `backoff`",
            ),
            (
                "absurd-value-guard",
                "superseded by DESIGN rule 6: a hint is kept however long",
            ),
            (
                "on-500-ignored",
                "superseded by CONTRACT: a hint is honoured on any retryable status",
            ),
        ],
    );
}

fn waits(case: &Value) {
    let expect = &case["expect"];
    let least = expect
        .get("delay_ms_min")
        .or_else(|| expect.get("delay_ms"));
    assert_eq!(&hint(&case["given"])["wait_ms"], least.unwrap(), "{case}");
}

fn says_nothing(case: &Value) {
    assert_eq!(case["expect"]["uses"], "exponential");
    assert_eq!(hint(&case["given"]), json!({ "wait_ms": null }), "{case}");
}

fn hint(given: &Value) -> Value {
    let mut event = json!({ "status": given["status"].as_u64().unwrap_or(429) });
    if let Some(value) = given.get("retry_after") {
        event["headers"] = json!({ "retry-after": value });
    }
    if let Some(body) = given.get("body") {
        event["body"] = json!(body.to_string());
    }
    if let Some(now) = given.get("now") {
        event["now"] = now.clone();
    }
    let mut process = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["replay", "--policy", "hint"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(process.stdin.take().unwrap(), "{event}").unwrap();
    serde_json::from_slice(&process.wait_with_output().unwrap().stdout).unwrap()
}
