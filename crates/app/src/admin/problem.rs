//! Problems of calls: `application/problem+json`.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};

use super::bodies::{InvalidField, Problem};
use crate::state::{ChangeError, InvalidValue};

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) kind: Kind,
    pub(super) detail: String,
    pub(super) problems: Vec<InvalidValue>,
}

/// What kind of problem it is: its status, a word for programs and a title for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    BadRequest,
    NoToken,
    CrossSite,
    AddressNotAllowed,
    NotFound,
    MethodNotAllowed,
    BodyTooLarge,
    NotJson,
    WrongHost,
    Invalid,
    TooManyStreams,
    StoreFailed,
    TooManyGates,
    Draining,
}

impl Kind {
    pub(super) const ALL: [Self; 14] = [
        Self::BadRequest,
        Self::NoToken,
        Self::CrossSite,
        Self::AddressNotAllowed,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::BodyTooLarge,
        Self::NotJson,
        Self::WrongHost,
        Self::Invalid,
        Self::TooManyStreams,
        Self::StoreFailed,
        Self::TooManyGates,
        Self::Draining,
    ];

    pub(super) const fn status(self) -> StatusCode {
        match self {
            Self::BadRequest => StatusCode::BAD_REQUEST,
            Self::NoToken => StatusCode::UNAUTHORIZED,
            Self::CrossSite | Self::AddressNotAllowed => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::NotJson => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::WrongHost => StatusCode::MISDIRECTED_REQUEST,
            Self::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            Self::TooManyStreams | Self::StoreFailed | Self::TooManyGates | Self::Draining => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    pub(super) const fn reason(self) -> &'static str {
        match self {
            Self::BadRequest => "bad_request",
            Self::NoToken => "no_token",
            Self::CrossSite => "cross_site",
            Self::AddressNotAllowed => "address_not_allowed",
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::BodyTooLarge => "body_too_large",
            Self::NotJson => "not_json",
            Self::WrongHost => "wrong_host",
            Self::Invalid => "invalid",
            Self::TooManyStreams => "too_many_streams",
            Self::StoreFailed => "store_failed",
            Self::TooManyGates => "too_many_gates",
            Self::Draining => "draining",
        }
    }

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::BadRequest => "The request cannot be read",
            Self::NoToken => "The admin token is needed",
            Self::CrossSite => "Requests of other sites are refused",
            Self::AddressNotAllowed => "This address must not be dialled",
            Self::NotFound => "Not found",
            Self::MethodNotAllowed => "Method not allowed",
            Self::BodyTooLarge => "The body is too long",
            Self::NotJson => "The body is not JSON",
            Self::WrongHost => "Wrong host name",
            Self::Invalid => "Some values are invalid",
            Self::TooManyStreams => "Too many event streams",
            Self::StoreFailed => "The change cannot be stored",
            Self::TooManyGates => "Too many gates",
            Self::Draining => "The server is stopping",
        }
    }
}

impl Refused {
    pub(super) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into(),
            problems: Vec::new(),
        }
    }

    pub(super) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(Kind::NotFound, detail)
    }

    /// With all invalid values.
    pub(super) fn invalid(problems: Vec<InvalidValue>) -> Self {
        let details: Vec<String> = problems.iter().map(described).collect();
        Self {
            kind: Kind::Invalid,
            detail: details.join("; "),
            problems,
        }
    }

    /// In place of a response that the router made without a problem body.
    pub(super) fn instead_of(status: StatusCode, headers: &HeaderMap) -> Self {
        let kind = Kind::ALL.into_iter().find(|kind| kind.status() == status);
        match kind.unwrap_or(Kind::BadRequest) {
            Kind::MethodNotAllowed => {
                let allowed = headers.get(ALLOW).and_then(|allowed| allowed.to_str().ok());
                let allowed = allowed.unwrap_or("another").replace(',', ", ");
                Self::new(Kind::MethodNotAllowed, format!("expected {allowed}"))
            }
            kind => Self::new(kind, "the address of the request cannot be read"),
        }
    }
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
            Kind::TooManyStreams | Kind::StoreFailed | Kind::TooManyGates => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("5"));
            }
            _ => {}
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
            ChangeError::AddressNotAllowed(_) => Self::new(Kind::AddressNotAllowed, detail),
            ChangeError::TooManyGates(_) => Self::new(Kind::TooManyGates, detail),
            ChangeError::Store(_) => Self::new(Kind::StoreFailed, detail),
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
