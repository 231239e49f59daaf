//! The only place that writes to stdout and stderr.
//!
//! Data goes to stdout and everything else to stderr. A reader that goes away, as `head` does, has
//! seen enough: that is an ordinary end and not an error.

use std::io::{self, BufWriter, Write};

use crate::commands::Failure;
use crate::exit::Exit;

/// How much to say on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verbosity {
    /// Errors, without hints.
    Quiet,
    /// Errors and hints.
    Normal,
    /// Also what was done.
    Verbose,
}

#[derive(Debug)]
pub(crate) struct Output {
    verbosity: Verbosity,
}

impl Output {
    pub(crate) fn new(verbosity: Verbosity) -> Self {
        Self { verbosity }
    }

    /// Where data goes. Whoever writes to it also flushes it, at the moments when someone may be
    /// waiting to read.
    pub(crate) fn data(&self) -> impl Write {
        BufWriter::with_capacity(BUFFER, io::stdout().lock())
    }

    /// Writes `data` whole.
    pub(crate) fn print(&self, data: &[u8]) -> io::Result<()> {
        let mut stdout = self.data();
        stdout.write_all(data)?;
        stdout.flush()
    }

    /// Something that only a person who asks for it wants to know.
    pub(crate) fn detail(&self, message: &str) {
        if self.verbosity >= Verbosity::Verbose {
            say(message);
        }
    }

    /// Says why a command failed, every problem on a line of its own.
    pub(crate) fn failure(&self, failure: &Failure) {
        for error in &failure.errors {
            say(&format!("error: {error:#}"));
        }
        if let Some(hint) = &failure.hint
            && self.verbosity >= Verbosity::Normal
        {
            say(&format!("hint: {hint}"));
        }
    }
}

/// Rows with their columns one below the other, two blanks between them; numbers to the right.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let cell = |row: &[String], column: usize| row.get(column).cloned().unwrap_or_default();
    let width = |column| {
        let widths = rows.iter().map(|row| cell(row, column).chars().count());
        widths.max().unwrap_or(0)
    };
    let is_number = |column| {
        let mut cells = rows.iter().skip(1).map(|row| cell(row, column));
        cells.all(|cell| cell.chars().all(|c| c.is_ascii_digit()))
    };
    let layout: Vec<(usize, bool)> = (0..count).map(|at| (width(at), is_number(at))).collect();
    let mut text = String::new();
    for row in rows {
        let cells = layout
            .iter()
            .enumerate()
            .map(|(column, &(width, is_number))| {
                let cell = cell(row, column);
                if is_number {
                    format!("{cell:>width$}")
                } else {
                    format!("{cell:<width$}")
                }
            });
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// As much as a pipe holds by default on Linux: more would only wait there.
const BUFFER: usize = 64 << 10;

/// Prints what the parser of arguments has to say: help and version to stdout, errors to stderr.
pub(crate) fn usage(error: &clap::Error) -> Exit {
    let written = error.print();
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Exit::Failed,
        _ if error.use_stderr() => Exit::Usage,
        _ => Exit::Done,
    }
}

/// There is nobody left to tell if stderr is gone.
fn say(message: &str) {
    _ = writeln!(io::stderr().lock(), "{message}");
}
