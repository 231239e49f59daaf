//! Time per attempt, of all contenders in turns.
//!
//! Each has one state for all its turns, with every key known. A turn walks over the keys until its
//! time is up and looks at the clock only now and then.
//!
//! Time is wall time, less that in which a thread was ready to go on and others had the CPU: on a
//! machine with nothing else to do that is nothing, and on a busy one it is not the contender's.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use crate::Effort;
use crate::contender::{Contender, warm_up};
use crate::keys::walk;
use crate::others::time_ready;
use crate::ours::{DEFAULT, Ours};
use crate::peers::{Governor, GovernorFailsafe, GovernorRecloser};

/// Everything that was timed.
pub(crate) struct Throughput {
    pub(crate) one_key: Row,
    pub(crate) ten_thousand: Row,
    pub(crate) million: Row,
    /// Two threads, ten thousand keys.
    pub(crate) two_threads: Row,
}

/// The times of every contender over the same keys.
pub(crate) struct Row {
    pub(crate) ours: Times,
    pub(crate) governor: Times,
    pub(crate) governor_failsafe: Times,
    pub(crate) governor_recloser: Times,
}

/// The turns of one contender.
pub(crate) struct Times {
    /// Nanoseconds per attempt, a value for each turn, the fastest first.
    turns: Vec<f64>,
    /// Attempts that were turned away in all turns, although there is room for everyone.
    pub(crate) refused: u64,
    /// How much of the time others had the CPU.
    pub(crate) share_of_others: f64,
}

impl Times {
    fn new(walked: &[Walked]) -> Self {
        let mut turns: Vec<f64> = walked.iter().map(Walked::time_per_attempt).collect();
        turns.sort_by(f64::total_cmp);
        let sum = |time: fn(&Walked) -> Duration| walked.iter().map(time).sum::<Duration>();
        let (ready, wall) = (sum(|walked| walked.ready), sum(|walked| walked.wall));
        Self {
            turns,
            refused: walked.iter().map(|walked| walked.refused).sum(),
            share_of_others: ready.as_secs_f64() / wall.as_secs_f64(),
        }
    }

    pub(crate) fn fastest(&self) -> f64 {
        self.turns[0]
    }

    pub(crate) fn median(&self) -> f64 {
        self.turns[self.turns.len() / 2]
    }

    pub(crate) fn slowest(&self) -> f64 {
        self.turns[self.turns.len() - 1]
    }
}

pub(crate) fn measure(effort: Effort) -> Throughput {
    Throughput {
        one_key: measure_row(1, 1, effort),
        ten_thousand: measure_row(10_000, 1, effort),
        million: measure_row(effort.most_keys, 1, effort),
        two_threads: measure_row(10_000, 2, effort),
    }
}

fn measure_row(keys: usize, threads: u64, effort: Effort) -> Row {
    let walks: Vec<Vec<String>> = (1..=threads).map(|seed| walk(keys, STEPS, seed)).collect();
    let ours = known(Ours::new(DEFAULT), &walks[0]);
    let governor = known(Governor::new(), &walks[0]);
    let governor_failsafe = known(GovernorFailsafe::new(), &walks[0]);
    let governor_recloser = known(GovernorRecloser::new(), &walks[0]);

    let [ours, governor, governor_failsafe, governor_recloser] =
        in_turns(effort, |index, time| match index {
            0 => go_together(&ours, &walks, time),
            1 => go_together(&governor, &walks, time),
            2 => go_together(&governor_failsafe, &walks, time),
            _ => go_together(&governor_recloser, &walks, time),
        });
    Row {
        ours,
        governor,
        governor_failsafe,
        governor_recloser,
    }
}

/// Measures `N` contenders in turns: `go` lets the one with the given index walk for that long.
pub(crate) fn in_turns<const N: usize>(
    effort: Effort,
    go: impl Fn(usize, Duration) -> Walked,
) -> [Times; N] {
    let mut turns = [const { Vec::new() }; N];
    for _ in 0..effort.repeats {
        let mut turn = [const { Walked::NOTHING }; N];
        for _ in 0..SLICES {
            for (index, walked) in turn.iter_mut().enumerate() {
                walked.then(go(index, effort.turn / SLICES));
            }
        }
        for (turns, walked) in turns.iter_mut().zip(turn) {
            turns.push(walked);
        }
    }
    turns.map(|walked| Times::new(&walked))
}

fn known<C: Contender>(contender: C, walk: &[String]) -> C {
    warm_up(&contender, walk);
    contender
}

/// What one turn came to.
pub(crate) struct Walked {
    attempts: u64,
    refused: u64,
    wall: Duration,
    /// How much of it the thread was ready and had no CPU; the mean of several threads.
    ready: Duration,
}

impl Walked {
    const NOTHING: Self = Self {
        attempts: 0,
        refused: 0,
        wall: Duration::ZERO,
        ready: Duration::ZERO,
    };

    fn time_per_attempt(&self) -> f64 {
        (self.wall - self.ready).as_secs_f64() * 1e9 / self.attempts as f64
    }

    /// One more, afterwards.
    fn then(&mut self, next: Self) {
        self.attempts += next.attempts;
        self.refused += next.refused;
        self.wall += next.wall;
        self.ready += next.ready;
    }

    /// Several that were on their way at the same time.
    fn together(walked: &[Self]) -> Self {
        let threads = u32::try_from(walked.len()).expect("there are two");
        Self {
            attempts: walked.iter().map(|walked| walked.attempts).sum(),
            refused: walked.iter().map(|walked| walked.refused).sum(),
            wall: walked
                .iter()
                .map(|walked| walked.wall)
                .max()
                .expect("there are two"),
            ready: walked.iter().map(|walked| walked.ready).sum::<Duration>() / threads,
        }
    }
}

/// Goes on all walks at once, each in a thread of its own, and a single one in this thread.
pub(crate) fn go_together(
    contender: &impl Contender,
    walks: &[Vec<String>],
    time: Duration,
) -> Walked {
    let walked = match walks {
        [walk] => go(contender, walk, time),
        walks => go_in_threads(contender, walks, time),
    };
    let most = walked.attempts / 100;
    assert!(walked.refused <= most, "to be refused takes another time");
    walked
}

fn go_in_threads(contender: &impl Contender, walks: &[Vec<String>], time: Duration) -> Walked {
    let start = Barrier::new(walks.len());
    thread::scope(|scope| {
        let walkers = walks.iter().map(|walk| {
            scope.spawn(|| {
                start.wait();
                go(contender, walk, time)
            })
        });
        // All of them are there before the first is waited for.
        let walkers: Vec<_> = walkers.collect();
        let walked = walkers.into_iter().map(|walker| walker.join());
        let walked = walked.map(|walked| walked.expect("a walker does not panic"));
        Walked::together(&walked.collect::<Vec<Walked>>())
    })
}

/// Walks until `time` is over.
#[inline(never)]
fn go(contender: &impl Contender, walk: &[String], time: Duration) -> Walked {
    let (mut attempts, mut refused) = (0, 0);
    let ready_before = time_ready();
    let started = Instant::now();
    loop {
        for steps in walk.chunks(STEPS) {
            for key in steps {
                refused += u64::from(!contender.attempt(black_box(key)));
            }
            attempts += steps.len() as u64;
            let wall = started.elapsed();
            if wall >= time {
                return Walked {
                    attempts,
                    refused,
                    wall,
                    ready: time_ready().saturating_sub(ready_before).min(wall),
                };
            }
        }
    }
}

/// In how many slices a turn is cut, in which the contenders alternate: whatever else the machine
/// does for a while, it does to all of them. Each slice is long enough to fill the caches anew.
const SLICES: u32 = 4;

/// Attempts between two looks at the clock: a tenth of a nanosecond for each.
pub(crate) const STEPS: usize = 256;
