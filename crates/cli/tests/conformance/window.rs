//! What the error window still counts.

use serde_json::{Value, json};

use crate::check;
use crate::gate::Gate;

#[test]
fn window() {
    check(
        include_str!("../../../../conformance/004_window.json"),
        &[
            ("before-eviction", window_holds),
            ("after-eviction", window_holds),
            ("bucket-start-equal-cutoff-kept", window_holds),
            ("empty", window_holds),
        ],
        &[],
    );
}

/// The share of errors is what can be seen of the counts.
fn window_holds(case: &Value) {
    let mut gate = Gate::new(&["window=5s", "window_slice=1s"]);
    let given = &case["given"];
    for record in given["records"].as_array().unwrap() {
        let status = if record[2] == 0 { 200 } else { 500 };
        gate.attempt(record[0].as_f64().unwrap(), status);
    }
    // A 401 is not counted, and shows what is.
    let at = given["at_s"].as_f64().unwrap_or(0.0);
    let answer = gate.attempt(at, 401);
    let expect = &case["expect"];
    let share = match (expect["errors"].as_f64(), expect["total"].as_f64()) {
        (Some(errors), Some(total)) => errors / total,
        // One record, an error: still there if the whole window is errors.
        (None, Some(total)) => total,
        _ => expect["rate"].as_f64().unwrap(),
    };
    crate::assert_close(&answer["error_rate"], &json!(share), "error_rate");
    gate.end();
}
