//! Following a job that takes a while: when to ask for its status, and when to stop.
//!
//! ```sh
//! cargo run -p tidegate --features tokio --example polling_a_job
//! ```
//!
//! [`tidegate::policy::poll`] decides, the limiter's clock waits. Each request for the status goes
//! through the gate as every other does. Time is virtual, see `plain_function.rs`.

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::error::Error;
use std::time::Duration;

use tidegate::policy::poll::{
    JobStatus, Poll, PollSettings, PollState, ResponseKind, StatusResponse,
};
use tidegate::{Clock, Limiter, Outcome};

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    run().await.map(drop)
}

/// Returns where the polling ended, and how often it asked.
pub async fn run() -> Result<(PollState, usize), Box<dyn Error>> {
    let limiter = Limiter::builder().clock(Clock::tokio()).build();
    let clock = limiter.clock();
    let settings = PollSettings::default();
    let began = clock.now();
    let mut poll = Poll::new(began);

    for (asked, &(status, progress)) in ANSWERS.iter().enumerate() {
        let permit = limiter.acquire("scans.example.com").await?;
        let outcome = Outcome::status(status, Duration::from_millis(30));
        let response = response(status, progress);
        // A 429 about one job's status is for the ladder of `poll`, not for the gate.
        permit.settle_as(&outcome, None);

        let next = poll.after(&settings, &response, clock.now());
        let seconds = clock.now().since(began).as_secs_f64();
        println!(
            "{seconds:6.1} s  HTTP {status}: {} ({})",
            next.state.as_str(),
            next.reason
        );
        match next.wait {
            Some(wait) => clock.sleep_until(clock.now() + wait).await,
            None => return Ok((next.state, asked + 1)),
        }
    }
    Ok((poll.state(), ANSWERS.len()))
}

/// What the server will say: a status, and the job's progress in per cent.
const ANSWERS: [(u16, f64); 7] = [
    (200, 5.0),
    (200, 35.0),
    (429, 0.0),
    (429, 0.0),
    (200, 60.0),
    (200, 90.0),
    (200, 100.0),
];

fn response(status: u16, progress: f64) -> StatusResponse {
    match status {
        429 => StatusResponse::from(ResponseKind::Throttled { wait: None }),
        _ => StatusResponse {
            kind: ResponseKind::Success,
            job: Some(if progress < 100.0 {
                JobStatus::Running {
                    progress: Some(progress),
                }
            } else {
                JobStatus::Done
            }),
        },
    }
}
