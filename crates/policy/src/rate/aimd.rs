//! Additive increase, multiplicative decrease.
//!
//! Simple and predictable: a fast success adds; a slow one, a refusal or a failure multiplies. It
//! reacts to single responses against a fixed latency target, so it suits upstreams whose normal
//! latency is known. Random failures cost it a lot of throughput; `adaptive` handles them better.

use std::time::Duration;

use super::{Reaction, Signal, Why};
use crate::gate::GateSettings;

/// Settings of this strategy only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AimdSettings {
    /// The maximum number of saved tokens.
    pub burst: f64,
    /// Added to the rate by a success faster than the target.
    pub increase: f64,
    /// The rate is multiplied by this when it falls.
    pub decrease: f64,
    /// A success faster than this is fast.
    pub latency_target: Duration,
    /// A response is slow from the target times this. In between the rate stays.
    pub latency_degrade_factor: f64,
    /// Whether undirected refusals count in the breaker.
    pub count_throttled: bool,
}

pub(super) fn react(settings: &GateSettings, signal: Signal, rate: f64) -> Reaction {
    match signal {
        Signal::Accepted { latency } => accepted(settings, latency, rate),
        Signal::Refused { wait: Some(_) } => fall(settings, rate, Why::Directed),
        Signal::Refused { wait: None } => fall(settings, rate, Why::Throttled),
        Signal::Failed => fall(settings, rate, Why::Failed),
        Signal::UsedUp { .. } | Signal::Banned | Signal::BreakerClosed => Reaction::default(),
    }
}

#[inline]
pub(super) fn accepted(settings: &GateSettings, latency: Duration, rate: f64) -> Reaction {
    let aimd = &settings.aimd;
    if latency < aimd.latency_target {
        return Reaction::raise((rate + aimd.increase).min(settings.max_rate));
    }
    let slow = aimd.latency_target.as_secs_f64() * aimd.latency_degrade_factor;
    if latency.as_secs_f64() >= slow {
        fall(settings, rate, Why::SlowAnswers)
    } else {
        Reaction::default()
    }
}

fn fall(settings: &GateSettings, rate: f64, why: Why) -> Reaction {
    Reaction::lower((rate * settings.aimd.decrease).max(settings.min_rate), why)
}
