//! The only place that writes to stdout and stderr.
//!
//! Data goes to stdout and everything else to stderr. A reader that goes away, as `head` does, has
//! seen enough: that is an ordinary end and not an error.

use std::env;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::time::{Duration, Instant};

use app::log::{Format, Level};
use app::server::Logs;
use terminal_size::{Height, Width, terminal_size_of};

use crate::args::LogFormat;
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

    /// Does nobody want to read anything but what went wrong?
    pub(crate) fn is_quiet(&self) -> bool {
        self.verbosity == Verbosity::Quiet
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

    /// Writes `data` in the place of what was written before, on a terminal; elsewhere below it.
    pub(crate) fn print_again(&self, data: &[u8]) -> io::Result<()> {
        let mut stdout = self.data();
        if io::stdout().is_terminal() {
            stdout.write_all(CLEAR)?;
        }
        stdout.write_all(data)?;
        stdout.flush()
    }

    /// Something that only a person who asks for it wants to know.
    pub(crate) fn detail(&self, message: &str) {
        if self.verbosity >= Verbosity::Verbose {
            say(message);
        }
    }

    /// Something that is not wrong, but may not be meant.
    pub(crate) fn warning(&self, message: &str) {
        if self.verbosity >= Verbosity::Normal {
            say(&format!("warning: {message}"));
        }
    }

    /// Where the lines of a server go: to stderr, more or fewer of them as was asked for.
    pub(crate) fn logs(&self, format: LogFormat) -> Logs {
        Logs {
            sink: Box::new(io::stderr()),
            format: match format {
                LogFormat::Human => Format::Human,
                LogFormat::Json => Format::Json,
            },
            level: match self.verbosity {
                Verbosity::Quiet => Level::Error,
                Verbosity::Normal => Level::Info,
                Verbosity::Verbose => Level::Debug,
            },
            has_colour: io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none(),
        }
    }

    /// A bar for work that may take long; nothing at all where nobody is looking.
    pub(crate) fn progress(&self) -> Progress {
        let is_watched = self.verbosity >= Verbosity::Normal && io::stderr().is_terminal();
        Progress {
            since: is_watched.then(Instant::now),
            shown: None,
        }
    }

    /// A picture that is drawn again in place; `None` where nobody is looking.
    pub(crate) fn live(&self) -> Option<Live> {
        Live::new().filter(|_| !self.is_quiet())
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

/// To the upper left, and nothing below.
const CLEAR: &[u8] = b"\x1b[H\x1b[J";

/// How far some work is, as a bar that goes away with the work.
#[derive(Debug)]
pub(crate) struct Progress {
    /// When the work began; `None` if nobody is to see it.
    since: Option<Instant>,
    /// The percentage that can be seen now.
    shown: Option<u8>,
}

impl Progress {
    /// A share of the work is done, from 0 to 1. Short work shows no bar at all.
    pub(crate) fn reached(&mut self, share: f64) {
        let is_long = self.since.is_some_and(|since| since.elapsed() >= LONG);
        let percent = percent(share);
        if is_long && self.shown != Some(percent) {
            self.shown = Some(percent);
            let done = usize::from(percent) * BAR / 100;
            let (done, left) = ("#".repeat(done), "-".repeat(BAR - done));
            _ = write!(io::stderr().lock(), "\r[{done}{left}] {percent:>3} %");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown.is_some() {
            _ = write!(io::stderr().lock(), "\r{:1$}\r", "", BAR + 8);
        }
    }
}

/// Longer than it takes to wonder whether anything happens.
const LONG: Duration = Duration::from_secs(1);
/// Half of a narrow terminal.
const BAR: usize = 40;

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is between 0 and 100"
)]
fn percent(share: f64) -> u8 {
    (share.clamp(0.0, 1.0) * 100.0) as u8
}

/// A picture on stdout that is drawn again in place.
#[derive(Debug)]
pub(crate) struct Live {
    /// Lines of the picture that can be seen now.
    shown: usize,
}

/// How much fits, and whether it may have colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Canvas {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
    pub(crate) has_colour: bool,
}

impl Live {
    /// `None` if stdout is no terminal, or one that cannot go back.
    fn new() -> Option<Self> {
        let is_capable = env::var_os("TERM").is_none_or(|term| term != "dumb");
        let is_live = io::stdout().is_terminal() && is_capable;
        is_live.then_some(Self { shown: 0 })
    }

    /// As large as the terminal is now.
    pub(crate) fn canvas(&self) -> Canvas {
        let (columns, rows) = match terminal_size_of(io::stdout()) {
            Some((Width(columns), Height(rows))) => (columns.into(), rows.into()),
            None => (80, 24),
        };
        Canvas {
            columns,
            rows,
            has_colour: env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        }
    }

    /// Draws `picture` where the last one was. None of its lines is longer than the terminal is
    /// wide, and it has fewer than the terminal has rows: others could not be drawn over.
    pub(crate) fn draw(&mut self, picture: &str) -> io::Result<()> {
        let text = over(picture, self.shown);
        self.shown = picture.lines().count();
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        stdout.flush()
    }
}

/// What draws a picture over one of so many lines: up, every line to its end, and nothing below.
fn over(picture: &str, shown: usize) -> String {
    let mut text = String::new();
    if shown > 0 {
        text.push_str(&format!("\x1b[{shown}A\r"));
    }
    for line in picture.lines() {
        text.push_str(line);
        text.push_str("\x1b[K\n");
    }
    text.push_str("\x1b[J");
    text
}

/// Rows with their columns one below the other, two blanks between them; numbers to the right.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    aligned(rows, |cells| {
        cells
            .iter()
            .all(|cell| cell.chars().all(|c| c.is_ascii_digit()))
    })
}

/// The same with everything but the first column to the right: a name and its numbers, whatever
/// their units.
pub(crate) fn figures(rows: &[Vec<String>]) -> String {
    let mut is_first = true;
    aligned(rows, |_| !std::mem::take(&mut is_first))
}

/// `is_right` is asked for every column in turn, with its cells below the heading.
fn aligned(rows: &[Vec<String>], mut is_right: impl FnMut(&[&str]) -> bool) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let layout: Vec<(usize, bool)> = (0..count)
        .map(|column| {
            let cells: Vec<&str> = rows.iter().map(|row| cell(row, column)).collect();
            let width = cells.iter().map(|cell| cell.chars().count()).max();
            (width.unwrap_or(0), is_right(cells.get(1..).unwrap_or(&[])))
        })
        .collect();
    let mut text = String::new();
    for row in rows {
        let cells = layout.iter().enumerate();
        let cells = cells.map(|(column, &(width, is_right))| {
            let cell = cell(row, column);
            if is_right {
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

fn cell(row: &[String], column: usize) -> &str {
    row.get(column).map_or("", String::as_str)
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

#[cfg(test)]
mod tests {
    use super::over;

    #[test]
    fn the_next_picture_covers_the_last() {
        assert_eq!(over("a\nb\n", 0), "a\x1b[K\nb\x1b[K\n\x1b[J");
        assert_eq!(over("c\n", 2), "\x1b[2A\rc\x1b[K\n\x1b[J");
    }
}
