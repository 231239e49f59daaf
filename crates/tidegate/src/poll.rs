//! Polls a job: asks for its status until it ends.
//!
//! ask the gate → request → classify → settle → wait → again. When to ask next and when to stop is
//! decided by [`policy::poll`], when a request may leave by its gate. A request for the status is any
//! async function that returns a [`StatusResult`].
//!
//! A 429 leaves the gate's rate and breaker as they are: the waits of the policy replace its reaction,
//! because one job's status is no traffic to learn a rate from. A wait that the server names holds the
//! gate, for every caller. From all other responses the gate learns as from any other call.
//!
//! Waiting for the gate is bounded too: without a success for `give_up_after`, polling ends, as
//! [`GaveUp`](PollFailure::GaveUp), or [`BreakerOpen`](PollFailure::BreakerOpen) if the gate's breaker
//! refused.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll as Async;
use std::time::Duration;

use policy::gate::Reason;
use policy::outcome::{Outcome, UpstreamResponse, Verdict};
pub use policy::poll::{
    JobStatus, Notice, PollOptions, PollReason, PollSettings, PollState, ResponseKind,
};
use policy::poll::{Poll, PollStep, StatusResponse};
use policy::time::Timestamp;

use crate::ask::Ask;
use crate::call::{Attempt, AttemptResult};
use crate::limiter::Limiter;
use crate::permit::Permit;

/// What one request for the status came to.
#[derive(Clone, Debug)]
pub struct StatusResult<T> {
    /// The request, as any other attempt. [`AttemptResult::last`] and [`AttemptResult::unsent`] end
    /// polling as [`Stopped`](PollFailure::Stopped), unless the job has ended.
    pub attempt: AttemptResult<T>,
    /// What kind of response it is. A success whose body cannot be read may be made a failure.
    pub kind: ResponseKind,
    /// What the response says about the job; `None` if nothing.
    pub job: Option<JobStatus>,
}

impl<T> StatusResult<T> {
    /// A response, classified by its status and what the server said about pace.
    pub fn new(value: T, outcome: Outcome, job: Option<JobStatus>) -> Self {
        Self::of(AttemptResult::new(value, outcome), job)
    }

    /// A response that was classified already; its kind is that of its status.
    pub fn of(attempt: AttemptResult<T>, job: Option<JobStatus>) -> Self {
        let outcome = attempt.outcome.as_ref();
        Self {
            kind: outcome.map_or(ResponseKind::Failed { wait: None }, kind),
            attempt,
            job,
        }
    }
}

/// The polling of one job, made by [`Limiter::poll`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tidegate::Limiter;
/// use tidegate::poll::{JobStatus, StatusResult};
///
/// # async fn fetch(_url: &str) -> (u16, String) { (200, "done".to_owned()) }
/// let limiter = Limiter::new();
/// let polled = limiter
///     .poll("scans.example.com")
///     .run(async |attempt| {
///         let (status, state) = fetch("https://scans.example.com/scans/7").await;
///         let job = match &*state {
///             "done" => JobStatus::Done,
///             "error" => JobStatus::Failed,
///             _ => JobStatus::Running { progress: None },
///         };
///         StatusResult::new(state, attempt.status(status), Some(job))
///     })
///     .await?;
/// assert_eq!(polled.value, "done");
/// # Ok(())
/// # }
/// ```
#[must_use = "it does nothing until `run`"]
#[derive(Clone, Debug)]
pub struct Polling<'a> {
    limiter: &'a Limiter,
    ask: Ask<'a>,
    settings: PollSettings,
    within: Option<Duration>,
}

/// A job that is done.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PollResult<T> {
    /// The value of the last response.
    pub value: T,
    /// How many requests were sent.
    pub sent: u32,
}

/// Polling that ended without the job being done.
#[derive(Clone)]
#[non_exhaustive]
pub struct PollError<T> {
    /// Why.
    pub failure: PollFailure,
    /// The value of the last response; `None` if there was none.
    pub last: Option<T>,
    /// How many requests were sent.
    pub sent: u32,
}

/// Why polling ended without the job being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PollFailure {
    /// The job itself failed or was cancelled.
    Job,
    /// The server knows no such job (404).
    NotFound,
    /// Too many errors in a row that are neither 404 nor 429.
    Errors,
    /// No success for longer than `give_up_after`, or the server named a wait that ends later.
    GaveUp,
    /// The same, and it was the gate's breaker that refused.
    BreakerOpen,
    /// The server says that a quota is used up, and not until when.
    QuotaExhausted,
    /// The next request would come after the time of [`Polling::within`].
    Deadline,
    /// The function that asks for the status ended it.
    Stopped,
}

impl fmt::Display for PollFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Job => "the job failed",
            Self::NotFound => "there is no such job",
            Self::Errors => "too many errors in a row",
            Self::GaveUp => "gave up: no success for too long",
            Self::BreakerOpen => "the breaker is open",
            Self::QuotaExhausted => "the quota is used up",
            Self::Deadline => "not done within the deadline",
            Self::Stopped => "polling was stopped",
        })
    }
}

/// A response, and what polling does next.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct PollUpdate {
    /// The number of the request, counted from 1.
    pub number: u32,
    /// When the response was there, since polling began.
    pub elapsed: Duration,
    /// The state after the response.
    pub state: PollState,
    /// How long to wait before the next request; `None` if polling ends.
    pub wait: Option<Duration>,
    /// Why.
    pub reason: PollReason,
    /// The job's last known progress in per cent; 100 if it is done.
    pub progress: Option<f64>,
    /// 429s since the last success. The slowing-down notice is shown exactly while it is above 0.
    pub consecutive_429: u32,
    /// What is logged about it.
    pub notice: Option<Notice>,
}

impl<'a> Polling<'a> {
    pub(crate) fn new(limiter: &'a Limiter, ask: Ask<'a>) -> Self {
        Self {
            limiter,
            ask,
            settings: PollSettings::default(),
            within: None,
        }
    }

    /// The intervals, and when to give up.
    pub fn settings(self, settings: PollSettings) -> Self {
        Self { settings, ..self }
    }

    /// Polling ends after this time at the latest, and as soon as the next request would come later.
    /// A request that is under way then is abandoned.
    pub fn within(self, time: Duration) -> Self {
        Self {
            within: Some(time),
            ..self
        }
    }

    /// Asks for the status until the job has ended, or it makes no sense any more. The first request
    /// is sent at once.
    ///
    /// # Errors
    ///
    /// If the job is not done, with the reason and the last response's value. Dropping the future
    /// ends it too: a request that is under way counts as abandoned.
    pub async fn run<T, F>(
        self,
        status: impl FnMut(Attempt) -> F,
    ) -> Result<PollResult<T>, PollError<T>>
    where
        F: Future<Output = StatusResult<T>>,
    {
        self.run_with(status, |_, _| {}).await
    }

    /// The same, and calls `observe` with every response, for a log or a progress bar.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub async fn run_with<T, F>(
        self,
        mut status: impl FnMut(Attempt) -> F,
        mut observe: impl FnMut(&PollUpdate, &T),
    ) -> Result<PollResult<T>, PollError<T>>
    where
        F: Future<Output = StatusResult<T>>,
    {
        let mut polled = Polled::new(&self);
        let mut last = None;
        loop {
            let request = async {
                let permit = polled.admit().await?;
                let attempt = permit.attempt(polled.sent + 1);
                Ok((permit, status(attempt).await))
            };
            let (permit, result) = match polled.before_deadline(request).await {
                Ok(response) => response,
                Err(failure) => return Err(polled.fail(failure, last)),
            };
            let (update, end) = polled.after(permit, &result);
            let value = result.attempt.value;
            if let Some(update) = &update {
                observe(update, &value);
            }
            match end {
                None => last = Some(value),
                Some(Ok(())) => {
                    let sent = polled.sent;
                    return Ok(PollResult { value, sent });
                }
                Some(Err(failure)) => return Err(polled.fail(failure, Some(value))),
            }
        }
    }
}

/// The state of polling between two requests.
struct Polled<'a> {
    limiter: &'a Limiter,
    ask: Ask<'a>,
    settings: PollSettings,
    poll: Poll,
    started: Timestamp,
    deadline: Option<Timestamp>,
    next_at: Timestamp,
    sent: u32,
    /// Was the last response no success?
    is_retry: bool,
}

/// How polling ended; `None` if it did not.
type End = Option<Result<(), PollFailure>>;

impl<'a> Polled<'a> {
    fn new(polling: &Polling<'a>) -> Self {
        let now = polling.limiter.clock().now();
        Self {
            limiter: polling.limiter,
            ask: polling.ask,
            settings: polling.settings.clone(),
            poll: Poll::new(now),
            started: now,
            deadline: polling.within.map(|time| now + time),
            next_at: now,
            sent: 0,
            is_retry: false,
        }
    }

    /// What `request` returns, unless the deadline passes first or it would begin later.
    async fn before_deadline<T>(
        &self,
        request: impl Future<Output = Result<T, PollFailure>>,
    ) -> Result<T, PollFailure> {
        let Some(deadline) = self.deadline else {
            return request.await;
        };
        if self.next_at > deadline {
            return Err(PollFailure::Deadline);
        }
        let mut request = pin!(request);
        let mut passed = pin!(self.limiter.clock().sleep_until(deadline));
        poll_fn(|context| match request.as_mut().poll(context) {
            Async::Ready(result) => Async::Ready(result),
            Async::Pending => {
                let passed = passed.as_mut().poll(context);
                passed.map(|()| Err(PollFailure::Deadline))
            }
        })
        .await
    }

    /// Waits until the next request is due, and for its permit.
    async fn admit(&self) -> Result<Permit<'a>, PollFailure> {
        let clock = self.limiter.clock();
        clock.sleep_until(self.next_at).await;
        loop {
            let latest = self.latest();
            let ask = match latest > clock.now() {
                true => self.ask.until(latest),
                // A gate that is free is used all the same: the response decides about giving up.
                false => self.ask.within(Duration::ZERO),
            };
            let (reason, until) = match self.limiter.acquire(ask).await {
                Ok(permit) => match permit.count_attempt(self.is_retry) {
                    Ok(()) => return Ok(permit),
                    Err(until) => {
                        permit.give_back();
                        (Reason::RetryBudget, until)
                    }
                },
                Err(refusal) => (refusal.reason(), refusal.until()),
            };
            let now = clock.now();
            let again_at = until.unwrap_or(now + UNKNOWN_WAIT).max(now + MIN_WAIT);
            if again_at > latest {
                return Err(self.refused(reason));
            }
            clock.sleep_until(again_at).await;
        }
    }

    /// The latest time at which a request may leave that has to wait for its gate.
    fn latest(&self) -> Timestamp {
        let gives_up_after = self.poll.gives_up_after(&self.settings);
        let deadline = self.deadline.unwrap_or(gives_up_after);
        gives_up_after.min(deadline)
    }

    fn refused(&self, reason: Reason) -> PollFailure {
        let is_deadline = self.deadline == Some(self.latest());
        match reason {
            Reason::BreakerOpen => PollFailure::BreakerOpen,
            _ if is_deadline => PollFailure::Deadline,
            _ => PollFailure::GaveUp,
        }
    }

    /// Settles the permit, and decides what follows.
    fn after<T>(
        &mut self,
        permit: Permit<'_>,
        result: &StatusResult<T>,
    ) -> (Option<PollUpdate>, End) {
        let attempt = &result.attempt;
        let Some(outcome) = &attempt.outcome else {
            permit.give_back();
            return (None, Some(Err(PollFailure::Stopped)));
        };
        permit.settle_as(outcome, learned_verdict(outcome, attempt.verdict));
        self.sent += 1;
        let now = self.limiter.clock().now();
        let response = StatusResponse {
            kind: result.kind,
            job: result.job,
        };
        self.is_retry = response.kind != ResponseKind::Success;
        let before = self.poll.clone();
        let step = self.poll.after(&self.settings, &response, now);
        self.next_at = now + step.wait.unwrap_or_default();
        let has_end = outcome.hint.wait.or(outcome.hint.reset).is_some();
        let is_exhausted = attempt.verdict == Some(Verdict::QuotaExhausted) && !has_end;
        let end = match end(&step) {
            None if attempt.is_last => Some(Err(PollFailure::Stopped)),
            None if is_exhausted => Some(Err(PollFailure::QuotaExhausted)),
            end => end,
        };
        let update = PollUpdate {
            number: self.sent,
            elapsed: now.since(self.started),
            state: step.state,
            wait: step.wait.filter(|_| end.is_none()),
            reason: step.reason,
            progress: match step.state {
                PollState::Done => Some(100.0),
                _ => self.poll.progress(),
            },
            consecutive_429: self.poll.consecutive_429(),
            // A wait that is not waited is not logged.
            notice: Notice::of(&before, &self.poll, &step)
                .filter(|_| end.is_none() || step.wait.is_none()),
        };
        (Some(update), end)
    }

    fn fail<T>(self, failure: PollFailure, last: Option<T>) -> PollError<T> {
        let sent = self.sent;
        PollError {
            failure,
            last,
            sent,
        }
    }
}

/// When a gate cannot say when asking again helps.
const UNKNOWN_WAIT: Duration = Duration::from_secs(1);

/// Between two asks that are refused.
const MIN_WAIT: Duration = Duration::from_millis(10);

/// The verdict that the gate learns from. The policy's waits replace its reaction to a 429, except
/// that a wait that the server names holds it.
fn learned_verdict(outcome: &Outcome, verdict: Option<Verdict>) -> Option<Verdict> {
    match verdict {
        // Holds the gate for the time that the server names, and changes nothing else.
        Some(Verdict::Throttled) if outcome.is_directed() => Some(Verdict::QuotaExhausted),
        Some(Verdict::Throttled) if outcome.response == UpstreamResponse::Status(429) => None,
        verdict => verdict,
    }
}

fn kind(outcome: &Outcome) -> ResponseKind {
    let wait = outcome.hint.wait;
    match outcome.response {
        UpstreamResponse::Status(200..400) => ResponseKind::Success,
        UpstreamResponse::Status(404) => ResponseKind::NotFound,
        UpstreamResponse::Status(429) => ResponseKind::Throttled { wait },
        UpstreamResponse::Status(_) | UpstreamResponse::Failed { .. } => {
            ResponseKind::Failed { wait }
        }
    }
}

fn end(step: &PollStep) -> End {
    match (step.state, step.reason) {
        (PollState::Polling | PollState::Slowed, _) => None,
        (PollState::Done, _) => Some(Ok(())),
        (PollState::Failed, PollReason::Job) => Some(Err(PollFailure::Job)),
        (PollState::Failed, _) => Some(Err(PollFailure::Errors)),
        (PollState::GaveUp, _) => Some(Err(PollFailure::GaveUp)),
        (PollState::NotFound, _) => Some(Err(PollFailure::NotFound)),
    }
}

impl<T> fmt::Display for PollError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (failure, sent) = (self.failure, self.sent);
        match sent {
            0 => write!(f, "{failure}; no request was sent"),
            1 => write!(f, "{failure}, after 1 request"),
            _ => write!(f, "{failure}, after {sent} requests"),
        }
    }
}

// Not derived: a value need not be `Debug` for its error to be one.
impl<T> fmt::Debug for PollError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PollError")
            .field("failure", &self.failure)
            .field("sent", &self.sent)
            .finish_non_exhaustive()
    }
}

impl<T> std::error::Error for PollError<T> {}
