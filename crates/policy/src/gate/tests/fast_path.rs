//! Most asks and successes take a fast path. These tests run the same random history on two gates,
//! one of which never takes the fast path: decisions and state must be equal after every step.

use proptest::prelude::*;

use super::*;
use crate::line::{Class, Ticket};
use crate::random::Random;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn fast_path_and_slow_path_agree(seed in any::<u64>()) {
        let taken = Twins::new(seed).run(600);
        prop_assert!(taken.asks + taken.outcomes <= 600);
    }
}

/// Otherwise the test above might compare the slow path with itself.
#[test]
fn random_histories_take_both_paths() {
    let mut total = FastPathCounts::default();
    for seed in 0..100 {
        let taken = Twins::new(seed).run(600);
        total.asks += taken.asks;
        total.outcomes += taken.outcomes;
    }
    let often = 1_500..20_000;
    assert!(often.contains(&total.asks), "{total:?}");
    assert!(often.contains(&total.outcomes), "{total:?}");
}

/// How many times each fast path could be taken.
#[derive(Debug, Default)]
struct FastPathCounts {
    asks: u32,
    outcomes: u32,
}

/// Two gates with the same history.
struct Twins {
    random: Random,
    settings: GateSettings,
    now: Timestamp,
    quick: Gate,
    quick_tickets: Tickets,
    thorough: Gate,
    thorough_tickets: Tickets,
    in_flight: Vec<(Permit, Permit)>,
    waiting: Vec<Ticket>,
    /// In a calm history failures are rare.
    is_calm: bool,
    taken: FastPathCounts,
}

impl Twins {
    fn new(seed: u64) -> Self {
        let mut random = Random::from_seed(seed);
        let settings = random_settings(&mut random);
        let now = Timestamp::from_nanos(random.below(1 << 50));
        let gate = Gate::new(&settings, now);
        Self {
            is_calm: random.below(2) == 0,
            random,
            now,
            quick: gate.clone(),
            quick_tickets: Tickets::new(),
            thorough: gate,
            thorough_tickets: Tickets::new(),
            settings,
            in_flight: Vec::new(),
            waiting: Vec::new(),
            taken: FastPathCounts::default(),
        }
    }

    fn run(mut self, events: u32) -> FastPathCounts {
        for _ in 0..events {
            self.advance();
            match self.random.below(100) {
                0..48 => self.ask(),
                48..90 => self.settle(),
                90..95 => while self.admit_next() {},
                95..97 => self.cancel(),
                97 => self.return_without_outcome(),
                98 if !self.is_calm => self.interfere(),
                _ => self.check_snapshots(),
            }
            assert_eq!(format!("{:?}", self.quick), format!("{:?}", self.thorough));
        }
        self.taken
    }

    /// Advances time by nothing, a little or a lot; sometimes the clock steps back.
    fn advance(&mut self) {
        let longest = [0, 1_000, 3_000_000, 3_000_000, 300_000_000, 20_000_000_000];
        let longest = longest[usize::try_from(self.random.below(6)).unwrap()];
        let step = self.random.below(longest + 1);
        self.now = if self.random.below(40) == 0 {
            Timestamp::from_nanos(self.now.as_nanos().saturating_sub(step / 100))
        } else {
            self.now + Duration::from_nanos(step)
        };
    }

    fn ask(&mut self) {
        let max_wait = self.random.below(10_000_000_000);
        let ask = Ask {
            cost: u32::try_from(self.random.below(4)).unwrap(),
            deadline: match self.random.below(8) {
                0 => Timestamp::ZERO,
                1..6 => self.now,
                _ => self.now + Duration::from_nanos(max_wait),
            },
            class: [Class::Interactive, Class::Background]
                [usize::try_from(self.random.below(2)).unwrap()],
            waits_for_breaker: self.random.below(2) == 0,
        };
        let mut scout = self.quick.clone();
        let at_once = scout.acquire_at_once(&self.settings, &ask, self.now);
        self.taken.asks += u32::from(at_once.is_some());
        let quick = self
            .quick
            .acquire(&self.settings, &mut self.quick_tickets, &ask, self.now);
        let thorough = self.thorough.acquire_slow_path(
            &self.settings,
            &mut self.thorough_tickets,
            &ask,
            self.now,
        );
        assert_eq!(format!("{quick:?}"), format!("{thorough:?}"));
        match (quick, thorough) {
            (Decision::Admit(one), Decision::Admit(other)) => self.in_flight.push((one, other)),
            (Decision::Wait { ticket, .. }, _) => self.waiting.push(ticket),
            _ => {}
        }
    }

    fn settle(&mut self) {
        let Some((one, other)) = self.take_permits() else {
            return;
        };
        let (outcome, verdict) = random_outcome(&mut self.random, self.is_calm);
        let success = verdict == Some(Verdict::Success);
        let says_more = outcome.hint.remaining.is_some() || outcome.used.is_some();
        self.taken.outcomes +=
            u32::from(self.quick.has_fast_path && self.settings.enabled && success && !says_more);
        self.quick
            .settle(&self.settings, one, &outcome, verdict, self.now);
        self.thorough.counters.end();
        self.thorough
            .settle_slow_path(&self.settings, &other, &outcome, verdict, self.now);
    }

    fn return_without_outcome(&mut self) {
        let Some((one, other)) = self.take_permits() else {
            return;
        };
        let bring_back = match self.random.below(2) {
            0 => Gate::abandon,
            _ => Gate::give_back,
        };
        bring_back(&mut self.quick, &self.settings, one, self.now);
        bring_back(&mut self.thorough, &self.settings, other, self.now);
    }

    fn admit_next(&mut self) -> bool {
        let quick = self
            .quick
            .admit_next(&self.settings, &mut self.quick_tickets, self.now);
        let thorough =
            self.thorough
                .admit_next(&self.settings, &mut self.thorough_tickets, self.now);
        assert_eq!(quick, thorough);
        let Some(((ticket, one), (_, other))) = quick.zip(thorough) else {
            return false;
        };
        self.waiting.retain(|waiting| *waiting != ticket);
        self.in_flight.push((one, other));
        true
    }

    fn cancel(&mut self) {
        let Some(ticket) = self.waiting.pop() else {
            return;
        };
        assert!(self.quick.cancel(&mut self.quick_tickets, ticket));
        assert!(self.thorough.cancel(&mut self.thorough_tickets, ticket));
    }

    /// Overrides the gate, or restarts the process.
    fn interfere(&mut self) {
        let kind = self.random.below(8).min(4);
        let new = random_settings(&mut self.random);
        for gate in [&mut self.quick, &mut self.thorough] {
            match kind {
                0 => gate.isolate(&self.settings, self.now),
                1 => gate.reset(&self.settings, self.now),
                2 => gate.adopt(&self.settings, &new, self.now),
                3 => {
                    let restored = Gate::restore(&self.settings, &gate.record(self.now), self.now);
                    let Gate { counters, line, .. } = *gate;
                    *gate = Gate {
                        counters,
                        line,
                        ..restored
                    };
                }
                _ => gate.release(&self.settings, self.now),
            }
        }
        if kind == 2 {
            self.settings = new;
        }
    }

    fn check_snapshots(&mut self) {
        let ask = Ask::until(self.now);
        let quick = self
            .quick
            .peek(&self.settings, &self.quick_tickets, &ask, self.now);
        let thorough = self
            .thorough
            .peek(&self.settings, &self.thorough_tickets, &ask, self.now);
        assert_eq!(quick, thorough);
    }

    fn take_permits(&mut self) -> Option<(Permit, Permit)> {
        let count = self.in_flight.len() as u64;
        if count == 0 {
            return None;
        }
        let some = usize::try_from(self.random.below(count)).unwrap();
        Some(self.in_flight.swap_remove(some))
    }
}

fn random_settings(random: &mut Random) -> GateSettings {
    let mut options = GateOptions::default();
    let mut set = |name: &str, values: &[&str]| {
        let some = usize::try_from(random.below(values.len() as u64)).unwrap();
        options.set(name, values[some]).unwrap();
    };
    set("strategy", &["adaptive", "adaptive", "aimd", "fixed"]);
    set("initial_rate", &["5", "50", "5000"]);
    set("min_rate", &["0.1", "0.5"]);
    set("max_rate", &["5000", "10000"]);
    set("max_in_flight", &["3", "8", "256"]);
    set("burst", &["1", "4", "40"]);
    set("window", &["1s", "10s"]);
    set("half_open_probes", &["1", "3"]);
    set("enabled", &["true", "true", "true", "true", "false"]);
    set("limits", &["", "", "", "9/1s"]);
    options.build().unwrap()
}

fn random_outcome(random: &mut Random, is_calm: bool) -> (Outcome, Option<Verdict>) {
    let kind = if is_calm && random.below(20) > 0 {
        10
    } else {
        random.below(16)
    };
    let remaining = random.below(6);
    let mut outcome = match kind {
        0 => answer(429),
        1 => directed(429, remaining / 2),
        2 => answer(503),
        3 => answer(500),
        4 => answer(404),
        5 => answer(101),
        6 => quota(200, remaining, 1),
        7 => quota(429, 0, 2),
        8 => Outcome::failure(Failure::Reset, Phase::Waiting, Duration::from_millis(3)),
        9 => directed(200, 1),
        _ => answer(200),
    };
    outcome.latency = Duration::from_millis([10, 12, 15, 80][(remaining % 4) as usize]);
    if random.below(20) == 0 {
        outcome.used = Some(2);
    }
    let verdict = outcome.classify().verdict;
    (outcome, verdict)
}
