//! A fleet that uses many keys: overshoot, fairness and what the store has to do.
//!
//! Each key is an upstream of its own with one limit, and a scenario of its own, because keys affect each
//! other in one way only: what a node says about several of them goes into one call of the store. Every
//! change of a key in the store is simulated; which of them share a call is worked out afterwards, from
//! the times at which nodes sent them.
//!
//! Demand follows Zipf's law: the key of rank 2 is asked half as often as that of rank 1, and so on. Every
//! node asks for every key equally often.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use policy::random::Random;
use policy::time::Timestamp;

use crate::client::{ClientSettings, Strategy};
use crate::fleet::{FleetSettings, StoreSettings};
use crate::load::{Backlog, Start};
use crate::measure::Figures;
use crate::scenario::Scenario;
use crate::simulate::simulate_calls;
use crate::upstream::{Kind, UpstreamSettings};

/// A fleet and its keys.
#[derive(Clone, Debug, PartialEq)]
pub struct KeysSettings {
    /// How many nodes share the keys.
    pub nodes: u32,
    /// How many keys there are.
    pub keys: u32,
    /// What the upstream of each key accepts per second; it also accepts a tenth of this at once.
    pub limit: f64,
    /// Requests per second that each node has for all keys together.
    pub asked: f64,
    /// The length of the run.
    pub duration: Duration,
    /// What the keys are shared through.
    pub store: StoreSettings,
}

/// What happened at one key.
#[derive(Clone, Debug)]
pub struct KeyFigures {
    /// 1 is the key that is asked for most.
    pub rank: u32,
    /// Requests per second that all nodes have for it.
    pub asked: f64,
    /// The figures of its run.
    pub figures: Figures,
    /// How often it was looked at and changed in the store.
    pub updates: u64,
}

/// What happened at all keys.
#[derive(Clone, Debug)]
pub struct KeysFigures {
    /// Every key, by rank.
    pub keys: Vec<KeyFigures>,
    /// Calls of the store, each with up to [`MAX_KEYS_PER_CALL`] keys.
    pub calls: u64,
}

/// What a node says in one call.
pub const MAX_KEYS_PER_CALL: usize = 32;

/// Runs every key, on so many threads. The result does not depend on how many.
pub fn simulate_keys(settings: &KeysSettings, seed: u64, threads: usize) -> KeysFigures {
    let next = AtomicU32::new(1);
    let work = || Worker::new(settings).run(seed, &next);
    let workers: Vec<Worker<'_>> = thread::scope(|scope| {
        let started: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        let ended = started.into_iter().map(thread::ScopedJoinHandle::join);
        ended.map(|it| it.expect("no run panics")).collect()
    });
    let mut said = vec![Vec::new(); settings.nodes as usize];
    let mut keys = Vec::new();
    for worker in workers {
        keys.extend(worker.keys);
        for (all, some) in said.iter_mut().zip(worker.said) {
            all.extend(some);
        }
    }
    keys.sort_by_key(|key| key.rank);
    let together = settings.store.values.interval / 5;
    let calls = said.into_iter().map(|times| calls(times, together)).sum();
    KeysFigures { keys, calls }
}

impl KeysSettings {
    /// Requests per second that all nodes have for the key of this rank.
    pub fn asked_of(&self, rank: u32) -> f64 {
        let weights: f64 = (1..=self.keys).map(|rank| 1.0 / f64::from(rank)).sum();
        self.asked * f64::from(self.nodes) / (weights * f64::from(rank))
    }

    /// The run of one key. Nodes ask in turn, each at times of its own.
    fn scenario(&self, rank: u32) -> Scenario {
        let asked_by_node = self.asked_of(rank) / f64::from(self.nodes);
        let client = ClientSettings {
            fleet: Some(FleetSettings {
                nodes: self.nodes,
                store: self.store.clone(),
                down: Vec::new(),
            }),
            backlog: Backlog::PerSecond(asked_by_node),
            start: Start {
                from: Duration::ZERO,
                to: Duration::from_secs_f64(1.0 / asked_by_node),
            },
            ..ClientSettings::of(Strategy::Adaptive)
        };
        let upstream = UpstreamSettings::of(Kind::Bucket {
            rate: self.limit,
            burst: self.limit / 10.0,
        });
        Scenario {
            duration: self.duration,
            ..Scenario::of(upstream, vec![client])
        }
    }
}

impl KeysFigures {
    /// Requests that were sent, of all keys.
    pub fn sent(&self) -> u64 {
        self.keys.iter().map(|key| key.figures.sent).sum()
    }

    /// Requests that were refused, of all keys.
    pub fn refused(&self) -> u64 {
        self.keys.iter().map(|key| key.figures.refused).sum()
    }

    /// Changes of keys in the store.
    pub fn updates(&self) -> u64 {
        self.keys.iter().map(|key| key.updates).sum()
    }

    /// The highest peak of all keys: the most that was sent in ten seconds, over what the limit allows.
    pub fn peak(&self) -> Option<f64> {
        let peaks = self.keys.iter().filter_map(|key| key.figures.peak_ratio);
        peaks.reduce(f64::max)
    }
}

/// Runs some of the keys.
struct Worker<'s> {
    settings: &'s KeysSettings,
    keys: Vec<KeyFigures>,
    /// When each node said something, in [`TICK`]s.
    said: Vec<Vec<u32>>,
}

/// Short beside the time for which calls are gathered; five days of them fit.
const TICK: Duration = Duration::from_micros(100);

impl<'s> Worker<'s> {
    fn new(settings: &'s KeysSettings) -> Self {
        Self {
            settings,
            keys: Vec::new(),
            said: vec![Vec::new(); settings.nodes as usize],
        }
    }

    /// Takes keys until there is none left.
    fn run(mut self, seed: u64, next: &AtomicU32) -> Self {
        loop {
            let rank = next.fetch_add(1, Ordering::Relaxed);
            if rank > self.settings.keys {
                return self;
            }
            self.run_key(rank, seed);
        }
    }

    fn run_key(&mut self, rank: u32, seed: u64) {
        let scenario = self.settings.scenario(rank);
        // Neighbouring numbers give unrelated streams.
        let seed = Random::from_seed(seed ^ (u64::from(rank) << 32)).next_u64();
        let mut updates = 0;
        let figures = simulate_calls(&scenario, seed, &mut |node, at| {
            updates += 1;
            let ticks = at.since(Timestamp::ZERO).as_nanos() / TICK.as_nanos();
            self.said[node as usize - 1].push(u32::try_from(ticks).unwrap_or(u32::MAX));
        });
        self.keys.push(KeyFigures {
            rank,
            asked: self.settings.asked_of(rank),
            figures,
            updates,
        });
    }
}

/// How many calls a node made that said something at these times: what is due soon after something
/// else goes along with it.
fn calls(mut times: Vec<u32>, together: Duration) -> u64 {
    let together = u32::try_from(together.as_nanos() / TICK.as_nanos()).unwrap_or(u32::MAX);
    times.sort_unstable();
    let mut rest = &times[..];
    let mut calls = 0;
    while let Some(first) = rest.first() {
        let due = rest.partition_point(|at| *at <= first.saturating_add(together));
        rest = &rest[due.min(MAX_KEYS_PER_CALL)..];
        calls += 1;
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::{Cut, NodeRange, StoreValues};

    /// Two keys are asked for more often than their limit allows.
    fn settings() -> KeysSettings {
        KeysSettings {
            nodes: 50,
            keys: 200,
            limit: 100.0,
            asked: 24.0,
            duration: Duration::from_secs(160),
            store: StoreSettings {
                values: StoreValues {
                    loss: 0.001,
                    ..StoreSettings::default().values
                },
                partitions: vec![Cut {
                    from: Timestamp::from_secs(90),
                    to: Timestamp::from_secs(110),
                    nodes: NodeRange { first: 1, last: 5 },
                }],
                ..StoreSettings::default()
            },
        }
    }

    #[test]
    fn many_keys_keep_to_their_limits_with_a_lossy_and_divided_store() {
        let settings = settings();
        let figures = simulate_keys(&settings, 1, 2);
        assert_eq!(figures.keys.len(), 200);
        assert!(figures.peak().unwrap() < 1.05, "{:?}", figures.peak());
        let (sent, refused) = (figures.sent(), figures.refused());
        assert!(refused * 100 < sent, "{refused} of {sent} refused");
        for key in &figures.keys {
            let goodput = key.figures.goodput_ratio_settled.unwrap_or(1.0);
            let is_busy = key.asked > settings.limit;
            assert!(!is_busy || goodput > 0.93, "{}: {goodput}", key.rank);
            let jain = key.figures.jain.filter(|_| is_busy);
            assert!(
                jain.is_none_or(|jain| jain > 0.98),
                "{}: {jain:?}",
                key.rank
            );
        }
        assert!(figures.calls < figures.updates(), "calls are shared");
    }

    #[test]
    fn the_number_of_threads_does_not_matter() {
        let settings = KeysSettings {
            nodes: 3,
            keys: 4,
            duration: Duration::from_secs(20),
            ..settings()
        };
        let [one, three] = [1, 3].map(|threads| simulate_keys(&settings, 7, threads));
        assert_eq!(one.calls, three.calls);
        for (one, three) in one.keys.iter().zip(&three.keys) {
            assert_eq!((one.rank, &one.figures), (three.rank, &three.figures));
        }
    }

    #[test]
    fn what_is_due_together_is_one_call_of_at_most_so_many_keys() {
        let together = Duration::from_millis(20);
        assert_eq!(calls(vec![1000, 0, 200, 201], together), 3);
        assert_eq!(calls(vec![5; 2 * MAX_KEYS_PER_CALL + 1], together), 3);
        assert_eq!(calls(Vec::new(), together), 0);
    }
}
