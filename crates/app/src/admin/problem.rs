//! Problems of calls: `application/problem+json`.

use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};
use policy::duration::whole_seconds;
use store::operations::DecisionError;

use super::bodies::{InvalidField, Problem};
use crate::state::{AcceptError, ChangeError, InvalidValue, OperationError, PUBLIC};

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) kind: Kind,
    pub(super) detail: String,
    pub(super) problems: Vec<InvalidValue>,
    /// When it may be sent again, if that depends on the call and not on its kind.
    retry_after: Option<Duration>,
}

/// Defines the kinds of problems: status, a word for programs and a title for people.
macro_rules! kinds {
    ($($Kind:ident: $STATUS:ident, $reason:literal, $title:literal;)+) => {
        /// What kind of problem it is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Kind {
            $($Kind,)+
        }

        impl Kind {
            pub(super) const ALL: &[Self] = &[$(Self::$Kind),+];

            pub(super) const fn status(self) -> StatusCode {
                match self {
                    $(Self::$Kind => StatusCode::$STATUS,)+
                }
            }

            pub(super) const fn reason(self) -> &'static str {
                match self {
                    $(Self::$Kind => $reason,)+
                }
            }

            pub(super) const fn title(self) -> &'static str {
                match self {
                    $(Self::$Kind => $title,)+
                }
            }
        }
    };
}

kinds! {
    BadRequest: BAD_REQUEST, "bad_request", "The request cannot be read";
    NoToken: UNAUTHORIZED, "no_token", "The admin token is needed";
    CrossSite: FORBIDDEN, "cross_site", "Requests of other sites are refused";
    AddressNotAllowed: FORBIDDEN, "address_not_allowed", "This address must not be dialled";
    NotFound: NOT_FOUND, "not_found", "Not found";
    MethodNotAllowed: METHOD_NOT_ALLOWED, "method_not_allowed", "Method not allowed";
    BodyTooLarge: PAYLOAD_TOO_LARGE, "body_too_large", "The body is too long";
    NotJson: UNSUPPORTED_MEDIA_TYPE, "not_json", "The body is not JSON";
    WrongHost: MISDIRECTED_REQUEST, "wrong_host", "Wrong host name";
    Invalid: UNPROCESSABLE_ENTITY, "invalid", "Some values are invalid";
    KeyReused: UNPROCESSABLE_ENTITY, "idempotency_key_reused", "The idempotency key belongs to another request";
    TooManyOperations: TOO_MANY_REQUESTS, "queue_full", "Too many operations are stored";
    TooManyJobs: TOO_MANY_REQUESTS, "queue_full", "Too many jobs are queued";
    TooManySimulations: TOO_MANY_REQUESTS, "too_many_simulations", "Too many simulations";
    StatusLimit: TOO_MANY_REQUESTS, "status_limit", "Too many status requests";
    WrongState: CONFLICT, "wrong_state", "Not possible in the present state";
    TooManyStreams: SERVICE_UNAVAILABLE, "too_many_streams", "Too many event streams";
    StoreFailed: SERVICE_UNAVAILABLE, "store_failed", "The change cannot be stored";
    StoreUnavailable: SERVICE_UNAVAILABLE, "store_unavailable", "The store is not available";
    TooManyGates: SERVICE_UNAVAILABLE, "too_many_gates", "Too many gates";
    Draining: SERVICE_UNAVAILABLE, "draining", "The server is stopping";
}

impl Refused {
    pub(super) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into(),
            problems: Vec::new(),
            retry_after: None,
        }
    }

    /// With a time after which it may be sent again.
    pub(super) fn retry_after(self, wait: Duration) -> Self {
        Self {
            retry_after: Some(wait),
            ..self
        }
    }

    pub(super) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(Kind::NotFound, detail)
    }

    /// With all invalid values.
    pub(super) fn invalid(problems: Vec<InvalidValue>) -> Self {
        let details: Vec<String> = problems.iter().map(described).collect();
        Self {
            problems,
            ..Self::new(Kind::Invalid, details.join("; "))
        }
    }

    /// These URLs have addresses that must not be dialled.
    pub(super) fn address_not_allowed(urls: Vec<InvalidValue>, detail: String) -> Self {
        Self {
            problems: urls,
            ..Self::new(Kind::AddressNotAllowed, detail)
        }
    }

    /// In place of a response that the router made without a problem body.
    pub(super) fn instead_of(status: StatusCode, headers: &HeaderMap) -> Self {
        let kind = Kind::ALL.iter().find(|kind| kind.status() == status);
        match kind.copied().unwrap_or(Kind::BadRequest) {
            Kind::MethodNotAllowed => {
                let allowed = headers.get(ALLOW).and_then(|allowed| allowed.to_str().ok());
                let allowed = allowed.unwrap_or("another").replace(',', ", ");
                Self::new(Kind::MethodNotAllowed, format!("expected {allowed}"))
            }
            kind => Self::new(kind, "the address of the request cannot be read"),
        }
    }
}

/// The URL of a request that has only one.
fn not_public(host: String) -> Vec<InvalidValue> {
    vec![InvalidValue {
        field: "url".to_owned(),
        value: Some(host),
        expected: PUBLIC.to_owned(),
    }]
}

fn described(wrong: &InvalidValue) -> String {
    let InvalidValue {
        field,
        value,
        expected,
    } = wrong;
    match value {
        Some(value) => format!("`{field}` is `{value}`, expected {expected}"),
        None => format!("`{field}`: {expected}"),
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = self.kind.status();
        let problem = Problem {
            kind: format!("urn:tidegate:problem:{}", self.kind.reason()),
            title: self.kind.title().to_owned(),
            status: status.as_u16(),
            detail: self.detail,
            reason: self.kind.reason().to_owned(),
            problems: self.problems.into_iter().map(InvalidField::from).collect(),
        };
        let text = serde_json::to_string(&problem).unwrap_or_default();
        let mut answer = Response::new(Body::from(text));
        *answer.status_mut() = status;
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, PROBLEM);
        match self.kind {
            Kind::NoToken => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            Kind::TooManyStreams
            | Kind::StoreFailed
            | Kind::StoreUnavailable
            | Kind::TooManyOperations
            | Kind::TooManyJobs
            | Kind::TooManySimulations
            | Kind::TooManyGates
            | Kind::Draining => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("5"));
            }
            _ => {}
        }
        if let Some(wait) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(whole_seconds(wait)));
        }
        answer
    }
}

pub(super) const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");

impl From<ChangeError> for Refused {
    fn from(error: ChangeError) -> Self {
        let detail = error.to_string();
        match error {
            ChangeError::NoPool { .. } | ChangeError::NoEndpoint { .. } => Self::not_found(detail),
            ChangeError::Invalid(invalid) => Self::invalid(invalid),
            ChangeError::AddressNotAllowed(host) => {
                Self::address_not_allowed(not_public(host), detail)
            }
            ChangeError::TooManyGates(_) => Self::new(Kind::TooManyGates, detail),
            ChangeError::Store(_) => Self::new(Kind::StoreFailed, detail),
        }
    }
}

impl From<AcceptError> for Refused {
    fn from(error: AcceptError) -> Self {
        let detail = error.to_string();
        match error {
            AcceptError::Invalid(invalid) => Self::invalid(invalid),
            AcceptError::AddressNotAllowed(host) => {
                Self::address_not_allowed(not_public(host), detail)
            }
            AcceptError::BodyTooLarge { .. } => Self::new(Kind::BodyTooLarge, detail),
            AcceptError::TooMany { .. } => Self::new(Kind::TooManyOperations, detail),
            AcceptError::KeyReused => Self::new(Kind::KeyReused, detail),
            AcceptError::Store(_) => Self::new(Kind::StoreUnavailable, detail),
        }
    }
}

impl From<OperationError> for Refused {
    fn from(error: OperationError) -> Self {
        let detail = error.to_string();
        match error {
            OperationError::Decision(DecisionError::Unknown) => Self::not_found(detail),
            OperationError::Decision(DecisionError::Illegal(_)) => {
                Self::new(Kind::WrongState, detail)
            }
            OperationError::BodyTooLarge { .. } => Self::new(Kind::BodyTooLarge, detail),
            OperationError::Store(_) => Self::new(Kind::StoreUnavailable, detail),
        }
    }
}

impl From<InvalidValue> for InvalidField {
    fn from(wrong: InvalidValue) -> Self {
        Self {
            field: wrong.field,
            value: wrong.value,
            expected: wrong.expected,
        }
    }
}
