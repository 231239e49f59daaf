//! Times and sizes of single requests, of decision trails and of jobs.

use std::time::Duration;

use policy::limits::Limit;
use policy::setting;

use super::reader::Section;
use super::value::{self, Size};

/// `[http]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http {
    /// Until a connection stands, name lookup and TLS included.
    pub connect_timeout: Duration,
    /// From the request's end to the answer's first byte.
    pub first_byte_timeout: Duration,
    /// Between two pieces of a body, and of a connection that nobody uses.
    pub idle_timeout: Duration,
    /// The longest request body that is passed on.
    pub max_body: Size,
    /// So many bytes of a request body are kept for sending it again.
    pub replay_buffer: u64,
}

impl Http {
    pub(crate) fn read(section: &Section<'_>) -> Self {
        let default = Self::default();
        let duration =
            |name: &str, default| section.read(name, setting::positive).unwrap_or(default);
        let http = Self {
            connect_timeout: duration("connect_timeout", default.connect_timeout),
            first_byte_timeout: duration("first_byte_timeout", default.first_byte_timeout),
            idle_timeout: duration("idle_timeout", default.idle_timeout),
            max_body: section
                .read("max_body", str::parse)
                .unwrap_or(default.max_body),
            replay_buffer: section
                .read("replay_buffer", value::bounded)
                .unwrap_or(default.replay_buffer),
        };
        if let Size::Bytes(most) = http.max_body
            && section.node("replay_buffer").is_some()
            && http.replay_buffer > most
        {
            section.expected(
                "replay_buffer",
                format!("at most `max_body` ({})", http.max_body),
            );
        }
        http
    }
}

impl Default for Http {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            first_byte_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(60),
            max_body: Size::None,
            replay_buffer: 1 << 20,
        }
    }
}

/// `[trails]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trails {
    /// Decision trails that are kept in memory; the oldest goes first.
    pub keep: u32,
}

impl Trails {
    pub(crate) fn read(section: &Section<'_>) -> Self {
        let keep = section.read("keep", |text| setting::whole(text, 0, 10_000_000));
        Self {
            keep: keep.unwrap_or_else(|| Self::default().keep),
        }
    }
}

impl Default for Trails {
    fn default() -> Self {
        Self { keep: 10_000 }
    }
}

/// `[jobs]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jobs {
    /// Status requests per client and job; more are answered 429.
    pub status_limit: Limit,
    /// Whether such an answer says when to come back.
    pub status_retry_after: bool,
}

impl Jobs {
    pub(crate) fn read(section: &Section<'_>) -> Self {
        let default = Self::default();
        Self {
            status_limit: section
                .read("status_limit", str::parse)
                .unwrap_or(default.status_limit),
            status_retry_after: section
                .read("status_retry_after", setting::switch)
                .unwrap_or(default.status_retry_after),
        }
    }
}

impl Default for Jobs {
    fn default() -> Self {
        Self {
            status_limit: Limit::new(60, Duration::from_secs(60)).expect("both are above zero"),
            status_retry_after: true,
        }
    }
}
