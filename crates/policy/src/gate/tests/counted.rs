//! Windows whose quota is counted, because the server tells only when the next one begins.

use super::window::{WindowServer, send};
use super::*;

fn bench() -> Bench {
    Bench::new(&[("initial_rate", "20"), ("max_wait", "1h")])
}

#[test]
fn stops_at_the_number_that_two_windows_accepted() {
    let (mut bench, mut server) = (bench(), WindowServer::new(40, 15.0));
    let counts = send(&mut bench, &mut server, 4.3, 300.0);
    assert_eq!(counts[..3], [(40, 1); 3], "{counts:?}");
    let refused: u32 = counts[3..].iter().map(|(_, refused)| refused).sum();
    assert!(refused <= 9, "one in every other window: {counts:?}");
    let accepted: u32 = counts[3..].iter().map(|(accepted, _)| accepted).sum();
    assert_eq!(accepted, 40 * 17, "nothing is lost: {counts:?}");
}

#[test]
fn tries_more_and_finds_a_higher_limit() {
    let (mut bench, mut server) = (bench(), WindowServer::new(40, 15.0));
    send(&mut bench, &mut server, 4.3, 150.0);
    server.accepts = 90;
    let counts = send(&mut bench, &mut server, 150.0, 300.0);
    assert_eq!(
        counts[5..]
            .iter()
            .map(|(accepted, _)| accepted)
            .sum::<u32>(),
        5 * 90,
        "{counts:?}"
    );
}

#[test]
fn follows_a_lower_limit() {
    let (mut bench, mut server) = (bench(), WindowServer::new(40, 15.0));
    send(&mut bench, &mut server, 4.3, 150.0);
    server.accepts = 12;
    let counts = send(&mut bench, &mut server, 150.0, 300.0);
    let refused: u32 = counts.iter().map(|(_, refused)| refused).sum();
    assert!(refused <= 4, "{counts:?}");
    assert_eq!(counts[9].0, 12, "{counts:?}");
}

#[test]
fn waits_for_the_next_window_until_a_person_releases_it() {
    let (mut bench, mut server) = (bench(), WindowServer::new(40, 15.0));
    send(&mut bench, &mut server, 4.3, 71.0);
    let until = bench.gate.hold_until(at(71.0)).expect("it is held");
    assert!(until >= at(75.0) && until < at(76.0), "{until:?}");
    assert_eq!(bench.gate.hold_source, Some(Source::Counted));
    let why = bench
        .gate
        .snapshot(&bench.settings, &bench.tickets, at(71.0))
        .to_string();
    assert!(why.starts_with("waits 5s for the next window"), "{why}");
    bench.gate.release(&bench.settings, at(72.0));
    for tenths in 0..10 {
        let _ = bench.admitted_by(72.0 + f64::from(tenths) / 10.0);
    }
    assert_eq!(bench.gate.hold_until(at(73.0)), None);
}

#[test]
fn ban_bounds_the_rate_to_what_the_window_accepts() {
    let (mut bench, mut server) = (bench(), WindowServer::new(40, 15.0));
    send(&mut bench, &mut server, 0.0, 35.0);
    let admitted = bench
        .gate
        .admit_next(&bench.settings, &mut bench.tickets, at(50.0));
    let (_, permit) = admitted.expect("the hold is over");
    bench.settle(permit, 50.0, &answer(403), Verdict::Rejected);
    let bound = bench.gate.record(at(50.0)).banned_above.unwrap();
    let accepted = 40.0 / 15.0;
    assert!(bound > 0.8 * accepted && bound < 0.95 * accepted, "{bound}");
}

#[test]
fn client_that_waits_for_each_response_does_not_stop_where_others_use_much() {
    let (mut bench, mut server) = (bench(), WindowServer::new(200, 15.0));
    server.others = 20.0;
    let mut seconds = 0.0;
    while seconds < 300.0 {
        send(&mut bench, &mut server, seconds, seconds + 15.0);
        assert_eq!(bench.gate.window_accepts(), None, "at {seconds}");
        seconds += 15.0;
    }
}

#[test]
fn client_that_waits_for_each_response_stops_if_it_is_alone() {
    let (mut bench, mut server) = (bench(), WindowServer::new(200, 15.0));
    send(&mut bench, &mut server, 0.0, 150.0);
    assert_eq!(bench.gate.window_accepts(), Some(200));
}

#[test]
fn one_request_at_a_time_tries_more() {
    let (mut bench, mut server) = (bench(), WindowServer::new(40, 15.0));
    send(&mut bench, &mut server, 0.0, 90.0);
    let begins = |window: u32| 15.0 * f64::from(window);
    let (window, mut tries) = (6..18)
        .map(|window| {
            (
                window,
                admit(
                    &mut bench,
                    begins(window) + 0.5,
                    begins(window + 1) - 1.0,
                    40,
                ),
            )
        })
        .find(|(_, tries)| !tries.is_empty())
        .expect("one in several windows");
    assert_eq!(tries.len(), 1, "the others wait for the response");
    let end = begins(window + 1) - 1.0;
    bench.settle(tries.remove(0), end, &answer(200), Verdict::Success);
    assert_eq!(admit(&mut bench, end, end + 0.9, 0).len(), 1);
}

/// Asks a hundred times per second. Requests are answered at once until so many are; returns the others.
fn admit(bench: &mut Bench, from: f64, to: f64, answered: u32) -> Vec<Permit> {
    let mut admitted = 0;
    let mut unanswered = Vec::new();
    let mut seconds = from;
    while seconds < to {
        let asked = match bench.ask(seconds) {
            Decision::Admit(permit) => Some(permit),
            _ => None,
        };
        let (settings, tickets) = (&bench.settings, &mut bench.tickets);
        let waited = std::iter::from_fn(|| bench.gate.admit_next(settings, tickets, at(seconds)));
        let permits: Vec<_> = asked
            .into_iter()
            .chain(waited.map(|(_, permit)| permit))
            .collect();
        for permit in permits {
            admitted += 1;
            match admitted <= answered {
                true => bench.settle(permit, seconds + 0.01, &answer(200), Verdict::Success),
                false => unanswered.push(permit),
            }
        }
        seconds += 0.01;
    }
    unanswered
}

#[test]
fn request_just_before_the_window_begins_teaches_nothing_else() {
    // Announced in whole seconds, these are taken for windows of 15 s: each begins later than computed.
    let (mut bench, mut server) = (bench(), WindowServer::new(40, 15.4));
    send(&mut bench, &mut server, 0.0, 61.6);
    let rate = bench.gate.rate();
    for window in 4..20 {
        let from = 15.4 * f64::from(window);
        send(&mut bench, &mut server, from, from + 15.4);
        assert_eq!(bench.gate.window_accepts(), Some(40), "window {window}");
    }
    assert!(bench.gate.rate() >= rate);
}
