//! Injects faults in tests: the n-th call fails, or it and all later ones, or calls wait.
//!
//! A call is anything that may fail on a real disk: the beginning of a write, every row, and the
//! commit. Without a plan a call costs one comparison.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::StoreError;

/// Which calls fail. All clones count together.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    shared: Option<Arc<Shared>>,
}

#[derive(Debug)]
struct Shared {
    plan: Mutex<Plan>,
    healed: Condvar,
}

impl Shared {
    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
struct Plan {
    /// Calls so far.
    calls: u64,
    /// The first that fails, counted from 1.
    first: u64,
    /// The last that fails.
    last: u64,
    /// Calls wait until the faults are healed.
    is_stalled: bool,
}

impl Faults {
    /// None.
    pub const fn none() -> Self {
        Self { shared: None }
    }

    /// Counts a call, and fails it if the plan says so.
    pub(crate) fn next_call(&self) -> Result<(), StoreError> {
        let Some(shared) = &self.shared else {
            return Ok(());
        };
        let mut plan = shared.plan();
        plan.calls += 1;
        while plan.is_stalled {
            let waited = shared.healed.wait(plan);
            plan = waited.unwrap_or_else(PoisonError::into_inner);
        }
        if (plan.first..=plan.last).contains(&plan.calls) {
            return Err(StoreError::Failed {
                path: "faulty".into(),
                reason: format!("call {} fails on purpose", plan.calls),
            });
        }
        Ok(())
    }
}

#[cfg(any(test, feature = "faults"))]
impl Faults {
    /// The `n`-th call from now fails, counted from 1, and no other.
    pub fn once(n: u64) -> Self {
        Self::between(n, n)
    }

    /// The `n`-th call from now fails, counted from 1, and all that follow.
    pub fn from(n: u64) -> Self {
        Self::between(n, u64::MAX)
    }

    /// Every call waits until the faults are healed, as on a disk that hangs.
    pub fn stalled() -> Self {
        Self::with(Plan {
            is_stalled: true,
            ..Plan::default()
        })
    }

    fn between(first: u64, last: u64) -> Self {
        Self::with(Plan {
            first,
            last,
            ..Plan::default()
        })
    }

    fn with(plan: Plan) -> Self {
        Self {
            shared: Some(Arc::new(Shared {
                plan: Mutex::new(plan),
                healed: Condvar::new(),
            })),
        }
    }

    /// No later call fails or waits.
    pub fn heal(&self) {
        if let Some(shared) = &self.shared {
            let mut plan = shared.plan();
            plan.last = 0;
            plan.is_stalled = false;
            drop(plan);
            shared.healed.notify_all();
        }
    }

    /// How many calls were made.
    pub fn calls(&self) -> u64 {
        let shared = self.shared.as_ref();
        shared.map_or(0, |shared| shared.plan().calls)
    }
}
