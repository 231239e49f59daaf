//! Scans untrusted JSON for keys and values without building a tree.
//!
//! Bodies may be truncated, wrongly encoded or hostile, and hints and verdicts only need `"key":
//! value` pairs. So this is a flat scan: no tree, no recursion, no allocation, one pass. It reads
//! valid JSON like a parser, and gives harmless results for everything else. Keys inside string
//! values are not found, because strings are read as a whole. A value truncated by the end of the
//! text is not reported: `12` may have been `120`.

use crate::text::same_name;

/// One `"key": value` whose value is a string or a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// The key as written, including escapes.
    pub(crate) key: &'a [u8],
    /// The value as written.
    pub(crate) value: Value<'a>,
    /// The nesting depth: 1 for the keys of the outermost object.
    pub(crate) depth: u32,
    /// Whether it is inside the outermost object's `error`, `errors` or `fault`.
    pub(crate) in_error: bool,
}

/// A value as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    /// The text between the quotes, including escapes.
    String(&'a [u8]),
    /// A number; only its characters were checked.
    Number(&'a [u8]),
}

/// The entries of `text`; none if it does not start like an object or an array.
pub(crate) fn entries(text: &[u8]) -> Entries<'_> {
    let text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
    let text = text.trim_ascii_start();
    Entries {
        rest: match text {
            [b'{' | b'[', ..] => text,
            _ => &[],
        },
        key: None,
        depth: 0,
        errors: 0,
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Entries<'a> {
    rest: &'a [u8],
    /// The key of the next value.
    key: Option<&'a [u8]>,
    depth: u32,
    /// Bit n: whether the container at depth n is an error. Deeper containers share the last bit.
    errors: u64,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        while let Some((&first, rest)) = self.rest.split_first() {
            let value = match first {
                b'"' => self.string().map(Value::String),
                b'-' | b'0'..=b'9' => self.number().map(Value::Number),
                _ => {
                    self.rest = rest;
                    self.punctuation(first);
                    None
                }
            };
            if let Some(value) = value
                && let Some(key) = self.key.take()
            {
                return Some(Entry {
                    key,
                    value,
                    depth: self.depth,
                    in_error: self.in_error(),
                });
            }
        }
        None
    }
}

impl<'a> Entries<'a> {
    fn punctuation(&mut self, byte: u8) {
        match byte {
            b'{' | b'[' => self.open(),
            b'}' | b']' => self.close(),
            b' ' | b'\t' | b'\r' | b'\n' | b':' => {}
            // A comma, or a letter of `true`, `false` and `null`.
            _ => self.key = None,
        }
    }

    fn open(&mut self) {
        let names_error = self.depth == 1 && self.key.is_some_and(is_error);
        let in_error = names_error || self.in_error();
        self.depth = self.depth.saturating_add(1);
        if let Some(bit) = 1u64.checked_shl(self.depth) {
            self.errors = if in_error {
                self.errors | bit
            } else {
                self.errors & !bit
            };
        }
        self.key = None;
    }

    fn close(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        self.key = None;
    }

    fn in_error(&self) -> bool {
        let bit = self.depth.min(u64::BITS - 1);
        self.errors >> bit & 1 == 1
    }

    /// Reads the string that starts here; `None` if it is a key, or if the text ends in it.
    fn string(&mut self) -> Option<&'a [u8]> {
        let text = self.rest.get(1..).unwrap_or_default();
        let mut escaped = false;
        let end = text.iter().position(|&byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        });
        let Some(end) = end else {
            self.rest = &[];
            return None;
        };
        let (string, rest) = text.split_at(end);
        self.rest = rest.get(1..).unwrap_or_default().trim_ascii_start();
        if let [b':', rest @ ..] = self.rest {
            self.rest = rest;
            self.key = Some(string);
            return None;
        }
        Some(string)
    }

    /// Reads the number that starts here; `None` if the text ends in it.
    fn number(&mut self) -> Option<&'a [u8]> {
        let end = self
            .rest
            .iter()
            .position(|byte| !matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'));
        let Some(end) = end else {
            self.rest = &[];
            return None;
        };
        let (number, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some(number)
    }
}

fn is_error(key: &[u8]) -> bool {
    ["error", "errors", "fault"]
        .iter()
        .any(|name| same_name(key, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let found: Vec<String> = entries(text.as_bytes())
            .map(|entry| {
                let (mark, value) = match entry.value {
                    Value::String(value) => ("'", value),
                    Value::Number(value) => ("", value),
                };
                format!(
                    "{}{}{}={mark}{}{mark}",
                    entry.depth,
                    if entry.in_error { "!" } else { ":" },
                    String::from_utf8_lossy(entry.key),
                    String::from_utf8_lossy(value)
                )
            })
            .collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn finds_pairs_at_any_depth() {
        check(
            r#"{"a": 1, "b" : [ {"c":"x"}, 5, "loose" ], "d":{"e":-1.5e3}, "f":"y"}"#,
            &["1:a=1", "3:c='x'", "2:e=-1.5e3", "1:f='y'"],
        );
        check(r#"[{"code":"x"}]"#, &["2:code='x'"]);
        check("\u{feff} {\"a\":1}", &["1:a=1"]);
    }

    #[test]
    fn ignores_keys_inside_strings() {
        check(
            r#"{"message":"say \"retry_after\": 5, ok", "z":1}"#,
            &[r#"1:message='say \"retry_after\": 5, ok'"#, "1:z=1"],
        );
        check(
            r#"{"a":"ends in a backslash \\","b":2}"#,
            &[r"1:a='ends in a backslash \\'", "1:b=2"],
        );
    }

    #[test]
    fn skips_other_values() {
        check(
            r#"{"a":null,"b":true,"c":false,"d":[],"e":{},"f":1}"#,
            &["1:f=1"],
        );
    }

    #[test]
    fn marks_errors_of_the_outermost_object() {
        check(
            r#"{"errors":[{"code":"x","in":{"type":"y"}}],"code":"z"}"#,
            &["3!code='x'", "4!type='y'", "1:code='z'"],
        );
        check(
            r#"{"data":{"error":{"code":"x"}},"Error":{"code":"y"}}"#,
            &["3:code='x'", "2!code='y'"],
        );
    }

    #[test]
    fn does_not_report_a_truncated_value() {
        check(r#"{"a":1,"b":12"#, &["1:a=1"]);
        check(r#"{"a":1,"b":"tex"#, &["1:a=1"]);
        check(r#"{"a":1,"b"#, &["1:a=1"]);
        check(r#"{"a":1,"b":"x""#, &["1:a=1", "1:b='x'"]);
        check(r#"{"a":"#, &[]);
        check("{\"", &[]);
    }

    #[test]
    fn invalid_json_yields_no_misleading_entries() {
        check("", &[]);
        check("\"a\":1", &[]);
        check("<html>{\"a\":1}</html>", &[]);
        check("{]}{\"a\":\"b\"}}}", &["1:a='b'"]);
        check("{,:,\"a\"::\"b\"}", &["1:a='b'"]);
    }

    #[test]
    fn depth_counter_saturates() {
        let open = "{\"error\":".repeat(200) + "{\"code\":\"x\"}" + &"}".repeat(300) + "{\"a\":1}";
        check(&open, &["201!code='x'", "1:a=1"]);
        let arrays = "[".repeat(100) + "{\"code\":\"x\"}";
        check(&arrays, &["101:code='x'"]);
    }
}
