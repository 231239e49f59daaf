//! Windows whose quota is counted, because the server tells only when the next one begins.

#![expect(
    clippy::cast_possible_truncation,
    reason = "small numbers of seconds and windows"
)]

use super::*;

/// A server that accepts `accepts` requests in each window of `seconds`, and names the wait when it
/// refuses.
struct WindowServer {
    accepts: u32,
    seconds: f64,
    window: f64,
    used: u32,
}

impl WindowServer {
    fn new(accepts: u32, seconds: f64) -> Self {
        Self {
            accepts,
            seconds,
            window: 0.0,
            used: 0,
        }
    }

    fn respond(&mut self, seconds: f64) -> (Outcome, Verdict) {
        let window = (seconds / self.seconds).floor();
        if window > self.window {
            (self.window, self.used) = (window, 0);
        }
        if self.used < self.accepts {
            self.used += 1;
            return (answer(200), Verdict::Success);
        }
        let wait = ((window + 1.0) * self.seconds - seconds).ceil();
        (directed(429, wait as u64), Verdict::Throttled)
    }
}

/// Sends one request after the other for so many seconds. Returns how many were refused in each of the
/// server's windows, and how many were accepted.
fn send(bench: &mut Bench, server: &mut WindowServer, from: f64, to: f64) -> Vec<(u32, u32)> {
    let first = (from / server.seconds) as usize;
    let windows = (to / server.seconds).ceil() as usize - first;
    let mut counts = vec![(0, 0); windows];
    let mut seconds = from;
    while seconds < to {
        let Decision::Admit(permit) = bench.ask(seconds) else {
            let left = bench.gate.next_admission(&bench.settings, &bench.tickets);
            let due = left
                .expect("only time decides")
                .seconds_since(Timestamp::ZERO);
            seconds = due.max(seconds);
            if seconds >= to {
                break;
            }
            let admitted = bench
                .gate
                .admit_next(&bench.settings, &mut bench.tickets, at(seconds));
            let (_, permit) = admitted.expect("the first in line is due");
            seconds = respond(bench, server, permit, seconds, &mut counts, first);
            continue;
        };
        seconds = respond(bench, server, permit, seconds, &mut counts, first);
    }
    counts
}

fn respond(
    bench: &mut Bench,
    server: &mut WindowServer,
    permit: Permit,
    seconds: f64,
    counts: &mut [(u32, u32)],
    first: usize,
) -> f64 {
    let (outcome, verdict) = server.respond(seconds);
    let window = ((seconds / server.seconds) as usize - first).min(counts.len() - 1);
    match verdict {
        Verdict::Success => counts[window].0 += 1,
        _ => counts[window].1 += 1,
    }
    bench.settle(permit, seconds + 0.01, &outcome, verdict);
    seconds + 0.01
}

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
    send(&mut bench, &mut server, 4.3, 56.0);
    let until = bench.gate.hold_until(at(56.0)).expect("it is held");
    assert!(until >= at(60.0) && until < at(61.0), "{until:?}");
    assert_eq!(bench.gate.hold_source, Some(Source::Counted));
    let why = bench
        .gate
        .snapshot(&bench.settings, &bench.tickets, at(56.0))
        .to_string();
    assert!(why.starts_with("waits 5s for the next window"), "{why}");
    bench.gate.release(&bench.settings, at(57.0));
    for tenths in 0..10 {
        let _ = bench.admitted_by(57.0 + f64::from(tenths) / 10.0);
    }
    assert_eq!(bench.gate.hold_until(at(58.0)), None);
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
