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

fn main() -> ExitCode {
    let exit = match Args::try_parse() {
        Ok(args) => run(args),
        Err(error) => output::usage(&error),
    };
    exit.into()
}

fn run(args: Args) -> Exit {
    let output = Output::new(args.verbosity());
    match dispatch(args.command, &output) {
        Ok(()) => Exit::Done,
        Err(failure) => {
            output.failure(&failure);
            failure.exit
        }
    }
}

fn dispatch(command: Command, output: &Output) -> Result<(), Failure> {
    match command {
        Command::Replay(args) => commands::replay(&args, output),
        Command::Completions(args) => commands::completions(&args, output),
    }
}
