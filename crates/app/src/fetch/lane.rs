//! The URLs of one gate: which is next, and when it may be sent.
//!
//! Each lane has a task while there is something to send. It asks robots.txt, waits for a slot and
//! for the gate, and starts the attempt in a task of its own. So a host that is held, open or slow
//! delays no other, and while a lane waits it holds no slot: the slot is given back if the gate does
//! not admit at once.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use policy::breaker::BreakerState;
use policy::classify::Rule;
use policy::gate::Reason;
use policy::item::{Item, ItemKind, Step, TerminalReason};
use policy::outcome::Verdict;
use policy::time::Timestamp;
use tidegate::{Ask, Limiter, Permit, Refusal};
use tokio::sync::Notify;
use url::Url;

use super::attempt;
use super::engine::Engine;
use super::item::{FetchItem, Purpose, Scheme};
use super::progress::WaitReason;
use super::record::UrlError;
use super::robots::RobotsRules;
use super::slots::{HostSlots, Slot};
use crate::exchange::{Destination, DestinationError, Trust};
use crate::metrics::KeyMetrics;

/// The URLs of one gate.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) key: String,
    pub(super) slots: Rc<HostSlots>,
    pub(super) metrics: Arc<KeyMetrics>,
    pub(super) rules: Arc<[Rule]>,
    /// A longer wait counts as throttled.
    throttled_after: Duration,
    /// Places of queued URLs in the frontier.
    queue: RefCell<VecDeque<u64>>,
    /// Items that are sent again, or were redirected here.
    ready: RefCell<VecDeque<Box<FetchItem>>>,
    /// An item that waits for robots.txt.
    held: RefCell<Option<Box<FetchItem>>>,
    robots: [RefCell<Robots>; 2],
    destinations: [RefCell<Option<Arc<Destination>>>; 4],
    /// By Crawl-delay.
    next_at: Cell<Timestamp>,
    has_task: Cell<bool>,
    /// Something has come, or robots.txt is known.
    changed: Notify,
    last_success: Cell<Timestamp>,
    /// The first ask since the last success.
    asks_since: Cell<Option<Timestamp>>,
    /// Why it waits, and until when.
    wait: Cell<Option<(WaitReason, Option<Timestamp>)>>,
}

/// What is known of the robots.txt of an origin.
#[derive(Clone, Debug, Default)]
enum Robots {
    #[default]
    Unknown,
    Fetching,
    Known(Rc<RobotsRules>),
    /// It cannot be read for this reason, so nothing is sent until then.
    Unavailable {
        until: Timestamp,
        why: Rc<str>,
    },
}

/// Whether a URL may be sent.
enum Permission {
    Granted,
    Denied(UrlError, Option<String>),
    /// robots.txt has to be fetched first.
    FetchRobots,
    /// It is being fetched.
    Wait,
}

/// How long nothing is sent to a host whose robots.txt cannot be read.
const UNAVAILABLE: Duration = Duration::from_secs(600);

/// When a gate cannot say when asking again helps.
const UNKNOWN_WAIT: Duration = Duration::from_secs(1);

/// Between two asks that are refused: a person may end a hold, so no sleep is long.
const MIN_WAIT: Duration = Duration::from_millis(10);
const MAX_WAIT: Duration = Duration::from_secs(5);

impl Lane {
    pub(super) fn new(engine: &Engine, key: String) -> Self {
        let limiter = engine.core.limiter();
        Self {
            slots: Rc::default(),
            metrics: engine.core.metrics().key(&key),
            rules: limiter.rules(&key),
            throttled_after: limiter.settings(&key).gate.throttled_after(),
            key,
            queue: RefCell::default(),
            ready: RefCell::default(),
            held: RefCell::default(),
            robots: Default::default(),
            destinations: Default::default(),
            next_at: Cell::new(Timestamp::ZERO),
            has_task: Cell::new(false),
            changed: Notify::new(),
            last_success: Cell::new(Timestamp::ZERO),
            asks_since: Cell::new(None),
            wait: Cell::new(None),
        }
    }

    /// Queues the URL at this place of the frontier.
    pub(super) fn queue(self: &Rc<Self>, engine: &Rc<Engine>, place: u64) {
        self.queue.borrow_mut().push_back(place);
        self.wake(engine);
    }

    /// Takes an item that may be sent now: again, or redirected here.
    pub(super) fn take(self: &Rc<Self>, engine: &Rc<Engine>, item: Box<FetchItem>) {
        self.ready.borrow_mut().push_back(item);
        self.wake(engine);
    }

    fn wake(self: &Rc<Self>, engine: &Rc<Engine>) {
        if self.has_task.replace(true) {
            self.changed.notify_one();
            return;
        }
        engine.slots.begin_host();
        let (lane, engine) = (Rc::clone(self), Rc::clone(engine));
        let task = async move {
            // Either it has nothing left, or everything stops.
            tokio::select! {
                () = engine.stopped() => {}
                () = lane.run(&engine) => {}
            }
            lane.has_task.set(false);
            engine.slots.end_host();
            engine.end_lane();
        };
        tokio::task::spawn_local(task);
    }

    async fn run(self: &Rc<Self>, engine: &Rc<Engine>) {
        while let Some(item) = self.next(engine) {
            match self.permission(engine, &item) {
                Permission::Granted => self.start(engine, item).await,
                Permission::Denied(error, why) => engine.fail(item, error, why),
                Permission::FetchRobots => {
                    let robots = self.robots_item(engine, &item.url);
                    *self.held.borrow_mut() = Some(item);
                    self.start(engine, robots).await;
                }
                Permission::Wait => {
                    *self.held.borrow_mut() = Some(item);
                    self.changed.notified().await;
                }
            }
        }
    }

    /// Has it nothing to send? What is in flight may come back.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.borrow().is_empty()
            && self.ready.borrow().is_empty()
            && self.held.borrow().is_none()
            && !matches!(*self.robots[0].borrow(), Robots::Fetching)
            && !matches!(*self.robots[1].borrow(), Robots::Fetching)
    }

    /// How many URLs wait here.
    pub(super) fn waiting(&self) -> u64 {
        let held = usize::from(self.held.borrow().is_some());
        (self.queue.borrow().len() + self.ready.borrow().len() + held) as u64
    }

    /// Why the next one waits, and until when.
    pub(super) fn wait(&self) -> Option<(WaitReason, Option<Timestamp>)> {
        self.wait.get()
    }

    fn next(&self, engine: &Rc<Engine>) -> Option<Box<FetchItem>> {
        if let Some(item) = self.ready.borrow_mut().pop_front() {
            return Some(item);
        }
        if let Some(item) = self.held.borrow_mut().take() {
            return Some(item);
        }
        loop {
            let place = self.queue.borrow_mut().pop_front()?;
            if let Some(item) = engine.item(place, self.since(engine)) {
                return Some(item);
            }
        }
    }

    /// Since when there has been no success, for items that start now.
    fn since(&self, engine: &Engine) -> Timestamp {
        let since = self.asks_since.get();
        since.unwrap_or_else(|| engine.core.clock().now())
    }

    /// Notes the verdict of a response. One that says nothing against the pace is a success.
    pub(super) fn note(&self, verdict: Option<Verdict>, now: Timestamp) {
        let is_refusal = matches!(
            verdict,
            Some(
                Verdict::Throttled
                    | Verdict::Overloaded
                    | Verdict::Unreachable
                    | Verdict::QuotaExhausted
            )
        );
        if !is_refusal {
            self.last_success.set(now);
            self.asks_since.set(None);
        }
    }

    pub(super) fn last_success(&self) -> Timestamp {
        self.last_success.get()
    }

    /// The server that `url` names, which is of this lane.
    pub(super) fn destination(
        &self,
        engine: &Engine,
        url: &Url,
        trust: Trust,
    ) -> Result<Arc<Destination>, DestinationError> {
        let index = 2 * usize::from(trust == Trust::Operator)
            + usize::from(Scheme::of(url) == Scheme::Https);
        let mut known = self.destinations[index].borrow_mut();
        if let Some(known) = &*known {
            return Ok(Arc::clone(known));
        }
        let destination = engine.exchange.destination(url, trust)?;
        Ok(Arc::clone(known.insert(destination)))
    }

    fn permission(&self, engine: &Engine, item: &FetchItem) -> Permission {
        if !engine.settings.robots || item.is_robots() {
            return Permission::Granted;
        }
        let mut robots = self.robots[Scheme::of(&item.url) as usize].borrow_mut();
        match &*robots {
            Robots::Known(rules) if rules.allows(&item.url) => Permission::Granted,
            Robots::Known(_) => Permission::Denied(UrlError::RobotsDenied, None),
            Robots::Unavailable { until, why } if engine.core.clock().now() < *until => {
                Permission::Denied(UrlError::RobotsUnavailable, Some(why.to_string()))
            }
            Robots::Fetching => Permission::Wait,
            Robots::Unknown | Robots::Unavailable { .. } => {
                *robots = Robots::Fetching;
                Permission::FetchRobots
            }
        }
    }

    fn robots_item(self: &Rc<Self>, engine: &Engine, url: &Url) -> Box<FetchItem> {
        let mut robots_url = url.clone();
        robots_url.set_path("/robots.txt");
        robots_url.set_query(None);
        let purpose = Purpose::Robots(Rc::clone(self), Scheme::of(url));
        let queued = robots_url.as_str().to_owned();
        engine.new_item(purpose, queued, robots_url, 0, None, self.since(engine))
    }

    /// Uses these rules from now on, or sends nothing for a time because there are none.
    pub(super) fn set_robots(
        &self,
        engine: &Engine,
        scheme: Scheme,
        rules: Result<RobotsRules, String>,
    ) {
        *self.robots[scheme as usize].borrow_mut() = match rules {
            Ok(rules) => Robots::Known(Rc::new(rules)),
            Err(why) => Robots::Unavailable {
                until: engine.core.clock().now() + UNAVAILABLE,
                why: why.into(),
            },
        };
        self.changed.notify_one();
    }

    /// Starts an attempt as soon as everything admits it.
    async fn start(self: &Rc<Self>, engine: &Rc<Engine>, mut item: Box<FetchItem>) {
        self.wait_for_crawl_delay(engine, &item).await;
        engine.wait_for_retries().await;
        let admitted = self.admit(engine, &mut item).await;
        self.wait.set(None);
        match admitted {
            Ok((slot, permit)) => attempt::spawn(engine, self, item, permit, slot),
            Err(reason) => {
                item.end_wait(engine.core.clock().now());
                engine.fail(item, UrlError::Item(reason), None);
            }
        }
    }

    async fn wait_for_crawl_delay(&self, engine: &Engine, item: &FetchItem) {
        let delay = match &*self.robots[Scheme::of(&item.url) as usize].borrow() {
            Robots::Known(rules) => rules.crawl_delay(),
            _ => None,
        };
        let Some(delay) = delay else {
            return;
        };
        let clock = engine.core.clock();
        let at = self.next_at.get();
        if at > clock.now() {
            self.wait.set(Some((WaitReason::CrawlDelay, Some(at))));
            clock.sleep_until(at).await;
        }
        let delay = delay.min(engine.settings.max_crawl_delay);
        self.next_at.set(clock.now() + delay);
    }

    /// A slot and a permit, or why there will be none.
    async fn admit(
        &self,
        engine: &Rc<Engine>,
        item: &mut FetchItem,
    ) -> Result<(Slot, Permit<'static>), TerminalReason> {
        let limiter = engine.core.limiter();
        loop {
            let ask = self.ask(engine);
            let slot = engine.slots.take(&self.slots).await;
            // A refusal would be counted.
            let refusal = match limiter.peek(ask) {
                Ok(()) => match limiter.try_acquire(ask) {
                    Ok(permit) => return Ok((slot, permit.into_owned())),
                    Err(refusal) => refusal,
                },
                Err(refusal) => refusal,
            };
            drop(slot);
            let wait = WaitReason::Gate(refusal.reason());
            self.wait.set(Some((wait, refusal.until())));
            let asked_at = engine.core.clock().now();
            match limiter.acquire(ask).await {
                Ok(permit) => {
                    let waited = engine.core.clock().now().since(asked_at);
                    engine.waited(refusal.reason(), waited, waited > self.throttled_after);
                    let permit = permit.into_owned();
                    match engine.slots.try_take(&self.slots) {
                        Some(slot) => return Ok((slot, permit)),
                        None => permit.give_back(),
                    }
                }
                Err(refusal) => self.refused(engine, item, refusal).await?,
            }
        }
    }

    /// The ask of the next item: it may wait until there was no success for too long.
    fn ask(&self, engine: &Engine) -> Ask<'_> {
        let since = self.since(engine);
        self.asks_since.set(Some(since));
        let give_up_at = since + engine.settings.give_up_after;
        Ask::new(&self.key).background().until(give_up_at)
    }

    /// Waits after a refusal until asking again may help, or says why that makes no sense.
    async fn refused(
        &self,
        engine: &Engine,
        item: &mut FetchItem,
        refusal: Refusal,
    ) -> Result<(), TerminalReason> {
        let clock = engine.core.clock();
        let now = clock.now();
        item.item.gate_succeeded(self.last_success.get());
        let reason = match refusal.reason() {
            Reason::Deadline if is_open(engine.core.limiter(), &self.key) => Reason::BreakerOpen,
            reason => reason,
        };
        let until = refusal.until();
        self.wait.set(Some((WaitReason::Gate(reason), until)));
        let until = until.or(Some(now + UNKNOWN_WAIT));
        let step = {
            let random = &mut *engine.random.borrow_mut();
            item.item
                .refused(&engine.backoff, reason, until, now, random)
        };
        match step {
            Step::SendAt { at, .. } => {
                clock
                    .sleep_until(at.clamp(now + MIN_WAIT, now + MAX_WAIT))
                    .await;
                Ok(())
            }
            step => Err(step.terminal_reason().unwrap_or(TerminalReason::GaveUp)),
        }
    }
}

fn is_open(limiter: &Limiter, key: &str) -> bool {
    let gate = limiter.gate(key);
    gate.is_some_and(|gate| gate.gate.breaker != BreakerState::Closed)
}

/// A GET that gives up so long after `since`.
pub(super) fn new_item(give_up_after: Duration, since: Timestamp) -> Item {
    let kind = ItemKind {
        give_up_after: Some(give_up_after),
        ..ItemKind::of("GET")
    };
    Item::new(kind, since)
}
