//! A worker that paces itself by its recent failures, for upstreams of which nothing can be read
//! but "it worked" or "it did not".
//!
//! ```sh
//! cargo run -p tidegate --features tokio --example pacing_a_queue
//! ```
//!
//! [`tidegate::policy::failure_queue`] says how long the gap before the next attempt is: 30 s, and
//! 30 s more for every failure that still counts. Time is virtual, see `plain_function.rs`.

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::collections::VecDeque;
use std::error::Error;
use std::time::Duration;

use tidegate::Clock;
use tidegate::policy::failure_queue::{FailureQueue, FailureQueueSettings};
use tidegate::policy::random::Random;
use tokio::time::sleep;

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    run().await.map(drop)
}

/// Returns what could be fetched, and how long everything took.
pub async fn run() -> Result<(Vec<&'static str>, Duration), Box<dyn Error>> {
    let clock = Clock::tokio();
    let settings = FailureQueueSettings::default();
    let mut failures = FailureQueue::new();
    let mut random = Random::from_seed(1);
    let began = clock.now();

    let mut queue: VecDeque<Item> = ["one", "two", "three", "four"].map(Item::new).into();
    let mut fetched = Vec::new();
    let mut last_end = None;
    let mut attempts = 0;
    while let Some(mut item) = queue.pop_front() {
        let start = failures.start(&settings, last_end, clock.now(), &mut random);
        clock.sleep_until(start).await;

        attempts += 1;
        let worked = fetch(attempts).await;
        let now = clock.now();
        last_end = Some(now);
        item.attempts += 1;
        if worked {
            failures.succeeded(&settings, now);
            fetched.push(item.name);
        } else {
            failures.failed(&settings, now);
            if item.attempts < settings.attempts() {
                queue.push_back(item);
            }
        }
        println!(
            "{:4} s  {} {}, next gap {} s",
            now.since(began).as_secs(),
            item.name,
            if worked { "worked" } else { "failed" },
            failures.gap(&settings, now).as_secs(),
        );
    }
    Ok((fetched, clock.now().since(began)))
}

#[derive(Clone, Copy)]
struct Item {
    name: &'static str,
    attempts: u32,
}

impl Item {
    fn new(name: &'static str) -> Self {
        Self { name, attempts: 0 }
    }
}

/// The site has a bad spell: the second and third attempt fail.
async fn fetch(attempt: u32) -> bool {
    sleep(Duration::from_secs(2)).await;
    !matches!(attempt, 2 | 3)
}
