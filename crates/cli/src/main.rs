//! The command `tidegate`: words into settings, results into text.
//!
//! Nothing is decided here. `args` knows what can be typed, `commands` what each of it means, and
//! `output` is the only place that writes.

mod args;
mod commands;
mod exit;
mod output;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};
use commands::Failure;
use exit::Exit;
use output::Output;

/// A request makes some dozens of small things and drops them again; this takes a third of the time
/// for it that the system's allocator takes.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let exit = match Args::try_parse() {
        Ok(args) => run(args),
        Err(error) => output::usage(&error),
    };
    exit.into()
}

fn run(args: Args) -> Exit {
    let output = Output::new(args.verbosity());
    match dispatch(args, &output) {
        Ok(()) => Exit::Done,
        Err(failure) => {
            output.failure(&failure);
            failure.exit
        }
    }
}

fn dispatch(args: Args, output: &Output) -> Result<(), Failure> {
    let (config, is_json) = (args.config.as_deref(), args.json);
    match args.command {
        Command::Demo(args) => commands::demo(&args, is_json, output),
        Command::Serve(args) => commands::serve(&args, config, is_json, output),
        Command::Gates(args) => commands::gates(&args, config, is_json, output),
        Command::Pools(args) => commands::pools(&args, config, is_json, output),
        Command::Explain(args) => commands::explain(&args, config, is_json, output),
        Command::Check(args) => commands::check(&args, config, is_json, output),
        Command::Config(args) => commands::config(&args, output),
        Command::Mock(args) => commands::mock(&args, is_json, output),
        Command::Replay(args) => commands::replay(&args, output),
        Command::Simulate(args) => commands::simulate(&args, is_json, output),
        Command::Completions(args) => commands::completions(&args, output),
    }
}
