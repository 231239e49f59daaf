//! `tidegate replay`: one policy over scripted events.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use clap::{Args, ValueEnum};
use sim::replay::{self, Error, Replay, ReplayOptions};

use super::Failure;
use crate::args;
use crate::exit::Exit;
use crate::output::{Output, unless_closed};

/// Run one policy over scripted events in virtual time, a decision per line
///
/// Events are JSON Lines, read from the files in order as one stream, or from
/// stdin. Every line gets one line of output at once; `gate` prints extra lines
/// for callers that leave the waiting line. It stops at the first bad line.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReplayArgs {
    /// Policy to run
    #[arg(long, value_enum, value_name = "NAME")]
    policy: Policy,

    /// Files of events; `-` or no file is stdin
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Setting of the policy, by its name in the configuration; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,

    /// Preset to start from (policy `backoff`): standard, aggressive,
    /// conservative, background or crawl
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,

    /// Add a field to every line that explains the decision
    #[arg(long)]
    explain: bool,

    /// Seed of the jitter
    #[arg(long, value_name = "N", value_parser = args::seed, allow_hyphen_values = true)]
    seed: Option<u64>,

    /// Remove the jitter
    #[arg(long, value_enum, value_name = "JITTER")]
    jitter: Option<Jitter>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Policy {
    /// Gates by key: admit, wait until, or refuse
    Gate,
    /// One item over all its attempts: whether and when it is sent again
    Backoff,
    /// What a response says about pace
    Hint,
    /// The verdict on a response, and what decided it
    Classify,
    /// The gap between attempts, from a queue of recent failures
    FailureQueue,
    /// The growing pauses of one endpoint of a pool
    Protection,
    /// Following a job's status: when to ask next, when to stop
    Poll,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Jitter {
    /// No jitter
    None,
}

const EXAMPLES: &str = r#"Examples:
  # which requests are admitted, and when
  tidegate replay --policy gate --set strategy=aimd events.jsonl

  # one event at a time
  echo '{"at":0,"acquire":"api.example.com"}' | tidegate replay --policy gate

  # when a failed request is sent again
  echo '{"attempt":1,"status":503}' |
      tidegate replay --policy backoff --preset background

  # what a response says about pace
  echo '{"status":429,"headers":{"retry-after":"90"}}' |
      tidegate replay --policy hint

  # how long to wait after a failed download, and why
  echo '{"at":0,"text":"Read timed out."}' |
      tidegate replay --policy failure-queue --explain

  # an endpoint that is disabled at its third error
  tidegate replay --policy protection --set disable_after=3 attempts.jsonl

  # when to ask for a job's status next
  echo '{"at":0,"status":200,"job":"running","progress":12}' |
      tidegate replay --policy poll"#;

pub(super) fn run(args: &ReplayArgs, output: &Output) -> Result<(), Failure> {
    // Problems of the arguments are reported before the first event.
    let mut replay = start(args)?;
    let inputs = open(&args.files)?;
    let mut data = output.data();
    let mut lines = 0;
    for input in inputs {
        match replay::feed(&mut *replay, &input.name, input.reader, &mut data) {
            Ok(read) => lines += read,
            Err(Error::Write(error)) => return unless_closed(error),
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
    let options = ReplayOptions {
        explain: args.explain,
        seed: args.seed.unwrap_or_default(),
        jitter: args.jitter.is_none(),
    };
    match policy(args.policy).start(settings, args.preset.as_deref(), options) {
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
            "a setting is written as `--set max_rate=8`, by its name in the configuration"
        }
        Policy::Backoff => {
            "a setting is written as `--set max=10s`, by its name in the configuration, \
             and overrides that of `--preset`"
        }
        Policy::FailureQueue => {
            "a setting is written as `--set max_size=5`, by its name in `[run]`"
        }
        Policy::Protection => {
            "a setting is written as `--set pauses=30s,60s`, by its name in \
             `[pool.NAME.protection]`"
        }
        Policy::Poll => "a setting is written as `--set max=15s`, by its name in `[poll]`",
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

/// A file of events, or stdin.
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
            bail!("cannot read {name}: it is a directory, expected a file of events");
        }
        Ok(Self {
            reader: Box::new(BufReader::with_capacity(BUFFER, file)),
            name,
        })
    }
}

/// Large reads for files; a pipe returns what it has, so that its lines are not delayed.
const BUFFER: usize = 64 << 10;

/// Opens all inputs, or reports every one that cannot be opened.
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

/// A bad line is a usage error, anything else a failure.
fn failure(error: Error) -> Failure {
    match &error {
        Error::Line { problem, .. } => {
            let hint = problem.hint();
            Failure::new(Exit::Usage, error).with_hint(hint)
        }
        Error::Read { .. } | Error::Write(_) => Failure::new(Exit::Failed, error),
    }
}
