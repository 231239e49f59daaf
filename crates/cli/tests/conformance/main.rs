//! The cases of the design's original descriptions, run through the real binary, or through the
//! policies themselves where no event of a replay can say it.
//!
//! Every case of every file is either run or listed with the reason why not; one that is neither,
//! or a name that no case has any more, fails the test. Gates have strategy `aimd`.

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
mod failure_queue;
mod gate;
mod item;
mod keys;
mod operation;
mod poll;
mod protection;
mod replay;
mod retry_after;
#[path = "../durable/support.rs"]
#[expect(dead_code, reason = "other tests use the rest of it")]
mod server;
mod steps;
mod window;

use serde_json::Value;

/// How a case is run: it panics if the case is not met.
type Run = fn(&Value);

/// Goes through all cases of a file.
fn check(json: &str, run: &[(&str, Run)], skipped: &[(&str, &str)]) {
    check_list(json, "cases", run, skipped);
}

/// Goes through all cases of one list of a file.
fn check_list(json: &str, list: &str, run: &[(&str, Run)], skipped: &[(&str, &str)]) {
    let file: Value = serde_json::from_str(json).unwrap();
    let cases = file[list].as_array().unwrap();
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
    let names = ["id", "input", "scenario", "code"];
    let mut names = names.iter().filter_map(|name| case.get(name));
    names.next().and_then(Value::as_str).unwrap()
}

/// Every list of a file that holds cases, so that no list is overlooked.
fn check_lists(json: &str, expected: &[&str]) {
    let file: Value = serde_json::from_str(json).unwrap();
    let lists = file.as_object().unwrap().iter();
    let lists = lists.filter(|(_, value)| {
        let first = value.as_array().and_then(|list| list.first());
        first.is_some_and(Value::is_object)
    });
    let mut names: Vec<&str> = lists.map(|(name, _)| name.as_str()).collect();
    let mut expected = expected.to_vec();
    names.sort_unstable();
    expected.sort_unstable();
    assert_eq!(names, expected);
}

#[track_caller]
fn assert_close(actual: &Value, expected: &Value, what: &str) {
    match (actual.as_f64(), expected.as_f64()) {
        // The files round to nine decimals.
        (Some(a), Some(e)) => assert!((a - e).abs() < 1e-8, "{what}: {a}, expected {e}"),
        _ => assert_eq!(actual, expected, "{what}"),
    }
}
