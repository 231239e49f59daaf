//! The future: waits for a permit, then for the response.
//!
//! Dropping it returns what it holds: its place in line, a permit that it has not collected yet, or
//! the permit of the attempt in flight, which counts as abandoned.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Request, Response};
use pin_project_lite::pin_project;
use policy::time::Timestamp;
use tower_service::Service;

use super::decided::Decided;
use super::error::LimitError;
use super::layer::Terms;
use crate::ask::Refusal;
use crate::http::{failed, never_sent};
use crate::limiter::Limiter;
use crate::permit::Permit;
use crate::tower::BoxError;
use crate::tower::exchange::classified;

pin_project! {
    /// A request on its way through its gate. It asks for its permit on the first poll.
    #[must_use = "a request is not sent unless its future is awaited"]
    pub struct LimitFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        limiter: Limiter,
        key: String,
        #[pin]
        stage: Stage<S, B, S::Future>,
    }
}

pin_project! {
    #[project = StageProjection]
    enum Stage<S, B, F> {
        // Holds the ready service and the request for it.
        InLine {
            admission: Admission,
            call: Option<(S, Request<B>)>,
        },
        UnderWay {
            permit: Option<Permit<'static>>,
            waited: Duration,
            sent_at: Timestamp,
            #[pin]
            response: F,
        },
        Failed {
            error: Option<LimitError>,
        },
    }
}

/// A permit, and how long it took to get it. Boxed, because the future borrows from the limiter it
/// owns.
type Admission = Pin<Box<dyn Future<Output = Result<(Permit<'static>, Duration), Refusal>> + Send>>;

async fn admit(
    limiter: Limiter,
    key: String,
    terms: Terms,
) -> Result<(Permit<'static>, Duration), Refusal> {
    let asked_at = limiter.clock().now();
    let permit = limiter.acquire(terms.ask(&key)).await?.into_owned();
    Ok((permit, limiter.clock().now().since(asked_at)))
}

impl<S: Service<Request<B>>, B> LimitFuture<S, B> {
    pub(super) fn new(
        ready: S,
        request: Request<B>,
        limiter: Limiter,
        key: String,
        terms: Terms,
    ) -> Self {
        let stage = Stage::InLine {
            admission: Box::pin(admit(limiter.clone(), key.clone(), terms)),
            call: Some((ready, request)),
        };
        Self {
            limiter,
            key,
            stage,
        }
    }

    pub(super) fn failed(limiter: Limiter, error: LimitError) -> Self {
        Self {
            limiter,
            key: String::new(),
            stage: Stage::Failed { error: Some(error) },
        }
    }
}

impl<S, B, R> Future for LimitFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Error: Into<BoxError>,
{
    type Output = Result<Response<R>, LimitError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.stage.as_mut().project() {
                StageProjection::InLine { admission, call } => {
                    let admitted = ready!(admission.as_mut().poll(context));
                    let (permit, waited) = admitted.map_err(LimitError::Refused)?;
                    let (mut service, request) = call.take().expect(ONCE);
                    Stage::UnderWay {
                        permit: Some(permit),
                        waited,
                        sent_at: this.limiter.clock().now(),
                        response: service.call(request),
                    }
                }
                StageProjection::UnderWay {
                    permit,
                    waited,
                    sent_at,
                    response,
                } => {
                    let response = ready!(response.poll(context));
                    let attempt = Attempt {
                        limiter: this.limiter,
                        key: this.key,
                        permit: permit.take().expect(ONCE),
                        waited: *waited,
                        latency: this.limiter.clock().now().since(*sent_at),
                    };
                    return Poll::Ready(match response {
                        Ok(response) => Ok(attempt.responded(response)),
                        Err(error) => Err(attempt.failed(error.into())),
                    });
                }
                StageProjection::Failed { error } => {
                    return Poll::Ready(Err(error.take().expect(ONCE)));
                }
            };
            this.stage.set(next);
        }
    }
}

const ONCE: &str = "a future is not polled again after it was ready";

/// An attempt that has ended.
struct Attempt<'a> {
    limiter: &'a Limiter,
    key: &'a str,
    permit: Permit<'static>,
    waited: Duration,
    latency: Duration,
}

impl Attempt<'_> {
    fn responded<R>(self, mut response: Response<R>) -> Response<R> {
        let (outcome, mut classification) =
            classified(self.limiter, self.key, &response, self.latency);
        classification.verdict = self.permit.settle_as(&outcome, classification.verdict);
        response.extensions_mut().insert(Decided {
            waited: self.waited,
            latency: self.latency,
            classification,
        });
        response
    }

    fn failed(self, error: BoxError) -> LimitError {
        if never_sent(error.as_ref()) {
            self.permit.give_back();
        } else {
            self.permit.settle(&failed(error.as_ref(), self.latency));
        }
        LimitError::of_service(error)
    }
}

impl<S: Service<Request<B>>, B> fmt::Debug for LimitFuture<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match &self.stage {
            Stage::InLine { .. } => "in line",
            Stage::UnderWay { .. } => "under way",
            Stage::Failed { .. } => "failed",
        };
        f.debug_struct("LimitFuture")
            .field("key", &self.key)
            .field("stage", &stage)
            .finish_non_exhaustive()
    }
}
