//! A pool of two endpoints: when one fails, the next attempt goes to the other, and the first is
//! paused.
//!
//! ```sh
//! cargo run -p tidegate --example pool_failover
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

#[path = "support/server.rs"]
mod server;

use std::error::Error;

use server::{Answer, serve};
use tidegate::{BackoffOptions, GateSettings, Limiter, Pool};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    run().await.map(drop)
}

/// Returns the bodies of three calls, in order.
pub async fn run() -> Result<Vec<String>, Box<dyn Error>> {
    let broken = serve(|_, _| Answer(503, "", "out of order".to_owned())).await?;
    let working = serve(|number, _| Answer(200, "", format!("answer {number}"))).await?;

    // So fast that no request waits in this example.
    let fast = GateSettings::builder().initial_rate(1000.0).build()?;
    let limiter = Limiter::builder().gate(fast).build();
    let pool = Pool::new("llm", &limiter);
    pool.add("a", "a.example.com", format!("http://{broken}/"));
    pool.add("b", "b.example.com", format!("http://{working}/"));

    let client = reqwest::Client::new();
    let mut backoff = BackoffOptions::default();
    backoff.set("base", "10ms")?;
    let backoff = backoff.build()?;

    let mut bodies = Vec::new();
    for _ in 0..3 {
        let called = pool
            .call()
            .backoff(&backoff)
            .run(async |attempt, endpoint| {
                let response = client.get(endpoint.data()).send().await?;
                let outcome = attempt.response(response.status().as_u16(), response.headers());
                let body = response.text().await?;
                println!("  {}: {body}", endpoint.name());
                Ok(attempt.classify(outcome, body))
            })
            .await?;
        println!("sent {} time(s): {}", called.sent, called.value);
        bodies.push(called.value);
    }
    for endpoint in pool.view() {
        let (errors, last) = (endpoint.consecutive_errors, endpoint.last_error);
        println!("endpoint {}: {errors} error(s) {last:?}", endpoint.name);
    }
    Ok(bodies)
}
