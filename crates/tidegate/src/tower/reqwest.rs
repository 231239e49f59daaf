//! The layers around a client of reqwest, with its own requests and responses.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use reqwest::{Request, Response};
use tower_service::Service;

use super::limit::{Decided, Limit, LimitError};
use super::retry::{Retry, RetryError};
use super::{BoxError, UriHost};
use crate::call::{AttemptError, Trail};
use crate::http::{failed, never_sent};
use crate::limiter::Limiter;
use crate::reqwest::{Exchange, Failed, key_of, settle_head};
use crate::terms::Terms;

/// Resolves to a response of reqwest.
type Sending<E> = Pin<Box<dyn Future<Output = Result<Response, E>> + Send>>;

impl<S, C> Service<Request> for Retry<S, UriHost, C>
where
    S: Service<Request, Response = Response> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
{
    type Response = Response;
    type Error = RetryError;
    type Future = Sending<RetryError>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), RetryError>> {
        let ready = self.inner.poll_ready(context);
        ready.map_err(|error| RetryError::Failed {
            error: error.into(),
            trail: Trail::default(),
        })
    }

    fn call(&mut self, request: Request) -> Sending<RetryError> {
        // The request takes the ready service; the clone left here is not ready.
        let next = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, next);
        let (limiter, terms) = (self.limiter.clone(), Arc::clone(&self.terms));
        Box::pin(async move { deliver(ready, request, &limiter, &terms).await })
    }
}

async fn deliver<S>(
    ready: S,
    request: Request,
    limiter: &Limiter,
    terms: &Terms,
) -> Result<Response, RetryError>
where
    S: Service<Request, Response = Response> + Clone,
    S::Error: Into<BoxError>,
{
    let key = key_of(&request).map_err(RetryError::Key)?;
    let exchange = Exchange::new(limiter, &key, request, |kind| {
        terms.call(limiter, &key, kind)
    });
    let spare = ready.clone();
    let mut ready = Some(ready);
    let sent = exchange.run(move |request| {
        let mut service = ready.take().unwrap_or_else(|| spare.clone());
        async move {
            let is_ready = poll_fn(|context| service.poll_ready(context)).await;
            is_ready.map_err(|error| AttemptError::unsent(error.into()))?;
            service.call(request).await.map_err(AttemptError::new)
        }
    });
    sent.await.map_err(|failed| match failed {
        Failed::NoResponse(error) => RetryError::NoResponse(error),
        Failed::Error(error, trail) => RetryError::Failed { error, trail },
    })
}

impl<S> Service<Request> for Limit<S, UriHost>
where
    S: Service<Request, Response = Response> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
{
    type Response = Response;
    type Error = LimitError;
    type Future = Sending<LimitError>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), LimitError>> {
        let ready = self.inner.poll_ready(context);
        ready.map_err(|error| LimitError::of_service(error.into()))
    }

    fn call(&mut self, request: Request) -> Sending<LimitError> {
        // The request takes the ready service; the clone left here is not ready.
        let next = self.inner.clone();
        let mut ready = std::mem::replace(&mut self.inner, next);
        let (limiter, terms) = (self.limiter.clone(), self.terms);
        Box::pin(async move {
            let clock = limiter.clock();
            let key = key_of(&request).map_err(LimitError::Key)?;
            let asked_at = clock.now();
            let permit = limiter.acquire(terms.ask(&key)).await;
            let permit = permit.map_err(LimitError::Refused)?.into_owned();
            let sent_at = clock.now();
            let waited = sent_at.since(asked_at);
            let sent = ready.call(request).await;
            let latency = clock.now().since(sent_at);
            let response = match sent {
                Ok(response) => response,
                Err(error) => {
                    let error = error.into();
                    if never_sent(error.as_ref()) {
                        permit.give_back();
                    } else {
                        permit.settle(&failed(error.as_ref(), latency));
                    }
                    return Err(LimitError::of_service(error));
                }
            };
            let (mut response, classification) =
                settle_head(&limiter, &key, permit, response, latency);
            response.extensions_mut().insert(Decided {
                waited,
                latency,
                classification,
            });
            Ok(response)
        })
    }
}
