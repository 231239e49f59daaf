//! Where events of the limiter go: to those who always listen, and to those who look on.
//!
//! A limiter tells one listener, and this is it. Logs and what keeps state over restarts are
//! [added](Hub::add) once and hear everything. Those who look on come and go
//! ([`Hub::subscribe`]): each has a queue with a bound, and whoever reads too slowly is told how
//! much was missed. While nobody looks on, that part costs one relaxed read for each event.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use arc_swap::ArcSwap;
use tidegate::event::{Event, Listener};
use tidegate::{Clock, Timestamp};
use tokio::sync::mpsc;

use super::happening::Happening;

/// Where events go.
pub struct Hub {
    clock: Clock,
    always: ArcSwap<Vec<Arc<dyn Listener>>>,
    /// How many look on; kept apart from the list so that nobody needs its lock to learn of none.
    count: AtomicUsize,
    onlookers: Mutex<Vec<Onlooker>>,
}

struct Onlooker {
    queue: mpsc::Sender<Arc<Happening>>,
    missed: Arc<AtomicU64>,
}

impl Hub {
    /// Whoever looks on is queued so many events, and misses what comes when these wait.
    pub const MOST_QUEUED: usize = 256;
    /// So many may look on at once.
    pub const MOST_ONLOOKERS: usize = 32;

    /// A hub that nobody listens to yet; `clock` is that of its limiter.
    pub fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            clock,
            always: ArcSwap::default(),
            count: AtomicUsize::new(0),
            onlookers: Mutex::new(Vec::new()),
        })
    }

    /// Someone who hears everything from now on.
    pub fn add(&self, listener: Arc<dyn Listener>) {
        self.always.rcu(|always| {
            let mut always = Vec::clone(always);
            always.push(Arc::clone(&listener));
            always
        });
    }

    /// Looks on from now on, until it is dropped. `None` if too many do already.
    pub fn subscribe(self: &Arc<Self>) -> Option<Subscription> {
        let mut onlookers = self.lock();
        if onlookers.len() >= Self::MOST_ONLOOKERS {
            return None;
        }
        let (queue, events) = mpsc::channel(Self::MOST_QUEUED);
        let missed = Arc::new(AtomicU64::new(0));
        onlookers.push(Onlooker {
            queue,
            missed: Arc::clone(&missed),
        });
        self.count.store(onlookers.len(), Ordering::Relaxed);
        Some(Subscription {
            hub: Arc::clone(self),
            events,
            missed,
        })
    }

    /// How many look on now.
    pub fn onlookers(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    #[cold]
    fn pass_on(&self, at: Timestamp, event: &Event<'_>) {
        let happening = Arc::new(Happening::new(&self.clock, at, event));
        for onlooker in &*self.lock() {
            if onlooker.queue.try_send(Arc::clone(&happening)).is_err() {
                onlooker.missed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Onlooker>> {
        self.onlookers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listener for Hub {
    /// Only onlookers do; who always listens hears what changes.
    fn wants_everything(&self) -> bool {
        self.onlookers() > 0
    }

    fn on_event(&self, at: Timestamp, event: &Event<'_>) {
        for listener in &**self.always.load() {
            listener.on_event(at, event);
        }
        if self.onlookers() > 0 {
            self.pass_on(at, event);
        }
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub")
            .field("listeners", &self.always.load().len())
            .field("onlookers", &self.onlookers())
            .finish_non_exhaustive()
    }
}

/// Someone who looks on.
#[derive(Debug)]
pub struct Subscription {
    hub: Arc<Hub>,
    events: mpsc::Receiver<Arc<Happening>>,
    missed: Arc<AtomicU64>,
}

/// What comes next to someone who looks on.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Something happened.
    Happened(Arc<Happening>),
    /// So many events were left out here, for the queue was full.
    Missed(u64),
}

impl Subscription {
    /// What comes next.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Next> {
        // First, for a queue that is never empty would keep it from being told.
        match self.missed.swap(0, Ordering::Relaxed) {
            0 => {}
            missed => return Poll::Ready(Next::Missed(missed)),
        }
        match self.events.poll_recv(context) {
            Poll::Ready(Some(happening)) => Poll::Ready(Next::Happened(happening)),
            // The hub, which this keeps alive, has the other end.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut onlookers = self.hub.lock();
        onlookers.retain(|onlooker| !Arc::ptr_eq(&onlooker.missed, &self.missed));
        self.hub.count.store(onlookers.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn next(subscription: &mut Subscription) -> Option<Next> {
        match subscription.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(next) => Some(next),
            Poll::Pending => None,
        }
    }

    fn abandon(hub: &Hub, times: usize) {
        for _ in 0..times {
            hub.on_event(Timestamp::ZERO, &Event::Abandoned { key: "a" });
        }
    }

    #[test]
    fn who_reads_too_slowly_is_told_how_much_was_missed() {
        let hub = Hub::new(Clock::system());
        let mut slow = hub.subscribe().unwrap();
        abandon(&hub, Hub::MOST_QUEUED + 7);
        assert_eq!(next(&mut slow), Some(Next::Missed(7)));
        for _ in 0..Hub::MOST_QUEUED {
            assert!(matches!(next(&mut slow), Some(Next::Happened(_))));
        }
        assert_eq!(next(&mut slow), None);
        abandon(&hub, 1);
        assert!(matches!(next(&mut slow), Some(Next::Happened(_))));
    }

    #[test]
    fn so_many_may_look_on_and_a_place_is_free_again_at_once() {
        let hub = Hub::new(Clock::system());
        let mut all: Vec<_> = std::iter::from_fn(|| hub.subscribe()).collect();
        assert_eq!(all.len(), Hub::MOST_ONLOOKERS);
        all.pop();
        assert_eq!(hub.onlookers(), Hub::MOST_ONLOOKERS - 1);
        assert!(hub.subscribe().is_some());
    }

    #[test]
    fn who_always_listens_hears_everything() {
        let hub = Hub::new(Clock::system());
        let heard = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&heard);
        hub.add(Arc::new(move |_: Timestamp, _: &Event<'_>| {
            count.fetch_add(1, Ordering::Relaxed);
        }));
        abandon(&hub, 3);
        assert_eq!(heard.load(Ordering::Relaxed), 3);
    }
}
