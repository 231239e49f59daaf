//! Finds phrases in texts of servers and programs, at word boundaries and in any case.
//!
//! One matcher for every list of phrases: verdicts, rules of a route, protection, downloads.
//! Substring search gives false matches ("id 15042991" as a 429, "separate limitations" as a rate
//! limit), and a fixed list of phrases does not need a regex engine.
//!
//! How a phrase matches:
//! - letters match in any ASCII case;
//! - between two words of the phrase any run of spaces, `_` and `-` matches, so "rate limit" is
//!   found in `rate_limit_exceeded`, `Rate-Limit` and "rate  limit"; other punctuation in the
//!   phrase matches itself;
//! - words match as a whole: "rate limit" is neither in "rate limiting" nor in "corporate limit".
//!   Lists contain each form that real APIs use;
//! - digits are part of words; `_`, `-`, punctuation and non-ASCII bytes are not, because servers
//!   put phrases next to “quotes” and to scripts without spaces;
//! - a phrase directly after a slash is part of a link, not of a sentence: an error that points to
//!   `https://example.com/account/billing` is not about billing;
//! - JSON escapes (`\n`, `\u003e`) end a word like the characters they stand for.
//!
//! Takes linear time: each run of spaces is scanned once per word of the phrase.

use std::ops::Range;

/// Whether `needle` occurs in `haystack` as whole words, in any case.
///
/// An empty needle never occurs.
///
/// ```
/// use tidegate_policy::text::contains_words;
///
/// assert!(contains_words(b"429: Rate_Limit exceeded", "rate limit"));
/// assert!(!contains_words(b"rate limiting is off", "rate limit"));
/// ```
pub fn contains_words(haystack: &[u8], needle: &str) -> bool {
    first_of(haystack, &[needle]).is_some()
}

/// The first position of `needle` in `haystack` as whole words, in any case.
///
/// ```
/// use tidegate_policy::text::find_words;
///
/// assert_eq!(find_words(b"429: Rate_Limit exceeded", "rate limit"), Some(5..15));
/// assert_eq!(find_words(b"rate limiting is off", "rate limit"), None);
/// ```
pub fn find_words(haystack: &[u8], needle: &str) -> Option<Range<usize>> {
    find_first(haystack, &[needle]).map(|(_, place)| place)
}

/// The first of `needles`, by position in `haystack` and then by list order, that occurs as whole
/// words. One pass over the text, however long the list.
pub fn first_of<'n>(haystack: &[u8], needles: &[&'n str]) -> Option<&'n str> {
    find_first(haystack, needles).map(|(needle, _)| needle)
}

fn find_first<'n>(haystack: &[u8], needles: &[&'n str]) -> Option<(&'n str, Range<usize>)> {
    // Nearly every position is rejected by its first letter.
    let mut begins = [false; 256];
    for first in needles.iter().filter_map(|needle| needle.bytes().next()) {
        begins[usize::from(first.to_ascii_lowercase())] = true;
        begins[usize::from(first.to_ascii_uppercase())] = true;
    }
    let places = haystack.iter().enumerate();
    let mut found = places
        .filter(|&(at, &byte)| begins[usize::from(byte)] && is_word_start(haystack, at))
        .filter_map(|(at, _)| {
            let mut known = needles.iter().filter(|needle| !needle.is_empty());
            known.find_map(|needle| Some((*needle, at..end_of_match(haystack, at, needle)?)))
        });
    found.next()
}

/// Whether two names are equal ignoring case, `_`, `-` and spaces, such as `rateLimitExceeded`,
/// `RATE_LIMIT_EXCEEDED` and "rate limit exceeded".
pub fn same_name(written: &[u8], name: &str) -> bool {
    let plain = |bytes: &[u8]| -> bool { !matches!(bytes, [b'_' | b'-' | b' ', ..]) };
    let mut written = written.chunks(1).filter(|byte| plain(byte));
    let mut name = name.as_bytes().chunks(1).filter(|byte| plain(byte));
    loop {
        match (written.next(), name.next()) {
            (None, None) => return true,
            (Some(left), Some(right)) if left.eq_ignore_ascii_case(right) => {}
            _ => return false,
        }
    }
}

/// The end of a match of `needle` that starts at `start`.
fn end_of_match(haystack: &[u8], start: usize, needle: &str) -> Option<usize> {
    let mut at = start;
    let mut needle = needle.bytes().peekable();
    while let Some(wanted) = needle.next() {
        if is_separator(wanted) {
            while needle.next_if(|&next| is_separator(next)).is_some() {}
            let run = separator_length(&haystack[at..]);
            if run == 0 {
                return None;
            }
            at += run;
        } else {
            if !haystack.get(at)?.eq_ignore_ascii_case(&wanted) {
                return None;
            }
            at += 1;
        }
    }
    is_word_end(haystack, at).then_some(at)
}

fn separator_length(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|&&byte| is_separator(byte)).count()
}

const fn is_separator(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b'_' | b'-')
}

fn is_word_start(text: &[u8], at: usize) -> bool {
    // A phrase that starts with punctuation needs no word boundary.
    if !text[at].is_ascii_alphanumeric() {
        return true;
    }
    match text[..at] {
        [] => true,
        [.., b'/'] => false,
        [.., last] if !last.is_ascii_alphanumeric() => true,
        ref before => ends_with_escape(before),
    }
}

fn is_word_end(text: &[u8], at: usize) -> bool {
    let inside = at
        .checked_sub(1)
        .and_then(|last| text.get(last))
        .is_some_and(u8::is_ascii_alphanumeric);
    !inside || !text.get(at).is_some_and(u8::is_ascii_alphanumeric)
}

/// Whether `text` ends with a JSON escape for a non-word character.
fn ends_with_escape(text: &[u8]) -> bool {
    match text {
        [.., b'\\', b'n' | b'r' | b't' | b'b' | b'f'] => true,
        [.., b'\\', b'u', a, b, c, d] => [a, b, c, d].iter().all(|hex| hex.is_ascii_hexdigit()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(haystack: &str, needle: &str, expected: bool) {
        assert_eq!(
            contains_words(haystack.as_bytes(), needle),
            expected,
            "{needle:?} in {haystack:?}"
        );
    }

    #[test]
    fn matches_in_any_case_and_with_any_separator() {
        for text in [
            "rate limit",
            "Rate Limit reached",
            "API RATE LIMIT EXCEEDED",
            "rate_limit_exceeded",
            "x-rate-limit",
            "Rate-Limit",
            "rate \t\r\n limit.",
            "\u{201c}rate limit\u{201d}",
            "已达到rate limit，请稍后",
            "(rate limit)",
            r#"{"message":"Sorry.\nRate limit"}"#,
            r"\u003cb\u003erate limit\u003c/b\u003e",
        ] {
            check(text, "rate limit", true);
        }
    }

    #[test]
    fn does_not_match_parts_of_words() {
        for text in [
            "",
            "rate",
            "rate limiting",
            "rate limits",
            "corporate limit",
            "ratelimit",
            "rate, limit",
            "rate limit2",
            "2rate limit",
            "rate li",
            r"\\x41rate limit",
        ] {
            check(text, "rate limit", false);
        }
    }

    #[test]
    fn digits_are_parts_of_words() {
        check("id 15042991", "429", false);
        check("took 502ms", "502", false);
        check("HTTP 429 Too Many Requests", "429", true);
        check("status=502;", "502", true);
    }

    #[test]
    fn does_not_match_links() {
        check("see https://example.com/account/billing", "billing", false);
        check(r"see https:\/\/example.com\/billing", "billing", false);
        check("see /billing; billing is off", "billing", true);
        check("Billing is not enabled", "billing", true);
    }

    #[test]
    fn punctuation_matches_itself() {
        check(
            "ERROR: Sign in to confirm your age. This video may",
            "confirm your age. This",
            true,
        );
        check("confirm your age, this", "confirm your age. this", false);
        check("you're not a bot", "not a bot", true);
        check("a: b", ": b", true);
        check("it ends with (dots)...", "(dots)", true);
    }

    #[test]
    fn empty_phrase_never_matches() {
        check("anything", "", false);
        check("", "", false);
        check("   ", " ", true);
    }

    #[test]
    fn first_phrase_by_position_wins() {
        let list = ["slow down", "too many requests"];
        assert_eq!(
            first_of(b"Too many requests, slow down", &list),
            Some("too many requests")
        );
        assert_eq!(first_of(b"fine", &list), None);
        assert_eq!(first_of(b"fine", &[]), None);
    }

    #[test]
    fn same_name_ignores_spelling() {
        for written in [
            "rateLimitExceeded",
            "RATE_LIMIT_EXCEEDED",
            "rate-limit-exceeded",
            "Rate limit exceeded",
            "_rate_limit_exceeded_",
        ] {
            assert!(same_name(written.as_bytes(), "rate_limit_exceeded"));
        }
        for written in ["", "rate_limit", "rate_limit_exceeded2", "rate.limit"] {
            assert!(!same_name(written.as_bytes(), "rate_limit_exceeded"));
        }
    }

    #[test]
    fn hostile_runs_take_linear_time() {
        let blanks = "rate ".to_owned() + &" ".repeat(1 << 20);
        check(&blanks, "rate limit", false);
        let words = "rate rate ".repeat(1 << 17);
        check(&words, "rate rate rate rate limit", false);
    }
}
