//! Finds requests whose framing contradicts itself or can be read in two ways: a `Content-Length` next
//! to a `Transfer-Encoding`, more than one of either, and any encoding but `chunked`.
//!
//! Two servers may disagree about where such a request ends, which is how requests are smuggled.
//! hyper removes or joins some of these headers, so the gateway's code never sees the conflict. This
//! scanner follows the bytes that a client sends, on their way to hyper: heads line by line, bodies by
//! their length, so that it knows where the next head begins. It decides nothing else. Bytes that it
//! cannot follow should be bytes that hyper refuses; if hyper goes on, the next request conflicts.

use std::mem;

/// Follows the requests of one HTTP/1 connection.
#[derive(Debug, Default)]
pub(super) struct FramingScanner {
    part: Part,
    /// The first bytes of a line whose end has not come yet.
    line: Vec<u8>,
    /// More of it has come than is kept.
    is_cut: bool,
    head: Head,
    heads: u64,
    conflict: Option<u64>,
}

/// Where in a request the next byte is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    #[default]
    RequestLine,
    Header,
    /// In a body, with so many bytes to come.
    Body(u64),
    ChunkSize,
    /// In a chunk, with so many bytes to come, its line end included.
    Chunk(u64),
    Trailer,
    /// Cannot be followed any more.
    Unknown,
    /// On a connection of HTTP/2.
    Http2,
}

/// What is known of the present head.
#[derive(Clone, Copy, Debug, Default)]
struct Head {
    length: Option<Length>,
    is_encoded: bool,
    is_ambiguous: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    Bytes(u64),
    Unreadable,
}

/// As much of a line as is kept when it comes in pieces: longer than any name and length that mean no
/// harm.
const MAX_LINE: usize = 256;

impl FramingScanner {
    /// Looks at the next bytes of the connection.
    pub(super) fn scan(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            bytes = match self.part {
                Part::Unknown | Part::Http2 => return,
                Part::Body(left) => self.skip(left, bytes, Part::Body, Part::RequestLine),
                Part::Chunk(left) => self.skip(left, bytes, Part::Chunk, Part::ChunkSize),
                Part::RequestLine | Part::Header | Part::ChunkSize | Part::Trailer => {
                    self.scan_line(bytes)
                }
            };
        }
    }

    /// The number, counted from 1, of the first request whose framing conflicts.
    pub(super) fn conflict(&self) -> Option<u64> {
        self.conflict
    }

    /// How many requests there were, if the bytes so far end with the last of them.
    pub(super) fn whole_requests(&self) -> Option<u64> {
        let is_between = self.part == Part::RequestLine && self.line.is_empty();
        is_between.then_some(self.heads)
    }

    /// Does the client speak HTTP/2?
    pub(super) fn is_http2(&self) -> bool {
        self.part == Part::Http2
    }

    fn skip<'a>(
        &mut self,
        left: u64,
        bytes: &'a [u8],
        inside: impl Fn(u64) -> Part,
        behind: Part,
    ) -> &'a [u8] {
        let length = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
        let left = left - length as u64;
        self.part = if left == 0 { behind } else { inside(left) };
        &bytes[length..]
    }

    fn scan_line<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let Some(end) = memchr::memchr(b'\n', bytes) else {
            self.keep(bytes);
            return &[];
        };
        if self.line.is_empty() {
            self.end_line(&bytes[..end], false);
        } else {
            self.keep(&bytes[..end]);
            let mut line = mem::take(&mut self.line);
            let is_cut = mem::take(&mut self.is_cut);
            self.end_line(&line, is_cut);
            line.clear();
            self.line = line;
        }
        &bytes[end + 1..]
    }

    /// Keeps a piece of a line.
    fn keep(&mut self, piece: &[u8]) {
        let room = MAX_LINE.saturating_sub(self.line.len());
        self.line.extend_from_slice(&piece[..piece.len().min(room)]);
        self.is_cut |= piece.len() > room;
    }

    fn end_line(&mut self, line: &[u8], is_cut: bool) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.part = match self.part {
            // Empty lines before a request are allowed.
            Part::RequestLine if line.is_empty() => Part::RequestLine,
            Part::RequestLine if line == b"PRI * HTTP/2.0" => Part::Http2,
            Part::Header if line.is_empty() => self.end_head(),
            Part::RequestLine | Part::Header => {
                self.head.read(line, is_cut);
                Part::Header
            }
            Part::ChunkSize => match chunk_size(line, is_cut) {
                Some(0) => Part::Trailer,
                Some(size) => Part::Chunk(size.saturating_add(2)),
                None => {
                    self.conflict.get_or_insert(self.heads + 1);
                    Part::Unknown
                }
            },
            Part::Trailer if line.is_empty() => Part::RequestLine,
            part => part,
        };
    }

    fn end_head(&mut self) -> Part {
        let head = mem::take(&mut self.head);
        self.heads += 1;
        if head.is_ambiguous {
            self.conflict.get_or_insert(self.heads);
        }
        match (head.length, head.is_encoded) {
            (_, true) => Part::ChunkSize,
            (None | Some(Length::Bytes(0)), false) => Part::RequestLine,
            (Some(Length::Bytes(length)), false) => Part::Body(length),
            (Some(Length::Unreadable), false) => Part::Unknown,
        }
    }
}

impl Head {
    /// A line that was cut may say something else than what is left of it.
    fn read(&mut self, line: &[u8], is_cut: bool) {
        let value = |name: &[u8]| match line.split_at_checked(name.len()) {
            Some((start, rest)) if start.eq_ignore_ascii_case(name) => rest.strip_prefix(b":"),
            _ => None,
        };
        match line.first() {
            Some(b'c' | b'C') => {
                if let Some(value) = value(b"content-length") {
                    let length = std::str::from_utf8(value.trim_ascii());
                    let length = length.ok().and_then(|length| length.parse().ok());
                    let length = length.filter(|_| !is_cut);
                    self.is_ambiguous |= self.length.is_some() || self.is_encoded;
                    self.is_ambiguous |= length.is_none();
                    self.length = Some(length.map_or(Length::Unreadable, Length::Bytes));
                }
            }
            Some(b't' | b'T') => {
                if let Some(value) = value(b"transfer-encoding") {
                    let is_chunked = value.trim_ascii().eq_ignore_ascii_case(b"chunked");
                    self.is_ambiguous |= self.length.is_some() || self.is_encoded;
                    self.is_ambiguous |= !is_chunked || is_cut;
                    self.is_encoded = true;
                }
            }
            _ => {}
        }
    }
}

/// The size that a chunk begins with, before any extension.
fn chunk_size(line: &[u8], is_cut: bool) -> Option<u64> {
    let end = line.iter().position(|byte| !byte.is_ascii_hexdigit());
    if end.is_none() && is_cut {
        return None;
    }
    let digits = std::str::from_utf8(&line[..end.unwrap_or(line.len())]).ok()?;
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFLICT: &str =
        "POST / HTTP/1.1\r\ncontent-length: 3\r\nTRANSFER-ENCODING: chunked\r\n\r\n";

    /// The number of the first conflicting request, in one piece and byte by byte.
    fn conflict(text: &str) -> Option<u64> {
        let found = [text.len().max(1), 1, 7].map(|size| {
            let mut scanner = FramingScanner::default();
            for piece in text.as_bytes().chunks(size) {
                scanner.scan(piece);
            }
            scanner.conflict()
        });
        assert_eq!(found[0], found[1]);
        assert_eq!(found[0], found[2]);
        found[0]
    }

    #[test]
    fn finds_both_orders() {
        assert_eq!(conflict(CONFLICT), Some(1));
        let other = "POST / HTTP/1.1\ntransfer-encoding:chunked\nContent-Length:3\n\n";
        assert_eq!(conflict(other), Some(1));
    }

    #[test]
    fn finds_repeated_lengths_and_other_encodings() {
        for lines in [
            "content-length: 3\r\nContent-Length: 3",
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
            "transfer-encoding: gzip, chunked",
            "transfer-encoding: chunked, identity",
            "transfer-encoding: identity",
            "transfer-encoding: chunked;q=1",
            "transfer-encoding: \x0bchunked",
            "transfer-encoding:",
        ] {
            let text = format!("POST / HTTP/1.1\r\n{lines}\r\n\r\n");
            assert_eq!(conflict(&text), Some(1), "{lines:?}");
        }
    }

    #[test]
    fn counts_requests_over_bodies_of_every_kind() {
        for (before, number) in [
            ("\r\n\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n", 2),
            ("POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\na\nb\nc", 2),
            ("POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n", 2),
            (
                "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n4;x=y\r\n\r\n\r\n\r\n0\r\na: b\r\n\r\nGET / HTTP/1.1\r\n\r\n",
                3,
            ),
        ] {
            assert_eq!(
                conflict(&format!("{before}{CONFLICT}")),
                Some(number),
                "{before:?}"
            );
        }
    }

    /// The number of the first conflicting request, if these come after each other.
    fn conflict_in_pieces(pieces: &[&str]) -> Option<u64> {
        let mut scanner = FramingScanner::default();
        for piece in pieces {
            scanner.scan(piece.as_bytes());
        }
        scanner.conflict()
    }

    #[test]
    fn finds_what_it_cannot_read() {
        let (zeros, blanks) = ("0".repeat(300), " ".repeat(300));
        let head = "POST / HTTP/1.1\r\n";
        for (start, end, number) in [
            (format!("{head}content-length: {zeros}"), "5\r\n\r\n", 1),
            (format!("{head}content-length:{blanks}"), "5\r\n\r\n", 1),
            (
                format!("{head}transfer-encoding: chunked{blanks}"),
                "x\r\n\r\n",
                1,
            ),
            (
                format!("{head}transfer-encoding: chunked\r\n\r\n{zeros}"),
                "5\r\n",
                2,
            ),
            (format!("{head}content-length: x"), "\r\n\r\n", 1),
        ] {
            let found = conflict_in_pieces(&[&start, end, "and anything behind it"]);
            assert_eq!(found, Some(number), "{start:?}");
        }
        let long = format!("{head}x-long: {zeros}");
        assert_eq!(conflict_in_pieces(&[&long, "5\r\n\r\n", CONFLICT]), Some(2));
        // In one piece it is read as hyper reads it.
        let whole = format!("{head}content-length: {zeros}5\r\n\r\nhello{CONFLICT}");
        assert_eq!(conflict_in_pieces(&[&whole]), Some(2));
        let extended = format!("{head}transfer-encoding: chunked\r\n\r\n0;{zeros}");
        assert_eq!(
            conflict_in_pieces(&[&extended, "5\r\n\r\n", CONFLICT]),
            Some(2)
        );
    }

    #[test]
    fn knows_when_bytes_end_with_a_whole_request() {
        for (text, whole) in [
            ("", Some(0)),
            ("\r\n", Some(0)),
            ("G", None),
            ("GET / HTTP/1.1\r\n", None),
            ("GET / HTTP/1.1\r\nhost: a\r\n\r\n", Some(1)),
            ("GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n", Some(2)),
            ("GET / HTTP/1.1\r\n\r\nGET", None),
            ("POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\nh", None),
            ("POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\nhi", Some(1)),
            (
                "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n",
                None,
            ),
            (
                "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
                Some(1),
            ),
            ("POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n", None),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", None),
        ] {
            for size in [text.len().max(1), 1] {
                let mut scanner = FramingScanner::default();
                for piece in text.as_bytes().chunks(size) {
                    scanner.scan(piece);
                }
                assert_eq!(scanner.whole_requests(), whole, "{text:?}");
            }
        }
    }

    #[test]
    fn finds_none_in_bodies_values_and_separate_requests() {
        for text in [
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n13\r\ncontent-length: 5\r\n\r\n0\r\n\r\n",
            "GET / HTTP/1.1\r\nx: content-length: 5\r\nx-content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\nhiPOST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ] {
            assert_eq!(conflict(text), None, "{text:?}");
        }
    }
}
