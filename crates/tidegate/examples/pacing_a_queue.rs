//! A worker paced by its recent failures, for upstreams that only succeed or fail.
//!
//! ```sh
//! cargo run -p tidegate --features tokio --example pacing_a_queue
//! ```
//!
//! [`tidegate::pace`] waits for the gap before every attempt: 30 s, and 30 s more for every failure
//! that still counts. Time is virtual, see `plain_function.rs`.

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::collections::VecDeque;
use std::error::Error;
use std::time::Duration;

use tidegate::Clock;
use tidegate::pace::{FailureQueueSettings, Pace, WorkResult};
use tokio::time::sleep;

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    run().await.map(drop)
}

/// Returns the fetched items and the total time.
pub async fn run() -> Result<(Vec<&'static str>, Duration), Box<dyn Error>> {
    let clock = Clock::tokio();
    let pace = Pace::with_clock(FailureQueueSettings::default(), clock.clone());
    let began = clock.now();

    let mut queue: VecDeque<Item> = ["one", "two", "three", "four"].map(Item::new).into();
    let mut fetched = Vec::new();
    let mut attempts = 0;
    while let Some(mut item) = queue.pop_front() {
        attempts += 1;
        let work = async || fetch(attempts).await;
        let result = pace.run(work, WorkResult::of).await?;
        item.attempts += 1;
        match result {
            Ok(()) => fetched.push(item.name),
            Err(_) if item.attempts < pace.settings().attempts() => queue.push_back(item),
            Err(_) => {}
        }
        println!(
            "{:4} s  {} {}, next gap {} s",
            clock.now().since(began).as_secs(),
            item.name,
            if result.is_ok() { "worked" } else { "failed" },
            pace.view().gap.as_secs(),
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

/// The site fails for a while: the second and third attempt time out.
async fn fetch(attempt: u32) -> Result<(), &'static str> {
    sleep(Duration::from_secs(2)).await;
    match attempt {
        2 | 3 => Err("timed out"),
        _ => Ok(()),
    }
}
