//! Runs a program with a response on its stdin.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Runs a program, without a shell, with `input` on its stdin; it shares stdout and stderr. A program
/// that reads nothing is fine. It is killed if the future is dropped.
///
/// # Errors
///
/// If it cannot be started.
pub async fn run_program(
    program: &Path,
    arguments: &[OsString],
    input: &[u8],
) -> io::Result<ExitStatus> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let stdin = child.stdin.take();
    let write = async {
        if let Some(mut stdin) = stdin {
            // It may close its stdin, or end, before it has read everything.
            _ = stdin.write_all(input).await;
        }
    };
    let (status, ()) = tokio::join!(child.wait(), write);
    status
}
