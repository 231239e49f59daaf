//! The service: turns a request into the future that sends it.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use super::clone::{CloneBody, CloneRequest};
use super::error::RetryError;
use super::future::{Delivery, RetryFuture};
use crate::call::Trail;
use crate::limiter::Limiter;
use crate::terms::Terms;
use crate::tower::{BoxError, RequestKey};

/// A service behind the attempt loop, created by [`RetryLayer`](super::RetryLayer).
///
/// It is ready when the service below is. That readiness is for the first attempt; later attempts
/// wait for readiness after they are admitted.
#[derive(Clone)]
pub struct Retry<S, K, C = CloneBody> {
    pub(in crate::tower) inner: S,
    pub(in crate::tower) limiter: Limiter,
    pub(super) key: K,
    pub(super) clone: C,
    pub(in crate::tower) terms: Arc<Terms>,
}

impl<S, K, C> Retry<S, K, C> {
    /// The service below.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

impl<S, K, C, B, R> Service<Request<B>> for Retry<S, K, C>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    K: RequestKey<B>,
    C: CloneRequest<B> + Clone + Send + 'static,
    B: Send + 'static,
    R: Send + 'static,
{
    type Response = Response<R>;
    type Error = RetryError;
    type Future = RetryFuture<R>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), RetryError>> {
        let ready = self.inner.poll_ready(context);
        ready.map_err(|error| RetryError::Failed {
            error: error.into(),
            trail: Trail::default(),
        })
    }

    fn call(&mut self, request: Request<B>) -> RetryFuture<R> {
        // The request takes the ready service; the clone left here is not ready.
        let next = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, next);
        match self.key.key_of(&request) {
            Ok(key) => RetryFuture::new(Delivery {
                ready,
                request,
                clone: self.clone.clone(),
                limiter: self.limiter.clone(),
                key,
                terms: Arc::clone(&self.terms),
            }),
            Err(error) => RetryFuture::failed(RetryError::Key(error)),
        }
    }
}

impl<S: fmt::Debug, K, C> fmt::Debug for Retry<S, K, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry")
            .field("inner", &self.inner)
            .field("limiter", &self.limiter)
            .finish_non_exhaustive()
    }
}
