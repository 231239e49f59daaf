//! `--jsonl`: every response as a line of JSON.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use app::poll::PollProgress;
use serde_json::{Value, json};

use crate::commands::Failure;
use crate::exit::Exit;
use crate::output::Output;

/// Where responses are written.
#[derive(Debug)]
pub(super) struct Responses {
    /// `None`: to stdout.
    file: Option<(PathBuf, File)>,
    error: Option<Failure>,
}

impl Responses {
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let file = match is_stdout(path) {
            true => None,
            false => {
                let file = File::create(path).map_err(|error| {
                    let path = path.display();
                    let error = anyhow!(
                        "`--jsonl` is `{path}`, expected a file that can be written: {error}"
                    );
                    Failure::new(Exit::Usage, error)
                })?;
                Some((path.to_path_buf(), file))
            }
        };
        Ok(Self { file, error: None })
    }

    /// Writes a response. Returns `false` if it cannot.
    pub(super) fn write(&mut self, progress: &PollProgress<'_>, output: &Output) -> bool {
        let line = line(progress);
        let written = match &mut self.file {
            None => output.json_line(&line),
            Some((path, file)) => file
                .write_all(format!("{line}\n").as_bytes())
                .map_err(|error| {
                    let error = anyhow!("cannot write `{}`: {error}", path.display());
                    Failure::new(Exit::Failed, error)
                }),
        };
        self.error = written.err();
        self.error.is_none()
    }

    pub(super) fn take_error(&mut self) -> Option<Failure> {
        self.error.take()
    }
}

pub(super) fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

fn line(progress: &PollProgress<'_>) -> Value {
    let PollProgress {
        update, response, ..
    } = progress;
    let text = String::from_utf8_lossy(&response.body);
    let body = match &response.json {
        Some(json) => json.clone(),
        None if text.is_empty() => Value::Null,
        None => text.into(),
    };
    json!({
        "at_ms": response.at.as_unix_millis(),
        "elapsed_ms": millis(update.elapsed),
        "request": update.number,
        "http_status": response.http_status,
        "problem": response.problem,
        "state": update.state.as_str(),
        "status": response.status,
        "progress": update.progress,
        "consecutive_429": update.consecutive_429,
        "next_ms": update.wait.map(millis),
        "body": body,
    })
}

/// In whole milliseconds, rounded up as every wait.
pub(super) fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
