//! JSON documents to be merged.
//!
//! Numbers are stored as written, because an `f64` would change long ones. Two numbers are equal if
//! they have the same value: servers write `1.0` where a client wrote `1`.
//!
//! Ambiguous documents are refused: duplicate names, unpaired surrogates, and nesting deeper than
//! [`MAX_DEPTH`].

use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// A JSON document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A string.
    String(String),
    /// An array.
    Array(Vec<Self>),
    /// An object.
    Object(BTreeMap<String, Self>),
}

/// A number as written. Compared by value.
#[derive(Clone, Debug)]
pub struct Number(String);

/// The limit of common parsers.
const MAX_DEPTH: usize = 128;

impl Document {
    /// Reads a document (RFC 8259); `None` if it is invalid or ambiguous.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut parser = Parser {
            rest: std::str::from_utf8(text).ok()?,
            depth: 0,
        };
        parser.skip_white_space();
        let document = parser.value()?;
        parser.rest.is_empty().then_some(document)
    }
}

/// Without white space, with sorted keys.
impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Number(Number(text)) => f.write_str(text),
            Self::String(text) => write_string(f, text),
            Self::Array(values) => {
                f.write_char('[')?;
                for (index, value) in values.iter().enumerate() {
                    write!(f, "{}{value}", if index == 0 { "" } else { "," })?;
                }
                f.write_char(']')
            }
            Self::Object(values) => {
                f.write_char('{')?;
                for (index, (key, value)) in values.iter().enumerate() {
                    f.write_str(if index == 0 { "" } else { "," })?;
                    write_string(f, key)?;
                    write!(f, ":{value}")?;
                }
                f.write_char('}')
            }
        }
    }
}

fn write_string(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_char('"')?;
    for character in text.chars() {
        match character {
            '"' | '\\' => write!(f, "\\{character}")?,
            '\0'..='\x1f' => write!(f, "\\u{:04x}", u32::from(character))?,
            _ => f.write_char(character)?,
        }
    }
    f.write_char('"')
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        match (self.value(), other.value()) {
            (Some(own), Some(other)) => own == other,
            _ => self.0 == other.0,
        }
    }
}

impl Eq for Number {}

impl Number {
    /// The sign, the digits without leading and trailing zeros, and the exponent of ten. `None` if
    /// the exponent is out of range.
    fn value(&self) -> Option<(bool, String, i64)> {
        let (mantissa, exponent) = match self.0.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse().ok()?),
            None => (self.0.as_str(), 0_i64),
        };
        let (is_negative, mantissa) = match mantissa.strip_prefix('-') {
            Some(mantissa) => (true, mantissa),
            None => (false, mantissa),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{whole}{fraction}");
        let digits = digits.trim_start_matches('0');
        let significant = digits.trim_end_matches('0');
        if significant.is_empty() {
            return Some((false, String::new(), 0));
        }
        let zeros = i64::try_from(digits.len() - significant.len()).ok()?;
        let places = i64::try_from(fraction.len()).ok()?;
        let exponent = exponent.checked_add(zeros)?.checked_sub(places)?;
        Some((is_negative, significant.to_owned(), exponent))
    }
}

/// Reads from the front of `rest`. Each value includes the white space after it.
struct Parser<'a> {
    rest: &'a str,
    depth: usize,
}

impl Parser<'_> {
    fn value(&mut self) -> Option<Document> {
        let value = match self.rest.as_bytes().first()? {
            b'{' => self.within(Self::object)?,
            b'[' => self.within(Self::array)?,
            b'"' => Document::String(self.string()?),
            b'-' | b'0'..=b'9' => Document::Number(self.number()?),
            _ => self.word()?,
        };
        self.skip_white_space();
        Some(value)
    }

    fn within(&mut self, read: impl FnOnce(&mut Self) -> Option<Document>) -> Option<Document> {
        self.depth += 1;
        let value = (self.depth <= MAX_DEPTH).then(|| read(self)).flatten();
        self.depth -= 1;
        value
    }

    fn object(&mut self) -> Option<Document> {
        let mut values = BTreeMap::new();
        self.take("{")?;
        if self.take("}").is_some() {
            return Some(Document::Object(values));
        }
        loop {
            let key = self.string()?;
            self.skip_white_space();
            self.take(":")?;
            let value = self.value()?;
            if values.insert(key, value).is_some() {
                return None;
            }
            if self.take(",").is_none() {
                self.skip("}")?;
                return Some(Document::Object(values));
            }
        }
    }

    fn array(&mut self) -> Option<Document> {
        let mut values = Vec::new();
        self.take("[")?;
        if self.take("]").is_some() {
            return Some(Document::Array(values));
        }
        loop {
            values.push(self.value()?);
            if self.take(",").is_none() {
                self.skip("]")?;
                return Some(Document::Array(values));
            }
        }
    }

    fn word(&mut self) -> Option<Document> {
        let words = [
            ("null", Document::Null),
            ("true", Document::Bool(true)),
            ("false", Document::Bool(false)),
        ];
        let mut words = words.into_iter();
        words.find_map(|(word, value)| self.skip(word).map(|()| value))
    }

    fn number(&mut self) -> Option<Number> {
        let begin = self.rest;
        _ = self.skip("-");
        if self.skip("0").is_none() {
            self.digits()?;
        }
        if self.skip(".").is_some() {
            self.digits()?;
        }
        if self.skip("e").or_else(|| self.skip("E")).is_some() {
            _ = self.skip("+").or_else(|| self.skip("-"));
            self.digits()?;
        }
        Some(Number(begin.strip_suffix(self.rest)?.to_owned()))
    }

    fn digits(&mut self) -> Option<()> {
        let rest = self.rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let is_some = rest.len() < self.rest.len();
        self.rest = rest;
        is_some.then_some(())
    }

    fn string(&mut self) -> Option<String> {
        self.skip("\"")?;
        let mut text = String::new();
        loop {
            let end = self.rest.find(|c| c == '"' || c == '\\' || c < ' ')?;
            let (plain, rest) = self.rest.split_at(end);
            text.push_str(plain);
            self.rest = rest;
            if self.skip("\"").is_some() {
                return Some(text);
            }
            self.skip("\\")?;
            text.push(self.escape()?);
        }
    }

    fn escape(&mut self) -> Option<char> {
        let mut characters = self.rest.chars();
        let letter = characters.next()?;
        self.rest = characters.as_str();
        Some(match letter {
            '"' | '\\' | '/' => letter,
            'b' => '\x08',
            'f' => '\x0c',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let first = self.code_unit()?;
                if !(0xd800..0xdc00).contains(&first) {
                    return char::from_u32(u32::from(first));
                }
                self.skip("\\u")?;
                let pair = [first, self.code_unit()?];
                char::decode_utf16(pair).next()?.ok()?
            }
            _ => return None,
        })
    }

    fn code_unit(&mut self) -> Option<u16> {
        let digits = self.rest.get(..4)?;
        let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        self.rest = &self.rest[4..];
        u16::from_str_radix(digits, 16).ok().filter(|_| is_hex)
    }

    /// Reads `text` and the white space after it, if it comes next.
    fn take(&mut self, text: &str) -> Option<()> {
        self.skip(text)?;
        self.skip_white_space();
        Some(())
    }

    /// Reads `text`, if it comes next.
    fn skip(&mut self, text: &str) -> Option<()> {
        self.rest = self.rest.strip_prefix(text)?;
        Some(())
    }

    fn skip_white_space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Option<Document> {
        Document::parse(text.as_bytes())
    }

    #[test]
    fn compares_numbers_by_value_and_preserves_their_text() {
        for (one, other, is_equal) in [
            ("1", "1.0", true),
            ("1", "10e-1", true),
            ("0.001", "1E-3", true),
            ("120", "1.2e+2", true),
            ("-0", "0.0", true),
            ("0e9", "0", true),
            ("1", "-1", false),
            ("1", "10", false),
            ("9007199254740993", "9007199254740992", false),
            ("1e99999999999999999999", "1e99999999999999999999", true),
            ("1e99999999999999999999", "1", false),
        ] {
            assert_eq!(parse(one) == parse(other), is_equal, "{one} {other}");
            assert_eq!(parse(one).unwrap().to_string(), one);
        }
    }

    #[test]
    fn refuses_ambiguous_documents() {
        for text in [
            r#"{"a":1,"a":2}"#,
            r#""\ud800""#,
            r#""\ud800\u0041""#,
            r#""\udc00""#,
            "\u{feff}1",
            &("[".repeat(MAX_DEPTH + 1) + &"]".repeat(MAX_DEPTH + 1)),
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        let deep = "[".repeat(MAX_DEPTH) + &"]".repeat(MAX_DEPTH);
        assert_eq!(parse(&deep).unwrap().to_string(), deep);
        assert_eq!(parse(r#""\ud83d\ude00""#), parse("\"😀\""));
    }

    /// Pieces of valid and invalid JSON.
    fn texts() -> impl Strategy<Value = String> {
        let pieces = prop::sample::select(vec![
            "{", "}", "[", "]", ",", ":", "\"", "\"a\"", "\"b\"", "\\", "\\u00e9", "\\n", "1", "0",
            "-", ".", "5", "e", "E", "+", "null", "true", "false", " ", "\n", "\t", "\u{1}", "é",
            "nul",
        ]);
        let pieces = prop::collection::vec(pieces, 0..12);
        let pairs = prop::collection::vec((".{0,8}", any::<f64>()), 0..4);
        let valid = pairs.prop_map(|pairs| {
            let pairs = pairs.into_iter().filter(|(_, number)| number.is_finite());
            let object: serde_json::Map<_, _> =
                pairs.map(|(key, number)| (key, number.into())).collect();
            serde_json::Value::Object(object).to_string()
        });
        prop_oneof![3 => pieces.prop_map(|pieces| pieces.concat()), 1 => valid]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        /// Another parser accepts the same texts, and reads the same value from our output.
        #[test]
        fn agrees_with_another_parser(text in texts()) {
            let known = serde_json::from_str::<serde_json::Value>(&text);
            let is_huge = |error: &serde_json::Error| error.to_string().contains("out of range");
            prop_assume!(!known.as_ref().is_err_and(is_huge));
            match parse(&text) {
                Some(document) => {
                    let written = document.to_string();
                    let again: serde_json::Value = serde_json::from_str(&written).unwrap();
                    prop_assert_eq!(again, known.unwrap());
                    prop_assert_eq!(parse(&written), Some(document));
                }
                None => {
                    // The other parser accepts duplicate names.
                    let has_name_twice = text.matches("\"a\"").count() > 1
                        || text.matches("\"b\"").count() > 1
                        || text.matches("\"\"").count() > 1;
                    prop_assert!(known.is_err() || has_name_twice, "{}", text);
                }
            }
        }
    }
}
