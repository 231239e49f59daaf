//! What a server says about pace, in every dialect we know.

use std::time::Duration;

use crate::time::WallTime;

/// What a server said about pace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hint {
    /// Do not come back before this much time has passed. A hint with a wait is *directed*.
    pub wait: Option<Duration>,
    /// Where the wait, or else the rest, was read.
    pub source: Option<Source>,
    /// Requests (or tokens) left in the present period.
    pub remaining: Option<u64>,
    /// Time until the present period ends.
    pub reset: Option<Duration>,
    /// How many the period allows.
    pub limit: Option<u64>,
    /// The period's length.
    pub period: Option<Duration>,
    /// What is counted, where the server says so.
    pub scope: Option<Scope>,
}

/// Where a hint was read: shown to people, so that every wait can be traced to its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `Retry-After`.
    RetryAfter,
    /// The answer's body.
    Body,
    /// Nowhere: the policy's own step, because the server named no wait.
    Assumed,
}

impl Source {
    /// The header's name in lower case, `body` or `assumed`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RetryAfter => "retry-after",
            Self::Body => "body",
            Self::Assumed => "assumed",
        }
    }
}

/// What a limit counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Requests.
    Requests,
    /// Tokens of a language model.
    Tokens,
    /// The server's own name for the policy.
    Named(Box<str>),
}

/// An answer as hints and verdicts read it: borrowed, in one pass, without copying headers.
#[derive(Clone, Debug)]
pub struct Response<'a, H> {
    /// The status code.
    pub status: u16,
    /// Header names (any case) and values, in the order received.
    pub headers: H,
    /// The beginning of the body, as much of it as was kept; may be empty.
    pub body: &'a [u8],
}

/// Reads the hint of `response`. Absolute times are read against its `Date` header, else against
/// `now`, else they are no hint.
pub fn read<'a, H>(response: &Response<'a, H>, now: Option<WallTime>) -> Hint
where
    H: IntoIterator<Item = (&'a str, &'a [u8])> + Clone,
{
    let _ = (response, now);
    Hint::default()
}
