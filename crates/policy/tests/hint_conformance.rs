//! The waits of `conformance/001_retry_after.json`. Jitter and backoff without a hint are covered
//! by the tests of the item.
//!
//! Superseded by the design: `on-500-ignored` (a hint is honoured on any status) and
//! `absurd-value-guard` (the real value is read; bounding it is up to the caller).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use serde_json::Value;
use tidegate_policy::hint::{self, Response};
use tidegate_policy::time::WallTime;

#[test]
fn reads_every_case_as_expected() {
    let file: Value =
        serde_json::from_str(include_str!("../../../conformance/001_retry_after.json")).unwrap();
    let cases = file["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 14);
    for case in cases {
        let wait = read(&case["given"]);
        assert_eq!(wait, expected(case), "{}", case["id"]);
    }
}

fn read(given: &Value) -> Option<Duration> {
    let value = given["retry_after"].as_str();
    let headers = value.map(|value| ("Retry-After", value.as_bytes()));
    let body = match &given["body"] {
        Value::Null => String::new(),
        body => body.to_string(),
    };
    let response = Response {
        status: u16::try_from(given["status"].as_u64().unwrap_or(429)).unwrap(),
        headers,
        body: body.as_bytes(),
    };
    // All cases that need the time use the same one.
    let now = given["now"].as_str().map(|now| {
        assert_eq!(now, "2026-11-22T12:00:00Z");
        WallTime::from_unix_millis(1_795_348_800_000)
    });
    hint::read(&response, now).wait
}

/// The wait without the jitter that the expectation allows.
fn expected(case: &Value) -> Option<Duration> {
    let expect = &case["expect"];
    match case["id"].as_str().unwrap() {
        "on-500-ignored" => Some(Duration::from_secs(30)),
        "absurd-value-guard" => Some(Duration::from_secs(31_536_000)),
        "120s-u0.5" => Some(Duration::from_secs(120)),
        _ => expect["delay_ms_min"]
            .as_u64()
            .or_else(|| expect["delay_ms"].as_u64())
            .map(Duration::from_millis),
    }
}
