//! A pool of three API keys, of which one is not valid and one has used up its quota: no call fails, and
//! both are set aside.
//!
//! ```sh
//! cargo run -p tidegate --example pool_of_keys
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

#[path = "support/server.rs"]
mod server;

use std::error::Error;

use server::{Answer, serve};
use tidegate::pool::EndpointView;
use tidegate::{GateSettings, Limiter, Pool};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    run().await.map(drop)
}

/// Returns how many of nine calls succeeded, how many requests were sent with the bad keys, and what the
/// pool knows of its keys.
pub async fn run() -> Result<(u32, u32, Vec<EndpointView>), Box<dyn Error>> {
    // The path stands for the key. Only the bodies say that the other keys are of no use: a 403 may be
    // about the request, and a 429 about the pace.
    let server = serve(|_, path| match path {
        "/revoked" => Answer(403, "", r#"{"error":"Invalid API key"}"#.to_owned()),
        "/spent" => {
            let code = r#"{"error":{"code":"insufficient_quota"}}"#;
            Answer(429, "", code.to_owned())
        }
        _ => Answer(200, "", format!("hello {path}")),
    })
    .await?;

    let fast = GateSettings::builder().initial_rate(1000.0).build()?;
    let limiter = Limiter::builder().gate(fast).build();
    // Each key has a gate of its own: the server counts requests by key.
    let pool = Pool::new("llm", &limiter);
    for key in ["first", "revoked", "spent"] {
        pool.add(key, "llm.example.com", format!("http://{server}/{key}"));
    }

    let client = reqwest::Client::new();
    let (mut succeeded, mut rejected) = (0, 0);
    for _ in 0..9 {
        let called = pool
            .call()
            .run(async |attempt, endpoint| {
                let response = client.get(endpoint.data()).send().await?;
                let outcome = attempt.response(response.status().as_u16(), response.headers());
                Ok(attempt.classify(outcome, response.text().await?))
            })
            .await?;
        println!("sent {} time(s): {}", called.sent, called.value);
        succeeded += 1;
        rejected += called.sent - 1;
    }
    let keys = pool.view();
    for key in &keys {
        let (until, disabled) = (key.paused_until, key.disabled);
        println!(
            "key {}: paused until {until:?}, disabled: {disabled:?}",
            key.name
        );
    }
    Ok((succeeded, rejected, keys))
}
