//! The reason for a verdict.

use std::fmt;

use crate::hint::Source;
use crate::outcome::Failure;

/// The reason for a verdict. Its text contains nothing from the response, so that no payload
/// reaches a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// The rule with this number, counted from 1.
    Rule(usize),
    /// A code in the body, as spelled in our list.
    Code(&'static str),
    /// Words in the body.
    Text(&'static str),
    /// The status alone.
    Status(u16),
    /// The status together with a hint from this source.
    StatusWithHint(u16, Source),
    /// A header that names a wait.
    Header(Source),
    /// A header that says nothing remains, if known which.
    NothingRemaining(Option<Source>),
    /// No response.
    Failure(Failure),
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(number) => write!(f, "rule {number}"),
            Self::Code(code) => write!(f, "body code `{code}`"),
            Self::Text(words) => write!(f, "text `{words}`"),
            Self::Status(status) => write!(f, "status {status}"),
            Self::StatusWithHint(status, Source::Body) => {
                write!(f, "status {status} with a wait in the body")
            }
            Self::StatusWithHint(status, source) => write!(f, "status {status} with `{source}`"),
            Self::Header(source) => write!(f, "header `{source}`"),
            Self::NothingRemaining(Some(source)) => write!(f, "nothing remaining (`{source}`)"),
            Self::NothingRemaining(None) => f.write_str("nothing remaining"),
            Self::Failure(failure) => f.write_str(match failure {
                Failure::Connect => "connect failed",
                Failure::Dns => "name not resolved",
                Failure::Tls => "TLS handshake failed",
                Failure::Reset => "connection reset",
                Failure::Timeout => "timeout",
                Failure::RefusedStream => "stream refused",
            }),
        }
    }
}
