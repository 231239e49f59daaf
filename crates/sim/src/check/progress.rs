//! Does everything go on? While the upstream is there, something is accepted now and then.
//!
//! **The bound.** Somebody who may send does so within the longest gap that its settings allow: the
//! open time of its breaker, a token at the least rate, a stretch of its known limits, the longest
//! wait that it assumes, an answer or a timeout. Then the upstream accepts it, or has accepted
//! somebody else, within the time that its limit needs for one more. Where failures come by chance,
//! as many gaps as make it certain to one in 10⁹.
//!
//! **Not counted** is time in which nobody could: an outage, a ban, a wait that the server named, an
//! empty backlog. Nor is time in which a request is under way that will be accepted.

use std::time::Duration;

use policy::gate::GateSettings;
use policy::time::Timestamp;

use super::pauses::LONGEST_ASSUMED_SECONDS;
use super::{Found, Promise};
use crate::client::Driver;
use crate::measure::Class;
use crate::scenario::Scenario;
use crate::simulate::{Sight, What};
use crate::upstream::{Kind, Outage, UpstreamSettings};

#[derive(Debug)]
pub(super) struct Progress {
    /// `None` if nothing is promised: not all clients have gates, or everything fails.
    bound: Option<Duration>,
    outages: Vec<Outage>,
    ban: Duration,
    clients: Vec<Excuse>,
    /// Up to then, everything went on or nobody could have.
    good_until: Timestamp,
    /// When the last request ends that is accepted.
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

    pub(super) fn look(&mut self, sight: &Sight<'_>, held_until: Timestamp, found: &mut Found) {
        self.pass(sight.now, found);
        let excuse = &mut self.clients[sight.client];
        excuse.until = excuse.until.max(held_until);
        match sight.what {
            What::Waits { .. } => excuse.is_idle = !sight.has_fresh,
            What::Sent { class, ends, .. } => {
                if class == Class::Accepted {
                    self.accepted_until = self.accepted_until.max(ends);
                }
            }
            What::Ended { attempt, .. } => {
                if attempt.outcome.answer == policy::outcome::Answer::Status(403) {
                    excuse.until = excuse.until.max(sight.now + self.ban);
                }
            }
        }
    }

    /// Nothing has happened until `now`.
    pub(super) fn pass(&mut self, now: Timestamp, found: &mut Found) {
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
        found.expect(gap <= bound, Promise::AllGoOn, || {
            format!("nothing accepted for {gap:?}, expected within {bound:?}")
        });
    }
}

#[cfg(test)]
impl Progress {
    /// Everyone has something to send.
    pub(super) fn excuse_nobody(&mut self) {
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
        gap = gap.max(longest_gap(settings));
    }
    let gap = gap + longest_answer(upstream) + slowest(upstream);
    let gaps = match upstream.failure_rate {
        0.0 => 1.0,
        rate if rate < 1.0 => (1e-9f64.ln() / rate.ln()).ceil() + 1.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(gap * gaps).ok()
}

/// Between two requests of somebody who may send.
fn longest_gap(settings: &GateSettings) -> f64 {
    let limits = settings.limits().iter().map(|limit| limit.period());
    let stretch = limits.max().unwrap_or_default();
    let open = settings.breaker().open_for;
    (stretch + open).as_secs_f64() + 1.0 / settings.rate_bounds().0 + LONGEST_ASSUMED_SECONDS
}

/// Until an answer is there: four sigmas above the mean, or a timeout.
fn longest_answer(upstream: &UpstreamSettings) -> f64 {
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

/// Until the limit takes one more, at its lowest.
fn slowest(upstream: &UpstreamSettings) -> f64 {
    let seconds = kinds(upstream).map(|kind| match kind {
        Kind::Bucket { rate, .. } => 1.0 / rate,
        Kind::Window { period, .. } => period.as_secs_f64(),
        Kind::Slots { .. } => 0.0,
    });
    seconds.fold(0.0, f64::max)
}

fn kinds(upstream: &UpstreamSettings) -> impl Iterator<Item = Kind> {
    let steps = upstream.steps.iter().map(|step| step.kind);
    std::iter::once(upstream.kind).chain(steps)
}
