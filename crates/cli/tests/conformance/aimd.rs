//! How the rate moves.

use serde_json::{Value, json};

use crate::gate::Gate;
use crate::{check, steps};

#[test]
fn aimd() {
    check(
        include_str!("../../../../conformance/004_aimd.json"),
        &[
            ("fast-success-to-ceiling", steps::all),
            // From there on, our table of verdicts decides: 408 is Overloaded.
            ("status-effects", |case| steps::before(case, 7.0)),
            // From there on, our zones decide: from the target on the rate stays.
            ("latency-boundaries", |case| steps::before(case, 2.0)),
            ("latency-neutral-zone", neutral_zone),
            ("directed-wait-does-not-trip", directed_wait),
            ("nan-and-zero-config-rejected", bad_settings),
        ],
        &[],
    );
}

fn neutral_zone(case: &Value) {
    let mut gate = Gate::new(&[]);
    let latencies = case["given"]["latency_ms"].as_array().unwrap();
    let rates = case["expect"]["fill_rate"].as_array().unwrap();
    for (at, (latency, rate)) in latencies.iter().zip(rates).enumerate() {
        let at = at as f64;
        let number = gate.admit(at);
        let result = json!({ "status": 200, "latency_ms": latency });
        crate::assert_close(&gate.settle_with(at, number, result)["rate"], rate, "rate");
    }
    gate.end();
}

fn directed_wait(case: &Value) {
    let mut gate = Gate::new(&[]);
    let mut numbers: Vec<_> = (0..4).map(|_| gate.admit(0.0)).collect();
    numbers.push(gate.admit(0.5));
    for number in numbers {
        let result = json!({ "status": 429, "headers": { "retry-after": "2" } });
        let answer = gate.settle_with(1.0, number, result);
        assert_eq!(answer["breaker"], case["expect"]["breaker"]);
        assert_eq!(answer["rate"], 1, "decreased once from 2");
        assert_eq!(answer["hold_until"], 3);
    }
    gate.end();
}

fn bad_settings(_: &Value) {
    for value in ["0", "NaN", "-1", "inf"] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["replay", "--policy", "gate", "--set"])
            .arg(format!("max_rate={value}"))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{value}");
    }
}
