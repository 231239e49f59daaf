//! `tidegate guard-processes`: the helper that `tidegate run` starts, see `app::run::guard_processes`.

use std::io;

use clap::Args;

use super::Failure;
use crate::args::NoConfig;

/// End what a killed run leaves behind
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct GuardArgs {
    #[command(flatten)]
    pub(crate) file: NoConfig,
}

/// Its name, by which `tidegate run` starts it.
pub(super) const NAME: &str = "guard-processes";

pub(super) fn run() -> Result<(), Failure> {
    app::run::guard_processes(io::stdin().lock());
    Ok(())
}
