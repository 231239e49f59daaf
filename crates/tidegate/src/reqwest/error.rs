//! Why a request got no response.

use policy::key::KeyError;

use crate::call::{CallError, Trail};

/// Why a request got no response. A response of the server is never an error.
///
/// ```
/// use tidegate::reqwest::SendError;
///
/// fn describe(error: &SendError) -> String {
///     match error {
///         SendError::NoResponse(error) => format!("not sent, or out of time: {error}"),
///         SendError::Failed { error, .. } if error.is_timeout() => "timed out".to_owned(),
///         SendError::Failed { error, .. } => format!("failed: {error}"),
///         SendError::Request(error) => format!("not a request: {error}"),
///         SendError::Key(error) => format!("not a request to a host: {error}"),
///         _ => "failed".to_owned(),
///     }
/// }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// Its gate did not admit the request in time, or its time was up during an attempt: the number
    /// of sends in the source says which.
    #[error("the request got no response")]
    NoResponse(#[source] CallError<()>),
    /// The request could not be built. Nothing was sent, and retrying cannot help.
    #[error("the request was not sent")]
    Request(#[source] reqwest::Error),
    /// The URL has no host. Nothing was sent, and retrying cannot help.
    #[error("the request was not sent")]
    Key(#[source] KeyError),
    /// The last attempt failed without a response.
    #[error("the request failed{}", trail.ending())]
    Failed {
        /// The client's error for the last attempt.
        #[source]
        error: reqwest::Error,
        /// Every decision about the call.
        trail: Trail,
    },
}

impl SendError {
    /// Every decision about the call, if there was one.
    pub fn trail(&self) -> Option<&Trail> {
        match self {
            Self::NoResponse(error) => Some(&error.trail),
            Self::Failed { trail, .. } => Some(trail),
            Self::Request(_) | Self::Key(_) => None,
        }
    }

    /// The error of the client, if it had one.
    pub fn as_reqwest(&self) -> Option<&reqwest::Error> {
        match self {
            Self::Request(error) | Self::Failed { error, .. } => Some(error),
            Self::NoResponse(_) | Self::Key(_) => None,
        }
    }
}
