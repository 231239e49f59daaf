//! Responses that Tidegate makes itself: a status, a reason in one word, and what to do about it.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, PROXY_AUTHENTICATE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use policy::duration::{Rounded, whole_seconds};
use serde_json::json;

use super::body::ServedBody;
use super::trails::RequestId;
use crate::metrics::RequestOutcome;
use crate::tls::NOT_TLS;

/// Why a request gets a response of the gateway's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GatewayError {
    /// Its turn would come later than its client can wait.
    WaitTooLong {
        /// From now on.
        wait: Option<Duration>,
    },
    /// The gate's line is full.
    QueueFull {
        /// From now on.
        wait: Option<Duration>,
    },
    /// The breaker is open for longer than its client can wait.
    BreakerOpen {
        /// From now on.
        wait: Option<Duration>,
    },
    /// Every endpoint is disabled, or paused for longer than its client can wait.
    NoEndpoint {
        /// From now on; `None` if a person has to enable one.
        wait: Option<Duration>,
    },
    /// No place in flight was free in time; at an endpoint that recovers there is one.
    InFlight,
    /// The process has no descriptor left for a connection.
    NoDescriptors,
    /// There is no room for another gate.
    TooManyGates,
    /// The gateway is about to stop.
    Draining,
    /// Its deadline passed while it waited.
    Deadline,
    /// No endpoint responded; in a few words.
    Unreachable(String),
    /// It has no token, or a wrong one.
    NoToken,
    /// In forward mode it has no token, or a wrong one.
    NoProxyToken,
    /// Its client has sent as much as it may.
    ClientLimit {
        /// From now on.
        wait: Duration,
    },
    /// It names another host, as requests to a proxy do.
    HostNotAllowed,
    /// Its endpoint's name leads to an address that must not be dialled.
    AddressNotAllowed,
    /// It comes from a web page whose origin is not allowed.
    CrossSite,
    /// Its `Host` is none of ours.
    WrongHost,
    /// Its body is longer than is passed on.
    BodyTooLarge,
    /// Its head is longer than is read.
    HeadersTooLarge,
    /// Its path leads to no pool. Which there are, in a few words.
    NoRoute(String),
    /// Its body paused for too long, or broke off.
    BodyIncomplete,
    /// It came from this gateway.
    LoopDetected,
    /// Its `Tidegate-Max-Wait` or `Prefer` cannot be read.
    BadWait,
    /// Its `Tidegate-Cost` cannot be read.
    BadCost,
    /// It was to become an operation, which cannot be stored.
    StoreUnavailable,
    /// It was to become an operation, and as many are stored as may be.
    TooManyOperations,
    /// Its idempotency key was used for another request.
    KeyReused,
    /// It is not HTTP, or its framing contradicts itself. Its connection is closed.
    BadRequest,
    /// It is not encrypted, on a port that speaks TLS. Its connection is closed.
    NotTls,
}

impl GatewayError {
    /// How it counts in metrics and logs.
    pub fn outcome(&self) -> RequestOutcome {
        match self {
            Self::WaitTooLong { .. } => RequestOutcome::WaitTooLong,
            Self::QueueFull { .. } | Self::TooManyOperations => RequestOutcome::QueueFull,
            Self::BreakerOpen { .. } => RequestOutcome::BreakerOpen,
            Self::NoEndpoint { .. } => RequestOutcome::NoEndpoint,
            Self::InFlight => RequestOutcome::InFlight,
            Self::NoDescriptors => RequestOutcome::NoDescriptors,
            Self::TooManyGates => RequestOutcome::TooManyGates,
            Self::Draining => RequestOutcome::Draining,
            Self::Deadline => RequestOutcome::Deadline,
            Self::Unreachable(_) => RequestOutcome::Unreachable,
            Self::NoToken | Self::NoProxyToken => RequestOutcome::NoToken,
            Self::ClientLimit { .. } => RequestOutcome::ClientLimit,
            Self::HostNotAllowed => RequestOutcome::HostNotAllowed,
            Self::AddressNotAllowed => RequestOutcome::AddressNotAllowed,
            Self::CrossSite => RequestOutcome::CrossSite,
            Self::WrongHost => RequestOutcome::WrongHost,
            Self::BodyTooLarge => RequestOutcome::BodyTooLarge,
            Self::HeadersTooLarge => RequestOutcome::HeadersTooLarge,
            Self::NoRoute(_) => RequestOutcome::NoRoute,
            Self::BodyIncomplete => RequestOutcome::BodyIncomplete,
            Self::LoopDetected => RequestOutcome::LoopDetected,
            Self::BadWait => RequestOutcome::BadWait,
            Self::StoreUnavailable => RequestOutcome::StoreUnavailable,
            Self::KeyReused => RequestOutcome::KeyReused,
            Self::BadRequest | Self::BadCost | Self::NotTls => RequestOutcome::BadRequest,
        }
    }

    /// The word for it in `Tidegate-Reason`.
    pub fn reason(&self) -> &'static str {
        self.outcome().as_str()
    }

    /// Its status.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::WaitTooLong { .. }
            | Self::QueueFull { .. }
            | Self::ClientLimit { .. }
            | Self::TooManyOperations => StatusCode::TOO_MANY_REQUESTS,
            Self::BreakerOpen { .. }
            | Self::NoEndpoint { .. }
            | Self::InFlight
            | Self::NoDescriptors
            | Self::TooManyGates
            | Self::StoreUnavailable
            | Self::Draining => StatusCode::SERVICE_UNAVAILABLE,
            Self::KeyReused => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Deadline => StatusCode::GATEWAY_TIMEOUT,
            Self::Unreachable(_) => StatusCode::BAD_GATEWAY,
            Self::NoToken => StatusCode::UNAUTHORIZED,
            Self::NoProxyToken => StatusCode::PROXY_AUTHENTICATION_REQUIRED,
            Self::HostNotAllowed | Self::AddressNotAllowed | Self::CrossSite => {
                StatusCode::FORBIDDEN
            }
            Self::WrongHost => StatusCode::MISDIRECTED_REQUEST,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::HeadersTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::NoRoute(_) => StatusCode::NOT_FOUND,
            Self::BodyIncomplete => StatusCode::REQUEST_TIMEOUT,
            Self::LoopDetected => StatusCode::LOOP_DETECTED,
            Self::BadWait | Self::BadCost | Self::BadRequest | Self::NotTls => {
                StatusCode::BAD_REQUEST
            }
        }
    }

    /// How long waiting would help, if it would.
    fn wait(&self) -> Option<Duration> {
        match self {
            Self::QueueFull { wait } => Some(wait.unwrap_or(Duration::from_secs(1))),
            Self::ClientLimit { wait } => Some(*wait),
            Self::WaitTooLong { wait } | Self::BreakerOpen { wait } | Self::NoEndpoint { wait } => {
                *wait
            }
            Self::InFlight
            | Self::NoDescriptors
            | Self::TooManyGates
            | Self::StoreUnavailable
            | Self::TooManyOperations
            | Self::Draining => Some(Duration::from_secs(1)),
            _ => None,
        }
    }

    fn title(&self) -> &'static str {
        match self {
            Self::WaitTooLong { .. } => "The wait is longer than allowed",
            Self::QueueFull { .. } => "Too many requests are waiting",
            Self::BreakerOpen { .. } => "The upstream is failing",
            Self::NoEndpoint { .. } => "No endpoint can be used",
            Self::InFlight => "Too many requests are in flight",
            Self::NoDescriptors => "No descriptors are left",
            Self::TooManyGates => "Too many gates",
            Self::Draining => "The gateway is stopping",
            Self::Deadline => "The deadline has passed",
            Self::Unreachable(_) => "The upstream cannot be reached",
            Self::NoToken | Self::NoProxyToken => "A client token is required",
            Self::ClientLimit { .. } => "The client sends too much",
            Self::HostNotAllowed => "Requests are not forwarded to this host",
            Self::AddressNotAllowed => "This address must not be dialled",
            Self::CrossSite => "Web pages of other sites may not use the gateway",
            Self::WrongHost => "The host is not served here",
            Self::BodyTooLarge => "The body is too long",
            Self::HeadersTooLarge => "The headers are too long",
            Self::NoRoute(_) => "No pool has this path",
            Self::BodyIncomplete => "The body is incomplete",
            Self::LoopDetected => "The request came from this gateway",
            Self::BadWait => "The wait cannot be read",
            Self::BadCost => "The cost cannot be read",
            Self::StoreUnavailable => "The operation cannot be stored",
            Self::TooManyOperations => "Too many operations are stored",
            Self::KeyReused => "The idempotency key was used before",
            Self::BadRequest => "The request cannot be read",
            Self::NotTls => "The request is not encrypted",
        }
    }

    /// What happened, and what to do about it.
    fn detail(&self) -> String {
        let after = |what: &str, wait: &Option<Duration>| match wait {
            Some(wait) => format!("{what}; try again in {}", Rounded(*wait)),
            None => what.to_owned(),
        };
        match self {
            Self::WaitTooLong { wait } => after(
                "at the upstream's pace this request would be sent after its deadline; raise `Tidegate-Max-Wait`",
                wait,
            ),
            Self::QueueFull { wait } => after("the line at this gate is full (`max_waiting`)", wait),
            Self::BreakerOpen { wait } => {
                after("the upstream failed too often (its breaker is open)", wait)
            }
            Self::NoEndpoint { wait: None } => {
                "every endpoint of this pool is disabled: a person has to enable one".to_owned()
            }
            Self::NoEndpoint { wait } => after("every endpoint of this pool is paused", wait),
            Self::InFlight => {
                "as many requests are in flight as may be (`max_in_flight`; one while an endpoint recovers; as many as a server of HTTP/2 allows), and none ended in time"
                    .to_owned()
            }
            Self::NoDescriptors => {
                "the process cannot open another connection; raise its limit (`ulimit -n`)"
                    .to_owned()
            }
            Self::TooManyGates => {
                "as many gates are in use as may be (`max_gates`)".to_owned()
            }
            Self::Draining => "it takes no new requests".to_owned(),
            Self::Deadline => {
                "the request waited as long as it may (`max_wait`, `Tidegate-Max-Wait`)"
                    .to_owned()
            }
            Self::Unreachable(what) => format!("no response came: {what}"),
            Self::NoToken => "send a token of a `[client.NAME]` as `Tidegate-Token`".to_owned(),
            Self::NoProxyToken => {
                "send a token of a `[client.NAME]` as the password of basic credentials: HTTP_PROXY=http://NAME:TOKEN@HOST:PORT".to_owned()
            }
            Self::ClientLimit { wait } => {
                after("the client has sent as much as it may (`client.NAME.limits`)", &Some(*wait))
            }
            Self::HostNotAllowed => {
                "requests for other hosts pass only if `[forward]` allows them".to_owned()
            }
            Self::AddressNotAllowed => {
                "the name of the server leads to an address that is not public; allow it in `[network]` if that is meant".to_owned()
            }
            Self::CrossSite => {
                "the request comes from a web page whose origin is not in `server.origins`; add it to allow the page"
                    .to_owned()
            }
            Self::WrongHost => {
                "the `Host` of the request is no name of this gateway; add it to `server.hosts` if it is".to_owned()
            }
            Self::BodyTooLarge => "it is longer than `http.max_body`".to_owned(),
            Self::HeadersTooLarge => {
                "expected at most 100 headers with 64 KiB in all, and a path of at most 65,534 bytes"
                    .to_owned()
            }
            Self::NoRoute(routes) => routes.clone(),
            Self::BodyIncomplete => {
                "nothing more of it arrived for `http.idle_timeout`, or it broke off".to_owned()
            }
            Self::LoopDetected => "an endpoint leads back to this gateway".to_owned(),
            Self::BadWait => {
                "expected `Tidegate-Max-Wait: 5s` (a number and ms, s, m or h) or `Prefer: wait=5`"
                    .to_owned()
            }
            Self::BadCost => {
                "expected `Tidegate-Cost` with a whole number from 1 to 4294967295".to_owned()
            }
            Self::StoreUnavailable => {
                "it was not accepted; the data folder cannot be read or written".to_owned()
            }
            Self::TooManyOperations => {
                "as many operations are stored as may be (`storage.max_operations`); completed and cancelled ones do not count"
                    .to_owned()
            }
            Self::KeyReused => {
                "the `Idempotency-Key` belongs to another request; use a new one".to_owned()
            }
            Self::BadRequest => {
                "expected an HTTP/1.1 request with one `Host`, one length (`Content-Length` or `Transfer-Encoding: chunked`, not both) and a body framed by it"
                    .to_owned()
            }
            Self::NotTls => NOT_TLS.to_owned(),
        }
    }

    /// The response: `application/problem+json`.
    pub fn response(&self, id: RequestId) -> Response<ServedBody> {
        let (reason, status) = (self.reason(), self.status());
        let wait = self.wait().map(|wait| whole_seconds(wait).max(1));
        let mut problem = json!({
            "type": format!("urn:tidegate:problem:{reason}"),
            "title": self.title(),
            "status": status.as_u16(),
            "detail": self.detail(),
            "reason": reason,
            "request_id": id.to_string(),
        });
        if let Some(seconds) = wait {
            problem["retry_after"] = seconds.into();
        }
        let body = Bytes::from(problem.to_string());
        let mut response = Response::new(ServedBody::Made(Some(body)));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, PROBLEM);
        headers.insert(REASON, HeaderValue::from_static(reason));
        if *self == Self::NoProxyToken {
            headers.insert(PROXY_AUTHENTICATE, BASIC);
        }
        if *self == Self::BadRequest {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(seconds) = wait {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

const BASIC: HeaderValue = HeaderValue::from_static("Basic realm=\"tidegate\"");
const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");
pub(super) const REASON: HeaderName = HeaderName::from_static("tidegate-reason");
