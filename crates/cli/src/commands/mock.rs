//! A mock, from what was typed to its end.

mod settings;
mod summary;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use app::mock::{Mock, MockStats};
use serde_json::json;

use super::stopping::{Stop, Stopping};
use super::{Failure, problems, unwritten};
use crate::args::MockArgs;
use crate::exit::Exit;
use crate::output::Output;

pub(crate) fn mock(args: &MockArgs, is_json: bool, output: &Output) -> Result<(), Failure> {
    let wanted = settings::read(args, is_json, output)?;
    let shown = summary::text(&wanted.mock);
    let stopping = Stopping::new().map_err(no_signals)?;
    let mock = Mock::start(wanted.mock, wanted.listen, wanted.threads)
        .map_err(|error| not_started(error, wanted.listen))?;
    // What listens also to others is told before anybody calls.
    if !mock.address().ip().is_loopback() {
        output.warning(&format!(
            "{} can be reached from other machines, and the mock answers everybody",
            mock.address()
        ));
    }
    let url = mock.url();
    let text = match is_json {
        true => format!("{}\n", json!({ "listening": url })),
        false if output.is_quiet() => format!("listening on {url}\n"),
        false => format!("listening on {url}\n{shown}"),
    };
    output.print(text.as_bytes()).or_else(unwritten)?;
    let (stop, stats) = stopping.wait(wanted.length, move || mock.stop(PATIENCE));
    if let Some(stats) = stats.filter(|_| is_json || !output.is_quiet()) {
        let text = counts(&stats, is_json);
        output.print(text.as_bytes()).or_else(unwritten)?;
    }
    match stop {
        Stop::Elapsed | Stop::Terminated => Ok(()),
        Stop::Interrupted => Err(Failure::silent(Exit::Interrupted)),
    }
}

/// How long a mock that is told to end waits for what is under way.
const PATIENCE: Duration = Duration::from_secs(2);

fn no_signals(error: io::Error) -> Failure {
    let error = anyhow::Error::new(error).context("cannot wait for signals");
    Failure::new(Exit::Failed, error)
}

fn counts(stats: &MockStats, is_json: bool) -> String {
    if is_json {
        format!("{}\n", json!(stats))
    } else {
        summary::counts(stats)
    }
}

fn not_started(error: io::Error, listen: SocketAddr) -> Failure {
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another program has this port; `--listen 127.0.0.1:0` takes any that is free"
        }
        io::ErrorKind::AddrNotAvailable => {
            "this machine does not have that address; `--listen 127.0.0.1:7080` is always there"
        }
        io::ErrorKind::PermissionDenied => "ports below 1024 are not for everybody",
        _ => "`--listen 127.0.0.1:0` takes any port that is free",
    };
    let error = Err::<(), _>(error)
        .with_context(|| format!("cannot listen at `{listen}`"))
        .expect_err("it was made from an error");
    Failure::new(Exit::Failed, error).with_hint(hint)
}
