//! Tokens and waits.

use serde_json::Value;

use crate::check;
use crate::gate::Gate;

#[test]
fn bucket() {
    check(
        include_str!("../../../../conformance/004_token_bucket_and_acquire.json"),
        &[
            ("wait-then-refill", wait_then_refill),
            ("WAIT-ROUNDS-UP", wait_rounds_up),
            ("disabled", disabled),
        ],
        &[
            (
                "retry-after-10s-then-burst",
                "by design: after a hold at most one saved token is kept",
            ),
            (
                "clock-backwards",
                "the events of a replay never go back in time; a test of the bucket itself does",
            ),
        ],
    );
}

/// Without time to wait, an ask is refused with the time it would have waited, and changes nothing.
fn wait_then_refill(case: &Value) {
    let mut gate = Gate::new(&["burst=1", "initial_rate=2", "max_wait=0s"]);
    let times = case["given"]["reserve_at_s"].as_array().unwrap();
    for (i, at) in times.iter().enumerate() {
        let at = at.as_f64().unwrap();
        let (answer, _) = gate.acquire(at);
        let granted = answer["decision"] == "admit";
        let wait = answer["until"].as_f64().map_or(0.0, |until| until - at);
        assert_eq!(case["expect"]["granted"][i], granted, "at {at}: {answer}");
        assert_eq!(case["expect"]["wait_s"][i].as_f64(), Some(wait));
    }
    gate.end();
}

fn wait_rounds_up(_: &Value) {
    for rate in ["0.3", "0.7", "1.1", "2.9", "3", "6.1", "7", "7.7"] {
        let mut gate = Gate::new(&["burst=1", &format!("initial_rate={rate}")]);
        gate.admit(0.0);
        let mut now = 0.0;
        for _ in 0..50 {
            let (answer, number) = gate.acquire(now);
            assert_eq!(answer["decision"], "wait", "one token was taken at {now}");
            now = answer["until"].as_f64().unwrap();
            // The next one asks at the very time the last one leaves, and finds no token.
            let (answer, _) = gate.acquire(now);
            assert_eq!(gate.admitted, [(now, number)]);
            assert_eq!(answer["decision"], "wait");
            now = answer["until"].as_f64().unwrap();
        }
        gate.end();
    }
}

fn disabled(_: &Value) {
    let mut gate = Gate::new(&["enabled=false"]);
    for second in 0..100 {
        let at = f64::from(second) / 10.0;
        let answer = gate.attempt(at, 503);
        assert_eq!(answer["breaker"], "closed");
        assert_eq!(answer["rate"], 2);
        assert_eq!(answer["consecutive_failures"], 0);
    }
    gate.end();
}
