//! Keeps the queue in order: extends leases, expires operations, reports ends, and deletes old
//! operations.

use std::rc::Rc;
use std::time::Duration;

use store::operations::ClaimId;

use super::{Worker, report};
use crate::redact::Text;

/// Runs until it is aborted.
pub(super) async fn run(worker: Rc<Worker>) {
    let mut sweep = tokio::time::interval(SWEEP);
    loop {
        tokio::select! {
            _ = sweep.tick() => {
                sweep_once(&worker).await;
                report::report_ended(&worker).await;
            }
            () = worker.state.report_due() => report::report_ended(&worker).await,
        }
    }
}

/// Extends leases until it is aborted. A task of its own, because a sweep may take longer than a lease.
pub(super) async fn run_heartbeats(worker: Rc<Worker>) {
    // One that fails is made up for by the next: a lease lasts for three.
    let mut heartbeat = tokio::time::interval(worker.lease_length() / 3);
    loop {
        heartbeat.tick().await;
        let claims: Vec<ClaimId> = worker.claims.borrow().keys().copied().collect();
        if claims.is_empty() {
            continue;
        }
        let count = claims.len();
        if let Err(error) = worker.queue.heartbeat(claims, worker.lease()).await {
            let problem = error.to_string();
            let log = worker.state.log();
            log.heartbeat_failed(count, Text::new(&problem));
        }
    }
}

/// How often operations expire and old ones are deleted.
const SWEEP: Duration = Duration::from_secs(1);

/// So many operations change in one transaction.
const MAX_SWEPT: usize = 1000;

async fn sweep_once(worker: &Worker) {
    loop {
        let Ok(swept) = worker.queue.sweep(worker.now(), MAX_SWEPT).await else {
            return;
        };
        let changed = swept.expired.iter().chain(&swept.reclaimed);
        for operation in changed {
            worker.state.announce(operation);
        }
        let most = swept.expired.len().max(swept.reclaimed.len());
        if most.max(swept.deleted) < MAX_SWEPT {
            return;
        }
    }
}
