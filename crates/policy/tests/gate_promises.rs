//! Properties of a gate over long random histories: several gates, asks of both classes with mixed
//! deadlines and costs, outcomes of every kind that settle late and out of order, lost permits, and
//! overrides. Every property is checked at every event.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use tidegate_policy::breaker::{BreakerState, MIN_PROBE_LOST_AFTER};
use tidegate_policy::gate::{Ask, Decision, Gate, GateOptions, GateSettings, Permit, Reason};
use tidegate_policy::hint::{Hint, Source};
use tidegate_policy::line::{Class, Ticket, Tickets};
use tidegate_policy::outcome::{Failure, Outcome, Phase, Verdict};
use tidegate_policy::random::Random;
use tidegate_policy::rate::Strategy;
use tidegate_policy::time::Timestamp;

const GATES: usize = 3;
const EVENTS: u32 = 3000;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn gate_properties_hold_for_random_histories(seed in any::<u64>()) {
        World::new(seed).run();
    }
}

/// Several gates with one arena of tickets, and their callers.
struct World {
    random: Random,
    settings: GateSettings,
    burst: f64,
    tickets: Tickets,
    gates: Vec<CheckedGate>,
    now: Timestamp,
}

/// A gate, with the state needed to check it.
struct CheckedGate {
    gate: Gate,
    under_way: Vec<(Permit, u32)>,
    waiting: BTreeMap<Ticket, Waiter>,
    joined: u64,
    /// The latest end of a wait that a server named, unless a person has released it since.
    directed_until: Timestamp,
    expected_tokens: ExpectedTokens,
    probes: Probes,
}

struct Waiter {
    number: u64,
    class: Class,
    deadline: Timestamp,
}

/// Outstanding probes of the current HalfOpen period.
#[derive(Default)]
struct Probes {
    stay: u32,
    out: u32,
    last: Timestamp,
}

/// A second count of tokens: refilled at the gate's rate up to the burst, and cut at the end of
/// every pause. A permit without such a token would exceed `rate·t + burst`.
struct ExpectedTokens {
    tokens: f64,
    at: Timestamp,
    rate: f64,
    capacity: f64,
    pause: Option<(Timestamp, f64)>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::from_seed(seed);
        let (settings, burst) = random_settings(&mut random);
        let now = Timestamp::from_nanos(random.below(1 << 50));
        let gates = (0..GATES)
            .map(|_| CheckedGate::new(&settings, burst, now))
            .collect();
        Self {
            random,
            settings,
            burst,
            tickets: Tickets::new(),
            gates,
            now,
        }
    }

    fn run(mut self) {
        for _ in 0..EVENTS {
            self.advance();
            let which = self.pick(GATES);
            match self.random.below(100) {
                0..52 => self.ask(which),
                52..90 => self.settle(which),
                90..92 => self.abandon(which),
                92 => self.give_back(which),
                93..95 => self.cancel(which),
                95 => self.lose(which),
                96 => self.interfere(which),
                _ => self.expire(which),
            }
            self.check(which);
        }
        for which in 0..GATES {
            self.check_line_empties(which);
        }
    }

    fn pick(&mut self, among: usize) -> usize {
        usize::try_from(self.random.below(among as u64)).unwrap()
    }

    /// Advances time by nothing, a little or a lot; tickets that become due leave on time.
    fn advance(&mut self) {
        let longest = [
            0,
            0,
            1_000_000,
            100_000_000,
            100_000_000,
            3_000_000_000,
            60_000_000_000,
        ];
        let longest = longest[self.pick(7)];
        let then = self.now + Duration::from_nanos(self.random.below(longest + 1));
        for which in 0..GATES {
            self.admit_due(which, then);
        }
        self.now = then;
    }

    fn admit_due(&mut self, which: usize, then: Timestamp) {
        while let Some(due) = self.gates[which]
            .gate
            .next_admission(&self.settings, &self.tickets)
        {
            if due > then {
                return;
            }
            let checked = &mut self.gates[which];
            let left = checked
                .gate
                .admit_next(&self.settings, &mut self.tickets, due);
            let (ticket, permit) = left.expect("a due ticket leaves");
            checked.left_line(ticket);
            checked.admitted(&self.settings, permit, 1, due);
            checked.look(&self.settings, self.burst, due);
        }
    }

    fn ask(&mut self, which: usize) {
        let deadline = self.now + Duration::from_millis(self.random.below(60_000));
        let class = if self.random.below(3) == 0 {
            Class::Background
        } else {
            Class::Interactive
        };
        let waits_for_breaker = self.random.below(4) == 0;
        let ask = Ask {
            cost: 1,
            deadline,
            class,
            waits_for_breaker,
        };
        let checked = &mut self.gates[which];
        let before = checked
            .gate
            .snapshot(&self.settings, &self.tickets, self.now);
        match checked
            .gate
            .acquire(&self.settings, &mut self.tickets, &ask, self.now)
        {
            Decision::Admit(permit) => {
                let after = checked
                    .gate
                    .snapshot(&self.settings, &self.tickets, self.now);
                assert!(
                    (before.tokens - after.tokens - 1.0).abs() < 1e-6,
                    "a token was taken"
                );
                checked.admitted(&self.settings, permit, 1, self.now);
            }
            Decision::Wait { ticket, until, .. } => {
                assert!(until.is_none_or(|until| until >= self.now));
                checked.joined += 1;
                let waiter = Waiter {
                    number: checked.joined,
                    class,
                    deadline,
                };
                assert!(
                    checked.waiting.insert(ticket, waiter).is_none(),
                    "issued once"
                );
            }
            Decision::Refuse { reason, until } => self.check_refusal(which, &ask, reason, until),
        }
    }

    fn check_refusal(&self, which: usize, ask: &Ask, reason: Reason, until: Option<Timestamp>) {
        let gate = &self.gates[which].gate;
        match reason {
            Reason::Hold => assert_eq!(until, gate.hold_until(self.now)),
            Reason::Deadline => assert!(until.is_none_or(|until| until > ask.deadline)),
            Reason::BreakerOpen => assert_ne!(gate.breaker_state(self.now), BreakerState::Closed),
            Reason::QueueFull => assert!(!self.gates[which].waiting.is_empty()),
            Reason::Rate | Reason::InFlight => assert!(ask.deadline <= self.now),
            Reason::TooManyGates | Reason::RetryBudget => {
                panic!("not a reason of a gate: {reason}")
            }
        }
    }

    fn settle(&mut self, which: usize) {
        let Some(permit) = self.take_permit(which) else {
            return;
        };
        let (outcome, verdict) = random_outcome(&mut self.random);
        let checked = &mut self.gates[which];
        let late = permit.epoch() != checked.gate.epoch();
        let epoch = checked.gate.epoch();
        let before = checked
            .gate
            .snapshot(&self.settings, &self.tickets, self.now);
        checked
            .gate
            .settle(&self.settings, permit, &outcome, verdict, self.now);
        if let (Some(wait), Some(Verdict::Throttled | Verdict::Overloaded)) =
            (outcome.hint.wait, verdict)
        {
            checked.directed_until = checked.directed_until.max(self.now + wait);
        }
        let after = checked
            .gate
            .snapshot(&self.settings, &self.tickets, self.now);
        assert!(
            after.hold.map(|hold| hold.0) >= before.hold.map(|hold| hold.0),
            "never shrinks"
        );
        if late {
            let learned = |s: &tidegate_policy::gate::GateSnapshot| {
                (
                    s.rate.to_bits(),
                    s.breaker,
                    s.window,
                    s.consecutive_failures,
                )
            };
            assert_eq!(
                learned(&before),
                learned(&after),
                "a result of an older epoch changes nothing"
            );
        }
        let changed = after.rate < before.rate || after.breaker != before.breaker;
        assert!(
            !changed || checked.gate.epoch() != epoch,
            "every decrease or trip starts an epoch"
        );
    }

    fn abandon(&mut self, which: usize) {
        let Some(permit) = self.take_permit(which) else {
            return;
        };
        self.gates[which]
            .gate
            .abandon(&self.settings, permit, self.now);
    }

    /// Returns a permit unused; saved tokens stay within their bound.
    fn give_back(&mut self, which: usize) {
        let Some(permit) = self.take_permit(which) else {
            return;
        };
        let checked = &mut self.gates[which];
        checked.gate.give_back(&self.settings, permit, self.now);
        checked.expected_tokens.give_back(1.0, self.now);
    }

    fn cancel(&mut self, which: usize) {
        let checked = &mut self.gates[which];
        let Some((&ticket, _)) = checked.waiting.iter().next() else {
            return;
        };
        assert!(checked.gate.cancel(&mut self.tickets, ticket));
        assert!(!checked.gate.cancel(&mut self.tickets, ticket));
        checked.waiting.remove(&ticket);
    }

    /// Leaks a permit: it is neither settled nor abandoned, and stays in flight.
    fn lose(&mut self, which: usize) {
        let under_way = &mut self.gates[which].under_way;
        if !under_way.is_empty() {
            let _leaked = under_way.swap_remove(0);
        }
    }

    fn interfere(&mut self, which: usize) {
        let checked = &mut self.gates[which];
        match self.random.below(3) {
            0 => checked.gate.release(&self.settings, self.now),
            1 => checked.gate.reset(&self.settings, self.now),
            _ => {
                checked.gate.isolate(&self.settings, self.now);
                assert_eq!(
                    checked.gate.next_admission(&self.settings, &self.tickets),
                    None
                );
                checked.gate.release(&self.settings, self.now);
            }
        }
        checked.directed_until = Timestamp::ZERO;
        // A reset refills the bucket.
        checked.expected_tokens =
            ExpectedTokens::full(&checked.gate, &self.settings, self.burst, self.now);
    }

    fn expire(&mut self, which: usize) {
        let checked = &mut self.gates[which];
        let open = checked.gate.breaker_state(self.now) == BreakerState::Open;
        let held = checked.gate.hold_until(self.now).unwrap_or(self.now);
        while let Some(ticket) = checked.gate.expire_next(&mut self.tickets, self.now) {
            let waiter = checked
                .waiting
                .remove(&ticket)
                .expect("only tickets in line expire");
            assert!(
                waiter.deadline <= held || open,
                "no ticket expires before its deadline"
            );
        }
    }

    fn take_permit(&mut self, which: usize) -> Option<Permit> {
        let count = self.gates[which].under_way.len();
        if count == 0 {
            return None;
        }
        let some = self.pick(count);
        let checked = &mut self.gates[which];
        let (permit, stay) = checked.under_way.swap_remove(some);
        if permit.is_probe() && stay == checked.probes.stay {
            checked.probes.out -= 1;
        }
        Some(permit)
    }

    fn check(&mut self, which: usize) {
        let checked = &mut self.gates[which];
        checked.look(&self.settings, self.burst, self.now);
        let snapshot = checked
            .gate
            .snapshot(&self.settings, &self.tickets, self.now);
        let (min, max) = self.settings.rate_bounds();
        assert!(
            snapshot.rate >= min && snapshot.rate <= max,
            "{}",
            snapshot.rate
        );
        assert_eq!(snapshot.waiting as usize, checked.waiting.len());
        if checked.directed_until > self.now {
            assert!(
                snapshot.hold.unwrap().0 >= checked.directed_until,
                "sent before Retry-After ended"
            );
        }
    }

    /// No ticket waits forever while the gate admits: once responses succeed again every line
    /// empties, whatever was leaked, unless all of `max_in_flight` was.
    fn check_line_empties(&mut self, which: usize) {
        self.gates[which].gate.release(&self.settings, self.now);
        self.gates[which].directed_until = Timestamp::ZERO;
        loop {
            while let Some(permit) = self.take_permit(which) {
                let fine = Outcome::status(200, Duration::from_millis(50));
                let gate = &mut self.gates[which].gate;
                gate.settle(
                    &self.settings,
                    permit,
                    &fine,
                    Some(Verdict::Success),
                    self.now,
                );
                self.check(which);
            }
            let gate = &self.gates[which].gate;
            let Some(due) = gate.next_admission(&self.settings, &self.tickets) else {
                break;
            };
            self.admit_due(which, due);
            self.now = self.now.max(due);
        }
        let CheckedGate { gate, waiting, .. } = &self.gates[which];
        assert!(
            waiting.is_empty() || gate.in_flight() >= MIN_IN_FLIGHT,
            "{} wait",
            waiting.len()
        );
    }
}

impl CheckedGate {
    fn new(settings: &GateSettings, burst: f64, now: Timestamp) -> Self {
        let gate = Gate::new(settings, now);
        let expected_tokens = ExpectedTokens::full(&gate, settings, burst, now);
        Self {
            gate,
            under_way: Vec::new(),
            waiting: BTreeMap::new(),
            joined: 0,
            directed_until: Timestamp::ZERO,
            expected_tokens,
            probes: Probes::default(),
        }
    }

    fn admitted(&mut self, settings: &GateSettings, permit: Permit, cost: u32, now: Timestamp) {
        assert!(
            self.directed_until <= now,
            "sent before a directed hold ended"
        );
        assert_ne!(self.gate.breaker_state(now), BreakerState::Open);
        self.expected_tokens.take(f64::from(cost), now);
        if permit.is_probe() {
            if now.since(self.probes.last) >= MIN_PROBE_LOST_AFTER {
                self.probes.end_stay();
            }
            self.probes.out += 1;
            self.probes.last = now;
            let most = u32::from(settings.breaker().half_open_probes);
            assert!(
                self.probes.out <= most,
                "{} probes at once",
                self.probes.out
            );
        }
        self.under_way.push((permit, self.probes.stay));
    }

    fn left_line(&mut self, ticket: Ticket) {
        let waiter = self
            .waiting
            .remove(&ticket)
            .expect("only tickets in line leave");
        let overtook = |other: &Waiter| other.class == waiter.class && other.number < waiter.number;
        assert!(
            !self.waiting.values().any(overtook),
            "waiters of a class leave in order"
        );
    }

    /// Updates the expected state after an event.
    fn look(&mut self, settings: &GateSettings, burst: f64, now: Timestamp) {
        if self.gate.breaker_state(now) != BreakerState::HalfOpen {
            self.probes.end_stay();
        }
        self.expected_tokens.look(&self.gate, settings, burst, now);
    }
}

impl Probes {
    fn end_stay(&mut self) {
        self.stay += 1;
        self.out = 0;
    }
}

impl ExpectedTokens {
    fn full(gate: &Gate, settings: &GateSettings, burst: f64, now: Timestamp) -> Self {
        let capacity = capacity(gate, settings, burst, now);
        Self {
            tokens: capacity,
            at: now,
            rate: gate.rate(),
            capacity,
            pause: None,
        }
    }

    fn take(&mut self, cost: f64, now: Timestamp) {
        self.refill(now);
        self.tokens -= cost;
        assert!(
            self.tokens >= -1e-6,
            "more than rate·t + burst: {}",
            self.tokens
        );
    }

    fn give_back(&mut self, cost: f64, now: Timestamp) {
        self.refill(now);
        self.tokens = (self.tokens + cost).min(self.capacity.max(self.tokens));
    }

    fn refill(&mut self, now: Timestamp) {
        if let Some((end, keep)) = self.pause.filter(|(end, _)| *end <= now) {
            self.fill(end);
            self.tokens = self.tokens.min(keep);
            self.pause = None;
        }
        self.fill(now);
    }

    fn fill(&mut self, now: Timestamp) {
        let came = now.seconds_since(self.at) * self.rate;
        self.tokens = (self.tokens + came).min(self.capacity.max(self.tokens));
        self.at = self.at.max(now);
    }

    fn look(&mut self, gate: &Gate, settings: &GateSettings, burst: f64, now: Timestamp) {
        self.refill(now);
        self.rate = gate.rate();
        self.capacity = capacity(gate, settings, burst, now);
        self.tokens = self.tokens.min(self.capacity);
        // The end of an open breaker is not visible if a hold outlasts it; the end of the hold
        // applies then.
        if let Some(until) = gate.hold_until(now) {
            self.pause = Some((until, self.pause_keep(gate, settings, now)));
        }
    }

    fn pause_keep(&self, gate: &Gate, settings: &GateSettings, now: Timestamp) -> f64 {
        match gate.breaker_state(now) {
            BreakerState::Open => f64::from(settings.breaker().half_open_probes),
            BreakerState::Closed | BreakerState::HalfOpen | BreakerState::Isolated => 1.0,
        }
    }
}

/// The maximum number of saved tokens: the burst, and while not Closed a token per probe.
fn capacity(gate: &Gate, settings: &GateSettings, burst: f64, now: Timestamp) -> f64 {
    let burst = match settings.strategy() {
        Strategy::Aimd => burst.min(2.0 * gate.rate()).max(1.0),
        Strategy::Adaptive | Strategy::Fixed => 1.0 + 0.002 * gate.rate(),
    };
    match gate.breaker_state(now) {
        BreakerState::Closed => burst,
        BreakerState::Open | BreakerState::HalfOpen | BreakerState::Isolated => {
            burst.max(f64::from(settings.breaker().half_open_probes))
        }
    }
}

const MIN_IN_FLIGHT: u32 = 3;

fn random_settings(random: &mut Random) -> (GateSettings, f64) {
    let mut options = GateOptions::default();
    let mut set = |name: &str, value: String| options.set(name, &value).unwrap();
    let strategy = ["adaptive", "aimd", "fixed"][usize::try_from(random.below(3)).unwrap()];
    set("strategy", strategy.to_owned());
    let initial = [0.3, 2.0, 10.0, 333.3][usize::try_from(random.below(4)).unwrap()];
    set("initial_rate", initial.to_string());
    set(
        "max_in_flight",
        (u64::from(MIN_IN_FLIGHT) + random.below(60)).to_string(),
    );
    set("max_waiting", (1 + random.below(60)).to_string());
    set("half_open_probes", (1 + random.below(4)).to_string());
    set("consecutive_failures", (1 + random.below(6)).to_string());
    set("open_for", format!("{}s", 1 + random.below(30)));
    let burst = f64::from(u32::try_from(1 + random.below(8)).unwrap());
    set("burst", burst.to_string());
    if random.below(3) == 0 {
        set("limits", format!("{}/10s", 5 + random.below(100)));
    }
    (options.build().unwrap(), burst)
}

fn random_outcome(random: &mut Random) -> (Outcome, Option<Verdict>) {
    let latency = Duration::from_millis(random.below(3000));
    let plain = |status| Outcome::status(status, latency);
    let waits = [0, 1, 1000, 20_000, 100_000_000];
    let wait = Duration::from_millis(waits[usize::try_from(random.below(5)).unwrap()]);
    let hint = Hint {
        wait: Some(wait),
        source: Some(Source::RetryAfter),
        ..Hint::default()
    };
    let left = Hint {
        remaining: Some(random.below(5)),
        reset: Some(Duration::from_secs(random.below(20))),
        ..Hint::default()
    };
    match random.below(16) {
        0..6 => (plain(200), Some(Verdict::Success)),
        6 => (plain(200).with_hint(left), Some(Verdict::Success)),
        7 => (plain(429), Some(Verdict::Throttled)),
        8 => (plain(429).with_hint(hint), Some(Verdict::Throttled)),
        9 => (plain(503), Some(Verdict::Overloaded)),
        10 => (plain(500), Some(Verdict::Overloaded)),
        11 => (plain(502).with_hint(hint), Some(Verdict::Overloaded)),
        12 => (
            Outcome::failure(Failure::Timeout, Phase::Waiting, latency),
            Some(Verdict::Unreachable),
        ),
        13 => (plain(404), Some(Verdict::Rejected)),
        14 => (plain(409), Some(Verdict::Conflict)),
        _ => (plain(101), None),
    }
}
