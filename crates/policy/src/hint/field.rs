//! Splits header values that are lists with parameters: `"burst";r=5;t=30, 100;w=60`, `limit=100,
//! remaining=5`.
//!
//! A lexer for the parts of structured fields (RFC 9651) that limits need, not a validator: servers
//! write names with and without quotes, and use commas where semicolons belong.

/// One piece between separators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece<'a> {
    /// Whether it starts a member of the list: it is first or follows a comma.
    pub(super) first: bool,
    /// The part before the `=`, or everything; without quotes.
    pub(super) name: &'a [u8],
    /// The part after the `=`, without quotes.
    pub(super) value: Option<&'a [u8]>,
}

/// The pieces of `value`, in order.
pub(super) const fn pieces(value: &[u8]) -> Pieces<'_> {
    Pieces {
        rest: Some(value),
        first: true,
    }
}

#[derive(Debug)]
pub(super) struct Pieces<'a> {
    rest: Option<&'a [u8]>,
    first: bool,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        let (name, end) = word(self.rest.take()?, |byte| matches!(byte, b',' | b';' | b'='));
        let (value, end) = match end {
            [b'=', rest @ ..] => {
                let (value, end) = word(rest, |byte| matches!(byte, b',' | b';'));
                (Some(value), end)
            }
            end => (None, end),
        };
        let piece = Piece {
            first: self.first,
            name,
            value,
        };
        if let [separator, rest @ ..] = end {
            self.first = *separator == b',';
            self.rest = Some(rest);
        }
        Some(piece)
    }
}

/// The word or quoted string at the start of `text`, and the rest from the separator.
fn word(text: &[u8], is_separator: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    let text = text.trim_ascii_start();
    let quoted = match text {
        [b'"', inside @ ..] => quoted_length(inside),
        _ => 0,
    };
    let tail = text.get(quoted..).unwrap_or_default();
    let length = tail.iter().position(|&byte| is_separator(byte));
    let end = quoted + length.unwrap_or(tail.len());
    let (word, rest) = text.split_at_checked(end).unwrap_or((text, &[]));
    (unquoted(word.trim_ascii_end()), rest)
}

/// The length of a quoted string including both quotes; `inside` starts after the first.
fn quoted_length(inside: &[u8]) -> usize {
    let mut escaped = false;
    let end = inside.iter().position(|&byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    });
    // Without a closing quote the string extends to the end.
    end.map_or(inside.len() + 1, |end| end + 2)
}

fn unquoted(word: &[u8]) -> &[u8] {
    let word = word.strip_prefix(b"\"").unwrap_or(word);
    word.strip_suffix(b"\"").unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: &str, expected: &[&str]) {
        let found: Vec<String> = pieces(value.as_bytes())
            .map(|piece| {
                let mark = if piece.first { "*" } else { "" };
                let name = String::from_utf8_lossy(piece.name);
                match piece.value {
                    Some(value) => format!("{mark}{name}={}", String::from_utf8_lossy(value)),
                    None => format!("{mark}{name}"),
                }
            })
            .collect();
        assert_eq!(found, expected, "{value}");
    }

    #[test]
    fn splits_lists_into_pieces() {
        check(
            r#""burst";r=5;t=30, "day" ; r=0 ;t=100"#,
            &["*burst", "r=5", "t=30", "*day", "r=0", "t=100"],
        );
        check("limit=100, remaining=5", &["*limit=100", "*remaining=5"]);
        check("100, 100;w=60", &["*100", "*100", "w=60"]);
        check("default;q=\"9\"", &["*default", "q=9"]);
    }

    #[test]
    fn ignores_separators_inside_quotes() {
        check(r#""a,b;c=d";r=1"#, &["*a,b;c=d", "r=1"]);
        check(r#""say \"hi\", you";r=1"#, &[r#"*say \"hi\", you"#, "r=1"]);
    }

    #[test]
    fn reads_valid_start_of_malformed_values() {
        check("", &["*"]);
        check(",;=", &["*", "*", "="]);
        check("\"", &["*"]);
        check("\"open, r=1", &["*open, r=1"]);
        check("\"a\"b;r=1;", &["*a\"b", "r=1", ""]);
    }
}
