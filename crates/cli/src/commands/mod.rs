//! What each command means: arguments as typed into one call, its result into a failure or not.

mod asking;
mod check;
mod completions;
mod config;
mod demo;
mod explain;
mod gates;
mod mock;
mod pools;
mod problems;
mod replay;
mod serve;
mod settings;
mod simulate;
mod stopping;

use std::io;

use crate::exit::Exit;

pub(crate) use check::check;
pub(crate) use completions::completions;
pub(crate) use config::config;
pub(crate) use demo::demo;
pub(crate) use explain::explain;
pub(crate) use gates::gates;
pub(crate) use mock::mock;
pub(crate) use pools::pools;
pub(crate) use replay::replay;
pub(crate) use serve::serve;
pub(crate) use simulate::simulate;

/// Why a command did not do what was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What the exit code will say.
    pub(crate) exit: Exit,
    /// Every problem found, each printed with its causes.
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

    /// Nothing to tell: who ended it knows.
    pub(crate) fn silent(exit: Exit) -> Self {
        Self {
            exit,
            errors: Vec::new(),
            hint: None,
        }
    }

    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }
}

/// What not being able to write to stdout means: nothing, if whoever read it has seen enough.
fn unwritten(error: io::Error) -> Result<(), Failure> {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Ok(());
    }
    let error = anyhow::Error::new(error).context("cannot write to stdout");
    Err(Failure::new(Exit::Failed, error))
}
