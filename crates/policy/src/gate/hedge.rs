//! What a gate decides about a second attempt of a request, see [`crate::hedge`].

use std::time::Duration;

use super::{Gate, GateSettings, Permit};
use crate::hedge::{Hedge, MIN_SAMPLES};
use crate::rate::Why;
use crate::time::Timestamp;

impl Gate {
    /// How long after the first attempt the second one is made; `None` if that is not known yet.
    pub fn hedge_after(&self, hedge: Hedge) -> Option<Duration> {
        match hedge {
            Hedge::After(time) => Some(time),
            Hedge::AfterP95 if self.latency.samples() < MIN_SAMPLES => None,
            Hedge::AfterP95 => self.latency.p95_at_most(),
        }
    }

    /// Whether the server is well enough for an attempt that is not needed. It does not say whether
    /// a permit is available.
    pub fn allows_hedge(&self, now: Timestamp) -> bool {
        let is_slowed = match self.why {
            Why::SlowAnswers
            | Why::Throttled
            | Why::Directed
            | Why::Banned
            | Why::NearlyUsedUp
            | Why::Failed
            | Why::Recovered => true,
            Why::Initial | Why::FastAnswers | Why::QuotaRenewed | Why::Restored | Why::Settings => {
                false
            }
        };
        let is_paused = self.hold_until > now || !self.breaker.is_closed();
        let is_refused = self.consecutive_failures() > 0 || self.adaptive.is_refused();
        !is_slowed && !is_paused && !is_refused && !self.is_waited_for()
    }

    /// Returns the permit of an attempt that was dropped after `elapsed` because another attempt of
    /// its request was answered first. Like [`Gate::abandon`], but an attempt that took longer than
    /// the 95th percentile counts as a latency above it. Without that, the slowest responses would be
    /// missing, the percentile would fall, and more and more requests would be sent twice.
    pub fn overtake(
        &mut self,
        settings: &GateSettings,
        permit: Permit,
        elapsed: Duration,
        now: Timestamp,
    ) {
        self.abandon(settings, permit, now);
        let is_above = |p95: Duration| elapsed >= p95;
        if settings.enabled && self.latency.p95_at_most().is_some_and(is_above) {
            self.latency.record(elapsed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::{Ask, Decision, GateOptions};
    use crate::line::Tickets;
    use crate::outcome::{Failure, Outcome, Phase};

    const MILLISECOND: Duration = Duration::from_millis(1);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_secs(seconds)
    }

    fn settings(strategy: &str) -> GateSettings {
        let mut options = GateOptions::default();
        options.set("strategy", strategy).unwrap();
        options.build().unwrap()
    }

    fn permit(gate: &mut Gate, settings: &GateSettings, now: Timestamp) -> Permit {
        let decision = gate.acquire(settings, &mut Tickets::new(), &Ask::until(now), now);
        match decision {
            Decision::Admit(permit) => permit,
            other => panic!("{other:?}"),
        }
    }

    /// A gate that has seen this response.
    fn after(strategy: &str, outcome: &Outcome) -> (GateSettings, Gate) {
        let settings = settings(strategy);
        let mut gate = Gate::new(&settings, at(0));
        let permit = permit(&mut gate, &settings, at(0));
        let verdict = outcome.classify().verdict;
        gate.settle(&settings, permit, outcome, verdict, at(1));
        (settings, gate)
    }

    #[test]
    fn no_hedge_while_the_server_throttles_or_fails() {
        let outcomes = [
            ("throttled", Outcome::status(429, MILLISECOND)),
            (
                "told to wait",
                Outcome::throttled(MILLISECOND, Some(Duration::from_secs(7))),
            ),
            ("failed", Outcome::status(500, MILLISECOND)),
            (
                "not reached",
                Outcome::failure(Failure::Timeout, Phase::Waiting, MILLISECOND),
            ),
        ];
        for strategy in ["adaptive", "aimd"] {
            for (name, outcome) in &outcomes {
                let (_, gate) = after(strategy, outcome);
                assert!(!gate.allows_hedge(at(1)), "{strategy}, {name}");
            }
            let (_, gate) = after(strategy, &Outcome::status(200, MILLISECOND));
            assert!(gate.allows_hedge(at(1)), "{strategy}");
        }
    }

    #[test]
    fn no_hedge_during_a_hold() {
        // A constant rate, so that nothing but the hold shows what the server said.
        let wait = Duration::from_secs(7);
        let (_, gate) = after("fixed", &Outcome::throttled(MILLISECOND, Some(wait)));
        assert!(!gate.allows_hedge(at(7)));
        assert!(gate.allows_hedge(at(8)));
    }

    #[test]
    fn no_hedge_while_asks_wait() {
        let settings = settings("adaptive");
        let mut gate = Gate::new(&settings, at(0));
        let mut tickets = Tickets::new();
        assert!(gate.allows_hedge(at(0)));
        let mut ask = || gate.acquire(&settings, &mut tickets, &Ask::until(at(9)), at(0));
        while let Decision::Admit(_) = ask() {}
        assert!(!gate.allows_hedge(at(0)));
    }

    #[test]
    fn no_hedge_while_isolated_or_half_open() {
        let (settings, mut gate) = after("adaptive", &Outcome::status(200, MILLISECOND));
        gate.isolate(&settings, at(1));
        assert!(!gate.allows_hedge(at(1)));
        gate.release(&settings, at(2));
        assert!(gate.allows_hedge(at(2)));
        let failed = Outcome::status(500, MILLISECOND);
        for now in (10..15).map(at) {
            let permit = permit(&mut gate, &settings, now);
            gate.settle(&settings, permit, &failed, failed.classify().verdict, now);
        }
        assert!(!gate.allows_hedge(at(14)), "open");
        let probe = permit(&mut gate, &settings, at(60));
        assert!(probe.is_probe() && !gate.allows_hedge(at(60)), "half-open");
    }

    #[test]
    fn percentile_needs_samples_and_a_fixed_time_does_not() {
        let (settings, mut gate) = after("adaptive", &Outcome::status(200, 100 * MILLISECOND));
        let fixed = Hedge::After(MILLISECOND);
        assert_eq!(gate.hedge_after(fixed), Some(MILLISECOND));
        for number in 1..MIN_SAMPLES {
            assert_eq!(gate.hedge_after(Hedge::AfterP95), None, "{number}");
            let now = at(u64::from(number) + 1);
            let permit = permit(&mut gate, &settings, now);
            let outcome = Outcome::status(200, 100 * MILLISECOND);
            gate.settle(&settings, permit, &outcome, outcome.classify().verdict, now);
        }
        let p95 = gate.hedge_after(Hedge::AfterP95).unwrap();
        assert!((100..=170).contains(&p95.as_millis()), "{p95:?}");
    }

    #[test]
    fn dropped_slow_attempts_keep_the_percentile() {
        let settings = GateSettings::fixed(1e6);
        let mut gate = Gate::new(&settings, at(0));
        let fast = Outcome::status(200, 10 * MILLISECOND);
        // Every tenth response would take seconds; its request is hedged after the percentile.
        for number in 0..10_000_u64 {
            let now = Timestamp::from_millis(number);
            let first = permit(&mut gate, &settings, now);
            if number % 10 == 9 {
                let after = gate.hedge_after(Hedge::After(20 * MILLISECOND)).unwrap();
                let second = permit(&mut gate, &settings, now);
                gate.settle(&settings, second, &fast, fast.classify().verdict, now);
                gate.overtake(&settings, first, after + 10 * MILLISECOND, now);
            } else {
                gate.settle(&settings, first, &fast, fast.classify().verdict, now);
            }
        }
        let p95 = gate.latency.p95().unwrap();
        assert!(p95 > 20 * MILLISECOND, "{p95:?}");
        let quick = permit(&mut gate, &settings, at(11));
        let before = gate.latency.clone();
        gate.overtake(&settings, quick, MILLISECOND, at(11));
        assert_eq!(gate.latency, before, "it may have been fast or slow");
        assert_eq!(gate.in_flight(), 0);
    }
}
