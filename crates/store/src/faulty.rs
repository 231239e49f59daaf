//! Faults on purpose, for tests: the n-th call fails, once or for ever.
//!
//! A call is anything that may fail on a real disk: the beginning of a write, every row, and the
//! commit. Without a plan a call costs one comparison.

use std::sync::{Arc, Mutex, PoisonError};

use crate::error::StoreError;

/// Which calls fail. All clones count together.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    plan: Option<Arc<Mutex<Plan>>>,
}

#[derive(Debug)]
struct Plan {
    /// Calls so far.
    calls: u64,
    /// The first that fails, counted from 1.
    first: u64,
    /// The last that fails.
    last: u64,
}

impl Faults {
    /// None.
    pub const fn none() -> Self {
        Self { plan: None }
    }

    /// A call is made: does it fail?
    pub(crate) fn strike(&self) -> Result<(), StoreError> {
        let Some(plan) = &self.plan else {
            return Ok(());
        };
        let mut plan = plan.lock().unwrap_or_else(PoisonError::into_inner);
        plan.calls += 1;
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

    fn between(first: u64, last: u64) -> Self {
        let plan = Plan {
            calls: 0,
            first,
            last,
        };
        Self {
            plan: Some(Arc::new(Mutex::new(plan))),
        }
    }

    /// No later call fails.
    pub fn heal(&self) {
        if let Some(plan) = &self.plan {
            plan.lock().unwrap_or_else(PoisonError::into_inner).last = 0;
        }
    }

    /// How many calls were made.
    pub fn calls(&self) -> u64 {
        let plan = self.plan.as_ref();
        plan.map_or(0, |plan| {
            plan.lock().unwrap_or_else(PoisonError::into_inner).calls
        })
    }
}
