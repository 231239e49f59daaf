//! Settings by host, changed while tasks wait.
//!
//! ```sh
//! cargo run -p tidegate --features tokio --example settings_at_run_time
//! ```
//!
//! Five tasks send to a host at one request per second. After two and a half seconds the rate is
//! raised to a hundred: waiting tasks stay in line and leave at the new rate. Time is virtual, see
//! `plain_function.rs`.

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::error::Error;
use std::time::Duration;

use tidegate::{Clock, GateSettings, Limiter, Outcome};
use tokio::task::JoinSet;
use tokio::time::sleep;

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    run().await.map(drop)
}

/// Returns when each of the five tasks was admitted.
pub async fn run() -> Result<Vec<Duration>, Box<dyn Error>> {
    let limiter = Limiter::builder()
        .host("*.example.com".parse()?, GateSettings::fixed(1.0))
        .clock(Clock::tokio())
        .build();
    let began = limiter.clock().now();

    let mut tasks = JoinSet::new();
    for number in 1..=5 {
        let limiter = limiter.clone();
        tasks.spawn(async move {
            let permit = limiter.acquire("api.example.com").await?;
            let left = permit.admitted_at().since(began);
            println!("  {:.3} s  request {number} left", left.as_secs_f64());
            permit.settle(&Outcome::status(200, Duration::from_millis(20)));
            Ok::<_, tidegate::Refusal>(left)
        });
    }

    sleep(Duration::from_millis(2500)).await;
    println!("  2.500 s  the owner allows a hundred per second");
    limiter.set_host("api.example.com".parse()?, GateSettings::fixed(100.0))?;

    let mut all = Vec::new();
    while let Some(left) = tasks.join_next().await {
        all.push(left??);
    }
    Ok(all)
}
