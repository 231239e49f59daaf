//! Runs the program that prints a token.
//!
//! It runs without a shell, and with the environment of the server. Its standard error is discarded:
//! it may hold the secrets that the token was made from.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::process::Command;

use super::MAX_TOKEN;
use crate::settings::TokenCommand;

/// The first line that the program prints, without blanks around it. `None` if it fails, prints
/// nothing or more than [`MAX_TOKEN`], or does not end within `timeout`; then it is killed.
pub(super) async fn run(command: &TokenCommand, timeout: Duration) -> Option<String> {
    tokio::time::timeout(timeout, output(command)).await.ok()?
}

async fn output(command: &TokenCommand) -> Option<String> {
    let mut child = Command::new(&command.program)
        .args(&command.arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .ok()?;
    let mut printed = Vec::new();
    let limit = MAX_TOKEN as u64 + 1;
    let stdout = child.stdout.take()?;
    stdout.take(limit).read_to_end(&mut printed).await.ok()?;
    if printed.len() > MAX_TOKEN || !child.wait().await.ok()?.success() {
        return None;
    }
    let printed = String::from_utf8(printed).ok()?;
    let line = printed.trim().lines().next()?.trim_end();
    (!line.is_empty()).then(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn printed_by(script: &str, timeout: Duration) -> Option<String> {
        let command = TokenCommand {
            program: "sh".to_owned(),
            arguments: vec!["-c".to_owned(), script.to_owned()],
        };
        run(&command, timeout).await
    }

    #[tokio::test]
    async fn takes_the_first_line_without_blanks() {
        for (script, expected) in [
            ("echo token", Some("token")),
            ("printf '\n  token \r\nexpires soon\n'", Some("token")),
            ("echo secret >&2; echo token", Some("token")),
            ("echo token; exit 1", None),
            ("true", None),
            ("echo '  '", None),
            ("printf '\\377'", None),
            ("head -c 65537 /dev/zero | tr '\\0' a", None),
        ] {
            let printed = printed_by(script, Duration::from_secs(30)).await;
            assert_eq!(printed.as_deref(), expected, "{script}");
        }
        let missing = TokenCommand {
            program: "/no/such/program".to_owned(),
            arguments: Vec::new(),
        };
        assert_eq!(run(&missing, Duration::from_secs(30)).await, None);
    }

    #[tokio::test]
    async fn gives_up_on_a_program_that_takes_too_long() {
        let printed = printed_by("exec sleep 600", Duration::from_millis(50)).await;
        assert_eq!(printed, None);
    }

    #[tokio::test]
    async fn kills_the_program_when_its_token_is_not_awaited_any_more() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let script = format!("echo $$ > {}; exec sleep 600", file.display());
        let pid = async {
            loop {
                match std::fs::read_to_string(&file) {
                    Ok(pid) if pid.ends_with('\n') => return pid.trim().to_owned(),
                    _ => tokio::task::yield_now().await,
                }
            }
        };
        let pid = tokio::select! {
            pid = pid => pid,
            _ = printed_by(&script, Duration::from_secs(600)) => panic!("it does not end"),
        };
        let is_running = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
            stat.is_ok_and(|stat| !stat.contains(") Z "))
        };
        while is_running() {
            tokio::task::yield_now().await;
        }
    }
}
