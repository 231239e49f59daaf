//! Maps a request to the key of its gate.

use http::Request;
use policy::key::KeyError;

/// Names the gate of a request. Implemented for every function from a request to a key.
pub trait RequestKey<B> {
    /// The key for `request`.
    ///
    /// # Errors
    ///
    /// If the request has no key. It is not sent then.
    fn key_of(&self, request: &Request<B>) -> Result<String, KeyError>;
}

impl<B, F: Fn(&Request<B>) -> String> RequestKey<B> for F {
    fn key_of(&self, request: &Request<B>) -> Result<String, KeyError> {
        Ok(self(request))
    }
}

/// The default: the host and port of the request's URI, see [`http::key`](crate::http::key).
#[derive(Clone, Copy, Debug, Default)]
pub struct UriHost;

impl<B> RequestKey<B> for UriHost {
    fn key_of(&self, request: &Request<B>) -> Result<String, KeyError> {
        crate::http::key(request.uri())
    }
}
