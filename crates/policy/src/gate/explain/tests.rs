//! Each state of a gate gives one sentence.

use std::time::Duration;

use super::*;
use crate::gate::{CostSnapshot, Gate, GateOptions, GateSettings};
use crate::line::Tickets;

/// A gate of `adaptive` at 48.53/s that has settled.
fn snapshot() -> GateSnapshot {
    let (settings, now) = (GateSettings::default(), Timestamp::from_secs(100));
    GateSnapshot {
        rate: 48.53,
        why: Why::FastAnswers,
        succeeded: 1000,
        throttled: 3,
        learned: Some(learned(Phase::Staying)),
        ..Gate::new(&settings, now).snapshot(&settings, &Tickets::new(), now)
    }
}

fn learned(phase: Phase) -> RateView {
    RateView {
        phase,
        ceiling: Some(50.0),
        source: Some(CeilingSource::Measured),
        probes_at: None,
        is_shared: false,
        period: None,
        banned_above: None,
    }
}

fn settings(settings: &[(&str, &str)]) -> GateSettings {
    let mut options = GateOptions::default();
    for (name, value) in settings {
        options.set(name, value).unwrap();
    }
    options.build().unwrap()
}

fn check(snapshot: GateSnapshot, sentence: &str) {
    assert_eq!(snapshot.to_string(), sentence);
}

fn check_learned(rate: f64, learned: RateView, sentence: &str) {
    let learned = Some(learned);
    check(
        GateSnapshot {
            rate,
            learned,
            ..snapshot()
        },
        sentence,
    );
}

#[test]
fn names_phase_and_limit() {
    check_learned(
        34.0,
        learned(Phase::Rising),
        "rising from 34/s to a limit of 50/s measured between two refusals",
    );
    check_learned(
        48.53,
        learned(Phase::Staying),
        "staying at 48.5/s, just below a limit of 50/s measured between two refusals",
    );
    check_learned(
        50.0,
        learned(Phase::Staying),
        "staying at 50/s, at a limit of 50/s measured between two refusals",
    );
    check_learned(
        52.0,
        learned(Phase::Probing),
        "trying 52/s, in case there is room above a limit of 50/s measured between two refusals",
    );
    let searching = RateView {
        ceiling: None,
        source: None,
        ..learned(Phase::Searching)
    };
    check_learned(
        8.0,
        searching,
        "searching from 8/s upwards: more is accepted than before",
    );
    check(
        GateSnapshot {
            rate: 8.0,
            throttled: 0,
            learned: Some(searching),
            ..snapshot()
        },
        "searching from 8/s upwards: nothing was refused yet",
    );
}

#[test]
fn names_how_the_limit_was_learned() {
    let check = |source: Option<CeilingSource>, words: &str| {
        let learned = RateView {
            source,
            ..learned(Phase::Rising)
        };
        let sentence = format!("rising from 34/s to a limit of 50/s{words}");
        check_learned(34.0, learned, &sentence);
    };
    check(None, "");
    check(
        Some(CeilingSource::Estimated),
        " estimated from one refusal",
    );
    check(
        Some(CeilingSource::Confirmed),
        " confirmed without a refusal",
    );
    check(
        Some(CeilingSource::Latency),
        ", above which responses became slow",
    );
    check(
        Some(CeilingSource::Window),
        " counted until the server refused everything",
    );
    check(
        Some(CeilingSource::Ban),
        ", because the server banned this client",
    );
    check(
        Some(CeilingSource::Recovery),
        ", the rate before the breaker opened",
    );
    check(Some(CeilingSource::Restored), " learned before a restart");
}

#[test]
fn names_the_next_probe() {
    let check = |at: u64, words: &str| {
        let learned = RateView {
            probes_at: Some(Timestamp::from_secs(at)),
            ..learned(Phase::Staying)
        };
        let sentence = format!(
            "staying at 48.5/s, just below a limit of 50/s measured between two refusals; {words}"
        );
        check_learned(48.53, learned, &sentence);
    };
    check(104, "tries more in 4s");
    check(190, "tries more in 1m 30s");
    check(100, "tries more next");
    check(1, "tries more next");
}

#[test]
fn names_windows_shares_and_bans() {
    check_learned(
        9.8,
        RateView {
            ceiling: Some(10.0),
            source: Some(CeilingSource::Window),
            period: Some(Duration::from_secs(60)),
            ..learned(Phase::Staying)
        },
        "staying at 9.8/s, just below a limit of 10/s counted until the server refused everything, \
         in windows of 1m",
    );
    check_learned(
        12.0,
        RateView {
            ceiling: Some(12.4),
            is_shared: true,
            probes_at: Some(Timestamp::from_secs(103)),
            ..learned(Phase::Staying)
        },
        "others use this limit too: staying at 12/s, just below a share of 12.4/s measured between \
         two refusals; tries more in 3s",
    );
    let banned = RateView {
        banned_above: Some(12.5),
        ..learned(Phase::Staying)
    };
    check_learned(
        12.0,
        banned,
        "staying at 12/s, at most 12.5/s until the gate is reset, because the server banned this \
         client",
    );
    let banned = RateView {
        phase: Phase::Rising,
        ..banned
    };
    check_learned(
        6.0,
        banned,
        "rising from 6/s, at most 12.5/s until the gate is reset, because the server banned this \
         client",
    );
}

#[test]
fn breaker_and_hold_come_before_the_rate() {
    let until = Timestamp::from_secs(130);
    let open = GateSnapshot {
        breaker: BreakerState::Open,
        breaker_until: Some(Timestamp::from_secs(103)),
        consecutive_failures: 5,
        hold: Some((until, Source::RetryAfter)),
        ..snapshot()
    };
    check(open, "open: the last 5 attempts failed; probes in 3s");
    let by_share = GateSnapshot {
        consecutive_failures: 0,
        ..open
    };
    check(by_share, "open: too many attempts failed; probes in 3s");
    let in_state = |breaker| GateSnapshot { breaker, ..open };
    check(
        in_state(BreakerState::HalfOpen),
        "half-open: probes show whether the upstream works again",
    );
    check(
        in_state(BreakerState::Isolated),
        "isolated: refuses everything until it is released or reset",
    );
    let held = |source| GateSnapshot {
        hold: Some((until, source)),
        ..snapshot()
    };
    let rate = "staying at 48.5/s, just below a limit of 50/s measured between two refusals";
    for (source, wait) in [
        (
            Source::RetryAfter,
            "waits 30s, as the server asked in `retry-after`",
        ),
        (Source::Body, "waits 30s, as the server asked"),
        (Source::Assumed, "waits 30s, because the server refuses"),
        (
            Source::Counted,
            "waits 30s for the next window, as this one has accepted its number",
        ),
    ] {
        check(held(source), &format!("{wait}; then {rate}"));
    }
    let off = GateSnapshot {
        is_enabled: false,
        ..open
    };
    check(off, "switched off: every request is admitted at once");
}

#[test]
fn names_bounds_headers_and_costs() {
    let at_max = GateSnapshot {
        max_rate: 48.53,
        ..snapshot()
    };
    check(at_max, "staying at 48.5/s, the configured maximum");
    let spread = GateSnapshot {
        rate: 2.5,
        why: Why::NearlyUsedUp,
        ..snapshot()
    };
    check(
        spread,
        "slowed to 2.5/s: the server says that few requests remain",
    );
    let restored = GateSnapshot {
        why: Why::Restored,
        ..snapshot()
    };
    check(
        restored,
        "continuing at 48.5/s with a limit of 50/s, as learned before a restart",
    );
    let cost = CostSnapshot {
        rate: 1500.0,
        ceiling: None,
        available: 0.0,
        mean: 800.0,
    };
    let costly = GateSnapshot {
        cost: Some(cost),
        ..snapshot()
    };
    check(
        costly,
        "staying at 48.5/s, just below a limit of 50/s measured between two refusals; cost stays at \
         or below 1500/s",
    );
}

#[test]
fn other_strategies_and_new_gates_have_a_sentence_too() {
    let now = Timestamp::from_secs(100);
    let new =
        |settings: &GateSettings| Gate::new(settings, now).snapshot(settings, &Tickets::new(), now);
    check(
        new(&GateSettings::default()),
        "starting at 2/s: nothing was answered yet",
    );
    let aimd = GateSnapshot {
        why: Why::Throttled,
        throttled: 1,
        rate: 1.125,
        ..new(&settings(&[("strategy", "aimd")]))
    };
    check(aimd, "at 1.12/s, lowered: the server refused");
    let at_max = GateSnapshot { rate: 8.0, ..aimd };
    check(at_max, "staying at 8/s, the configured maximum");
    check(
        new(&settings(&[
            ("strategy", "fixed"),
            ("initial_rate", "0.35"),
        ])),
        "staying at 0.35/s, a fixed rate",
    );
}

#[test]
fn rates_have_three_digits() {
    let check = |rate: f64, text: &str| assert_eq!(PerSecond(rate).to_string(), text);
    check(0.0, "0/s");
    check(0.1, "0.1/s");
    check(0.3456, "0.346/s");
    check(2.0, "2/s");
    check(9.996, "10/s");
    check(48.53, "48.5/s");
    check(99.97, "100/s");
    check(133.7, "134/s");
    check(10_000.0, "10000/s");
}
