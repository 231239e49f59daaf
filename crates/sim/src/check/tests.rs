//! Tests of the checks: what they accept and what they report.

use std::time::Duration;

use policy::bucket::Pause;
use policy::gate::{GateOptions, GateSettings};

use super::tokens::{LimitLog, Tokens};
use super::*;
use crate::scenario::Shipped;

fn at(seconds: f64) -> Timestamp {
    Timestamp::ZERO.after_seconds(seconds)
}

fn settings(options: &[(&str, &str)]) -> GateSettings {
    let mut written = GateOptions::default();
    for (name, value) in options {
        written.set(name, value).unwrap();
    }
    written.build().unwrap()
}

/// How many requests have a token.
fn burst(tokens: &mut Tokens) -> usize {
    std::iter::from_fn(|| tokens.take().then_some(())).count()
}

#[test]
fn reports_a_request_without_a_token() {
    let settings = settings(&[("strategy", "fixed"), ("initial_rate", "2")]);
    let mut tokens = Tokens::full(&settings);
    assert!(tokens.take());
    tokens.advance(&settings, Pause::NONE, at(0.4979));
    assert!(!tokens.take(), "two milliseconds' worth are saved, no more");
}

#[test]
fn pause_leaves_its_tokens_and_refill_starts_at_its_end() {
    let settings = settings(&[("strategy", "aimd"), ("burst", "9"), ("max_rate", "8")]);
    for (keep, asked_at, leave) in [(1.0, 10.0, 1), (3.0, 10.0, 3), (1.0, 11.0, 3)] {
        let mut tokens = Tokens::full(&settings);
        let pause = Pause {
            until: at(10.0),
            keep,
        };
        tokens.advance(&settings, pause, at(5.0));
        tokens.advance(&settings, pause, at(asked_at));
        assert_eq!(
            burst(&mut tokens),
            leave,
            "{keep} kept, asked at {asked_at}"
        );
    }
}

#[test]
fn reports_one_request_more_than_a_known_limit() {
    let mut log = LimitLog::new("3/1s".parse().unwrap());
    let taken = [0.0, 0.2, 0.9, 1.0, 1.1].map(|seconds| log.take(at(seconds)));
    assert_eq!(taken, [true, true, true, true, false]);
}

#[test]
fn reports_the_first_violation_with_time_and_client() {
    let mut violations = Violations {
        at: at(1.5),
        client: 3,
        first: None,
    };
    violations.require(true, Invariant::NoSendDuringHold, || "nothing".to_owned());
    violations.require(false, Invariant::ProbesAreBounded, || {
        "4 out of 3".to_owned()
    });
    violations.require(false, Invariant::NoSendDuringHold, || "later".to_owned());
    let text = violations.first.unwrap().to_string();
    assert_eq!(
        text,
        "ProbesAreBounded at 1.500000000 s, client 3: 4 out of 3"
    );
}

#[test]
fn trace_differs_by_seed() {
    let mut scenario = Shipped::find("o1").unwrap().scenario();
    scenario.duration = Duration::from_secs(20);
    let [one, same, other] = [1, 1, 2].map(|seed| check(&scenario, seed).unwrap());
    assert_eq!(one, same);
    assert_ne!(one.trace, other.trace);
}

#[test]
fn reports_a_gap_without_progress() {
    let text = "[upstream]\nkind = \"bucket\"\nrate = 1\n\
                outage = [{ from = \"20s\", to = \"50s\" }]";
    let scenario = Scenario::read("gap.toml", text.as_bytes()).unwrap();
    let mut violations = Violations::default();
    let mut progress = Progress::new(&scenario);
    progress.fill_backlogs();
    progress.advance(at(25.0), &mut violations);
    progress.advance(at(70.0), &mut violations);
    assert_eq!(violations.first, None, "half of it was an outage");
    progress.advance(at(90.0), &mut violations);
    assert_eq!(violations.first.unwrap().invariant, Invariant::Progress);
}
