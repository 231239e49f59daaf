//! A server with a window, and a client that sends one request after the other.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small positive numbers of seconds and windows"
)]

use super::*;

/// A server that accepts `accepts` requests in each window of `seconds`, and names the wait when it
/// refuses, unless it is silent. Others send it so many requests per second.
pub(super) struct WindowServer {
    pub(super) accepts: u32,
    pub(super) seconds: f64,
    pub(super) others: f64,
    pub(super) is_silent: bool,
    pub(super) window: f64,
    pub(super) used: u32,
}

impl WindowServer {
    pub(super) fn new(accepts: u32, seconds: f64) -> Self {
        Self {
            accepts,
            seconds,
            others: 0.0,
            is_silent: false,
            window: 0.0,
            used: 0,
        }
    }

    fn respond(&mut self, seconds: f64) -> (Outcome, Verdict) {
        let window = (seconds / self.seconds).floor();
        if window > self.window {
            (self.window, self.used) = (window, 0);
        }
        let others = self.others * (seconds - window * self.seconds);
        if f64::from(self.used) + others < f64::from(self.accepts) {
            self.used += 1;
            return (answer(200), Verdict::Success);
        }
        if self.is_silent {
            return (answer(429), Verdict::Throttled);
        }
        let wait = ((window + 1.0) * self.seconds - seconds).ceil();
        (directed(429, wait as u64), Verdict::Throttled)
    }
}

/// Sends one request after the other for so many seconds. Returns how many were refused in each of the
/// server's windows, and how many were accepted.
pub(super) fn send(
    bench: &mut Bench,
    server: &mut WindowServer,
    from: f64,
    to: f64,
) -> Vec<(u32, u32)> {
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
