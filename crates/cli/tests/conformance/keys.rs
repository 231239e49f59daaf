//! Which texts name the same gate.

use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::check;

#[test]
fn keys() {
    check(
        include_str!("../../../../conformance/004_normalize.json"),
        &[
            ("", normalises),
            (" example.com ", normalises),
            ("2001:db8::1", normalises),
            ("Example.COM", normalises),
            ("[2001:db8::1]", normalises),
            ("[2001:db8::1]:443", normalises),
            ("[2001:db8::1]:8443", normalises),
            ("example.com/path", normalises),
            ("exämple.com", normalises),
            ("http://Example.com/path", normalises),
            ("http://example.com:443", has_a_gate_of_its_own),
            ("https://Example.com:8443/x", normalises),
            ("https://example.com:80", has_a_gate_of_its_own),
            ("https://user:pw@example.com/", normalises),
            ("invalid::domain", normalises),
            ("sub.example.com:80", normalises),
            ("xn--exmple-cua.com", normalises),
        ],
        &[(
            "example.com:0",
            "by design: other ports than the default are kept",
        )],
    );
}

/// Two asks at gates that admit one: the second waits if both are the same gate.
fn replay(first: &Value, second: &Value) -> Output {
    let mut process = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["replay", "--policy", "gate"])
        .args(["--set", "strategy=fixed", "--set", "initial_rate=1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let events = [first, second].map(|key| json!({ "at": 0, "acquire": key }).to_string());
    let mut stdin = process.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, events.join("\n").as_bytes()).unwrap();
    drop(stdin);
    process.wait_with_output().unwrap()
}

fn second_decision(output: &Output) -> Value {
    let line = output.stdout.split(|byte| *byte == b'\n').nth(1).unwrap();
    let answer: Value = serde_json::from_slice(line).unwrap();
    answer["decision"].clone()
}

fn normalises(case: &Value) {
    let expect = &case["expect"];
    if expect == "ERR" {
        let output = replay(&json!("example.com"), &case["input"]);
        assert_eq!(output.status.code(), Some(2), "{case}");
    } else {
        assert_eq!(
            second_decision(&replay(expect, &case["input"])),
            "wait",
            "{case}"
        );
    }
}

/// Its key cannot be given without a scheme, where 80 and 443 both count as the default.
fn has_a_gate_of_its_own(case: &Value) {
    let input = &case["input"];
    let host = json!("example.com");
    assert_eq!(second_decision(&replay(&host, input)), "admit", "{case}");
    assert_eq!(second_decision(&replay(input, input)), "wait", "{case}");
}
