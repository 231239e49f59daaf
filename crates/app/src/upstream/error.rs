//! Why there was no response.

use std::error::Error;
use std::io;
use std::net::IpAddr;

use policy::outcome::{Failure, Phase};

use super::http1::Http1Error;

/// An attempt without a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendError {
    /// What kind of error it is.
    pub kind: SendErrorKind,
    /// In a few words, for people; no address and nothing of the request.
    pub message: String,
    /// Sent there again, it would fail in the same way: a person has to change something.
    pub is_permanent: bool,
    may_resend: bool,
}

/// What went wrong, by where the cause lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendErrorKind {
    /// The server or the network: gates learn from it.
    Failed {
        /// What went wrong.
        failure: Failure,
        /// How far the attempt had got.
        phase: Phase,
    },
    /// The address must not be dialled. Nothing was sent.
    NotAllowed {
        /// Which one.
        address: IpAddr,
    },
    /// The process has no descriptor left for a connection. Nothing was sent.
    NoDescriptors,
    /// Every stream of every connection over HTTP/2 was in use for too long. Nothing was sent.
    NoStream,
    /// The body of the request ended early, or was too long.
    RequestBody,
}

impl SendError {
    pub(super) fn failed(failure: Failure, phase: Phase, message: impl Into<String>) -> Self {
        Self {
            kind: SendErrorKind::Failed { failure, phase },
            message: message.into(),
            is_permanent: false,
            may_resend: false,
        }
    }

    /// The certificate of the server is not valid; `message` says why.
    pub(super) fn certificate(message: String) -> Self {
        Self {
            is_permanent: true,
            ..Self::failed(Failure::Tls, Phase::Connecting, message)
        }
    }

    pub(super) fn late() -> Self {
        Self::failed(Failure::Timeout, Phase::Waiting, LATE)
    }

    pub(super) fn not_allowed(address: IpAddr) -> Self {
        Self {
            kind: SendErrorKind::NotAllowed { address },
            message: format!("{address} must not be dialled"),
            is_permanent: true,
            may_resend: false,
        }
    }

    /// The proxy of Tidegate itself wants other credentials.
    pub(super) fn proxy_credentials() -> Self {
        let message = "the proxy does not accept the credentials of `network.proxy` (407)";
        Self {
            is_permanent: true,
            ..Self::failed(Failure::Connect, Phase::Connecting, message)
        }
    }

    /// The proxy of Tidegate itself makes no tunnel, and says so with this status.
    pub(super) fn refused_by_proxy(status: u16) -> Self {
        let message = format!("the proxy answered {status}");
        Self {
            // It may reach the server later, but not allow it.
            is_permanent: status < 500,
            ..Self::failed(Failure::Connect, Phase::Connecting, message)
        }
    }

    /// The same error, of a connection to the proxy.
    pub(super) fn at_proxy(self) -> Self {
        let is_failure = matches!(self.kind, SendErrorKind::Failed { .. });
        match is_failure {
            true => Self {
                message: format!("the proxy cannot be used: {}", self.message),
                ..self
            },
            false => self,
        }
    }

    pub(super) fn no_descriptors() -> Self {
        Self {
            kind: SendErrorKind::NoDescriptors,
            message: "the process has no descriptors left".to_owned(),
            is_permanent: false,
            may_resend: false,
        }
    }

    pub(super) fn no_stream() -> Self {
        Self {
            kind: SendErrorKind::NoStream,
            message: "as many requests are in flight as the server allows".to_owned(),
            is_permanent: false,
            may_resend: false,
        }
    }

    /// The body of the request broke off.
    pub(crate) fn request_body() -> Self {
        Self {
            kind: SendErrorKind::RequestBody,
            message: "the body of the request ended early".to_owned(),
            is_permanent: false,
            may_resend: false,
        }
    }

    /// A connection over HTTP/1.1 broke. `was_untouched`: nothing of the request was written.
    /// `may_repeat`: the request is idempotent, and no byte of a response has come.
    pub(super) fn http1(
        error: &Http1Error,
        was_untouched: bool,
        may_repeat: bool,
        phase: Phase,
    ) -> Self {
        let message = match error {
            Http1Error::RequestBody => return Self::request_body(),
            Http1Error::Invalid(_) => NOT_HTTP,
            Http1Error::Io(_) | Http1Error::Closed => BROKEN,
        };
        // A server may close a connection at the very moment a request is sent on it.
        let may_resend = was_untouched || (may_repeat && is_closed(error));
        Self {
            may_resend,
            ..Self::broken(error, was_untouched, phase, message)
        }
    }

    /// A request over HTTP/2 failed. `was_untouched`: it came back, so nothing of it was sent.
    pub(super) fn http2(error: &hyper::Error, was_untouched: bool, phase: Phase) -> Self {
        if error.is_user() {
            return Self::request_body();
        }
        let message = if error.is_parse() {
            NOT_HTTP
        } else if error.is_timeout() {
            LATE
        } else {
            BROKEN
        };
        Self {
            may_resend: was_untouched,
            ..Self::broken(error, was_untouched, phase, message)
        }
    }

    fn broken(
        error: &(dyn Error + 'static),
        was_untouched: bool,
        phase: Phase,
        message: &str,
    ) -> Self {
        let (failure, _) = tidegate::http::failure(error);
        let phase = match was_untouched {
            true => Phase::Connecting,
            false => phase,
        };
        Self::failed(failure, phase, message)
    }

    /// May the request be sent once more under the same permit, if the connection was a reused one?
    pub(super) fn may_resend(&self) -> bool {
        self.may_resend
    }
}

const LATE: &str = "no response came in time";
const NOT_HTTP: &str = "the response was not HTTP";
const BROKEN: &str = "the connection broke before a response came";

/// Did the other side close the connection, by FIN or by RST?
fn is_closed(error: &Http1Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    match error {
        Http1Error::Closed => true,
        Http1Error::Io(error) => matches!(
            error.kind(),
            ConnectionReset | ConnectionAborted | BrokenPipe | UnexpectedEof
        ),
        Http1Error::Invalid(_) | Http1Error::RequestBody => false,
    }
}
