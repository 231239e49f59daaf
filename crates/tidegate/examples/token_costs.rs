//! Known limits, and requests with different costs: the tokens of a language model.
//!
//! ```sh
//! cargo run -p tidegate --features tokio --example token_costs
//! ```
//!
//! The account may use 10 000 tokens in any minute. The cost of a request is only estimated
//! beforehand; the actual cost is reported when it is settled, and the difference is available to
//! the next request. Time is virtual, see `plain_function.rs`.

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::error::Error;
use std::time::Duration;

use tidegate::{Ask, Clock, GateOptions, Limiter, Outcome, Strategy};
use tokio::time::sleep;

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    run().await.map(drop)
}

/// Returns when each request was sent.
pub async fn run() -> Result<Vec<Duration>, Box<dyn Error>> {
    let tokens = GateOptions {
        // Only the limit matters; the rate just prevents a burst of a whole minute's worth.
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
