//! The command line as typed: all commands, and the options they share.
//!
//! Each command's own arguments are next to the command. Values are read here into numbers and
//! durations; what they mean is for the commands.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Parser, Subcommand};
use policy::setting;

use crate::commands::{
    CheckArgs, CompletionsArgs, ConfigArgs, DemoArgs, ExplainArgs, Failure, FetchArgs, GatesArgs,
    GuardArgs, HealthArgs, JobsArgs, ManArgs, MockArgs, OpsArgs, PollArgs, PoolsArgs, ReplayArgs,
    RunArgs, ServeArgs, SimulateArgs,
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
    Fetch(FetchArgs),
    Run(RunArgs),
    Poll(PollArgs),
    Gates(GatesArgs),
    Pools(PoolsArgs),
    Ops(OpsArgs),
    Jobs(JobsArgs),
    Explain(ExplainArgs),
    Health(HealthArgs),
    Check(CheckArgs),
    Config(ConfigArgs),
    Mock(MockArgs),
    Replay(ReplayArgs),
    Simulate(SimulateArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
    GuardProcesses(GuardArgs),
}

/// `--config` of a command that reads no settings file: not listed, and refused with a reason.
#[derive(Debug, clap::Args)]
pub(crate) struct NoConfig {
    #[arg(long, global = true, value_name = "FILE", hide = true)]
    config: Option<PathBuf>,
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
        let file = self.config.take();
        let (config, refusal) = self.command.config_file();
        if config.is_none() {
            *config = file;
        }
        match refusal.filter(|_| config.is_some()) {
            None => Ok(self.command),
            Some((name, why)) => {
                let error =
                    anyhow!("`tidegate {name}` reads no settings file, but `--config` names one");
                Err(Failure::new(Exit::Usage, error).with_hint(why))
            }
        }
    }
}

impl Command {
    /// The `--config` of the command; its name and the reason if it takes none.
    fn config_file(&mut self) -> (&mut Option<PathBuf>, Option<(&'static str, &'static str)>) {
        let (config, refusal) = match self {
            Self::Serve(args) => return (&mut args.file.config, None),
            Self::Fetch(args) => return (&mut args.file.config, None),
            Self::Run(args) => return (&mut args.file.config, None),
            Self::Poll(args) => return (&mut args.file.config, None),
            Self::Gates(args) => return (&mut args.server.file.config, None),
            Self::Pools(args) => return (&mut args.server.file.config, None),
            Self::Ops(args) => return (&mut args.server.file.config, None),
            Self::Jobs(args) => return (&mut args.server.file.config, None),
            Self::Explain(args) => return (&mut args.server.file.config, None),
            Self::Health(args) => return (&mut args.file.config, None),
            Self::Check(args) => return (&mut args.config.config, None),
            Self::Replay(args) => return (&mut args.config, None),
            Self::Simulate(args) => return (&mut args.config, None),
            Self::Demo(args) => {
                let why = "its gateway is not given any limits: that is what it shows";
                (&mut args.file, ("demo", why))
            }
            Self::Config(args) => {
                let why = "it prints the defaults; `tidegate check FILE` checks a file";
                (&mut args.file, ("config", why))
            }
            Self::Mock(args) => {
                let why = "a mock is an upstream: its limits are flags, or `--scenario FILE`";
                (&mut args.file, ("mock", why))
            }
            Self::GuardProcesses(args) => {
                let why = "it is started by `tidegate run`";
                (&mut args.file, ("guard-processes", why))
            }
            Self::Completions(args) => {
                let why = "completions do not depend on settings";
                (&mut args.file, ("completions", why))
            }
            Self::Man(args) => {
                let why = "manual pages do not depend on settings";
                (&mut args.file, ("man", why))
            }
        };
        (&mut config.config, Some(refusal))
    }
}

/// A flag such as `--set` with its two parts, `KEY=VALUE`.
///
/// # Errors
///
/// That it has no `=`.
pub(crate) fn key_value<'a>(flag: &str, text: &'a str) -> anyhow::Result<(&'a str, &'a str)> {
    let parts = text.split_once('=');
    let (key, value) =
        parts.ok_or_else(|| anyhow!("`{flag} {text}` has no `=`, expected KEY=VALUE"))?;
    Ok((key.trim(), value.trim()))
}

/// Reads one of several words, each with what it means and its value. Help lists them.
pub(crate) fn choice<T: Clone + Send + Sync + 'static>(
    choices: impl IntoIterator<Item = (&'static str, &'static str, T)>,
) -> impl TypedValueParser<Value = T> {
    let choices: Vec<_> = choices.into_iter().collect();
    let values = choices.iter().map(|(word, about, _)| {
        let about = Some(*about).filter(|about| !about.is_empty());
        PossibleValue::new(*word).help(about)
    });
    PossibleValuesParser::new(values).map(move |word| {
        let chosen = choices.iter().find(|(known, ..)| *known == word);
        let (_, _, value) = chosen.expect("only these words pass the parser");
        value.clone()
    })
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
pub(crate) const GLOBAL: &str = "Global options";

fn long_help() -> String {
    format!("{EXAMPLES}\n\n{}", Exit::table())
}

const EXAMPLES: &str = "\
Examples:
  tidegate demo
  tidegate config default > tidegate.toml
  tidegate check
  tidegate serve
  tidegate fetch https://example.com/ --crawl --out pages
  tidegate run -i urls.txt -- yt-dlp {}
  tidegate poll https://api.example.com/jobs/7
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
