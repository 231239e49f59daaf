//! What a member does while the store is silent: it continues with its last share.

use std::time::Duration;

use super::Member;
use crate::breaker::OPEN_GROWTH;
use crate::fleet::{ProbeResult, SharedSettings};
use crate::gate::ExternalBreaker;
use crate::time::Timestamp;

/// The store is silent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Degraded {
    pub(super) since: Timestamp,
    pub(super) sent: u32,
    /// The part of the share that is used, after refusals.
    cut: f64,
    cut_at: Timestamp,
    /// The breaker of the fleet as this node continues with it: when it may next try to probe, the next
    /// open time, and how many probes have succeeded.
    try_at: Timestamp,
    open_time: Duration,
    successes: u8,
}

impl Member {
    /// Applies the passing of time while the store is silent; call it every interval. Returns whether
    /// the node is degraded.
    pub fn tick(&mut self, settings: &SharedSettings, now: Timestamp) -> bool {
        if self.degraded.is_none() && self.is_silent(settings, now) {
            self.begin_degraded(settings, now);
        }
        if self.degraded.is_some() {
            self.try_to_probe(settings, now);
            self.pace(settings, now);
        }
        self.degraded.is_some()
    }

    /// When [`Member::tick`] should be called next, because the store may be silent by then;
    /// [`Timestamp::MAX`] while no call waits for its reply.
    pub fn next_tick(&self, settings: &SharedSettings, now: Timestamp) -> Timestamp {
        match self.degraded {
            Some(_) => now + settings.fleet.interval,
            None => self.silent_at(settings).unwrap_or(Timestamp::MAX),
        }
    }

    /// Sets how the node paces itself.
    pub(super) fn pace(&mut self, settings: &SharedSettings, now: Timestamp) {
        let share = self.share * self.rate;
        if let Some(degraded) = self.degraded {
            let silence = now.seconds_since(degraded.since);
            let shrunk = (1.0 - 0.01 * (silence - FULL_SHARE_SECONDS).max(0.0)).max(MIN_SHRUNK);
            let cap = match self.heard_at {
                Some(_) => share * shrunk * degraded.cut,
                None => MIN_DEGRADED_RATE,
            };
            self.external.set_rate_cap(cap, 1.0, now);
        } else if self.is_free {
            let interval = settings.fleet.interval.as_secs_f64();
            let had_slots = self.external.rate_cap().is_none();
            self.external
                .set_rate_cap(share, 1.0 + share * interval, now);
            if had_slots {
                // They are used up first, and no tokens are saved meanwhile.
                let held = self.external.slots.held(now);
                self.external.delay_tokens(held.into());
            }
        } else {
            self.external.clear_rate_cap();
            self.external.set_pace(share);
        }
    }

    /// Nodes that pace themselves must not start together.
    pub(super) fn begin_degraded(&mut self, settings: &SharedSettings, now: Timestamp) {
        self.degraded = Some(Degraded {
            since: self.heard_at.unwrap_or(self.created_at),
            sent: 0,
            cut: 1.0,
            cut_at: now,
            try_at: now,
            open_time: settings.fleet.open_first,
            successes: 0,
        });
        self.external.set_rate_cap(MIN_DEGRADED_RATE, 1.0, now);
        let phase = self.calls.jitter.unit();
        self.external.delay_tokens(phase);
    }

    fn is_silent(&self, settings: &SharedSettings, now: Timestamp) -> bool {
        self.silent_at(settings).is_some_and(|at| now >= at)
    }

    /// When the store counts as silent unless it answers. A node that has nothing to say is not kept
    /// waiting, however long the last reply is ago.
    fn silent_at(&self, settings: &SharedSettings) -> Option<Timestamp> {
        let asked_at = self.calls.asked_at?;
        Some(match self.heard_at {
            Some(heard_at) => {
                let silence = max_silence(settings);
                let usual = heard_at.max(self.quiet_until) + silence;
                usual.max(asked_at + silence.saturating_sub(settings.fleet.interval))
            }
            None => asked_at + SILENCE_AT_FIRST,
        })
    }

    /// Without the store, a breaker of the fleet that is not Closed would never close. Each node tries as
    /// often as one node alone would, and one in `active` tries is a probe: together they send no more.
    fn try_to_probe(&mut self, settings: &SharedSettings, now: Timestamp) {
        let Some(degraded) = &mut self.degraded else {
            return;
        };
        let is_due = match self.external.breaker {
            ExternalBreaker::Closed => false,
            ExternalBreaker::Open { until } => until <= now,
            ExternalBreaker::HalfOpen { may_probe } => !may_probe && !self.external.is_probing(),
        };
        if !is_due || now < degraded.try_at {
            return;
        }
        let may_probe = self.calls.jitter.below(self.active.into()) == 0;
        self.external.breaker = ExternalBreaker::HalfOpen { may_probe };
        if !may_probe {
            // Perhaps another node probes and fails.
            degraded.try_at = now + degraded.next_open_time(settings);
        }
    }

    /// The store does not learn of this probe, or too late: the breaker follows it here.
    pub(super) fn end_degraded_probe(
        &mut self,
        settings: &SharedSettings,
        result: ProbeResult,
        now: Timestamp,
    ) {
        let Some(degraded) = &mut self.degraded else {
            return;
        };
        self.external.breaker = match result {
            ProbeResult::Unknown => ExternalBreaker::HalfOpen { may_probe: true },
            ProbeResult::Failed => {
                let until = now + degraded.next_open_time(settings);
                degraded.try_at = until;
                degraded.successes = 0;
                ExternalBreaker::Open { until }
            }
            ProbeResult::Succeeded => {
                degraded.successes += 1;
                match degraded.successes >= settings.fleet.half_open_probes {
                    true => ExternalBreaker::Closed,
                    false => ExternalBreaker::HalfOpen { may_probe: true },
                }
            }
        };
    }
}

impl Degraded {
    /// The node sends less, once for each burst of refusals.
    pub(super) fn refused(&mut self, now: Timestamp) {
        if now.since(self.cut_at) >= BETWEEN_CUTS {
            self.cut *= CUT;
            self.cut_at = now;
        }
    }

    /// How long the breaker is open now; the next time it is longer.
    fn next_open_time(&mut self, settings: &SharedSettings) -> Duration {
        let open_time = self.open_time;
        let longer = open_time.mul_f64(OPEN_GROWTH);
        self.open_time = longer.min(settings.fleet.open_for);
        open_time
    }
}

/// After this long without a reply the node is degraded.
fn max_silence(settings: &SharedSettings) -> Duration {
    (3 * settings.fleet.interval).max(Duration::from_millis(300))
}

/// A node that never had a share begins after this, at [`MIN_DEGRADED_RATE`] per second.
const SILENCE_AT_FIRST: Duration = Duration::from_secs(2);
const MIN_DEGRADED_RATE: f64 = 0.2;
/// While degraded: the whole share for this long, then 1 % less per second, down to a half.
const FULL_SHARE_SECONDS: f64 = 5.0;
const MIN_SHRUNK: f64 = 0.5;
/// While degraded: what remains after a refusal, at most so often.
const CUT: f64 = 0.8;
const BETWEEN_CUTS: Duration = Duration::from_millis(300);
