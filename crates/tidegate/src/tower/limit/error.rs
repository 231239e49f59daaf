//! Why a request got no answer.

use std::error::Error;

use policy::key::KeyError;

use crate::ask::Refusal;
use crate::http;
use crate::tower::BoxError;

/// Why a request got no response: refused here, or sent and failed.
///
/// The error of the service below is boxed, whatever its type: so that this is an error that every
/// other middleware takes, also when the service's own is a box already. It is
/// [`source`](Error::source), and `downcast_ref` brings it back.
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
///     }
/// }
/// ```
#[derive(Debug, thiserror::Error)]
pub enum LimitError {
    /// There was no permit in time. Nothing was sent, and asking again may help.
    #[error("the request was not sent")]
    Refused(#[source] Refusal),
    /// The request names no gate. Nothing was sent, and asking again cannot help.
    #[error("the request was not sent")]
    Key(#[source] KeyError),
    /// The service failed, or could not become ready.
    #[error("the request failed")]
    Service(#[source] BoxError),
}

impl LimitError {
    /// The error of a service. That of a limit further in stays what it is.
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

    /// Can the server have acted on the request? If not, it can be sent again without doing
    /// anything twice. What is not known counts as yes.
    pub fn server_may_have_acted(&self) -> bool {
        match self {
            Self::Refused(_) | Self::Key(_) => false,
            Self::Service(error) => {
                let error: &(dyn Error + 'static) = error.as_ref();
                let outcome = http::failed(error, std::time::Duration::ZERO);
                !http::never_left(error) && outcome.server_may_have_acted()
            }
        }
    }
}
