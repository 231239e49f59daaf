//! What can be typed. Only the shape of it: what it means is for `commands`.

mod asking;
mod check;
mod completions;
mod config;
mod demo;
mod explain;
mod gates;
mod mock;
mod pools;
mod replay;
mod serve;
mod simulate;

use std::path::PathBuf;

use clap::{ArgAction, Parser, Subcommand};

use crate::exit::Exit;
use crate::output::Verbosity;

pub(crate) use asking::AskingArgs;
pub(crate) use check::CheckArgs;
pub(crate) use completions::CompletionsArgs;
pub(crate) use config::{ConfigArgs, ConfigCommand};
pub(crate) use demo::DemoArgs;
pub(crate) use explain::ExplainArgs;
pub(crate) use gates::GatesArgs;
pub(crate) use mock::{MockArgs, StyleName};
pub(crate) use pools::{EndpointArgs, PoolsArgs, PoolsCommand};
pub(crate) use replay::{Policy, ReplayArgs};
pub(crate) use serve::{LogFormat, ServeArgs};
pub(crate) use simulate::SimulateArgs;

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

    /// The settings file [default: tidegate.toml, if it is there]
    #[arg(long, global = true, value_name = "FILE", help_heading = GLOBAL)]
    pub(crate) config: Option<PathBuf>,

    /// Write for programs: JSON on stdout
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub(crate) json: bool,

    /// Say only what went wrong
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = GLOBAL)]
    quiet: bool,

    /// Say more on stderr
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = GLOBAL)]
    verbose: u8,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(DemoArgs),
    Serve(ServeArgs),
    Gates(GatesArgs),
    Pools(PoolsArgs),
    Explain(ExplainArgs),
    Check(CheckArgs),
    Config(ConfigArgs),
    Mock(MockArgs),
    Replay(ReplayArgs),
    Simulate(SimulateArgs),
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

/// Apart from a command's own, which otherwise end up in between.
const GLOBAL: &str = "Options of every command";

fn long_help() -> String {
    format!("{EXAMPLES}\n\n{}", Exit::table())
}

const EXAMPLES: &str = "\
Examples:
  tidegate demo
  tidegate config default > tidegate.toml
  tidegate check
  tidegate replay --policy gate events.jsonl
  tidegate replay --policy hint < answers.jsonl
  tidegate simulate o1 --strategy adaptive,none
  tidegate mock --limit '50/s burst 10' --retry-after
  tidegate completions bash > ~/.local/share/bash-completion/completions/tidegate";
