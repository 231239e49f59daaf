//! The code of the README: every block is here, so that it compiles. The example for any client is run as
//! well.

#![cfg(all(feature = "reqwest", feature = "tokio"))]

use std::cell::Cell;
use std::error::Error;
use std::time::Duration;

use http::Response;
use tidegate::{CallResult, Clock, Limiter};

const README: &str = include_str!("../README.md");

#[expect(dead_code, reason = "it is only compiled")]
async fn one_line(client: reqwest::Client) -> Result<reqwest::Response, Box<dyn Error>> {
    let limiter = Limiter::new();
    let response = limiter
        .send(&client, client.get("https://api.example.com/items"))
        .await?;
    Ok(response)
}

#[expect(
    dead_code,
    clippy::print_stdout,
    reason = "it is a program, which is only compiled"
)]
mod start {
    use tidegate::Limiter;

    #[tokio::main]
    async fn main() -> Result<(), Box<dyn std::error::Error>> {
        let client = reqwest::Client::new();
        let limiter = Limiter::new(); // one for the whole program; clones share it
        let response = limiter
            .send(&client, client.get("https://example.com/"))
            .await?;
        println!("{}", response.status());
        Ok(())
    }
}

type BoxError = Box<dyn Error + Send + Sync>;

async fn any_client(
    limiter: &Limiter,
    fetch: impl AsyncFn(&str) -> std::io::Result<Response<String>>,
) -> Result<CallResult<String>, BoxError> {
    let called = limiter
        .call("api.example.com")
        .run(async |attempt| {
            let response = fetch("https://api.example.com/items").await?;
            let outcome = attempt.response(response.status().as_u16(), response.headers());
            Ok(attempt.classify(outcome, response.into_body()))
        })
        .await?;
    Ok(called)
}

/// The text without white space: the README's lines are broken where it reads well.
fn packed(text: &str) -> String {
    text.split_whitespace().collect()
}

#[test]
fn every_block_is_compiled_here() {
    let source = packed(include_str!("readme.rs"));
    let blocks: Vec<&str> = README.split("```rust\n").skip(1).collect();
    assert_eq!(blocks.len(), 3);
    for block in blocks {
        let block = block.split("```").next().expect("it ends");
        assert!(
            source.contains(&packed(block)),
            "not in this file:\n{block}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn example_for_any_client_waits_as_the_server_says() {
    let limiter = Limiter::builder().clock(Clock::tokio()).build();
    let began = limiter.clock().now();
    let sent = Cell::new(0);
    let fetch = async |_: &str| {
        sent.set(sent.get() + 1);
        let response = match sent.get() {
            1 => Response::builder().status(429).header("retry-after", "20"),
            _ => Response::builder().status(200),
        };
        Ok(response.body("hello".to_owned()).expect("valid headers"))
    };
    let called = any_client(&limiter, fetch).await.unwrap();
    assert_eq!((called.value.as_str(), called.sent), ("hello", 2));
    let waited = limiter.clock().now().since(began);
    assert!(waited >= Duration::from_secs(20), "{waited:?}");
}
