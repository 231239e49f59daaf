//! Why there was no response.

use std::net::IpAddr;

use policy::outcome::{Failure, Phase};

/// An attempt without a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendError {
    /// What kind of error it is.
    pub kind: SendErrorKind,
    /// In a few words, for people; no address and nothing of the request.
    pub message: String,
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
    /// The body of the request ended early, or was too long.
    RequestBody,
}

impl SendError {
    pub(super) fn failed(failure: Failure, phase: Phase, message: impl Into<String>) -> Self {
        Self {
            kind: SendErrorKind::Failed { failure, phase },
            message: message.into(),
            may_resend: false,
        }
    }

    pub(super) fn not_allowed(address: IpAddr) -> Self {
        Self {
            kind: SendErrorKind::NotAllowed { address },
            message: format!("{address} must not be dialled"),
            may_resend: false,
        }
    }

    pub(super) fn no_descriptors() -> Self {
        Self {
            kind: SendErrorKind::NoDescriptors,
            message: "the process has no descriptors left".to_owned(),
            may_resend: false,
        }
    }

    pub(super) fn request_body() -> Self {
        Self {
            kind: SendErrorKind::RequestBody,
            message: "the body of the request ended early".to_owned(),
            may_resend: false,
        }
    }

    /// A connection broke. `was_untouched`: it gave the request back, so nothing of it was sent.
    /// `may_repeat`: the request is idempotent, and no byte of a response has come.
    pub(super) fn broken(
        error: hyper::Error,
        was_untouched: bool,
        may_repeat: bool,
        phase: Phase,
    ) -> Self {
        if error.is_user() {
            return Self::request_body();
        }
        let (failure, _) = tidegate::http::failure(&error);
        let phase = if was_untouched {
            Phase::Connecting
        } else {
            phase
        };
        Self {
            kind: SendErrorKind::Failed { failure, phase },
            message: in_words(&error),
            // A server may close a connection at the very moment a request is sent on it.
            may_resend: was_untouched || (may_repeat && is_closed(&error)),
        }
    }

    /// May the request be sent once more under the same permit, if the connection was a reused one?
    pub(super) fn may_resend(&self) -> bool {
        self.may_resend
    }
}

/// Did the other side close the connection, by FIN or by RST?
fn is_closed(error: &hyper::Error) -> bool {
    let cause = std::error::Error::source(error);
    let io = cause.and_then(|cause| cause.downcast_ref::<std::io::Error>());
    error.is_incomplete_message()
        || io.is_some_and(|io| {
            use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
            matches!(io.kind(), ConnectionReset | ConnectionAborted | BrokenPipe)
        })
}

fn in_words(error: &hyper::Error) -> String {
    let message = if error.is_parse() {
        "the response was not HTTP"
    } else if error.is_timeout() {
        "no response came in time"
    } else {
        "the connection broke before a response came"
    };
    message.to_owned()
}
