//! A gate in one sentence: what it does now, the limit that it knows, how that was learned, and when
//! it tries more.
//!
//! Times are relative to the snapshot.

use std::fmt;

use super::GateSnapshot;
use crate::breaker::BreakerState;
use crate::duration::Rounded;
use crate::hint::Source;
use crate::rate::{CeilingSource, Phase, RateView, Strategy, Why};
use crate::time::Timestamp;

/// What the gate does and why: one sentence without a capital letter and a full stop, as in "staying
/// at 48.5/s, just below a limit of 50/s measured between two refusals; tries more in 4s".
impl fmt::Display for GateSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_enabled {
            return f.write_str("switched off: every request is admitted at once");
        }
        match self.breaker {
            BreakerState::Closed => {}
            BreakerState::Open => return self.explain_open_breaker(f),
            BreakerState::HalfOpen => {
                return f.write_str("half-open: probes show whether the upstream works again");
            }
            BreakerState::Isolated => {
                return f.write_str("isolated: refuses everything until it is released or reset");
            }
        }
        if let Some((until, source)) = self.hold {
            let wait = self.time_until(until);
            match source {
                Source::Assumed => write!(f, "waits {wait}, because the server refuses")?,
                Source::Counted => {
                    write!(
                        f,
                        "waits {wait} for the next window, as this one has accepted its number"
                    )?;
                }
                Source::Body => write!(f, "waits {wait}, as the server asked")?,
                header => write!(f, "waits {wait}, as the server asked in `{header}`")?,
            }
            f.write_str("; then ")?;
        }
        self.explain_rate(f)?;
        match self.cost {
            Some(cost) => write!(f, "; cost stays at or below {}", PerSecond(cost.rate)),
            None => Ok(()),
        }
    }
}

impl GateSnapshot {
    fn explain_open_breaker(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.consecutive_failures {
            0 => f.write_str("open: too many attempts failed")?,
            1 => f.write_str("open: the last attempt failed")?,
            failures => write!(f, "open: the last {failures} attempts failed")?,
        }
        match self.breaker_until {
            Some(until) => write!(f, "; probes in {}", self.time_until(until)),
            None => Ok(()),
        }
    }

    fn explain_rate(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = PerSecond(self.rate);
        if self.strategy == Strategy::Fixed {
            return write!(f, "staying at {rate}, a fixed rate");
        }
        let is_new = self.why == Why::Initial && self.succeeded == 0;
        if is_new && self.throttled == 0 && self.failed == 0 {
            return write!(f, "starting at {rate}: nothing was answered yet");
        }
        if self.why == Why::NearlyUsedUp {
            return write!(
                f,
                "slowed to {rate}: the server says that few requests remain"
            );
        }
        match &self.learned {
            Some(learned) => self.explain_learned(learned, f),
            None if self.is_at_max() => self.explain_max(f),
            None => write!(f, "at {rate}, {}", self.why),
        }
    }

    fn explain_learned(&self, learned: &RateView, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = PerSecond(self.rate);
        if let Some(bound) = learned.banned_above {
            let verb = match learned.phase {
                Phase::Staying => "staying at",
                Phase::Searching | Phase::Rising | Phase::Probing => "rising from",
            };
            let bound = PerSecond(bound);
            return write!(
                f,
                "{verb} {rate}, at most {bound} until the gate is reset, because the server banned \
                 this client"
            );
        }
        let Some(ceiling) = learned.ceiling else {
            return self.explain_search(f);
        };
        let limit = Limit { ceiling, learned };
        if self.why == Why::Restored {
            let noun = limit.noun();
            let ceiling = PerSecond(ceiling);
            return write!(
                f,
                "continuing at {rate} with {noun} of {ceiling}, as learned before a restart"
            );
        }
        if learned.is_shared {
            f.write_str("others use this limit too: ")?;
        }
        match learned.phase {
            Phase::Searching => self.explain_search(f),
            Phase::Rising => write!(f, "rising from {rate} to {limit}"),
            Phase::Probing => write!(f, "trying {rate}, in case there is room above {limit}"),
            Phase::Staying if self.is_at_max() => self.explain_max(f),
            Phase::Staying => {
                let place = match self.rate < ceiling {
                    true => "just below",
                    false => "at",
                };
                write!(f, "staying at {rate}, {place} {limit}")?;
                match learned.probes_at {
                    Some(at) if at > self.taken_at => {
                        write!(f, "; tries more in {}", self.time_until(at))
                    }
                    Some(_) => f.write_str("; tries more next"),
                    None => Ok(()),
                }
            }
        }
    }

    fn explain_search(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = PerSecond(self.rate);
        match () {
            () if self.is_at_max() => self.explain_max(f),
            () if self.why == Why::Restored => {
                write!(f, "continuing at {rate}, as learned before a restart")
            }
            () if self.throttled == 0 => {
                write!(f, "searching from {rate} upwards: nothing was refused yet")
            }
            () => write!(
                f,
                "searching from {rate} upwards: more is accepted than before"
            ),
        }
    }

    fn explain_max(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "staying at {}, the configured maximum",
            PerSecond(self.rate)
        )
    }

    fn is_at_max(&self) -> bool {
        self.rate >= self.max_rate
    }

    fn time_until(&self, at: Timestamp) -> Rounded {
        Rounded(at.since(self.taken_at))
    }
}

/// A ceiling, and how it was learned.
struct Limit<'a> {
    ceiling: f64,
    learned: &'a RateView,
}

impl Limit<'_> {
    fn noun(&self) -> &'static str {
        match self.learned.is_shared {
            true => "a share",
            false => "a limit",
        }
    }
}

impl fmt::Display for Limit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.noun(), PerSecond(self.ceiling))?;
        if let Some(source) = self.learned.source {
            f.write_str(match source {
                CeilingSource::Measured => " measured between two refusals",
                CeilingSource::Estimated => " estimated from one refusal",
                CeilingSource::Confirmed => " confirmed without a refusal",
                CeilingSource::Latency => ", above which responses became slow",
                CeilingSource::Window => " counted until the server refused everything",
                CeilingSource::Ban => ", because the server banned this client",
                CeilingSource::Recovery => ", the rate before the breaker opened",
                CeilingSource::Restored => " learned before a restart",
            })?;
        }
        match self.learned.period {
            Some(period) => write!(f, ", in windows of {}", Rounded(period)),
            None => Ok(()),
        }
    }
}

/// A rate with three digits, or all before the point, as in `48.5/s`.
struct PerSecond(f64);

impl fmt::Display for PerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = match self.0 {
            rate if rate >= 100.0 => 0,
            rate if rate >= 10.0 => 1,
            rate if rate >= 1.0 => 2,
            _ => 3,
        };
        let text = format!("{:.digits$}", self.0);
        let text = match text.contains('.') {
            true => text.trim_end_matches('0').trim_end_matches('.'),
            false => &text,
        };
        write!(f, "{text}/s")
    }
}

#[cfg(test)]
mod tests;
