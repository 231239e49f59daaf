//! What is read from Retry-After, through `tidegate replay --policy hint`, and what an item makes of
//! it, through `--policy backoff`.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use policy::backoff::BackoffSettings;
use serde_json::{Value, json};

use crate::check;
use crate::item::replay;

#[test]
fn retry_after() {
    check(
        include_str!("../../../../conformance/001_retry_after.json"),
        &[
            ("120s", waits),
            ("120s-u0", waits),
            ("120s-u0.5", jitter_adds),
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
                "absurd-value-guard",
                "superseded by design: a hint is kept however long",
            ),
            (
                "on-500-ignored",
                "superseded by design: a hint is honoured on any retryable status",
            ),
        ],
    );
}

fn waits(case: &Value) {
    let expect = &case["expect"];
    let least = expect
        .get("delay_ms_min")
        .or_else(|| expect.get("delay_ms"));
    let least = least.unwrap();
    assert_eq!(&hint(&case["given"])["wait_ms"], least, "{case}");
    let most = least.as_u64().unwrap() + 5000;
    // Fewer than the directed waits that end an item.
    let mut event = event(&case["given"]);
    event["attempt"] = json!(1);
    let events = vec![event; 90];
    let answers = (0..6).flat_map(|seed| replay(&["--seed", &seed.to_string()], &events));
    for answer in answers {
        assert_eq!(answer["source"], "retry_after", "{case}");
        assert_eq!(
            (&answer["min_ms"], &answer["max_ms"]),
            (least, &json!(most))
        );
        let delay = answer["delay_ms"].as_u64();
        assert!(delay >= least.as_u64() && delay < Some(most), "{delay:?}");
    }
}

/// Replay cannot choose a random number; the policy can.
fn jitter_adds(case: &Value) {
    let wait = Duration::from_millis(hint(&case["given"])["wait_ms"].as_u64().unwrap());
    let unit = case["given"]["uniform01"].as_f64().unwrap();
    let delay = BackoffSettings::default().directed_at(wait, unit);
    assert_eq!(json!(delay.as_millis()), case["expect"]["delay_ms"]);
}

fn says_nothing(case: &Value) {
    assert_eq!(case["expect"]["uses"], "exponential");
    assert_eq!(hint(&case["given"]), json!({ "wait_ms": null }), "{case}");
    let mut event = event(&case["given"]);
    event["attempt"] = case["given"]
        .get("attempt")
        .cloned()
        .unwrap_or_else(|| json!(2));
    let answer = &replay(&[], &[event])[0];
    assert_eq!(answer["source"], "backoff", "{case}");
    assert_eq!(
        (&answer["min_ms"], &answer["max_ms"]),
        (&json!(1000), &json!(3000))
    );
}

fn event(given: &Value) -> Value {
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
    event
}

fn hint(given: &Value) -> Value {
    let event = event(given);
    let mut process = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["replay", "--policy", "hint"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(process.stdin.take().unwrap(), "{event}").unwrap();
    serde_json::from_slice(&process.wait_with_output().unwrap().stdout).unwrap()
}
