//! Hints: what a server says about pace, in headers and bodies.
//!
//! One reader for all dialects, because hand-written ones make the same mistakes: `1m30s` read as
//! one second, a date ignored, Unix time treated as a number of seconds to wait. The wait is the
//! first of:
//! 1. the longest of `Retry-After` and its variants in milliseconds;
//! 2. the reset of the binding limit, if nothing remains of it, or on a 429 or 503 whose headers do
//!    not say what remains;
//! 3. the longest wait in the body, unless the response is a 2xx or 3xx, where it is content.
//!
//! Every value is rounded up to milliseconds, because clients that return early get banned.
//! Absolute times are read relative to the server's `Date`, so a wrong clock on either side does
//! not matter. A time equal to now is a wait of zero; a time in the past is no hint.
//!
//! Reading never fails and takes linear time on any input, in one pass over the headers. It
//! allocates only for the name of a limit and for quotas of tokens.

mod body;
mod date;
mod delay;
mod exceeded;
mod field;
mod limits;
mod number;
mod source;
mod span;

use std::time::Duration;

use self::delay::{Delay, Longest, Unit};
use self::limits::Limits;
pub use self::source::Source;
use crate::time::WallTime;

/// What a server says about pace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hint {
    /// Send nothing before this much time has passed. A hint with a wait is *directed*.
    pub wait: Option<Duration>,
    /// Where the wait was read; without a wait, the header of the reset, the remaining count or the
    /// limit, whichever is present first in this order.
    pub source: Option<Source>,
    /// Requests or tokens left in the current period.
    pub remaining: Option<u64>,
    /// Time until the current period ends.
    pub reset: Option<Duration>,
    /// Requests or tokens per period.
    pub limit: Option<u64>,
    /// The period's length.
    pub period: Option<Duration>,
    /// What the limit counts, if the server says so.
    pub scope: Option<Scope>,
    /// What remains of tokens and of requests, if the headers name tokens. The fields above describe
    /// only the binding one of all limits.
    pub quotas: Option<Box<Quotas>>,
    /// Which limit a refusal names in its body.
    pub exceeded: Option<Exceeded>,
}

/// What remains of a language model's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quotas {
    /// Tokens.
    pub tokens: Quota,
    /// Requests, if the headers name them too.
    pub requests: Option<Quota>,
}

/// What remains of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quota {
    /// How much the server allows in a period, or holds when it is full.
    pub limit: Option<u64>,
    /// How much is left.
    pub remaining: u64,
    /// Time until the period ends, or until all of the limit is there again.
    pub reset: Option<Duration>,
}

/// Which limit of a language model a refusal names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exceeded {
    /// The limit on requests.
    Requests,
    /// A limit on tokens.
    Tokens,
}

/// What a limit counts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scope {
    /// Requests.
    Requests,
    /// Tokens of a language model.
    Tokens,
    /// The server's own name for the policy.
    Named(Box<str>),
}

impl Scope {
    /// `requests`, `tokens` or the policy's name.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Requests => "requests",
            Self::Tokens => "tokens",
            Self::Named(name) => name,
        }
    }

    /// The scope for a server's `name`. Names are shown to people, so control characters and
    /// invalid UTF-8 are replaced.
    fn named(name: &[u8]) -> Self {
        match name {
            b"requests" => Self::Requests,
            b"tokens" => Self::Tokens,
            _ => {
                let name = String::from_utf8_lossy(name);
                let shown = name.chars().filter(|&letter| letter != '\\');
                Self::Named(shown.map(printable).collect())
            }
        }
    }
}

fn printable(letter: char) -> char {
    if letter.is_control() {
        char::REPLACEMENT_CHARACTER
    } else {
        letter
    }
}

/// A borrowed response, as hints and verdicts read it.
#[derive(Clone, Debug)]
pub struct Response<'a, H> {
    /// The status code.
    pub status: u16,
    /// Header names (any case) and values, in the order received.
    pub headers: H,
    /// The start of the body; may be empty.
    pub body: &'a [u8],
}

impl<'a, H> Response<'a, H> {
    /// The part of the body that is read.
    pub(crate) fn read_body(&self) -> &'a [u8] {
        self.body.get(..MAX_BODY).unwrap_or(self.body)
    }
}

/// Error bodies say what is wrong within a few KiB.
const MAX_BODY: usize = 64 * 1024;

/// Reads the hint of `response`. Absolute times are read relative to its `Date` header, else to
/// `now`; without either they are ignored.
///
/// ```
/// use std::time::Duration;
///
/// # use tidegate_policy as tidegate;
/// use tidegate::hint::{self, Response, Source};
///
/// let headers: [(&str, &[u8]); 1] = [("Retry-After", b"1m30s")];
/// let response = Response { status: 429, headers, body: b"" };
/// let hint = hint::read(&response, None);
/// assert_eq!(hint.wait, Some(Duration::from_secs(90)));
/// assert_eq!(hint.source, Some(Source::RetryAfter));
/// ```
pub fn read<'a, H>(response: &Response<'a, H>, now: Option<WallTime>) -> Hint
where
    H: IntoIterator<Item = (&'a str, &'a [u8])> + Clone,
{
    let mut statements = Statements::default();
    for (name, value) in response.headers.clone() {
        statements.header(name, value, now);
    }
    let names_nothing = statements.limits.is_none() && statements.waits == Longest::default();
    let may_be_content = matches!(response.status, 200..400);
    let mut hint = Hint::default();
    if names_nothing && (may_be_content || response.body.is_empty()) {
        return hint;
    }
    let server_now = statements.server_date(now).or(now);
    if let Some(limits) = &mut statements.limits {
        limits.fill(&mut hint, response.status, server_now);
    }
    let mut wait = statements.waits.from(server_now);
    if !may_be_content {
        if wait.is_none() && hint.wait.is_none() {
            wait = body::read(response.read_body(), now).from(server_now);
        }
        hint.exceeded = exceeded::read(response.read_body());
    }
    if let Some((wait, source)) = wait {
        hint.wait = Some(wait);
        hint.source = Some(source);
    }
    hint
}

/// What the headers say so far.
#[derive(Debug, Default)]
struct Statements<'a> {
    waits: Longest,
    /// Parsed only if an absolute time needs it: nearly every response has this header.
    date: Option<&'a [u8]>,
    /// Created by the first header about a limit: most responses have none.
    limits: Option<Limits<'a>>,
}

impl<'a> Statements<'a> {
    fn header(&mut self, name: &str, value: &'a [u8], now: Option<WallTime>) {
        if name.eq_ignore_ascii_case("date") {
            self.date = self.date.or(Some(value));
            return;
        }
        let Some(source) = Source::of_header(name) else {
            return;
        };
        // A longer value is ignored: a truncated value could be a shorter wait.
        if value.len() > MAX_VALUE {
            return;
        }
        match source {
            Source::RetryAfter => self.wait(value, Unit::Seconds, source, now),
            Source::RetryAfterMs | Source::XMsRetryAfterMs | Source::XAmzRetryAfter => {
                self.wait(value, Unit::Milliseconds, source, now);
            }
            _ => {
                let limits = self.limits.get_or_insert_default();
                limits.read(source, value, now);
            }
        }
    }

    fn server_date(&self, now: Option<WallTime>) -> Option<WallTime> {
        let date = self.date.filter(|date| date.len() <= MAX_VALUE)?;
        date::http(date.trim_ascii(), now).map(WallTime::from_unix_millis)
    }

    fn wait(&mut self, value: &[u8], unit: Unit, source: Source, now: Option<WallTime>) {
        for delay in Delay::all(value, unit, now) {
            self.waits.add(delay, source);
        }
    }
}

/// Many times the longest sensible value.
const MAX_VALUE: usize = 4 * 1024;
