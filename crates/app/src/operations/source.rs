//! Where the permits of a lane come from: the gate of a host, or the endpoints of a pool.

use std::sync::Arc;
use std::time::Duration;

use policy::outcome::{Outcome, Verdict};
use policy::time::Timestamp;
use tidegate::pool::Endpoint;
use tidegate::{Ask, Attempt, InFlight, Permit, PoolPermit};

use super::Worker;
use crate::metrics::KeyMetrics;
use crate::state::{UpstreamEndpoint, UpstreamPool};

/// Where the permits of a lane come from.
pub(super) enum Source {
    /// The gate of a host.
    Gate {
        key: String,
        metrics: Arc<KeyMetrics>,
    },
    /// The endpoints of a pool.
    Pool(Arc<UpstreamPool>),
    /// A pool that is not configured any more.
    Missing,
}

/// A permit for one attempt.
pub(super) enum Admitted<'a> {
    Gate(Permit<'a>),
    Pool(PoolPermit<'a, UpstreamEndpoint>),
}

impl Source {
    pub(super) fn new(worker: &Worker, destination: &str) -> Self {
        let state = &worker.state;
        match destination.strip_prefix('/') {
            None => Self::Gate {
                key: destination.to_owned(),
                metrics: state.core().metrics().key(destination),
            },
            Some(name) => match state.configuration().pool(name) {
                Some(pool) => Self::Pool(Arc::clone(pool)),
                None => Self::Missing,
            },
        }
    }

    /// Is it still what the configuration says? A pool may be removed, and another one added.
    pub(super) fn is_configured(&self, worker: &Worker) -> bool {
        match self {
            Self::Gate { .. } => true,
            Self::Pool(pool) => {
                let configuration = worker.state.configuration();
                let configured = configuration.pool(pool.name());
                configured.is_some_and(|configured| Arc::ptr_eq(configured, pool))
            }
            Self::Missing => false,
        }
    }

    /// A permit for this cost, however long that takes. A refusal costs an operation nothing: none is
    /// claimed yet. `None`: another source is configured now.
    pub(super) async fn admitted(&self, worker: &Worker, cost: u32) -> Option<Admitted<'_>> {
        let clock = worker.state.clock();
        loop {
            let until = match self.ask(worker, cost).await {
                Ok(admitted) => return Some(admitted),
                Err(until) => until,
            };
            let now = clock.now();
            let soon = now + UNKNOWN_WAIT;
            // A person may end a hold sooner, so no sleep is long.
            let until = until.unwrap_or(soon).clamp(now + MIN_WAIT, now + MAX_WAIT);
            clock.sleep_until(until).await;
            if !self.is_configured(worker) {
                return None;
            }
        }
    }

    /// A permit, or when to ask again.
    pub(super) async fn ask(
        &self,
        worker: &Worker,
        cost: u32,
    ) -> Result<Admitted<'_>, Option<Timestamp>> {
        match self {
            Self::Gate { key, .. } => {
                let ask = Ask::new(key).cost(cost).background();
                let limiter = worker.state.limiter();
                // The limiter lives as long as the process; the permit is owned for the task.
                let permit = limiter.acquire(ask).await;
                permit
                    .map(|permit| Admitted::Gate(permit.into_owned()))
                    .map_err(|refusal| refusal.until())
            }
            Self::Pool(pool) => {
                let permit = pool.acquire(Ask::any().cost(cost).background()).await;
                permit
                    .map(Admitted::Pool)
                    .map_err(|refusal| refusal.until())
            }
            Self::Missing => Err(None),
        }
    }
}

/// When a gate cannot say when asking again helps.
const UNKNOWN_WAIT: Duration = Duration::from_secs(1);

/// Between two asks that are refused.
const MIN_WAIT: Duration = Duration::from_millis(10);
const MAX_WAIT: Duration = Duration::from_secs(5);

impl Admitted<'_> {
    /// The endpoint that it is for, in a pool.
    pub(super) fn endpoint(&self) -> Option<&Arc<Endpoint<UpstreamEndpoint>>> {
        match self {
            Self::Gate(_) => None,
            Self::Pool(permit) => Some(permit.endpoint()),
        }
    }

    pub(super) fn attempt(&self, number: u32) -> Attempt {
        match self {
            Self::Gate(permit) => permit.attempt(number),
            Self::Pool(permit) => permit.attempt(number),
        }
    }

    /// Counts the attempt in the retry budget; the error says when there is one.
    pub(super) fn count_attempt(&self, is_retry: bool) -> Result<(), Option<Timestamp>> {
        match self {
            Self::Gate(permit) => permit.count_attempt(is_retry),
            Self::Pool(permit) => permit.count_attempt(is_retry),
        }
    }

    pub(super) fn give_back(self) {
        match self {
            Self::Gate(permit) => permit.give_back(),
            Self::Pool(permit) => permit.give_back(),
        }
    }

    /// The response rejects the credential of the endpoint.
    pub(super) fn credential_rejected(self) -> Self {
        match self {
            Self::Gate(permit) => Self::Gate(permit),
            Self::Pool(permit) => Self::Pool(permit.credential_rejected()),
        }
    }

    /// Reports the outcome. The attempt stays in flight while its body is read.
    pub(super) fn settle(
        self,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        text: &str,
    ) -> InFlight {
        match self {
            Self::Gate(permit) => permit.settle_head(outcome, verdict),
            Self::Pool(permit) => permit.settle_head(outcome, verdict, text),
        }
    }
}
