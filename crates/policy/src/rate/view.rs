//! What `adaptive` knows about a limit, for display.

use std::time::Duration;

use super::Phase;
use crate::time::Timestamp;

/// What the strategy `adaptive` knows about the limit of a gate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateView {
    /// What it is doing.
    pub phase: Phase,
    /// The limit as far as it is known, in requests per second; `None` while searching.
    pub ceiling: Option<f64>,
    /// How the ceiling was learned; `None` if that is not known, or there is none.
    pub source: Option<CeilingSource>,
    /// While staying, the earliest time at which it tries more; `None` if that is never, or not
    /// known.
    pub probes_at: Option<Timestamp>,
    /// Whether other clients seem to use the same limit.
    pub is_shared: bool,
    /// The length of the server's window, if it seems to have one.
    pub period: Option<Duration>,
    /// The rate stays at or below this, because the server banned this client.
    pub banned_above: Option<f64>,
}

/// How a ceiling was learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CeilingSource {
    /// Measured: what the server accepted between two refusals.
    Measured,
    /// Estimated from one refusal, and not confirmed yet.
    Estimated,
    /// The rate was used for some time without a refusal.
    Confirmed,
    /// Responses became slow above it.
    Latency,
    /// What the server accepted before it refused everything for a while.
    Window,
    /// The server banned this client.
    Ban,
    /// The rate before the breaker opened.
    Recovery,
    /// Restored after a restart.
    Restored,
}
