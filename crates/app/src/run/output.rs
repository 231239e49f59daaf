//! What a program printed: the end of it for the rules, the last line for the display.

use std::sync::{Mutex, PoisonError};

use super::rules::printable;

/// How much of a program's output is judged: its end, where errors are.
pub const MAX_TAIL: usize = 64 << 10;

/// The end of a program's output.
#[derive(Debug, Default)]
pub(super) struct Tail(Vec<u8>);

impl Tail {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        if self.0.len() > 2 * MAX_TAIL {
            self.cut();
        }
    }

    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        self.cut();
        self.0
    }

    fn cut(&mut self) {
        let excess = self.0.len().saturating_sub(MAX_TAIL);
        self.0.drain(..excess);
    }
}

/// The last line that a program in flight has printed, for a display.
#[derive(Debug, Default)]
pub struct LiveOutput(Mutex<LastLine>);

#[derive(Debug, Default)]
struct LastLine {
    shown: Vec<u8>,
    /// What came after the last line end.
    partial: Vec<u8>,
}

impl LiveOutput {
    /// The last line with something in it: printable, at most some hundred characters.
    pub fn last_line(&self) -> String {
        let line = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let line = match line.partial.trim_ascii().is_empty() {
            true => &line.shown,
            false => &line.partial,
        };
        printable(line)
    }

    pub(super) fn push(&self, bytes: &[u8]) {
        let mut line = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Progress bars end their lines with a carriage return.
        for part in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let (text, is_whole) = match part.split_last() {
                Some((b'\n' | b'\r', text)) => (text, true),
                _ => (part, false),
            };
            let room = MAX_LINE.saturating_sub(line.partial.len());
            line.partial
                .extend_from_slice(&text[..text.len().min(room)]);
            if is_whole {
                let partial = std::mem::take(&mut line.partial);
                if !partial.trim_ascii().is_empty() {
                    line.shown = partial;
                }
            }
        }
    }
}

/// Longer than any terminal is wide.
const MAX_LINE: usize = 400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tail_keeps_the_end() {
        let mut tail = Tail::default();
        for _ in 0..10 {
            tail.push(&[b'a'; MAX_TAIL]);
            tail.push(b"end");
        }
        let bytes = tail.into_bytes();
        assert_eq!(bytes.len(), MAX_TAIL);
        assert!(bytes.ends_with(b"aend"));
    }

    #[test]
    fn last_line_is_the_last_with_something_in_it() {
        let output = LiveOutput::default();
        let check = |pushed: &str, shown: &str| {
            output.push(pushed.as_bytes());
            assert_eq!(output.last_line(), shown);
        };
        check("", "");
        check("one\ntw", "tw");
        check("o\n\n  \n", "two");
        check("10 %\r20 %\r", "20 %");
        check("\x1b[31mred\x1b[0m", "red");
        output.push("x".repeat(1000).as_bytes());
        assert!(output.last_line().chars().count() <= MAX_LINE);
    }
}
