//! A gate around a plain async function: no HTTP, just a service that may ask to slow down.
//!
//! ```sh
//! cargo run -p tidegate --features tokio --example plain_function
//! ```
//!
//! Time is virtual here: `start_paused` pauses the runtime's clock, and [`Clock::tokio`] makes the
//! limiter use it. Remove both, and the same program waits in real time.

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::cell::Cell;
use std::error::Error;
use std::time::Duration;

use tidegate::{AttemptResult, Clock, Limiter, Outcome};

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    run().await.map(drop)
}

/// The key of the gate: any text that names the service.
const KEY: &str = "inventory";

/// Makes two requests, and returns how many times the inventory was called.
pub async fn run() -> Result<u32, Box<dyn Error>> {
    let limiter = Limiter::builder().clock(Clock::tokio()).build();
    let clock = limiter.clock();
    let began = clock.now();
    let inventory = Inventory::default();

    // Manually: acquire a permit, do the work, report the outcome.
    let permit = limiter.acquire(KEY).await?;
    let sent = clock.now();
    let answer = inventory.count("anchor").await;
    let verdict = permit.settle(&outcome(&answer, clock.now().since(sent)));
    println!("by hand: {answer:?}, which is {verdict:?}");

    // As a call: the same, with retries.
    let called = limiter
        .call(KEY)
        .within(Duration::from_secs(60))
        .run(async |attempt| {
            let answer = inventory.count("buoy").await;
            let outcome = outcome(&answer, attempt.elapsed());
            AttemptResult::new(answer, outcome)
        })
        .await?;
    println!("as a call: {:?}", called.value);
    for step in called.trail.steps() {
        let seconds = step.at.since(began).as_secs_f64();
        println!("  {seconds:6.3} s  {}", step.decision);
    }
    Ok(inventory.asked.get())
}

/// A service that refuses its second call.
#[derive(Default)]
struct Inventory {
    asked: Cell<u32>,
}

#[derive(Debug)]
enum Refused {
    Busy { wait: Duration },
}

impl Inventory {
    async fn count(&self, item: &str) -> Result<usize, Refused> {
        tokio::time::sleep(Duration::from_millis(40)).await;
        self.asked.set(self.asked.get() + 1);
        if self.asked.get() == 2 {
            let wait = Duration::from_secs(3);
            return Err(Refused::Busy { wait });
        }
        Ok(item.len())
    }
}

/// The outcome that the gate learns from.
fn outcome(answer: &Result<usize, Refused>, latency: Duration) -> Outcome {
    match answer {
        Ok(_) => Outcome::success(latency),
        Err(Refused::Busy { wait }) => Outcome::throttled(latency, Some(*wait)),
    }
}
