//! Watches futures wait: in which order they join, how often they are woken and polled.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

/// What was seen of one line.
#[derive(Default)]
pub(super) struct Watch {
    /// How many have joined. Locked around every first poll, so that the numbers are in the order
    /// in which the line heard of them.
    joined: Mutex<u64>,
    admissions: AtomicU64,
    wakes: AtomicU64,
    polls: AtomicU64,
    closed: AtomicBool,
}

/// Totals until now.
pub(super) struct Counts {
    pub(super) admissions: u64,
    pub(super) wakes: u64,
    pub(super) polls: u64,
}

/// What was seen of one wait.
pub(super) struct Seen {
    /// Its place among all that joined.
    pub(super) number: u64,
    /// Its last wake-up among all wake-ups; 0 if it never was.
    pub(super) last_wake: u64,
    /// Its end among all ends.
    pub(super) end: u64,
}

impl Watch {
    /// Watches `future` until its end.
    pub(super) fn observe<F: Future>(self: &Arc<Self>, future: F) -> Observed<F> {
        Observed {
            future: Box::pin(future),
            watch: Arc::clone(self),
            number: None,
            waker: None,
        }
    }

    pub(super) fn counts(&self) -> Counts {
        Counts {
            admissions: self.admissions.load(Ordering::Relaxed),
            wakes: self.wakes.load(Ordering::Relaxed),
            polls: self.polls.load(Ordering::Relaxed),
        }
    }

    /// No task joins any more.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
}

/// A future that is watched.
pub(super) struct Observed<F> {
    future: Pin<Box<F>>,
    watch: Arc<Watch>,
    number: Option<u64>,
    waker: Option<Arc<CountingWaker>>,
}

impl<F: Future> Future for Observed<F> {
    type Output = (F::Output, Seen);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let counting = self.counting_waker(context.waker());
        let waker = Waker::from(Arc::clone(&counting));
        let mut context = Context::from_waker(&waker);
        let (number, poll) = match self.number {
            Some(number) => {
                self.watch.polls.fetch_add(1, Ordering::Relaxed);
                (number, self.future.as_mut().poll(&mut context))
            }
            None => self.join(&mut context),
        };
        poll.map(|output| {
            let seen = Seen {
                number,
                last_wake: counting.last_wake.load(Ordering::Relaxed),
                end: self.watch.admissions.fetch_add(1, Ordering::Relaxed),
            };
            (output, seen)
        })
    }
}

impl<F: Future> Observed<F> {
    /// Polls for the first time.
    fn join(&mut self, context: &mut Context<'_>) -> (u64, Poll<F::Output>) {
        let mut joined = self.watch.joined.lock().expect("no poll panics");
        *joined += 1;
        self.number = Some(*joined);
        (*joined, self.future.as_mut().poll(context))
    }

    /// The waker that was used before if it wakes the same task: a new one each time would make a
    /// future that keeps its waker store it anew.
    fn counting_waker(&mut self, task: &Waker) -> Arc<CountingWaker> {
        let known = self.waker.take();
        let waker = known.filter(|waker| waker.task.will_wake(task));
        let waker = waker.unwrap_or_else(|| {
            Arc::new(CountingWaker {
                task: task.clone(),
                watch: Arc::clone(&self.watch),
                last_wake: AtomicU64::new(0),
            })
        });
        self.waker = Some(Arc::clone(&waker));
        waker
    }
}

/// Counts wake-ups and passes them on.
struct CountingWaker {
    task: Waker,
    watch: Arc<Watch>,
    last_wake: AtomicU64,
}

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let number = self.watch.wakes.fetch_add(1, Ordering::Relaxed) + 1;
        self.last_wake.store(number, Ordering::Relaxed);
        self.task.wake_by_ref();
    }
}
