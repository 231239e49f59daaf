//! Regression tests for defects that other rate limiters and circuit breakers have had. The one
//! about a fake clock with real sleeps is covered by the tests of the clock.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use tidegate_policy::backoff::{BackoffOptions, BackoffSettings};
use tidegate_policy::breaker::{BreakerState, MIN_PROBE_LOST_AFTER};
use tidegate_policy::gate::{Ask, Decision, Gate, GateOptions, GateSettings, Permit};
use tidegate_policy::hint::{Hint, Source};
use tidegate_policy::item::{Item, ItemKind, Step, TerminalReason};
use tidegate_policy::line::Tickets;
use tidegate_policy::outcome::{Failure, Outcome, Phase, Verdict};
use tidegate_policy::random::Random;
use tidegate_policy::time::Timestamp;

#[test]
fn jitter_does_not_exceed_the_maximum() {
    let mut options = BackoffOptions::default();
    options.set("max", "10s").unwrap();
    options.set("jitter", "1..3").unwrap();
    let settings = options.build().unwrap();
    let mut random = Random::from_seed(1);
    let longest = (0..10_000).map(|n| settings.delay(1 + n % 9, &mut random));
    assert_eq!(longest.max(), Some(Duration::from_secs(10)));
}

#[test]
fn post_is_not_resent_after_the_server_acted() {
    let settings = BackoffSettings::default();
    let mut random = Random::from_seed(1);
    let mut step = |kind, outcome: &Outcome, verdict| {
        let mut item = Item::new(kind, Timestamp::ZERO);
        item.after(
            &settings,
            outcome,
            Some(verdict),
            Timestamp::ZERO,
            &mut random,
        )
    };
    let post = ItemKind::of("POST");
    let silent = Outcome::failure(Failure::Timeout, Phase::Waiting, Duration::ZERO);
    let broken = Outcome::status(502, Duration::ZERO);
    let over = Step::Failed(TerminalReason::Exhausted);
    assert_eq!(step(post, &silent, Verdict::Unreachable), over);
    assert_eq!(step(post, &broken, Verdict::Overloaded), over);
    let with_key = ItemKind {
        has_idempotency_key: true,
        ..post
    };
    let again = step(with_key, &broken, Verdict::Overloaded);
    assert!(matches!(again, Step::SendAt { .. }), "{again:?}");
}

#[test]
fn half_open_does_not_admit_200_of_200() {
    let mut at = Bench::tripped();
    let admitted = (0..200).filter(|_| at.try_ask().is_some()).count();
    assert_eq!(admitted, 3);
}

#[test]
fn breaker_closes_after_three_lost_probes() {
    let mut at = Bench::tripped();
    let lost = [at.ask(), at.ask(), at.ask()];
    assert!(at.try_ask().is_none());
    at.now = at.now + MIN_PROBE_LOST_AFTER;
    for _ in 0..3 {
        at.now = at.now + Duration::from_secs(4);
        let probe = at.ask();
        at.settle(probe, 200, None);
    }
    assert_eq!(at.gate.breaker_state(at.now), BreakerState::Closed);
    drop(lost);
}

#[test]
fn limit_of_100_per_second_does_not_admit_199_in_100_ms() {
    let mut at = Bench::new(&[
        ("strategy", "fixed"),
        ("initial_rate", "100000"),
        ("limits", "100/1s"),
    ]);
    let mut admitted = 0;
    for millis in 950..1050 {
        at.now = Timestamp::from_millis(millis);
        admitted += std::iter::from_fn(|| at.try_ask()).count();
    }
    assert_eq!(admitted, 100);
}

#[test]
fn breaker_trips_before_its_window_is_full() {
    let mut at = Bench::new(&[("strategy", "fixed"), ("initial_rate", "100")]);
    for _ in 0..5 {
        at.now = at.now + Duration::from_millis(100);
        let permit = at.ask();
        at.settle(permit, 500, None);
    }
    assert_eq!(at.gate.breaker_state(at.now), BreakerState::Open);
}

#[test]
fn late_success_does_not_clear_a_hold_or_close_a_breaker() {
    let mut at = Bench::new(&[("strategy", "aimd"), ("consecutive_failures", "1")]);
    let [slow, slower, first, second] = [at.ask(), at.ask(), at.ask(), at.ask()];
    at.settle(first, 429, Some(60));
    at.settle(slow, 200, None);
    assert_eq!(at.gate.hold_until(at.now), Some(Timestamp::from_secs(60)));
    let _ = second;
    at.now = Timestamp::from_secs(60);
    let permit = at.ask();
    at.settle(permit, 500, None);
    at.settle(slower, 200, None);
    assert_eq!(at.gate.breaker_state(at.now), BreakerState::Open);
}

#[test]
fn hold_of_1_s_does_not_replace_one_of_60_s() {
    let mut at = Bench::new(&[("strategy", "aimd")]);
    let [first, second] = [at.ask(), at.ask()];
    at.settle(first, 429, Some(60));
    at.settle(second, 429, Some(1));
    assert_eq!(at.gate.hold_until(at.now), Some(Timestamp::from_secs(60)));
}

#[test]
fn thousand_waiters_leave_in_order_with_one_wakeup_each() {
    let mut at = Bench::new(&[
        ("strategy", "fixed"),
        ("initial_rate", "500"),
        ("max_wait", "1m"),
        ("max_in_flight", "10000"),
    ]);
    let came: Vec<_> = (0..1000)
        .filter_map(|_| match at.acquire() {
            Decision::Wait { ticket, .. } => Some(ticket),
            Decision::Admit(_) | Decision::Refuse { .. } => None,
        })
        .collect();
    let mut left = Vec::new();
    let mut wakes = 0;
    while let Some(due) = at.gate.next_wake(&at.settings, &at.tickets, at.now) {
        at.now = due;
        wakes += 1;
        while let Some((ticket, permit)) = at.gate.admit_next(&at.settings, &mut at.tickets, due) {
            left.push(ticket);
            at.gate.abandon(&at.settings, permit, due);
        }
    }
    assert_eq!(left, came);
    assert!(wakes <= came.len());
    let seconds = at.now.seconds_since(Timestamp::ZERO);
    assert!(
        (seconds - 1.996).abs() < 0.005,
        "1000 at 500/s took {seconds} s"
    );
}

#[test]
fn rate_recovers_after_a_refusal() {
    for strategy in ["aimd", "adaptive"] {
        let mut at = Bench::new(&[
            ("strategy", strategy),
            ("initial_rate", "8"),
            ("max_rate", "8"),
        ]);
        let permit = at.ask();
        at.settle(permit, 429, None);
        assert!(at.gate.rate() < 8.0);
        for _ in 0..300 {
            at.now = at.now + Duration::from_millis(500);
            if let Some(permit) = at.try_ask() {
                at.settle(permit, 200, None);
            }
        }
        assert!(at.gate.rate() >= 7.9, "{strategy} is at {}", at.gate.rate());
    }
}

#[test]
fn leaked_permits_do_not_block_the_gate() {
    for strategy in ["aimd", "adaptive", "fixed"] {
        let mut at = Bench::new(&[("strategy", strategy), ("max_in_flight", "100")]);
        let mut leaked = Vec::new();
        for second in 0..60 {
            at.now = Timestamp::from_secs(second);
            if let Some(permit) = at.try_ask() {
                // Enough responses to know the latency, then none.
                if second < 20 {
                    at.settle(permit, 200, None)
                } else {
                    leaked.push(permit)
                }
            }
        }
        assert!(leaked.len() > 6, "{strategy}: {}", leaked.len());
        at.now = at.now + MIN_PROBE_LOST_AFTER;
        assert!(at.try_ask().is_some(), "{strategy}");
    }
}

struct Bench {
    settings: GateSettings,
    gate: Gate,
    tickets: Tickets,
    now: Timestamp,
}

impl Bench {
    fn new(settings: &[(&str, &str)]) -> Self {
        let mut options = GateOptions::default();
        for (name, value) in settings {
            options.set(name, value).unwrap();
        }
        let settings = options.build().unwrap();
        let gate = Gate::new(&settings, Timestamp::ZERO);
        Self {
            settings,
            gate,
            tickets: Tickets::new(),
            now: Timestamp::ZERO,
        }
    }

    /// A breaker opened by five failures whose open time has just ended.
    fn tripped() -> Self {
        let mut bench = Self::new(&[("strategy", "aimd"), ("initial_rate", "8")]);
        for _ in 0..5 {
            bench.now = bench.now + Duration::from_secs(5);
            let permit = bench.ask();
            bench.settle(permit, 500, None);
        }
        bench.now = bench.now + Duration::from_secs(15);
        bench
    }

    fn acquire(&mut self) -> Decision {
        let ask = Ask::until(self.now + self.settings.max_wait());
        self.gate
            .acquire(&self.settings, &mut self.tickets, &ask, self.now)
    }

    fn try_ask(&mut self) -> Option<Permit> {
        let ask = Ask::until(self.now);
        match self
            .gate
            .acquire(&self.settings, &mut self.tickets, &ask, self.now)
        {
            Decision::Admit(permit) => Some(permit),
            Decision::Wait { .. } | Decision::Refuse { .. } => None,
        }
    }

    fn ask(&mut self) -> Permit {
        self.try_ask().expect("a token is available")
    }

    fn settle(&mut self, permit: Permit, status: u16, wait_seconds: Option<u64>) {
        let hint = Hint {
            wait: wait_seconds.map(Duration::from_secs),
            source: Some(Source::RetryAfter),
            ..Hint::default()
        };
        let verdict = match status {
            200 => Verdict::Success,
            429 => Verdict::Throttled,
            _ => Verdict::Overloaded,
        };
        let outcome = Outcome::status(status, Duration::from_millis(100)).with_hint(hint);
        self.gate
            .settle(&self.settings, permit, &outcome, Some(verdict), self.now);
    }
}
