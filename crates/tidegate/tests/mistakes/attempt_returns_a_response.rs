//! The function of a call returns the response instead of an `AttemptResult`.

use tidegate::Limiter;

async fn fetch() -> std::io::Result<String> {
    Ok(String::new())
}

async fn call(limiter: &Limiter) {
    let _ = limiter.call("api.example.com").run(async |_attempt| fetch().await).await;
}

fn main() {}
