//! The future: a request over all its attempts.
//!
//! Boxed, because the loop is an async function. Dropping it cancels the request: it leaves the
//! line, and an attempt in flight counts as abandoned.

use std::fmt;
use std::future::{Future, poll_fn, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use super::clone::CloneRequest;
use super::error::RetryError;
use crate::call::{AttemptResult, Trail};
use crate::http::{failed, item_kind, never_sent};
use crate::limiter::Limiter;
use crate::terms::Terms;
use crate::tower::BoxError;
use crate::tower::exchange::classified;

/// A request over all its attempts. Nothing happens until it is polled.
#[must_use = "a request is not sent unless its future is awaited"]
pub struct RetryFuture<R>(Pin<Box<dyn Future<Output = Delivered<R>> + Send>>);

type Delivered<R> = Result<Response<R>, RetryError>;

/// A request and everything needed to send it.
pub(super) struct Delivery<S, B, C> {
    /// The service that has become ready.
    pub(super) ready: S,
    pub(super) request: Request<B>,
    pub(super) clone: C,
    pub(super) limiter: Limiter,
    pub(super) key: String,
    pub(super) terms: Arc<Terms>,
}

impl<R: Send + 'static> RetryFuture<R> {
    pub(super) fn new<S, B, C>(delivery: Delivery<S, B, C>) -> Self
    where
        S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
        C: CloneRequest<B> + Send + 'static,
        B: Send + 'static,
    {
        Self(Box::pin(deliver(delivery)))
    }

    pub(super) fn failed(error: RetryError) -> Self {
        Self(Box::pin(ready(Err(error))))
    }
}

impl<R> Future for RetryFuture<R> {
    type Output = Delivered<R>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Delivered<R>> {
        self.0.as_mut().poll(context)
    }
}

impl<R> fmt::Debug for RetryFuture<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RetryFuture")
    }
}

async fn deliver<S, B, C, R>(delivery: Delivery<S, B, C>) -> Delivered<R>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    S::Error: Into<BoxError>,
    C: CloneRequest<B>,
{
    let Delivery {
        ready,
        request,
        clone,
        limiter,
        key,
        terms,
    } = delivery;
    let (limiter, key) = (&limiter, key.as_str());
    let mut call = terms.call(limiter, key, item_kind(&request));
    if terms.hedge.is_some() && clone.clone_request(&request).is_none() {
        call = call.without_hedge();
    }
    let spare = ready.clone();
    let mut ready = Some(ready);
    let mut request = Some(request);
    let ended = call.run(move |_| {
        let service = ready.take().unwrap_or_else(|| spare.clone());
        let kept = request
            .as_ref()
            .expect("it is kept, or sent for the last time");
        let copy = clone.clone_request(kept);
        let is_last = copy.is_none();
        let next = copy
            .or_else(|| request.take())
            .expect("one of them is left");
        let attempt = attempt(service, next, limiter, key);
        async move {
            match is_last {
                true => attempt.await.last(),
                false => attempt.await,
            }
        }
    });
    match ended.await {
        Ok(called) => with_trail(called.value, called.trail),
        Err(mut error) => match error.last.take() {
            Some(last) => with_trail(last, error.trail),
            None => Err(RetryError::NoResponse(error.map(drop))),
        },
    }
}

/// The service's result for one attempt.
type ServiceResult<R> = Result<Response<R>, BoxError>;

async fn attempt<S, B, R>(
    mut service: S,
    request: Request<B>,
    limiter: &Limiter,
    key: &str,
) -> AttemptResult<ServiceResult<R>>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Error: Into<BoxError>,
{
    let clock = limiter.clock();
    if let Err(error) = poll_fn(|context| service.poll_ready(context)).await {
        return AttemptResult::unsent(Err(error.into()));
    }
    let sent_at = clock.now();
    let result = service.call(request).await;
    let latency = clock.now().since(sent_at);
    match result {
        Ok(response) => {
            let (outcome, classification) = classified(limiter, key, &response, latency);
            AttemptResult::classified(Ok(response), outcome, classification.verdict)
        }
        Err(error) => {
            let error = error.into();
            if never_sent(error.as_ref()) {
                return AttemptResult::unsent(Err(error));
            }
            let outcome = failed(error.as_ref(), latency);
            AttemptResult::new(Err(error), outcome)
        }
    }
}

fn with_trail<R>(result: ServiceResult<R>, trail: Trail) -> Delivered<R> {
    match result {
        Ok(mut response) => {
            response.extensions_mut().insert(trail);
            Ok(response)
        }
        Err(error) => Err(RetryError::Failed { error, trail }),
    }
}
