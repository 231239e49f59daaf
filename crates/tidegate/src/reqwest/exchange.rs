//! All attempts of a request, whatever sends them: a client, a middleware chain or a service.

use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use policy::classify::{Classification, Rule};
use policy::item::ItemKind;
use policy::key::{KeyError, normalize};
use policy::outcome::{Failure, Outcome, Phase};
use policy::time::Timestamp;
use reqwest::{Request, Response};

use super::body::Received;
use crate::call::{Attempt, AttemptError, AttemptResult, BoxError, Call, CallError, Trail};
use crate::failure::{links, never_sent, recognise};
use crate::http::{Head, kind_of};
use crate::limiter::Limiter;
#[cfg(feature = "tower")]
use crate::permit::Permit;

/// The key of the gate for a request.
pub(crate) fn key_of(request: &Request) -> Result<String, KeyError> {
    let url = request.url();
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => normalize(&format!("{}://{host}:{port}", url.scheme())),
        None => normalize(&format!("{}://{host}", url.scheme())),
    }
}

/// A request, the call that sends it, and the rules for its responses.
pub(crate) struct Exchange<'a> {
    limiter: &'a Limiter,
    call: Call<'a>,
    rules: Option<Arc<[Rule]>>,
    request: Request,
}

/// Why a request got no response.
pub(crate) enum Failed {
    NoResponse(CallError<()>),
    /// The last attempt failed with this error.
    Error(BoxError, Trail),
}

impl<'a> Exchange<'a> {
    pub(crate) fn new(
        limiter: &'a Limiter,
        key: &str,
        request: Request,
        call: impl FnOnce(ItemKind) -> Call<'a>,
    ) -> Self {
        let mut call = call(kind_of(request.method(), request.headers()));
        let is_stream = |body: &reqwest::Body| body.as_bytes().is_none();
        if request.body().is_some_and(is_stream) {
            call = call.without_hedge();
        }
        Self {
            limiter,
            call,
            rules: limiter.rules_if_any(key),
            request,
        }
    }

    /// Sends the request by `send`, which fails with any error, until there is a response that ends
    /// the call.
    pub(crate) async fn run<F>(self, mut send: impl FnMut(Request) -> F) -> Result<Response, Failed>
    where
        F: Future<Output = Result<Response, AttemptError>>,
    {
        let (limiter, rules) = (self.limiter, self.rules);
        let mut request = Some(self.request);
        let ended = self.call.run(|attempt| {
            let kept = request
                .as_ref()
                .expect("it is kept, or sent for the last time");
            let copy = kept.try_clone();
            let is_last = copy.is_none();
            let next = copy
                .or_else(|| request.take())
                .expect("one of them is left");
            let sending = send(next);
            let rules = rules.clone();
            async move {
                let response = received(&attempt, sending.await)?;
                let rules = rules.as_deref().unwrap_or_default();
                let result = classify(limiter, rules, response, attempt.deadline()).await;
                Ok(if is_last { result.last() } else { result })
            }
        });
        match ended.await {
            Ok(called) => Ok(called
                .value
                .into_response(called.in_flight, Some(called.trail))),
            Err(mut error) => match (error.last.take(), error.take_error()) {
                (Some(last), _) => {
                    Ok(last.into_response(error.in_flight.take(), Some(error.trail)))
                }
                (None, Some(cause)) => Err(Failed::Error(cause, error.trail)),
                (None, None) => Err(Failed::NoResponse(error.map(drop))),
            },
        }
    }
}

/// A response and the time that its head took, or what its error means.
fn received(
    attempt: &Attempt,
    sent: Result<Response, AttemptError>,
) -> Result<(Received, Duration), AttemptError> {
    let latency = attempt.elapsed();
    match sent {
        Ok(response) => Ok((Received::new(response), latency)),
        Err(error) => Err(error.explained_by(|error| failed(error, latency))),
    }
}

/// The outcome that an error of reqwest means, by its own methods, or `None` if its chain says as much.
fn failed(error: &(dyn Error + 'static), latency: Duration) -> Option<Outcome> {
    let own = links(error).find_map(|link| link.downcast_ref::<reqwest::Error>())?;
    if own.is_builder() || never_sent(error) {
        return None;
    }
    let is_transport = own.is_request() || own.is_connect() || own.is_timeout() || own.is_body();
    let known = recognise(error);
    let (failure, phase) = match known {
        Some(known) => known,
        None if is_transport => (Failure::Reset, Phase::Waiting),
        None => return None,
    };
    let failure = if own.is_timeout() {
        Failure::Timeout
    } else {
        failure
    };
    let phase = if own.is_connect() {
        Phase::Connecting
    } else {
        phase
    };
    Some(Outcome::failure(failure, phase, latency))
}

/// Reads the start of an error's body and classifies the response. Reading ends when the attempt's
/// time is up, because its head counts: it may name a wait.
async fn classify(
    limiter: &Limiter,
    rules: &[Rule],
    (mut received, latency): (Received, Duration),
    bound: Option<Timestamp>,
) -> AttemptResult<Received> {
    if received.is_error() {
        let clock = limiter.clock();
        let longest = clock.now() + MAX_READING;
        let until = bound.map_or(longest, |bound| bound.min(longest));
        let _ = clock.bounded(Some(until), received.read_start()).await;
    }
    let (outcome, classification) = classified(limiter, rules, &received, latency);
    AttemptResult::classified(received, outcome, classification.verdict).with_body()
}

/// The body of an error is short; a server that takes longer for it is not waited for.
const MAX_READING: Duration = Duration::from_secs(5);

fn classified(
    limiter: &Limiter,
    rules: &[Rule],
    received: &Received,
    latency: Duration,
) -> (Outcome, Classification) {
    let head = Head::of(&received.response).with_body(received.start());
    let outcome = head.outcome(latency, limiter.clock().wall());
    let classification = head.classify(rules, &outcome.hint);
    (outcome, classification)
}

/// Settles the permit of a single attempt by the head of its response, and returns the response, whose
/// body counts as in flight.
#[cfg(feature = "tower")]
pub(crate) fn settle_head(
    limiter: &Limiter,
    key: &str,
    permit: Permit<'static>,
    response: Response,
    latency: Duration,
) -> (Response, Classification) {
    let received = Received::new(response);
    let rules = limiter.rules_if_any(key);
    let rules = rules.as_deref().unwrap_or_default();
    let (outcome, mut found) = classified(limiter, rules, &received, latency);
    let in_flight = permit.settle_head(&outcome, found.verdict);
    found.verdict = in_flight.verdict();
    (received.into_response(Some(in_flight), None), found)
}
