//! A picture on a terminal, drawn again in place.

use std::env;
use std::io::{self, IsTerminal, Write};

use terminal_size::{Height, Width, terminal_size_of};

/// A picture on stdout.
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
    pub(super) fn new() -> Option<Self> {
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

#[cfg(test)]
mod tests {
    use super::over;

    #[test]
    fn the_next_picture_covers_the_last() {
        assert_eq!(over("a\nb\n", 0), "a\x1b[K\nb\x1b[K\n\x1b[J");
        assert_eq!(over("c\n", 2), "\x1b[2A\rc\x1b[K\n\x1b[J");
    }
}
