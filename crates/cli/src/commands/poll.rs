//! `tidegate poll`: follows the status of a job.

mod exec;
mod responses;
mod screen;
mod summary;

use std::cell::RefCell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, anyhow};
use app::poll::{
    self, JsonPointer, PollEnd, PollProgress, PollSummary, PollTarget, Poller, StatusReader,
};
use app::settings::{Flag, Process};
use app::tls::Transport;
use clap::Args;
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;

use super::server::block_on;
use super::settings;
use super::stopping::Signals;
use super::{Failure, LogFormat, problems};
use crate::args::{self, ConfigFile};
use crate::exit::Exit;
use crate::output::Output;

use self::exec::Program;
use self::responses::Responses;
use self::screen::Screen;

/// Follow the status of a job until it ends
///
/// Asks for the status at intervals that follow the job's progress, slows down
/// when the server answers 429, and stops when the job has ended, when there is
/// no such job, after too many other errors, or without a success for too long.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PollArgs {
    /// URL that returns the job's status as JSON
    #[arg(value_name = "URL")]
    url: String,

    /// Where the status is in the response: a JSON pointer
    #[arg(
        long,
        value_name = "POINTER",
        default_value = "/status",
        allow_hyphen_values = true
    )]
    status: JsonPointer,

    /// Where the progress in per cent is; it may be missing
    #[arg(
        long,
        value_name = "POINTER",
        default_value = "/progress",
        allow_hyphen_values = true
    )]
    progress: JsonPointer,

    /// Status of a job that is done; several with commas, or repeat it
    #[arg(
        long,
        value_name = "WORD",
        default_value = "done",
        value_delimiter = ','
    )]
    done: Vec<String>,

    /// Status of a job that failed or was cancelled
    #[arg(
        long,
        value_name = "WORD",
        default_value = "error,cancelled",
        value_delimiter = ','
    )]
    failed: Vec<String>,

    /// Header of every request, `NAME: VALUE`; a secret is env:NAME or file:PATH
    #[arg(short = 'H', long = "header", value_name = "HEADER")]
    headers: Vec<String>,

    /// Stop after this time, with exit code 75
    #[arg(long, value_name = "DURATION", value_parser = args::duration, allow_hyphen_values = true)]
    deadline: Option<Duration>,

    /// Write every response as a line of JSON; `-` is stdout
    #[arg(long, value_name = "FILE")]
    jsonl: Option<PathBuf>,

    /// Run this program when the job is done, with the last response on its stdin;
    /// its arguments come after `--`
    #[arg(long, value_name = "PROGRAM")]
    exec: Option<OsString>,

    /// Arguments of the program
    #[arg(value_name = "ARG", last = true, requires = "exec")]
    arguments: Vec<OsString>,

    /// Format of the log on stderr
    #[arg(long, value_name = "FORMAT", default_value = "human")]
    log: LogFormat,

    #[command(flatten)]
    intervals: Intervals,

    #[command(flatten)]
    pub(crate) file: ConfigFile,
}

/// The settings of `[poll]`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Intervals")]
struct Intervals {
    /// Between two requests while progress is below 30 [default: 3s]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    early: Option<String>,

    /// While it is below 70 [default: 2.5s]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    middle: Option<String>,

    /// From 70 on [default: 2s]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    late: Option<String>,

    /// While nothing is known of the job [default: 2s]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    first: Option<String>,

    /// After the first 429; doubles with each further one [default: 2s]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    base: Option<String>,

    /// Longest wait after a 429, unless the server names a longer one [default: 15s]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    max: Option<String>,

    /// Give up without any success for this time [default: 300s]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    give_up_after: Option<String>,

    /// Retries of other errors in a row [default: 3]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    other_retries: Option<String>,
}

const EXAMPLES: &str = "\
The last response and a summary are printed with --json. Exit codes: 0 done,
1 failed or not found, or the program of --exec failed, 2 usage, or the first
response has no status, 69 refused by the breaker, 75 gave up or out of time.

Examples:
  tidegate poll https://api.example.com/jobs/7
  tidegate poll https://api.example.com/jobs/7 \\
    --status /job/state --done succeeded --failed failed,canceled
  tidegate poll https://api.example.com/jobs/7 \\
    -H 'authorization: Bearer env:TOKEN' --deadline 10m
  tidegate poll https://api.example.com/jobs/7 --exec jq -- -r .result";

pub(super) fn run(args: &PollArgs, output: &Output) -> Result<(), Failure> {
    let (target, program) = read(args)?;
    let is_stdout_used = args.jsonl.as_deref().is_some_and(responses::is_stdout);
    if is_stdout_used && output.is_json() {
        let error = anyhow!("`--jsonl -` and `--json` both write to stdout, expected one of them");
        return Err(Failure::usage(
            vec![error],
            "`--jsonl FILE` writes to a file",
        ));
    }
    let config = args.file.config.as_deref();
    let flags = args.intervals.flags();
    let (poller, screen) = prepare(target, config, flags, args.log, output)?;
    let jsonl = args.jsonl.as_deref();
    let responses = jsonl.map(Responses::open).transpose()?;
    block_on(async {
        let mut signals = signals()?;
        let summary = follow(&poller, screen, responses, &mut signals, output).await?;
        let exec_status = match (&program, &summary.end) {
            (Some(program), PollEnd::Done) => Some(program.run(&summary, &mut signals).await?),
            _ => None,
        };
        let is_stdout_used = is_stdout_used || program.is_some();
        let deadline = args.deadline;
        summary::print(deadline, &summary, exec_status, is_stdout_used, output)
    })
}

/// Follows what another command names, by the settings of `[poll]`.
pub(super) fn follow_target(
    target: PollTarget,
    config: Option<&Path>,
    output: &Output,
) -> Result<(), Failure> {
    let (poller, screen) = prepare(target, config, Vec::new(), LogFormat::Human, output)?;
    block_on(async {
        let mut signals = signals()?;
        let summary = follow(&poller, screen, None, &mut signals, output).await?;
        summary::print(None, &summary, None, false, output)
    })
}

/// The poller for a target, and what shows its progress.
fn prepare(
    target: PollTarget,
    config: Option<&Path>,
    flags: Vec<Flag>,
    format: LogFormat,
    output: &Output,
) -> Result<(Poller, Screen), Failure> {
    let settings = settings::load_sections(config, flags, SECTIONS);
    let settings = settings.map_err(|problems| {
        let hint = "`tidegate config default` prints every setting with its default";
        problems::failure(None, problems, hint, output)
    })?;
    let mut logs = output.logs(format)?;
    let screen = Screen::new(matches!(format, LogFormat::Json), output);
    if let Some(lines) = screen.lines() {
        logs.sink = Box::new(lines);
    }
    let poller = Poller::new(settings, target, logs)
        .map_err(|error| Failure::usage(vec![anyhow!("`URL`: {error}")], HELP))?;
    Ok((poller, screen))
}

fn signals() -> Result<Signals, Failure> {
    Signals::new()
        .context("cannot wait for signals")
        .map_err(|error| Failure::new(Exit::Failed, error))
}

const HELP: &str = "`tidegate poll --help` shows what it takes";

/// The sections that poll depends on.
const SECTIONS: &[&str] = &["gate", "network", "http", "retry_budget", "poll"];

/// Reads what was typed, and reports everything that is wrong with it.
fn read(args: &PollArgs) -> Result<(PollTarget, Option<Program>), Failure> {
    let mut errors = Vec::new();
    let url = poll::status_url(&args.url).map_err(|(shown, expected)| {
        errors.push(anyhow!("`URL` is `{shown}`, expected {expected}"))
    });
    let (headers, wrong) = poll::headers(&args.headers, &Process);
    let wrong = wrong.iter().map(|error| anyhow!("`--header`: {error}"));
    errors.extend(wrong);
    for (flag, words) in [("--done", &args.done), ("--failed", &args.failed)] {
        if words.iter().any(|word| word.trim().is_empty()) {
            errors.push(anyhow!(
                "`{flag}` has an empty word, expected words such as `done`"
            ));
        }
    }
    let both = args
        .done
        .iter()
        .find(|done| args.failed.iter().any(|failed| failed == *done));
    if let Some(word) = both {
        errors.push(anyhow!(
            "`{word}` is in `--done` and in `--failed`, expected in one of them"
        ));
    }
    let program = args
        .exec
        .as_ref()
        .map(|name| Program::find(name, &args.arguments));
    let program = program.transpose().map_err(|error| errors.push(error));
    match (url, program) {
        (Ok(url), Ok(program)) if errors.is_empty() => {
            let target = PollTarget {
                url,
                headers,
                transport: Transport::default(),
                reader: StatusReader {
                    status: args.status.clone(),
                    progress: args.progress.clone(),
                    done: args.done.clone(),
                    failed: args.failed.clone(),
                },
                deadline: args.deadline,
            };
            Ok((target, program))
        }
        _ => Err(Failure::usage(errors, HELP)),
    }
}

impl Intervals {
    fn flags(&self) -> Vec<Flag> {
        let flags = [
            ("early", &self.early),
            ("middle", &self.middle),
            ("late", &self.late),
            ("first", &self.first),
            ("base", &self.base),
            ("max", &self.max),
            ("give_up_after", &self.give_up_after),
            ("other_retries", &self.other_retries),
        ];
        let given = flags
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.clone()?)));
        given
            .map(|(name, value)| Flag {
                name: format!("--{}", name.replace('_', "-")),
                path: format!("poll.{name}"),
                value,
            })
            .collect()
    }
}

/// Polls to the end, and shows the progress. After the first signal the request in flight is
/// finished; the second ends it at once.
async fn follow(
    poller: &Poller,
    screen: Screen,
    responses: Option<Responses>,
    signals: &mut Signals,
    output: &Output,
) -> Result<PollSummary, Failure> {
    let (screen, responses) = (RefCell::new(screen), RefCell::new(responses));
    let stop = Notify::new();
    let observe = |progress: PollProgress<'_>| {
        if let Some(responses) = &mut *responses.borrow_mut()
            && !responses.write(&progress, output)
        {
            stop.notify_one();
        }
        screen.borrow_mut().update(&progress, output);
    };
    screen.borrow_mut().draw();
    let mut polling = pin!(poller.run(observe, stop.notified()));
    let mut ticks = tokio::time::interval(REDRAW);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_stopping = false;
    let summary = loop {
        tokio::select! {
            summary = &mut polling => break Some(summary),
            _ = ticks.tick() => screen.borrow_mut().draw(),
            _ = signals.next() => match is_stopping {
                true => break None,
                false => {
                    is_stopping = true;
                    stop.notify_one();
                }
            },
        }
    };
    screen.borrow_mut().clear();
    if let Some(error) = responses
        .borrow_mut()
        .as_mut()
        .and_then(Responses::take_error)
    {
        return Err(error);
    }
    summary.ok_or_else(|| Failure::silent(Exit::Interrupted))
}

/// Countdowns are in whole seconds.
const REDRAW: Duration = Duration::from_millis(250);
