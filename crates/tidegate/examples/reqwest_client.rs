//! A reqwest client behind a limiter: keys from URLs, hints from headers, failures from errors.
//!
//! ```sh
//! cargo run -p tidegate --features http --example reqwest_client
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

#[path = "support/server.rs"]
mod server;

use std::error::Error;

use reqwest::{redirect, retry};
use server::{Answer, serve};
use tidegate::http::{self, Head};
use tidegate::{
    AttemptResult, BackoffOptions, BackoffSettings, CallError, GateOptions, GateSettings, Limiter,
    SettingErrors,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    run().await.map(drop)
}

/// Returns the fetched bodies and the number of requests that the server received.
pub async fn run() -> Result<(Vec<String>, u32), Box<dyn Error>> {
    // The second response asks to slow down, in one of many dialects.
    let server = serve(|number, path| match number {
        2 => Answer(429, "retry-after-ms: 30\r\n", String::new()),
        _ => Answer(200, "", format!("{path} is answer {number}")),
    })
    .await?;

    let site = Site {
        limiter: Limiter::builder().gate(fast()?).build(),
        // Gates cannot see retries and redirects made by the client itself.
        client: reqwest::Client::builder()
            .redirect(redirect::Policy::none())
            .retry(retry::never())
            .build()?,
        backoff: quick()?,
    };
    let (mut bodies, mut sent) = (Vec::new(), 0);
    for path in ["one", "two"] {
        let url = format!("http://{server}/{path}");
        let (body, times) = site.fetch(&url).await?;
        println!("{body}");
        sent += times;
        bodies.push(body);
    }

    match site.fetch("http://127.0.0.1:1/no-listener").await {
        Ok((body, _)) => println!("{body}"),
        Err(error) => println!("{error}"),
    }
    Ok((bodies, sent))
}

struct Site {
    limiter: Limiter,
    client: reqwest::Client,
    backoff: BackoffSettings,
}

impl Site {
    /// Returns the body and how many times the request was sent.
    async fn fetch(&self, url: &str) -> Result<(String, u32), Box<dyn Error>> {
        let key = http::key(&url.parse()?)?;
        let wall = || self.limiter.clock().wall();
        let call = self.limiter.call(&key).backoff(&self.backoff);
        let called = call
            .run(async |attempt| {
                let result = self.client.get(url).send().await;
                let outcome = match &result {
                    Ok(response) => Head::new(response.status(), response.headers())
                        .outcome(attempt.elapsed(), wall()),
                    Err(error) => http::failed(error, attempt.elapsed()),
                };
                AttemptResult::new(result, outcome)
            })
            .await
            .map_err(describe)?;
        Ok((called.value?.text().await?, called.sent))
    }
}

/// An error with all its decisions.
fn describe<T>(error: CallError<T>) -> String {
    let steps = error.trail.steps().iter();
    let steps: Vec<String> = steps.map(|step| format!("\n  {}", step.decision)).collect();
    format!("{error}{}", steps.concat())
}

/// Short waits, because this is an example.
fn quick() -> Result<BackoffSettings, SettingErrors> {
    let mut options = BackoffOptions::default();
    for (name, value) in [
        ("base", "5ms"),
        ("max_attempts", "2"),
        ("retry_after_jitter", "0s"),
    ] {
        options.set(name, value)?;
    }
    options.build()
}

fn fast() -> Result<GateSettings, SettingErrors> {
    let options = GateOptions {
        initial_rate: Some(1000.0),
        ..GateOptions::default()
    };
    options.build()
}
