//! Copies requests, so that they can be sent again.

use http::Request;

/// Makes a copy of a request for one attempt, so that the request itself is left for the next.
/// Implemented by every function from a request to a copy, see
/// [`RetryLayer::clone_with`](super::RetryLayer::clone_with).
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot copy a request with the body `{B}`",
    label = "a request that is retried has to be copied",
    note = "if the body is not `Clone`, pass a function: `RetryLayer::clone_with(|request: &Request<B>| …)`, which returns `None` for what can be sent only once",
    note = "`LimitLayer` takes any body and does not retry"
)]
pub trait CloneRequest<B> {
    /// A copy of `request`; `None` if there can be none. The request is sent once then.
    fn clone_request(&self, request: &Request<B>) -> Option<Request<B>>;
}

impl<B, F: Fn(&Request<B>) -> Option<Request<B>>> CloneRequest<B> for F {
    fn clone_request(&self, request: &Request<B>) -> Option<Request<B>> {
        self(request)
    }
}

/// The default: bodies are `Clone`.
#[derive(Clone, Copy, Debug, Default)]
pub struct CloneBody;

impl<B: Clone> CloneRequest<B> for CloneBody {
    fn clone_request(&self, request: &Request<B>) -> Option<Request<B>> {
        Some(request.clone())
    }
}
