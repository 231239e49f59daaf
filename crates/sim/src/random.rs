//! Random upstreams, to judge a strategy on upstreams that it was not tuned on.
//!
//! A set is given by its seed. Scenario `index` of a set depends on nothing but the seed and the
//! index, so that a larger set begins with the smaller one. Scenarios are generated as files, so that
//! any build of `tidegate simulate` can run the same set.
//!
//! **What is drawn.** Half of the upstreams are token buckets, 30 % fixed windows, 20 % slots with a
//! queue. Capacities are log-uniform from 0.1 to 2000/s. A quarter have 2 to 16 independent clients, a
//! fifth changes its limit once or twice (to between a fifth and five times), a quarter fails at
//! random (up to 5 %), 12 % have an outage, about 10 % ban clients. 15 % of the loads are finite, from
//! 0.3 to 2 times the capacity. Latencies are 5 ms to 1 s, and 1 to 80 ms of network.
//!
//! **What is left out,** because no strategy could do well, or because it could not be measured:
//!
//! - Several clients have at least two requests of burst each, and at least 0.5/s each: with random
//!   arrivals at a bucket of one, the share refused equals the share of capacity in use.
//! - A bucket that sends headers has a burst of at least two: with one, every response says that
//!   nothing remains, and a client that waits for the reset, in whole seconds, gets less than 1/s.
//! - The burst is worth at least 20 ms of the limit: nothing real is timed more precisely.
//! - A client needs no more than 100 requests in flight on average, of the 256 that a gate allows.
//! - A server with slots has a queue of at least its slots, of ten, and of two per client: without a
//!   queue, lognormal service times alone refuse many requests.
//! - Only single clients are banned, and only where the requests on the way when the first refusal
//!   returns are at most half as many as a ban needs; at windows above 5 s only if they announce
//!   when they open.
//! - A run has at least 100 requests per client and at least five windows. Windows above 5 s have a
//!   boundary at 60 s, where settled figures start, and end at the end of the run: otherwise a
//!   strategy would be judged by where in a window it sends. Their clients start at random instead.
//!
//! **Goodput** is judged from 60 s on ([`Verdict::goodput_ratio_settled`]); the figure of the whole run also has the
//! time to find the limit. The share refused is that of the whole run.

mod describe;
mod distribution;
mod generate;
mod table;
mod verdict;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

pub use describe::describe;
pub use distribution::{Distribution, Goal, Percentiles};
pub use table::table;
pub use verdict::Verdict;

use crate::measure::Figures;
use crate::scenario::Scenario;
use crate::simulate::simulate;

/// The file of scenario `index` of the set with this seed.
///
/// ```
/// use sim::random;
/// use sim::scenario::Scenario;
///
/// let text = random::scenario_text(1, 0);
/// let scenario = Scenario::read("0.toml", text.as_bytes()).unwrap();
/// assert_eq!(scenario, random::scenario(1, 0));
/// ```
pub fn scenario_text(seed: u64, index: u64) -> String {
    generate::text(seed, index)
}

/// The name of that file; sorted by name, files of a set are in order.
pub fn file_name(seed: u64, index: u64) -> String {
    format!("{seed}-{index:04}.toml")
}

/// The indexes of the verdicts with a shortfall, the worst first.
pub fn worst(verdicts: &[Verdict]) -> Vec<usize> {
    let indexes = 0..verdicts.len();
    let mut worst: Vec<usize> = indexes
        .filter(|index| verdicts[*index].shortfall() > 0.0)
        .collect();
    worst.sort_by(|a, b| {
        verdicts[*b]
            .shortfall()
            .total_cmp(&verdicts[*a].shortfall())
    });
    worst
}

/// Scenario `index` of the set with this seed.
pub fn scenario(seed: u64, index: u64) -> Scenario {
    let text = scenario_text(seed, index);
    Scenario::read("random", text.as_bytes()).expect("generated scenarios are valid")
}

/// Runs each scenario with its own seed, on all processors; the results are in the same order.
/// `done` is called after each run with the number of finished ones.
pub fn simulate_all(scenarios: &[Scenario], done: &mut (dyn FnMut(usize) + Send)) -> Vec<Figures> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new((0, done));
    let work = || {
        let mut results = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(scenario) = scenarios.get(index) else {
                return results;
            };
            results.push((index, simulate(scenario, scenario.seed)));
            if let Ok(mut done) = done.lock() {
                done.0 += 1;
                let count = done.0;
                (done.1)(count);
            }
        }
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let mut results = thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let results = workers.into_iter().map(|worker| worker.join());
        let results = results.map(|result| result.expect("simulations do not panic"));
        results.flatten().collect::<Vec<_>>()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, figures)| figures).collect()
}

#[cfg(test)]
mod tests;
