//! Allocations of an attempt on a known key: there are to be none.

use stats_alloc::Region;

use crate::ALLOCATOR;
use crate::contender::warm_up;
use crate::keys::walk;
use crate::ours::{DEFAULT, Ours};

/// Allocations per acquire and settle. The least of three times, because the limiter's own thread
/// may set its next alarm meanwhile.
pub(crate) fn measure() -> f64 {
    let ours = Ours::new(DEFAULT);
    let walk = walk(KEYS, KEYS, 1);
    warm_up(&ours, &walk);
    let times = (0..3).map(|_| allocations(&ours, &walk));
    times.fold(f64::INFINITY, f64::min)
}

fn allocations(ours: &Ours, walk: &[String]) -> f64 {
    let region = Region::new(ALLOCATOR);
    for _ in 0..ROUNDS {
        warm_up(ours, walk);
    }
    let change = region.change();
    (change.allocations + change.reallocations) as f64 / (ROUNDS * walk.len()) as f64
}

const KEYS: usize = 10_000;
const ROUNDS: usize = 20;
