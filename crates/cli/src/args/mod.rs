//! What can be typed. Only the shape of it: what it means is for `commands`.

mod completions;
mod replay;

use clap::{ArgAction, Parser, Subcommand};

use crate::exit::Exit;
use crate::output::Verbosity;

pub(crate) use completions::CompletionsArgs;
pub(crate) use replay::{Policy, ReplayArgs};

/// Send as fast as they will take, never faster.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, after_help = EXAMPLES, after_long_help = long_help())]
#[command(
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// Write for programs: JSON on stdout
    #[arg(long, global = true)]
    json: bool,

    /// Say only what went wrong
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,

    /// Say more on stderr
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Replay(ReplayArgs),
    Completions(CompletionsArgs),
}

impl Args {
    pub(crate) fn verbosity(&self) -> Verbosity {
        match (self.quiet, self.verbose) {
            (true, _) => Verbosity::Quiet,
            (false, 0) => Verbosity::Normal,
            (false, 1..) => Verbosity::Verbose,
        }
    }
}

fn long_help() -> String {
    format!("{EXAMPLES}\n\n{}", Exit::table())
}

const EXAMPLES: &str = "\
Examples:
  tidegate replay --policy gate events.jsonl
  tidegate replay --policy hint < answers.jsonl
  tidegate completions bash > ~/.local/share/bash-completion/completions/tidegate";
