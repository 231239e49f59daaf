//! Why a request got no response after all attempts.

use policy::key::KeyError;

use crate::call::{CallError, Trail};
use crate::tower::BoxError;

/// Why a request got no response. A response of the server is never an error: when the retries end,
/// the last one is returned.
///
/// The error of the service below is boxed, as in [`LimitError`](crate::tower::LimitError).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RetryError {
    /// Its gate did not admit the request in time, or its time was up during an attempt: the number of
    /// sends in the source says which.
    #[error("the request got no response")]
    NoResponse(#[source] CallError<()>),
    /// The request has no key. Nothing was sent, and retrying cannot help.
    #[error("the request was not sent")]
    Key(#[source] KeyError),
    /// The last attempt failed without a response, or the service could not become ready.
    #[error("the request failed{}", trail.ending())]
    Failed {
        /// The service's error for the last attempt.
        #[source]
        error: BoxError,
        /// Every decision about the call.
        trail: Trail,
    },
}

impl RetryError {
    /// Every decision about the call, if there was one.
    pub fn trail(&self) -> Option<&Trail> {
        match self {
            Self::NoResponse(error) => Some(&error.trail),
            Self::Failed { trail, .. } => Some(trail),
            Self::Key(_) => None,
        }
    }
}
