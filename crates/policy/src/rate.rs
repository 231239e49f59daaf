//! The strategies that move a gate's rate: `adaptive`, `aimd` and `fixed`.
//!
//! A strategy only sees outcomes of the current epoch and returns a `Reaction`: a new rate and the
//! reason. It does not touch the bucket, the breaker or the line.

use std::fmt;
use std::time::Duration;

use crate::gate::GateSettings;
use crate::time::Timestamp;

mod adaptive;
mod aimd;
mod view;

pub use adaptive::Phase;
pub(crate) use adaptive::{ALWAYS_IN_FLIGHT, Adaptive, Coarse, LastProgress, Rough};
pub use aimd::AimdSettings;
pub use view::{CeilingSource, RateView};

/// How the rate of a gate moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Learns the limit from refusals, latency and headers. The default.
    #[default]
    Adaptive,
    /// Increases the rate a little on every fast success, halves it on every failure.
    Aimd,
    /// A constant rate.
    Fixed,
}

crate::words! { pub Strategy { Adaptive = "adaptive", Aimd = "aimd", Fixed = "fixed" } }

/// Why the rate last changed, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It has not changed yet.
    Initial,
    /// Responses are fast and none is refused.
    FastAnswers,
    /// Responses became slow.
    SlowAnswers,
    /// The server refused without naming a wait.
    Throttled,
    /// The server refused and named a wait.
    Directed,
    /// The server banned this client.
    Banned,
    /// The server says that few requests remain.
    NearlyUsedUp,
    /// The server has renewed the quota of which few requests remained.
    QuotaRenewed,
    /// The server failed or could not be reached.
    Failed,
    /// The breaker closed; the upstream is given time to recover.
    Recovered,
    /// It was restored after a restart.
    Restored,
    /// The settings changed, and the rate was outside of the new bounds.
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
            Self::Banned => "lowered: the server banned this client",
            Self::NearlyUsedUp => "lowered: the server says that few requests remain",
            Self::QuotaRenewed => "raised: the server has renewed the quota",
            Self::Failed => "lowered: the server failed or could not be reached",
            Self::Recovered => "lowered: the breaker has just closed again",
            Self::Restored => "as learned before a restart",
            Self::Settings => "limited by new settings",
        })
    }
}

/// What an outcome of the current epoch means for the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// The request was accepted.
    Accepted {
        /// From sending to the head of the response.
        latency: Duration,
    },
    /// The request was refused because it came too fast: 429, 503 and similar.
    Refused {
        /// The wait that the server named.
        wait: Option<Duration>,
    },
    /// The quota that the server's headers tell is used up.
    UsedUp {
        /// The time until it is renewed.
        wait: Duration,
        /// Whether a request was refused.
        refused: bool,
    },
    /// The client is banned for being refused too often.
    Banned,
    /// The request failed for another reason.
    Failed,
    /// The breaker has just closed.
    BreakerClosed,
}

/// A strategy's reaction. The default changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Reaction {
    /// The new rate and the reason.
    pub(crate) rate: Option<(f64, Why)>,
    /// Whether this was a decrease, even if the rate was already at its minimum: it starts a new
    /// epoch.
    pub(crate) decreased: bool,
    /// Discard the saved tokens of the bucket.
    pub(crate) drain: bool,
    /// Wait this long although the server named no wait.
    pub(crate) assumed_wait: Option<Duration>,
    /// Whether the refusal was the end of a window, and the next one begins after the named wait.
    pub(crate) is_window: bool,
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

/// The state in which a signal is judged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) now: Timestamp,
    /// The current rate.
    pub(crate) rate: f64,
    /// The end of the last hold or open breaker; growth timers are paused until then.
    pub(crate) paused_until: Timestamp,
    /// When the request was admitted, and its number.
    pub(crate) sent_at: Timestamp,
    pub(crate) number: u32,
    /// The number of the request that was admitted last.
    pub(crate) admitted: u32,
    /// Successes so far.
    pub(crate) succeeded: u32,
}

/// Calls the strategy of `settings`.
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

/// [`react`] for an accepted response, the most common signal.
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
/// Timers fire up to two milliseconds late; without room for the tokens of that time, the rate
/// would never quite be reached. `aimd` has its own burst, limited to two seconds' worth: a burst
/// that was harmless at the old rate is an attack at a hundredth of it.
#[inline]
pub(crate) fn burst(settings: &GateSettings, rate: f64) -> f64 {
    const TIMER_SLACK_SECONDS: f64 = 0.002;
    match settings.strategy {
        Strategy::Adaptive | Strategy::Fixed => 1.0 + rate * TIMER_SLACK_SECONDS,
        Strategy::Aimd => settings.aimd.burst.min(2.0 * rate).max(1.0),
    }
}
