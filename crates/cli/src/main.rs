//! The command `tidegate`: arguments into settings, results into text.
//!
//! Nothing is decided here. `args` reads what was typed, `usage` explains what cannot be read,
//! `commands` calls the libraries, and `output` is the only module that prints.

mod args;
mod commands;
mod exit;
mod output;
mod usage;

use std::process::ExitCode;

use clap::Parser;

use args::Args;
use exit::Exit;
use output::Output;

/// A request allocates some dozens of small objects; mimalloc takes a third of the time that the
/// system's allocator takes for them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let exit = match Args::try_parse() {
        Ok(args) => run(args),
        Err(error) => usage::report(&error),
    };
    exit.into()
}

fn run(args: Args) -> Exit {
    let output = Output::new(args.verbosity(), args.json);
    let ended = args
        .into_command()
        .and_then(|command| commands::run(&command, &output));
    match ended {
        Ok(()) => Exit::Done,
        Err(failure) => {
            output.failure(&failure);
            failure.exit
        }
    }
}
