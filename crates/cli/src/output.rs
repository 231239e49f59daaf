//! The only module that writes to stdout and stderr.
//!
//! Data goes to stdout, everything else to stderr. A reader that closes stdout early, as `head`
//! does, is an ordinary end and not an error.
//!
//! Text of servers and files may contain control characters. They are escaped before they reach a
//! terminal, so that no message can move its cursor, change its title or hide another line.

use std::borrow::Cow;
use std::env;
use std::fmt::Write as _;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use app::log::{Filter, Format, Level, Logs};
use app::settings::{Environment, LOG_VARIABLE, Process};
use serde::Serialize;
use terminal_size::{Height, Width, terminal_size_of};

use crate::commands::{Failure, LogFormat};
use crate::exit::Exit;

/// How much to print on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verbosity {
    /// Errors, without hints.
    Quiet,
    /// Errors, warnings and hints.
    Normal,
    /// Also what was done.
    Verbose,
}

#[derive(Debug)]
pub(crate) struct Output {
    verbosity: Verbosity,
    is_json: bool,
}

impl Output {
    pub(crate) fn new(verbosity: Verbosity, is_json: bool) -> Self {
        Self { verbosity, is_json }
    }

    /// Is JSON wanted on stdout?
    pub(crate) fn is_json(&self) -> bool {
        self.is_json
    }

    /// Are only errors wanted?
    pub(crate) fn is_quiet(&self) -> bool {
        self.verbosity == Verbosity::Quiet
    }

    /// A buffered stdout. The caller flushes it whenever a reader may be waiting.
    pub(crate) fn data(&self) -> impl Write {
        BufWriter::with_capacity(BUFFER, io::stdout().lock())
    }

    /// Stdout for whole lines of JSON, which are flushed at once. Characters that a terminal acts on are
    /// escaped.
    pub(crate) fn json_lines(&self) -> impl Write + Send + use<> {
        JsonLines
    }

    /// Prints bytes as they are: nothing in them comes from outside.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        self.write(&[bytes])
    }

    /// Prints lines for people, with control characters escaped.
    pub(crate) fn text(&self, text: &str) -> Result<(), Failure> {
        self.write(&[escape_lines(text).as_bytes()])
    }

    /// Is what is printed read by a person at a terminal?
    pub(crate) fn is_terminal(&self) -> bool {
        io::stdout().is_terminal()
    }

    /// The same in place of what was printed before on a terminal; elsewhere below it.
    pub(crate) fn text_in_place(&self, text: &str) -> Result<(), Failure> {
        let clear: &[u8] = match io::stdout().is_terminal() {
            true => CLEAR,
            false => b"",
        };
        self.write(&[clear, escape_lines(text).as_bytes()])
    }

    /// Prints a result: as JSON if that is wanted, else as text for people.
    pub(crate) fn result(
        &self,
        value: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        match self.is_json {
            true => self.json(value),
            false => self.text(&text()),
        }
    }

    /// Prints a value as JSON over several lines.
    pub(crate) fn json(&self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(value).map_err(io::Error::from);
        self.json_text(text)
    }

    /// Prints a value as JSON on one line.
    pub(crate) fn json_line(&self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(value).map_err(io::Error::from);
        self.json_text(text)
    }

    fn json_text(&self, text: io::Result<String>) -> Result<(), Failure> {
        match text {
            Ok(text) => self.write(&[escape_json(&text).as_bytes(), b"\n"]),
            Err(error) => unless_closed(error),
        }
    }

    fn write(&self, parts: &[&[u8]]) -> Result<(), Failure> {
        let mut stdout = self.data();
        let written = parts
            .iter()
            .try_for_each(|part| stdout.write_all(part))
            .and_then(|()| stdout.flush());
        written.or_else(unless_closed)
    }

    /// Prints a detail that is wanted only with `--verbose`.
    pub(crate) fn detail(&self, message: &str) {
        if self.verbosity >= Verbosity::Verbose {
            print_line(message);
        }
    }

    /// Prints something that is not wrong, but may not be meant.
    pub(crate) fn warning(&self, message: &str) {
        if self.verbosity >= Verbosity::Normal {
            print_line(&format!("warning: {message}"));
        }
    }

    /// Prints what happens now.
    pub(crate) fn notice(&self, message: &str) {
        if self.verbosity >= Verbosity::Normal {
            print_line(message);
        }
    }

    /// Lines on stderr that are redrawn in place; `None` unless it is a terminal that can do that.
    pub(crate) fn status_lines(&self) -> Option<StatusLines> {
        let is_capable = env::var_os("TERM").is_none_or(|term| term != "dumb");
        let is_shown = !self.is_quiet() && io::stderr().is_terminal() && is_capable;
        is_shown.then(StatusLines::default)
    }

    /// The log of a server: to stderr, filtered by the flags or else by `TIDEGATE_LOG`.
    pub(crate) fn logs(&self, format: LogFormat) -> Result<Logs, Failure> {
        Ok(Logs {
            sink: Box::new(io::stderr()),
            access: Box::new(io::stdout()),
            format: match format {
                LogFormat::Human => Format::Human {
                    has_colour: io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none(),
                },
                LogFormat::Json => Format::Json,
            },
            filter: match self.verbosity {
                Verbosity::Quiet => Level::ERROR.into(),
                Verbosity::Normal => filter_from_environment()?,
                Verbosity::Verbose => Level::DEBUG.into(),
            },
        })
    }

    /// A progress bar for long work; invisible unless stderr is a terminal.
    pub(crate) fn progress(&self) -> Progress {
        let is_visible = self.verbosity >= Verbosity::Normal && io::stderr().is_terminal();
        Progress {
            since: is_visible.then(Instant::now),
            shown: None,
        }
    }

    /// A count for long work of unknown size; invisible unless stderr is a terminal.
    pub(crate) fn count_progress(&self) -> CountProgress {
        CountProgress {
            progress: self.progress(),
            width: 0,
        }
    }

    /// A picture that is redrawn in place; `None` unless stdout is a terminal.
    pub(crate) fn live(&self) -> Option<Live> {
        Live::new().filter(|_| !self.is_quiet())
    }

    /// Prints why a command failed, every problem on a line of its own.
    pub(crate) fn failure(&self, failure: &Failure) {
        for error in &failure.errors {
            print_line(&format!("error: {error:#}"));
        }
        if let Some(hint) = &failure.hint
            && self.verbosity >= Verbosity::Normal
        {
            print_line(&format!("hint: {hint}"));
        }
    }
}

struct JsonLines;

impl Write for JsonLines {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(lines);
        let mut stdout = io::stdout().lock();
        stdout.write_all(escape_json(&text).as_bytes())?;
        stdout.flush()?;
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Is it a failure that stdout could not be written? Not if its reader closed it.
pub(crate) fn unless_closed(error: io::Error) -> Result<(), Failure> {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Ok(());
    }
    let error = anyhow::Error::new(error).context("cannot write to stdout");
    Err(Failure::new(Exit::Failed, error))
}

/// A text on one line without characters that a terminal acts on: these are written as in Rust,
/// such as `\u{1b}`.
pub(crate) fn escape(text: &str) -> Cow<'_, str> {
    escape_with(text, is_active, |c, escaped| {
        _ = write!(escaped, "{}", c.escape_default());
    })
}

/// The same for a text of several lines.
fn escape_lines(text: &str) -> Cow<'_, str> {
    let is_active = |c| is_active(c) && c != '\n';
    escape_with(text, is_active, |c, escaped| {
        _ = write!(escaped, "{}", c.escape_default());
    })
}

/// The same for JSON: its strings may contain what no terminal should see, its syntax does not.
pub(crate) fn escape_json(text: &str) -> Cow<'_, str> {
    let is_active = |c| is_active(c) && c != '\n';
    escape_with(text, is_active, |c, escaped| {
        for unit in c.encode_utf16(&mut [0; 2]) {
            _ = write!(escaped, "\\u{unit:04x}");
        }
    })
}

fn escape_with(
    text: &str,
    is_active: impl Fn(char) -> bool,
    push_escaped: impl Fn(char, &mut String),
) -> Cow<'_, str> {
    if !text.contains(&is_active) {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_active(c) {
            true => push_escaped(c, &mut escaped),
            false => escaped.push(c),
        }
    }
    escaped.into()
}

/// Control characters, and those that separate lines or change the direction of writing.
fn is_active(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

fn filter_from_environment() -> Result<Filter, Failure> {
    match Process
        .variable(LOG_VARIABLE)
        .filter(|text| !text.is_empty())
    {
        Some(text) => text.parse().map_err(|problem| {
            Failure::new(
                Exit::Usage,
                anyhow!("environment variable `{LOG_VARIABLE}`: {problem}"),
            )
        }),
        None => Ok(Level::INFO.into()),
    }
}

/// Moves the cursor to the upper left and clears everything below.
const CLEAR: &[u8] = b"\x1b[H\x1b[J";

/// A progress bar that disappears when the work is done.
#[derive(Debug)]
pub(crate) struct Progress {
    /// When the work began; `None` if the bar is invisible.
    since: Option<Instant>,
    /// The percentage shown now.
    shown: Option<u8>,
}

impl Progress {
    /// Shows that a share of the work is done, from 0 to 1. Short work shows no bar.
    pub(crate) fn update(&mut self, share: f64) {
        let is_long = self.since.is_some_and(|since| since.elapsed() >= BAR_AFTER);
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

/// A count that disappears when the work is done.
#[derive(Debug)]
pub(crate) struct CountProgress {
    progress: Progress,
    /// Characters shown now.
    width: usize,
}

impl CountProgress {
    /// Shows how much is done. Short work shows nothing.
    pub(crate) fn update(&mut self, count: usize) {
        let since = self.progress.since;
        if since.is_some_and(|since| since.elapsed() >= BAR_AFTER) {
            let text = format!("{count} operations");
            _ = write!(io::stderr().lock(), "\r{text}");
            self.width = text.len();
        }
    }
}

impl Drop for CountProgress {
    fn drop(&mut self) {
        if self.width > 0 {
            _ = write!(io::stderr().lock(), "\r{:1$}\r", "", self.width);
        }
    }
}

/// Most simulations end sooner, and a bar that flashes by only distracts.
const BAR_AFTER: Duration = Duration::from_secs(1);
/// Half of a narrow terminal.
const BAR: usize = 40;

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the number is between 0 and 100"
)]
fn percent(share: f64) -> u8 {
    (share.clamp(0.0, 1.0) * 100.0) as u8
}

/// A picture on stdout that is redrawn in place.
#[derive(Debug)]
pub(crate) struct Live {
    /// Lines of the picture that is shown now.
    shown: usize,
}

/// The size of a terminal, and whether colours are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Canvas {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
    pub(crate) has_colour: bool,
}

impl Live {
    /// `None` if stdout is no terminal, or one that cannot move its cursor.
    fn new() -> Option<Self> {
        let is_capable = env::var_os("TERM").is_none_or(|term| term != "dumb");
        let is_live = io::stdout().is_terminal() && is_capable;
        is_live.then_some(Self { shown: 0 })
    }

    /// The terminal as it is now.
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

    /// Draws `picture` over the last one. Its lines must fit the terminal's width, and it must
    /// have fewer lines than the terminal has rows: anything else cannot be drawn over.
    pub(crate) fn draw(&mut self, picture: &str) -> io::Result<()> {
        let text = redraw(picture, self.shown);
        self.shown = picture.lines().count();
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        stdout.flush()
    }
}

/// Lines on stderr that are redrawn in place. What is written to it, such as lines of a log, appears
/// above them. Clones are the same lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct StatusLines(Arc<Mutex<Picture>>);

/// What is shown, and how many lines that is.
#[derive(Debug, Default)]
struct Picture {
    text: String,
    lines: usize,
}

impl StatusLines {
    /// The number of columns that a line may take.
    pub(crate) fn columns(&self) -> usize {
        let size = terminal_size_of(io::stderr());
        size.map_or(80, |(Width(columns), _)| columns.into())
    }

    /// Draws lines in place of the last ones; none removes them. They must fit the terminal's width.
    pub(crate) fn draw(&self, text: &str) {
        let picture = &mut *self.lock();
        _ = picture.replace(text, b"");
    }

    fn lock(&self) -> MutexGuard<'_, Picture> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Picture {
    /// Writes `above`, and `text` below it.
    fn replace(&mut self, text: &str, above: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::new();
        if self.lines > 0 {
            bytes.extend_from_slice(format!("\x1b[{}A\r\x1b[J", self.lines).as_bytes());
        }
        bytes.extend_from_slice(above);
        let text = escape_lines(text);
        bytes.extend_from_slice(text.as_bytes());
        self.lines = text.lines().count();
        self.text = text.into_owned();
        let mut stderr = io::stderr().lock();
        stderr.write_all(&bytes)?;
        stderr.flush()
    }
}

impl Write for StatusLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let picture = &mut *self.lock();
        let text = std::mem::take(&mut picture.text);
        picture.replace(&text, bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A line that does not fill the last column, where some terminals wrap already.
pub(crate) fn fit(line: &str, columns: usize) -> String {
    let max = columns.saturating_sub(1).max(1);
    let mut fitted: String = match line.chars().count() <= max {
        true => line.to_owned(),
        false => line.chars().take(max - 1).chain(['…']).collect(),
    };
    fitted.push('\n');
    fitted
}

/// A text in lines of whole words.
pub(crate) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let max = columns.saturating_sub(1).max(1);
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= max => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The text that replaces a picture of `shown` lines: cursor up, each line cleared to its end, and
/// everything below.
fn redraw(picture: &str, shown: usize) -> String {
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

/// A table with two blanks between columns; columns of whole numbers are aligned to the right.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    aligned(rows, |cells| {
        cells
            .iter()
            .all(|cell| cell.chars().all(|c| c.is_ascii_digit()))
    })
}

/// The same with a heading.
pub(crate) fn table(heading: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let heading = heading.iter().map(|word| (*word).to_owned()).collect();
    columns(&std::iter::once(heading).chain(rows).collect::<Vec<_>>())
}

/// A table of names and figures: every column but the first is aligned to the right.
pub(crate) fn figures(rows: &[Vec<String>]) -> String {
    let mut is_first = true;
    aligned(rows, |_| !std::mem::take(&mut is_first))
}

/// Calls `is_right` for every column in turn, with its cells below the heading.
fn aligned(rows: &[Vec<String>], mut is_right: impl FnMut(&[&str]) -> bool) -> String {
    let rows: Vec<Vec<Cow<'_, str>>> = rows
        .iter()
        .map(|row| row.iter().map(|cell| escape(cell)).collect())
        .collect();
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let layout: Vec<(usize, bool)> = (0..count)
        .map(|column| {
            let cells: Vec<&str> = rows.iter().map(|row| cell(row, column)).collect();
            let width = cells.iter().map(|cell| cell.chars().count()).max();
            (width.unwrap_or(0), is_right(cells.get(1..).unwrap_or(&[])))
        })
        .collect();
    let mut text = String::new();
    for row in &rows {
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

fn cell<'a>(row: &'a [Cow<'_, str>], column: usize) -> &'a str {
    row.get(column).map_or("", |cell| cell)
}

/// As much as a pipe holds by default on Linux: more would only wait there.
const BUFFER: usize = 64 << 10;

/// Prints help or the version as clap renders it.
pub(crate) fn help(error: &clap::Error) -> io::Result<()> {
    error.print()
}

/// Prints one line to stderr. If stderr is gone, there is no place left to report it.
pub(crate) fn print_line(message: &str) {
    _ = writeln!(io::stderr().lock(), "{}", escape(message));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redraw_covers_the_last_picture() {
        assert_eq!(redraw("a\nb\n", 0), "a\x1b[K\nb\x1b[K\n\x1b[J");
        assert_eq!(redraw("c\n", 2), "\x1b[2A\rc\x1b[K\n\x1b[J");
    }

    #[test]
    fn escapes_what_a_terminal_acts_on() {
        assert_eq!(escape("héllo `世界`"), "héllo `世界`");
        assert_eq!(escape("a\x1b[2J\n\u{9b}"), r"a\u{1b}[2J\n\u{9b}");
        assert_eq!(escape("\u{202e}"), r"\u{202e}");
        assert_eq!(escape_lines("a\nb\r"), "a\nb\\r");
        assert_eq!(escape_json("\"\u{9b}\u{7f}\""), r#""\u009b\u007f""#);
    }

    #[test]
    fn cells_stay_on_their_line() {
        let rows = [vec!["key".to_owned()], vec!["a\nb".to_owned()]];
        assert_eq!(columns(&rows), "key\na\\nb\n");
    }
}
