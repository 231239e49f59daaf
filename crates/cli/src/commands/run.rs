//! `tidegate run`: a command per item, shown while it runs and summed up at its end.

mod draw;
mod explain;
mod record;
mod screen;

use std::cell::RefCell;
use std::env;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::anyhow;
use app::run::rules::RuleSet;
use app::run::{
    CommandError, CommandLine, ItemFormat, ItemSource, Run, RunError, RunEvent, RunObserver,
    RunPlan, RunSummary, StopLevel, StopSender,
};
use app::settings::Flag;
use clap::Args;
use policy::setting;
use tokio::runtime;

use super::stopping::Signals;
use super::{Failure, guard, problems, settings};
use crate::args::{self, ConfigFile};
use crate::exit::Exit;
use crate::output::Output;

use self::screen::Screen;

/// Run a command per item, paced by recent failures
///
/// Runs COMMAND once per item, without a shell; every argument `{}` becomes the
/// item. The first starts at once, later ones a gap after the last end. Each
/// recent failure makes the gap longer, each success shorter. What may succeed
/// later is tried again at the end of the list.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, override_usage = USAGE)]
pub(crate) struct RunArgs {
    /// Items; without any and without `-i`, the lines of stdin
    #[arg(value_name = "ITEM")]
    items: Vec<String>,

    /// Program and arguments; `{}` stands for the item
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,

    /// File with an item per line; `-` is stdin
    #[arg(short, long = "input", value_name = "FILE")]
    input: Option<PathBuf>,

    /// Items end with a NUL byte, not with a line end
    #[arg(short = '0', long)]
    null: bool,

    /// Allow items that start with `-`; the command may read them as options
    #[arg(long)]
    allow_dash: bool,

    /// Commands that may run at once; they start one at a time all the same
    #[arg(short, long, value_name = "N", default_value = "1", value_parser = jobs, allow_hyphen_values = true)]
    jobs: usize,

    /// End an attempt that takes longer: SIGTERM, 5 s later SIGKILL
    #[arg(long, value_name = "DURATION", value_parser = args::duration, allow_hyphen_values = true)]
    timeout: Option<Duration>,

    /// Keep one gap per site; items are URLs
    #[arg(long)]
    per_host: bool,

    /// What an exit code and a text mean: a pack (yt-dlp, curl, wget, git, rclone)
    /// or a rules file [default: any exit code but 0 may succeed later]
    #[arg(long, value_name = "NAME|FILE", allow_hyphen_values = true)]
    rules: Option<String>,

    /// Show which of the rules matches a text that a command prints, and which
    /// is next; run nothing
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["items", "input", "command"], allow_hyphen_values = true)]
    explain: Option<String>,

    /// With `--explain`: the exit code; without it, rules match by text alone
    #[arg(long, value_name = "CODE", value_parser = exit_code, allow_hyphen_values = true)]
    exit_code: Option<u8>,

    /// Record what is finished in this file, and go on where it stops: finished
    /// items do not run again
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,

    /// Write what commands print to this folder, a file per item
    #[arg(long, value_name = "DIR")]
    logs: Option<PathBuf>,

    /// Gap without recent failures; `0s` is no gap [default: 30s]
    #[arg(long, value_name = "DURATION", help_heading = PACE, allow_hyphen_values = true)]
    base: Option<String>,

    /// Failures that are remembered, and so the longest gap; 10 to 20 is
    /// recommended [default: 100]
    #[arg(long, value_name = "N", help_heading = PACE, allow_hyphen_values = true)]
    max_size: Option<String>,

    /// Age at which a failure does not count any more; `0s` is never [default:
    /// 300s]
    #[arg(long, value_name = "DURATION", help_heading = PACE, allow_hyphen_values = true)]
    max_age: Option<String>,

    /// How the gap grows: `linear` or `double` [default: linear]
    #[arg(long, value_name = "HOW", help_heading = PACE, allow_hyphen_values = true)]
    growth: Option<String>,

    /// Random time that is added to every gap, at most [default: 0s]
    #[arg(long, value_name = "DURATION", help_heading = PACE, allow_hyphen_values = true)]
    variance: Option<String>,

    /// How often an item is tried, the first time included [default: 3]
    #[arg(long, value_name = "N", help_heading = PACE, allow_hyphen_values = true)]
    attempts: Option<String>,

    /// End after this time without any success, or `none` [default: none]
    #[arg(long, value_name = "DURATION", help_heading = PACE, allow_hyphen_values = true)]
    give_up_after: Option<String>,

    #[command(flatten)]
    pub(crate) file: ConfigFile,
}

const USAGE: &str = "tidegate run [OPTIONS] [ITEM]... -- COMMAND... {}";

const PACE: &str = "Pace";

const EXAMPLES: &str = "\
Settings of `[run]` in the settings file apply unless a flag says otherwise. The
first Ctrl-C finishes what is in flight, the second quits at once.

Exit codes: 0 done, 1 something failed, 2 usage, 75 gave up, 130 interrupted.

Examples:
  # download a list of videos
  tidegate run -i urls.txt --max-size 20 -- yt-dlp {}

  # two items, with another gap
  tidegate run --base 5s https://a.example/1 https://a.example/2 -- curl -fO {}

  # items from another program, four at a time, one gap per site
  cat urls.txt | tidegate run -j 4 --per-host -- wget -q {}

  # may be interrupted and started again
  tidegate run -i urls.txt --journal urls.journal -- yt-dlp {}";

fn jobs(text: &str) -> Result<usize, String> {
    setting::whole(text, 1, 1000)
}

fn exit_code(text: &str) -> Result<u8, String> {
    setting::whole(text, 0, u8::MAX)
}

pub(super) fn run(args: &RunArgs, output: &Output) -> Result<(), Failure> {
    if let Some(text) = &args.explain {
        return explain::print(&rules(args, output)?, args.exit_code, text, output);
    }
    if args.exit_code.is_some() {
        let error = anyhow!("`--exit-code` needs `--explain TEXT`");
        let hint = "`tidegate run --help` shows what it takes";
        return Err(Failure::usage(vec![error], hint));
    }
    let plan = plan(args, output)?;
    let pace = plan.settings.clone();
    let run = Run::prepare(plan).map_err(failure)?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(cannot_start)?;
    let (stop, stopped) = app::run::stop();
    let screen = RefCell::new(Screen::new(output, pace));
    let ended = runtime.block_on(async {
        let signals = Signals::new().map_err(cannot_start)?;
        let mut observer = Shown(&screen);
        tokio::select! {
            ended = run.execute(stopped, &mut observer) => ended.map_err(failure),
            never = forward(signals, &stop, &screen) => never,
            never = redraw(&screen) => never,
        }
    });
    // Programs in flight are killed when the runtime ends.
    drop(runtime);
    let mut summary = ended?;
    screen.into_inner().close(&mut summary)?;
    result(&summary)
}

fn result(summary: &RunSummary) -> Result<(), Failure> {
    match summary {
        RunSummary {
            is_interrupted: true,
            ..
        } => Err(Failure::silent(Exit::Interrupted)),
        RunSummary {
            has_given_up: true, ..
        } => Err(Failure::silent(Exit::GaveUp)),
        RunSummary { failed: 1.., .. } => Err(Failure::silent(Exit::Failed)),
        _ => Ok(()),
    }
}

fn plan(args: &RunArgs, output: &Output) -> Result<RunPlan, Failure> {
    let file = args.file.config.as_deref();
    let settings = settings::load_run(file, flags(args)).map_err(|problems| {
        let hint = "`tidegate run --help` shows what it takes";
        problems::failure(None, problems, hint, output)
    })?;
    let command = CommandLine::new(args.command.clone()).map_err(bad_command)?;
    Ok(RunPlan {
        command,
        sources: sources(args)?,
        format: ItemFormat {
            is_null_separated: args.null,
            allows_dash: args.allow_dash,
            is_per_host: args.per_host,
        },
        jobs: args.jobs,
        settings,
        rules: rules(args, output)?,
        timeout: args.timeout,
        journal: args.journal.clone(),
        logs: args.logs.clone(),
        guard: env::current_exe().ok().map(|program| {
            let mut command = Command::new(program);
            command.arg(guard::NAME);
            command
        }),
    })
}

fn rules(args: &RunArgs, output: &Output) -> Result<RuleSet, Failure> {
    let Some(name) = args.rules.as_deref() else {
        return Ok(RuleSet::default());
    };
    RuleSet::load(name).map_err(|problems| {
        let hint = "`tidegate run --help` lists the packs";
        problems::failure(None, problems, hint, output)
    })
}

/// Items in the order: those of the command line, then those of the file.
fn sources(args: &RunArgs) -> Result<Vec<ItemSource>, Failure> {
    let mut sources = Vec::new();
    if !args.items.is_empty() {
        sources.push(ItemSource::Texts(args.items.clone()));
    }
    match &args.input {
        Some(path) if path.as_os_str() != "-" => sources.push(ItemSource::File(path.clone())),
        None if !args.items.is_empty() => {}
        None if io::stdin().is_terminal() => {
            let error =
                anyhow!("there are no items, expected some before `--`, in a file or on stdin");
            let hint = "`tidegate run -i FILE -- COMMAND {}` reads a file";
            return Err(Failure::new(Exit::Usage, error).with_hint(hint));
        }
        _ => sources.push(ItemSource::Stream(Box::new(io::stdin()))),
    }
    Ok(sources)
}

fn flags(args: &RunArgs) -> Vec<Flag> {
    let flags = [
        ("base", &args.base),
        ("max_size", &args.max_size),
        ("max_age", &args.max_age),
        ("growth", &args.growth),
        ("variance", &args.variance),
        ("attempts", &args.attempts),
        ("give_up_after", &args.give_up_after),
    ];
    let flags = flags.into_iter().filter_map(|(name, value)| {
        Some(Flag {
            name: format!("--{}", name.replace('_', "-")),
            path: format!("run.{name}"),
            value: value.clone()?,
        })
    });
    flags.collect()
}

fn bad_command(error: CommandError) -> Failure {
    let hint = match error {
        CommandError::Missing | CommandError::ProgramIsItem => {
            "for example `tidegate run -i urls.txt -- curl -fO {}`"
        }
        CommandError::NoPlaceholder => "add `{}` where the item goes: `-- curl -fO {}`",
        CommandError::PartOfArgument(_) => "many programs take it apart: `--url {}` for `--url={}`",
        CommandError::NotFound(_) | CommandError::NotExecutable(_) => {
            "the command is run without a shell: it is a program of PATH or a path"
        }
    };
    Failure::new(Exit::Usage, error).with_hint(hint)
}

fn failure(error: RunError) -> Failure {
    let exit = match error.is_usage() {
        true => Exit::Usage,
        false => Exit::Failed,
    };
    match error {
        RunError::BadItems(items) => {
            let errors = items.iter().map(|item| anyhow!("{item}")).collect();
            Failure::usage(errors, "nothing was run")
        }
        error @ (RunError::OtherList { .. } | RunError::OtherJournal { .. }) => {
            let hint = "a journal belongs to one command and one list; choose another file";
            Failure::new(exit, error).with_hint(hint)
        }
        error => Failure::new(exit, error),
    }
}

fn cannot_start(error: io::Error) -> Failure {
    let error = anyhow::Error::new(error).context("cannot start");
    Failure::new(Exit::Failed, error)
}

/// The first signal finishes what is in flight, the second ends it.
async fn forward(
    mut signals: Signals,
    stop: &StopSender,
    screen: &RefCell<Screen<'_>>,
) -> Result<RunSummary, Failure> {
    for level in [StopLevel::Finish, StopLevel::Quit] {
        signals.next().await;
        screen.borrow_mut().stopping(level);
        // The receiver is gone only when the run has ended.
        _ = stop.send(level);
    }
    std::future::pending().await
}

async fn redraw(screen: &RefCell<Screen<'_>>) -> Result<RunSummary, Failure> {
    let Some(interval) = screen.borrow().interval() else {
        return std::future::pending().await;
    };
    let mut ticks = tokio::time::interval(interval);
    // A process that was suspended shows one picture afterwards, not all it missed.
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        screen.borrow_mut().draw();
    }
}

/// The screen as the observer of a run.
struct Shown<'s, 'o>(&'s RefCell<Screen<'o>>);

impl RunObserver for Shown<'_, '_> {
    fn event(&mut self, event: &RunEvent<'_>) {
        self.0.borrow_mut().event(event);
    }
}
