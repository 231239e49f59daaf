//! Makes attempts: the only way to send a request to a server that is not ours.
//!
//! [`Exchange::attempt`] is the whole of it: a request goes out under a permit, and what comes back is
//! judged once. It returns the outcome, the hint, the verdict and a text for people, and has counted
//! the attempt. Senders decide what to send and what to do with the result; they never talk to
//! `upstream` themselves.

pub(crate) mod cost;
mod describe;
pub(crate) mod path;

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Body;
use policy::classify::{Classification, Rule, rejects_credential};
use policy::outcome::{Failure, Outcome, Phase, Verdict};
use tidegate::http::Head;
use tidegate::{Attempt, AttemptResult, Clock};
use url::Url;

use crate::core::Core;
use crate::metrics::KeyMetrics;
use crate::settings::{PoolTimeouts, Settings};
use crate::tls::Transport;
use crate::upstream::Upstream;
pub(crate) use crate::upstream::fields;
pub use crate::upstream::{
    Addresses, BodyBounds, BodyError, Destination, DestinationError, ReplayMemory, ReplayableBody,
    RequestBody, RequestBodyError, SendError, SendErrorKind, StreamWait, Timeouts, Trust, Tunnel,
    UpstreamBody,
};

use describe::describe_error;

/// Makes attempts. Clones share their connections.
#[derive(Clone, Debug)]
pub struct Exchange {
    upstream: Upstream,
    clock: Clock,
    timeouts: Timeouts,
}

/// What an attempt came to: a response, good or not, or none.
pub type SendResult = Result<Box<Response<UpstreamBody>>, SendError>;

/// Where an attempt goes, and how its response is judged.
#[derive(Debug)]
pub struct Target<'a, P> {
    /// The server.
    pub destination: &'a Destination,
    /// Rules for its responses that come before everything built in.
    pub rules: &'a [Rule],
    /// Finds the phrase of a text that counts for the endpoint's ladder, in our own spelling.
    pub phrase_in: P,
    /// Where the attempt is counted.
    pub metrics: &'a KeyMetrics,
    /// The number of the worker whose connections are used.
    pub worker: usize,
}

impl Exchange {
    /// Attempts with the timeouts and allowed addresses of these settings, over the connections of
    /// `core`.
    pub fn new(core: &Core, settings: &Settings) -> Self {
        let (http, network) = (&settings.http, &settings.network);
        let addresses = Addresses::new(network.allow.clone())
            .denied_to_clients(settings.forward.denied_networks());
        Self {
            upstream: core.upstream().dialling(addresses, network.proxy.as_ref()),
            clock: core.clock().clone(),
            timeouts: Timeouts {
                connect: http.connect_timeout,
                first_byte: http.first_byte_timeout,
                idle: http.idle_timeout,
                min_rate: http.min_body_rate,
            },
        }
    }

    /// The same, with the timeouts that a pool has of its own.
    pub(crate) fn with_timeouts(&self, timeouts: PoolTimeouts) -> Self {
        let http = self.timeouts;
        Self {
            timeouts: Timeouts {
                connect: timeouts.connect.unwrap_or(http.connect),
                first_byte: timeouts.first_byte.unwrap_or(http.first_byte),
                idle: timeouts.idle.unwrap_or(http.idle),
                min_rate: http.min_rate,
            },
            ..self.clone()
        }
    }

    /// The server that `url` names. Everything that sends to it shares its connections.
    ///
    /// # Errors
    ///
    /// If it is no server that can be called, or too many are in use.
    pub fn destination(
        &self,
        url: &Url,
        trust: Trust,
    ) -> Result<Arc<Destination>, DestinationError> {
        let transport = Transport::default();
        self.destination_of(url, trust, &transport)
    }

    /// The same, for a server that is spoken to in this way.
    ///
    /// # Errors
    ///
    /// The same.
    pub(crate) fn destination_of(
        &self,
        url: &Url,
        trust: Trust,
        transport: &Transport,
    ) -> Result<Arc<Destination>, DestinationError> {
        self.upstream.destination(url, trust, transport)
    }

    /// Timeouts of an attempt.
    pub fn timeouts(&self) -> &Timeouts {
        &self.timeouts
    }

    /// Closes connections of this worker that are idle for too long.
    pub fn close_idle(&self, worker: usize) {
        self.upstream.close_idle(worker);
    }

    /// Forgets connections to servers whose addresses are checked: others may be allowed now.
    pub fn forget_untrusted(&self) {
        self.upstream.forget_untrusted();
    }

    /// Forgets all connections: the next ones are made in another way.
    pub fn forget_all(&self) {
        self.upstream.forget_all();
    }

    /// The `Via` of everything that passes through this process.
    pub fn via(&self) -> &HeaderValue {
        self.upstream.via()
    }

    /// Makes the permitted `attempt` to open a connection whose bytes are passed on as they are. An
    /// open one is a success: what is spoken over it is not seen.
    pub async fn open_tunnel(
        &self,
        attempt: &Attempt,
        destination: &Destination,
        metrics: &KeyMetrics,
    ) -> AttemptResult<Result<Tunnel, SendError>> {
        let opened = self
            .upstream
            .open(attempt, destination, &self.timeouts)
            .await;
        let answered = match opened {
            Ok(tunnel) => {
                let outcome = attempt.status(StatusCode::OK.as_u16());
                AttemptResult::new(Ok(tunnel), outcome).with_body()
            }
            Err(error) => judge_error(attempt.elapsed(), error),
        };
        if let Some(outcome) = &answered.outcome {
            metrics.attempt(answered.verdict, outcome.latency);
        }
        answered
    }

    /// Makes the permitted `attempt` with the request that `make` builds, and judges its result.
    /// `make` may be called a second time, for a resend on a fresh connection.
    pub async fn attempt<P: Fn(&str) -> Option<String>>(
        &self,
        attempt: &Attempt,
        target: Target<'_, P>,
        make: impl FnMut() -> (Request<RequestBody>, ReplayableBody),
    ) -> AttemptResult<SendResult> {
        let wait = StreamWait::default();
        self.attempt_within(attempt, target, &wait, make).await
    }

    /// The same, with a bound for waiting until a stream is free. That is no latency of the server.
    pub async fn attempt_within<P: Fn(&str) -> Option<String>>(
        &self,
        attempt: &Attempt,
        target: Target<'_, P>,
        wait: &StreamWait<'_>,
        make: impl FnMut() -> (Request<RequestBody>, ReplayableBody),
    ) -> AttemptResult<SendResult> {
        let (worker, destination) = (target.worker, target.destination);
        let waited = wait.waited();
        let sending = self
            .upstream
            .send(worker, attempt, destination, &self.timeouts, wait, make);
        let sent = sending.await;
        let waited = wait.waited().saturating_sub(waited);
        let latency = attempt.elapsed().saturating_sub(waited);
        let answered = match sent {
            Ok(response) => self.judge(latency, &target, response).await,
            Err(error) => judge_error(latency, error),
        };
        if let Some(outcome) = &answered.outcome {
            target.metrics.attempt(answered.verdict, outcome.latency);
        }
        answered
    }

    /// Makes the permitted `attempt` with a request that asks for another protocol. A 101 is a success,
    /// whose body [is a tunnel](UpstreamBody::into_tunnel); any other response is judged like all.
    pub(crate) async fn attempt_upgrade<P: Fn(&str) -> Option<String>>(
        &self,
        attempt: &Attempt,
        target: Target<'_, P>,
        request: Request<RequestBody>,
    ) -> AttemptResult<SendResult> {
        let (upstream, destination) = (&self.upstream, target.destination);
        let sending = upstream.send_upgrade(attempt, destination, &self.timeouts, request);
        let answered = match sending.await {
            Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                let head = Head::new(response.status(), response.headers());
                let outcome = head.outcome(attempt.elapsed(), self.clock.wall());
                AttemptResult::classified(Ok(response), outcome, Some(Verdict::Success)).with_body()
            }
            Ok(response) => self.judge(attempt.elapsed(), &target, response).await,
            Err(error) => judge_error(attempt.elapsed(), error),
        };
        if let Some(outcome) = &answered.outcome {
            target.metrics.attempt(answered.verdict, outcome.latency);
        }
        answered
    }

    /// Judges a response. Of one that may be an error the beginning is read: the body may say more
    /// than the head, and the connection is free while the next attempt waits.
    async fn judge<P: Fn(&str) -> Option<String>>(
        &self,
        latency: Duration,
        target: &Target<'_, P>,
        mut response: Box<Response<UpstreamBody>>,
    ) -> AttemptResult<SendResult> {
        let wall = self.clock.wall();
        let status = response.status();
        if is_worth_reading(&response) {
            response.body_mut().read_beginning(MAX_READ).await;
        }
        let body = response.body().beginning();
        let head = Head::new(status, response.headers()).with_body(body);
        let outcome = head.outcome(latency, wall);
        let Classification { verdict, because } = head.classify(target.rules, &outcome.hint);
        let is_credential_rejected = rejects_credential(status.as_u16(), verdict, body);
        let text = match verdict {
            None | Some(Verdict::Success) => String::new(),
            Some(_) => describe_error(status, because, body, &target.phrase_in),
        };
        let has_body = !response.body().is_end_stream();
        let mut result = AttemptResult::classified(Ok(response), outcome, verdict);
        result.text = text;
        result.has_body = has_body;
        result.is_credential_rejected = is_credential_rejected;
        result
    }
}

/// Judges an attempt without a response.
fn judge_error<T>(latency: Duration, error: SendError) -> AttemptResult<Result<T, SendError>> {
    match error.kind {
        SendErrorKind::Failed { failure, phase } => {
            let outcome = Outcome::failure(failure, phase, latency);
            let text = error.message.clone();
            let mut result = AttemptResult::new(Err(error), outcome);
            result.text = text;
            result
        }
        SendErrorKind::NotAllowed { .. }
        | SendErrorKind::NoDescriptors
        | SendErrorKind::NoStream => AttemptResult::unsent(Err(error)),
        // The server has received some of it, so the permit is used up; it says nothing about the
        // server.
        SendErrorKind::RequestBody => {
            let outcome = Outcome::failure(Failure::Reset, Phase::Sending, latency);
            AttemptResult::classified(Err(error), outcome, None)
        }
    }
}

/// As much of a body as policies look at.
const MAX_READ: usize = 64 << 10;

/// Is the body needed to judge a response? That of an error is. Of a success only a short JSON
/// document can say that it is none.
fn is_worth_reading(response: &Response<UpstreamBody>) -> bool {
    let content_type = response.headers().get(header::CONTENT_TYPE);
    let content_type = content_type.map_or(&b""[..], HeaderValue::as_bytes);
    let status = response.status();
    if status.is_client_error() || status.is_server_error() {
        return !content_type.starts_with(b"text/event-stream");
    }
    let is_short = || {
        let length = declared_length(response.headers());
        length.is_some_and(|length| length <= MAX_READ as u64)
    };
    status.is_success() && names_json(content_type) && is_short()
}

fn names_json(content_type: &[u8]) -> bool {
    memchr::memchr2_iter(b'j', b'J', content_type).any(|start| {
        let word = content_type.get(start..start + 4);
        word.is_some_and(|word| word.eq_ignore_ascii_case(b"json"))
    })
}

/// The length that a message's head declares for its body.
pub fn declared_length(headers: &HeaderMap) -> Option<u64> {
    let length = headers.get(header::CONTENT_LENGTH)?.to_str().ok()?;
    length.parse().ok()
}
