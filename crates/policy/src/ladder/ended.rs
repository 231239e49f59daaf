//! How an attempt ended, as a ladder hears of it.

use std::time::Duration;

use crate::classify;
use crate::hint::{Hint, Source};
use crate::outcome::{Failure, Verdict};

/// How an attempt through an endpoint ended.
///
/// The text is whatever there is of a message: a body's beginning, or what a program printed when
/// no status is known at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended<'a> {
    /// The verdict; `None` where no status is known, or where it says nothing.
    pub verdict: Option<Verdict>,
    /// What went wrong; `None` if nothing did.
    pub trouble: Option<Trouble>,
    /// The message that came with it; may be empty.
    pub text: &'a str,
    /// How long the server asks to stay away, and where it says so.
    pub wait: Option<(Duration, Source)>,
}

/// What an error is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The server answered with this status.
    Status(u16),
    /// No answer came.
    Failure(Failure),
    /// Only a message is there.
    Text,
}

impl<'a> Ended<'a> {
    /// A success.
    pub const fn success() -> Self {
        Self {
            verdict: Some(Verdict::Success),
            trouble: None,
            text: "",
            wait: None,
        }
    }

    /// An answer with `status` and nothing else, judged by the status alone.
    pub fn status(status: u16) -> Self {
        let hint = Hint::default();
        let response = crate::hint::Response {
            status,
            headers: [],
            body: b"",
        };
        let verdict = classify::response(&[], &response, &hint).verdict;
        Self::answered(status, verdict, "", &hint)
    }

    /// An answer with its verdict, its message and its hint.
    pub fn answered(status: u16, verdict: Option<Verdict>, text: &'a str, hint: &Hint) -> Self {
        let is_error = !matches!(verdict, None | Some(Verdict::Success));
        Self {
            verdict,
            trouble: is_error.then_some(Trouble::Status(status)),
            text,
            wait: hint
                .wait
                .map(|wait| (wait, hint.source.unwrap_or(Source::Assumed))),
        }
    }

    /// A transport failure.
    pub const fn failure(failure: Failure, text: &'a str) -> Self {
        Self {
            verdict: Some(Verdict::Unreachable),
            trouble: Some(Trouble::Failure(failure)),
            text,
            wait: None,
        }
    }

    /// An error of which only a message is known.
    pub const fn message(text: &'a str) -> Self {
        Self {
            verdict: None,
            trouble: Some(Trouble::Text),
            text,
            wait: None,
        }
    }

    /// The error for people: its text, else what it is known by. A long text is cut.
    pub(super) fn shown(&self) -> Box<str> {
        if self.text.is_empty() {
            return match self.trouble {
                Some(Trouble::Status(status)) => format!("HTTP {status}").into(),
                Some(Trouble::Failure(failure)) => {
                    classify::failure(failure).because.to_string().into()
                }
                Some(Trouble::Text) | None => "an error without a message".into(),
            };
        }
        let end = self.text.floor_char_boundary(MAX_TEXT);
        if end == self.text.len() {
            return self.text.into();
        }
        format!("{}…", &self.text[..end]).into()
    }
}

/// As much of a message as a person reads; every endpoint keeps one.
const MAX_TEXT: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_shown_by_its_text_or_by_what_it_is_known_by() {
        let hint = Hint::default();
        let check = |ended: Ended<'_>, shown: &str| assert_eq!(&*ended.shown(), shown);
        check(Ended::status(429), "HTTP 429");
        check(
            Ended::answered(500, Some(Verdict::Overloaded), "broken", &hint),
            "broken",
        );
        check(Ended::failure(Failure::Timeout, ""), "timeout");
        check(Ended::failure(Failure::Dns, "no such host"), "no such host");
        check(Ended::message("Rate limit"), "Rate limit");
        check(Ended::message(""), "an error without a message");
    }

    #[test]
    fn a_long_text_is_cut_between_letters() {
        let text = "é".repeat(1000);
        let shown = Ended::message(&text).shown();
        assert_eq!(shown.chars().count(), 513);
        assert!(shown.ends_with("é…"));
        let text = "x".repeat(MAX_TEXT);
        assert_eq!(&*Ended::message(&text).shown(), text);
    }

    #[test]
    fn successes_and_informational_answers_are_no_trouble() {
        for status in [100, 200, 304] {
            assert_eq!(Ended::status(status).trouble, None);
        }
        assert_eq!(Ended::status(404).trouble, Some(Trouble::Status(404)));
    }
}
