//! Lines of an input, one at a time, with a bound on their length.
//!
//! [`BufRead::lines`] neither bounds a line nor shows when the next read may block, and both matter
//! here: an endless line must not use up all memory, and output must be written before a read
//! blocks.

use std::io::{self, BufRead};
use std::str;

use super::problem::Problem;

/// Bodies are the longest part of an event, and policies read only their start.
const MAX_LINE: usize = 16 << 20;

/// Some editors write it at the start of UTF-8 files; it is not part of the text.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The result of [`Lines::advance`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// A line, without its line feed and, at the start of the input, without a byte order mark.
    Whole(&'a [u8]),
    /// The buffered input ended in the middle of a line: the next read may block.
    Partial,
    /// The current line exceeds the bound. What follows is unspecified.
    TooLong,
    /// There are no more lines.
    End,
}

#[derive(Debug)]
pub(super) struct Lines<R> {
    input: R,
    line: Vec<u8>,
    is_whole: bool,
    is_drained: bool,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input,
            line: Vec::new(),
            is_whole: true,
            is_drained: true,
            number: 0,
        }
    }

    /// The number of the current line, counted from 1; also while only part of it was read.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Whether nothing is buffered, so that the next call to [`Self::advance`] has to read.
    pub(super) fn may_wait(&self) -> bool {
        self.is_drained
    }

    /// Consumes the buffer, at most to the end of the current line. Reads at most once.
    pub(super) fn advance(&mut self) -> io::Result<Line<'_>> {
        let available = loop {
            match self.input.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        let is_end = available.is_empty();
        if self.is_whole && !is_end {
            self.is_whole = false;
            self.line.clear();
            self.number += 1;
        }
        if self.is_whole {
            return Ok(Line::End);
        }

        // `skip_until` of a slice uses the standard library's fast search for a byte.
        let mut rest = available;
        let length = rest.skip_until(b'\n')?;
        let has_ended = available[..length].ends_with(b"\n");
        self.is_drained = length == available.len();
        self.line
            .extend_from_slice(&available[..length - usize::from(has_ended)]);
        self.input.consume(length);

        if self.line.len() > MAX_LINE {
            return Ok(Line::TooLong);
        }
        self.is_whole = has_ended || is_end;
        Ok(if self.is_whole {
            let mark: &[u8] = if self.number == 1 {
                BYTE_ORDER_MARK
            } else {
                b""
            };
            Line::Whole(self.line.strip_prefix(mark).unwrap_or(&self.line))
        } else {
            Line::Partial
        })
    }
}

/// The line as text, without a carriage return at its end.
pub(super) fn text(line: &[u8]) -> Result<&str, Problem> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    str::from_utf8(line).map_err(|error| {
        Problem::new(
            format!("byte {} is not UTF-8", error.valid_up_to() + 1),
            "events are JSON in UTF-8; other characters can be written as `\\u00e9`",
        )
    })
}

/// The problem of a line beyond the bound.
pub(super) fn too_long() -> Problem {
    Problem::new(
        format!("longer than {} MiB, expected one event", MAX_LINE >> 20),
        "write every event on a separate line",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_an_endless_line() {
        let mut lines = Lines::new(io::BufReader::new(io::repeat(b'x')));
        while lines.advance().unwrap() == Line::Partial {}
        assert!(lines.line.len() < MAX_LINE + (1 << 20));
        assert_eq!(lines.number(), 1);
    }

    #[test]
    fn skips_a_byte_order_mark_at_the_start_only() {
        let mut lines = Lines::new("\u{feff}a\n\u{feff}b\n".as_bytes());
        assert_eq!(lines.advance().unwrap(), Line::Whole(b"a"));
        assert_eq!(
            lines.advance().unwrap(),
            Line::Whole("\u{feff}b".as_bytes())
        );
    }

    #[test]
    fn returns_blank_lines() {
        let mut lines = Lines::new(&b"\n\n"[..]);
        assert_eq!(lines.advance().unwrap(), Line::Whole(b""));
        assert_eq!(lines.advance().unwrap(), Line::Whole(b""));
        assert_eq!(lines.advance().unwrap(), Line::End);
        assert_eq!(lines.number(), 2);
    }
}
