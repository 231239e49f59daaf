//! The command line as typed: all commands, and the options they share.
//!
//! Each command's own arguments are next to the command. Values are read here into numbers and
//! durations; what they mean is for the commands.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use clap::{ArgAction, Parser, Subcommand};
use policy::setting;

use crate::commands::{
    CheckArgs, CompletionsArgs, ConfigArgs, DemoArgs, ExplainArgs, Failure, GatesArgs, MockArgs,
    PoolsArgs, ReplayArgs, ServeArgs, SimulateArgs,
};
use crate::exit::Exit;
use crate::output::Verbosity;

/// Send as fast as they will take, never faster.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, after_help = EXAMPLES, after_long_help = long_help())]
#[command(
    max_term_width = 80,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// Settings file, for the commands that read one
    #[arg(long, value_name = "FILE", help_heading = GLOBAL)]
    config: Option<PathBuf>,

    /// Print JSON on stdout
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub(crate) json: bool,

    /// Print errors only
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = GLOBAL)]
    quiet: bool,

    /// Print more on stderr
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

/// `--config`, for the commands that read a settings file.
#[derive(Debug, clap::Args)]
pub(crate) struct ConfigFile {
    /// Settings file [default: TIDEGATE_CONFIG, else tidegate.toml if it exists]
    #[arg(long, global = true, value_name = "FILE", help_heading = GLOBAL)]
    pub(crate) config: Option<PathBuf>,
}

impl Args {
    pub(crate) fn verbosity(&self) -> Verbosity {
        match (self.quiet, self.verbose) {
            (true, _) => Verbosity::Quiet,
            (false, 0) => Verbosity::Normal,
            (false, 1..) => Verbosity::Verbose,
        }
    }

    /// The command, with a `--config` that was typed before its name.
    pub(crate) fn into_command(mut self) -> Result<Command, Failure> {
        let Some(file) = self.config.take() else {
            return Ok(self.command);
        };
        match self.command.config_file() {
            Ok(config) => {
                config.get_or_insert(file);
                Ok(self.command)
            }
            Err(name) => {
                let error =
                    anyhow!("`tidegate {name}` reads no settings file, but `--config` names one");
                let hint = "`serve`, `gates`, `pools`, `explain` and `check` read one";
                Err(Failure::new(Exit::Usage, error).with_hint(hint))
            }
        }
    }
}

impl Command {
    /// Where the command keeps its `--config`; its name if it has none.
    fn config_file(&mut self) -> Result<&mut Option<PathBuf>, &'static str> {
        match self {
            Self::Serve(args) => Ok(&mut args.file.config),
            Self::Gates(args) => Ok(&mut args.server.file.config),
            Self::Pools(args) => Ok(&mut args.server.file.config),
            Self::Explain(args) => Ok(&mut args.server.file.config),
            Self::Check(args) => Ok(&mut args.config.config),
            Self::Demo(_) => Err("demo"),
            Self::Config(_) => Err("config"),
            Self::Mock(_) => Err("mock"),
            Self::Replay(_) => Err("replay"),
            Self::Simulate(_) => Err("simulate"),
            Self::Completions(_) => Err("completions"),
        }
    }
}

/// Reads the seed of a random generator.
pub(crate) fn seed(text: &str) -> Result<u64, String> {
    setting::whole(text, 0, u64::MAX)
}

/// Reads a length of time above zero.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    setting::positive(text)
}

/// Keeps the shared options apart from a command's own; clap mixes them otherwise.
const GLOBAL: &str = "Global options";

fn long_help() -> String {
    format!("{EXAMPLES}\n\n{}", Exit::table())
}

const EXAMPLES: &str = "\
Examples:
  tidegate demo
  tidegate config default > tidegate.toml
  tidegate check
  tidegate serve
  tidegate replay --policy gate events.jsonl
  tidegate simulate o1 --strategy adaptive,none
  tidegate mock --limit '50/s burst 10' --retry-after";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Clap wraps longer lines in the middle of a table or a shell command.
    #[test]
    fn written_lines_of_help_are_not_wrapped() {
        let mut commands = vec![Args::command()];
        while let Some(command) = commands.pop() {
            let texts = [command.get_after_help(), command.get_after_long_help()];
            for text in texts.into_iter().flatten() {
                let text = text.to_string();
                let too_long = text.lines().find(|line| line.chars().count() > 80);
                assert_eq!(too_long, None, "{}", command.get_name());
            }
            commands.extend(command.get_subcommands().cloned());
        }
    }
}
