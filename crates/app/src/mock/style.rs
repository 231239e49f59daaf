//! The APIs that a mock can imitate: headers about the limit, refusals and contents.

mod github;
mod openai;
mod plain;

use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use hyper::body::Incoming;
use serde_json::Value;

pub(super) use plain::body as plain_body;

use super::handle::{MockRequest, MockResponse};
use super::model::PlannedResponse;
use super::state::MockState;

/// The API that a mock imitates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// No particular API: short JSON.
    #[default]
    Plain,
    /// GitHub: its headers on every response, a quota and secondary limits.
    Github,
    /// OpenAI: chat completions, also streamed, embeddings and models.
    Openai,
}

impl Style {
    /// Whether every response carries the limit, also without `headers`.
    pub(super) fn always_sends_limit(self) -> bool {
        match self {
            Self::Plain => false,
            Self::Github | Self::Openai => true,
        }
    }

    /// The response at a path that is not limited; `None` for other paths.
    pub(super) fn unlimited(self, state: &MockState, path: &str) -> Option<MockResponse> {
        (self == Self::Github && path == github::RATE_LIMIT).then(|| github::rate_limit(state))
    }

    /// What a request costs, and its body if that was read to know it: with OpenAI its tokens, else
    /// `cost` of its query, 1 without that.
    pub(super) async fn cost(
        self,
        state: &MockState,
        head: &Parts,
        body: &mut Incoming,
    ) -> (u32, Option<Result<Value, MockResponse>>) {
        match self {
            Self::Openai => openai::cost(state, head, body).await,
            Self::Plain | Self::Github => (plain::cost(head.uri.query()), None),
        }
    }

    /// The response with status 200.
    pub(super) async fn success(self, request: MockRequest<'_>) -> MockResponse {
        match self {
            Self::Plain => plain::success(request).await,
            Self::Github => github::success(request).await,
            Self::Openai => openai::success(request).await,
        }
    }

    /// The response with another status.
    pub(super) fn failure(self, request: &MockRequest<'_>) -> MockResponse {
        match self {
            Self::Plain => plain::failure(request),
            Self::Github => github::failure(request),
            Self::Openai => openai::failure(request),
        }
    }

    /// Adds the headers about the limit.
    pub(super) fn add_headers(
        self,
        state: &MockState,
        planned: &PlannedResponse,
        headers: &mut HeaderMap,
    ) {
        if let Some(seconds) = planned.retry_after {
            headers.insert(http::header::RETRY_AFTER, seconds.into());
        }
        match self {
            Self::Plain => plain::add_headers(planned, headers),
            Self::Github => github::add_headers(state, planned, headers),
            Self::Openai => openai::add_headers(planned, headers),
        }
    }
}

fn set(headers: &mut HeaderMap, name: &'static str, value: impl Into<HeaderValue>) {
    headers.insert(name, value.into());
}

/// The same for text; nothing if it is no valid header value.
fn set_text(headers: &mut HeaderMap, name: &'static str, text: &[u8]) {
    if let Ok(value) = HeaderValue::from_bytes(text) {
        headers.insert(name, value);
    }
}

/// Whether responses with this status have no body.
pub(super) fn has_no_body(status: u16) -> bool {
    matches!(status, 204 | 205 | 304)
}
