//! The books themselves: what they let pass and what not.

use std::time::Duration;

use policy::bucket::Pause;
use policy::gate::{GateOptions, GateSettings};

use super::tokens::{Stretch, Tokens};
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

/// How many leave at once.
fn burst(tokens: &mut Tokens) -> usize {
    std::iter::from_fn(|| tokens.take().then_some(())).count()
}

#[test]
fn a_request_too_early_has_no_token() {
    let settings = settings(&[("strategy", "fixed"), ("initial_rate", "2")]);
    let mut tokens = Tokens::full(&settings);
    assert!(tokens.take());
    tokens.pass(&settings, Pause::NONE, at(0.4979));
    assert!(!tokens.take(), "two milliseconds' worth are saved, no more");
}

#[test]
fn a_pause_leaves_what_it_keeps_and_the_rate_goes_on_from_its_end() {
    let settings = settings(&[("strategy", "aimd"), ("burst", "9"), ("max_rate", "8")]);
    for (keep, asked_at, leave) in [(1.0, 10.0, 1), (3.0, 10.0, 3), (1.0, 11.0, 3)] {
        let mut tokens = Tokens::full(&settings);
        let pause = Pause {
            until: at(10.0),
            keep,
        };
        tokens.pass(&settings, pause, at(5.0));
        tokens.pass(&settings, pause, at(asked_at));
        assert_eq!(
            burst(&mut tokens),
            leave,
            "{keep} kept, asked at {asked_at}"
        );
    }
}

#[test]
fn one_more_than_a_limit_in_any_stretch_is_seen() {
    let mut stretch = Stretch::new("3/1s".parse().unwrap());
    let taken = [0.0, 0.2, 0.9, 1.0, 1.1].map(|seconds| stretch.take(at(seconds)));
    assert_eq!(taken, [true, true, true, true, false]);
}

#[test]
fn the_first_violation_is_told_with_time_and_client() {
    let mut found = Found {
        at: at(1.5),
        client: 3,
        first: None,
    };
    found.expect(true, Promise::HoldIsKept, || "nothing".to_owned());
    found.expect(false, Promise::ProbesAreFew, || "4 out of 3".to_owned());
    found.expect(false, Promise::HoldIsKept, || "later".to_owned());
    let told = found.first.unwrap().to_string();
    assert_eq!(told, "ProbesAreFew at 1.500000000 s, client 3: 4 out of 3");
}

#[test]
fn another_seed_is_another_trace() {
    let mut scenario = Shipped::find("o1").unwrap().scenario();
    scenario.duration = Duration::from_secs(20);
    let [one, same, other] = [1, 1, 2].map(|seed| check(&scenario, seed).unwrap());
    assert_eq!(one, same);
    assert_ne!(one.trace, other.trace);
}

#[test]
fn a_gap_that_nothing_excuses_is_seen() {
    let text = "[upstream]\nkind = \"bucket\"\nrate = 1\n\
                outage = [{ from = \"20s\", to = \"50s\" }]";
    let scenario = Scenario::read("gap.toml", text.as_bytes()).unwrap();
    let mut found = Found::default();
    let mut progress = Progress::new(&scenario);
    progress.excuse_nobody();
    progress.pass(at(25.0), &mut found);
    progress.pass(at(70.0), &mut found);
    assert_eq!(found.first, None, "half of it was an outage");
    progress.pass(at(90.0), &mut found);
    assert_eq!(found.first.unwrap().promise, Promise::AllGoOn);
}
