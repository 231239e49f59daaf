//! A reqwest client behind a limiter: one line for each request.
//!
//! ```sh
//! cargo run -p tidegate --features reqwest --example reqwest_client
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

#[path = "support/server.rs"]
mod server;

use std::error::Error;

use reqwest::{Client, redirect, retry};
use server::{Answer, serve};
use tidegate::call::Trail;
use tidegate::{GateSettings, Limiter};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    run().await.map(drop)
}

/// Returns the fetched bodies.
pub async fn run() -> Result<Vec<String>, Box<dyn Error>> {
    // The second response asks to slow down, in one of many dialects.
    let server = serve(|number, path| match number {
        2 => Answer(429, "retry-after-ms: 30\r\n", String::new()),
        _ => Answer(200, "", format!("{path} is response {number}")),
    })
    .await?;

    // Faster than the default, because this is an example.
    let fast = GateSettings::builder().initial_rate(1000.0).build()?;
    let limiter = Limiter::builder().gate(fast).build();
    // Gates cannot see retries and redirects made by the client itself.
    let client = Client::builder()
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .build()?;

    let mut bodies = Vec::new();
    for path in ["one", "two"] {
        let request = client.get(format!("http://{server}/{path}"));
        let response = limiter.send(&client, request).await?;
        let trail = response.extensions().get::<Trail>().cloned();
        let body = response.text().await?;
        println!("{body}");
        for step in trail.iter().flat_map(Trail::steps) {
            println!("  {}", step.decision);
        }
        bodies.push(body);
    }
    Ok(bodies)
}
