//! Futures polled by the test, and limiters on a manual clock.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tidegate::{GateOptions, GateSettings, Limiter, ManualClock, Outcome, Permit, Refusal};

/// Counts wakeups.
#[derive(Default)]
pub(crate) struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Woken {
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// A waker that sends to a channel, for tests of the real clock.
pub(crate) fn sender() -> (Waker, Receiver<()>) {
    let (sender, receiver) = channel();
    (Waker::from(Arc::new(ChannelWaker(sender))), receiver)
}

struct ChannelWaker(Sender<()>);

impl Wake for ChannelWaker {
    fn wake(self: Arc<Self>) {
        // The receiver may be dropped.
        let _ = self.0.send(());
    }
}

/// A future polled by the test.
pub(crate) struct Caller<'a, T = Permit<'a>> {
    future: Pin<Box<dyn Future<Output = Result<T, Refusal>> + Send + 'a>>,
    woken: Arc<Woken>,
    seen: usize,
}

impl<'a, T> Caller<'a, T> {
    pub(crate) fn new(future: impl Future<Output = Result<T, Refusal>> + Send + 'a) -> Self {
        Self {
            future: Box::pin(future),
            woken: Arc::default(),
            seen: 0,
        }
    }

    pub(crate) fn poll(&mut self) -> Poll<Result<T, Refusal>> {
        let waker = Waker::from(Arc::clone(&self.woken));
        self.poll_with(&waker)
    }

    /// Polls with another waker, which replaces the previous one.
    pub(crate) fn poll_with(&mut self, waker: &Waker) -> Poll<Result<T, Refusal>> {
        self.seen = self.wakeups();
        self.future.as_mut().poll(&mut Context::from_waker(waker))
    }

    pub(crate) fn wakeups(&self) -> usize {
        self.woken.count()
    }

    pub(crate) fn is_woken(&self) -> bool {
        self.wakeups() > self.seen
    }
}

pub(crate) fn settings(set: &[(&str, &str)]) -> GateSettings {
    let mut options = GateOptions::default();
    for (name, value) in set {
        options.set(name, value).expect("a valid setting");
    }
    options.build().expect("consistent settings")
}

pub(crate) fn limiter(set: &[(&str, &str)]) -> (ManualClock, Limiter) {
    let clock = ManualClock::new();
    let limiter = Limiter::builder()
        .gate(settings(set))
        .clock(clock.clock())
        .build();
    (clock, limiter)
}

pub(crate) fn ok() -> Outcome {
    Outcome::status(200, Duration::from_millis(50))
}

/// The number of attempts in flight at `key` and of waiting asks.
pub(crate) fn load(limiter: &Limiter, key: &str) -> (u32, u32) {
    limiter
        .gate(key)
        .map_or((0, 0), |view| (view.gate.in_flight, view.gate.waiting))
}

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) const KEY: &str = "api.example.com";
