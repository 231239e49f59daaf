//! What a request costs: what its sender says, and what a language model's response says.
//!
//! Usage is read from a body as it passes. The body is not kept: a scanner with a fixed size sees each piece once. It follows JSON far enough
//! to tell keys from text, so words of the model itself are never taken for its usage, and it works
//! the same on one document and on a stream of events, whose every event has one.

use http::HeaderName;
use memchr::memchr2;

/// Says what a request costs.
pub(crate) const COST: HeaderName = HeaderName::from_static("tidegate-cost");

/// Parses the value of [`COST`]: a whole number above zero.
pub(crate) fn parse_cost(text: &str) -> Option<u32> {
    let digits = Some(text.trim()).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits?.parse().ok().filter(|cost| *cost > 0)
}

/// The usage that a body names: of `usage`, at the top of a document or one level below, `total_tokens`
/// or the sum of `input_tokens` and `output_tokens`. Of several, the last counts, because streams
/// repeat it as it grows.
#[derive(Debug, Default)]
pub(crate) struct UsageScanner {
    total: Option<u64>,
    input: Option<u64>,
    output: Option<u64>,
    state: ScanState,
    /// How many objects and lists are open.
    depth: u32,
    /// The depth inside of `usage`, while that is open.
    usage_depth: Option<u32>,
    /// The string that was read last: a key, if a colon follows.
    word: Word,
    key: Option<Key>,
}

/// The beginning of a string, as much as the longest key.
#[derive(Debug, Default)]
struct Word {
    bytes: [u8; 16],
    len: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ScanState {
    #[default]
    Outside,
    String,
    Escape,
    Number(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Usage,
    Total,
    Input,
    Output,
}

/// `usage` is at the top, or in `response` or `message`.
const MAX_USAGE_DEPTH: u32 = 2;

impl UsageScanner {
    /// What the response cost, if it has said so.
    pub(crate) fn used(&self) -> Option<u32> {
        let sum = || Some(self.input.unwrap_or(0).saturating_add(self.output?));
        let used = self.total.or_else(sum)?;
        Some(u32::try_from(used).unwrap_or(u32::MAX))
    }

    /// Reads the next piece of the body.
    pub(crate) fn read(&mut self, piece: &[u8]) {
        let mut rest = piece;
        while let Some((&byte, after)) = rest.split_first() {
            match self.state {
                ScanState::String => {
                    let end = memchr2(b'"', b'\\', rest);
                    let (text, after) = rest.split_at(end.unwrap_or(rest.len()));
                    self.word.add(text);
                    rest = match after.split_first() {
                        Some((b'"', after)) => {
                            self.state = ScanState::Outside;
                            after
                        }
                        Some((_, after)) => {
                            self.word.spoil();
                            self.state = ScanState::Escape;
                            after
                        }
                        None => after,
                    };
                    continue;
                }
                ScanState::Escape => self.state = ScanState::String,
                ScanState::Number(number) => match byte {
                    b'0'..=b'9' => {
                        let digit = u64::from(byte - b'0');
                        let number = number.saturating_mul(10).saturating_add(digit);
                        self.state = ScanState::Number(number);
                    }
                    _ => {
                        self.count(number);
                        self.state = ScanState::Outside;
                        self.read_outside(byte);
                    }
                },
                ScanState::Outside => self.read_outside(byte),
            }
            rest = after;
        }
    }

    fn read_outside(&mut self, byte: u8) {
        match byte {
            b'"' => {
                self.word = Word::default();
                self.key = None;
                self.state = ScanState::String;
            }
            b':' => self.key = self.word.key(),
            b'{' | b'[' => {
                self.depth = self.depth.saturating_add(1);
                let is_usage = byte == b'{' && self.key == Some(Key::Usage);
                if is_usage && self.depth <= MAX_USAGE_DEPTH + 1 {
                    self.usage_depth = Some(self.depth);
                }
                self.key = None;
            }
            b'}' | b']' => {
                if self.usage_depth == Some(self.depth) {
                    self.usage_depth = None;
                }
                self.depth = self.depth.saturating_sub(1);
            }
            b'0'..=b'9' if self.key.is_some() && self.usage_depth == Some(self.depth) => {
                self.state = ScanState::Number(u64::from(byte - b'0'));
            }
            b' ' | b'\t' | b'\r' | b'\n' => {}
            _ => self.key = None,
        }
        if byte != b'"' && !byte.is_ascii_whitespace() {
            self.word.spoil();
        }
    }

    fn count(&mut self, number: u64) {
        match self.key.take() {
            Some(Key::Total) => self.total = Some(number),
            Some(Key::Input) => self.input = Some(number),
            Some(Key::Output) => self.output = Some(number),
            Some(Key::Usage) | None => {}
        }
    }
}

impl Word {
    fn add(&mut self, text: &[u8]) {
        for &byte in text.iter().take(self.bytes.len() + 1) {
            if let Some(slot) = self.bytes.get_mut(self.len) {
                *slot = byte;
            }
            self.len += 1;
        }
    }

    /// Makes it no key.
    fn spoil(&mut self) {
        self.len = usize::from(u8::MAX);
    }

    fn key(&self) -> Option<Key> {
        match self.bytes.get(..self.len)? {
            b"usage" => Some(Key::Usage),
            b"total_tokens" => Some(Key::Total),
            b"input_tokens" => Some(Key::Input),
            b"output_tokens" => Some(Key::Output),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `body` whole and in pieces of every small size.
    fn check(body: &str, expected: Option<u32>) {
        for size in [1, 2, 3, 7, 64, body.len().max(1)] {
            let mut scanner = UsageScanner::default();
            for piece in body.as_bytes().chunks(size) {
                scanner.read(piece);
            }
            assert_eq!(scanner.used(), expected, "{body} in pieces of {size}");
        }
    }

    #[test]
    fn reads_the_total_of_a_document() {
        check(
            r#"{"id":"x","choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21,"prompt_tokens_details":{"cached_tokens":4}}}"#,
            Some(21),
        );
        check(
            "{ \"usage\" : {\n \"total_tokens\" : 1234\n } }",
            Some(1234),
        );
        check(r#"{"usage":{"total_tokens":99999999999}}"#, Some(u32::MAX));
    }

    #[test]
    fn reads_the_last_usage_of_a_stream() {
        check(
            "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":null}\n\n\
             data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2,\"total_tokens\":7}}\n\n\
             data: [DONE]\n\n",
            Some(7),
        );
        check(
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\n\
             event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":15}}\n\n",
            Some(40),
        );
        check(
            "data: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":3,\"output_tokens\":4,\"total_tokens\":7}}}\n\n",
            Some(7),
        );
    }

    #[test]
    fn adds_input_and_output_without_a_total() {
        check(
            r#"{"usage":{"input_tokens":10,"cache_read_input_tokens":500,"output_tokens":5}}"#,
            Some(15),
        );
        check(r#"{"usage":{"input_tokens":10}}"#, None);
        check(r#"{"usage":{"output_tokens":5}}"#, Some(5));
    }

    #[test]
    fn text_of_the_model_and_other_objects_are_no_usage() {
        for body in [
            "",
            "total_tokens: 5",
            r#"{"total_tokens":5}"#,
            r#"{"content":"\"usage\":{\"total_tokens\":5}"}"#,
            r#"{"content":"{\"usage\": {\"total_tokens\": 5}}"}"#,
            r#"{"usage":"total_tokens","total_tokens":5}"#,
            r#"{"usage":null,"x":{"total_tokens":5}}"#,
            r#"{"usage":{"details":{"total_tokens":5}}}"#,
            r#"{"usage":{"total_tokens":"5"}}"#,
            r#"{"usage":{"total_tokens":-5}}"#,
            r#"{"usage":{"total_tokens":5"#,
            r#"{"a":{"b":{"usage":{"total_tokens":5}}}}"#,
            r#"{"usage_of_total_tokens":{"total_tokens":5}}"#,
        ] {
            check(body, None);
        }
    }
}
