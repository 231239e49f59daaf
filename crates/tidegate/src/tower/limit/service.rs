//! The service: turns a request into the future that sends it through its gate.

use std::fmt;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use super::error::LimitError;
use super::future::LimitFuture;
use super::layer::Terms;
use crate::limiter::Limiter;
use crate::tower::{BoxError, RequestKey};

/// A service behind a limiter, created by [`LimitLayer`](super::LimitLayer).
///
/// It is ready when the service below is. A request that waits for a permit holds the capacity that
/// the service below reserved for it.
#[derive(Clone)]
pub struct Limit<S, K> {
    pub(in crate::tower) inner: S,
    pub(in crate::tower) limiter: Limiter,
    key: K,
    pub(in crate::tower) terms: Terms,
}

impl<S, K> Limit<S, K> {
    pub(super) fn new(inner: S, limiter: Limiter, key: K, terms: Terms) -> Self {
        Self {
            inner,
            limiter,
            key,
            terms,
        }
    }

    /// The service below.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

impl<S, K, B, R> Service<Request<B>> for Limit<S, K>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    S::Error: Into<BoxError>,
    K: RequestKey<B>,
{
    type Response = Response<R>;
    type Error = LimitError;
    type Future = LimitFuture<S, B>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), LimitError>> {
        let ready = self.inner.poll_ready(context);
        ready.map_err(|error| LimitError::of_service(error.into()))
    }

    fn call(&mut self, request: Request<B>) -> LimitFuture<S, B> {
        // The request takes the ready service; the clone left here is not ready.
        let next = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, next);
        match self.key.key_of(&request) {
            Ok(key) => LimitFuture::new(ready, request, self.limiter.clone(), key, self.terms),
            Err(error) => LimitFuture::failed(self.limiter.clone(), LimitError::Key(error)),
        }
    }
}

impl<S: fmt::Debug, K> fmt::Debug for Limit<S, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limit")
            .field("inner", &self.inner)
            .field("limiter", &self.limiter)
            .field("terms", &self.terms)
            .finish_non_exhaustive()
    }
}
