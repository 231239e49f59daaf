//! The attempt loop: one request over all its attempts.
//!
//! ask the gate → attempt → judge → settle → wait → again. The loop makes no decisions:
//! [`policy::item`] decides whether to send again, and the gate or pool decides when. The loop
//! waits, calls and records the trail.
//!
//! An attempt is any async function that returns an [`AttemptResult`]: a value and its outcome. The
//! caller gets the value of the last attempt, however the call ended.

use std::convert::Infallible;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use policy::backoff::BackoffSettings;
use policy::classify::rejects_credential;
use policy::hint;
use policy::item::{ItemKind, Safety, Step, TerminalReason};
use policy::jitter::RetryAfterJitter;
use policy::outcome::{Failure, Outcome, Phase, UpstreamResponse, Verdict};
use policy::time::Timestamp;

use crate::ask::Ask;
use crate::clock::Clock;
use crate::credential::Refresh;
use crate::limiter::Limiter;
use crate::permit::InFlight;
use crate::pool::{Endpoint, Pool};

mod error;
mod state;
mod trail;

pub use error::CallError;
pub use trail::{CallDecision, Trail, TrailStep};

use state::{CallState, Next, PermitSource};

/// The result of one attempt.
#[derive(Clone, Debug)]
pub struct AttemptResult<T> {
    /// The caller's value if this is the last attempt.
    ///
    /// Whether it is the last is only known once the next attempt is admitted, so the value is held
    /// during that wait and dropped when the next attempt starts. Everything it owns is held as
    /// long: over HTTP/1 a response with an unread body occupies its connection. If another attempt
    /// may follow, read the body first and return what was read.
    pub value: T,
    /// The outcome that gates and items learn from; `None` if the attempt was not made.
    pub outcome: Option<Outcome>,
    /// The class of the outcome; `None` changes nothing and completes the call.
    pub verdict: Option<Verdict>,
    /// The start of an error message, for display and for the texts of pools; may be empty.
    pub text: String,
    /// The request cannot be resent whatever its outcome, for example because its body was
    /// streamed.
    pub is_last: bool,
    /// The value holds a response whose body has not been read yet.
    pub has_body: bool,
    /// The response rejects the credential or the account, not the request. In a pool, another
    /// endpoint is tried.
    pub is_credential_rejected: bool,
}

impl<T> AttemptResult<T> {
    /// A result classified by its status and hint.
    pub fn new(value: T, outcome: Outcome) -> Self {
        let verdict = outcome.judge().verdict;
        Self::judged(value, outcome, verdict)
    }

    /// A result classified by the caller, from the body or by its own rules.
    pub fn judged(value: T, outcome: Outcome, verdict: Option<Verdict>) -> Self {
        let is_credential_rejected = match outcome.response {
            UpstreamResponse::Status(status) => rejects_credential(status, verdict, b""),
            UpstreamResponse::Failed { .. } => false,
        };
        Self {
            value,
            outcome: Some(outcome),
            verdict,
            text: String::new(),
            is_last: false,
            has_body: false,
            is_credential_rejected,
        }
    }

    /// Marks the response as a rejection of the credential or the account. A 401, a 402, and a 403
    /// whose [`text`](Self::text) says so are recognised without it.
    pub fn credential_rejected(self) -> Self {
        Self {
            is_credential_rejected: true,
            ..self
        }
    }

    /// An attempt that was not made: the request could not be built, or the client refused it
    /// before sending anything.
    ///
    /// The permit is given back with its tokens and its probe slot. Nothing is learned or counted
    /// as sent, and the call completes with this value, because another attempt would fail the same
    /// way.
    pub fn unsent(value: T) -> Self {
        Self {
            value,
            outcome: None,
            verdict: None,
            text: String::new(),
            is_last: true,
            has_body: false,
            is_credential_rejected: false,
        }
    }

    /// Marks the body as unread. If this is the last attempt, it counts against `max_in_flight`
    /// until the caller drops [`CallResult::in_flight`] or [`CallError::in_flight`].
    pub fn with_body(self) -> Self {
        Self {
            has_body: true,
            ..self
        }
    }

    /// Whether the response rejects the credential or the account.
    fn rejects_credential(&self) -> bool {
        let status = match self.outcome.as_ref().map(|outcome| outcome.response) {
            Some(UpstreamResponse::Status(status)) => status,
            Some(UpstreamResponse::Failed { .. }) | None => return false,
        };
        self.is_credential_rejected
            || rejects_credential(status, self.verdict, self.text.as_bytes())
    }

    /// Maps the value.
    pub fn map<U>(self, map: impl FnOnce(T) -> U) -> AttemptResult<U> {
        AttemptResult {
            value: map(self.value),
            outcome: self.outcome,
            verdict: self.verdict,
            text: self.text,
            is_last: self.is_last,
            has_body: self.has_body,
            is_credential_rejected: self.is_credential_rejected,
        }
    }

    /// Marks the request as not resendable. If another attempt would follow, the call ends as
    /// `exhausted` with this value.
    pub fn last(self) -> Self {
        Self {
            is_last: true,
            ..self
        }
    }
}

/// One attempt, passed to the function that makes it.
#[derive(Debug)]
pub struct Attempt {
    /// The attempt's number, counted from 1.
    pub number: u32,
    clock: Clock,
    started: Timestamp,
}

impl Attempt {
    /// An attempt that starts now.
    pub(crate) fn start(number: u32, clock: &Clock) -> Self {
        Self {
            number,
            clock: clock.clone(),
            started: clock.now(),
        }
    }

    /// Time since the attempt started: the latency for its [`Outcome`] when the response arrives.
    pub fn elapsed(&self) -> Duration {
        self.clock.now().since(self.started)
    }

    /// The outcome of a response with this status and these headers, from which waits and limits are
    /// read, and with the [`elapsed`](Self::elapsed) time as latency.
    ///
    /// ```
    /// # fn example(attempt: &tidegate::Attempt, response: &http::Response<()>) {
    /// let outcome = attempt.response(response.status().as_u16(), response.headers());
    /// let by_hand = attempt.response(429, [("retry-after", "7")]);
    /// # }
    /// ```
    pub fn response<'h, H, N, V>(&self, status: u16, headers: H) -> Outcome
    where
        H: IntoIterator<Item = (&'h N, &'h V)> + Clone,
        N: AsRef<str> + ?Sized + 'h,
        V: AsRef<[u8]> + ?Sized + 'h,
    {
        let response = hint::Response {
            status,
            headers: Headers(headers),
            body: b"",
        };
        let hint = hint::read(&response, Some(self.clock.wall()));
        self.status(status).with_hint(hint)
    }

    /// An outcome with this status and the [`elapsed`](Self::elapsed) time as latency. It has no
    /// hints: if the response has headers, use [`response`](Self::response).
    pub fn status(&self, status: u16) -> Outcome {
        Outcome::status(status, self.elapsed())
    }
}

/// Headers as policies read them.
#[derive(Clone, Copy)]
struct Headers<H>(H);

impl<'h, H, N, V> IntoIterator for Headers<H>
where
    H: IntoIterator<Item = (&'h N, &'h V)>,
    N: AsRef<str> + ?Sized + 'h,
    V: AsRef<[u8]> + ?Sized + 'h,
{
    type Item = (&'h str, &'h [u8]);
    type IntoIter = std::iter::Map<H::IntoIter, fn((&'h N, &'h V)) -> Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0
            .into_iter()
            .map(|(name, value)| (name.as_ref(), value.as_ref()))
    }
}

/// The result of a completed call.
#[derive(Debug)]
pub struct CallResult<T> {
    /// The value of the last attempt.
    pub value: T,
    /// How many times the request was sent.
    pub sent: u32,
    /// Every decision about the call.
    pub trail: Trail,
    /// Counts the attempt as in flight while its body is read, see [`AttemptResult::with_body`].
    pub in_flight: Option<InFlight>,
}

/// A request through a gate or a [`Pool`], with retries.
///
/// Created by [`Limiter::call`] or [`Pool::call`]. By default it is safe to resend (GET), uses the
/// preset `standard`, has no deadline, and gives up after five minutes without any success at its
/// gate.
///
/// ```
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use tidegate::{AttemptResult, Limiter};
///
/// # async fn fetch() -> http::Response<String> { http::Response::new(String::new()) }
/// let limiter = Limiter::new();
/// let called = limiter
///     .call("api.example.com")
///     .within(Duration::from_secs(30))
///     .run(async |attempt| {
///         let response = fetch().await;
///         let outcome = attempt.response(response.status().as_u16(), response.headers());
///         AttemptResult::new(response.into_body(), outcome)
///     })
///     .await?;
/// println!("{}", called.value);
/// # Ok(())
/// # }
/// ```
///
/// # Time and cancellation
///
/// [`within`](Self::within) bounds the whole call and [`attempt_timeout`](Self::attempt_timeout) each
/// attempt; a timed-out attempt counts as a failure of the server. A call that is dropped from
/// outside, by `select!` or `tokio::time::timeout` around it, leaves the line; an attempt in flight
/// counts as abandoned, from which the gate learns nothing.
///
/// `P` is what its attempts go through: a limiter's gates or a pool's endpoints.
#[must_use = "a call does nothing until `run`"]
pub struct Call<'a, P = Limiter> {
    limiter: &'a Limiter,
    through: &'a P,
    ask: Ask<'a>,
    kind: ItemKind,
    backoff: Option<&'a BackoffSettings>,
    credential: Option<&'a dyn Refresh>,
    watcher: Option<Watcher<'a>>,
    is_in_line_only: bool,
    /// From [`within`](Self::within): `expires_after` alone bounds only the last send.
    within: Option<Duration>,
    attempt_timeout: Option<Duration>,
    retry_after_jitter: RetryAfterJitter,
}

/// Called with every step of a call as it happens.
type Watcher<'a> = &'a (dyn Fn(&TrailStep) + Sync);

/// How long a gate may go without any success before calls waiting there give up.
pub const GIVE_UP_AFTER: Duration = Duration::from_secs(300);

impl<'a, P> Call<'a, P> {
    fn through(through: &'a P, limiter: &'a Limiter, ask: Ask<'a>) -> Self {
        Self {
            limiter,
            through,
            ask,
            kind: ItemKind {
                give_up_after: Some(GIVE_UP_AFTER),
                ..ItemKind::of("GET")
            },
            backoff: None,
            credential: None,
            watcher: None,
            is_in_line_only: false,
            within: None,
            attempt_timeout: None,
            retry_after_jitter: RetryAfterJitter::CALLS,
        }
    }

    /// Sets whether the request is safe to resend, and its time bounds. Bounds that `kind` does not
    /// set stay as they were.
    pub fn kind(self, kind: ItemKind) -> Self {
        let kind = ItemKind {
            expires_after: kind.expires_after.or(self.kind.expires_after),
            give_up_after: kind.give_up_after.or(self.kind.give_up_after),
            ..kind
        };
        Self { kind, ..self }
    }

    /// What each attempt costs, see [`Ask::cost`]; one by default.
    pub fn cost(mut self, cost: u32) -> Self {
        self.ask.cost = cost;
        self
    }

    /// Sets the HTTP method, which determines whether the request is safe to resend.
    pub fn method(self, method: &str) -> Self {
        let kind = ItemKind {
            safety: Safety::of(method),
            ..self.kind
        };
        Self { kind, ..self }
    }

    /// The request carries an idempotency key, so the server recognises a duplicate and it is safe
    /// to resend.
    pub fn idempotency_key(self) -> Self {
        let kind = ItemKind {
            has_idempotency_key: true,
            ..self.kind
        };
        Self { kind, ..self }
    }

    /// Bounds the whole call: waits, attempts and refreshes. It fails as `expired` as soon as no
    /// attempt can be made in time, and at the latest after this time. An attempt that runs then is
    /// dropped and counts as abandoned; set [`attempt_timeout`](Self::attempt_timeout) as well, so
    /// that the gate learns of a server that does not answer.
    ///
    /// For a bound on the last send only, set `expires_after` with [`kind`](Self::kind).
    pub fn within(self, time: Duration) -> Self {
        let kind = ItemKind {
            expires_after: Some(time),
            ..self.kind
        };
        Self {
            kind,
            within: Some(time),
            ..self
        }
    }

    /// Bounds each attempt. One that takes longer is dropped and counts as a timeout: the breaker
    /// counts a failure, and the request is sent again if that is safe. Without it, an attempt may
    /// take any time.
    pub fn attempt_timeout(self, time: Duration) -> Self {
        Self {
            attempt_timeout: Some(time),
            ..self
        }
    }

    /// How long its gate may go without any success of any call; [`GIVE_UP_AFTER`] by default. With
    /// `None`, and without [`within`](Self::within), a call waits for its gate without bound.
    pub fn give_up_after(self, time: Option<Duration>) -> Self {
        let kind = ItemKind {
            give_up_after: time,
            ..self.kind
        };
        Self { kind, ..self }
    }

    /// Sets the delays between attempts and the maximum number of attempts.
    pub fn backoff(self, backoff: &'a BackoffSettings) -> Self {
        Self {
            backoff: Some(backoff),
            ..self
        }
    }

    /// What is added to a wait that the server names, so that calls refused together do not return
    /// together: up to a tenth of it by default, at most 5 s. That of the backoff is not used.
    pub fn retry_after_jitter(self, jitter: RetryAfterJitter) -> Self {
        Self {
            retry_after_jitter: jitter,
            ..self
        }
    }

    /// Sets the credential to refresh when the server answers 401. An endpoint's own credential is
    /// used instead, see [`Pool::credentials`].
    pub fn credential(self, credential: &'a dyn Refresh) -> Self {
        Self {
            credential: Some(credential),
            ..self
        }
    }

    /// Calls `watcher` with every step as it happens, for example to log it with the request's id.
    /// It should return quickly.
    pub fn watch(self, watcher: &'a (dyn Fn(&TrailStep) + Sync)) -> Self {
        Self {
            watcher: Some(watcher),
            ..self
        }
    }

    /// Fails at once if the gate's line is full or there is no room for a gate. Without this, the
    /// call asks again while it has time. Use it for large numbers of callers: lines are bounded,
    /// but calls waiting outside of them are not.
    pub fn in_line_only(self) -> Self {
        Self {
            is_in_line_only: true,
            ..self
        }
    }

    async fn run_with<E, T, F>(
        self,
        source: PermitSource<'a, E>,
        mut attempt: impl FnMut(Attempt, Option<Arc<Endpoint<E>>>) -> F,
    ) -> Result<CallResult<T>, CallError<T>>
    where
        F: Future<Output = AttemptResult<T>>,
    {
        let clock = self.limiter.clock();
        let mut state = CallState::new(&self, source);
        let deadline = self.within.map(|within| clock.now() + within);
        let mut last = None;
        loop {
            clock.sleep_until(state.next_at()).await;
            let permit = match state.acquire().await {
                Ok(permit) => permit,
                Err(ControlFlow::Continue(())) => continue,
                Err(ControlFlow::Break(reason)) => return Err(state.fail(reason, last, None)),
            };
            let endpoint = permit.endpoint().cloned();
            let own = endpoint
                .as_deref()
                .and_then(|endpoint| state.credential_of(endpoint));
            let credential = own.or(self.credential);
            let used = credential.map(Refresh::generation);
            let this = Attempt::start(state.sent() + 1, clock);
            // Release what the previous attempt holds, such as a connection, before the next one.
            drop(last);
            let started = this.started;
            let timeout_at = self.attempt_timeout.map(|timeout| started + timeout);
            let bound = deadline.into_iter().chain(timeout_at).min();
            let result = clock.bounded(bound, attempt(this, endpoint.clone())).await;
            let mut value = None;
            let answered = match result {
                Some(result) => result.map(|made| value = Some(made)),
                None if bound == timeout_at => {
                    let latency = clock.now().since(started);
                    let failure = Outcome::failure(Failure::Timeout, Phase::Waiting, latency);
                    AttemptResult::new((), failure)
                }
                None => {
                    drop(permit);
                    return Err(state.cut_off());
                }
            };
            let Some(outcome) = &answered.outcome else {
                permit.give_back();
                return Ok(state.unsent(value.expect("only an attempt can be unsent")));
            };
            let sent_to = permit.endpoint_used(own.is_some());
            let is_rejected = state.is_rejected(&answered, sent_to, credential.is_some());
            let (verdict, in_flight) = permit.settle(&answered, outcome, is_rejected);
            // The gate may know better: a 403 during a ban is about the pace.
            let is_rejected = is_rejected && verdict == answered.verdict;
            let mut step = state.after(sent_to, outcome, verdict, is_rejected);
            if answered.is_last && !matches!(step, Step::Done | Step::Failed(_)) {
                step = Step::Failed(TerminalReason::Exhausted);
            }
            if let (Step::Refresh, Some(credential), Some(used)) = (step, credential, used) {
                let refresh = clock.bounded(deadline, credential.refresh(used));
                step = match refresh.await {
                    Some(succeeded) => {
                        state.refreshed(credential, succeeded, sent_to, outcome, &answered)
                    }
                    None => Step::Failed(TerminalReason::Expired),
                };
            }
            match (state.apply_step(step), value) {
                // The attempt no longer counts as in flight: the next one may need the slot.
                (Next::Again, value) => last = value,
                (Next::Done, Some(value)) => return Ok(state.done(value, in_flight)),
                (Next::Done, None) => {
                    return Err(state.fail(TerminalReason::Exhausted, None, in_flight));
                }
                (Next::Failed(reason), value) => return Err(state.fail(reason, value, in_flight)),
            }
        }
    }
}

impl<'a> Call<'a> {
    pub(crate) fn new(limiter: &'a Limiter, ask: Ask<'a>) -> Self {
        Self::through(limiter, limiter, ask)
    }

    /// Makes attempts until one succeeds or the call fails.
    ///
    /// # Errors
    ///
    /// With the terminal reason, the value of the last attempt if any, and the trail. Dropping the
    /// future cancels the call: an attempt in flight counts as abandoned.
    pub async fn run<T, F>(
        self,
        mut attempt: impl FnMut(Attempt) -> F,
    ) -> Result<CallResult<T>, CallError<T>>
    where
        F: Future<Output = AttemptResult<T>>,
    {
        let source: PermitSource<'_, Infallible> = PermitSource::Limiter(self.through);
        self.run_with(source, |this, _| attempt(this)).await
    }
}

impl<'a, E> Call<'a, Pool<E>> {
    pub(crate) fn through_pool(pool: &'a Pool<E>) -> Self {
        Self::through(pool, pool.limiter(), Ask::new(pool.name()))
    }

    /// Makes attempts until one succeeds or the call fails, each at the endpoint chosen for it.
    ///
    /// # Errors
    ///
    /// As for a call through a gate; also fails at once with
    /// [`Disabled`](policy::item::TerminalReason::Disabled) if only a person can help.
    pub async fn run<T, F>(
        self,
        mut attempt: impl FnMut(Attempt, Arc<Endpoint<E>>) -> F,
    ) -> Result<CallResult<T>, CallError<T>>
    where
        F: Future<Output = AttemptResult<T>>,
    {
        self.run_with(PermitSource::Pool(self.through), |this, endpoint| {
            let endpoint = endpoint.expect("a permit of a pool is for an endpoint");
            attempt(this, endpoint)
        })
        .await
    }
}

// Not derived: `P` is only borrowed and need not be `Clone`.
impl<P> Clone for Call<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Call<'_, P> {}

impl<P> fmt::Debug for Call<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("ask", &self.ask)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}
