//! One policy over scripted events.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use sim::replay::{self, Error, Manner, Replay};

use super::{Failure, unwritten};
use crate::args::{Policy, ReplayArgs};
use crate::exit::Exit;
use crate::output::Output;

pub(crate) fn replay(args: &ReplayArgs, output: &Output) -> Result<(), Failure> {
    // Whatever can be wrong with what was typed is found before the first event.
    let mut replay = start(args)?;
    let inputs = open(&args.files)?;
    let mut data = output.data();
    let mut lines = 0;
    for input in inputs {
        match replay::feed(&mut *replay, &input.name, input.reader, &mut data) {
            Ok(read) => lines += read,
            Err(Error::Write(error)) => return unwritten(error),
            Err(error) => return Err(failure(error)),
        }
    }
    output.detail(&format!("replayed {lines} lines"));
    Ok(())
}

fn start(args: &ReplayArgs) -> Result<Box<dyn Replay>, Failure> {
    let mut errors = Vec::new();
    let mut settings = Vec::new();
    for setting in &args.settings {
        match setting.split_once('=') {
            Some((name, value)) => settings.push((name.trim(), value.trim())),
            None => errors.push(anyhow!("`--set {setting}` has no `=`, expected KEY=VALUE")),
        }
    }
    let manner = Manner {
        explain: args.explain,
        seed: args.seed.unwrap_or_default(),
        jitter: args.jitter.is_none(),
    };
    match policy(args.policy).start(settings, args.preset.as_deref(), manner) {
        Ok(replay) if errors.is_empty() => return Ok(replay),
        Ok(_) => {}
        Err(problems) => errors.extend(problems.into_iter().map(Into::into)),
    }
    Err(Failure {
        exit: Exit::Usage,
        errors,
        hint: Some(settings_hint(args.policy).to_owned()),
    })
}

fn settings_hint(policy: Policy) -> &'static str {
    match policy {
        Policy::Gate => {
            "settings are written as `--set max_rate=8`, by their names in the configuration"
        }
        Policy::Backoff => {
            "settings are written as `--set max=10s`, by their names in the configuration, \
             and go over those of `--preset`"
        }
        Policy::FailureQueue => {
            "settings are written as `--set max_size=5`, by their names in `[run]`"
        }
        Policy::Protection => {
            "settings are written as `--set pauses=30s,60s`, by their names in \
             `[pool.NAME.protection]`"
        }
        Policy::Poll => "settings are written as `--set max=15s`, by their names in `[poll]`",
        Policy::Hint | Policy::Classify => "policies `hint` and `classify` have no settings",
    }
}

fn policy(policy: Policy) -> replay::Policy {
    match policy {
        Policy::Gate => replay::Policy::Gate,
        Policy::Backoff => replay::Policy::Backoff,
        Policy::Hint => replay::Policy::Hint,
        Policy::Classify => replay::Policy::Classify,
        Policy::FailureQueue => replay::Policy::FailureQueue,
        Policy::Protection => replay::Policy::Protection,
        Policy::Poll => replay::Policy::Poll,
    }
}

/// Something to read events from.
struct Input {
    name: String,
    reader: Box<dyn BufRead>,
}

impl Input {
    fn stdin() -> Self {
        Self {
            name: "stdin".to_owned(),
            reader: Box::new(BufReader::with_capacity(BUFFER, io::stdin())),
        }
    }

    fn file(path: &Path) -> anyhow::Result<Self> {
        let name = format!("`{}`", path.display());
        let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
        if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
            bail!("cannot read {name}: it is a folder, expected a file of events");
        }
        Ok(Self {
            reader: Box::new(BufReader::with_capacity(BUFFER, file)),
            name,
        })
    }
}

/// Files are read in large steps, with as many writes as reads. A pipe gives what it has.
const BUFFER: usize = 64 << 10;

/// Opens all inputs, or says which cannot be opened.
fn open(files: &[PathBuf]) -> Result<Vec<Input>, Failure> {
    if files.is_empty() {
        return Ok(vec![Input::stdin()]);
    }
    let mut inputs = Vec::new();
    let mut errors = Vec::new();
    for path in files {
        if path.as_os_str() == "-" {
            inputs.push(Input::stdin());
            continue;
        }
        match Input::file(path) {
            Ok(input) => inputs.push(input),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() {
        return Ok(inputs);
    }
    Err(Failure {
        exit: Exit::Usage,
        errors,
        hint: Some("give files of JSON Lines, or `-` for stdin".into()),
    })
}

/// Bad input is for the person who wrote it to correct, anything else simply failed.
fn failure(error: Error) -> Failure {
    match &error {
        Error::Line { problem, .. } => {
            let hint = problem.hint();
            Failure::new(Exit::Usage, error).with_hint(hint)
        }
        Error::Read { .. } | Error::Write(_) => Failure::new(Exit::Failed, error),
    }
}
