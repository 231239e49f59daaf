//! Our limiter, set up so that it admits everything: then what is measured is its work alone.

use std::time::Duration;

use tidegate::{Clock, GateOptions, Limiter, LimiterBuilder, Outcome};

use crate::contender::Contender;

/// Acquire and settle.
pub(crate) struct Ours(Limiter);

impl Ours {
    pub(crate) fn new(strategy: &str) -> Self {
        Self(builder(strategy).clock(Clock::system()).build())
    }

    pub(crate) fn limiter(&self) -> &Limiter {
        &self.0
    }
}

impl Contender for Ours {
    #[inline]
    fn attempt(&self, key: &String) -> bool {
        match self.0.try_acquire(key) {
            Ok(permit) => {
                permit.settle(&outcome());
                true
            }
            Err(_) => false,
        }
    }
}

/// The default strategy.
pub(crate) const DEFAULT: &str = "adaptive";

/// A limiter whose rate is as high as settings allow, with room for a million keys.
pub(crate) fn builder(strategy: &str) -> LimiterBuilder {
    settings(&[
        ("strategy", strategy),
        ("initial_rate", "1000000000"),
        ("max_rate", "1000000000"),
        ("max_gates", "2000000"),
        // The workload that only acquires brings none back.
        ("max_in_flight", "1000000"),
    ])
}

/// A limiter with these settings for every key.
pub(crate) fn settings(settings: &[(&str, &str)]) -> LimiterBuilder {
    let mut options = GateOptions::default();
    for (name, value) in settings {
        options.set(name, value).expect("the value is allowed");
    }
    let settings = options.build().expect("the settings fit together");
    Limiter::builder().gate(settings)
}

/// What came of every attempt.
#[inline]
pub(crate) fn outcome() -> Outcome {
    Outcome::status(200, Duration::from_millis(20))
}
