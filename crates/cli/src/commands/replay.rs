//! `tidegate replay`: one policy over scripted events.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use clap::Args;
use sim::replay::{self, BaseOptions, Error, Policy, Replay, ReplayOptions};

use super::{Failure, problems, settings};
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
    #[arg(long, value_name = "NAME", value_parser = args::choice(POLICIES))]
    policy: Policy,

    /// Files of events; `-` or no file is stdin
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Setting of the policy, by its name in the configuration; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,

    /// Preset to start from (policy `backoff`): standard, aggressive,
    /// conservative, background or crawl; with --config also any `[backoff.NAME]`
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,

    /// Pool of --config whose protection is replayed (policy `protection`); not
    /// needed if the file has one pool
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,

    /// Add a field to every line that explains the decision
    #[arg(long)]
    explain: bool,

    /// Seed of the jitter
    #[arg(long, value_name = "N", value_parser = args::seed, allow_hyphen_values = true)]
    seed: Option<u64>,

    /// Remove the jitter
    #[arg(long, value_name = "JITTER", value_parser = args::choice([("none", "No jitter", ())]))]
    jitter: Option<()>,

    /// Settings file whose settings of the policy --set overrides [default: none]
    #[arg(long, value_name = "FILE", help_heading = args::GLOBAL)]
    pub(crate) config: Option<PathBuf>,
}

#[rustfmt::skip]
const POLICIES: [(&str, &str, Policy); 7] = [
    ("gate", "Gates by key: admit, wait until, or refuse", Policy::Gate),
    ("backoff", "One item over all its attempts: whether and when it is sent again", Policy::Backoff),
    ("hint", "What a response says about pace", Policy::Hint),
    ("classify", "The verdict on a response, and what decided it", Policy::Classify),
    ("failure-queue", "The gap between attempts, from a queue of recent failures", Policy::FailureQueue),
    ("protection", "The growing pauses of one endpoint of a pool", Policy::Protection),
    ("poll", "Following a job's status: when to ask next, when to stop", Policy::Poll),
];

const EXAMPLES: &str = r#"Examples:
  # which requests are admitted, and when
  tidegate replay --policy gate --set strategy=aimd events.jsonl

  # the same with the settings of a file, one of them changed
  tidegate replay --policy gate --config tidegate.toml --set max_rate=5 \
      events.jsonl

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
    let mut replay = start(args, output)?;
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

fn start(args: &ReplayArgs, output: &Output) -> Result<Box<dyn Replay>, Failure> {
    let options = ReplayOptions {
        explain: args.explain,
        seed: args.seed.unwrap_or_default(),
        jitter: args.jitter.is_none(),
        base: base(args, output)?,
    };
    let (mut errors, mut settings) = (Vec::new(), Vec::new());
    for setting in &args.settings {
        match args::key_value("--set", setting) {
            Ok(pair) => settings.push(pair),
            Err(error) => errors.push(error),
        }
    }
    match args.policy.start(settings, args.preset.as_deref(), options) {
        Ok(replay) if errors.is_empty() => return Ok(replay),
        Ok(_) => {}
        Err(problems) => errors.extend(problems.into_iter().map(Into::into)),
    }
    Err(Failure::usage(errors, settings_hint(args.policy)))
}

/// What `--config` says about the policy; without it nothing, wherever the command runs.
fn base(args: &ReplayArgs, output: &Output) -> Result<BaseOptions, Failure> {
    let policy = args.policy;
    let refused = |what: String| Err(Failure::usage(vec![anyhow!(what)], settings_hint(policy)));
    if args.pool.is_some() && (policy != Policy::Protection || args.config.is_none()) {
        return refused("`--pool` needs `--policy protection` and `--config`".to_owned());
    }
    let Some(path) = &args.config else {
        return Ok(BaseOptions::default());
    };
    if matches!(policy, Policy::Hint | Policy::Classify) {
        return refused(format!(
            "policy `{policy}` has no settings, but `--config` names a file"
        ));
    }
    let file = path.display().to_string();
    let policies = settings::load_policies(path).map_err(|problems| {
        let hint = "`tidegate check FILE` shows all problems of a file";
        problems::failure(Some(&file), problems, hint, output)
    })?;
    let mut base = policies.options;
    let pools = policies.protections;
    let names = || pools.keys().cloned().collect::<Vec<_>>().join(", ");
    match &args.pool {
        _ if policy != Policy::Protection => {}
        Some(name) => match pools.get(name) {
            Some(protection) => base.protection = protection.clone(),
            None => {
                return refused(format!(
                    "`--pool` is `{name}`, expected one of: {}",
                    names()
                ));
            }
        },
        None if pools.len() > 1 => {
            return refused(format!(
                "`{file}` has several pools, expected `--pool` with one of: {}",
                names()
            ));
        }
        None => base.protection = pools.into_values().next().unwrap_or_default(),
    }
    Ok(base)
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
    let hint = "give files of JSON Lines, or `-` for stdin";
    match errors.is_empty() {
        true => Ok(inputs),
        false => Err(Failure::usage(errors, hint)),
    }
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
