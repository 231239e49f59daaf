//! Operations of a person and of the gate's owner: override, evict, record, snapshot.

use super::*;

#[test]
fn isolated_gate_refuses_until_released() {
    let mut bench = Bench::aimd(&[]);
    let in_flight = bench.permit(0.0);
    bench.gate.isolate(&bench.settings, at(1.0));
    bench.succeed(in_flight, 2.0);
    assert_eq!(bench.decide(3.0), "refuse breaker_open -");
    assert!(!bench.gate.is_evictable(at(3.0)));
    bench.gate.release(&bench.settings, at(4.0));
    assert_eq!(bench.decide(4.0), "admit");
    assert_eq!(bench.decide(4.0), "wait rate 4.5", "released, but at pace");
}

#[test]
fn release_ends_a_hold() {
    let mut bench = Bench::aimd(&[]);
    bench.throttle(0.0, 1_000_000);
    bench.gate.release(&bench.settings, at(5.0));
    assert_eq!(bench.gate.rate(), 1.0, "what was learned stays");
    assert_eq!(bench.decide(5.0), "admit");
}

#[test]
fn reset_keeps_attempts_in_flight_and_waiting_asks() {
    let mut bench = Bench::aimd(&[("burst", "1"), ("limits", "2/1h"), ("max_wait", "2h")]);
    let permit = bench.permit(0.0);
    let other = bench.permit(0.5);
    bench.decide(0.5);
    bench.gate.reset(&bench.settings, at(0.6));
    assert_eq!(
        (bench.gate.in_flight(), bench.gate.waiting(&bench.tickets)),
        (2, 1)
    );
    bench.fail(permit, 0.7);
    assert_eq!(
        bench.gate.rate(),
        2.0,
        "an outcome from before the reset teaches nothing"
    );
    bench.gate.abandon(&bench.settings, other, at(0.7));
    let snapshot = bench
        .gate
        .snapshot(&bench.settings, &bench.tickets, at(0.7));
    assert_eq!(snapshot.admitted, 2);
    assert_eq!(
        bench.admitted_by(9.0),
        [] as [f64; 0],
        "a reset keeps known limits"
    );
}

#[test]
fn busy_held_or_open_gate_is_not_evictable() {
    let mut bench = Bench::aimd(&[]);
    let permit = bench.permit(0.0);
    assert!(!bench.gate.is_idle(&bench.settings, at(1e6)), "in flight");
    bench.settle(permit, 0.0, &directed(429, 3600), Verdict::Throttled);
    assert!(!bench.gate.is_idle(&bench.settings, at(120.0)), "held");
    assert!(bench.gate.is_idle(&bench.settings, at(3600.0)));
    assert!(bench.gate.is_evictable(at(3600.0)));
    let mut bench = Bench::aimd(&[]);
    bench.trip();
    assert!(
        !bench.gate.is_idle(&bench.settings, at(1e6)),
        "HalfOpen is not Closed"
    );
    let mut bench = Bench::aimd(&[]);
    let permit = bench.permit(0.0);
    bench.succeed(permit, 0.0);
    assert!(!bench.gate.is_idle(&bench.settings, at(119.9)));
    assert!(bench.gate.is_idle(&bench.settings, at(120.0)));
}

#[test]
fn record_and_restore_preserve_learned_state() {
    let mut bench = Bench::aimd(&[]);
    bench.trip();
    let record = bench.gate.record(at(21.0));
    let later = 1000.0;
    bench.gate = Gate::restore(&bench.settings, &record, at(later));
    assert_eq!(bench.gate.rate(), 0.25);
    assert_eq!(bench.decide(later), "refuse breaker_open 1014");

    let mut bench = Bench::aimd(&[]);
    bench.throttle(0.0, 60);
    let record = bench.gate.record(at(10.0));
    bench.gate = Gate::restore(&bench.settings, &record, at(later));
    assert_eq!(bench.gate.hold_until(at(later)), Some(at(later + 50.0)));
    let snapshot = bench
        .gate
        .snapshot(&bench.settings, &bench.tickets, at(later));
    assert_eq!(snapshot.hold, Some((at(later + 50.0), Source::RetryAfter)));

    let mad = GateRecord {
        rate: f64::NAN,
        ceiling: Some(f64::INFINITY),
        banned_above: None,
        ..record
    };
    assert_eq!(Gate::restore(&bench.settings, &mad, at(0.0)).rate(), 2.0);
    let fast = GateRecord {
        rate: 1e12,
        ..record
    };
    assert_eq!(Gate::restore(&bench.settings, &fast, at(0.0)).rate(), 8.0);
}

#[test]
fn snapshot_shows_the_state() {
    let mut bench = Bench::aimd(&[("burst", "1")]);
    let permit = bench.permit(0.0);
    bench.decide(0.0);
    let failure = Outcome::failure(
        Failure::Connect,
        Phase::Connecting,
        Duration::from_millis(5),
    );
    bench.settle(permit, 0.25, &failure, Verdict::Unreachable);
    let snapshot = bench
        .gate
        .snapshot(&bench.settings, &bench.tickets, at(0.25));
    assert_eq!(
        (snapshot.in_flight, snapshot.waiting, snapshot.admitted),
        (0, 1, 1)
    );
    assert_eq!(
        (snapshot.succeeded, snapshot.throttled, snapshot.failed),
        (0, 0, 1)
    );
    assert_eq!(
        (
            snapshot.rate,
            snapshot.tokens,
            snapshot.consecutive_failures
        ),
        (1.0, 0.5, 1)
    );
    assert_eq!(
        (snapshot.breaker, snapshot.breaker_until),
        (BreakerState::Closed, None)
    );
    assert_eq!((snapshot.latency_p95, snapshot.window.failed), (None, 1));
    assert_eq!(
        snapshot.why.to_string(),
        "lowered: the server failed or could not be reached"
    );
}

#[test]
fn probe_from_before_a_reset_returns_no_slot() {
    let mut bench = Bench::aimd(&[("half_open_probes", "1"), ("consecutive_failures", "1")]);
    let trip = |bench: &mut Bench, seconds: f64| {
        let permit = bench.permit(seconds);
        bench.fail(permit, seconds);
        bench.permit(seconds + 20.0)
    };
    let before = trip(&mut bench, 0.0);
    bench.gate.reset(&bench.settings, at(30.0));
    let _after = trip(&mut bench, 40.0);
    bench.gate.abandon(&bench.settings, before, at(64.0));
    assert_eq!(bench.decide(64.0), "refuse breaker_open -");
}

#[test]
fn giving_back_returns_token_and_slot() {
    let mut bench = Bench::aimd(&[("burst", "1"), ("limits", "1/1h"), ("max_wait", "2h")]);
    let permit = bench.permit(0.0);
    assert_eq!(bench.decide(0.0), "wait rate 3600");
    bench.gate.give_back(&bench.settings, permit, at(0.0));
    assert_eq!(bench.gate.in_flight(), 0);
    assert_eq!(
        bench.admitted_by(0.0),
        [0.0],
        "the ticket in line has the returned permit"
    );
    let permit = Bench::new(&[]).permit(0.0);
    let mut bench = Bench::new(&[]);
    bench.gate.give_back(&bench.settings, permit, at(0.0));
    let tokens = bench
        .gate
        .snapshot(&bench.settings, &bench.tickets, at(0.0))
        .tokens;
    assert_eq!(tokens, 1.004, "no more than the burst");
}

#[test]
fn abandoning_does_not_return_the_token() {
    let mut bench = Bench::aimd(&[("burst", "1")]);
    let permit = bench.permit(0.0);
    bench.gate.abandon(&bench.settings, permit, at(0.0));
    assert_eq!(bench.decide(0.0), "wait rate 0.5");
}

#[test]
fn giving_back_a_probe_frees_its_slot() {
    let mut bench = Bench::aimd(&[("half_open_probes", "1"), ("consecutive_failures", "1")]);
    let permit = bench.permit(0.0);
    bench.fail(permit, 0.0);
    let probe = bench.permit(20.0);
    assert_eq!(bench.decide(20.0), "refuse breaker_open -");
    bench.gate.give_back(&bench.settings, probe, at(20.0));
    assert_eq!(bench.decide(20.0), "admit");
}

#[test]
fn disabled_gate_returns_no_token() {
    let mut bench = Bench::aimd(&[("enabled", "false"), ("burst", "4")]);
    let permit = bench.permit(0.0);
    bench.gate.give_back(&bench.settings, permit, at(0.0));
    let snapshot = bench
        .gate
        .snapshot(&bench.settings, &bench.tickets, at(0.0));
    assert_eq!((snapshot.tokens, snapshot.in_flight), (4.0, 0));
}

/// Continues the gate with other settings.
fn adopt(bench: &mut Bench, settings: &[(&str, &str)], seconds: f64) {
    let new = settings_of(settings);
    bench.gate.adopt(&bench.settings, &new, at(seconds));
    bench.settings = new;
}

#[test]
fn new_settings_clamp_the_rate() {
    let why = |bench: &Bench| {
        bench
            .gate
            .snapshot(&bench.settings, &bench.tickets, at(1.0))
            .why
    };
    let mut bench = Bench::aimd(&[("burst", "4")]);
    let in_flight = bench.permit(0.0);
    adopt(&mut bench, &[("strategy", "aimd"), ("max_wait", "5s")], 1.0);
    assert_eq!(
        (bench.gate.rate(), bench.gate.epoch(), why(&bench)),
        (2.0, 0, Why::Initial),
        "a rate that does not change keeps its epoch"
    );
    adopt(&mut bench, &[("strategy", "aimd"), ("max_rate", "1")], 1.0);
    assert_eq!((bench.gate.rate(), why(&bench)), (1.0, Why::Settings));
    let tokens = bench
        .gate
        .snapshot(&bench.settings, &bench.tickets, at(1.0))
        .tokens;
    assert_eq!(tokens, 2.0, "cut to the new burst");
    bench.fail(in_flight, 1.0);
    assert_eq!(bench.gate.rate(), 1.0, "of the old rate: teaches nothing");
    adopt(&mut bench, &[("min_rate", "3")], 2.0);
    assert_eq!(bench.gate.rate(), 3.0);
    let fixed = [("strategy", "fixed"), ("initial_rate", "7")];
    adopt(&mut bench, &fixed, 3.0);
    assert_eq!(bench.gate.rate(), 7.0);
    assert_eq!(why(&bench).to_string(), "limited by new settings");
}

#[test]
fn new_settings_preserve_the_order_of_the_line() {
    let mut bench = Bench::aimd(&[("burst", "1")]);
    let _in_flight = bench.permit(0.0);
    bench.decide(0.0);
    bench.throttle_held(0.0, 60);
    bench.gate.counters.admit();
    adopt(&mut bench, &[("max_rate", "1")], 0.0);
    assert_eq!(bench.gate.in_flight(), 1);
    assert!(bench.gate.is_waited_for());
    assert_eq!(bench.gate.waiting(&bench.tickets), 1);
    assert_eq!(bench.gate.hold_until(at(0.0)), Some(at(60.0)));
}

#[test]
fn new_settings_clear_the_window_only_if_slices_differ() {
    let mut bench = Bench::aimd(&[]);
    let permit = bench.permit(0.0);
    bench.fail(permit, 0.0);
    let failed = |bench: &Bench| bench.gate.window(&bench.settings, at(0.0)).failed;
    adopt(&mut bench, &[("strategy", "aimd"), ("window", "20s")], 0.0);
    assert_eq!(failed(&bench), 1);
    adopt(&mut bench, &[("strategy", "adaptive")], 0.0);
    assert_eq!(failed(&bench), 0);
    assert_eq!(bench.gate.consecutive_failures(), 1, "those do compare");
}

#[test]
fn new_settings_add_and_remove_known_limits() {
    let mut bench = Bench::aimd(&[("limits", "2/1h"), ("burst", "4"), ("max_wait", "2h")]);
    let _first = bench.permit(0.0);
    let fewer = [("limits", "1/1h"), ("max_wait", "2h")];
    adopt(&mut bench, &fewer, 1.0);
    assert_eq!(bench.decide(5.0), "wait rate 3600");
    bench.admitted_by(3600.0);
    adopt(&mut bench, &[], 3600.0);
    assert_eq!(bench.decide(3610.0), "admit");
}

#[test]
fn last_success_is_rounded_to_seconds() {
    for enabled in ["true", "false"] {
        let mut bench = Bench::aimd(&[("enabled", enabled)]);
        assert_eq!(bench.gate.last_success(), None);
        let permit = bench.permit(0.0);
        bench.fail(permit, 0.5);
        assert_eq!(bench.gate.last_success(), None);
        let permit = bench.permit(5.0);
        bench.succeed(permit, 7.9);
        assert_eq!(bench.gate.last_success(), Some(at(7.0)));
        bench.gate.reset(&bench.settings, at(8.0));
        assert_eq!(bench.gate.last_success(), None);
    }
}

#[test]
fn gate_shows_whether_its_line_is_empty() {
    let mut bench = Bench::aimd(&[("burst", "1")]);
    let _permit = bench.permit(0.0);
    assert!(!bench.gate.is_waited_for());
    bench.decide(0.0);
    assert!(bench.gate.is_waited_for());
    bench.admitted_by(9.0);
    assert!(!bench.gate.is_waited_for());
}

#[test]
fn snapshot_says_what_the_first_in_line_waits_for() {
    let check = |bench: &Bench, seconds: f64, reason: Option<Reason>, leaves_at: Option<f64>| {
        let snapshot = bench
            .gate
            .snapshot(&bench.settings, &bench.tickets, at(seconds));
        let found = (snapshot.waiting_for, snapshot.first_leaves);
        assert_eq!(found, (reason, leaves_at.map(at)), "at {seconds}");
    };
    let mut bench = Bench::aimd(&[("burst", "1"), ("max_in_flight", "1")]);
    check(&bench, 0.0, None, None);
    let permit = bench.permit(0.0);
    bench.decide(0.0);
    check(&bench, 0.25, Some(Reason::Rate), None);
    check(&bench, 0.75, Some(Reason::InFlight), None);
    bench.succeed(permit, 0.25);
    // The success raised the rate to 2.25 per second.
    check(&bench, 0.25, Some(Reason::Rate), Some(0.472_222_223));
    bench.gate.isolate(&bench.settings, at(0.3));
    check(&bench, 0.3, Some(Reason::BreakerOpen), None);
    let mut bench = Bench::aimd(&[]);
    bench.throttle(0.0, 5);
    assert_eq!(bench.decide(1.0), "wait hold 5");
    check(&bench, 1.0, Some(Reason::Hold), Some(5.0));
}
