//! Why a request got no answer, after everything that could be tried.

use policy::key::KeyError;

use crate::call::{CallError, Trail};
use crate::tower::BoxError;

/// Why a request got no answer. An answer of the server is never an error: if nothing better came
/// in the end, the last one is the response.
///
/// The error of the service below is boxed, whatever its type, as in
/// [`LimitError`](crate::tower::LimitError).
#[derive(Debug, thiserror::Error)]
pub enum RetryError {
    /// Nothing was sent: no gate let it out in the time it had.
    #[error("the request was not sent")]
    NotSent(#[source] CallError<()>),
    /// The request names no gate. Nothing was sent, and asking again cannot help.
    #[error("the request was not sent")]
    Key(#[source] KeyError),
    /// The last attempt failed without an answer, or the service could not become ready.
    #[error("the request failed")]
    Failed {
        /// What the service said about the last attempt.
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
            Self::NotSent(error) => Some(&error.trail),
            Self::Failed { trail, .. } => Some(trail),
            Self::Key(_) => None,
        }
    }
}
