//! Verdicts for `conformance/001_error_mapping.json` and for the cases of `003_classification.json`
//! that have a status. The cases with only a text are about protection, which matches texts without
//! a status; here they show the effect of words on a status that does not decide by itself.
//!
//! Superseded by the design: `tls_failed` (unreachable like every transport failure).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::Value;
use tidegate_policy::classify;
use tidegate_policy::hint::{self, Response};
use tidegate_policy::outcome::{Failure, Verdict};

#[test]
fn classifies_statuses_of_the_sync_engine() {
    let file: Value =
        serde_json::from_str(include_str!("../../../conformance/001_error_mapping.json")).unwrap();
    for case in file["http"].as_array().unwrap() {
        let expected = match case["class"].as_str().unwrap() {
            "special" => Verdict::Unauthorized,
            "permanent" => Verdict::Rejected,
            "transient" => Verdict::Overloaded,
            "ambiguous" => Verdict::Conflict,
            class => panic!("unknown class {class}"),
        };
        assert_eq!(judge(status(case), ""), expected, "{case}");
    }
}

#[test]
fn failures_of_the_sync_engine_are_unreachable() {
    for failure in [Failure::Timeout, Failure::Connect, Failure::Tls] {
        let verdict = classify::failure(failure).verdict;
        assert_eq!(verdict, Some(Verdict::Unreachable));
    }
}

#[test]
fn classifies_statuses_of_endpoint_protection() {
    for (id, verdict) in [
        ("s429", Verdict::Throttled),
        ("s503", Verdict::Overloaded),
        ("s504", Verdict::Overloaded),
    ] {
        let given = given(id);
        let text = given["message"].as_str().unwrap();
        assert_eq!(judge(status(&given), text), verdict, "{id}");
    }
}

#[test]
fn texts_of_endpoint_protection_count_as_whole_words() {
    for (id, verdict) in [
        ("msg_tmr", Verdict::Throttled),
        ("string", Verdict::Throttled),
        // Digits in a text are not a status.
        ("msg_429", Verdict::Rejected),
        ("msg_502ms", Verdict::Rejected),
        ("timeout", Verdict::Rejected),
        ("rpm", Verdict::Rejected),
    ] {
        let given = given(id);
        let text = given["message"].as_str().or_else(|| given.as_str());
        assert_eq!(judge(400, text.unwrap()), verdict, "{id}");
    }
}

fn judge(status: u16, body: &str) -> Verdict {
    let response = Response {
        status,
        headers: [],
        body: body.as_bytes(),
    };
    let hint = hint::read(&response, None);
    classify::response(&[], &response, &hint).verdict.unwrap()
}

fn given(id: &str) -> Value {
    let file: Value =
        serde_json::from_str(include_str!("../../../conformance/003_classification.json")).unwrap();
    let cases = file["cases"].as_array().unwrap();
    let case = cases.iter().find(|case| case["id"] == id).unwrap();
    case["given"].clone()
}

fn status(case: &Value) -> u16 {
    let status = case["status"]
        .as_u64()
        .or_else(|| case["statusCode"].as_u64());
    u16::try_from(status.unwrap()).unwrap()
}
