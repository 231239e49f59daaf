//! Character references in attributes and titles: `&amp;`, `&#8211;`, `&copy`.

use std::borrow::Cow;

use encoding_rs::WINDOWS_1252;
use quick_xml::escape::resolve_html5_entity;

/// Where a text stands. An attribute leaves more ampersands as they are, for the sake of
/// `?a=1&copy=2`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Attribute,
    Text,
}

/// Decodes the character references of a text as browsers do; what is none stays.
pub(super) fn decode(text: &str, place: Place) -> Cow<'_, str> {
    if !text.contains('&') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('&') {
        out.push_str(&rest[..start]);
        rest = &rest[start + 1..];
        let decoded = match rest.strip_prefix('#') {
            Some(number) => decode_number(number, &mut out).map(|len| len + 1),
            None => decode_name(rest, place, &mut out),
        };
        match decoded {
            Some(len) => rest = &rest[len..],
            None => out.push('&'),
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Decodes what follows after `&#`; returns its length.
fn decode_number(text: &str, out: &mut String) -> Option<usize> {
    let (digits, radix, start) = match text.strip_prefix(['x', 'X']) {
        Some(digits) => (digits, 16, 1),
        None => (text, 10, 0),
    };
    let len = digits
        .find(|c: char| !c.is_digit(radix))
        .unwrap_or(digits.len());
    if len == 0 {
        return None;
    }
    let number = u32::from_str_radix(&digits[..len], radix).unwrap_or(u32::MAX);
    out.push(character(number));
    let semicolon = usize::from(digits[len..].starts_with(';'));
    Some(start + len + semicolon)
}

/// The character of a number. The controls from 128 on mean what windows-1252 has there, for that is
/// what their authors took them from.
fn character(number: u32) -> char {
    if let Ok(byte @ 0x80..=0x9f) = u8::try_from(number) {
        let bytes = [byte];
        let (text, _) = WINDOWS_1252.decode_without_bom_handling(&bytes);
        return text.chars().next().unwrap_or(char::REPLACEMENT_CHARACTER);
    }
    match char::from_u32(number) {
        None | Some('\0') => char::REPLACEMENT_CHARACTER,
        Some(character) => character,
    }
}

/// Decodes what follows after `&`; returns its length.
fn decode_name(text: &str, place: Place, out: &mut String) -> Option<usize> {
    let len = text
        .find(|c: char| !c.is_ascii_alphanumeric())
        .unwrap_or(text.len());
    let name = &text[..len];
    if text[len..].starts_with(';')
        && let Some(characters) = resolve_html5_entity(name)
    {
        out.push_str(characters);
        return Some(len + 1);
    }
    let end = (2..=len.min(MAX_UNENDED))
        .rev()
        .find(|&end| UNENDED.contains(&&name[..end]))?;
    let next = text[end..].chars().next();
    if place == Place::Attribute && next.is_some_and(|c| c == '=' || c.is_ascii_alphanumeric()) {
        return None;
    }
    out.push_str(resolve_html5_entity(&name[..end])?);
    Some(end)
}

/// The length of the longest name in [`UNENDED`].
const MAX_UNENDED: usize = 6;

/// The names that need no semicolon.
const UNENDED: [&str; 106] = [
    "AElig", "AMP", "Aacute", "Acirc", "Agrave", "Aring", "Atilde", "Auml", "COPY", "Ccedil",
    "ETH", "Eacute", "Ecirc", "Egrave", "Euml", "GT", "Iacute", "Icirc", "Igrave", "Iuml", "LT",
    "Ntilde", "Oacute", "Ocirc", "Ograve", "Oslash", "Otilde", "Ouml", "QUOT", "REG", "THORN",
    "Uacute", "Ucirc", "Ugrave", "Uuml", "Yacute", "aacute", "acirc", "acute", "aelig", "agrave",
    "amp", "aring", "atilde", "auml", "brvbar", "ccedil", "cedil", "cent", "copy", "curren", "deg",
    "divide", "eacute", "ecirc", "egrave", "eth", "euml", "frac12", "frac14", "frac34", "gt",
    "iacute", "icirc", "iexcl", "igrave", "iquest", "iuml", "laquo", "lt", "macr", "micro",
    "middot", "nbsp", "not", "ntilde", "oacute", "ocirc", "ograve", "ordf", "ordm", "oslash",
    "otilde", "ouml", "para", "plusmn", "pound", "quot", "raquo", "reg", "sect", "shy", "sup1",
    "sup2", "sup3", "szlig", "thorn", "times", "uacute", "ucirc", "ugrave", "uml", "uuml",
    "yacute", "yen", "yuml",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, in_attribute: &str, in_text: &str) {
        assert_eq!(decode(text, Place::Attribute), in_attribute);
        assert_eq!(decode(text, Place::Text), in_text);
    }

    #[test]
    fn decodes_names_and_numbers() {
        check("a&amp;b &lt;&gt;&quot;&apos;", "a&b <>\"'", "a&b <>\"'");
        check(
            "&eacute;&mdash;&hellip;&CounterClockwiseContourIntegral;",
            "é—…∳",
            "é—…∳",
        );
        check("&#65;&#x42;&#X43&#68", "ABCD", "ABCD");
        check("&#8364;&#128;&#x99;", "€€™", "€€™");
        check(
            "&#0;&#xD800;&#99999999999;",
            "\u{fffd}\u{fffd}\u{fffd}",
            "\u{fffd}\u{fffd}\u{fffd}",
        );
    }

    #[test]
    fn leaves_ampersands_that_mean_themselves() {
        for text in [
            "&",
            "a & b",
            "&&",
            "&;",
            "&#;",
            "&#x;",
            "&nosuchname;",
            "&amplitude",
            "?a&b=1&#",
        ] {
            assert_eq!(decode(text, Place::Attribute), text);
        }
    }

    #[test]
    fn decodes_names_without_a_semicolon_with_care_in_attributes() {
        check("?a=1&copy=2&reg_x&amp", "?a=1&copy=2®_x&", "?a=1©=2®_x&");
        check("&notit;&notin;", "&notit;∉", "¬it;∉");
        check("&ampx", "&ampx", "&x");
    }

    #[test]
    fn knows_every_name_that_needs_no_semicolon() {
        for name in UNENDED {
            assert!(
                name.len() <= MAX_UNENDED && resolve_html5_entity(name).is_some(),
                "{name}"
            );
        }
    }
}
