//! `tidegate poll`: follows the status of a job at a URL that returns JSON.
//!
//! When to ask next and when to stop is decided by `policy::poll` through [`tidegate::poll`]; requests
//! are made by `exchange`. This module reads what a response says about the job.
//!
//! Redirects are not followed: the status of a job has one address, and to follow would send the
//! request's credentials to another. A redirect without a status is reported with its target.
//!
//! The first successful response decides whether URL and pointers fit. If it has no status, polling
//! ends at once: without one it would never end. A later response without one is an error that may
//! pass, such as the page of a proxy.

mod eta;
mod program;
mod request;
mod status;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HOST, LOCATION, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, Uri};
use policy::outcome::{Failure, Outcome, Phase};
use policy::time::WallTime;
use serde_json::Value;
use tidegate::poll::{Notice, PollError, PollResult, ResponseKind, StatusResult};
pub use tidegate::poll::{PollFailure, PollUpdate};
use tidegate::{Attempt, AttemptResult, Clock, GateView};
use tokio::sync::Notify;
use url::Url;

pub use program::run_program;
pub use request::{HeaderError, headers, status_url};
pub use status::{JsonPointer, StatusReader};

use self::eta::Eta;
use self::status::JobReading;
use crate::core::Core;
use crate::exchange::{
    Destination, DestinationError, Exchange, ReplayableBody, RequestBody, SendResult, Target, Trust,
};
use crate::log::{Log, Logs};
use crate::metrics::KeyMetrics;
use crate::redact;
use crate::settings::Settings;
use crate::tls::Transport;
use crate::whole_body::read_whole;

/// What is polled, and how its responses are read.
#[derive(Clone, Debug)]
pub struct PollTarget {
    /// The status URL, as [`status_url`] read it.
    pub url: Url,
    /// Headers of every request, as [`headers`] read them.
    pub headers: HeaderMap,
    /// How its server is spoken to.
    pub transport: Transport,
    /// How responses are read.
    pub reader: StatusReader,
    /// Polling ends after this time.
    pub deadline: Option<Duration>,
}

/// Polls one job.
#[derive(Debug)]
pub struct Poller {
    core: Arc<Core>,
    exchange: Exchange,
    settings: Settings,
    destination: Arc<Destination>,
    metrics: Arc<KeyMetrics>,
    key: String,
    uri: Uri,
    target: PollTarget,
    /// Did a response have a status?
    has_status: Cell<bool>,
    is_in_flight: Cell<bool>,
    responded: Notify,
}

/// A response to a request for the status, or why there was none.
#[derive(Clone, Debug)]
pub struct JobResponse {
    /// When it was there.
    pub at: WallTime,
    /// The HTTP status; `None` without a response.
    pub http_status: Option<u16>,
    /// What is wrong with it, without anything secret.
    pub problem: Option<String>,
    /// The status of the job in the server's word.
    pub status: Option<String>,
    /// Its body as JSON, if it is JSON.
    pub json: Option<Value>,
    /// Its body.
    pub body: Bytes,
}

/// A response, and what polling does next.
#[derive(Clone, Copy, Debug)]
pub struct PollProgress<'a> {
    /// What polling does next.
    pub update: &'a PollUpdate,
    /// The response.
    pub response: &'a JobResponse,
    /// How long the job will take at its pace so far.
    pub eta: Option<Duration>,
}

/// How polling ended.
#[derive(Clone, Debug)]
pub struct PollSummary {
    /// Why.
    pub end: PollEnd,
    /// How many requests were sent.
    pub sent: u32,
    /// How long it took.
    pub elapsed: Duration,
    /// The job's last known progress in per cent.
    pub progress: Option<f64>,
    /// The last response.
    pub last: Option<JobResponse>,
}

/// Why polling ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PollEnd {
    /// The job is done.
    Done,
    /// It is not, for this reason.
    Failed(PollFailure),
    /// The first response has no status where one was expected.
    Unfit(String),
    /// No request can be sent.
    NotSent(String),
    /// `stop` was ready.
    Interrupted,
}

impl PollEnd {
    /// The word for it in `--json`.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed(PollFailure::Job | PollFailure::Errors | PollFailure::Stopped) => "failed",
            Self::Failed(PollFailure::NotFound) => "not_found",
            Self::Failed(PollFailure::GaveUp) => "gave_up",
            Self::Failed(PollFailure::BreakerOpen) => "breaker_open",
            Self::Failed(PollFailure::QuotaExhausted) => "quota_exhausted",
            Self::Failed(PollFailure::Deadline) => "deadline",
            Self::Unfit(_) => "unfit",
            Self::NotSent(_) => "not_sent",
            Self::Interrupted => "interrupted",
        }
    }
}

/// What is known of the responses so far.
#[derive(Debug, Default)]
struct Seen {
    sent: u32,
    progress: Option<f64>,
    last: Option<JobResponse>,
    notice: Option<Notice>,
    eta: Eta,
    left: Option<Duration>,
}

impl Seen {
    /// Takes a response, and returns how long the job will take.
    fn take(&mut self, update: &PollUpdate, response: &JobResponse) -> Option<Duration> {
        self.sent = update.number;
        self.progress = update.progress;
        self.last = Some(response.clone());
        self.notice = update.notice;
        // A response without a status says nothing about the job's pace.
        if response.status.is_some() {
            self.left = self.eta.after(update.elapsed, update.progress);
        }
        self.left
    }
}

/// The value of one attempt.
#[derive(Clone, Debug)]
struct Polled {
    response: JobResponse,
    /// Why polling cannot go on.
    end: Option<PollEnd>,
}

impl Poller {
    /// Polls `target` by these settings, on the system's clock.
    ///
    /// # Errors
    ///
    /// If the URL names no server that can be called.
    pub fn new(
        settings: Settings,
        target: PollTarget,
        logs: Logs,
    ) -> Result<Self, DestinationError> {
        let clock = Clock::system();
        let log = Log::new(logs.sink, logs.format, logs.filter, &clock);
        let core = Core::new(&settings, log, clock, 1);
        let exchange = Exchange::new(&core, &settings);
        let transport = &target.transport;
        let destination = exchange.destination_of(&target.url, Trust::Operator, transport)?;
        let uri: Uri = match target.url.query() {
            Some(query) => format!("{}?{query}", target.url.path()).parse(),
            None => target.url.path().parse(),
        }
        .map_err(|_| DestinationError::Host)?;
        let key = policy::key::normalize(target.url.as_str());
        let key = key.map_err(|_| DestinationError::Host)?;
        Ok(Self {
            metrics: core.metrics().key(&key),
            core,
            exchange,
            settings,
            destination,
            key,
            uri,
            target,
            has_status: Cell::new(false),
            is_in_flight: Cell::new(false),
            responded: Notify::new(),
        })
    }

    /// What is seen of its gate; `None` before the first request.
    pub fn gate(&self) -> Option<GateView> {
        self.core.limiter().gate(&self.key)
    }

    /// Polls until the job has ended, or it makes no sense any more, and calls `observe` with every
    /// response, except for one that ends it because it does not fit. When `stop` is ready, it ends
    /// after the request in flight.
    pub async fn run(
        &self,
        observe: impl FnMut(PollProgress<'_>),
        stop: impl Future<Output = ()>,
    ) -> PollSummary {
        let started = self.core.clock().now();
        let seen = RefCell::new(Seen::default());
        let end = self.run_to_end(observe, stop, &seen).await;
        let seen = seen.into_inner();
        // The gate can refuse for so long that no response ends it.
        if end == PollEnd::Failed(PollFailure::GaveUp) && seen.notice != Some(Notice::GaveUp) {
            self.core.log().poll(&self.key, Notice::GaveUp);
        }
        self.core.log().flush();
        PollSummary {
            end,
            sent: seen.sent,
            elapsed: self.core.clock().now().since(started),
            progress: seen.progress,
            last: seen.last,
        }
    }

    async fn run_to_end(
        &self,
        mut observe: impl FnMut(PollProgress<'_>),
        stop: impl Future<Output = ()>,
        seen: &RefCell<Seen>,
    ) -> PollEnd {
        let observe = |update: &PollUpdate, polled: &Polled| {
            self.is_in_flight.set(false);
            self.responded.notify_waiters();
            if let Some(notice) = update.notice {
                self.core.log().poll(&self.key, notice);
                // What `observe` shows comes after it.
                self.core.log().flush();
            }
            let eta = seen.borrow_mut().take(update, &polled.response);
            if polled.end.is_some() {
                return;
            }
            observe(PollProgress {
                update,
                response: &polled.response,
                eta,
            });
        };
        let mut polling = self.core.limiter().poll(&self.key);
        polling = polling.settings(self.settings.poll.clone());
        if let Some(deadline) = self.target.deadline {
            polling = polling.within(deadline);
        }
        let mut polling = pin!(polling.run_with(|attempt| self.ask(attempt), observe));
        let result = tokio::select! {
            result = &mut polling => result,
            () = stop => match self.is_in_flight.get() {
                false => return PollEnd::Interrupted,
                true => tokio::select! {
                    biased;
                    result = &mut polling => result,
                    () = self.responded.notified() => return PollEnd::Interrupted,
                },
            },
        };
        end(result)
    }

    /// Makes one request, and reads its response.
    async fn ask(&self, attempt: Attempt) -> StatusResult<Polled> {
        self.is_in_flight.set(true);
        let rules = self.core.limiter().rules(&self.key);
        let target = Target {
            destination: &self.destination,
            rules: &rules,
            phrase_in: |_: &str| None,
            metrics: &self.metrics,
            worker: 0,
        };
        let make = || (self.request(), ReplayableBody::NONE);
        let result = self.exchange.attempt(&attempt, target, make).await;
        let mut response = JobResponse {
            at: self.core.clock().wall(),
            http_status: None,
            problem: Some(result.text.clone()).filter(|text| !text.is_empty()),
            status: None,
            json: None,
            body: Bytes::new(),
        };
        let received = match &result.value {
            Err(error) if result.outcome.is_none() => {
                self.is_in_flight.set(false);
                let end = PollEnd::NotSent(error.message.clone());
                let polled = Polled {
                    response,
                    end: Some(end),
                };
                return StatusResult::of(AttemptResult::unsent(polled), None);
            }
            Err(_) => None,
            Ok(received) => Some((received.status(), location(received.headers()))),
        };
        let (result, body) = take_body(result).await;
        let Some((status, location)) = received else {
            let polled = result.map(|()| Polled {
                response,
                end: None,
            });
            return StatusResult::of(polled, None);
        };
        response.http_status = Some(status.as_u16());
        let read = match body {
            Ok(body) => {
                response.json = serde_json::from_slice(&body).ok();
                response.body = body;
                self.target.reader.read(status, &response, location)
            }
            // The head came, but the status did not.
            Err(problem @ BodyProblem::Broken) => {
                response.problem = Some(problem.to_string());
                let outcome = Outcome::failure(Failure::Reset, Phase::Receiving, attempt.elapsed());
                let polled = Polled {
                    response,
                    end: None,
                };
                return StatusResult::new(polled, outcome, None);
            }
            Err(problem @ BodyProblem::TooLong) => Err(problem.to_string()),
        };
        self.judge(result, response, read)
    }

    /// What a response means whose status was read, or was not there.
    fn judge(
        &self,
        result: AttemptResult<()>,
        mut response: JobResponse,
        read: Result<JobReading, String>,
    ) -> StatusResult<Polled> {
        match read {
            Ok(reading) => {
                let is_status = reading.status.is_some();
                self.has_status.set(self.has_status.get() || is_status);
                response.status = reading.status;
                let polled = Polled {
                    response,
                    end: None,
                };
                StatusResult::of(result.map(|()| polled), reading.job)
            }
            Err(problem) => {
                response.problem = Some(problem.clone());
                let is_first = !self.has_status.get();
                let polled = Polled {
                    response,
                    end: is_first.then_some(PollEnd::Unfit(problem)),
                };
                let mut attempt = result.map(|()| polled);
                attempt.is_last = is_first;
                StatusResult {
                    kind: ResponseKind::Failed { wait: None },
                    attempt,
                    job: None,
                }
            }
        }
    }

    fn request(&self) -> Request<RequestBody> {
        let mut request = Request::new(RequestBody::EMPTY);
        *request.uri_mut() = self.uri.clone();
        let headers = request.headers_mut();
        headers.insert(HOST, self.destination.authority().clone());
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        for name in self.target.headers.keys() {
            headers.remove(name);
        }
        for (name, value) in &self.target.headers {
            headers.append(name.clone(), value.clone());
        }
        request
    }
}

const AGENT: &str = concat!("tidegate/", env!("CARGO_PKG_VERSION"));

/// A status is a short document; this much is room for one that carries the job's result.
const MAX_BODY: u64 = 16 << 20;

/// Why a body has no status.
#[derive(Clone, Copy, Debug, thiserror::Error)]
enum BodyProblem {
    #[error("the response broke off")]
    Broken,
    #[error("the response is longer than 16 MiB, expected the status of a job")]
    TooLong,
}

/// Reads the body of a response to its end.
async fn take_body(
    result: AttemptResult<SendResult>,
) -> (AttemptResult<()>, Result<Bytes, BodyProblem>) {
    let mut response = None;
    let result = result.map(|value| response = value.ok());
    let body = match response {
        None => Ok(Bytes::new()),
        Some(response) => {
            let body = read_whole(response.into_body(), MAX_BODY).await;
            body.map_err(|_| BodyProblem::Broken)
                .and_then(|body| body.ok_or(BodyProblem::TooLong))
        }
    };
    (result, body)
}

/// Where a redirect points to, as it may be shown.
fn location(headers: &HeaderMap) -> Option<String> {
    let location = headers.get(LOCATION)?.to_str().ok()?;
    Some(redact::Url::new(location).to_string())
}

fn end(result: Result<PollResult<Polled>, PollError<Polled>>) -> PollEnd {
    match result {
        Ok(_) => PollEnd::Done,
        Err(PollError { failure, last, .. }) => match (failure, last) {
            (PollFailure::Stopped, Some(Polled { end: Some(end), .. })) => end,
            (failure, _) => PollEnd::Failed(failure),
        },
    }
}
