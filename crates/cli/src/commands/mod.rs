//! The commands: arguments as typed, settings as meant, one call into a library, the result printed.

mod check;
mod completions;
mod config;
mod demo;
mod explain;
mod fetch;
mod gates;
mod guard;
mod health;
mod jobs;
mod man;
mod mock;
mod ops;
mod poll;
mod pools;
mod problems;
mod replay;
mod run;
mod serve;
mod server;
mod settings;
mod simulate;
mod stopping;

use anyhow::anyhow;

use crate::args::Command;
use crate::exit::Exit;
use crate::output::Output;

pub(crate) use check::CheckArgs;
pub(crate) use completions::CompletionsArgs;
pub(crate) use config::ConfigArgs;
pub(crate) use demo::DemoArgs;
pub(crate) use explain::ExplainArgs;
pub(crate) use fetch::FetchArgs;
pub(crate) use gates::GatesArgs;
pub(crate) use guard::GuardArgs;
pub(crate) use health::HealthArgs;
pub(crate) use jobs::JobsArgs;
pub(crate) use man::ManArgs;
pub(crate) use mock::MockArgs;
pub(crate) use ops::OpsArgs;
pub(crate) use poll::PollArgs;
pub(crate) use pools::PoolsArgs;
pub(crate) use replay::ReplayArgs;
pub(crate) use run::RunArgs;
pub(crate) use serve::{LogFormat, ServeArgs};
pub(crate) use simulate::SimulateArgs;

/// Runs a command to its end.
pub(crate) fn run(command: &Command, output: &Output) -> Result<(), Failure> {
    match command {
        Command::Demo(args) => demo::run(args, output),
        Command::Serve(args) => serve::run(args, output),
        Command::Gates(args) => gates::run(args, output),
        Command::Pools(args) => pools::run(args, output),
        Command::Ops(args) => ops::run(args, output),
        Command::Fetch(args) => fetch::run(args, output),
        Command::Jobs(args) => jobs::run(args, output),
        Command::Run(args) => run::run(args, output),
        Command::Poll(args) => poll::run(args, output),
        Command::Explain(args) => explain::run(args, output),
        Command::Health(args) => health::run(args, output),
        Command::Check(args) => check::run(args, output),
        Command::Config(args) => config::run(args, output),
        Command::Mock(args) => mock::run(args, output),
        Command::Replay(args) => replay::run(args, output),
        Command::Simulate(args) => simulate::run(args, output),
        Command::GuardProcesses(_) => guard::run(),
        Command::Completions(args) => completions::run(args, output),
        Command::Man(args) => man::run(args, output),
    }
}

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) exit: Exit,
    /// Every problem found; each is printed on one line with its causes.
    pub(crate) errors: Vec<anyhow::Error>,
    /// What to do about it.
    pub(crate) hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Self {
        Self {
            exit,
            errors: vec![error.into()],
            hint: None,
        }
    }

    /// What is wrong with the arguments.
    pub(crate) fn usage(errors: Vec<anyhow::Error>, hint: impl Into<String>) -> Self {
        Self {
            exit: Exit::Usage,
            errors,
            hint: Some(hint.into()),
        }
    }

    /// Prints nothing: the exit code says it all.
    pub(crate) fn silent(exit: Exit) -> Self {
        Self {
            exit,
            errors: Vec::new(),
            hint: None,
        }
    }

    /// An error of ours whose text carries its hint on a second line, as those of the data folder do.
    pub(crate) fn with_own_hint(exit: Exit, error: impl Into<anyhow::Error>) -> Self {
        let text = format!("{:#}", error.into());
        match text.split_once("\nhint: ") {
            Some((text, hint)) => Self::new(exit, anyhow!(text.to_owned())).with_hint(hint),
            None => Self::new(exit, anyhow!(text)),
        }
    }

    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }
}
