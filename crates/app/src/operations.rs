//! Delivers operations: waits at the gate of each destination, claims what is due, and sends it.
//!
//! Operations of one type for one destination are a lane. Each lane has its own tasks, so that a
//! destination that is held, open or slow delays no other. A lane asks its gate first and claims an
//! operation when it may send it: an operation that waits belongs to no worker, and a restart loses
//! nothing. Whether and when an operation is sent again is decided by `policy::item`; the queue makes
//! it durable.
//!
//! Everything runs on one thread with a runtime of its own. Its connections are apart from those of
//! the gateway's workers; gates, breakers and pools are shared with them.

mod conflict;
mod deliver;
mod lane;
mod maintain;
mod report;
mod source;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use policy::random::Random;
use policy::time::{Timestamp, WallTime};
use store::StoreError;
use store::operations::{
    ClaimId, ClaimResult, Counters, Lane, Lease, OperationQueue, Settlement, StoredOperation,
};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::LocalSet;

use crate::redact::Text;
use crate::state::State;
use lane::LaneTasks;

/// The thread that delivers operations.
#[derive(Debug)]
pub struct OperationWorker {
    phase: watch::Sender<Phase>,
    is_done: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    event_loop: Handle,
}

/// How far a worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// It claims and sends.
    Running,
    /// It claims nothing more, and finishes what it has claimed.
    Draining,
    /// It drops what it sends and releases what it has claimed.
    Stopping,
}

impl OperationWorker {
    /// Starts delivering the operations of `state`.
    ///
    /// # Errors
    ///
    /// If there is no thread for it.
    pub fn start(state: Arc<State>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let event_loop = runtime.handle().clone();
        let (phase, phases) = watch::channel(Phase::Running);
        let is_done = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&is_done);
        let thread = std::thread::Builder::new()
            .name("operations".to_owned())
            .spawn(move || {
                // What the same database says about pools; it ends with the tasks of the thread.
                let tasks = LocalSet::new();
                let follower = Arc::clone(&state);
                tasks.spawn_local(async move { follower.follow_pools().await });
                let worker = Rc::new(Worker::new(state, phases));
                tasks.block_on(&runtime, worker.run());
                drop(tasks);
                done.store(true, Ordering::Release);
            })?;
        Ok(Self {
            phase,
            is_done,
            thread: Some(thread),
            event_loop,
        })
    }

    /// The event loop of its thread.
    pub(crate) fn event_loop(&self) -> &Handle {
        &self.event_loop
    }

    /// Claims nothing more. What is being sent is finished.
    pub fn drain(&self) {
        self.advance(Phase::Draining);
    }

    /// Has everything been finished or released since it was drained?
    pub fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Acquire)
    }

    /// Stops sending, and releases what is claimed. Ready when that is stored, or
    /// after five seconds.
    pub async fn stop(mut self) {
        self.advance(Phase::Stopping);
        let stopped = async {
            while !self.is_done() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(MAX_RELEASE, stopped).await.is_ok()
            && let Some(thread) = self.thread.take()
        {
            // It has ended, or is about to; a panic of it was printed by its hook.
            _ = thread.join();
        }
    }

    fn advance(&self, to: Phase) {
        self.phase.send_if_modified(|phase| {
            let is_later = to > *phase;
            *phase = to.max(*phase);
            is_later
        });
    }
}

/// Longer than a commit takes on any disk that works.
const MAX_RELEASE: Duration = Duration::from_secs(5);

/// What all tasks of the thread share.
struct Worker {
    state: Arc<State>,
    queue: Arc<dyn OperationQueue>,
    phase: watch::Receiver<Phase>,
    lanes: RefCell<BTreeMap<Lane, Rc<LaneTasks>>>,
    /// Claims that are not settled yet.
    claims: RefCell<BTreeMap<ClaimId, Counters>>,
    random: RefCell<Random>,
    /// Tasks that have something claimed, or are about to.
    runners: Cell<usize>,
    /// When an operation that cannot be read was last logged.
    unreadable_logged: Cell<Option<Timestamp>>,
}

/// A claim lasts so long without a heartbeat.
const LEASE: Duration = Duration::from_secs(60);

/// The same where another machine goes on when this one has failed: longer than a machine is ever
/// too busy for a heartbeat, and not so long that the operations of one that failed wait noticeably.
const SHARED_LEASE: Duration = Duration::from_secs(15);

/// How long to wait after the store has failed.
const STORE_RETRY: Duration = Duration::from_secs(1);

impl Worker {
    fn new(state: Arc<State>, phase: watch::Receiver<Phase>) -> Self {
        let seed = state.clock().wall().as_unix_millis().unsigned_abs();
        Self {
            queue: Arc::clone(state.operations()),
            state,
            phase,
            lanes: RefCell::default(),
            claims: RefCell::default(),
            random: RefCell::new(Random::from_seed(seed)),
            runners: Cell::new(0),
            unreadable_logged: Cell::new(None),
        }
    }

    /// Delivers until it is stopped, or drained and done.
    async fn run(self: Rc<Self>) {
        self.recover().await;
        let maintenance = tokio::task::spawn_local(maintain::run(Rc::clone(&self)));
        let heartbeats = tokio::task::spawn_local(maintain::run_heartbeats(Rc::clone(&self)));
        let mut phase = self.phase.clone();
        tokio::select! {
            () = self.open_lanes() => {}
            _ = phase.wait_for(|phase| *phase > Phase::Running) => {}
        }
        self.wake_lanes();
        tokio::select! {
            () = self.finished() => {}
            _ = phase.wait_for(|phase| *phase > Phase::Draining) => {}
        }
        maintenance.abort();
        heartbeats.abort();
        self.release_claims().await;
    }

    /// Takes back what was claimed before a restart. Nothing is delivered before.
    async fn recover(&self) {
        while self.phase() == Phase::Running {
            match self.queue.recover(self.now()).await {
                Ok(recovered) => {
                    for operation in recovered {
                        self.state.announce(&operation);
                    }
                    return;
                }
                Err(_) => tokio::time::sleep(STORE_RETRY).await,
            }
        }
    }

    /// Opens a lane for all stored operations, and for those that come.
    async fn open_lanes(self: &Rc<Self>) {
        self.open_stored_lanes().await;
        loop {
            match self.state.ready_lanes().next().await {
                Some(lanes) => {
                    for (lane, at) in lanes {
                        self.open_lane(lane, at);
                    }
                }
                None => self.open_stored_lanes().await,
            }
        }
    }

    /// Opens a lane for everything in the queue.
    async fn open_stored_lanes(self: &Rc<Self>) {
        let mut after = None;
        loop {
            let Ok(lanes) = self.queue.lanes(after.as_ref(), LANES_READ).await else {
                tokio::time::sleep(STORE_RETRY).await;
                continue;
            };
            let is_last = lanes.len() < LANES_READ;
            after = lanes.last().map(|(lane, _)| lane.clone());
            for (lane, next_at) in lanes {
                self.open_lane(lane, next_at);
            }
            if is_last {
                return;
            }
        }
    }

    /// Opens a lane whose next operation is due at `next_at`, or tells the open one.
    fn open_lane(self: &Rc<Self>, lane: Lane, next_at: WallTime) {
        let mut lanes = self.lanes.borrow_mut();
        if let Some(tasks) = lanes.get(&lane) {
            tasks.expect(next_at);
            return;
        }
        let tasks = Rc::new(LaneTasks::new(lane.clone(), next_at));
        lanes.insert(lane, Rc::clone(&tasks));
        tokio::task::spawn_local(lane::run(Rc::clone(self), tasks));
    }

    fn wake_lanes(&self) {
        for lane in self.lanes.borrow().values() {
            lane.wake();
        }
    }

    /// Waits until nothing is claimed any more.
    async fn finished(&self) {
        while self.runners.get() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Releases everything that is claimed.
    async fn release_claims(&self) {
        let claims = self.claims.take();
        let released = claims.into_iter().map(|(claim, counters)| {
            let settlement = Settlement {
                now: self.now(),
                result: ClaimResult::Released,
                counters,
                attempts: Vec::new(),
            };
            self.queue.settle(claim, settlement)
        });
        // All are queued before the first is awaited. What fails is taken back at the next start.
        for settled in released.collect::<Vec<_>>() {
            _ = settled.await;
        }
    }

    fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Waits until it is drained.
    async fn draining(&self) {
        // Without a sender the server is gone, too.
        let mut phase = self.phase.clone();
        _ = phase.wait_for(|phase| *phase > Phase::Running).await;
    }

    /// Logs that an operation cannot be read; one a minute, because without the key it is every one.
    fn log_unreadable(&self, operation: &StoredOperation, problem: &StoreError) {
        let now = self.state.clock().now();
        let logged = self.unreadable_logged.get();
        if logged.is_none_or(|logged| now.since(logged) >= UNREADABLE_LOG) {
            self.unreadable_logged.set(Some(now));
            let log = self.state.log();
            let problem = problem.to_string();
            log.store_unreadable(&operation.id, &operation.destination, Text::new(&problem));
        }
    }

    fn now(&self) -> WallTime {
        self.state.clock().wall()
    }

    fn lease(&self) -> Lease {
        let now = self.now();
        Lease {
            now,
            until: now + self.lease_length(),
        }
    }

    fn lease_length(&self) -> Duration {
        match self.state.shares_operations() {
            true => SHARED_LEASE,
            false => LEASE,
        }
    }
}

/// Between two lines about operations that cannot be read.
const UNREADABLE_LOG: Duration = Duration::from_secs(60);

/// So many lanes are read at once.
const LANES_READ: usize = 1000;
