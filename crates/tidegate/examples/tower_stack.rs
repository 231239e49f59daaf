//! hyper's client in a tower stack: a timeout per attempt inside, retries with permits around it.
//!
//! ```sh
//! cargo run -p tidegate --features tower --example tower_stack
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

#[path = "support/server.rs"]
mod server;

use std::error::Error;
use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use server::{Answer, serve};
use tidegate::call::Trail;
use tidegate::tower::RetryLayer;
use tidegate::{BackoffOptions, BackoffSettings, GateSettings, Limiter, SettingErrors};
use tower::timeout::TimeoutLayer;
use tower::{ServiceBuilder, ServiceExt};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    run().await.map(drop)
}

/// Returns the body, and the decisions on the way to it.
pub async fn run() -> Result<(String, Vec<String>), Box<dyn Error>> {
    let server = serve(|number, _| match number {
        1 => Answer(502, "", String::new()),
        _ => Answer(200, "", "hello".to_owned()),
    })
    .await?;

    let fast = GateSettings::builder().initial_rate(1000.0).build()?;
    let limiter = Limiter::builder().gate(fast).build();
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<&[u8]>>();
    let client = ServiceBuilder::new()
        // For everything together, including waits:
        .layer(
            RetryLayer::new(limiter.clone())
                .within(Duration::from_secs(10))
                .backoff(quick()?),
        )
        // For one attempt:
        .layer(TimeoutLayer::new(Duration::from_secs(2)))
        .service(client);

    let request = Request::get(format!("http://{server}/greeting")).body(Empty::new())?;
    let response = client.oneshot(request).await?;
    let trail = response.extensions().get::<Trail>();
    let steps = trail.map(Trail::steps).unwrap_or_default();
    let steps: Vec<String> = steps.iter().map(|step| step.decision.to_string()).collect();
    let body = response.into_body().collect().await?.to_bytes();
    let body = String::from_utf8(body.to_vec())?;
    println!("{body}");
    for step in &steps {
        println!("  {step}");
    }
    Ok((body, steps))
}

/// Short waits, because this is an example.
fn quick() -> Result<BackoffSettings, SettingErrors> {
    let mut options = BackoffOptions::default();
    options.set("base", "5ms")?;
    options.build()
}
