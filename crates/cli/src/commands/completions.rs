//! `tidegate completions`: completion scripts for shells.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Failure;
use crate::args::NoConfig;
use crate::output::Output;

/// Print a completion script for a shell
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// Shell to complete in
    shell: Shell,

    #[command(flatten)]
    pub(crate) file: NoConfig,
}

const EXAMPLES: &str = "\
Examples:
  tidegate completions bash > \\
      ~/.local/share/bash-completion/completions/tidegate
  tidegate completions zsh > ~/.zfunc/_tidegate
  tidegate completions fish > ~/.config/fish/completions/tidegate.fish";

pub(super) fn run(args: &CompletionsArgs, output: &Output) -> Result<(), Failure> {
    // The generator panics if it cannot write, so it writes into memory.
    let mut script = Vec::new();
    let mut command = crate::args::Args::command();
    clap_complete::generate(args.shell, &mut command, "tidegate", &mut script);
    output.bytes(&script)
}
