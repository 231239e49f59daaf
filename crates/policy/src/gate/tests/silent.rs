//! Windows of a server that does not tell when the next one begins.

use super::window::{WindowServer, send};
use super::*;

fn bench() -> Bench {
    Bench::new(&[("initial_rate", "20"), ("max_wait", "1h")])
}

fn silent(accepts: u32, seconds: f64) -> WindowServer {
    WindowServer {
        is_silent: true,
        ..WindowServer::new(accepts, seconds)
    }
}

fn sum(counts: &[(u32, u32)]) -> (u32, u32) {
    let add = |sum: (u32, u32), count: &(u32, u32)| (sum.0 + count.0, sum.1 + count.1);
    counts.iter().fold((0, 0), add)
}

#[test]
fn uses_all_of_each_window_once_its_length_is_known() {
    for (accepts, seconds) in [(40, 15.0), (600, 60.0), (100, 12.0), (800, 47.0)] {
        let (mut bench, mut server) = (bench(), silent(accepts, seconds));
        let counts = send(&mut bench, &mut server, 4.3, 30.0 * seconds);
        let (accepted, refused) = sum(&counts[10..]);
        assert_eq!(accepted, 20 * accepts, "{counts:?}");
        assert!(refused <= 20, "one in each window: {counts:?}");
        let (_, refused) = sum(&counts[..10]);
        assert!(refused <= 45, "{counts:?}");
    }
}

#[test]
fn wait_for_the_window_has_a_reason() {
    let (mut bench, mut server) = (bench(), silent(40, 15.0));
    send(&mut bench, &mut server, 4.3, 173.0);
    let until = bench.gate.hold_until(at(173.0)).expect("it is held");
    assert!(until > at(180.0) && until < at(181.0), "{until:?}");
    let snapshot = bench
        .gate
        .snapshot(&bench.settings, &bench.tickets, at(173.0));
    let why = snapshot.to_string();
    assert!(why.starts_with("waits 8s for the next window"), "{why}");
    bench.gate.release(&bench.settings, at(174.0));
    assert_eq!(bench.gate.hold_until(at(174.0)), None);
}

#[test]
fn windows_that_are_not_used_up_are_counted() {
    let (mut bench, mut server) = (bench(), silent(40, 15.0));
    send(&mut bench, &mut server, 4.3, 165.0);
    // Nothing is sent for a quarter of an hour and a half window.
    let counts = send(&mut bench, &mut server, 1072.5, 1290.0);
    let (accepted, refused) = sum(&counts);
    assert!(accepted >= 14 * 40, "{counts:?}");
    assert!(refused <= 15, "{counts:?}");
}

#[test]
fn finds_a_higher_and_a_lower_limit() {
    let (mut bench, mut server) = (bench(), silent(40, 15.0));
    send(&mut bench, &mut server, 4.3, 300.0);
    server.accepts = 90;
    let counts = send(&mut bench, &mut server, 300.0, 600.0);
    assert_eq!(sum(&counts[15..]).0, 5 * 90, "{counts:?}");
    server.accepts = 20;
    let counts = send(&mut bench, &mut server, 600.0, 900.0);
    let (accepted, refused) = sum(&counts[5..]);
    assert_eq!(accepted, 15 * 20, "{counts:?}");
    assert!(refused <= 15, "{counts:?}");
}

#[test]
fn finds_another_length() {
    let (mut bench, mut server) = (bench(), silent(100, 15.0));
    send(&mut bench, &mut server, 4.3, 300.0);
    (server.seconds, server.window) = (40.0, 7.0);
    send(&mut bench, &mut server, 300.0, 800.0);
    let counts = send(&mut bench, &mut server, 800.0, 1200.0);
    let (accepted, refused) = sum(&counts);
    assert_eq!(accepted, 10 * 100, "{counts:?}");
    assert!(refused <= 15, "{counts:?}");
}

#[test]
fn never_waits_longer_than_a_window() {
    for seconds in [15.0, 60.0, 300.0] {
        let (mut bench, mut server) = (bench(), silent(100, seconds));
        let mut now = 0.0;
        while now < 12.0 * seconds {
            send(&mut bench, &mut server, now, now + 0.1 * seconds);
            now += 0.1 * seconds;
            let held = bench.gate.hold_until(at(now));
            assert!(
                held.is_none_or(|until| until <= at(now + seconds)),
                "{held:?} at {now}"
            );
        }
    }
}

#[test]
fn weeks_without_a_request_do_not_prolong_the_wait() {
    for named in [false, true] {
        for days in [20.0, 30.0, 60.0] {
            let (mut bench, mut server) = (bench(), silent(40, 15.0));
            server.is_silent = !named;
            send(&mut bench, &mut server, 4.3, 300.0);
            let from = 86_400.0 * days;
            let counts = send(&mut bench, &mut server, from, from + 300.0);
            let (accepted, _) = sum(&counts[2..]);
            assert!(accepted >= 17 * 40, "after {days} days: {counts:?}");
        }
    }
}

/// A bucket refuses everything for a while too, but accepts a single request then.
#[test]
fn bucket_is_no_window() {
    let (mut bench, mut tokens, mut now) = (bench(), 20.0, 0.0);
    let mut last = 0.0;
    while now < 600.0 {
        now += 0.05;
        let _ = bench.ask(now);
        while let Some((_, permit)) =
            bench
                .gate
                .admit_next(&bench.settings, &mut bench.tickets, at(now))
        {
            tokens = f64::min(tokens + 0.3 * (now - last), 20.0);
            last = now;
            let (outcome, verdict) = match tokens >= 1.0 {
                true => (answer(200), Verdict::Success),
                false => (answer(429), Verdict::Throttled),
            };
            tokens -= f64::from(u8::from(verdict == Verdict::Success));
            bench.settle(permit, now + 0.01, &outcome, verdict);
        }
        assert_ne!(bench.gate.hold_source, Some(Source::Counted), "at {now}");
    }
}
