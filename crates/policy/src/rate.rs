//! What moves a gate's rate: the strategies `adaptive`, `aimd` and `fixed`.
//!
//! A strategy sees only outcomes of the present epoch, and its answer is a `Reaction`: a new
//! rate and why. It neither touches the bucket nor knows of breakers and lines.

use std::fmt;
use std::time::Duration;

use crate::gate::GateSettings;
use crate::time::Timestamp;

mod adaptive;
mod aimd;

pub use adaptive::Phase;
pub(crate) use adaptive::{ALWAYS_IN_FLIGHT, Adaptive, LastProgress};
pub use aimd::AimdSettings;

/// How the rate of a gate moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Learns the limit from refusals, latency and headers. The default.
    #[default]
    Adaptive,
    /// Adds a little on every fast success, halves on every failure.
    Aimd,
    /// Never moves.
    Fixed,
}

crate::words! { pub Strategy { Adaptive = "adaptive", Aimd = "aimd", Fixed = "fixed" } }

/// The last change of a rate, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Nothing has changed it yet.
    Initial,
    /// Responses are fast and none is refused.
    FastAnswers,
    /// Responses became slow.
    SlowAnswers,
    /// The server refused without naming a wait.
    Throttled,
    /// The server refused and named a wait.
    Directed,
    /// The server says that few requests remain.
    NearlyUsedUp,
    /// The server failed or could not be reached.
    Failed,
    /// The breaker closed again; the upstream is given time to recover.
    Recovered,
    /// It was learned before a restart.
    Restored,
    /// The settings were changed, and it was outside of the new ones.
    Settings,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Initial => "as configured",
            Self::FastAnswers => "raised: responses are fast and none is refused",
            Self::SlowAnswers => "lowered: responses became slow",
            Self::Throttled => "lowered: the server refused",
            Self::Directed => "lowered: the server refused and named a wait",
            Self::NearlyUsedUp => "lowered: the server says that few requests remain",
            Self::Failed => "lowered: the server failed or could not be reached",
            Self::Recovered => "lowered: the breaker has just closed again",
            Self::Restored => "as learned before a restart",
            Self::Settings => "limited by new settings",
        })
    }
}

/// What an outcome of the present epoch means to the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Accepted, after this long.
    Accepted {
        /// From sending to answer.
        latency: Duration,
    },
    /// Refused for being too fast: 429, 503 and their like.
    Refused {
        /// Did the server name a wait?
        directed: bool,
    },
    /// Failed for another reason.
    Failed,
    /// The breaker has just closed again.
    BreakerClosed,
}

/// What a strategy answers. The default changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Reaction {
    /// The new rate and why.
    pub(crate) rate: Option<(f64, Why)>,
    /// This was a decrease, also if the rate was at its minimum already: a new epoch begins.
    pub(crate) decreased: bool,
    /// Throw away what the bucket has saved.
    pub(crate) drain: bool,
    /// Wait this long although the server named no wait.
    pub(crate) assumed_wait: Option<Duration>,
}

impl Reaction {
    fn raise(rate: f64) -> Self {
        Self {
            rate: Some((rate, Why::FastAnswers)),
            ..Self::default()
        }
    }

    fn lower(rate: f64, why: Why) -> Self {
        Self {
            rate: Some((rate, why)),
            decreased: true,
            ..Self::default()
        }
    }
}

/// The moment a signal is judged in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) now: Timestamp,
    /// The rate before.
    pub(crate) rate: f64,
    /// The end of the last hold or open breaker; growth timers are paused until then.
    pub(crate) paused_until: Timestamp,
}

/// Asks the strategy of `settings`.
pub(crate) fn react(
    settings: &GateSettings,
    state: &mut Adaptive,
    signal: Signal,
    moment: Moment,
) -> Reaction {
    match settings.strategy {
        Strategy::Adaptive => state.react(settings, signal, moment),
        Strategy::Aimd => aimd::react(settings, signal, moment.rate),
        Strategy::Fixed => Reaction::default(),
    }
}

/// What [`react`] says to an answer that was accepted: nearly every answer is.
#[inline]
pub(crate) fn accepted(
    settings: &GateSettings,
    state: &mut Adaptive,
    latency: Duration,
    moment: Moment,
) -> Reaction {
    match settings.strategy {
        Strategy::Adaptive => state.accepted(settings, latency, moment),
        Strategy::Aimd => aimd::accepted(settings, latency, moment.rate),
        Strategy::Fixed => Reaction::default(),
    }
}

/// How many tokens a bucket may save at `rate`.
///
/// Timers fire up to a millisecond or two late; without room for what came meanwhile the rate
/// would never quite be reached. `aimd` has a burst of its own, but never more than two seconds'
/// worth: what was harmless at the old rate is an attack at a hundredth of it.
#[inline]
pub(crate) fn burst(settings: &GateSettings, rate: f64) -> f64 {
    const TIMER_SLACK_SECONDS: f64 = 0.002;
    match settings.strategy {
        Strategy::Adaptive | Strategy::Fixed => 1.0 + rate * TIMER_SLACK_SECONDS,
        Strategy::Aimd => settings.aimd.burst.min(2.0 * rate).max(1.0),
    }
}
