//! Why there was no answer.

use std::net::IpAddr;

use policy::outcome::{Failure, Phase};

/// An attempt without an answer.
#[derive(Debug)]
pub struct SendError {
    /// What kind of trouble it was.
    pub trouble: Trouble,
    /// In a few words, for people; no address and nothing of the request.
    pub what: String,
    may_try_another: bool,
}

/// What went wrong, by whose matter it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The server's, or the way's to it: gates learn from it.
    Failed {
        /// What went wrong.
        failure: Failure,
        /// How far the attempt had got.
        phase: Phase,
    },
    /// Ours: the address must not be dialled. Nothing was sent.
    NotAllowed {
        /// Which one.
        address: IpAddr,
    },
    /// Ours: the process has no descriptor left for a connection. Nothing was sent.
    NoDescriptors,
    /// The caller's: the body of the request ended early, or was too long.
    Body,
}

impl SendError {
    pub(super) fn failed(failure: Failure, phase: Phase, what: impl Into<String>) -> Self {
        Self {
            trouble: Trouble::Failed { failure, phase },
            what: what.into(),
            may_try_another: false,
        }
    }

    pub(super) fn not_allowed(address: IpAddr) -> Self {
        Self {
            trouble: Trouble::NotAllowed { address },
            what: format!("{address} must not be dialled"),
            may_try_another: false,
        }
    }

    pub(super) fn no_descriptors() -> Self {
        Self {
            trouble: Trouble::NoDescriptors,
            what: "the process has no descriptors left".to_owned(),
            may_try_another: false,
        }
    }

    pub(super) fn body() -> Self {
        Self {
            trouble: Trouble::Body,
            what: "the body of the request ended early".to_owned(),
            may_try_another: false,
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
            return Self::body();
        }
        let (failure, _) = tidegate::http::failure(&error);
        let phase = if was_untouched {
            Phase::Connecting
        } else {
            phase
        };
        Self {
            trouble: Trouble::Failed { failure, phase },
            what: in_words(&error),
            // A server may close a connection at the very moment a request is sent on it.
            may_try_another: was_untouched || (may_repeat && is_closed(&error)),
        }
    }

    /// Was it about this connection alone, so that another may do?
    pub(super) fn may_try_another(&self) -> bool {
        self.may_try_another
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
    let what = if error.is_parse() {
        "the answer was no HTTP"
    } else if error.is_timeout() {
        "no answer came in time"
    } else {
        "the connection broke before an answer came"
    };
    what.to_owned()
}
