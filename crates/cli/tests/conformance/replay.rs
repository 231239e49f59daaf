//! Events of one policy through the real binary, all at once.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// The answers to `events`, one each.
pub(crate) fn replay(policy: &str, settings: &[String], events: &[Value]) -> Vec<Value> {
    let output = run(policy, settings, events);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let answers: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(answers.len(), events.len());
    answers
}

/// What is said about settings that cannot be.
pub(crate) fn refused(policy: &str, settings: &[String]) -> String {
    let output = run(policy, settings, &[]);
    assert_eq!(output.status.code(), Some(2));
    String::from_utf8(output.stderr).unwrap()
}

fn run(policy: &str, settings: &[String], events: &[Value]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["replay", "--policy", policy]);
    for setting in settings {
        command.args(["--set", setting]);
    }
    let mut process = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = process.stdin.take().unwrap();
    for event in events {
        // It may have stopped already because of its settings.
        _ = writeln!(input, "{event}");
    }
    drop(input);
    process.wait_with_output().unwrap()
}
