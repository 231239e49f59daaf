//! Work paced by its recent failures, for upstreams of which nothing can be read but "it worked" or
//! "it failed".
//!
//! A [`Pace`] is for one upstream. Attempts start one at a time, each a gap after the latest end or
//! start, whichever is later; the first starts at once. The gap is `base · (1 + failures)`: every
//! recent failure makes it longer, every success removes one, and failures expire
//! ([`policy::failure_queue`]). Several attempts may be in flight: only their starts are apart.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), tidegate::pace::GaveUp> {
//! use std::time::Duration;
//!
//! use tidegate::Clock;
//! use tidegate::pace::{FailureQueueSettings, Pace, WorkResult};
//!
//! # async fn download(name: &str) -> Result<(), String> {
//! #     if name == "a" { Ok(()) } else { Err("timed out".to_owned()) }
//! # }
//! # #[cfg(feature = "tokio")] {
//! # let clock = Clock::tokio();
//! let pace = Pace::with_clock(FailureQueueSettings::default(), clock.clone());
//! let began = clock.now();
//! for name in ["a", "b", "c"] {
//!     let downloaded = pace.run(async || download(name).await, WorkResult::of).await?;
//!     println!("{name}: {downloaded:?}");
//! }
//! // 30 s after the success, 60 s after the failure.
//! assert_eq!(clock.now().since(began), Duration::from_secs(90));
//! assert_eq!(pace.view().failures, 2);
//! # }
//! # Ok(())
//! # }
//! ```
//!
//! [`Pace::run`] does all of it; [`Pace::start`] and [`Turn::end`] are its two halves, and
//! [`Pace::try_start`] never waits. Callers wait in the order in which they asked. What was not
//! started is not remembered: dropping a future of `start` leaves the line.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use policy::failure_queue::{Pacer, Start};
use policy::random::Random;
use policy::time::Timestamp;

pub use policy::failure_queue::{
    FailureQueueOptions, FailureQueueSettings, Growth, PacerRecord, WorkResult,
};

use crate::clock::{Clock, Sleep};
use crate::sync::{Mutex, MutexGuard, lock};
use crate::waking::wake;

/// Paces work at one upstream by its recent failures. Cheap to clone; clones are the same pace.
#[derive(Clone)]
pub struct Pace(Arc<Shared>);

struct Shared {
    settings: FailureQueueSettings,
    clock: Clock,
    state: Mutex<PaceState>,
}

struct PaceState {
    pacer: Pacer,
    random: Random,
    /// Those that wait to start, the first of them for the gap and the others for their turn.
    line: VecDeque<Waiting>,
    next_ticket: u64,
}

struct Waiting {
    ticket: u64,
    waker: Waker,
}

/// There was no success for longer than `give_up_after`: nothing starts any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no success for longer than `give_up_after`")]
pub struct GaveUp;

/// Why [`Pace::try_start`] did not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotStarted {
    /// The gap is not over, or others wait already.
    Wait {
        /// The end of the gap as of now; `None` if callers of [`Pace::start`] are first, or if
        /// attempts in flight decide whether to give up.
        until: Option<Timestamp>,
        /// When to ask again, unless an attempt starts or ends before.
        ask_again: Timestamp,
    },
    /// See [`GaveUp`].
    GaveUp,
}

/// How a pace is at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PaceView {
    /// Failures that count: the multiplier of the base.
    pub failures: usize,
    /// The gap as of now, without jitter.
    pub gap: Duration,
    /// Attempts that have started and not ended.
    pub in_flight: u32,
    /// Callers that wait to start.
    pub waiting: usize,
}

impl Pace {
    /// A pace by the system's clock.
    pub fn new(settings: FailureQueueSettings) -> Self {
        Self::with_clock(settings, Clock::system())
    }

    /// A pace by another clock, for instance one that a test moves.
    pub fn with_clock(settings: FailureQueueSettings, clock: Clock) -> Self {
        Self::from_pacer(settings, clock, Pacer::new())
    }

    /// Continues as recorded: failures expire and the gap ends when they would have. Take the time
    /// that has passed since the record was made into account by adding it to its ages.
    pub fn restored(settings: FailureQueueSettings, clock: Clock, record: &PacerRecord) -> Self {
        let pacer = Pacer::restore(&settings, record, clock.now());
        Self::from_pacer(settings, clock, pacer)
    }

    fn from_pacer(settings: FailureQueueSettings, clock: Clock, pacer: Pacer) -> Self {
        let state = PaceState {
            pacer,
            random: Random::from_seed(seed(&clock)),
            line: VecDeque::new(),
            next_ticket: 0,
        };
        Self(Arc::new(Shared {
            settings,
            clock,
            state: Mutex::new(state),
        }))
    }

    /// Waits for the gap, runs `work`, and learns from what `classify` makes of its value. If it is
    /// dropped while `work` runs, the attempt counts as ended and as [`WorkResult::Neutral`].
    ///
    /// # Errors
    ///
    /// [`GaveUp`]; `work` was not run.
    pub async fn run<T>(
        &self,
        work: impl AsyncFnOnce() -> T,
        classify: impl FnOnce(&T) -> WorkResult,
    ) -> Result<T, GaveUp> {
        let turn = self.start().await?;
        let value = work().await;
        turn.end(classify(&value));
        Ok(value)
    }

    /// Waits until an attempt may start. Callers start in the order in which they asked.
    ///
    /// # Errors
    ///
    /// [`GaveUp`].
    pub fn start(&self) -> impl Future<Output = Result<Turn, GaveUp>> + Send + use<> {
        Starting {
            pace: self.clone(),
            ticket: None,
            sleep: None,
        }
    }

    /// Starts an attempt if it may start now.
    ///
    /// # Errors
    ///
    /// That it may not, and when to ask again.
    pub fn try_start(&self) -> Result<Turn, NotStarted> {
        let now = self.0.clock.now();
        let mut state = self.lock();
        let start = match state.line.is_empty() {
            true => self.ask(&mut state, now),
            false => Start::Wait {
                until: None,
                ask_again: Timestamp::MAX,
            },
        };
        match start {
            Start::Now => Ok(Turn::new(self)),
            Start::Wait { until, ask_again } => Err(NotStarted::Wait { until, ask_again }),
            Start::GaveUp => Err(NotStarted::GaveUp),
        }
    }

    /// How it is now.
    pub fn view(&self) -> PaceView {
        let now = self.0.clock.now();
        let state = self.lock();
        let queue = state.pacer.queue();
        PaceView {
            failures: queue.failures(&self.0.settings, now),
            gap: queue.gap(&self.0.settings, now),
            in_flight: state.pacer.in_flight(),
            waiting: state.line.len(),
        }
    }

    /// Is it as good as new: nothing in flight or waiting, no failure and no gap? Then dropping it
    /// loses nothing.
    pub fn is_idle(&self) -> bool {
        let now = self.0.clock.now();
        let state = self.lock();
        state.line.is_empty() && state.pacer.is_idle(&self.0.settings, now)
    }

    /// What is to be stored, as ages.
    pub fn record(&self) -> PacerRecord {
        let now = self.0.clock.now();
        self.lock().pacer.record(&self.0.settings, now)
    }

    /// The settings.
    pub fn settings(&self) -> &FailureQueueSettings {
        &self.0.settings
    }

    fn ask(&self, state: &mut PaceState, now: Timestamp) -> Start {
        let PaceState { pacer, random, .. } = state;
        pacer.start(&self.0.settings, now, random)
    }

    fn lock(&self) -> MutexGuard<'_, PaceState> {
        lock(&self.0.state)
    }

    /// Wakes the first of the line: what it waits for may have changed.
    fn wake_first(&self) {
        let first = self.lock().line.front().map(|first| first.waker.clone());
        if let Some(waker) = first {
            wake(waker);
        }
    }
}

impl fmt::Debug for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pace")
            .field("settings", &self.0.settings)
            .field("pacer", &self.lock().pacer)
            .finish_non_exhaustive()
    }
}

/// Paces that are made at the same time in several processes must not draw the same jitter.
fn seed(clock: &Clock) -> u64 {
    let wall = u64::try_from(clock.wall().as_unix_millis()).unwrap_or_default();
    let mut random = Random::from_seed(wall ^ (u64::from(std::process::id()) << 32));
    random.next_u64()
}

/// The right to make one attempt. Dropped without [`end`](Self::end), it counts as ended and as
/// [`WorkResult::Neutral`].
#[derive(Debug)]
#[must_use = "the gap runs from its end"]
pub struct Turn {
    /// `None` when the end was reported.
    pace: Option<Pace>,
}

impl Turn {
    fn new(pace: &Pace) -> Self {
        Self {
            pace: Some(pace.clone()),
        }
    }

    /// The attempt has ended.
    pub fn end(mut self, result: WorkResult) {
        self.report(result);
    }

    fn report(&mut self, result: WorkResult) {
        if let Some(pace) = self.pace.take() {
            let now = pace.0.clock.now();
            pace.lock().pacer.end(&pace.0.settings, now, result);
            pace.wake_first();
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.report(WorkResult::Neutral);
    }
}

/// Waits in line and then for the gap.
struct Starting {
    pace: Pace,
    /// Its place in the line, from the first poll to the end.
    ticket: Option<u64>,
    sleep: Option<Sleep>,
}

impl Future for Starting {
    type Output = Result<Turn, GaveUp>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            let now = this.pace.0.clock.now();
            let start = match this.is_first(context.waker()) {
                true => {
                    let mut state = this.pace.lock();
                    this.pace.ask(&mut state, now)
                }
                false => return Poll::Pending,
            };
            match start {
                Start::Now => {
                    this.leave();
                    return Poll::Ready(Ok(Turn::new(&this.pace)));
                }
                Start::GaveUp => {
                    this.leave();
                    return Poll::Ready(Err(GaveUp));
                }
                Start::Wait { ask_again, .. } => {
                    let sleep = this.pace.0.clock.sleep_until(ask_again);
                    let sleep = this.sleep.insert(sleep);
                    if Pin::new(sleep).poll(context).is_pending() {
                        return Poll::Pending;
                    }
                }
            }
        }
    }
}

impl Starting {
    /// Joins the line if need be. Is it the first?
    fn is_first(&mut self, waker: &Waker) -> bool {
        let mut state = self.pace.lock();
        let ticket = match self.ticket {
            Some(ticket) => ticket,
            None => {
                let ticket = state.next_ticket;
                state.next_ticket += 1;
                let waker = waker.clone();
                state.line.push_back(Waiting { ticket, waker });
                *self.ticket.insert(ticket)
            }
        };
        let mut line = state.line.iter_mut();
        if let Some(waiting) = line.find(|waiting| waiting.ticket == ticket) {
            waiting.waker.clone_from(waker);
        }
        let first = state.line.front();
        first.is_some_and(|first| first.ticket == ticket)
    }

    fn leave(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let mut state = self.pace.lock();
            state.line.retain(|waiting| waiting.ticket != ticket);
            drop(state);
            self.pace.wake_first();
        }
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;

    use super::*;
    use crate::ManualClock;

    fn pace(clock: &ManualClock, given: &[(&str, &str)]) -> Pace {
        let mut options = FailureQueueOptions::default();
        for (name, value) in given {
            options.set(name, value).unwrap();
        }
        Pace::with_clock(options.build().unwrap(), clock.clock())
    }

    fn seconds(clock: &ManualClock) -> u64 {
        clock.clock().now().as_nanos() / 1_000_000_000
    }

    /// Runs `work` to its end, moving the clock to each alarm.
    async fn drive<T>(clock: &ManualClock, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|context| {
            loop {
                if let Poll::Ready(value) = work.as_mut().poll(context) {
                    return Poll::Ready(value);
                }
                let alarm = clock.next_alarm().unwrap();
                clock.advance(alarm.since(clock.clock().now()));
            }
        })
        .await
    }

    #[tokio::test]
    async fn waits_a_gap_after_each_end() {
        let clock = ManualClock::new();
        let pace = pace(&clock, &[]);
        let mut starts = Vec::new();
        for result in [
            WorkResult::Success,
            WorkResult::Failure,
            WorkResult::Failure,
            WorkResult::Neutral,
        ] {
            let work = async || {
                starts.push(seconds(&clock));
                clock.advance(Duration::from_secs(5));
            };
            drive(&clock, pace.run(work, |()| result)).await.unwrap();
        }
        assert_eq!(starts, [0, 35, 100, 195]);
        let view = pace.view();
        assert_eq!((view.failures, view.gap.as_secs()), (2, 90));
    }

    #[tokio::test]
    async fn callers_start_in_order_even_if_one_leaves() {
        let clock = ManualClock::new();
        let pace = pace(&clock, &[("base", "10s")]);
        type Future = Pin<Box<dyn std::future::Future<Output = Result<Turn, GaveUp>>>>;
        let mut futures: Vec<Future> = Vec::new();
        for _ in 0..4 {
            futures.push(Box::pin(pace.start()));
        }
        let mut turns = Vec::new();
        let poll = |futures: &mut Vec<Future>, turns: &mut Vec<Turn>| {
            let mut context = Context::from_waker(Waker::noop());
            futures.retain_mut(|future| match future.as_mut().poll(&mut context) {
                Poll::Ready(turn) => {
                    turns.push(turn.unwrap());
                    false
                }
                Poll::Pending => true,
            });
        };
        poll(&mut futures, &mut turns);
        assert_eq!((turns.len(), pace.view().waiting), (1, 3));
        assert!(matches!(
            pace.try_start(),
            Err(NotStarted::Wait { until: None, .. })
        ));
        drop(futures.remove(0));
        clock.advance(Duration::from_secs(9));
        poll(&mut futures, &mut turns);
        assert_eq!(turns.len(), 1);
        clock.advance(Duration::from_secs(1));
        poll(&mut futures, &mut turns);
        assert_eq!((turns.len(), pace.view().waiting), (2, 1));
    }

    #[tokio::test]
    async fn success_in_flight_lets_the_next_start_sooner() {
        let clock = ManualClock::new();
        let pace = pace(&clock, &[("base", "10s"), ("max_age", "0s")]);
        let first = pace.try_start().unwrap();
        first.end(WorkResult::Failure);
        clock.advance(Duration::from_secs(20));
        let second = pace.try_start().unwrap();
        let mut third = Box::pin(pace.start());
        let mut context = Context::from_waker(Waker::noop());
        assert!(third.as_mut().poll(&mut context).is_pending());
        second.end(WorkResult::Success);
        clock.advance(Duration::from_secs(10));
        assert!(third.as_mut().poll(&mut context).is_ready());
    }

    #[tokio::test]
    async fn gives_up_without_success() {
        let clock = ManualClock::new();
        let pace = pace(&clock, &[("base", "60s"), ("give_up_after", "100s")]);
        let work = pace.run(async || (), |()| WorkResult::Failure);
        drive(&clock, work).await.unwrap();
        let ended = drive(&clock, pace.start()).await;
        assert_eq!(ended.err(), Some(GaveUp));
        assert_eq!(pace.try_start().err(), Some(NotStarted::GaveUp));
    }

    #[tokio::test]
    async fn continues_as_recorded_on_another_clock() {
        let clock = ManualClock::new();
        let before = pace(&clock, &[]);
        clock.advance(Duration::from_secs(500));
        before.try_start().unwrap().end(WorkResult::Failure);
        clock.advance(Duration::from_secs(10));
        let record = before.record();
        assert_eq!(record.last, Some(Duration::from_secs(10)));
        let later = ManualClock::new();
        let after = Pace::restored(before.settings().clone(), later.clock(), &record);
        assert!(!after.is_idle());
        drive(&later, after.start())
            .await
            .unwrap()
            .end(WorkResult::Neutral);
        assert_eq!(seconds(&later), 50);
    }

    #[tokio::test]
    async fn turn_that_is_dropped_is_over() {
        let clock = ManualClock::new();
        let pace = pace(&clock, &[]);
        drop(pace.try_start().unwrap());
        assert_eq!(pace.view().in_flight, 0);
        clock.advance(Duration::from_secs(30));
        assert!(pace.is_idle());
    }
}
