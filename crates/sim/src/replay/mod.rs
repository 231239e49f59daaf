//! Runs one policy over scripted events in virtual time: a line in, its decision out.
//!
//! Events are streamed as JSON Lines: memory holds the policy's state and one line, and all output
//! is written before the next read that might block. A person typing events, or a program connected
//! by two pipes, gets each decision before sending the next line.
//!
//! A bad line ends the replay. Skipping it would renumber everything after it.

mod at;
mod backoff;
mod event;
mod explain;
mod failure_queue;
mod gate;
mod gates;
mod lines;
mod object;
mod poll;
mod problem;
mod protection;
mod response;
mod rfc3339;
mod waiters;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufRead, Write};
use std::iter;

use policy::backoff::BackoffOptions;
use policy::failure_queue::FailureQueueOptions;
use policy::gate::GateOptions;
use policy::ladder::LadderOptions;
use policy::poll::PollOptions;
use policy::preset::UnknownPreset;
use policy::setting::{Options, SettingError, SettingErrors};

use at::Timeline;
use lines::{Line, Lines};
pub use problem::Problem;

/// The policies that can be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Gates by key: admit, wait until, refuse.
    Gate,
    /// One item over all its attempts: whether and when it is resent.
    Backoff,
    /// The hint of a response.
    Hint,
    /// The verdict on a response.
    Classify,
    /// The gap between attempts, by recent failures.
    FailureQueue,
    /// The pauses of one endpoint.
    Protection,
    /// The polling of a job.
    Poll,
}

policy::words! {
    pub Policy {
        Gate = "gate",
        Backoff = "backoff",
        Hint = "hint",
        Classify = "classify",
        FailureQueue = "failure-queue",
        Protection = "protection",
        Poll = "poll",
    }
}

/// Options of a replay besides the policy's settings.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayOptions {
    /// Add an explanation as the last field of every line.
    pub explain: bool,
    /// The seed of jitter.
    pub seed: u64,
    /// Whether there is jitter.
    pub jitter: bool,
    /// The settings that those given by name override.
    pub base: BaseOptions,
}

/// The settings of policies from a settings file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BaseOptions {
    /// `[gate]`.
    pub gate: GateOptions,
    /// `[backoff.NAME]` by name.
    pub backoffs: BTreeMap<String, BackoffOptions>,
    /// `[run]`.
    pub run: FailureQueueOptions,
    /// `[poll]`.
    pub poll: PollOptions,
    /// `[pool.NAME.protection]` of one pool.
    pub protection: LadderOptions,
}

impl Default for ReplayOptions {
    /// With jitter from seed 0, without explanations.
    fn default() -> Self {
        Self {
            explain: false,
            seed: 0,
            jitter: true,
            base: BaseOptions::default(),
        }
    }
}

impl Policy {
    /// Starts this policy with `settings`, pairs of name and value as written by a person, on top
    /// of those of `options` and, if the policy has presets, of `preset`.
    ///
    /// # Errors
    ///
    /// All problems with the settings.
    pub fn start<'s>(
        self,
        settings: impl IntoIterator<Item = (&'s str, &'s str)>,
        preset: Option<&str>,
        options: ReplayOptions,
    ) -> Result<Box<dyn Replay>, Vec<SettingProblem>> {
        let unwanted = preset.filter(|_| self != Self::Backoff);
        let unwanted = unwanted.map(|_| SettingProblem::HasNoPresets { policy: self });
        match (unwanted, self.start_with(settings, preset, options)) {
            (None, started) => started,
            (Some(problem), Ok(_)) => Err(vec![problem]),
            (Some(problem), Err(problems)) => Err(iter::once(problem).chain(problems).collect()),
        }
    }

    fn start_with<'s>(
        self,
        settings: impl IntoIterator<Item = (&'s str, &'s str)>,
        preset: Option<&str>,
        options: ReplayOptions,
    ) -> Result<Box<dyn Replay>, Vec<SettingProblem>> {
        let explain = options.explain;
        let base = &options.base;
        Ok(match self {
            Self::Gate => {
                let settings = built(base.gate.clone(), settings, GateOptions::build)?;
                Box::new(gate::GateReplay::new(settings, explain))
            }
            Self::Backoff => {
                let settings = backoff::settings(&base.backoffs, settings, preset)?;
                Box::new(backoff::BackoffReplay::new(settings, &options))
            }
            Self::Hint => {
                self.has_none(settings)?;
                let timeline = Timeline::default();
                Box::new(response::HintReplay { timeline, explain })
            }
            Self::Classify => {
                self.has_none(settings)?;
                let timeline = Timeline::default();
                Box::new(response::ClassifyReplay { timeline, explain })
            }
            Self::FailureQueue => {
                let settings = built(base.run.clone(), settings, FailureQueueOptions::build)?;
                Box::new(failure_queue::FailureQueueReplay::new(settings, &options))
            }
            Self::Protection => {
                // A replay scripts its own errors: none of them is a gate's probing unless set.
                let mut base = base.protection.clone();
                base.probing_after.get_or_insert(0);
                let settings = built(base, settings, LadderOptions::build)?;
                Box::new(protection::ProtectionReplay::new(settings, explain))
            }
            Self::Poll => {
                let settings = built(base.poll.clone(), settings, PollOptions::build)?;
                Box::new(poll::PollReplay::new(settings, explain))
            }
        })
    }

    fn has_none<'s>(
        self,
        settings: impl IntoIterator<Item = (&'s str, &'s str)>,
    ) -> Result<(), Vec<SettingProblem>> {
        let problems = settings
            .into_iter()
            .map(|(name, _)| SettingProblem::HasNone {
                name: name.to_owned(),
                policy: self,
            });
        let problems: Vec<_> = problems.collect();
        match problems.is_empty() {
            true => Ok(()),
            false => Err(problems),
        }
    }
}

/// Builds a policy's settings from `options` and the names and values that override them. Reports
/// all problems together.
fn built<'s, O: Options, S>(
    mut options: O,
    given: impl IntoIterator<Item = (&'s str, &'s str)>,
    build: impl FnOnce(O) -> Result<S, SettingErrors>,
) -> Result<S, Vec<SettingProblem>> {
    let mut problems: Vec<_> = given
        .into_iter()
        .filter_map(|(name, value)| options.set_text(name, value).err())
        .flatten()
        .collect();
    match build(options) {
        Ok(settings) if problems.is_empty() => return Ok(settings),
        Ok(_) => {}
        Err(more) => problems.extend(more),
    }
    Err(problems.into_iter().map(SettingProblem::from).collect())
}

/// A running replay of a policy.
pub trait Replay: fmt::Debug {
    /// Processes the event in `line` (without its line ending) and appends its lines of output.
    ///
    /// # Errors
    ///
    /// What is wrong with the line. Output appended before it stays valid; the replay ends.
    fn line(&mut self, line: &str, out: &mut Vec<u8>) -> Result<(), Problem>;
}

/// Feeds every line of `input` to `replay` and writes the output to `output`. `name` is the input's
/// name in messages. Returns the number of lines read.
///
/// Inputs fed one after another to the same `replay` are one stream of events; only line numbers
/// restart, because they are for finding a line in an editor. `output` is flushed before every read
/// that might block, and at the end, even after a bad line.
///
/// # Errors
///
/// At the first bad line, and when reading or writing fails.
pub fn feed(
    replay: &mut dyn Replay,
    name: &str,
    input: impl BufRead,
    mut output: impl Write,
) -> Result<u64, Error> {
    let mut lines = Lines::new(input);
    let mut answer = Vec::new();
    loop {
        if lines.may_wait() {
            output.flush().map_err(Error::Write)?;
        }
        let line = lines.advance().map_err(|error| Error::Read {
            name: name.to_owned(),
            error,
        })?;
        let taken = match line {
            Line::End => break,
            Line::Partial => continue,
            Line::Whole(bytes) => take(replay, bytes, &mut answer),
            Line::TooLong => Err(lines::too_long()),
        };
        output.write_all(&answer).map_err(Error::Write)?;
        answer.clear();
        if let Err(problem) = taken {
            output.flush().map_err(Error::Write)?;
            return Err(Error::Line {
                name: name.to_owned(),
                number: lines.number(),
                problem,
            });
        }
    }
    output.flush().map_err(Error::Write)?;
    Ok(lines.number())
}

fn take(replay: &mut dyn Replay, bytes: &[u8], answer: &mut Vec<u8>) -> Result<(), Problem> {
    replay.line(lines::text(bytes)?, answer)
}

/// Why a replay ended early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A line is not an event of this policy, or not one that is possible now.
    #[error("line {number} of {name}: {problem}")]
    Line {
        /// The name of the input.
        name: String,
        /// The line's number in this input, counted from 1.
        number: u64,
        /// What is wrong with it.
        problem: Problem,
    },
    /// Reading failed.
    #[error("cannot read {name}")]
    Read {
        /// The name of the input.
        name: String,
        /// The error of the operating system.
        #[source]
        error: io::Error,
    },
    /// The output cannot be written: its reader may have exited.
    #[error("cannot write the answers")]
    Write(#[source] io::Error),
}

/// A problem with a setting.
#[derive(Debug, thiserror::Error)]
pub enum SettingProblem {
    /// A setting that is unknown, invalid, or contradicts another.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The preset does not exist.
    #[error(transparent)]
    Preset(#[from] UnknownPreset),
    /// This policy has no presets.
    #[error("policy `{policy}` has no presets")]
    HasNoPresets {
        /// The policy.
        policy: Policy,
    },
    /// This policy has no settings.
    #[error("`{name}` is not a setting of policy `{policy}`, which has none")]
    HasNone {
        /// The setting's name as written.
        name: String,
        /// The policy.
        policy: Policy,
    },
}

#[cfg(test)]
mod tests;
