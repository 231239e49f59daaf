//! What second attempts cost and gain: a server of which one response in fifty takes a second, and one
//! that is slow as a whole.
//!
//! ```sh
//! cargo run -p tidegate --features tokio --example hedging
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::error::Error;
use std::time::Duration;

use tidegate::{AttemptResult, Clock, GateSettings, Hedge, Limiter, Sort};

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), AnyError> {
    let hedges = [
        ("none", None),
        (
            "after 100 ms",
            Some(Hedge::After(Duration::from_millis(100))),
        ),
        ("after p95", Some(Hedge::AfterP95)),
    ];
    for server in [Server::RarelySlow, Server::AlwaysSlow] {
        println!("{server:?}");
        println!("  hedge          sent   won    p50      p99");
        for (name, hedge) in hedges {
            let figures = run(server, hedge).await?;
            println!(
                "  {name:<13} {:>5} {:>5} {:>4} ms {:>5} ms",
                figures.sent, figures.won, figures.p50, figures.p99
            );
        }
    }
    Ok(())
}

type AnyError = Box<dyn Error + Send + Sync>;

/// How a server behaves.
#[derive(Clone, Copy, Debug)]
pub enum Server {
    /// 30 to 70 ms, and every 50th response a second.
    RarelySlow,
    /// 300 to 340 ms: it has too much to do.
    AlwaysSlow,
}

/// What happened to [`REQUESTS`] requests.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// How often they were sent.
    pub sent: u64,
    /// Second attempts that were answered first.
    pub won: u64,
    /// Half of the requests took at most this, in milliseconds.
    pub p50: u128,
    /// 99 of 100 requests took at most this.
    pub p99: u128,
}

/// How many requests are made, a hundred a second.
pub const REQUESTS: u64 = 5000;

/// Makes the requests with this hedge.
pub async fn run(server: Server, hedge: Option<Hedge>) -> Result<Figures, AnyError> {
    let limiter = Limiter::builder()
        .clock(Clock::tokio())
        .gate(GateSettings::fixed(2000.0))
        .build();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..REQUESTS {
        let limiter = limiter.clone();
        tasks.spawn(async move { request(&limiter, server, hedge, number).await });
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut times = Vec::new();
    while let Some(time) = tasks.join_next().await {
        times.push(time??.as_millis());
    }
    times.sort_unstable();
    let totals = limiter.snapshot(Sort::Key, 0).totals;
    Ok(Figures {
        sent: REQUESTS + totals.hedges,
        won: totals.hedges_won,
        p50: times[times.len() / 2],
        p99: times[times.len() * 99 / 100],
    })
}

/// Makes one request, and returns how long it took.
async fn request(
    limiter: &Limiter,
    server: Server,
    hedge: Option<Hedge>,
    number: u64,
) -> Result<Duration, AnyError> {
    let began = limiter.clock().now();
    let mut call = limiter.call("api.example.com");
    if let Some(hedge) = hedge {
        call = call.hedge(hedge);
    }
    call.run(async |attempt| {
        let time = server.time(number, attempt.number);
        tokio::time::sleep(time).await;
        AttemptResult::new((), attempt.status(200))
    })
    .await?;
    Ok(limiter.clock().now().since(began))
}

impl Server {
    /// How long an attempt takes: chance, but the same in every run.
    fn time(self, number: u64, attempt: u32) -> Duration {
        let mixed = (number * 2 + u64::from(attempt)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let spread = mixed % 41;
        Duration::from_millis(match self {
            Self::RarelySlow if (mixed / 41).is_multiple_of(50) => 1000,
            Self::RarelySlow => 30 + spread,
            Self::AlwaysSlow => 300 + spread,
        })
    }
}
