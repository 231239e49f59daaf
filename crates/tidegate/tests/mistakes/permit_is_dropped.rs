//! A permit is dropped before the request is sent.

#![deny(unused_must_use)]

use tidegate::{Limiter, Refusal};

async fn send(limiter: &Limiter) -> Result<(), Refusal> {
    limiter.acquire("api.example.com").await?;
    Ok(())
}

fn main() {}
