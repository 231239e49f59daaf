//! A pool of three API keys, one of which is not valid: no call fails, and the bad key is set aside.
//!
//! ```sh
//! cargo run -p tidegate --example pool_of_keys
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

#[path = "support/server.rs"]
mod server;

use std::error::Error;

use server::{Answer, serve};
use tidegate::{AttemptResult, GateSettings, Limiter, Pool};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    run().await.map(drop)
}

/// Returns how many of nine calls succeeded, and how many requests were sent with the bad key.
pub async fn run() -> Result<(u32, u32), Box<dyn Error>> {
    // A server that knows two of the three keys; the path stands for the key.
    let server = serve(|_, path| match path {
        "/revoked" => Answer(401, "", "invalid API key".to_owned()),
        _ => Answer(200, "", format!("hello {path}")),
    })
    .await?;

    let fast = GateSettings::builder().initial_rate(1000.0).build()?;
    let limiter = Limiter::builder().gate(fast).build();
    // Each key has a gate of its own: the server counts requests by key.
    let pool = Pool::new("llm", &limiter);
    for key in ["first", "revoked", "third"] {
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
                Ok(AttemptResult::new(response.text().await?, outcome))
            })
            .await?;
        println!("sent {} time(s): {}", called.sent, called.value);
        succeeded += 1;
        rejected += called.sent - 1;
    }
    for endpoint in pool.view() {
        let (errors, last) = (endpoint.consecutive_errors, endpoint.last_error);
        println!("key {}: {errors} error(s) {last:?}", endpoint.name);
    }
    Ok((succeeded, rejected))
}
