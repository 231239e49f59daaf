//! What people would use instead: a limiter by key, alone or with a breaker for each key.
//!
//! A breaker is looked up once for both halves of an attempt, and used where it is. A caller
//! that waits for a response in between would need a second lookup or a reference count; the peers
//! are measured without that.

use std::num::NonZeroU32;

use dashmap::DashMap;
use failsafe::backoff::EqualJittered;
use failsafe::failure_policy::{ConsecutiveFailures, OrElse, SuccessRateOverTimeWindow};
use failsafe::{Config, StateMachine};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use recloser::Recloser;

use crate::contender::Contender;

/// governor alone, which counts but learns nothing.
pub(crate) struct Governor(DefaultKeyedRateLimiter<String>);

impl Governor {
    pub(crate) fn new() -> Self {
        let billion = NonZeroU32::new(1_000_000_000).expect("a billion is not zero");
        Self(RateLimiter::keyed(Quota::per_second(billion)))
    }
}

impl Contender for Governor {
    #[inline]
    fn attempt(&self, key: &String) -> bool {
        self.0.check_key(key).is_ok()
    }
}

/// governor, then a breaker of failsafe.
pub(crate) struct GovernorFailsafe {
    governor: Governor,
    breakers: DashMap<String, FailsafeBreaker>,
}

/// What `failsafe::Config::new().build()` makes.
type FailsafeBreaker = StateMachine<
    OrElse<SuccessRateOverTimeWindow<EqualJittered>, ConsecutiveFailures<EqualJittered>>,
    (),
>;

impl GovernorFailsafe {
    pub(crate) fn new() -> Self {
        Self {
            governor: Governor::new(),
            breakers: DashMap::new(),
        }
    }
}

impl Contender for GovernorFailsafe {
    #[inline]
    fn attempt(&self, key: &String) -> bool {
        self.governor.attempt(key)
            && with_breaker(&self.breakers, key, new_failsafe, |breaker| {
                let is_permitted = breaker.is_call_permitted();
                if is_permitted {
                    breaker.on_success();
                }
                is_permitted
            })
    }
}

fn new_failsafe() -> FailsafeBreaker {
    Config::new().build()
}

/// governor, then a breaker of recloser.
pub(crate) struct GovernorRecloser {
    governor: Governor,
    breakers: DashMap<String, Recloser>,
}

impl GovernorRecloser {
    pub(crate) fn new() -> Self {
        Self {
            governor: Governor::new(),
            breakers: DashMap::new(),
        }
    }
}

impl Contender for GovernorRecloser {
    #[inline]
    fn attempt(&self, key: &String) -> bool {
        self.governor.attempt(key)
            && with_breaker(&self.breakers, key, Recloser::default, |breaker| {
                breaker.call(|| Ok::<(), ()>(())).is_ok()
            })
    }
}

/// Calls `attempt` with the breaker of `key`, which is made if there is none.
#[inline]
fn with_breaker<B>(
    breakers: &DashMap<String, B>,
    key: &String,
    make: impl FnOnce() -> B,
    attempt: impl FnOnce(&B) -> bool,
) -> bool {
    match breakers.get(key) {
        Some(breaker) => attempt(&breaker),
        None => attempt(&breakers.entry(key.clone()).or_insert_with(make)),
    }
}
