//! A store that fails: nothing that was accepted is lost, and nothing is accepted that is not stored.

use std::thread;

use app::state::AcceptError;
use store::Store;
use store::faulty::Faults;

use super::support::{Running, Upstream, post};

const QUICK: &str = "[backoff.standard]\nbase = \"20ms\"\nmax = \"40ms\"\n";

/// As many calls as two deliveries with a resend make, and some more.
const CALLS: u64 = 16;

/// Posts until two operations are accepted; `heal` is called when one is refused.
fn accept_two(running: &Running, upstream: &Upstream, heal: impl Fn()) -> Vec<String> {
    let mut accepted = Vec::new();
    while accepted.len() < 2 {
        match running.accept(post(&upstream.url("/"))) {
            Ok(one) => accepted.push(one.operation.id),
            Err(AcceptError::Store(_)) => heal(),
            Err(error) => panic!("{error}"),
        }
    }
    accepted
}

#[test]
fn delivers_everything_accepted_when_any_one_call_fails() {
    let runs: Vec<_> = (1..=CALLS)
        .map(|number| {
            thread::spawn(move || {
                let upstream = Upstream::statuses(&[500, 200]);
                let store = Store::memory_faulty(Faults::once(number));
                let running = Running::with_store(QUICK, store);
                for id in accept_two(&running, &upstream, || {}) {
                    running.until(&id, "completed");
                }
            })
        })
        .collect();
    for run in runs {
        run.join().unwrap();
    }
}

#[test]
fn delivers_everything_accepted_after_the_store_works_again() {
    let runs: Vec<_> = (1..=CALLS)
        .map(|number| {
            thread::spawn(move || {
                let upstream = Upstream::statuses(&[500, 200]);
                let faults = Faults::from(number);
                let store = Store::memory_faulty(faults.clone());
                let running = Running::with_store(QUICK, store);
                let accepted = accept_two(&running, &upstream, || faults.heal());
                faults.heal();
                for id in accepted {
                    running.until(&id, "completed");
                }
            })
        })
        .collect();
    for run in runs {
        run.join().unwrap();
    }
}
