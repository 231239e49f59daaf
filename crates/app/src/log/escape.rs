//! Text of others in a line, such that it cannot end the line, begin another or hide a part of it.
//!
//! Names of endpoints, keys and messages of servers are text of others. Besides control
//! characters, those that separate lines or turn the direction of writing are written out, for a
//! terminal or an editor may act on them. No text takes more than [`MOST`] characters of a line.

use std::fmt::{self, Write};

/// For people: `a\nb` where a line would end.
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (text, end) = bounded(self.0);
        for c in text.chars() {
            if is_dangerous(c) {
                write!(f, "{}", c.escape_default())?;
            } else {
                f.write_char(c)?;
            }
        }
        f.write_str(end)
    }
}

/// A string of JSON with its quotes; what a program reads is the text itself.
pub(super) struct JsonString<'a>(pub(super) &'a str);

impl fmt::Display for JsonString<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (text, end) = bounded(self.0);
        f.write_char('"')?;
        for c in text.chars() {
            match c {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                c if is_dangerous(c) => {
                    let mut units = [0; 2];
                    for unit in c.encode_utf16(&mut units) {
                        write!(f, "\\u{unit:04x}")?;
                    }
                }
                c => f.write_char(c)?,
            }
        }
        write!(f, "{end}\"")
    }
}

/// Enough for a problem told in full; a queue of lines must not hold more than some megabytes.
const MOST: usize = 2000;

/// As much of a text as is shown, and what stands for the rest.
fn bounded(text: &str) -> (&str, &'static str) {
    match text.char_indices().nth(MOST) {
        Some((end, _)) => (text.get(..end).unwrap_or_default(), "…"),
        None => (text, ""),
    }
}

fn is_dangerous(c: char) -> bool {
    c.is_control() || crate::redact::is_invisible(c)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_ends_a_line_or_turns_it_is_written_out() {
        let text = "a\nb\r\u{1b}[2J\u{2028}\u{202e}\u{9b}é😀\"\\";
        let expected = r#"a\nb\r\u{1b}[2J\u{2028}\u{202e}\u{9b}é😀"\"#;
        assert_eq!(Escaped(text).to_string(), expected);
        let expected = r#""a\u000ab\u000d\u001b[2J\u2028\u202e\u009bé😀\"\\""#;
        assert_eq!(JsonString(text).to_string(), expected);
    }

    #[test]
    fn a_text_has_a_bound() {
        let long = "é".repeat(MOST + 1);
        let shown = format!("{}…", "é".repeat(MOST));
        assert_eq!(Escaped(&long).to_string(), shown);
        assert_eq!(JsonString(&long).to_string(), format!("\"{shown}\""));
    }

    proptest! {
        #[test]
        fn a_program_reads_the_very_text(text in "\\PC*|.*") {
            let json = JsonString(&text).to_string();
            prop_assert!(!json.chars().any(is_dangerous));
            let read: String = serde_json::from_str(&json).unwrap();
            prop_assert_eq!(read, text);
        }

        #[test]
        fn nothing_dangerous_is_left(text in any::<String>()) {
            prop_assert!(!Escaped(&text).to_string().chars().any(is_dangerous));
        }
    }
}
