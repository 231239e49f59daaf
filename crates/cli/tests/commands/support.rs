//! Runs the real binary and shows its exit code, stdout and stderr.

use std::io::Write;
use std::process::{Command, Output, Stdio};

/// The binary, without the settings of the environment.
pub(crate) fn tidegate(args: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command
        .args(args.split_whitespace())
        .env("NO_COLOR", "1")
        .env("COLUMNS", "80")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let settings =
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TIDEGATE_"));
    for (name, _) in settings {
        command.env_remove(name);
    }
    command
}

/// Runs it with `input` on stdin.
pub(crate) fn output(args: &str, input: &[u8]) -> Output {
    let mut child = tidegate(args).spawn().unwrap();
    // It may stop reading at a bad line, before the end of what is written.
    _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

/// Runs it with `input` on stdin and shows exit code, stdout and stderr.
pub(crate) fn run(args: &str, input: &str) -> String {
    shown(&output(args, input.as_bytes()))
}

pub(crate) fn shown(output: &Output) -> String {
    let mut shown = format!("exit {}\n", output.status.code().unwrap());
    for (name, bytes) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
        let text = std::str::from_utf8(bytes).unwrap();
        if !text.is_empty() {
            shown.push_str(&format!("--- {name}\n{text}"));
        }
    }
    shown
}
