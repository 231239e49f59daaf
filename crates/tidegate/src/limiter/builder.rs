//! Configures a limiter.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use policy::budget::BudgetSettings;
use policy::fleet::NodeId;
use policy::gate::GateSettings;
use policy::hosts::{HostPattern, Hosts};
use policy::random::Random;
use policy::time::Timestamp;

use super::{Limiter, TooManyHosts};
use crate::clock::Clock;
use crate::event::{Event, EventListener};
use crate::registry::{FleetNode, Schedule};
use crate::settings::HostSettings;

/// Builds a [`Limiter`].
///
/// ```
/// use tidegate::{GateSettings, Limiter, ManualClock};
///
/// let limiter = Limiter::builder()
///     .host("api.example.com".parse()?, GateSettings::limits("100/1m")?)
///     .host("*.example.org".parse()?, GateSettings::fixed(10.0))
///     .key_prefix("account:", GateSettings::builder().max_rate(50.0).build()?)
///     .clock(ManualClock::new().clock())
///     .build();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until `build`"]
pub struct LimiterBuilder {
    pub(super) clock: Option<Clock>,
    pub(super) hosts: Hosts<HostSettings>,
    /// Some were left out.
    has_too_many_hosts: bool,
    pub(super) listener: Option<Arc<dyn EventListener>>,
    pub(super) budget: BudgetSettings,
    pub(super) seeds: Random,
    pub(super) fleet: Option<FleetNode>,
}

impl LimiterBuilder {
    pub(super) fn new() -> Self {
        Self {
            clock: None,
            hosts: Hosts::new(HostSettings::default()),
            has_too_many_hosts: false,
            listener: None,
            budget: BudgetSettings::default(),
            seeds: Random::from_seed(RandomState::new().hash_one(0)),
            fleet: None,
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

    /// Settings for one host (`api.example.com`) or for its subdomains (`*.example.com`). There may be
    /// [`Hosts::MAX_HOSTS`] of them and of keys and prefixes together.
    pub fn host(mut self, pattern: HostPattern, settings: impl Into<HostSettings>) -> Self {
        let is_set = self.hosts.insert(pattern, settings.into()).is_some();
        self.has_too_many_hosts |= !is_set;
        self
    }

    /// Settings for one key, which need not be a host. It is not normalised.
    pub fn key(self, key: &str, settings: impl Into<HostSettings>) -> Self {
        self.host(HostPattern::key(key), settings)
    }

    /// Settings for all keys that begin with `prefix` and have none of their own. If several prefixes
    /// match, the longest applies.
    pub fn key_prefix(self, prefix: &str, settings: impl Into<HostSettings>) -> Self {
        self.host(HostPattern::key_prefix(prefix), settings)
    }

    /// Replaces all settings.
    pub fn hosts(self, hosts: Hosts<HostSettings>) -> Self {
        Self {
            hosts,
            has_too_many_hosts: false,
            ..self
        }
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

    /// Calls `on_event` with every event and its time on the limiter's clock. Short for a
    /// [`listener`](Self::listener) that wants everything, and replaces one that was set before.
    ///
    /// ```
    /// use tidegate::Limiter;
    ///
    /// let limiter = Limiter::builder()
    ///     .on_event(|at, event| println!("{at:?} {}", event.name()))
    ///     .build();
    /// ```
    pub fn on_event(
        self,
        on_event: impl Fn(Timestamp, &Event<'_>) + Send + Sync + 'static,
    ) -> Self {
        self.listener(on_event)
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

    /// Shares every gate with the other nodes of a fleet, see [`fleet`](crate::fleet). `interval` is the
    /// time between two calls of a node about a key, and a node that did not call for `lease` has no
    /// share; all nodes have the same. Until [`SharedGates`](crate::fleet::SharedGates) are driven,
    /// nothing is admitted for two seconds, and then next to nothing.
    pub fn fleet(self, node: NodeId, interval: Duration, lease: Duration) -> Self {
        let fleet = FleetNode {
            node,
            interval,
            lease,
            schedule: Arc::new(Schedule::new()),
        };
        Self {
            fleet: Some(fleet),
            ..self
        }
    }

    /// Builds the limiter.
    ///
    /// # Panics
    ///
    /// If more than [`Hosts::MAX_HOSTS`] hosts, keys and prefixes have their own settings; see
    /// [`try_build`](Self::try_build).
    pub fn build(self) -> Limiter {
        self.try_build().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Builds the limiter, for settings that a program does not know in advance.
    ///
    /// # Errors
    ///
    /// If more than [`Hosts::MAX_HOSTS`] hosts, keys and prefixes have their own settings.
    pub fn try_build(self) -> Result<Limiter, TooManyHosts> {
        match self.has_too_many_hosts {
            true => Err(TooManyHosts),
            false => Ok(Limiter::from_builder(self)),
        }
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
