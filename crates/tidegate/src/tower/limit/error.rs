//! Why a request got no response.

use std::error::Error;

use policy::key::KeyError;

use crate::ask::Refusal;
use crate::http;
use crate::tower::BoxError;

/// Why a request got no response: refused here, or sent and failed.
///
/// The error of the service below is boxed, whatever its type, so that other middleware accepts
/// this error even if the service's own is already a box. It is the [`source`](Error::source); use
/// `downcast_ref` to recover its type.
///
/// ```
/// use tidegate::tower::LimitError;
///
/// fn describe(error: &LimitError) -> String {
///     match error {
///         LimitError::Refused(refusal) => match refusal.wait() {
///             Some(wait) => format!("try again in {} s", wait.as_secs()),
///             None => "try again later".to_owned(),
///         },
///         LimitError::Key(error) => format!("not a request to any host: {error}"),
///         LimitError::Service(error) => format!("failed: {error}"),
///         other => other.to_string(),
///     }
/// }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// No permit in time. Nothing was sent, and retrying may help.
    #[error("the request was not sent")]
    Refused(#[source] Refusal),
    /// The request has no key. Nothing was sent, and retrying cannot help.
    #[error("the request was not sent")]
    Key(#[source] KeyError),
    /// The service failed, or could not become ready.
    #[error("the request failed")]
    Service(#[source] BoxError),
}

impl LimitError {
    /// Wraps the error of a service. The error of an inner limit layer is returned unchanged.
    pub(crate) fn of_service(error: BoxError) -> Self {
        match error.downcast::<Self>() {
            Ok(own) => *own,
            Err(error) => Self::Service(error),
        }
    }

    /// Why there was no permit, and when asking again may help.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            Self::Key(_) | Self::Service(_) => None,
        }
    }

    /// Whether the server may have acted on the request. If not, it is safe to resend. Unknown
    /// counts as yes.
    pub fn server_may_have_acted(&self) -> bool {
        match self {
            Self::Refused(_) | Self::Key(_) => false,
            Self::Service(error) => {
                let error: &(dyn Error + 'static) = error.as_ref();
                let outcome = http::failed(error, std::time::Duration::ZERO);
                !http::never_sent(error) && outcome.server_may_have_acted()
            }
        }
    }
}
