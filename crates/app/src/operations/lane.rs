//! One lane: the tasks that deliver the operations of one type to one destination.
//!
//! A runner asks the gate, claims one operation and delivers it, again and again until nothing is due.
//! There is one runner while there is little to do. A claim that finds more that is due starts the
//! next, up to the type's `concurrency`.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Duration;

use policy::time::WallTime;
use store::operations::{Claimed, Lane};
use tokio::sync::Notify;

use super::source::{Admitted, Source};
use super::{Phase, STORE_RETRY, Worker, deliver};

/// The tasks of one lane.
#[derive(Debug)]
pub(super) struct LaneTasks {
    lane: Lane,
    /// When the next operation is due, as far as that is known.
    next_at: Cell<Option<WallTime>>,
    runners: Cell<u32>,
    /// Runners that have not claimed yet.
    asking: Cell<u32>,
    /// What the last operation cost. A permit comes before its operation, so this is the estimate.
    cost: Cell<u32>,
    changed: Notify,
}

impl LaneTasks {
    pub(super) fn new(lane: Lane, next_at: WallTime) -> Self {
        Self {
            lane,
            next_at: Cell::new(Some(next_at)),
            runners: Cell::new(0),
            asking: Cell::new(0),
            cost: Cell::new(1),
            changed: Notify::new(),
        }
    }

    /// An operation is due at `at`.
    pub(super) fn expect(&self, at: WallTime) {
        let earlier = self.next_at.get().map_or(at, |next| next.min(at));
        self.next_at.set(Some(earlier));
        self.wake();
    }

    pub(super) fn wake(&self) {
        self.changed.notify_one();
    }
}

/// Starts runners whenever something is due. Ends when nothing is left.
pub(super) async fn run(worker: Rc<Worker>, tasks: Rc<LaneTasks>) {
    while worker.phase() == Phase::Running {
        let now = worker.now();
        match tasks.next_at.get() {
            Some(at) if at > now => {
                let wait = now.until(at).unwrap_or_default().min(MAX_SLEEP);
                _ = tokio::time::timeout(wait, tasks.changed.notified()).await;
            }
            Some(_) if tasks.may_start(&worker) => start_runner(&worker, &tasks),
            None if tasks.runners.get() == 0 => break,
            Some(_) | None => tasks.changed.notified().await,
        }
    }
    worker.lanes.borrow_mut().remove(&tasks.lane);
}

/// The wall clock may be set while a lane sleeps.
const MAX_SLEEP: Duration = Duration::from_secs(10);

impl LaneTasks {
    fn may_start(&self, worker: &Worker) -> bool {
        let configuration = worker.state.configuration();
        let concurrency = configuration
            .settings()
            .operation(&self.lane.kind)
            .concurrency;
        self.asking.get() == 0 && self.runners.get() < concurrency
    }
}

fn start_runner(worker: &Rc<Worker>, tasks: &Rc<LaneTasks>) {
    // Known again when it has claimed.
    tasks.next_at.set(None);
    tasks.runners.set(tasks.runners.get() + 1);
    tasks.asking.set(tasks.asking.get() + 1);
    worker.runners.set(worker.runners.get() + 1);
    let (worker, tasks) = (Rc::clone(worker), Rc::clone(tasks));
    tokio::task::spawn_local(async move {
        deliver_all(&worker, &tasks).await;
        worker.runners.set(worker.runners.get() - 1);
        tasks.runners.set(tasks.runners.get() - 1);
        tasks.wake();
    });
}

/// Delivers until nothing is due. Begins and ends with a count in `asking`.
async fn deliver_all(worker: &Rc<Worker>, tasks: &LaneTasks) {
    loop {
        let source = Source::new(worker, &tasks.lane.destination);
        if deliver_from(worker, tasks, &source).await.is_break() {
            return;
        }
    }
}

/// Delivers one operation after the other, for as long as the source is the one that is configured.
async fn deliver_from(worker: &Worker, tasks: &LaneTasks, source: &Source) -> ControlFlow<()> {
    let mut claimed = next(worker, tasks, source).await;
    loop {
        tasks.asking.set(tasks.asking.get() - 1);
        let Some((admitted, operation)) = claimed else {
            return ControlFlow::Break(());
        };
        tasks.wake();
        let delivered = deliver::deliver(worker, source, admitted, &operation).await;
        let settled = delivered.settle();
        if worker.phase() != Phase::Running {
            settled.await;
            return ControlFlow::Break(());
        }
        tasks.asking.set(tasks.asking.get() + 1);
        if !source.is_configured(worker) {
            settled.await;
            return ControlFlow::Continue(());
        }
        // The end of one and the beginning of the next are stored in one transaction.
        ((), claimed) = tokio::join!(settled, next(worker, tasks, source));
    }
}

/// Asks the gate and claims the next operation. `None` if nothing is due, or the worker is drained.
async fn next<'s>(
    worker: &Worker,
    tasks: &LaneTasks,
    source: &'s Source,
) -> Option<(Admitted<'s>, Claimed)> {
    loop {
        // Only waiting is cancelled: a claim that was made has to be settled.
        let admitted = tokio::select! {
            admitted = source.admitted(worker, tasks.cost.get()) => admitted,
            () = worker.draining() => None,
        };
        let Some(admitted) = admitted else {
            // The lane looks again.
            tasks.expect(worker.now());
            return None;
        };
        let Ok(mut claims) = worker.queue.claim(&tasks.lane, worker.lease(), 1).await else {
            admitted.give_back();
            tokio::time::sleep(STORE_RETRY).await;
            continue;
        };
        for expired in &claims.expired {
            worker.state.announce(expired);
        }
        for (operation, problem) in &claims.unreadable {
            worker.log_unreadable(operation, problem);
        }
        if let Some(at) = claims.next_at {
            tasks.expect(at);
        }
        let Some(claimed) = claims.claimed.pop() else {
            admitted.give_back();
            return None;
        };
        tasks.cost.set(deliver::cost(&claimed.request).unwrap_or(1));
        let counters = claimed.operation.counters;
        worker.claims.borrow_mut().insert(claimed.claim, counters);
        return Some((admitted, claimed));
    }
}
