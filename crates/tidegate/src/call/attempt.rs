//! One attempt of a call, and what its function returns.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use policy::classify::{self, rejects_credential};
use policy::hint;
use policy::outcome::{Outcome, UpstreamResponse, Verdict};
use policy::time::Timestamp;

use crate::clock::Clock;
use crate::failure::{never_sent, recognise};

/// An error of any type.
pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// The result of one attempt.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AttemptResult<T> {
    /// The caller's value if this is the last attempt.
    ///
    /// Whether it is the last is only known once the next attempt is admitted, so the value is held
    /// during that wait and dropped when the next attempt starts. Everything it owns is held as
    /// long: over HTTP/1 a response with an unread body occupies its connection. If another attempt
    /// may follow, read the body first and return what was read.
    pub value: T,
    /// The outcome that gates and items learn from; `None` if the attempt was not made.
    pub outcome: Option<Outcome>,
    /// The class of the outcome; `None` changes nothing and completes the call.
    pub verdict: Option<Verdict>,
    /// The start of an error message, for display and for the texts of pools; may be empty. Set by
    /// [`Attempt::classify`].
    pub text: String,
    /// The request cannot be resent whatever its outcome, for example because its body was
    /// streamed.
    pub is_last: bool,
    /// The value holds a response whose body has not been read yet.
    pub has_body: bool,
    /// The response rejects the credential or the account, not the request. In a pool, another
    /// endpoint is tried.
    pub is_credential_rejected: bool,
}

impl<T> AttemptResult<T> {
    /// A result classified by its status and hint.
    pub fn new(value: T, outcome: Outcome) -> Self {
        let verdict = outcome.classify().verdict;
        Self::classified(value, outcome, verdict)
    }

    /// A result classified by the caller, from the body or by its own rules.
    pub fn classified(value: T, outcome: Outcome, verdict: Option<Verdict>) -> Self {
        let is_credential_rejected = match outcome.response {
            UpstreamResponse::Status(status) => rejects_credential(status, verdict, b""),
            UpstreamResponse::Failed { .. } => false,
        };
        Self {
            value,
            outcome: Some(outcome),
            verdict,
            text: String::new(),
            is_last: false,
            has_body: false,
            is_credential_rejected,
        }
    }

    /// Marks the response as a rejection of the credential or the account. A 401, a 402, and a 403
    /// whose [`text`](Self::text) says so are recognised without it, see [`Attempt::classify`].
    pub fn credential_rejected(self) -> Self {
        Self {
            is_credential_rejected: true,
            ..self
        }
    }

    /// An attempt that was not made: the request could not be built, or the client refused it
    /// before sending anything.
    ///
    /// The permit is given back with its tokens and its probe slot. Nothing is learned or counted
    /// as sent, and the call completes with this value, because another attempt would fail the same
    /// way.
    pub fn unsent(value: T) -> Self {
        Self {
            value,
            outcome: None,
            verdict: None,
            text: String::new(),
            is_last: true,
            has_body: false,
            is_credential_rejected: false,
        }
    }

    /// Marks the body as unread. If this is the last attempt, it counts against `max_in_flight`
    /// until the caller drops [`CallResult::in_flight`](super::CallResult::in_flight) or
    /// [`CallError::in_flight`](super::CallError::in_flight).
    pub fn with_body(self) -> Self {
        Self {
            has_body: true,
            ..self
        }
    }

    /// Whether the response rejects the credential or the account.
    pub(super) fn rejects_credential(&self) -> bool {
        let status = match self.outcome.as_ref().map(|outcome| outcome.response) {
            Some(UpstreamResponse::Status(status)) => status,
            Some(UpstreamResponse::Failed { .. }) | None => return false,
        };
        self.is_credential_rejected
            || rejects_credential(status, self.verdict, self.text.as_bytes())
    }

    /// Maps the value.
    pub fn map<U>(self, map: impl FnOnce(T) -> U) -> AttemptResult<U> {
        AttemptResult {
            value: map(self.value),
            outcome: self.outcome,
            verdict: self.verdict,
            text: self.text,
            is_last: self.is_last,
            has_body: self.has_body,
            is_credential_rejected: self.is_credential_rejected,
        }
    }

    /// Marks the request as not resendable. If another attempt would follow, the call ends as
    /// `exhausted` with this value.
    pub fn last(self) -> Self {
        Self {
            is_last: true,
            ..self
        }
    }
}

/// One attempt, passed to the function that makes it.
#[derive(Debug)]
pub struct Attempt {
    /// The attempt's number, counted from 1.
    pub number: u32,
    clock: Clock,
    pub(super) started: Timestamp,
    /// When it is dropped if it has not ended.
    pub(super) deadline: Option<Timestamp>,
}

impl Attempt {
    /// An attempt that starts now.
    pub(crate) fn start(number: u32, clock: &Clock) -> Self {
        Self {
            number,
            clock: clock.clone(),
            started: clock.now(),
            deadline: None,
        }
    }

    /// When it is dropped if it has not ended, by [`Call::attempt_timeout`](crate::Call::attempt_timeout)
    /// or [`Call::within`](crate::Call::within); `None` if it may take any time. Code that reads the body
    /// of an error should stop before, because a dropped attempt is one without a response.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.deadline
    }

    /// Time since the attempt started: the latency for its [`Outcome`] when the response arrives.
    pub fn elapsed(&self) -> Duration {
        self.clock.now().since(self.started)
    }

    /// The outcome of a response with this status and these headers, from which waits and limits are
    /// read, and with the [`elapsed`](Self::elapsed) time as latency.
    ///
    /// ```
    /// # fn example(attempt: &tidegate::Attempt, response: &http::Response<()>) {
    /// let outcome = attempt.response(response.status().as_u16(), response.headers());
    /// let by_hand = attempt.response(429, [("retry-after", "7")]);
    /// # }
    /// ```
    pub fn response<'h, H, N, V>(&self, status: u16, headers: H) -> Outcome
    where
        H: IntoIterator<Item = (&'h N, &'h V)> + Clone,
        N: AsRef<str> + ?Sized + 'h,
        V: AsRef<[u8]> + ?Sized + 'h,
    {
        let response = hint::Response {
            status,
            headers: Headers(headers),
            body: b"",
        };
        let hint = hint::read(&response, Some(self.clock.wall()));
        self.status(status).with_hint(hint)
    }

    /// A result with this outcome, made from the head of a response, and with its body, which may say
    /// more: that a quota is used up, that a key is not valid, how long to wait. It is classified by
    /// the built-in rules, and an error's body becomes the [`text`](AttemptResult::text). The value is
    /// the body; [`map`](AttemptResult::map) makes another one of it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use tidegate::{Limiter, TerminalReason};
    ///
    /// # struct Response(u16, Vec<(String, String)>, String);
    /// # async fn fetch() -> Response {
    /// #     Response(429, Vec::new(), r#"{"error":{"code":"insufficient_quota"}}"#.to_owned())
    /// # }
    /// let limiter = Limiter::new();
    /// let call = limiter.call("api.example.com").run(async |attempt| {
    ///     let Response(status, headers, body) = fetch().await;
    ///     let headers = headers.iter().map(|(name, value)| (name, value));
    ///     let outcome = attempt.response(status, headers);
    ///     attempt.classify(outcome, body)
    /// });
    /// assert_eq!(call.await.unwrap_err().reason, TerminalReason::QuotaExhausted);
    /// # }
    /// ```
    pub fn classify<B: AsRef<[u8]>>(&self, mut outcome: Outcome, body: B) -> AttemptResult<B> {
        let UpstreamResponse::Status(status) = outcome.response else {
            return AttemptResult::new(body, outcome);
        };
        let response = hint::Response {
            status,
            headers: NO_HEADERS,
            body: body.as_ref(),
        };
        let from_body = hint::read(&response, Some(self.clock.wall()));
        let hint = &mut outcome.hint;
        if hint.wait.is_none() && from_body.wait.is_some() {
            (hint.wait, hint.source) = (from_body.wait, from_body.source);
        }
        hint.exceeded = hint.exceeded.or(from_body.exceeded);
        let verdict = classify::response(&[], &response, hint).verdict;
        let is_credential_rejected = rejects_credential(status, verdict, body.as_ref());
        let text = match verdict {
            None | Some(Verdict::Success) => String::new(),
            Some(_) => start_of(body.as_ref()),
        };
        AttemptResult {
            text,
            is_credential_rejected,
            ..AttemptResult::classified(body, outcome, verdict)
        }
    }

    /// An outcome with this status and the [`elapsed`](Self::elapsed) time as latency. It has no
    /// hints: if the response has headers, use [`response`](Self::response).
    pub fn status(&self, status: u16) -> Outcome {
        Outcome::status(status, self.elapsed())
    }
}

/// Those of the head are in the outcome already.
const NO_HEADERS: [(&str, &[u8]); 0] = [];

/// The start of an error's body as text.
fn start_of(body: &[u8]) -> String {
    let start = body.get(..MAX_TEXT).unwrap_or(body);
    String::from_utf8_lossy(start).into_owned()
}

/// Error messages begin within the first few hundred bytes; a pool keeps one for each endpoint.
const MAX_TEXT: usize = 1024;

/// Headers as policies read them.
#[derive(Clone, Copy)]
struct Headers<H>(H);

impl<'h, H, N, V> IntoIterator for Headers<H>
where
    H: IntoIterator<Item = (&'h N, &'h V)>,
    N: AsRef<str> + ?Sized + 'h,
    V: AsRef<[u8]> + ?Sized + 'h,
{
    type Item = (&'h str, &'h [u8]);
    type IntoIter = std::iter::Map<H::IntoIter, fn((&'h N, &'h V)) -> Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0
            .into_iter()
            .map(|(name, value)| (name.as_ref(), value.as_ref()))
    }
}

/// What the function of a call returns: an [`AttemptResult`], or a [`Result`] with one, so that `?`
/// works inside.
///
/// ```
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use tidegate::Limiter;
///
/// # async fn fetch() -> std::io::Result<http::Response<String>> {
/// #     Ok(http::Response::new("hello".to_owned()))
/// # }
/// let limiter = Limiter::new();
/// let called = limiter
///     .call("api.example.com")
///     .run(async |attempt| {
///         let response = fetch().await?;
///         let outcome = attempt.response(response.status().as_u16(), response.headers());
///         Ok(attempt.classify(outcome, response.into_body()))
///     })
///     .await?;
/// assert_eq!(called.value, "hello");
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "an attempt cannot return `{Self}`",
    label = "this function has to return an `AttemptResult`",
    note = "return `AttemptResult::new(value, attempt.response(status, headers))`, or the same in `Ok(…)` if the function uses `?`"
)]
pub trait IntoAttemptResult {
    /// The value of the attempt.
    type Value;

    #[doc(hidden)]
    fn into_attempt_result(self) -> Result<AttemptResult<Self::Value>, AttemptError>;
}

impl<T> IntoAttemptResult for AttemptResult<T> {
    type Value = T;

    fn into_attempt_result(self) -> Result<Self, AttemptError> {
        Ok(self)
    }
}

impl<T> IntoAttemptResult for Result<AttemptResult<T>, AttemptError> {
    type Value = T;

    fn into_attempt_result(self) -> Self {
        self
    }
}

/// An attempt that ended with an error instead of a response. Made from any error by `?`.
///
/// What follows depends on what the error and its sources say:
///
/// | error | gate | call |
/// |---|---|---|
/// | a transport failure: connect, DNS, TLS, reset, timeout | learns from it | resends if that is safe |
/// | nothing was sent: a refusal of a limiter, a request that cannot be built, [`unsent`](Self::unsent) | the permit is given back | ends as `rejected` |
/// | anything else, such as a body that cannot be parsed | learns nothing | ends as `unusable` |
///
/// The error is the [source](Error::source) of the [`CallError`](super::CallError). Use
/// [`with_outcome`](Self::with_outcome) where the attempt knows better.
///
/// It is not an [`Error`] itself, because then not every error could be converted into it.
pub struct AttemptError {
    error: BoxError,
    kind: ErrorKind,
}

enum ErrorKind {
    /// The error and its sources say what happened.
    FromError,
    Unsent,
    /// Boxed, because it is rare and would enlarge every result.
    Known(Box<Outcome>),
}

impl AttemptError {
    /// An attempt that failed with `error`, which decides what follows. For errors that `?` does not
    /// convert, such as those in a box.
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            error: error.into(),
            kind: ErrorKind::FromError,
        }
    }

    /// An attempt that was not made. Nothing is learned, and the call ends, because another attempt
    /// would fail the same way.
    pub fn unsent(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            kind: ErrorKind::Unsent,
            ..Self::new(error)
        }
    }

    /// An attempt with this outcome, whatever the error says.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{AttemptError, Failure, Outcome, Phase};
    ///
    /// let timeout = Outcome::failure(Failure::Timeout, Phase::Waiting, Duration::from_secs(5));
    /// let error = AttemptError::new("the job did not start").with_outcome(timeout);
    /// ```
    pub fn with_outcome(self, outcome: Outcome) -> Self {
        Self {
            kind: ErrorKind::Known(Box::new(outcome)),
            ..self
        }
    }

    /// The error.
    pub fn into_inner(self) -> Box<dyn Error + Send + Sync> {
        self.error
    }

    /// The same error with the outcome that `explain` knows for it, unless it has one already.
    #[cfg(feature = "reqwest")]
    pub(crate) fn explained_by(
        self,
        explain: impl FnOnce(&(dyn Error + 'static)) -> Option<Outcome>,
    ) -> Self {
        match self.kind {
            ErrorKind::FromError => match explain(self.error.as_ref()) {
                Some(outcome) => self.with_outcome(outcome),
                None => self,
            },
            ErrorKind::Unsent | ErrorKind::Known(_) => self,
        }
    }

    /// The error, and what is known of the attempt that ended with it after `latency`.
    pub(crate) fn into_parts(self, latency: Duration) -> (BoxError, FailedAttempt) {
        let error = self.error.as_ref();
        let attempt = match self.kind {
            ErrorKind::Known(outcome) => FailedAttempt::Known(*outcome),
            ErrorKind::Unsent => FailedAttempt::Unsent,
            ErrorKind::FromError if never_sent(error) => FailedAttempt::Unsent,
            ErrorKind::FromError => match recognise(error) {
                Some((failure, phase)) => {
                    FailedAttempt::Known(Outcome::failure(failure, phase, latency))
                }
                None => FailedAttempt::Unknown,
            },
        };
        (self.error, attempt)
    }
}

/// An attempt that ended with an error.
pub(crate) enum FailedAttempt {
    Known(Outcome),
    Unsent,
    Unknown,
}

impl<E: Error + Send + Sync + 'static> From<E> for AttemptError {
    fn from(error: E) -> Self {
        Self::new(error)
    }
}

impl fmt::Debug for AttemptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}
