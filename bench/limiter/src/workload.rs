//! Workloads of a fixed size for `scripts/count-instructions`, one contender each.

use std::hint::black_box;
use std::mem;
use std::pin::pin;
use std::process::ExitCode;
use std::task::{Context, Poll, Waker};

use crate::contender::{Contender, warm_up};
use crate::keys::walk;
use crate::ours::{Ours, outcome};
use crate::peers::{Governor, GovernorFailsafe, GovernorRecloser};
use crate::pools::PoolOf;
use crate::report;

/// Runs the named workload with so many keys, all of them known, and so many attempts. For a pool,
/// the number of keys is that of its endpoints.
pub(crate) fn run(name: &str, keys: &str, attempts: &str) -> ExitCode {
    let (Ok(keys), Ok(attempts)) = (keys.parse::<usize>(), attempts.parse::<usize>()) else {
        return report::usage();
    };
    let walk = walk(keys, 1, 1);
    match name {
        "acquire-adaptive" => play(&Acquire(Ours::new("adaptive")), &walk, attempts),
        "acquire-aimd" => play(&Acquire(Ours::new("aimd")), &walk, attempts),
        "acquire-fixed" => play(&Acquire(Ours::new("fixed")), &walk, attempts),
        "adaptive" => play(&Ours::new("adaptive"), &walk, attempts),
        "aimd" => play(&Ours::new("aimd"), &walk, attempts),
        "fixed" => play(&Ours::new("fixed"), &walk, attempts),
        "awaited" => play(&Awaited(Ours::new("adaptive")), &walk, attempts),
        "governor" => play(&Governor::new(), &walk, attempts),
        "governor+failsafe" => play(&GovernorFailsafe::new(), &walk, attempts),
        "governor+recloser" => play(&GovernorRecloser::new(), &walk, attempts),
        "pool" => play(&PoolOf::new(keys), &walk, attempts),
        "nothing" => play(&Nothing, &walk, attempts),
        _ => return report::usage(),
    }
    ExitCode::SUCCESS
}

fn play(contender: &impl Contender, walk: &[String], attempts: usize) {
    warm_up(contender, walk);
    let refused = repeat(contender, walk, attempts);
    assert_eq!(refused, 0, "no attempt is refused");
}

/// What is counted: the script names this function to the profiler.
#[inline(never)]
fn repeat(contender: &impl Contender, walk: &[String], attempts: usize) -> usize {
    let keys = walk.iter().cycle().take(attempts);
    keys.filter(|key| !contender.attempt(black_box(key)))
        .count()
}

/// The first half of an attempt at our limiter: what is acquired is never brought back.
struct Acquire(Ours);

impl Contender for Acquire {
    #[inline]
    fn attempt(&self, key: &String) -> bool {
        match self.0.limiter().try_acquire(key) {
            Ok(permit) => {
                mem::forget(black_box(permit));
                true
            }
            Err(_) => false,
        }
    }
}

/// An attempt whose ask may wait, and need not.
struct Awaited(Ours);

impl Contender for Awaited {
    #[inline]
    fn attempt(&self, key: &String) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        let acquire = pin!(self.0.limiter().acquire(key));
        match acquire.poll(&mut context) {
            Poll::Ready(Ok(permit)) => {
                permit.settle(&outcome());
                true
            }
            Poll::Ready(Err(_)) | Poll::Pending => false,
        }
    }
}

/// The cost of the walk itself, which is taken off everyone's.
struct Nothing;

impl Contender for Nothing {
    #[inline]
    fn attempt(&self, _: &String) -> bool {
        true
    }
}
