//! Whom a mock speaks like: headers that tell of the limit, words that refuse, and contents.

mod github;
mod openai;
mod plain;

use http::{HeaderMap, HeaderValue};

pub(super) use plain::body as plain_body;

use super::desk::Desk;
use super::handle::{Answer, Call};
use super::model::Planned;

/// Whom a mock speaks like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// Like nobody in particular: short JSON, and words that say what happened.
    #[default]
    Plain,
    /// Like GitHub's API: its headers on every answer, a quota and secondary limits.
    Github,
    /// Like OpenAI's API: chat completions, also streamed, embeddings and models.
    Openai,
}

impl Style {
    /// Does it tell of its limit on every answer, whether asked to or not?
    pub(super) fn always_tells(self) -> bool {
        match self {
            Self::Plain => false,
            Self::Github | Self::Openai => true,
        }
    }

    /// The answer at a path that takes nothing from the limit, if this is one.
    pub(super) fn free(self, desk: &Desk, path: &str) -> Option<Answer> {
        (self == Self::Github && path == github::RATE_LIMIT).then(|| github::rate_limit(desk))
    }

    /// The answer to a request that is served.
    pub(super) async fn content(self, call: Call<'_>) -> Answer {
        match self {
            Self::Plain => plain::content(call).await,
            Self::Github => github::content(call).await,
            Self::Openai => openai::content(call).await,
        }
    }

    /// The answer to a request that is not.
    pub(super) fn without_content(self, call: &Call<'_>) -> Answer {
        match self {
            Self::Plain => plain::without_content(call),
            Self::Github => github::without_content(call),
            Self::Openai => openai::without_content(call),
        }
    }

    /// Adds what every answer tells of the limit.
    pub(super) fn tell(self, desk: &Desk, planned: &Planned, headers: &mut HeaderMap) {
        if let Some(seconds) = planned.retry_after {
            headers.insert(http::header::RETRY_AFTER, seconds.into());
        }
        match self {
            Self::Plain => plain::tell(planned, headers),
            Self::Github => github::tell(desk, planned, headers),
            Self::Openai => openai::tell(planned, headers),
        }
    }
}

fn set(headers: &mut HeaderMap, name: &'static str, value: impl Into<HeaderValue>) {
    headers.insert(name, value.into());
}

/// The same for a text that is made here and has no strange characters.
fn set_text(headers: &mut HeaderMap, name: &'static str, text: &[u8]) {
    if let Ok(value) = HeaderValue::from_bytes(text) {
        headers.insert(name, value);
    }
}

/// Statuses that never have a body.
fn is_bare(status: u16) -> bool {
    matches!(status, 204 | 205 | 304)
}
