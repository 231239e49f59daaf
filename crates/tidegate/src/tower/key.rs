//! From a request to the key of its gate.

use http::Request;
use policy::key::KeyError;

/// Names the gate that a request goes through. Implemented by every function from a request to a
/// key.
pub trait RequestKey<B> {
    /// The key for `request`.
    ///
    /// # Errors
    ///
    /// If there is none. The request is not sent then.
    fn key_of(&self, request: &Request<B>) -> Result<String, KeyError>;
}

impl<B, F: Fn(&Request<B>) -> String> RequestKey<B> for F {
    fn key_of(&self, request: &Request<B>) -> Result<String, KeyError> {
        Ok(self(request))
    }
}

/// The default: the gate of a request is that of its URI's host and port, as
/// [`http::key`](crate::http::key) says.
#[derive(Clone, Copy, Debug, Default)]
pub struct UriHost;

impl<B> RequestKey<B> for UriHost {
    fn key_of(&self, request: &Request<B>) -> Result<String, KeyError> {
        crate::http::key(request.uri())
    }
}
