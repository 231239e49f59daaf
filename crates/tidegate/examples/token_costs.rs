//! Known limits, and requests that do not all cost the same: the tokens of a language model.
//!
//! ```sh
//! cargo run -p tidegate --features tokio --example token_costs
//! ```
//!
//! The account may use 10 000 tokens in any minute. What a request will use is only guessed
//! beforehand; what it did use is said when it is settled, and the difference is there for the
//! next. Time is virtual, see `plain_function.rs`.

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::error::Error;
use std::time::Duration;

use tidegate::{Ask, Clock, GateOptions, Limiter, Outcome, Strategy};
use tokio::time::sleep;

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    run().await.map(drop)
}

/// Returns when each request left.
pub async fn run() -> Result<Vec<Duration>, Box<dyn Error>> {
    let tokens = GateOptions {
        // The limit alone decides; the rate only keeps one minute's worth from leaving at once.
        strategy: Some(Strategy::Fixed),
        initial_rate: Some(2_000.0),
        limits: Some(vec!["10000/1m".parse()?]),
        // This ask waits for the next minute.
        max_wait: Some(Duration::from_secs(90)),
        ..GateOptions::default()
    };
    let limiter = Limiter::builder()
        .gate(tokens.build()?)
        .clock(Clock::tokio())
        .build();
    let began = limiter.clock().now();

    let mut left = Vec::new();
    for (guess, used) in [(4_000, 1_500), (4_000, 3_000), (4_000, 4_200), (4_000, 900)] {
        let ask = Ask::new("llm.example.com/account:42").cost(guess);
        let permit = limiter.acquire(ask).await?;
        let at = permit.admitted_at().since(began);
        println!("{:7.3} s  guessed {guess}, used {used}", at.as_secs_f64());
        left.push(at);

        sleep(Duration::from_millis(400)).await; // the model answers
        let mut outcome = Outcome::status(200, Duration::from_millis(400));
        outcome.used = Some(used);
        permit.settle(&outcome);
    }
    println!("without the corrections the third would have waited for the next minute");
    Ok(left)
}
