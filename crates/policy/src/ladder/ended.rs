//! How an attempt ended, as a ladder hears of it.

use std::time::Duration;

use super::LadderSettings;
use crate::classify;
use crate::hint::{self, Hint, Response, Source};
use crate::outcome::{Failure, Verdict};
use crate::rate::Strategy;
use crate::time::WallTime;

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
    /// Does the gate that sent it look for the limit by exceeding it, as `adaptive` does?
    pub is_probed: bool,
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
            is_probed: false,
        }
    }

    /// An answer with `status` and nothing else, judged by the status alone.
    pub fn status(status: u16) -> Self {
        let hint = Hint::default();
        let response = Response {
            status,
            headers: [],
            body: b"",
        };
        let verdict = classify::response(&[], &response, &hint).verdict;
        Self::answered(status, verdict, "", &hint)
    }

    /// Reads how an attempt ended from whatever is known of it. Without a status, a listed one
    /// that stands in the text as a whole word counts as that status; where there is none either,
    /// the text has to speak for itself.
    pub fn read<'b, H>(
        settings: &LadderSettings,
        status: Option<u16>,
        headers: H,
        body: &'b [u8],
        text: &'a str,
        now: Option<WallTime>,
    ) -> Self
    where
        H: IntoIterator<Item = (&'b str, &'b [u8])> + Clone,
    {
        let known = status.or_else(|| settings.status_in(text));
        let response = Response {
            status: known.unwrap_or(NO_STATUS),
            headers,
            body,
        };
        let hint = hint::read(&response, now);
        let verdict = classify::response(&[], &response, &hint).verdict;
        let ended = Self::answered(response.status, verdict, text, &hint);
        match status {
            Some(_) => ended,
            None => Self {
                trouble: Some(Trouble::Text),
                ..ended
            },
        }
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
            is_probed: false,
        }
    }

    /// The same, sent through a gate of this strategy. Without it, no gate is assumed to probe.
    #[must_use]
    pub fn under(mut self, strategy: Strategy) -> Self {
        self.is_probed = strategy == Strategy::Adaptive;
        self
    }

    /// A transport failure.
    pub const fn failure(failure: Failure, text: &'a str) -> Self {
        Self {
            verdict: Some(Verdict::Unreachable),
            trouble: Some(Trouble::Failure(failure)),
            text,
            wait: None,
            is_probed: false,
        }
    }

    /// An error of which only a message is known.
    pub const fn message(text: &'a str) -> Self {
        Self {
            verdict: None,
            trouble: Some(Trouble::Text),
            text,
            wait: None,
            is_probed: false,
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

/// A status that says nothing by itself, for texts without one.
const NO_STATUS: u16 = 400;

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

    fn read<'a>(status: Option<u16>, headers: &[(&str, &str)], text: &'a str) -> Ended<'a> {
        let headers = headers
            .iter()
            .map(|(name, value)| (*name, value.as_bytes()));
        let settings = LadderSettings::default();
        Ended::read(&settings, status, headers, text.as_bytes(), text, None)
    }

    #[test]
    fn what_is_known_is_read_into_verdict_trouble_and_wait() {
        let ended = read(Some(429), &[("retry-after", "7")], "slow down");
        assert_eq!(ended.verdict, Some(Verdict::Throttled));
        assert_eq!(ended.trouble, Some(Trouble::Status(429)));
        assert_eq!(ended.text, "slow down");
        let wait = Some((Duration::from_secs(7), Source::RetryAfter));
        assert_eq!(ended.wait, wait);
        assert_eq!(read(Some(204), &[], ""), Ended::success());
    }

    #[test]
    fn without_a_status_the_text_may_name_one() {
        let ended = read(None, &[], "HTTP 503, try again in 5s");
        assert_eq!(ended.verdict, Some(Verdict::Throttled));
        assert_eq!(ended.trouble, Some(Trouble::Text));
        assert_eq!(ended.wait, Some((Duration::from_secs(5), Source::Body)));
        let ended = read(None, &[], "429: You exceeded your current quota");
        assert_eq!(ended.verdict, Some(Verdict::QuotaExhausted));
        let ended = read(None, &[], "You exceeded your current quota");
        assert_ne!(ended.verdict, Some(Verdict::QuotaExhausted), "of no status");
        assert_eq!(read(None, &[], "").trouble, Some(Trouble::Text));
    }

    #[test]
    fn successes_and_informational_answers_are_no_trouble() {
        for status in [100, 200, 304] {
            assert_eq!(Ended::status(status).trouble, None);
        }
        assert_eq!(Ended::status(404).trouble, Some(Trouble::Status(404)));
    }
}
