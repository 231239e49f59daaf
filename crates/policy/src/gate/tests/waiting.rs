//! Tokens, lines, deadlines and known limits.

use super::*;
use crate::random::Random;

#[test]
fn admits_from_a_full_bucket_then_queues_in_order() {
    let mut bench = Bench::aimd(&[]);
    for _ in 0..4 {
        assert_eq!(bench.decide(0.0), "admit");
    }
    assert_eq!(bench.decide(0.0), "wait rate 0.5");
    assert_eq!(bench.decide(0.0), "wait rate 1");
    assert_eq!(bench.decide(0.25), "wait rate 1.5");
    assert_eq!(bench.admitted_by(2.0), [0.5, 1.0, 1.5]);
}

#[test]
fn new_ask_does_not_overtake_the_line() {
    let mut bench = Bench::aimd(&[("burst", "1")]);
    assert_eq!(bench.decide(0.0), "admit");
    assert_eq!(bench.decide(0.0), "wait rate 0.5");
    assert_eq!(
        bench.decide(0.6),
        "wait rate 1.1",
        "a token is available, but it is not its turn"
    );
    assert_eq!(bench.admitted_by(2.0), [0.6, 1.1]);
}

#[test]
fn refuses_when_the_line_is_full() {
    let mut bench = Bench::aimd(&[("burst", "1"), ("max_waiting", "1")]);
    assert_eq!(bench.decide(0.0), "admit");
    assert_eq!(bench.decide(0.0), "wait rate 0.5");
    assert_eq!(bench.decide(0.0), "refuse queue_full -");
}

#[test]
fn refuses_ask_without_time_to_wait_and_says_until() {
    let mut bench = Bench::aimd(&[("burst", "1"), ("max_wait", "0s")]);
    assert_eq!(bench.decide(0.0), "admit");
    assert_eq!(bench.decide(0.0), "refuse rate 0.5");
    assert_eq!(bench.gate.waiting(&bench.tickets), 0);
}

#[test]
fn peek_takes_nothing() {
    let mut bench = Bench::aimd(&[("burst", "1")]);
    let ask = Ask::until(at(30.0));
    for _ in 0..3 {
        assert_eq!(
            bench
                .gate
                .peek(&bench.settings, &bench.tickets, &ask, at(0.0)),
            Ok(())
        );
    }
    assert_eq!(bench.decide(0.0), "admit");
    let until = Some(at(0.5));
    assert_eq!(
        bench
            .gate
            .peek(&bench.settings, &bench.tickets, &ask, at(0.0)),
        Err((Reason::Rate, until))
    );
    assert_eq!(bench.gate.waiting(&bench.tickets), 0);
}

#[test]
fn refuses_waiters_at_once_when_a_hold_passes_their_deadline() {
    let mut bench = Bench::aimd(&[("burst", "1")]);
    let in_flight = bench.permit(0.0);
    assert_eq!(bench.decide(0.0), "wait rate 0.5");
    assert_eq!(bench.gate.expire_next(&mut bench.tickets, at(0.1)), None);
    bench.settle(in_flight, 0.1, &directed(429, 3600), Verdict::Throttled);
    assert_eq!(
        bench
            .gate
            .next_wake(&bench.settings, &bench.tickets, at(0.1)),
        Some(at(0.1))
    );
    assert!(
        bench
            .gate
            .expire_next(&mut bench.tickets, at(0.1))
            .is_some()
    );
    assert_eq!(
        bench
            .gate
            .next_wake(&bench.settings, &bench.tickets, at(0.1)),
        None
    );
}

#[test]
fn expires_waiters_at_their_deadline() {
    let mut bench = Bench::aimd(&[("burst", "1"), ("max_rate", "0.25"), ("max_wait", "5s")]);
    assert_eq!(bench.decide(0.0), "admit");
    assert_eq!(bench.decide(0.0), "wait rate 4");
    assert_eq!(
        bench.decide(0.0),
        "wait rate 8",
        "still learning, so the rate may rise"
    );
    assert_eq!(bench.admitted_by(4.0), [4.0]);
    assert_eq!(
        bench
            .gate
            .next_wake(&bench.settings, &bench.tickets, at(4.0)),
        Some(at(5.0))
    );
    assert!(
        bench
            .gate
            .expire_next(&mut bench.tickets, at(5.0))
            .is_some()
    );
}

#[test]
fn fixed_rate_refuses_asks_that_cannot_meet_their_deadline() {
    let mut bench = Bench::new(&[
        ("strategy", "fixed"),
        ("initial_rate", "0.1"),
        ("max_wait", "15s"),
    ]);
    assert_eq!(bench.decide(0.0), "admit");
    assert!(bench.decide(0.0).starts_with("wait rate 9.99"));
    assert!(bench.decide(0.0).starts_with("refuse deadline 19.99"));
}

#[test]
fn known_limit_applies_and_refuses_asks_that_cannot_meet_their_deadline() {
    let mut bench = Bench::aimd(&[("limits", "3/1m"), ("max_wait", "59s")]);
    for _ in 0..3 {
        assert_eq!(bench.decide(0.0), "admit");
    }
    assert_eq!(bench.decide(0.5), "refuse deadline 60");
    assert_eq!(bench.decide(1.0), "wait rate 60");
    assert_eq!(bench.admitted_by(60.0), [60.0]);
}

#[test]
fn until_is_exact_when_rate_and_limit_bind_alternately() {
    let mut bench = Bench::aimd(&[
        ("limits", "3/10s"),
        ("burst", "1"),
        ("initial_rate", "1"),
        ("max_wait", "1h"),
    ]);
    assert_eq!(bench.decide(0.0), "admit");
    for until in [1, 2, 10, 11, 12, 20, 21] {
        assert_eq!(bench.decide(0.0), format!("wait rate {until}"));
    }
    assert_eq!(
        bench.admitted_by(30.0),
        [1.0, 2.0, 10.0, 11.0, 12.0, 20.0, 21.0]
    );
}

#[test]
fn until_is_unknown_when_slots_run_out_before_the_turn() {
    let mut bench = Bench::aimd(&[("burst", "1"), ("max_in_flight", "2")]);
    assert_eq!(bench.decide(0.0), "admit");
    assert_eq!(bench.decide(0.0), "wait rate 0.5");
    assert_eq!(
        bench.decide(0.0),
        "wait rate -",
        "both slots are taken then"
    );
    assert_eq!(bench.admitted_by(60.0), [0.5]);
}

#[test]
fn until_is_unknown_behind_a_blind_probe() {
    let mut bench = Bench::new(&[]);
    for seconds in [0.0, 10.0] {
        let permit = bench.permit(seconds);
        bench.settle(permit, seconds, &answer(429), Verdict::Throttled);
    }
    assert!(bench.decide(10.0).starts_with("wait hold 1"));
    assert_eq!(bench.decide(10.0), "wait hold -");
    assert_eq!(bench.admitted_by(60.0).len(), 1);
}

/// Whatever happened before: an ask leaves at its `until` if nothing else happens, and one without
/// an `until` does not leave before `adaptive` gives up on silent attempts.
#[test]
fn until_is_when_an_ask_leaves_if_nothing_happens() {
    for seed in 0..300 {
        let mut random = Random::from_seed(seed);
        let mut pick = |values: &[&'static str]| values[index(&mut random, values.len())];
        let mut bench = Bench::new(&[
            ("strategy", pick(&["adaptive", "aimd", "fixed"])),
            ("initial_rate", pick(&["0.7", "2", "3"])),
            (
                "limits",
                pick(&["", "3/10s", "10/1m", "2/1s,7/10s", "100/1m"]),
            ),
            ("max_in_flight", pick(&["1", "3", "8", "256"])),
            ("max_wait", "1h"),
        ]);
        let (mut seconds, mut permits) = (0.0, Vec::new());
        for _ in 0..40 {
            seconds += random.below(40) as f64 / 32.0;
            bench.leave_until(seconds, &mut permits);
            if random.below(3) > 0 || permits.is_empty() {
                bench.check_until(seconds, &mut permits);
            } else {
                let permit = permits.swap_remove(index(&mut random, permits.len()));
                let throttled = random.below(8) == 0;
                let (status, verdict) = match throttled {
                    true => (429, Verdict::Throttled),
                    false => (200, Verdict::Success),
                };
                bench.settle(permit, seconds, &answer(status), verdict);
            }
        }
    }
}

fn index(random: &mut Random, len: usize) -> usize {
    usize::try_from(random.below(len as u64)).unwrap()
}

impl Bench {
    fn leave_until(&mut self, seconds: f64, permits: &mut Vec<Permit>) {
        while let Some(due) = self.gate.next_admission(&self.settings, &self.tickets)
            && due <= at(seconds)
        {
            let admitted = self.gate.admit_next(&self.settings, &mut self.tickets, due);
            permits.push(admitted.unwrap().1);
        }
    }

    /// Asks, and compares `until` with when a copy of the gate admits the ask.
    fn check_until(&mut self, seconds: f64, permits: &mut Vec<Permit>) {
        let (mine, until) = match self.ask(seconds) {
            Decision::Admit(permit) => return permits.push(permit),
            Decision::Wait { ticket, until, .. } => (ticket, until),
            Decision::Refuse { .. } => return,
        };
        let (mut gate, mut tickets) = (self.gate.clone(), self.tickets.clone());
        let horizon = until.unwrap_or_else(|| at(seconds + 100.0));
        let mut left_at = None;
        while let Some(due) = gate.next_admission(&self.settings, &tickets)
            && due.since(horizon) < Duration::from_secs(1)
        {
            let (ticket, _) = gate.admit_next(&self.settings, &mut tickets, due).unwrap();
            if ticket == mine {
                left_at = Some(due);
                break;
            }
        }
        let difference = match (until, left_at) {
            (Some(until), Some(left_at)) => until.since(left_at).max(left_at.since(until)),
            (None, None) => Duration::ZERO,
            other => panic!("asked at {seconds}: {other:?}"),
        };
        assert!(
            difference <= Duration::from_nanos(20),
            "{until:?} {left_at:?}"
        );
    }
}

#[test]
fn cost_takes_tokens_and_can_be_corrected() {
    let mut bench = Bench::aimd(&[("limits", "20/1m")]);
    let costly = |cost| Ask {
        cost,
        ..Ask::until(at(30.0))
    };
    let Decision::Admit(permit) = bench.ask_as(costly(3), 0.0) else {
        panic!()
    };
    assert_eq!(
        bench
            .gate
            .snapshot(&bench.settings, &bench.tickets, at(0.0))
            .tokens,
        1.0
    );
    bench.settle(
        permit,
        0.0,
        &Outcome {
            used: Some(5),
            ..answer(404)
        },
        Verdict::Rejected,
    );
    assert_eq!(
        bench
            .gate
            .snapshot(&bench.settings, &bench.tickets, at(0.0))
            .tokens,
        -1.0
    );
    let refused = bench.ask_as(costly(21), 0.0);
    assert!(
        matches!(
            refused,
            Decision::Refuse {
                reason: Reason::Rate,
                until: None
            }
        ),
        "exceeds the limit"
    );
    let Decision::Admit(_) = bench.ask_as(costly(0), 1.0) else {
        panic!("zero counts as one")
    };
}

#[test]
fn settling_at_max_in_flight_admits_the_next() {
    let mut bench = Bench::aimd(&[("max_in_flight", "2")]);
    let first = bench.permit(0.0);
    let second = bench.permit(0.0);
    assert_eq!(bench.decide(0.0), "wait in_flight -");
    assert_eq!(bench.admitted_by(9.0), [] as [f64; 0]);
    bench.succeed(first, 3.0);
    assert_eq!(bench.admitted_by(9.0), [3.0]);
    bench.gate.abandon(&bench.settings, second, at(4.0));
    assert_eq!(bench.gate.in_flight(), 1);
}

#[test]
fn disabled_gate_admits_every_ask_and_learns_nothing() {
    let mut bench = Bench::aimd(&[("enabled", "false")]);
    for _ in 0..100 {
        let permit = bench.permit(0.0);
        bench.settle(permit, 0.0, &directed(429, 60), Verdict::Throttled);
    }
    assert_eq!(
        (bench.gate.rate(), bench.gate.hold_until(at(0.0))),
        (2.0, None)
    );
}

#[test]
fn clock_step_back_neither_panics_nor_admits() {
    let mut bench = Bench::aimd(&[("burst", "1")]);
    assert_eq!(bench.decide(100.0), "admit");
    assert_eq!(bench.decide(50.0), "wait rate 100.5");
}

#[test]
fn token_goes_to_the_first_in_line() {
    let mut bench = Bench::aimd(&[("max_in_flight", "1")]);
    let first = bench.permit(0.0);
    assert_eq!(bench.decide(0.0), "wait in_flight -");
    bench.gate.abandon(&bench.settings, first, at(0.0));
    assert_eq!(
        bench.decide(0.0),
        "wait rate -",
        "three tokens, but the one slot in flight is for the ticket ahead"
    );
    assert_eq!(bench.admitted_by(0.0), [0.0]);
}

#[test]
fn asking_often_does_not_leave_early() {
    let early = |bench: &mut Bench, seconds: f64| {
        let left = bench
            .gate
            .admit_next(&bench.settings, &mut bench.tickets, at(seconds));
        assert!(left.is_none(), "at {seconds}: {left:?}");
    };
    let mut bench = Bench::aimd(&[("burst", "1")]);
    early(&mut bench, 0.0);
    let in_flight = bench.permit(0.0);
    bench.decide(0.0);
    early(&mut bench, 0.4);
    bench.settle(in_flight, 0.4, &directed(429, 10), Verdict::Throttled);
    early(&mut bench, 10.3);
    bench.gate.isolate(&bench.settings, at(11.0));
    early(&mut bench, 99.0);
    bench.gate.release(&bench.settings, at(99.0));
    assert_eq!(bench.admitted_by(99.0), [99.0]);

    let mut bench = Bench::aimd(&[("max_in_flight", "1"), ("consecutive_failures", "1")]);
    let in_flight = bench.permit(0.0);
    bench.decide(0.0);
    early(&mut bench, 9.0);
    bench.fail(in_flight, 10.0);
    early(&mut bench, 24.9);
    assert_eq!(bench.admitted_by(25.0), [25.0]);
}

#[test]
fn permit_has_its_admission_time_and_probe_flag() {
    let mut bench = Bench::aimd(&[]);
    let permit = bench.permit(7.0);
    assert_eq!(permit.admitted_at(), at(7.0));
    assert!(!permit.is_probe());
    assert_eq!(bench.gate.last_activity(), at(7.0));
}

#[test]
fn adaptive_bounds_unanswered_attempts() {
    let mut bench = Bench::new(&[("initial_rate", "2"), ("max_rate", "2")]);
    for second in 0..10 {
        let permit = bench.permit(f64::from(second));
        bench.succeed(permit, f64::from(second));
    }
    // 6 + 2 × 2/s × 0.1 s, rounded up.
    let _under_way: Vec<Permit> = (10..17)
        .map(|second| bench.permit(f64::from(second)))
        .collect();
    assert_eq!(bench.decide(17.0), "wait in_flight -");
    assert_eq!(bench.admitted_by(135.9), [] as [f64; 0]);
    assert_eq!(
        bench.admitted_by(136.0),
        [136.0],
        "lost after two minutes of silence"
    );
}

#[test]
fn response_is_in_flight_until_the_end_of_its_body() {
    let mut bench = Bench::aimd(&[("max_in_flight", "1")]);
    let permit = bench.permit(0.0);
    let body = bench.settle_head(permit, 1.0);
    assert_eq!(bench.gate.in_flight(), 1);
    assert_eq!(bench.decide(10.0), "wait in_flight -");
    assert!(!bench.gate.is_evictable(at(1000.0)));
    bench.gate.finish(&bench.settings, body, at(20.0));
    assert_eq!(bench.gate.in_flight(), 0);
    assert_eq!(bench.admitted_by(20.0), [20.0]);
    assert_eq!(bench.gate.last_activity(), at(20.0));
}

#[test]
fn bound_of_adaptive_ends_at_the_response_head() {
    let mut bench = Bench::new(&[("initial_rate", "100"), ("max_rate", "100")]);
    let mut bodies = Vec::new();
    for request in 0..50 {
        let seconds = f64::from(request);
        let permit = bench.permit(seconds);
        bodies.push(bench.settle_head(permit, seconds + 0.1));
    }
    assert_eq!(bench.gate.in_flight(), 50);
    for body in bodies {
        bench.gate.finish(&bench.settings, body, at(60.0));
    }
    assert_eq!(bench.gate.in_flight(), 0);
}

#[test]
fn disabled_gate_still_bounds_attempts_in_flight() {
    let mut bench = Bench::new(&[("enabled", "false")]);
    for _ in 0..Counters::MAX_IN_FLIGHT {
        let _ = bench.permit(0.0);
    }
    assert_eq!(bench.decide(0.0), "wait in_flight -");
}
