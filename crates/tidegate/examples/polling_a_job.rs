//! Follows a job until it ends: when to poll its status, and when to stop.
//!
//! ```sh
//! cargo run -p tidegate --features tokio --example polling_a_job
//! ```
//!
//! Each status request goes through the gate like any other. A 429 for one job's status only slows
//! down this polling. Time is virtual, see `plain_function.rs`.

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::error::Error;
use std::future::ready;

use tidegate::poll::{JobStatus, StatusResult};
use tidegate::{Clock, Limiter};

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    run().await.map(drop)
}

/// Returns the job's last progress and the number of status requests.
pub async fn run() -> Result<(f64, u32), Box<dyn Error>> {
    let limiter = Limiter::builder().clock(Clock::tokio()).build();
    let mut responses = RESPONSES.into_iter();
    let polled = limiter
        .poll("scans.example.com")
        .run_with(
            |attempt| {
                let (status, progress) = responses.next().unwrap_or((404, 0.0));
                let job = match status {
                    200 if progress < 100.0 => Some(JobStatus::Running {
                        progress: Some(progress),
                    }),
                    200 => Some(JobStatus::Done),
                    _ => None,
                };
                ready(StatusResult::new(
                    (status, progress),
                    attempt.status(status),
                    job,
                ))
            },
            |update, (status, _)| {
                println!(
                    "{:6.1} s  HTTP {status}: {} ({})",
                    update.elapsed.as_secs_f64(),
                    update.state.as_str(),
                    update.reason,
                );
            },
        )
        .await?;
    let (_, progress) = polled.value;
    Ok((progress, polled.sent))
}

/// The server's responses: a status, and the job's progress in percent.
const RESPONSES: [(u16, f64); 7] = [
    (200, 5.0),
    (200, 35.0),
    (429, 0.0),
    (429, 0.0),
    (200, 60.0),
    (200, 90.0),
    (200, 100.0),
];
