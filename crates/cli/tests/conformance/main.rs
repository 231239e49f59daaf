//! The cases of the seeds that are about gates, hints, items and operations, run through the real
//! binary; what it has no command for yet is run on the policies themselves.
//!
//! Every case of every file is either run or listed with the reason why not; one that is neither,
//! or a name that no case has any more, fails the test. Numbers of gates are those of strategy
//! `aimd`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "all of this is test code; clippy knows only functions marked as tests"
)]

mod aimd;
mod breaker;
mod bucket;
mod defaults;
mod eviction;
mod gate;
mod item;
mod keys;
mod operation;
mod retry_after;
mod steps;
mod window;

use serde_json::Value;

/// How a case is run: it panics if the case is not met.
type Run = fn(&Value);

/// Goes through all cases of a file.
fn check(json: &str, run: &[(&str, Run)], skipped: &[(&str, &str)]) {
    let file: Value = serde_json::from_str(json).unwrap();
    let cases = file["cases"].as_array().unwrap();
    for case in cases {
        let name = name(case);
        let runner = run.iter().find(|(run, _)| *run == name);
        let reason = skipped.iter().find(|(skipped, _)| *skipped == name);
        match (runner, reason) {
            (Some((_, run)), None) => {
                println!("case {name}");
                run(case);
            }
            (None, Some((_, reason))) => println!("case {name} is not run: {reason}"),
            (Some(_), Some(_)) => panic!("case {name} is run and also listed as not run"),
            (None, None) => panic!("case {name} is neither run nor listed as not run"),
        }
    }
    let listed = run.iter().map(|(name, _)| name);
    for listed in listed.chain(skipped.iter().map(|(name, _)| name)) {
        let exists = cases.iter().any(|case| name(case) == *listed);
        assert!(exists, "there is no case {listed}");
    }
}

fn name(case: &Value) -> &str {
    let name = case.get("id").or_else(|| case.get("input"));
    name.and_then(Value::as_str).unwrap()
}

#[track_caller]
fn assert_close(actual: &Value, expected: &Value, what: &str) {
    match (actual.as_f64(), expected.as_f64()) {
        // The files round to nine decimals.
        (Some(a), Some(e)) => assert!((a - e).abs() < 1e-8, "{what}: {a}, expected {e}"),
        _ => assert_eq!(actual, expected, "{what}"),
    }
}
