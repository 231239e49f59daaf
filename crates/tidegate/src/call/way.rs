//! Where a call's attempts leave: through one gate, or through a pool.

use std::sync::Arc;

use policy::gate::Reason;
use policy::item::TerminalReason;
use policy::outcome::Outcome;
use policy::pool::EndpointId;
use policy::time::Timestamp;

use super::{Answered, Trail, What};
use crate::ask::Ask;
use crate::limiter::Limiter;
use crate::permit::{InFlight, Permit};
use crate::pool::{Endpoint, Pool, PoolPermit, PoolRefusal, RefusalReason};

/// What gives out the right to make an attempt.
pub(super) enum Way<'a, E> {
    Gate(&'a Limiter),
    Pool(&'a Pool<E>),
}

/// The right to make one attempt.
pub(super) enum Right<'a, E> {
    Gate(Permit<'a>),
    Pool(PoolPermit<'a, E>),
}

/// Why an attempt may not leave.
pub(super) enum NotNow {
    /// Ask again at a time, or when nobody knows.
    Refused {
        reason: Reason,
        until: Option<Timestamp>,
    },
    /// A person has to interfere first.
    Never(TerminalReason),
}

impl<'a, E> Way<'a, E> {
    /// Waits until an attempt may leave, and writes down what kept it.
    pub(super) async fn leave(
        &self,
        ask: Ask<'_>,
        failed_at: Option<EndpointId>,
        trail: &mut Trail,
    ) -> Result<Right<'a, E>, NotNow> {
        match self {
            Self::Gate(limiter) => through_gate(limiter, ask, trail).await.map(Right::Gate),
            Self::Pool(pool) => {
                let right = through_pool(pool, ask, failed_at, trail).await;
                right.map(Right::Pool)
            }
        }
    }

    /// When somebody else could take over.
    pub(super) fn elsewhere(&self, from: EndpointId) -> Option<Timestamp> {
        match self {
            Self::Gate(_) => None,
            Self::Pool(pool) => pool.elsewhere(from),
        }
    }

    /// When a gate here last had a success.
    pub(super) fn last_success(&self, key: &str) -> Option<Timestamp> {
        match self {
            Self::Gate(limiter) => limiter.shared().last_success(key),
            Self::Pool(pool) => pool.last_success(),
        }
    }
}

impl<E> Right<'_, E> {
    /// Where the attempt goes, in a pool.
    pub(super) fn endpoint(&self) -> Option<Arc<Endpoint<E>>> {
        match self {
            Self::Gate(_) => None,
            Self::Pool(permit) => Some(Arc::clone(permit.endpoint())),
        }
    }

    /// The same by its number.
    pub(super) fn endpoint_id(&self) -> Option<EndpointId> {
        match self {
            Self::Gate(_) => None,
            Self::Pool(permit) => Some(permit.endpoint().id),
        }
    }

    /// Gives the right back unused.
    pub(super) fn give_back(self) {
        match self {
            Self::Gate(permit) => permit.give_back(),
            Self::Pool(permit) => permit.give_back(),
        }
    }

    /// Says what came of the attempt. While a body is to come, it stays in flight.
    pub(super) fn settle<T>(self, answered: &Answered<T>, outcome: &Outcome) -> Option<InFlight> {
        let (verdict, text) = (answered.verdict, &*answered.text);
        match (self, answered.has_body) {
            (Self::Gate(permit), false) => permit.settle_as(outcome, verdict),
            (Self::Pool(permit), false) => permit.settle_as(outcome, verdict, text),
            (Self::Gate(permit), true) => return Some(permit.settle_head(outcome, verdict)),
            (Self::Pool(permit), true) => return permit.settle_head(outcome, verdict, text),
        }
        None
    }
}

async fn through_gate<'a>(
    limiter: &'a Limiter,
    ask: Ask<'_>,
    trail: &mut Trail,
) -> Result<Permit<'a>, NotNow> {
    let asked_at = limiter.clock().now();
    let key: Arc<str> = ask.key.into();
    let mut kept = None;
    let answer = limiter.shared().wait_noting(ask, &mut kept).await;
    if let Some((at, reason, until)) = kept {
        let what = What::Kept {
            key: Arc::clone(&key),
            reason: RefusalReason::Gate(reason),
            until,
        };
        trail.push(at, what);
    }
    let now = limiter.clock().now();
    match answer {
        Ok(permit) => {
            let waited = now.since(asked_at);
            trail.push(now, What::Admitted { key, waited });
            Ok(permit)
        }
        Err(refusal) => {
            let (reason, until) = (refusal.reason(), refusal.until());
            let what = What::Refused {
                key,
                reason: RefusalReason::Gate(reason),
                until,
            };
            trail.push(now, what);
            Err(NotNow::Refused { reason, until })
        }
    }
}

async fn through_pool<'a, E>(
    pool: &'a Pool<E>,
    ask: Ask<'_>,
    failed_at: Option<EndpointId>,
    trail: &mut Trail,
) -> Result<PoolPermit<'a, E>, NotNow> {
    let clock = pool.limiter().clock();
    let asked_at = clock.now();
    let mut kept = None;
    let answer = pool.wait_noting(ask, failed_at, &mut kept).await;
    if let Some((at, keeps)) = kept {
        let what = What::Kept {
            key: pool.name().into(),
            reason: keeps.reason(),
            until: keeps.until(),
        };
        trail.push(at, what);
    }
    let now = clock.now();
    match answer {
        Ok(permit) => {
            let key = Arc::clone(permit.endpoint().key());
            let waited = now.since(asked_at);
            trail.push(now, What::Admitted { key, waited });
            Ok(permit)
        }
        Err(refusal) => {
            let what = What::Refused {
                key: pool.name().into(),
                reason: refusal.reason(),
                until: refusal.until(),
            };
            trail.push(now, what);
            Err(not_now(&refusal))
        }
    }
}

fn not_now(refusal: &PoolRefusal) -> NotNow {
    match *refusal {
        PoolRefusal::NoEndpoint => NotNow::Never(TerminalReason::Disabled),
        // To an item it is the same whether a gate or an endpoint is left alone.
        PoolRefusal::Paused { until } => NotNow::Refused {
            reason: Reason::Hold,
            until,
        },
        PoolRefusal::Gate(refusal) => NotNow::Refused {
            reason: refusal.reason(),
            until: refusal.until(),
        },
    }
}
