//! The request is sent before the limiter gets it.

use tidegate::Limiter;

async fn send(limiter: &Limiter, client: &reqwest::Client) {
    let request = client.get("https://api.example.com/").send();
    let _ = limiter.send(client, request).await;
}

fn main() {}
