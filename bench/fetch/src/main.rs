//! The programs that `scripts/bench-fetch` needs besides the peers.
//!
//! - `serve HOSTS`: an HTTP server on 127.0.0.1, 127.0.0.2 … with one port; see `server.rs`.
//! - `reqwest LIST CONCURRENCY`: fetches the URLs of a file with reqwest and nothing else; see `client.rs`.

use std::error::Error;

mod client;
mod server;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["serve", hosts] => server::serve(hosts.parse()?).await,
        ["reqwest", list, concurrency] => client::fetch(list, concurrency.parse()?).await,
        _ => Err("usage: tidegate-bench-fetch serve HOSTS | reqwest LIST CONCURRENCY".into()),
    }
}
