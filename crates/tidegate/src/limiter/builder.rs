//! Configures a limiter.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use policy::budget::BudgetSettings;
use policy::gate::GateSettings;
use policy::hosts::{HostPattern, Hosts};
use policy::random::Random;

use super::Limiter;
use crate::clock::Clock;
use crate::event::EventListener;
use crate::settings::HostSettings;

/// Builds a [`Limiter`].
///
/// ```
/// use tidegate::{GateOptions, Limiter, ManualClock};
///
/// let mut options = GateOptions::default();
/// options.set("max_rate", "50")?;
/// options.set("limits", "100/1m")?;
/// let limiter = Limiter::builder()
///     .host("api.example.com".parse()?, options.build()?)
///     .clock(ManualClock::new().clock())
///     .build();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until `build`"]
pub struct LimiterBuilder {
    pub(super) clock: Option<Clock>,
    pub(super) hosts: Hosts<HostSettings>,
    pub(super) listener: Option<Arc<dyn EventListener>>,
    pub(super) budget: BudgetSettings,
    pub(super) seeds: Random,
}

impl LimiterBuilder {
    pub(super) fn new() -> Self {
        Self {
            clock: None,
            hosts: Hosts::new(HostSettings::default()),
            listener: None,
            budget: BudgetSettings::default(),
            seeds: Random::from_seed(RandomState::new().hash_one(0)),
        }
    }

    /// Settings for keys without their own; also sets the number of shards and the maximum number
    /// of gates.
    pub fn gate(self, settings: GateSettings) -> Self {
        let mut hosts = Hosts::new(HostSettings::from(settings));
        for (pattern, settings) in self.hosts.iter() {
            hosts.insert(pattern.clone(), settings.clone());
        }
        Self { hosts, ..self }
    }

    /// Settings for one host (`api.example.com`) or for its subdomains (`*.example.com`). Hosts
    /// beyond [`Hosts::MAX_HOSTS`] are ignored.
    pub fn host(mut self, pattern: HostPattern, settings: impl Into<HostSettings>) -> Self {
        self.hosts.insert(pattern, settings.into());
        self
    }

    /// Replaces all settings.
    pub fn hosts(self, hosts: Hosts<HostSettings>) -> Self {
        Self { hosts, ..self }
    }

    /// The clock to use; [`Clock::system`] by default.
    pub fn clock(self, clock: Clock) -> Self {
        Self {
            clock: Some(clock),
            ..self
        }
    }

    /// The event listener. There is one; a second call replaces the first.
    pub fn listener(self, listener: impl EventListener) -> Self {
        Self {
            listener: Some(Arc::new(listener)),
            ..self
        }
    }

    /// The retry budget of all calls; by default one retry per five requests, plus ten per second.
    pub fn retry_budget(self, budget: BudgetSettings) -> Self {
        Self { budget, ..self }
    }

    /// Seeds the jitter of calls, to make tests repeatable. Random by default.
    pub fn seed(self, seed: u64) -> Self {
        Self {
            seeds: Random::from_seed(seed),
            ..self
        }
    }

    /// Builds the limiter.
    pub fn build(self) -> Limiter {
        Limiter::from_builder(self)
    }
}

impl fmt::Debug for LimiterBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimiterBuilder")
            .field("clock", &self.clock)
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}
