//! Lines of a program's output, as people are shown them.

use std::borrow::Cow;

use policy::text::first_of;

use crate::redact;

/// One line as it may be shown: without escape sequences, control characters and what looks like a
/// secret, and at most [`redact::MAX_SHOWN`] characters long.
pub fn printable(line: &[u8]) -> String {
    let line = without_escapes(line);
    let text = String::from_utf8_lossy(line.trim_ascii());
    redact::Text::new(&text).to_string()
}

/// The output without escape sequences of terminals, such as colours.
pub(super) fn without_escapes(output: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(ESCAPE, output).is_none() {
        return Cow::Borrowed(output);
    }
    let mut plain = Vec::with_capacity(output.len());
    let mut rest = output;
    while let Some(at) = memchr::memchr(ESCAPE, rest) {
        plain.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        rest = &rest[sequence_len(rest)..];
    }
    plain.extend_from_slice(rest);
    Cow::Owned(plain)
}

const ESCAPE: u8 = 0x1b;

/// The length of the sequence that an escape character begins: `[`, parameters and a final letter; or
/// `]` and a text up to BEL or the next escape character; or a single character.
fn sequence_len(rest: &[u8]) -> usize {
    let (end, last) = match rest.first() {
        Some(b'[') => {
            let end = rest[1..]
                .iter()
                .position(|byte| (0x40..=0x7e).contains(byte));
            (end.map(|end| end + 1), 1)
        }
        Some(b']') => {
            let end = rest.iter().position(|byte| matches!(*byte, 0x07 | ESCAPE));
            (end, usize::from(end.is_some_and(|end| rest[end] == 0x07)))
        }
        Some(_) => (Some(0), 1),
        None => (Some(0), 0),
    };
    end.map_or(rest.len(), |end| end + last)
}

/// The line that holds the byte at `place`.
pub(super) fn around(output: &[u8], place: usize) -> &[u8] {
    let start = output[..place].iter().rposition(|byte| is_end(*byte));
    let end = output[place..].iter().position(|byte| is_end(*byte));
    &output[start.map_or(0, |start| start + 1)..end.map_or(output.len(), |end| place + end)]
}

/// The last line that speaks of an error, else the last that is not blank. Advice often follows the
/// error itself: git ends with "and the repository exists."
pub(super) fn most_telling(output: &[u8]) -> &[u8] {
    let lines = || output.rsplit(|byte| is_end(*byte));
    let is_error = |line: &&[u8]| first_of(line, &["error", "fatal", "failed"]).is_some();
    let last = || lines().find(|line| !line.trim_ascii().is_empty());
    lines().find(is_error).or_else(last).unwrap_or_default()
}

/// Progress bars end their lines with carriage returns.
const fn is_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_a_line_without_escapes_and_control_characters() {
        assert_eq!(
            printable(b"  \x1b[0;31mERROR:\x1b[0m \x1b]0;title\x07bad\x08 \xff thing \r"),
            "ERROR: bad \u{fffd} thing"
        );
        for cut in [
            &b"a\x1b"[..],
            b"a\x1b[",
            b"a\x1b[31",
            b"a\x1b]0;t",
            b"a\x1bc",
        ] {
            assert_eq!(printable(cut), "a", "{cut:?}");
        }
        let long = "x ".repeat(1000);
        assert!(printable(long.as_bytes()).chars().count() <= redact::MAX_SHOWN + 1);
    }

    #[test]
    fn chooses_the_line_around_a_place() {
        let output = b"one\rtwo\nthree";
        assert_eq!(around(output, 0), b"one");
        assert_eq!(around(output, 5), b"two");
        assert_eq!(around(output, 12), b"three");
    }

    #[test]
    fn chooses_the_last_error_or_the_last_line() {
        let git = b"Cloning into 'x'...\nfatal: Could not read.\n\nand the repository exists.\n";
        assert_eq!(most_telling(git), b"fatal: Could not read.");
        assert_eq!(most_telling(b"10%\r20%\r\n \n"), b"20%");
        assert_eq!(most_telling(b""), b"");
    }
}
