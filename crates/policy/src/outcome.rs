//! The outcome of an attempt, and its verdict.

use std::time::Duration;

use crate::classify::{self, Classification};
use crate::hint::{Hint, Source};

/// The result of one attempt: the input of gate, pool and item.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The response's status, or how the attempt failed without one.
    pub response: UpstreamResponse,
    /// From sending to the head of the response, or to the failure.
    pub latency: Duration,
    /// The server's hint about pace.
    pub hint: Hint,
    /// The actual cost if it is only known afterwards, such as the tokens of a language model;
    /// `None` keeps the cost of the ask.
    pub used: Option<u32>,
}

impl Outcome {
    /// A response with `status` after `latency`, without a hint.
    pub fn status(status: u16, latency: Duration) -> Self {
        Self {
            response: UpstreamResponse::Status(status),
            latency,
            hint: Hint::default(),
            used: None,
        }
    }

    /// A success after `latency`: status 200, for protocols other than HTTP.
    pub fn success(latency: Duration) -> Self {
        Self::status(200, latency)
    }

    /// A throttled response after `latency`, with the wait if the server named one: status 429, for
    /// protocols other than HTTP.
    ///
    /// The source of the wait is [`Source::Body`]. A wait of zero is like `Retry-After: 0`: no
    /// hold, and the retry counts as an attempt.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # use tidegate_policy::outcome as tidegate;
    /// use tidegate::{Outcome, Verdict};
    ///
    /// let busy = Outcome::throttled(Duration::from_millis(40), Some(Duration::from_secs(3)));
    /// assert_eq!(busy.classify().verdict, Some(Verdict::Throttled));
    /// assert!(busy.is_directed());
    /// ```
    pub fn throttled(latency: Duration, wait: Option<Duration>) -> Self {
        Self::status(429, latency).with_hint(Hint {
            wait,
            source: wait.map(|_| Source::Body),
            ..Hint::default()
        })
    }

    /// An overloaded server after `latency`: status 503 without a hint, for protocols other than
    /// HTTP.
    pub fn overloaded(latency: Duration) -> Self {
        Self::status(503, latency)
    }

    /// A transport failure after `latency`.
    pub fn failure(failure: Failure, phase: Phase, latency: Duration) -> Self {
        Self {
            response: UpstreamResponse::Failed { failure, phase },
            latency,
            hint: Hint::default(),
            used: None,
        }
    }

    /// Adds the server's hint.
    pub fn with_hint(self, hint: Hint) -> Self {
        Self { hint, ..self }
    }

    /// Classifies it without a body and without rules.
    #[inline]
    pub fn classify(&self) -> Classification {
        match self.response {
            UpstreamResponse::Status(status) => classify::status(status, &self.hint),
            UpstreamResponse::Failed { failure, .. } => classify::failure(failure),
        }
    }

    /// Whether the server named a wait.
    pub fn is_directed(&self) -> bool {
        self.hint.wait.is_some()
    }

    /// Whether the server may have acted on the request. Not if none of it was written, or if the
    /// server refused the stream. For a response, only the verdict can rule it out.
    pub fn server_may_have_acted(&self) -> bool {
        match self.response {
            UpstreamResponse::Status(_) => true,
            UpstreamResponse::Failed { failure, phase } => {
                phase > Phase::Connecting && failure != Failure::RefusedStream
            }
        }
    }
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamResponse {
    /// A response with this status code.
    Status(u16),
    /// No response.
    Failed {
        /// The kind of failure.
        failure: Failure,
        /// The phase the attempt had reached.
        phase: Phase,
    },
}

/// Why there was no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// The connection was refused or could not be routed.
    Connect,
    /// The name did not resolve.
    Dns,
    /// The TLS handshake failed.
    Tls,
    /// The connection broke.
    Reset,
    /// No response in time.
    Timeout,
    /// The server refused the request unprocessed: HTTP/2 `REFUSED_STREAM`, or a `GOAWAY` that
    /// does not cover it.
    RefusedStream,
}

impl Failure {
    /// The name in records and the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Dns => "dns",
            Self::Tls => "tls",
            Self::Reset => "reset",
            Self::Timeout => "timeout",
            Self::RefusedStream => "refused_stream",
        }
    }
}

/// How far an attempt got before it failed, which decides whether the server may have acted on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Phase {
    /// None of the request was written: the server cannot have acted.
    Connecting,
    /// Part of the request was written.
    Sending,
    /// All of the request was written, none of the response was read.
    Waiting,
    /// Part of the response was read.
    Receiving,
}

impl Phase {
    /// The name in records and the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Sending => "sending",
            Self::Waiting => "waiting",
            Self::Receiving => "receiving",
        }
    }
}

/// The class of an outcome. The table "Verdicts" in `docs/policies/gate.md` lists what each class
/// does to rate, breaker, attempts and ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// 2xx and 3xx.
    Success,
    /// The server refuses because requests come too fast: 429, 503 with a hint, other 4xx that say
    /// so.
    Throttled,
    /// The server is overloaded or broken: 5xx, 408.
    Overloaded,
    /// No response: connect, DNS, TLS, reset, timeout.
    Unreachable,
    /// A quota is used up; resending soon does not help.
    QuotaExhausted,
    /// 401: the credential may need a refresh.
    Unauthorized,
    /// 409 and 412: the request needs reconciliation.
    Conflict,
    /// Any other 4xx: this request will never succeed.
    Rejected,
}

impl Verdict {
    /// All verdicts, in the order of the table.
    pub const ALL: &'static [Self] = &[
        Self::Success,
        Self::Throttled,
        Self::Overloaded,
        Self::Unreachable,
        Self::QuotaExhausted,
        Self::Unauthorized,
        Self::Conflict,
        Self::Rejected,
    ];
}

crate::words! {
    pub Verdict {
        Success = "success",
        Throttled = "throttled",
        Overloaded = "overloaded",
        Unreachable = "unreachable",
        QuotaExhausted = "quota_exhausted",
        Unauthorized = "unauthorized",
        Conflict = "conflict",
        Rejected = "rejected",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classifies_by_status_and_hint_or_by_failure() {
        let hint = Hint {
            remaining: Some(0),
            ..Hint::default()
        };
        let overloaded = Outcome::status(503, Duration::ZERO);
        assert_eq!(overloaded.classify().verdict, Some(Verdict::Overloaded));
        let throttled = overloaded.with_hint(hint);
        assert_eq!(throttled.classify().verdict, Some(Verdict::Throttled));
        let failed = Outcome::failure(Failure::Dns, Phase::Connecting, Duration::ZERO);
        assert_eq!(failed.classify(), classify::failure(Failure::Dns));
    }

    #[test]
    fn non_http_constructors_determine_the_verdict() {
        let latency = Duration::from_millis(40);
        let wait = Duration::from_secs(3);
        let class = |outcome: &Outcome| (outcome.classify().verdict, outcome.is_directed());
        let success = Outcome::success(latency);
        assert_eq!(class(&success), (Some(Verdict::Success), false));
        let overloaded = Outcome::overloaded(latency);
        assert_eq!(class(&overloaded), (Some(Verdict::Overloaded), false));
        let slower = Outcome::throttled(latency, None);
        assert_eq!(class(&slower), (Some(Verdict::Throttled), false));
        assert_eq!(slower.hint, Hint::default());
        let later = Outcome::throttled(latency, Some(wait));
        assert_eq!(class(&later), (Some(Verdict::Throttled), true));
        assert_eq!(later.hint.source, Some(Source::Body));
        assert_eq!((later.hint.wait, later.latency), (Some(wait), latency));
    }

    #[test]
    fn server_cannot_have_acted_if_nothing_was_written_or_the_stream_was_refused() {
        let acted = |failure, phase| {
            Outcome::failure(failure, phase, Duration::ZERO).server_may_have_acted()
        };
        assert!(!acted(Failure::Timeout, Phase::Connecting));
        assert!(!acted(Failure::RefusedStream, Phase::Waiting));
        assert!(acted(Failure::Timeout, Phase::Sending));
        assert!(acted(Failure::Reset, Phase::Waiting));
        assert!(acted(Failure::Reset, Phase::Receiving));
        assert!(Outcome::status(500, Duration::ZERO).server_may_have_acted());
    }
}
