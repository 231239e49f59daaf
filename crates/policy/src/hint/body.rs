//! Waits in a body: JSON keys such as `retry_after`, and sentences such as "try again in 20s".
//!
//! The longest wait wins, because servers round one and not the other: with "retry in 3.5s" and
//! `"retryDelay": "3s"` in one body, 3 s are too short.

use super::delay::{Delay, Longest, Unit};
use super::number::Decimal;
use super::{Source, span};
use crate::json::{self, Value};
use crate::text::same_name;
use crate::time::WallTime;

/// Every wait in `body`.
pub(super) fn read(body: &[u8], now: Option<WallTime>) -> Longest {
    let mut longest = Longest::default();
    for entry in json::entries(body) {
        let Some(unit) = unit_of(entry.key) else {
            continue;
        };
        let delay = match entry.value {
            Value::String(text) => Delay::one(text, unit, now),
            Value::Number(text) => {
                Decimal::json(text).and_then(|number| Delay::number(number, unit))
            }
        };
        if let Some(delay) = delay {
            longest.add(delay, Source::Body);
        }
    }
    for millis in sentences(body) {
        longest.add(Delay::In(millis), Source::Body);
    }
    longest
}

/// The unit of a number under `key`; `None` if the key names no wait.
fn unit_of(key: &[u8]) -> Option<Unit> {
    KEYS.iter()
        .find_map(|(name, unit)| same_name(key, name).then_some(*unit))
}

/// Compared ignoring case, `_` and `-`, so each stands for all its spellings.
const KEYS: &[(&str, Unit)] = &[
    // Discord, Telegram, Slack's older methods; `retryAfter` in many.
    ("retry_after", Unit::Seconds),
    ("retry_after_seconds", Unit::Seconds),
    ("retry_after_secs", Unit::Seconds),
    ("retry_after_ms", Unit::Milliseconds),
    ("retry_after_millis", Unit::Milliseconds),
    // `google.rpc.RetryInfo` and the metadata of `google.rpc.ErrorInfo`.
    ("retry_delay", Unit::Seconds),
    ("quota_reset_delay", Unit::Seconds),
    ("quota_reset_time_stamp", Unit::Seconds),
];

/// Durations in milliseconds that follow "again in", "retry after" and similar phrases.
fn sentences(text: &[u8]) -> impl Iterator<Item = u64> {
    let mut rest = text;
    std::iter::from_fn(move || {
        while let Some(after) = after_phrase(&mut rest) {
            if let Some((millis, end)) = span::prefix(after) {
                rest = after.get(end..).unwrap_or_default();
                return Some(millis);
            }
        }
        None
    })
}

/// Advances `rest` past the next phrase and returns what follows it; `None` at the end.
fn after_phrase<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let mut before: &[u8] = &[];
    loop {
        let start = rest.iter().position(u8::is_ascii_alphanumeric)?;
        // Only spaces may separate the words of a phrase.
        if !rest.get(..start)?.trim_ascii().is_empty() {
            before = &[];
        }
        let tail = rest.get(start..)?;
        let end = tail
            .iter()
            .position(|byte| !byte.is_ascii_alphanumeric())
            .unwrap_or(tail.len());
        let (word, after) = tail.split_at_checked(end)?;
        *rest = after;
        if is(word, &["in", "after"]) && is(before, &["again", "retry", "available"]) {
            let blanks = after.len() - after.trim_ascii_start().len();
            return after.get(blanks..);
        }
        before = word;
    }
}

fn is(word: &[u8], words: &[&str]) -> bool {
    words
        .iter()
        .any(|other| word.eq_ignore_ascii_case(other.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, expected: Option<u64>) {
        let read = read(body.as_bytes(), None).from(None);
        let millis = read.map(|(wait, _)| u64::try_from(wait.as_millis()).unwrap());
        assert_eq!(millis, expected, "{body}");
    }

    #[test]
    fn reads_keys_at_any_depth_in_any_spelling() {
        check(r#"{"retry_after":1.5}"#, Some(1500));
        check(r#"{"retryAfter":"2"}"#, Some(2000));
        check(r#"{"Retry-After":"1m30s"}"#, Some(90_000));
        check(r#"{"retry_after":1.2e1}"#, Some(12_000));
        check(r#"{"retry_after_ms":370}"#, Some(370));
        check(
            r#"{"error":{"details":{"retry_after_seconds":45}}}"#,
            Some(45_000),
        );
        check(
            r#"{"error":{"details":[{},{"retryDelay":"3.5s"}]}}"#,
            Some(3500),
        );
        check(r#"[{"metadata":{"quotaResetDelay":"370.5ms"}}]"#, Some(371));
        check(r#"{"retry_after":0}"#, Some(0));
    }

    #[test]
    fn finds_no_wait_in_unrelated_text() {
        for body in [
            "",
            r#"{"retry_after":null}"#,
            r#"{"retry_after":-1}"#,
            r#"{"retry_after":"soon"}"#,
            r#"{"retry_after":5"#,
            r#"{"retry":5}"#,
            r#"{"message":"the key \"retry_after\": 5 is new"}"#,
            "retry_after: 5",
            "try again in a minute",
            "try again in 20",
            "again, in 20s",
            "retry_after 5s",
            "entry after 5s",
            "again in",
            "try again int 5s",
        ] {
            check(body, None);
        }
    }

    #[test]
    fn reads_sentences_in_any_case() {
        check("Please TRY AGAIN IN 20s.", Some(20_000));
        check("try again in 1m30s", Some(90_000));
        check("Please retry after 5 seconds", Some(5000));
        check("retry in 2 minutes", Some(120_000));
        check("Expected available in 54 seconds.", Some(54_000));
        check(
            "Try again in 1 hour, 2 minutes and 3 seconds!",
            Some(3_723_000),
        );
        check("try again in x, no, again  in\n7ms", Some(7));
        check(r#"{"message":"Try again in 6.5s"}"#, Some(6500));
    }

    #[test]
    fn longest_wait_wins() {
        check(
            r#"{"message":"retry in 3.5s","retryDelay":"3s"}"#,
            Some(3500),
        );
        check(r#"{"retry_after":1,"inner":{"retry_after":9}}"#, Some(9000));
        check("retry after 9s or try again in 4s", Some(9000));
    }

    #[test]
    fn hostile_bodies_take_linear_time() {
        check(&"again in ".repeat(1 << 17), None);
        check(&("again in 1".to_owned() + &" ".repeat(1 << 20)), None);
        check(&"again in 1s,".repeat(1 << 16), Some(1000));
        check(&"\"".repeat(1 << 20), None);
        check(&"{\"retry_after\":".repeat(1 << 16), None);
    }
}
