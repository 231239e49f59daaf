//! `tidegate run`: one command per item, paced by recent failures.
//!
//! Items are read as a stream. Each is one attempt after another until it is done, is rejected, or
//! has used its attempts up; an item that may succeed later moves to the end of the list. When an
//! attempt starts is decided by [`tidegate::pace`], what its end means by [`rules`]; `engine` only
//! connects them to processes, the journal and an observer.
//!
//! Bounds: items that wait for another attempt and items that failed are in memory up to a number
//! and in a temporary file beyond it; of a program's output the last [`MAX_TAIL`] bytes are judged;
//! at most [`MAX_SITES`] sites have a gap of their own.

mod engine;
mod event;
mod guard;
mod item;
mod journal;
mod logs;
mod output;
mod process;
pub mod rules;
mod spill;

use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use policy::failure_queue::FailureQueueSettings;
use tidegate::Clock;
use tokio::sync::watch;

pub use self::engine::MAX_SITES;
pub use self::event::{FailReason, FailedItem, ItemResult, RunEvent, RunObserver, RunSummary};
pub use self::guard::guard_processes;
pub use self::item::{BadItem, Item, ItemFormat, ItemSource};
pub use self::output::{LiveOutput, MAX_TAIL};
pub use self::process::{CommandError, CommandLine};

use self::engine::Engine;
use self::guard::Guard;
use self::item::Input;
use self::journal::{Journal, Past};
use self::logs::Logs;
use self::process::Processes;
use self::rules::RuleSet;

/// What to run.
#[derive(Debug)]
pub struct RunPlan {
    /// The command, with a placeholder for the item.
    pub command: CommandLine,
    /// Where items come from, in this order.
    pub sources: Vec<ItemSource>,
    /// What an item may be.
    pub format: ItemFormat,
    /// How many attempts may be in flight; at least one.
    pub jobs: usize,
    /// Gaps, attempts and when to give up.
    pub settings: FailureQueueSettings,
    /// What the end of an attempt means.
    pub rules: RuleSet,
    /// How long an attempt may take.
    pub timeout: Option<Duration>,
    /// The file that records what is finished, and continues an earlier run.
    pub journal: Option<PathBuf>,
    /// The folder for what programs print.
    pub logs: Option<PathBuf>,
    /// A command that calls [`guard_processes`] on its stdin, to end attempts when this process is
    /// killed.
    pub guard: Option<Command>,
}

/// A run that was checked and can start.
#[derive(Debug)]
pub struct Run {
    engine: Engine<Processes>,
}

impl Run {
    /// Checks everything that can be checked before the first attempt.
    ///
    /// # Errors
    ///
    /// Nothing was started.
    pub fn prepare(plan: RunPlan) -> Result<Self, RunError> {
        let clock = Clock::system();
        let (journal, past) = match &plan.journal {
            Some(path) => {
                let (journal, past) = Journal::open(
                    path,
                    plan.command.words().collect(),
                    plan.rules.name(),
                    &plan.settings,
                    plan.format.is_per_host,
                    clock.wall(),
                )?;
                (Some(journal), past)
            }
            None => (None, Past::default()),
        };
        let past = Arc::new(past);
        let input = Input::open(plan.sources, plan.format, &past, journal.is_some())?;
        let logs = plan
            .logs
            .map(Logs::open)
            .transpose()
            .map_err(RunError::Logs)?;
        // A run without a helper is better than none.
        let guard = plan.guard.and_then(|command| Guard::start(command).ok());
        let processes = Processes::new(plan.command, plan.timeout, logs, guard);
        let engine = Engine::new(
            processes,
            input,
            clock,
            plan.jobs,
            plan.settings,
            plan.rules,
        );
        let engine = engine.with_format(plan.format).continuing(journal, past)?;
        Ok(Self { engine })
    }

    /// Runs everything, or until `stop` changes. Must be called in a tokio runtime with IO and time.
    ///
    /// # Errors
    ///
    /// What made it impossible to go on. Attempts in flight were finished.
    pub async fn execute(
        self,
        stop: Stop,
        observer: &mut dyn RunObserver,
    ) -> Result<RunSummary, RunError> {
        self.engine.run(stop, observer).await
    }
}

/// Why a run did not start, or did not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The list cannot be read.
    #[error("cannot read the items of `{name}`")]
    Items {
        /// The file, or `stdin`.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// Items of a list that was read before the start cannot be used.
    #[error("{}", BadItem::list(.0))]
    BadItems(Vec<BadItem>),
    /// The journal names items that the list does not have.
    #[error("the journal belongs to another list: {missing} of its items are not in this one")]
    OtherList {
        /// How many.
        missing: usize,
    },
    /// The journal cannot be read or written.
    #[error("cannot use the journal `{path}`")]
    Journal {
        /// Its path.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// Another run uses the journal.
    #[error("another run uses the journal `{0}`")]
    JournalInUse(String),
    /// A line of the journal cannot be read.
    #[error("line {line} of `{path}` is not of a journal, expected one of an earlier run")]
    JournalDamaged {
        /// Its path.
        path: String,
        /// The line, counted from 1.
        line: usize,
    },
    /// The journal is of another run.
    #[error("the journal `{path}` is of another {what}: `{theirs}`, not `{ours}`")]
    OtherJournal {
        /// Its path.
        path: String,
        /// What differs: `command`, `rules` or `version`.
        what: &'static str,
        /// What the journal says.
        theirs: String,
        /// What this run has.
        ours: String,
    },
    /// The folder for logs cannot be made.
    #[error("cannot make the folder for logs")]
    Logs(#[source] io::Error),
    /// An end cannot be written to the journal.
    #[error("cannot write to the journal")]
    Record(#[source] io::Error),
    /// The temporary file for waiting items cannot be used.
    #[error("cannot write waiting items to a temporary file")]
    Spill(#[source] io::Error),
}

impl RunError {
    /// Is the input wrong, so that trying again does not help?
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Items { .. }
            | Self::BadItems(_)
            | Self::OtherList { .. }
            | Self::Journal { .. }
            | Self::JournalInUse(_)
            | Self::JournalDamaged { .. }
            | Self::OtherJournal { .. }
            | Self::Logs(_) => true,
            Self::Record(_) | Self::Spill(_) => false,
        }
    }
}

/// How a run is asked to stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopLevel {
    /// It goes on.
    #[default]
    Run,
    /// Nothing starts any more; attempts in flight finish.
    Finish,
    /// Attempts in flight are killed.
    Quit,
}

/// The run's side of [`StopSender`].
pub type Stop = watch::Receiver<StopLevel>;

/// Asks a run to stop.
pub type StopSender = watch::Sender<StopLevel>;

/// A pair of both.
pub fn stop() -> (StopSender, Stop) {
    watch::channel(StopLevel::Run)
}
