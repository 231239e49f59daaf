//! The result of an attempt, as the input of a ladder.

use std::time::Duration;

use super::LadderSettings;
use crate::classify;
use crate::hint::{self, Hint, Response, Source};
use crate::outcome::{Failure, Verdict};
use crate::rate::Strategy;
use crate::time::WallTime;

/// The result of an attempt at an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointResult<'a> {
    /// The verdict; `None` for a 1xx, or if no status is known.
    pub verdict: Option<Verdict>,
    /// The error; `None` if there is none.
    pub error: Option<EndpointError>,
    /// The message: the start of the body, or a program's output. May be empty.
    pub text: &'a str,
    /// The wait named by the server, and where it was read.
    pub wait: Option<(Duration, Source)>,
    /// Whether the gate that admitted it probes for the limit, as `adaptive` does.
    pub is_gate_probing: bool,
    /// Whether the server rejected the endpoint's credential, and no refresh of it helped.
    pub is_credential_rejected: bool,
}

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointError {
    /// The server responded with this status.
    Status(u16),
    /// A transport failure.
    Failure(Failure),
    /// A message without a status.
    Text,
}

impl<'a> EndpointResult<'a> {
    /// A success.
    pub const fn success() -> Self {
        Self {
            verdict: Some(Verdict::Success),
            error: None,
            text: "",
            wait: None,
            is_gate_probing: false,
            is_credential_rejected: false,
        }
    }

    /// A response with only a status.
    pub fn status(status: u16) -> Self {
        let hint = Hint::default();
        let response = Response {
            status,
            headers: [],
            body: b"",
        };
        let verdict = classify::response(&[], &response, &hint).verdict;
        Self::response(status, verdict, "", &hint)
    }

    /// Reads a result whose status may be unknown. Without one, a listed status that occurs in the
    /// text as a whole word counts as the status; otherwise the text alone decides.
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
        let result = Self::response(response.status, verdict, text, &hint);
        match status {
            Some(_) => result,
            None => Self {
                error: Some(EndpointError::Text),
                ..result
            },
        }
    }

    /// A response with its verdict, its message and its hint.
    pub fn response(status: u16, verdict: Option<Verdict>, text: &'a str, hint: &Hint) -> Self {
        let is_error = !matches!(verdict, None | Some(Verdict::Success));
        Self {
            verdict,
            error: is_error.then_some(EndpointError::Status(status)),
            text,
            wait: hint
                .wait
                .map(|wait| (wait, hint.source.unwrap_or(Source::Assumed))),
            is_gate_probing: false,
            is_credential_rejected: false,
        }
    }

    /// Sets the strategy of the gate that admitted it. By default no gate probes.
    #[must_use]
    pub fn with_strategy(mut self, strategy: Strategy) -> Self {
        self.is_gate_probing = strategy == Strategy::Adaptive;
        self
    }

    /// Marks it as a rejection of the endpoint's credential, which climbs like a listed error.
    #[must_use]
    pub fn with_credential_rejected(mut self, is_rejected: bool) -> Self {
        self.is_credential_rejected = is_rejected;
        self
    }

    /// A transport failure.
    pub const fn failure(failure: Failure, text: &'a str) -> Self {
        Self {
            verdict: Some(Verdict::Unreachable),
            error: Some(EndpointError::Failure(failure)),
            text,
            wait: None,
            is_gate_probing: false,
            is_credential_rejected: false,
        }
    }

    /// An error with a message and no status.
    pub const fn message(text: &'a str) -> Self {
        Self {
            verdict: None,
            error: Some(EndpointError::Text),
            text,
            wait: None,
            is_gate_probing: false,
            is_credential_rejected: false,
        }
    }

    /// The error for display: its text, or its status or failure. A long text is truncated.
    pub(super) fn summary(&self) -> Box<str> {
        let summary = self.description();
        match self.is_credential_rejected {
            true => format!("credential rejected: {summary}").into(),
            false => summary,
        }
    }

    fn description(&self) -> Box<str> {
        if self.text.is_empty() {
            return match self.error {
                Some(EndpointError::Status(status)) => format!("HTTP {status}").into(),
                Some(EndpointError::Failure(failure)) => {
                    classify::failure(failure).because.to_string().into()
                }
                Some(EndpointError::Text) | None => "an error without a message".into(),
            };
        }
        let is_end = |end: &usize| self.text.is_char_boundary(*end);
        let longest = MAX_TEXT.min(self.text.len());
        let end = (0..=longest).rev().find(is_end).unwrap_or_default();
        if end == self.text.len() {
            return self.text.into();
        }
        format!("{}…", &self.text[..end]).into()
    }
}

/// A status without a special verdict, for texts without a status.
const NO_STATUS: u16 = 400;

/// As much of a message as a person reads; every endpoint stores one.
const MAX_TEXT: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_is_the_text_or_the_status_or_failure() {
        let hint = Hint::default();
        let check =
            |result: EndpointResult<'_>, summary: &str| assert_eq!(&*result.summary(), summary);
        check(EndpointResult::status(429), "HTTP 429");
        check(
            EndpointResult::response(500, Some(Verdict::Overloaded), "broken", &hint),
            "broken",
        );
        check(EndpointResult::failure(Failure::Timeout, ""), "timeout");
        check(
            EndpointResult::failure(Failure::Dns, "no such host"),
            "no such host",
        );
        check(EndpointResult::message("Rate limit"), "Rate limit");
        check(EndpointResult::message(""), "an error without a message");
    }

    #[test]
    fn summary_cuts_a_long_text_between_characters() {
        let text = "é".repeat(1000);
        let summary = EndpointResult::message(&text).summary();
        assert_eq!(summary.chars().count(), 513);
        assert!(summary.ends_with("é…"));
        let text = "x".repeat(MAX_TEXT);
        assert_eq!(&*EndpointResult::message(&text).summary(), text);
    }

    fn read<'a>(
        status: Option<u16>,
        headers: &[(&str, &str)],
        text: &'a str,
    ) -> EndpointResult<'a> {
        let headers = headers
            .iter()
            .map(|(name, value)| (*name, value.as_bytes()));
        let settings = LadderSettings::default();
        EndpointResult::read(&settings, status, headers, text.as_bytes(), text, None)
    }

    #[test]
    fn reads_verdict_error_and_wait() {
        let result = read(Some(429), &[("retry-after", "7")], "slow down");
        assert_eq!(result.verdict, Some(Verdict::Throttled));
        assert_eq!(result.error, Some(EndpointError::Status(429)));
        assert_eq!(result.text, "slow down");
        let wait = Some((Duration::from_secs(7), Source::RetryAfter));
        assert_eq!(result.wait, wait);
        assert_eq!(read(Some(204), &[], ""), EndpointResult::success());
    }

    #[test]
    fn reads_a_status_from_the_text_if_none_is_given() {
        let result = read(None, &[], "HTTP 503, try again in 5s");
        assert_eq!(result.verdict, Some(Verdict::Throttled));
        assert_eq!(result.error, Some(EndpointError::Text));
        assert_eq!(result.wait, Some((Duration::from_secs(5), Source::Body)));
        let result = read(None, &[], "429: You exceeded your current quota");
        assert_eq!(result.verdict, Some(Verdict::QuotaExhausted));
        let result = read(None, &[], "You exceeded your current quota");
        assert_ne!(
            result.verdict,
            Some(Verdict::QuotaExhausted),
            "of no status"
        );
        assert_eq!(read(None, &[], "").error, Some(EndpointError::Text));
    }

    #[test]
    fn successes_and_1xx_are_not_errors() {
        for status in [100, 200, 304] {
            assert_eq!(EndpointResult::status(status).error, None);
        }
        assert_eq!(
            EndpointResult::status(404).error,
            Some(EndpointError::Status(404))
        );
    }
}
