//! A loop over a list of URLs with reqwest: what a Rust program without gates, retries, records and
//! parsing spends.

use std::error::Error;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use reqwest::Client;

/// Fetches every URL of a file, `concurrency` at once, and reads the bodies to their end.
pub(crate) async fn fetch(list: &str, concurrency: usize) -> Result<(), Box<dyn Error>> {
    let list = std::fs::read_to_string(list)?;
    let client = Client::new();
    stream::iter(list.lines())
        .map(|url| read(&client, url))
        .buffer_unordered(concurrency)
        .try_for_each(|()| async { Ok(()) })
        .await?;
    Ok(())
}

async fn read(client: &Client, url: &str) -> reqwest::Result<()> {
    let mut response = client.get(url).send().await?.error_for_status()?;
    while response.chunk().await?.is_some() {}
    Ok(())
}
