//! The attempt loop: one request over all its attempts.
//!
//! ask the gate → attempt → judge → settle → wait → again. The loop makes no decisions: whether an
//! item is sent again is decided by [`policy::item`], when it may leave by its gate or its pool. The
//! loop waits, calls and records the trail.
//!
//! An attempt is any async function that returns [`AttemptResult`]: a value and its outcome. The caller
//! gets the value of the last attempt, however the call ended.

use std::convert::Infallible;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use policy::backoff::BackoffSettings;
use policy::item::{ItemKind, Safety, Step, TerminalReason};
use policy::outcome::{Outcome, Verdict};
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

/// What one attempt came to.
#[derive(Clone, Debug)]
pub struct AttemptResult<T> {
    /// What the caller gets if this was the last attempt.
    ///
    /// Whether it was is known only when the next one is admitted, so it is held during that wait
    /// and dropped when the next attempt begins. What it owns is held as long: a
    /// response whose body is unread occupies its connection over HTTP/1. So read the body of an
    /// answer that may be followed by another attempt, and give back what was read.
    pub value: T,
    /// What gates and items learn from it; `None` if the attempt was not made after all.
    pub outcome: Option<Outcome>,
    /// Its class; `None` changes nothing and ends the call as done.
    pub verdict: Option<Verdict>,
    /// The beginning of an error's message, for people and for the texts of pools; may be empty.
    pub text: String,
    /// It cannot be sent again, whatever its outcome: its body was streamed, for instance.
    pub is_last: bool,
    /// The value holds a response whose body is still to come.
    pub has_body: bool,
}

impl<T> AttemptResult<T> {
    /// Judged by its status and what the server said about pace.
    pub fn new(value: T, outcome: Outcome) -> Self {
        let verdict = outcome.judge().verdict;
        Self::judged(value, outcome, verdict)
    }

    /// Judged by the caller, from the body or by its own rules.
    pub fn judged(value: T, outcome: Outcome, verdict: Option<Verdict>) -> Self {
        Self {
            value,
            outcome: Some(outcome),
            verdict,
            text: String::new(),
            is_last: false,
            has_body: false,
        }
    }

    /// The attempt was not made after all: the request could not be built, or the client refused
    /// it before anything was sent.
    ///
    /// Its permit is given back unused, with its tokens and as the probe that it may be; nothing
    /// is learned, nothing counts as sent, and the call is done with this value: to try again
    /// would end the same way.
    pub fn unsent(value: T) -> Self {
        Self {
            value,
            outcome: None,
            verdict: None,
            text: String::new(),
            is_last: true,
            has_body: false,
        }
    }

    /// The same, and its body is still to come: if this is the last attempt, it counts against
    /// `max_in_flight` until the caller drops [`CallResult::in_flight`] or [`CallError::in_flight`].
    pub fn with_body(self) -> Self {
        Self {
            has_body: true,
            ..self
        }
    }

    /// The same with another value.
    pub fn map<U>(self, map: impl FnOnce(T) -> U) -> AttemptResult<U> {
        AttemptResult {
            value: map(self.value),
            outcome: self.outcome,
            verdict: self.verdict,
            text: self.text,
            is_last: self.is_last,
            has_body: self.has_body,
        }
    }

    /// The same, and it cannot be sent again: where another attempt would follow, the call is over
    /// as `exhausted`, with this value.
    pub fn last(self) -> Self {
        Self {
            is_last: true,
            ..self
        }
    }
}

/// One attempt, as the function that makes it sees it.
#[derive(Debug)]
pub struct Attempt {
    /// Its number, counted from 1.
    pub number: u32,
    clock: Clock,
    started: Timestamp,
}

impl Attempt {
    /// An attempt that begins now.
    pub(crate) fn start(number: u32, clock: &Clock) -> Self {
        Self {
            number,
            clock: clock.clone(),
            started: clock.now(),
        }
    }

    /// How long it has been under way: the latency of its [`Outcome`] when the answer is there.
    pub fn elapsed(&self) -> Duration {
        self.clock.now().since(self.started)
    }

    /// An outcome with this status, after [`elapsed`](Self::elapsed).
    pub fn status(&self, status: u16) -> Outcome {
        Outcome::status(status, self.elapsed())
    }
}

/// A call that is done.
#[derive(Debug)]
pub struct CallResult<T> {
    /// What the last attempt came to.
    pub value: T,
    /// How often it was sent.
    pub sent: u32,
    /// Every decision about the call.
    pub trail: Trail,
    /// Keeps the attempt in flight while its body is read, see [`AttemptResult::with_body`].
    pub in_flight: Option<InFlight>,
}

/// A request through a gate, or through a [`Pool`], with retries.
///
/// Made by [`Limiter::call`] or [`Pool::call`]. The defaults are a request that may be sent again
/// without harm (GET), the preset `standard`, no deadline, and giving up after five minutes
/// without any success at its gate.
///
/// ```
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use tidegate::{AttemptResult, Limiter};
///
/// # async fn fetch() -> (u16, String) { (200, String::new()) }
/// let limiter = Limiter::new();
/// let called = limiter
///     .call("api.example.com")
///     .within(Duration::from_secs(30))
///     .run(async |attempt| {
///         let (status, body) = fetch().await;
///         AttemptResult::new(body, attempt.status(status))
///     })
///     .await?;
/// println!("{}", called.value);
/// # Ok(())
/// # }
/// ```
///
/// Its attempts leave through `P`: the limiter's gates, or a pool's endpoints.
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
}

/// Called with every step of a call as it is taken.
type Watcher<'a> = &'a (dyn Fn(&TrailStep) + Sync);

/// How long a gate may go without any success before calls that wait there give up.
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
        }
    }

    /// What sending it twice does, and how long it may take. Bounds of time that `kind` leaves
    /// open stay as they were.
    pub fn kind(self, kind: ItemKind) -> Self {
        let kind = ItemKind {
            expires_after: kind.expires_after.or(self.kind.expires_after),
            give_up_after: kind.give_up_after.or(self.kind.give_up_after),
            ..kind
        };
        Self { kind, ..self }
    }

    /// The method of the request, by which it is known what sending it twice does.
    pub fn method(self, method: &str) -> Self {
        let kind = ItemKind {
            safety: Safety::of(method),
            ..self.kind
        };
        Self { kind, ..self }
    }

    /// It carries a key by which the server knows a second copy, so it can be sent again.
    pub fn idempotency_key(self) -> Self {
        let kind = ItemKind {
            has_idempotency_key: true,
            ..self.kind
        };
        Self { kind, ..self }
    }

    /// It must be sent within this time, all attempts and waits included; if it
    /// cannot, it ends at once.
    pub fn within(self, time: Duration) -> Self {
        let kind = ItemKind {
            expires_after: Some(time),
            ..self.kind
        };
        Self { kind, ..self }
    }

    /// How long its gate may go without any success, of whatever call; [`GIVE_UP_AFTER`] unless
    /// set otherwise. With `None`, and without [`within`](Self::within), a call waits for its gate
    /// for as long as that takes.
    pub fn give_up_after(self, time: Option<Duration>) -> Self {
        let kind = ItemKind {
            give_up_after: time,
            ..self.kind
        };
        Self { kind, ..self }
    }

    /// How long to wait between attempts, and how many there may be.
    pub fn backoff(self, backoff: &'a BackoffSettings) -> Self {
        Self {
            backoff: Some(backoff),
            ..self
        }
    }

    /// What to refresh when the server answers 401.
    pub fn credential(self, credential: &'a dyn Refresh) -> Self {
        Self {
            credential: Some(credential),
            ..self
        }
    }

    /// Calls `watcher` with every step as it is taken, and not only at the end: for a log with the
    /// request's id. It should be quick.
    pub fn watch(self, watcher: &'a (dyn Fn(&TrailStep) + Sync)) -> Self {
        Self {
            watcher: Some(watcher),
            ..self
        }
    }

    /// If the line of its gate is full, or there is no room for a gate, it ends at once; without
    /// this it asks again as long as there is time. For many callers: lines have a bound, and calls
    /// that wait outside of them have none.
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
        let mut last = None;
        loop {
            clock.sleep_until(state.next_at()).await;
            let permit = match state.acquire().await {
                Ok(permit) => permit,
                Err(ControlFlow::Continue(())) => continue,
                Err(ControlFlow::Break(reason)) => return Err(state.fail(reason, last, None)),
            };
            let used = self.credential.map(Refresh::generation);
            let this = Attempt::start(state.sent() + 1, clock);
            // What the attempt before holds, such as a connection, may be needed for this one.
            drop(last);
            let answered = attempt(this, permit.endpoint().cloned()).await;
            let Some(outcome) = &answered.outcome else {
                permit.give_back();
                return Ok(state.unsent(answered.value));
            };
            let endpoint = permit.endpoint().map(|endpoint| endpoint.id);
            let in_flight = permit.settle(&answered, outcome);
            let mut step = state.after(endpoint, outcome, answered.verdict);
            if answered.is_last && !matches!(step, Step::Done | Step::Failed(_)) {
                step = Step::Failed(TerminalReason::Exhausted);
            }
            if let (Step::Refresh, Some(credential), Some(used)) = (step, self.credential, used) {
                let succeeded = credential.refresh(used).await;
                step = state.refreshed(credential, succeeded);
            }
            let value = answered.value;
            match state.apply_step(step) {
                // Its place in flight is free at once: the next attempt may need it.
                Next::Again => last = Some(value),
                Next::Done => return Ok(state.done(value, in_flight)),
                Next::Failed(reason) => return Err(state.fail(reason, Some(value), in_flight)),
            }
        }
    }
}

impl<'a> Call<'a> {
    pub(crate) fn new(limiter: &'a Limiter, ask: Ask<'a>) -> Self {
        Self::through(limiter, limiter, ask)
    }

    /// Makes attempts until one is good, or it is over.
    ///
    /// # Errors
    ///
    /// With the reason for which it will not be sent again, the last attempt's value if there was
    /// one, and the trail. Dropping the future cancels: what is under way counts as abandoned.
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

    /// Makes attempts until one is good, or it is over, each at the endpoint that is chosen then.
    ///
    /// # Errors
    ///
    /// As of a call through a gate; and at once as
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

// Not derived: what it leaves through is only borrowed, and need not be either.
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
