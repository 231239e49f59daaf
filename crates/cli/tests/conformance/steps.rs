//! Cases that are a row of steps, each a result and what can be seen after it.
//!
//! The cases feed results without asking first. A gate gives out permits, and only results of the
//! present epoch count, so every step asks after the step before it. Where the bucket has no token
//! then, the step and all that follow happen later by as much; the cases' times matter only as
//! gaps, and no gap becomes shorter.

use serde_json::{Value, json};

use crate::assert_close;
use crate::gate::Gate;

/// Runs all steps.
pub(crate) fn all(case: &Value) {
    before(case, f64::INFINITY);
}

/// Runs the steps before `end`, in seconds of the case.
pub(crate) fn before(case: &Value, end: f64) {
    let steps = case["steps"].as_array().unwrap();
    let steps = steps
        .iter()
        .filter(|step| step["t_s"].as_f64().unwrap() < end);
    run(steps, seen);
}

/// Runs all steps but looks only at the last, for what the case expects of it.
pub(crate) fn last(case: &Value) {
    let mut answer = Value::Null;
    run(case["steps"].as_array().unwrap(), |_, now| {
        answer = now.clone()
    });
    assert_eq!(answer["breaker"], case["expect_last"]["breaker"]);
}

pub(crate) fn run<'a>(
    steps: impl IntoIterator<Item = &'a Value>,
    mut check: impl FnMut(&Value, &Value),
) {
    let mut gate = Gate::new(&[]);
    let mut later = 0.0;
    for step in steps {
        let at = step["t_s"].as_f64().unwrap() + later;
        let (answer, number) = gate.acquire(at);
        let leaves_at = match answer["decision"].as_str().unwrap() {
            "admit" => at,
            "wait" => answer["until"].as_f64().unwrap(),
            _ => panic!("{answer} to {step}"),
        };
        later += leaves_at - at;
        let mut result = json!({ "latency_ms": step["latency_ms"] });
        if step["transport_error"] == true {
            result["failure"] = json!("connect");
        } else {
            result["status"] = step["status"].clone();
        }
        check(step, &gate.settle_with(leaves_at, number, result));
    }
    gate.end();
}

/// What both the case and the answer name. Counts of the window, successes of probes and the mean
/// latency are not part of an answer.
pub(crate) fn seen(step: &Value, answer: &Value) {
    for (expected, actual) in [
        ("fill_rate", "rate"),
        ("breaker", "breaker"),
        ("consecutive_fails", "consecutive_failures"),
        ("error_rate", "error_rate"),
    ] {
        if let Some(expected) = step["expect"].get(expected) {
            assert_close(&answer[actual], expected, &format!("{actual} after {step}"));
        }
    }
}
