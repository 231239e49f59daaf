//! A call and a request are made, and never run.

#![deny(unused_must_use)]

use tidegate::Limiter;

fn call(limiter: &Limiter, client: &reqwest::Client) {
    limiter.call("api.example.com");
    limiter.send(client, client.get("https://api.example.com/"));
}

fn main() {}
