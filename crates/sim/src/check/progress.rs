//! Progress: while the upstream is available, requests are accepted.
//!
//! **The bound.** A client that may send does so within the longest gap that its settings allow: the
//! open time of its breaker, one token at `min_rate`, the longest period of its known limits, the
//! longest hold that it assumes, a response or a timeout. Then the upstream accepts that request or
//! another client's within the time that its limit needs for one more. With random failures the bound
//! is as many gaps as make a false alarm less likely than 10⁻⁹.
//!
//! **Not counted** is time in which no client can succeed (an outage, a ban, a wait that the server
//! named, an empty backlog), and time in which an attempt is in flight that will be accepted.

use std::time::Duration;

use policy::gate::GateSettings;
use policy::time::Timestamp;

use super::pauses::MAX_ASSUMED_HOLD_S;
use super::{Invariant, Violations};
use crate::client::Driver;
use crate::measure::AttemptClass;
use crate::scenario::Scenario;
use crate::simulate::{ClientEvent, Observation};
use crate::upstream::{Kind, Outage, UpstreamSettings};

#[derive(Debug)]
pub(super) struct Progress {
    /// `None` without a promise: some clients have no gate, or everything fails.
    bound: Option<Duration>,
    outages: Vec<Outage>,
    ban: Duration,
    clients: Vec<Excuse>,
    /// Until then there was progress, or none was possible.
    good_until: Timestamp,
    /// When the last attempt in flight that will be accepted ends.
    accepted_until: Timestamp,
}

/// Why a client need not send.
#[derive(Clone, Copy, Debug)]
struct Excuse {
    /// It has nothing to send.
    is_idle: bool,
    /// It is held or banned.
    until: Timestamp,
}

impl Progress {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let idle = Excuse {
            is_idle: true,
            until: Timestamp::ZERO,
        };
        let ban = scenario.upstream.ban.map(|ban| ban.length);
        Self {
            bound: bound(scenario),
            outages: scenario.upstream.outages.clone(),
            ban: ban.unwrap_or_default(),
            clients: vec![idle; scenario.client_count()],
            good_until: Timestamp::ZERO,
            accepted_until: Timestamp::ZERO,
        }
    }

    pub(super) fn check(
        &mut self,
        observation: &Observation<'_>,
        held_until: Timestamp,
        violations: &mut Violations,
    ) {
        self.advance(observation.now, violations);
        let excuse = &mut self.clients[observation.client];
        excuse.until = excuse.until.max(held_until);
        match observation.event {
            ClientEvent::Waits { .. } => excuse.is_idle = !observation.has_backlog,
            ClientEvent::Sent { class, ends, .. } => {
                if class == AttemptClass::Accepted {
                    self.accepted_until = self.accepted_until.max(ends);
                }
            }
            ClientEvent::Ended { result, .. } => {
                if result.outcome.response == policy::outcome::UpstreamResponse::Status(403) {
                    excuse.until = excuse.until.max(observation.now + self.ban);
                }
            }
        }
    }

    /// Moves to `now`, up to which nothing happened.
    pub(super) fn advance(&mut self, now: Timestamp, violations: &mut Violations) {
        let Some(bound) = self.bound else { return };
        let excuses = self.clients.iter();
        let excused = excuses.map(|client| if client.is_idle { now } else { client.until });
        let excused = excused.min().unwrap_or(now);
        let mut good = self.good_until.max(excused).max(self.accepted_until);
        for outage in &self.outages {
            if outage.from <= now {
                good = good.max(outage.to);
            }
        }
        self.good_until = good.min(now);
        let gap = now.since(self.good_until);
        violations.require(gap <= bound, Invariant::Progress, || {
            format!("nothing accepted for {gap:?}, expected within {bound:?}")
        });
    }
}

#[cfg(test)]
impl Progress {
    /// Gives every client a backlog.
    pub(super) fn fill_backlogs(&mut self) {
        for client in &mut self.clients {
            client.is_idle = false;
        }
    }
}

fn bound(scenario: &Scenario) -> Option<Duration> {
    let upstream = &scenario.upstream;
    let mut gap = 0.0f64;
    for client in &scenario.clients {
        let Driver::Gate(settings) = &client.driver else {
            return None;
        };
        if client.fleet.is_some() {
            return None;
        }
        gap = gap.max(max_gap(settings));
    }
    let gap = gap + max_latency(upstream) + max_limit_gap(upstream);
    let gaps = match upstream.failure_rate {
        0.0 => 1.0,
        rate if rate < 1.0 => (1e-9f64.ln() / rate.ln()).ceil() + 1.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(gap * gaps).ok()
}

/// The longest gap between two requests of a client that may send, in seconds.
fn max_gap(settings: &GateSettings) -> f64 {
    let limits = settings.known_limits().iter().map(|limit| limit.period());
    let period = limits.max().unwrap_or_default();
    let open = settings.breaker().open_for;
    (period + open).as_secs_f64() + 1.0 / settings.rate_bounds().0 + MAX_ASSUMED_HOLD_S
}

/// The longest time to a response: four sigmas above the mean, or a timeout.
fn max_latency(upstream: &UpstreamSettings) -> f64 {
    let timeouts = upstream.outages.iter().map(|outage| outage.timeout);
    let timeout = timeouts.max().unwrap_or_default().as_secs_f64();
    let network = 2.0 * upstream.network.as_secs_f64() + upstream.refuse_latency.as_secs_f64();
    let services = kinds(upstream).map(|kind| match kind {
        Kind::Slots { service, .. } => service.as_secs_f64(),
        Kind::Bucket { .. } | Kind::Window { .. } => upstream.latency.as_secs_f64(),
    });
    let mean = services.fold(0.0, f64::max);
    network + timeout.max(mean * (4.0 * upstream.latency_spread).exp())
}

/// Until the limit admits one more request, at its lowest.
fn max_limit_gap(upstream: &UpstreamSettings) -> f64 {
    let seconds = kinds(upstream).map(|kind| match kind {
        Kind::Bucket { rate, .. } => 1.0 / rate,
        Kind::Window { period, .. } => period.as_secs_f64(),
        Kind::Slots { .. } => 0.0,
    });
    let full = upstream.cost.map_or(0.0, |cost| match cost {
        Kind::Bucket { rate, burst } => burst / rate,
        Kind::Window { .. } | Kind::Slots { .. } => 1.0 / cost.per_second(),
    });
    seconds.fold(full, f64::max)
}

fn kinds(upstream: &UpstreamSettings) -> impl Iterator<Item = Kind> {
    let steps = upstream.steps.iter().map(|step| step.kind);
    std::iter::once(upstream.kind).chain(steps)
}
