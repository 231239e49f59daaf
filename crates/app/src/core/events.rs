//! Events of the limiter: one hub that passes them to listeners and to subscribers.
//!
//! A limiter has one listener, the hub. Listeners such as the log and persistence are
//! [added](EventHub::add) once and get every event. Subscribers come and go
//! ([`EventHub::subscribe`]): each has a bounded queue of events as JSON, and one that reads too
//! slowly gets the number of those it missed. Without subscribers that part costs one relaxed load for each
//! event.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use policy::item::TerminalReason;
use serde_json::{Value, json};
use tidegate::event::{Event, EventListener};
use tidegate::{Clock, Timestamp};
use tokio::sync::mpsc;

/// Where events go.
pub struct EventHub {
    clock: Clock,
    listeners: ArcSwap<Vec<Arc<dyn EventListener>>>,
    /// The length of `subscribers`, readable without its lock.
    count: AtomicUsize,
    subscribers: Mutex<Vec<Subscriber>>,
}

struct Subscriber {
    queue: mpsc::Sender<Arc<PublishedEvent>>,
    missed: Arc<AtomicU64>,
}

impl EventHub {
    /// Events that wait for one subscriber; while so many wait it misses what follows.
    pub const MAX_QUEUED: usize = 256;
    /// Subscribers at a time.
    pub const MAX_SUBSCRIBERS: usize = 32;

    /// A hub without listeners; `clock` is that of its limiter.
    pub fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            clock,
            listeners: ArcSwap::default(),
            count: AtomicUsize::new(0),
            subscribers: Mutex::new(Vec::new()),
        })
    }

    /// Passes every event to `listener` from now on.
    pub fn add(&self, listener: Arc<dyn EventListener>) {
        self.listeners.rcu(|listeners| {
            let mut listeners = Vec::clone(listeners);
            listeners.push(Arc::clone(&listener));
            listeners
        });
    }

    /// Passes no more events to a listener that was added.
    pub fn remove(&self, listener: &Arc<dyn EventListener>) {
        self.listeners.rcu(|listeners| {
            let mut listeners = Vec::clone(listeners);
            listeners.retain(|known| !Arc::ptr_eq(known, listener));
            listeners
        });
    }

    /// Subscribes until the subscription is dropped. `None` if there are too many already.
    pub fn subscribe(self: &Arc<Self>) -> Option<Subscription> {
        let mut subscribers = self.lock();
        if subscribers.len() >= Self::MAX_SUBSCRIBERS {
            return None;
        }
        let (queue, events) = mpsc::channel(Self::MAX_QUEUED);
        let missed = Arc::new(AtomicU64::new(0));
        subscribers.push(Subscriber {
            queue,
            missed: Arc::clone(&missed),
        });
        self.count.store(subscribers.len(), Ordering::Relaxed);
        Some(Subscription {
            hub: Arc::clone(self),
            events,
            missed,
        })
    }

    /// How many subscribers there are.
    pub fn subscribers(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    #[cold]
    fn publish(&self, at: Timestamp, event: &Event<'_>) {
        let event = Arc::new(PublishedEvent::new(&self.clock, at, event));
        for subscriber in &*self.lock() {
            if subscriber.queue.try_send(Arc::clone(&event)).is_err() {
                subscriber.missed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Subscriber>> {
        self.subscribers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventListener for EventHub {
    /// Only subscribers do; listeners are for what changes.
    fn wants_everything(&self) -> bool {
        self.subscribers() > 0
    }

    fn on_event(&self, at: Timestamp, event: &Event<'_>) {
        for listener in &**self.listeners.load() {
            listener.on_event(at, event);
        }
        if self.subscribers() > 0 {
            self.publish(at, event);
        }
    }
}

impl fmt::Debug for EventHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventHub")
            .field("listeners", &self.listeners.load().len())
            .field("subscribers", &self.subscribers())
            .finish_non_exhaustive()
    }
}

/// Events for one subscriber.
#[derive(Debug)]
pub struct Subscription {
    hub: Arc<EventHub>,
    events: mpsc::Receiver<Arc<PublishedEvent>>,
    missed: Arc<AtomicU64>,
}

/// What a subscriber gets next.
#[derive(Clone, Debug, PartialEq)]
pub enum NextEvent {
    /// An event.
    Event(Arc<PublishedEvent>),
    /// The queue was full, so this many events were left out here.
    Missed(u64),
}

impl Subscription {
    /// What comes next.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<NextEvent> {
        // First: with a queue that is never empty it would never be reported otherwise.
        match self.missed.swap(0, Ordering::Relaxed) {
            0 => {}
            missed => return Poll::Ready(NextEvent::Missed(missed)),
        }
        match self.events.poll_recv(context) {
            Poll::Ready(Some(event)) => Poll::Ready(NextEvent::Event(event)),
            // The hub, which this keeps alive, has the other end.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut subscribers = self.hub.lock();
        subscribers.retain(|subscriber| !Arc::ptr_eq(&subscriber.missed, &self.missed));
        self.hub.count.store(subscribers.len(), Ordering::Relaxed);
    }
}

/// An event as it is published: its name, and its values as JSON.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishedEvent {
    /// The name of its kind.
    pub name: &'static str,
    /// Its values; times in milliseconds of Unix time, or null.
    pub data: Value,
}

impl PublishedEvent {
    fn new(clock: &Clock, at: Timestamp, event: &Event<'_>) -> Self {
        let mut data = values(clock, event);
        data["at_ms"] = unix_millis(clock, at).into();
        Self {
            name: event.name(),
            data,
        }
    }
}

/// The hub as the limiter's listener.
pub(super) struct Forwarder(pub(super) Arc<EventHub>);

impl EventListener for Forwarder {
    fn on_event(&self, at: Timestamp, event: &Event<'_>) {
        self.0.on_event(at, event);
    }

    fn wants_everything(&self) -> bool {
        self.0.wants_everything()
    }
}

/// A time of the limiter's clock in milliseconds of Unix time, as it is shown everywhere.
pub(crate) fn unix_millis(clock: &Clock, at: Timestamp) -> i64 {
    clock.wall_at(at).as_unix_millis()
}

/// Milliseconds with their fractions, to the microsecond.
pub(crate) fn millis(duration: Duration) -> f64 {
    let micros = u32::try_from(duration.as_micros()).unwrap_or(u32::MAX);
    f64::from(micros) / 1000.0
}

fn values(clock: &Clock, event: &Event<'_>) -> Value {
    let time = |at: Option<Timestamp>| at.map(|at| unix_millis(clock, at));
    match *event {
        Event::Waiting { key, reason, until } => {
            json!({ "key": key, "reason": reason.as_str(), "until_ms": time(until) })
        }
        Event::Admitted {
            key,
            waited,
            is_probe,
        } => json!({ "key": key, "waited_ms": millis(waited), "probe": is_probe }),
        Event::Refused { key, reason, until } => {
            json!({ "key": key, "reason": reason.as_str(), "until_ms": time(until) })
        }
        Event::Settled {
            key,
            verdict,
            latency,
        } => {
            let verdict = verdict.map(|verdict| verdict.as_str());
            json!({ "key": key, "verdict": verdict, "latency_ms": millis(latency) })
        }
        Event::Abandoned { key } | Event::BreakerClosed { key } => json!({ "key": key }),
        Event::RateChanged { key, from, to, why } => {
            json!({ "key": key, "from": from, "to": to, "why": why.to_string() })
        }
        Event::HoldStarted { key, until, source } => {
            json!({ "key": key, "until_ms": time(Some(until)), "source": source.as_str() })
        }
        Event::BreakerOpened { key, until } => json!({ "key": key, "until_ms": time(until) }),
        Event::RetryScheduled {
            key,
            sent,
            delay,
            reason,
        } => {
            json!({ "key": key, "sent": sent, "delay_ms": millis(delay), "reason": reason.as_str() })
        }
        Event::Failed { key, sent, reason } => {
            json!({ "key": key, "sent": sent, "reason": reason.as_str() })
        }
        Event::Refreshed {
            credential,
            succeeded,
        } => json!({ "credential": credential, "succeeded": succeeded }),
        Event::EndpointPaused {
            pool,
            endpoint,
            until,
            errors,
            source,
        } => json!({
            "pool": pool,
            "endpoint": endpoint,
            "until_ms": time(Some(until)),
            "consecutive_errors": errors,
            "source": source.as_str(),
        }),
        Event::EndpointDisabled {
            pool,
            endpoint,
            why,
        } => json!({ "pool": pool, "endpoint": endpoint, "reason": why.as_str() }),
        Event::EndpointEnabled { pool, endpoint } => {
            json!({ "pool": pool, "endpoint": endpoint })
        }
        Event::OperationEnded {
            id,
            kind,
            destination,
            state,
            sent,
        } => json!({
            "id": id,
            "type": kind,
            "key": destination,
            "state": state.as_str(),
            "reason": state.reason().map(TerminalReason::as_str),
            "sent": sent,
        }),
        // A kind that is new to us still has its name.
        _ => json!({}),
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn next(subscription: &mut Subscription) -> Option<NextEvent> {
        match subscription.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(next) => Some(next),
            Poll::Pending => None,
        }
    }

    fn abandon(hub: &EventHub, times: usize) {
        for _ in 0..times {
            hub.on_event(Timestamp::ZERO, &Event::Abandoned { key: "a" });
        }
    }

    #[test]
    fn slow_subscriber_gets_the_number_of_missed_events() {
        let hub = EventHub::new(Clock::system());
        let mut slow = hub.subscribe().unwrap();
        abandon(&hub, EventHub::MAX_QUEUED + 7);
        assert_eq!(next(&mut slow), Some(NextEvent::Missed(7)));
        for _ in 0..EventHub::MAX_QUEUED {
            assert!(matches!(next(&mut slow), Some(NextEvent::Event(_))));
        }
        assert_eq!(next(&mut slow), None);
        abandon(&hub, 1);
        assert!(matches!(next(&mut slow), Some(NextEvent::Event(_))));
    }

    #[test]
    fn dropped_subscription_makes_room_for_another() {
        let hub = EventHub::new(Clock::system());
        let mut all: Vec<_> = std::iter::from_fn(|| hub.subscribe()).collect();
        assert_eq!(all.len(), EventHub::MAX_SUBSCRIBERS);
        all.pop();
        assert_eq!(hub.subscribers(), EventHub::MAX_SUBSCRIBERS - 1);
        assert!(hub.subscribe().is_some());
    }

    #[test]
    fn listeners_get_every_event() {
        let hub = EventHub::new(Clock::system());
        let received = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&received);
        hub.add(Arc::new(move |_: Timestamp, _: &Event<'_>| {
            count.fetch_add(1, Ordering::Relaxed);
        }));
        abandon(&hub, 3);
        assert_eq!(received.load(Ordering::Relaxed), 3);
    }
}
