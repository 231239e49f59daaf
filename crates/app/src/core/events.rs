//! Events of the limiter: one hub that passes them to listeners and to subscribers.
//!
//! A limiter has one listener, the hub. Listeners such as the log and persistence are
//! [added](EventHub::add) once and get every event. Subscribers come and go
//! ([`EventHub::subscribe`]): each names the kinds it wants, has a bounded queue of events as JSON,
//! and one that reads too slowly gets the number of those it missed. Only a subscriber that wants
//! events of single requests makes the limiter emit them; without subscribers that part costs one relaxed
//! load for each event.
//!
//! The last changes of state are recorded for those who subscribe later.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use policy::hint::Source;
use policy::item::TerminalReason;
use policy::ladder::Disabled;
use policy::operation::OperationState;
use serde_json::{Value, json};
use tidegate::event::{Event, EventListener};
use tidegate::{Clock, GateOverride, Timestamp};
use tokio::sync::mpsc;

/// Where events go.
pub struct EventHub {
    clock: Clock,
    listeners: ArcSwap<Vec<Arc<dyn EventListener>>>,
    next_id: AtomicU64,
    /// The number of subscribers, readable without their lock.
    count: AtomicUsize,
    /// Those among them that want events of single requests.
    close_count: AtomicUsize,
    shared: Mutex<Shared>,
}

#[derive(Default)]
struct Shared {
    subscribers: Vec<Subscriber>,
    /// The last changes, oldest first.
    recent: VecDeque<Arc<PublishedEvent>>,
}

struct Subscriber {
    kinds: EventKinds,
    queue: mpsc::Sender<Arc<PublishedEvent>>,
    missed: Arc<AtomicU64>,
}

/// Which events a subscriber gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKinds {
    /// Every event.
    All,
    /// Events that change the state of a gate, an endpoint or a credential, and operations that
    /// need a person.
    Changes,
    /// Events of these kinds.
    Named(Vec<&'static str>),
}

impl EventKinds {
    /// The kind of this name, as it is stored.
    pub fn named(name: &str) -> Option<&'static str> {
        let kinds = CLOSE_KINDS.iter().chain(CHANGE_KINDS).chain(OTHER_KINDS);
        kinds.copied().find(|kind| *kind == name)
    }

    /// Every kind.
    pub fn all() -> Vec<&'static str> {
        [CLOSE_KINDS, CHANGE_KINDS, OTHER_KINDS].concat()
    }

    fn want(&self, event: &Event<'_>) -> bool {
        match self {
            Self::All => true,
            Self::Changes => is_change(event),
            Self::Named(names) => names.contains(&event.name()),
        }
    }

    /// Are events of single requests among them?
    fn are_close(&self) -> bool {
        match self {
            Self::All => true,
            Self::Changes => false,
            Self::Named(names) => names.iter().any(|name| CLOSE_KINDS.contains(name)),
        }
    }
}

/// Kinds that a limiter emits only for listeners that want everything.
const CLOSE_KINDS: &[&str] = &[
    "waiting",
    "admitted",
    "refused",
    "settled",
    "abandoned",
    "rate_changed",
];

/// Kinds that change a state.
const CHANGE_KINDS: &[&str] = &[
    "hold_started",
    "breaker_opened",
    "breaker_closed",
    "gate_overridden",
    "endpoint_paused",
    "endpoint_disabled",
    "endpoint_enabled",
    "refreshed",
    "operation_ended",
];

const OTHER_KINDS: &[&str] = &["retry_scheduled", "failed"];

fn is_change(event: &Event<'_>) -> bool {
    match event {
        // Those that were delivered or cancelled need nothing more.
        Event::OperationEnded { state, .. } => {
            matches!(state, OperationState::Failed(_) | OperationState::Conflict)
        }
        event => CHANGE_KINDS.contains(&event.name()),
    }
}

impl EventHub {
    /// Events that wait for one subscriber; while so many wait it misses what follows.
    pub const MAX_QUEUED: usize = 256;
    /// Subscribers at a time.
    pub const MAX_SUBSCRIBERS: usize = 128;
    /// Changes that are recorded.
    pub const MAX_RECENT: usize = 200;

    /// A hub without listeners; `clock` is that of its limiter.
    pub fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            clock,
            listeners: ArcSwap::default(),
            next_id: AtomicU64::new(1),
            count: AtomicUsize::new(0),
            close_count: AtomicUsize::new(0),
            shared: Mutex::default(),
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
    pub fn subscribe(self: &Arc<Self>, kinds: EventKinds) -> Option<Subscription> {
        let mut shared = self.lock();
        if shared.subscribers.len() >= Self::MAX_SUBSCRIBERS {
            return None;
        }
        let (queue, events) = mpsc::channel(Self::MAX_QUEUED);
        let missed = Arc::new(AtomicU64::new(0));
        shared.subscribers.push(Subscriber {
            kinds,
            queue,
            missed: Arc::clone(&missed),
        });
        self.count(&shared);
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

    /// The last changes, at most `limit`, newest first.
    pub fn recent(&self, limit: usize) -> Vec<Arc<PublishedEvent>> {
        let shared = self.lock();
        shared.recent.iter().rev().take(limit).cloned().collect()
    }

    /// An id for what is sent among events.
    pub fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    #[cold]
    fn publish(&self, at: Timestamp, event: &Event<'_>, is_change: bool) {
        let mut shared = self.lock();
        let mut wanting = shared.subscribers.iter();
        if !is_change && !wanting.any(|subscriber| subscriber.kinds.want(event)) {
            return;
        }
        let published = PublishedEvent::new(self.new_id(), &self.clock, at, event);
        let published = Arc::new(published);
        for subscriber in &shared.subscribers {
            if subscriber.kinds.want(event)
                && subscriber.queue.try_send(Arc::clone(&published)).is_err()
            {
                subscriber.missed.fetch_add(1, Ordering::Relaxed);
            }
        }
        if is_change {
            if shared.recent.len() >= Self::MAX_RECENT {
                shared.recent.pop_front();
            }
            shared.recent.push_back(published);
        }
    }

    fn count(&self, shared: &Shared) {
        let subscribers = &shared.subscribers;
        let close = subscribers.iter().filter(|one| one.kinds.are_close());
        self.count.store(subscribers.len(), Ordering::Relaxed);
        self.close_count.store(close.count(), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventListener for EventHub {
    /// Only subscribers do, and not all of them; listeners are for what changes.
    fn wants_everything(&self) -> bool {
        self.close_count.load(Ordering::Relaxed) > 0
    }

    fn on_event(&self, at: Timestamp, event: &Event<'_>) {
        for listener in &**self.listeners.load() {
            listener.on_event(at, event);
        }
        let is_change = is_change(event);
        if is_change || self.subscribers() > 0 {
            self.publish(at, event, is_change);
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

    /// An id for what is sent among events.
    pub fn new_id(&self) -> u64 {
        self.hub.new_id()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut shared = self.hub.lock();
        let subscribers = &mut shared.subscribers;
        subscribers.retain(|subscriber| !Arc::ptr_eq(&subscriber.missed, &self.missed));
        self.hub.count(&shared);
    }
}

/// An event as it is published: its name, and its values as JSON.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishedEvent {
    /// Its number; later ones are higher.
    pub id: u64,
    /// The name of its kind.
    pub name: &'static str,
    /// When it happened, in milliseconds of Unix time.
    pub at_ms: i64,
    /// Its values; times in milliseconds of Unix time, or null.
    pub data: Value,
    frame: OnceLock<Bytes>,
}

impl PublishedEvent {
    fn new(id: u64, clock: &Clock, at: Timestamp, event: &Event<'_>) -> Self {
        let mut data = values(clock, event);
        let at_ms = unix_millis(clock, at);
        data["at_ms"] = at_ms.into();
        if let Some(text) = text(event) {
            data["text"] = text.into();
        }
        Self {
            id,
            name: event.name(),
            at_ms,
            data,
            frame: OnceLock::new(),
        }
    }

    /// As a server-sent event, written once for all subscribers.
    pub fn frame(&self) -> Bytes {
        let Self { id, name, data, .. } = self;
        let write = || Bytes::from(format!("id: {id}\nevent: {name}\ndata: {data}\n\n"));
        self.frame.get_or_init(write).clone()
    }
}

/// A change as a sentence, without its times.
fn text(event: &Event<'_>) -> Option<String> {
    Some(match *event {
        Event::HoldStarted { key, source, .. } => match source {
            Source::Assumed => format!("{key} held: the server refused and named no wait"),
            Source::Counted => {
                format!("{key} held: the window has accepted as many requests as those before")
            }
            Source::Body => format!("{key} held: the server named a wait in its response"),
            source => format!("{key} held: the server named a wait in `{source}`"),
        },
        Event::BreakerOpened {
            key,
            until: Some(_),
        } => format!("{key} open: too many attempts failed"),
        Event::BreakerOpened { key, until: None } => format!("{key} isolated"),
        Event::BreakerClosed { key } => format!("{key} closed"),
        Event::GateOverridden { key, change } => match change {
            GateOverride::Isolate => format!("{key} isolated by a person"),
            GateOverride::Release => format!("{key} released by a person"),
            GateOverride::Reset => format!("{key} reset by a person"),
        },
        Event::EndpointPaused {
            pool,
            endpoint,
            errors,
            ..
        } => match errors {
            1 => format!("{pool}/{endpoint} paused after an error"),
            errors => format!("{pool}/{endpoint} paused after {errors} errors in a row"),
        },
        Event::EndpointDisabled {
            pool,
            endpoint,
            why,
        } => disabled_text(pool, endpoint, why),
        Event::EndpointEnabled { pool, endpoint } => format!("{pool}/{endpoint} active"),
        Event::Refreshed {
            credential,
            succeeded: true,
        } => format!("credential {credential} refreshed"),
        Event::Refreshed { credential, .. } => {
            format!("credential {credential} could not be refreshed")
        }
        Event::OperationEnded { id, state, .. } => match state.reason() {
            Some(reason) if reason.as_str() != state.as_str() => {
                format!("operation {id} {}: {}", state.as_str(), reason.as_str())
            }
            _ => format!("operation {id} {}", state.as_str()),
        },
        _ => return None,
    })
}

/// That an endpoint is disabled, and why, for a person.
pub(crate) fn disabled_text(pool: &str, endpoint: &str, why: Disabled) -> String {
    match why {
        Disabled::Errors(errors) => {
            format!("{pool}/{endpoint} disabled after {errors} errors in a row")
        }
        Disabled::QuotaExhausted => format!("{pool}/{endpoint} disabled: a quota is used up"),
        Disabled::CredentialRejected => {
            format!("{pool}/{endpoint} disabled: its credential is rejected")
        }
        Disabled::Person => format!("{pool}/{endpoint} disabled by a person"),
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
        Event::GateOverridden { key, change } => {
            let change = match change {
                GateOverride::Isolate => "isolate",
                GateOverride::Release => "release",
                GateOverride::Reset => "reset",
            };
            json!({ "key": key, "change": change })
        }
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
        let mut slow = hub.subscribe(EventKinds::All).unwrap();
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
        let mut all: Vec<_> = std::iter::from_fn(|| hub.subscribe(EventKinds::All)).collect();
        assert_eq!(all.len(), EventHub::MAX_SUBSCRIBERS);
        all.pop();
        assert_eq!(hub.subscribers(), EventHub::MAX_SUBSCRIBERS - 1);
        assert!(hub.subscribe(EventKinds::All).is_some());
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

    #[test]
    fn subscriber_of_changes_gets_no_event_of_a_single_request() {
        let hub = EventHub::new(Clock::system());
        let mut changes = hub.subscribe(EventKinds::Changes).unwrap();
        let mut none = hub.subscribe(EventKinds::Named(Vec::new())).unwrap();
        assert!(!hub.wants_everything());
        abandon(&hub, 1);
        assert_eq!(next(&mut changes), None);
        hub.on_event(Timestamp::ZERO, &Event::BreakerClosed { key: "a" });
        let Some(NextEvent::Event(event)) = next(&mut changes) else {
            panic!("there is no event");
        };
        assert_eq!(
            (event.name, &event.data["text"]),
            ("breaker_closed", &json!("a closed"))
        );
        assert_eq!(next(&mut none), None);
        let close = hub.subscribe(EventKinds::Named(vec!["settled"])).unwrap();
        assert!(hub.wants_everything());
        drop(close);
        assert!(!hub.wants_everything());
    }

    #[test]
    fn records_the_last_changes_without_subscribers() {
        let hub = EventHub::new(Clock::system());
        abandon(&hub, 3);
        for _ in 0..EventHub::MAX_RECENT + 5 {
            hub.on_event(Timestamp::ZERO, &Event::BreakerClosed { key: "a" });
        }
        let recent = hub.recent(usize::MAX);
        assert_eq!(recent.len(), EventHub::MAX_RECENT);
        assert!(recent.windows(2).all(|pair| pair[0].id > pair[1].id));
        assert_eq!(hub.recent(2).len(), 2);
    }

    #[test]
    fn every_kind_has_its_name_once() {
        let all = EventKinds::all();
        let mut names = all.clone();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all.len());
        assert_eq!(EventKinds::named("settled"), Some("settled"));
        assert_eq!(EventKinds::named("x"), None);
    }
}
