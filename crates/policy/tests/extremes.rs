//! Extreme inputs: the first and last timestamp, zero and maximal waits, latencies, costs and
//! settings. None may panic, overflow, grant a permit without a token, or wait without end.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use proptest::prelude::*;
use tidegate_policy::breaker::{BreakerRecord, BreakerState};
use tidegate_policy::gate::{
    Ask, CostRecord, CostSnapshot, Decision, Gate, GateOptions, GateRecord, GateSettings, Permit,
};
use tidegate_policy::hint::{Hint, Source};
use tidegate_policy::line::{Class, Tickets};
use tidegate_policy::outcome::{Failure, Outcome, Phase, UpstreamResponse, Verdict};
use tidegate_policy::time::Timestamp;

fn instant() -> impl Strategy<Value = Timestamp> {
    prop_oneof![
        Just(Timestamp::ZERO),
        Just(Timestamp::MAX),
        any::<u64>().prop_map(Timestamp::from_nanos),
        (0u64..1000).prop_map(Timestamp::from_millis),
    ]
}

fn span() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(Duration::ZERO),
        Just(Duration::MAX),
        Just(Duration::from_nanos(1)),
        any::<u64>().prop_map(Duration::from_nanos),
        (0u64..5000).prop_map(Duration::from_millis),
    ]
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let answer = prop_oneof![
        any::<u16>().prop_map(UpstreamResponse::Status),
        Just(UpstreamResponse::Failed {
            failure: Failure::Timeout,
            phase: Phase::Receiving
        }),
    ];
    let hint = (
        prop::option::of(span()),
        prop::option::of(any::<u64>()),
        prop::option::of(span()),
    )
        .prop_map(|(wait, remaining, reset)| {
            let source = wait.map(|_| Source::RetryAfter);
            Hint {
                wait,
                remaining,
                reset,
                source,
                ..Hint::default()
            }
        });
    (answer, span(), hint, prop::option::of(any::<u32>())).prop_map(
        |(answer, latency, hint, used)| Outcome {
            response: answer,
            latency,
            hint,
            used,
        },
    )
}

fn settings() -> impl Strategy<Value = GateSettings> {
    let rate = prop_oneof![Just("0.000001"), Just("1e9"), Just("2"), Just("333.333")];
    let limits = prop_oneof![
        Just(""),
        Just("1/1ns"),
        Just("4294967295/1d"),
        Just("3/200000d,1/1s")
    ];
    let span = prop_oneof![Just("0s"), Just("1ns"), Just("1s"), Just("200000d")];
    let strategy = prop_oneof![Just("adaptive"), Just("aimd"), Just("fixed")];
    (strategy, rate, limits, span.clone(), span, 1u32..4).prop_map(
        |(strategy, rate, limits, max_wait, max_hold, small)| {
            let mut options = GateOptions::default();
            let small = small.to_string();
            for (name, value) in [
                ("strategy", strategy),
                ("initial_rate", rate),
                ("limits", limits),
                ("max_wait", max_wait),
                ("max_hold", max_hold),
                ("max_in_flight", &small),
                ("max_waiting", &small),
                ("half_open_probes", &small),
                ("consecutive_failures", &small),
            ] {
                options.set(name, value).unwrap();
            }
            options.build().unwrap()
        },
    )
}

#[derive(Clone, Debug)]
enum Step {
    Ask {
        cost: u32,
        deadline: Timestamp,
        background: bool,
        waits_for_breaker: bool,
    },
    Settle(Outcome, Option<usize>),
    Pump,
    Person(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (any::<u32>(), instant(), any::<bool>(), any::<bool>()).prop_map(
            |(cost, deadline, background, waits_for_breaker)| Step::Ask { cost, deadline, background, waits_for_breaker }),
        3 => (outcome(), prop::option::of(0usize..8)).prop_map(|(o, v)| Step::Settle(o, v)),
        2 => Just(Step::Pump),
        1 => (0u8..5).prop_map(Step::Person),
    ]
}

proptest! {
    #[test]
    fn never_panics_for_any_events_at_any_times(
        settings in settings(),
        start in instant(),
        steps in prop::collection::vec((instant(), step()), 1..80),
    ) {
        let mut gate = Gate::new(&settings, start);
        let mut tickets = Tickets::new();
        let mut permits: Vec<Permit> = Vec::new();
        for (now, step) in steps {
            match step {
                Step::Ask { cost, deadline, background, waits_for_breaker } => {
                    let class = if background { Class::Background } else { Class::Interactive };
                    let ask = Ask { cost, deadline, class, waits_for_breaker };
                    match gate.acquire(&settings, &mut tickets, &ask, now) {
                        Decision::Admit(permit) => permits.push(permit),
                        Decision::Wait { .. } => prop_assert!(deadline > now),
                        Decision::Refuse { .. } => {}
                    }
                }
                Step::Settle(outcome, verdict) => if let Some(permit) = permits.pop() {
                    let verdict = verdict.map(|index| Verdict::ALL[index]);
                    gate.settle(&settings, permit, &outcome, verdict, now);
                },
                Step::Pump => pump(&mut gate, &settings, &mut tickets, &mut permits, now),
                Step::Person(0) => gate.isolate(&settings, now),
                Step::Person(1) => gate.release(&settings, now),
                Step::Person(2) => gate.reset(&settings, now),
                Step::Person(3) => if let Some(permit) = permits.pop() {
                    gate.abandon(&settings, permit, now);
                },
                Step::Person(_) => {
                    let record = gate.record(now);
                    let _ = Gate::restore(&settings, &record, now);
                }
            }
            let (min, max) = settings.rate_bounds();
            let snapshot = gate.snapshot(&settings, &tickets, now);
            prop_assert!(snapshot.rate >= min && snapshot.rate <= max);
            prop_assert!(snapshot.tokens.is_finite());
            let cost_is_sane = |cost: CostSnapshot| {
                cost.rate > 0.0 && cost.rate.is_finite() && cost.available.is_finite()
            };
            prop_assert!(snapshot.cost.is_none_or(cost_is_sane), "{:?}", snapshot.cost);
            prop_assert!((0.0..=1.0).contains(&snapshot.window.error_rate()));
        }
        // Every line empties, if only by its deadlines.
        while gate.expire_next(&mut tickets, Timestamp::MAX).is_some() {}
        prop_assert_eq!(gate.waiting(&tickets), 0);
    }

    #[test]
    fn any_record_can_be_restored(rate in any::<f64>(), ceiling in any::<Option<f64>>(), mean in any::<f64>(), hold in prop::option::of(span()), open_for in span(), openings in any::<u8>(), state in 0usize..4) {
        let state = [BreakerState::Closed, BreakerState::Open, BreakerState::HalfOpen, BreakerState::Isolated][state];
        let breaker = BreakerRecord { state, open_for, openings };
        let cost = Some(CostRecord { rate, ceiling, mean });
        let record = GateRecord { rate, ceiling, banned_above: ceiling, hold, hold_source: None, breaker, cost };
        let settings = GateSettings::default();
        let gate = Gate::restore(&settings, &record, Timestamp::from_secs(5));
        let (min, max) = settings.rate_bounds();
        prop_assert!(gate.rate() >= min && gate.rate() <= max);
        let snapshot = gate.snapshot(&settings, &Tickets::new(), Timestamp::from_secs(5));
        prop_assert!(snapshot.cost.is_none_or(|cost| cost.rate > 0.0 && cost.available.is_finite()));
    }

    #[test]
    fn any_setting_text_is_accepted_or_refused_with_a_reason(name in "[a-z_]{0,20}", value in "\\PC{0,40}", known in 0usize..28) {
        let mut options = GateOptions::default();
        for name in [name.as_str(), GateOptions::NAMES[known]] {
            match options.set(name, &value) {
                Ok(()) => {}
                Err(error) => prop_assert!(error.to_string().contains("expected")),
            }
        }
        let _ = options.build();
    }
}

fn pump(
    gate: &mut Gate,
    settings: &GateSettings,
    tickets: &mut Tickets,
    permits: &mut Vec<Permit>,
    now: Timestamp,
) {
    let mut admitted = 0;
    while let Some((_, permit)) = gate.admit_next(settings, tickets, now) {
        permits.push(permit);
        admitted += 1;
        assert!(admitted <= 100, "more leave than ever waited");
    }
    let _ = gate.next_wake(settings, tickets, now);
    while gate.expire_next(tickets, now).is_some() {}
}
