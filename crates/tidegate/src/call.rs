//! The attempt loop: one request over all its attempts.
//!
//! ask the gate → attempt → classify → settle → wait → again. The loop makes no decisions:
//! [`policy::item`] decides whether to send again, and the gate or pool decides when. The loop
//! waits, calls and records the trail.
//!
//! An attempt is any async function that returns an [`AttemptResult`], a value and its outcome, or
//! fails with an error that says what happened. The caller gets the value or the error of the last
//! attempt, however the call ended.

use std::convert::Infallible;
use std::fmt;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use policy::backoff::BackoffSettings;
use policy::hedge::{Hedge, may_be_hedged};
use policy::item::{ItemKind, Safety, Step, TerminalReason};
use policy::jitter::RetryAfterJitter;

use crate::ask::Ask;
use crate::credential::Refresh;
use crate::limiter::Limiter;
use crate::permit::InFlight;
use crate::pool::{Endpoint, Pool};

mod attempt;
mod conflict;
mod error;
mod hedge;
mod state;
mod trail;

pub(crate) use attempt::BoxError;
pub use attempt::{Attempt, AttemptError, AttemptResult, IntoAttemptResult};
pub use conflict::{MAX_RESOLUTIONS, Resolution, ResolutionFuture};
pub use error::CallError;
pub use trail::{CallDecision, Trail, TrailStep};

use hedge::Running;
use state::{CallState, Next, PermitSource};

/// The result of a completed call.
#[derive(Debug)]
#[non_exhaustive]
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
/// use tidegate::Limiter;
///
/// # async fn fetch() -> http::Response<String> { http::Response::new(String::new()) }
/// let limiter = Limiter::new();
/// let called = limiter
///     .call("api.example.com")
///     .within(Duration::from_secs(30))
///     .run(async |attempt| {
///         let response = fetch().await;
///         let outcome = attempt.response(response.status().as_u16(), response.headers());
///         attempt.classify(outcome, response.into_body())
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
    on_conflict: Option<OnConflict<'a>>,
    watcher: Option<Watcher<'a>>,
    is_in_line_only: bool,
    /// From [`within`](Self::within): `expires_after` alone bounds only the last send.
    within: Option<Duration>,
    attempt_timeout: Option<Duration>,
    hedge: Option<Hedge>,
    retry_after_jitter: RetryAfterJitter,
}

/// Resolves a conflict; called with its number, counted from 1.
type OnConflict<'a> = &'a (dyn Fn(u32) -> ResolutionFuture<'a> + Sync);

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
            on_conflict: None,
            watcher: None,
            is_in_line_only: false,
            within: None,
            attempt_timeout: None,
            hedge: None,
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

    /// Sends the request a second time if the first attempt is not answered soon; the first success
    /// is used and the other attempt dropped, which counts as abandoned. For servers of which a few
    /// responses are much slower than the others.
    ///
    /// A second attempt is made only
    ///
    /// - of a request that may run twice at once: its method is safe or idempotent;
    /// - while the server is well: not after a refusal, a failure or a lowered rate, not at a held gate
    ///   or one whose breaker is not Closed;
    /// - with a permit that is available at once, at another endpoint of a pool if one is ready;
    /// - if requests have paid for it: one in five by default, see
    ///   [`LimiterBuilder::retry_budget`](crate::LimiterBuilder::retry_budget).
    ///
    /// Otherwise the call goes on without it. [`Totals::hedges`](crate::Totals::hedges) says how many
    /// were made, and the [trail](Trail) when. Both attempts are one of the maximum number.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tidegate::{AttemptResult, Hedge, Limiter};
    ///
    /// let limiter = Limiter::new();
    /// let called = limiter
    ///     .call("api.example.com")
    ///     .hedge(Hedge::After(Duration::from_millis(200)))
    ///     .run(async |attempt| AttemptResult::new("fast", attempt.status(200)))
    ///     .await?;
    /// assert_eq!((called.value, called.sent), ("fast", 1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn hedge(self, hedge: Hedge) -> Self {
        Self {
            hedge: Some(hedge),
            ..self
        }
    }

    /// Makes no second attempts, because the request cannot be sent twice.
    #[cfg(any(feature = "tower", feature = "reqwest"))]
    pub(crate) fn without_hedge(self) -> Self {
        Self {
            hedge: None,
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

    /// Calls `resolve` when the server answers 409 or 412, with the number of the conflict, counted
    /// from 1. It can fetch the present state, change what the next attempt sends, and decide what
    /// follows. Without this, and after [`MAX_RESOLUTIONS`], the call fails as `conflict`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::atomic::{AtomicU32, Ordering};
    /// use tidegate::call::Resolution;
    /// use tidegate::{AttemptResult, Limiter};
    ///
    /// # async fn version_at_server() -> u32 { 7 }
    /// # async fn put(version: u32) -> u16 { if version == 7 { 200 } else { 412 } }
    /// let limiter = Limiter::new();
    /// let version = AtomicU32::new(6);
    /// let called = limiter
    ///     .call("api.example.com")
    ///     .method("PUT")
    ///     .on_conflict(&|_| {
    ///         Box::pin(async {
    ///             version.store(version_at_server().await, Ordering::Relaxed);
    ///             Resolution::Resend
    ///         })
    ///     })
    ///     .run(async |attempt| {
    ///         let status = put(version.load(Ordering::Relaxed)).await;
    ///         AttemptResult::new((), attempt.status(status))
    ///     })
    ///     .await?;
    /// assert_eq!(called.sent, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_conflict(self, resolve: &'a (dyn Fn(u32) -> ResolutionFuture<'a> + Sync)) -> Self {
        Self {
            on_conflict: Some(resolve),
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

    async fn run_with<E, R, F>(
        self,
        source: PermitSource<'a, E>,
        mut attempt: impl FnMut(Attempt, Option<Arc<Endpoint<E>>>) -> F,
    ) -> Result<CallResult<R::Value>, CallError<R::Value>>
    where
        R: IntoAttemptResult,
        F: Future<Output = R>,
    {
        let clock = self.limiter.clock();
        let mut state = CallState::new(&self, source);
        let deadline = self.within.map(|within| clock.now() + within);
        let hedge = self.hedge.filter(|_| may_be_hedged(&self.kind));
        let mut last = None;
        loop {
            if let Some(at) = state.next_at() {
                clock.sleep_until(at).await;
            }
            let permit = match state.acquire().await {
                Ok(permit) => permit,
                Err(ControlFlow::Continue(())) => continue,
                Err(ControlFlow::Break(reason)) => return Err(state.fail(reason, last, None)),
            };
            let (this, running) = state.start(permit, &self, deadline);
            // Release what the previous attempt holds, such as a connection, before the next one.
            drop(last);
            let (running, ended) = match hedge {
                // Boxed, because few calls are hedged.
                Some(hedge) => {
                    Box::pin(state.race(hedge, &self, this, running, &mut attempt)).await
                }
                None => {
                    // Pinned here: moved into the bound, it would be copied and take up twice the room.
                    let sending = pin!(attempt(this, running.endpoint.clone()));
                    let ended = clock.bounded(running.bound(), sending).await;
                    let ended = state.ended(ended, &running);
                    (running, ended)
                }
            };
            let Running {
                permit,
                endpoint,
                used,
                ..
            } = running;
            let result = match ended {
                Ok(result) => result,
                Err(reason) => {
                    drop(permit);
                    return Err(state.cut_off(reason));
                }
            };
            let own = endpoint
                .as_deref()
                .and_then(|endpoint| state.credential_of(endpoint));
            let credential = own.or(self.credential);
            let Some(outcome) = &result.outcome else {
                permit.give_back();
                return state.unsent(result.value);
            };
            let sent_to = permit.endpoint_used(own.is_some());
            let is_rejected = state.is_rejected(&result, sent_to, credential.is_some());
            let (verdict, in_flight) = permit.settle(&result, outcome, is_rejected);
            // The gate may know better: a 403 during a ban is about the pace.
            let is_rejected = is_rejected && verdict == result.verdict;
            let mut step = state.after(sent_to, outcome, verdict, is_rejected);
            if result.is_last && !matches!(step, Step::Done | Step::Failed(_)) {
                step = Step::Failed(TerminalReason::Exhausted);
            }
            if let (Step::Refresh, Some(credential), Some(used)) = (step, credential, used) {
                let refresh = clock.bounded(deadline, credential.refresh(used));
                step = match refresh.await {
                    Some(refreshed) => {
                        state.refreshed(credential, refreshed, sent_to, outcome, &result)
                    }
                    None => Step::Failed(TerminalReason::Expired),
                };
            }
            if let (Step::Conflict, Some(resolve)) = (step, self.on_conflict) {
                step = state.resolve_conflict(resolve, deadline).await;
            }
            match (state.apply_step(step), result.value) {
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
    /// With the terminal reason, the value or the error of the last attempt if any, and the trail.
    /// Dropping the future cancels the call: an attempt in flight counts as abandoned.
    pub async fn run<R, F>(
        self,
        mut attempt: impl FnMut(Attempt) -> F,
    ) -> Result<CallResult<R::Value>, CallError<R::Value>>
    where
        R: IntoAttemptResult,
        F: Future<Output = R>,
    {
        let source: PermitSource<'_, Infallible> = PermitSource::Limiter(self.through);
        self.run_with(source, |this, _| attempt(this)).await
    }
}

impl<'a, E> Call<'a, Pool<E>> {
    pub(crate) fn through_pool(pool: &'a Pool<E>, ask: Ask<'a>) -> Self {
        Self::through(pool, pool.limiter(), ask.alone_at(pool.name()))
    }

    /// Makes attempts until one succeeds or the call fails, each at the endpoint chosen for it.
    ///
    /// # Errors
    ///
    /// As for a call through a gate; also fails at once with
    /// [`Disabled`](policy::item::TerminalReason::Disabled) if only a person can help.
    pub async fn run<R, F>(
        self,
        mut attempt: impl FnMut(Attempt, Arc<Endpoint<E>>) -> F,
    ) -> Result<CallResult<R::Value>, CallError<R::Value>>
    where
        R: IntoAttemptResult,
        F: Future<Output = R>,
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
