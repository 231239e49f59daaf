//! Completion scripts for shells.

use clap::CommandFactory;

use super::{Failure, unwritten};
use crate::args::{Args, CompletionsArgs};
use crate::output::Output;

pub(crate) fn completions(args: &CompletionsArgs, output: &Output) -> Result<(), Failure> {
    // The generator panics when it cannot write, so it writes to memory first.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "tidegate", &mut script);
    output.print(&script).or_else(unwritten)
}
