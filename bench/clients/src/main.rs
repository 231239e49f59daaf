//! What happens to 500 requests at five servers with unknown limits, by client: how many are
//! answered, how many more are sent than needed, how many are refused, and how long it takes.
//!
//! `scripts/compare-clients` runs it.

mod contenders;
mod mocks;
mod report;

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use contenders::{CONTENDERS, Contender, Entry};
use mocks::{MOCKS, Mock};
use tokio::runtime::Builder;
use tokio::sync::oneshot;

/// Requests of one run.
const URLS: usize = 500;

/// Requests that a program makes at once.
const WORKERS: usize = 50;

/// One client's run.
pub(crate) struct Row {
    name: &'static str,
    answered: u32,
    sent: u32,
    refused: u32,
    took: Duration,
}

/// Runs of each client, in turn. The figures shown are medians, for random jitter changes them.
const ROUNDS: usize = 5;

fn main() -> ExitCode {
    let rows: Result<Vec<Vec<Row>>, Box<dyn Error>> = (0..ROUNDS)
        .map(|_| CONTENDERS.into_iter().map(run).collect())
        .collect();
    match rows {
        Ok(rounds) => {
            report::print(&medians(&rounds));
            ExitCode::SUCCESS
        }
        Err(error) => {
            report::fail(error.as_ref());
            ExitCode::FAILURE
        }
    }
}

/// The median of each figure of each client.
fn medians(rounds: &[Vec<Row>]) -> Vec<Row> {
    let names = CONTENDERS.iter().enumerate();
    let row = |(index, (name, _)): (usize, &Entry)| Row {
        name,
        answered: median(rounds.iter().map(|round| round[index].answered)),
        sent: median(rounds.iter().map(|round| round[index].sent)),
        refused: median(rounds.iter().map(|round| round[index].refused)),
        took: median(rounds.iter().map(|round| round[index].took)),
    };
    names.map(row).collect()
}

fn median<T: Ord + Copy>(values: impl Iterator<Item = T>) -> T {
    let mut values: Vec<T> = values.collect();
    values.sort_unstable();
    values[values.len() / 2]
}

/// Sends all requests through one client to servers of its own.
fn run((name, make): Entry) -> Result<Row, Box<dyn Error>> {
    let (mocks, stop) = serve()?;
    let hosts: Vec<String> = mocks.iter().map(|mock| mock.address.to_string()).collect();
    let contender: Arc<dyn Contender> = make(&hosts).into();
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let began = Instant::now();
    let answered = runtime.block_on(fetch_all(contender, hosts))?;
    let took = began.elapsed();
    let counts = mocks.iter().map(Mock::counts);
    let (sent, refused) = counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    // The servers end with this.
    drop(stop);
    Ok(Row {
        name,
        answered,
        sent,
        refused,
        took,
    })
}

/// Starts the servers, on a thread of their own.
fn serve() -> Result<(Vec<Mock>, oneshot::Sender<()>), Box<dyn Error>> {
    let (stop, stopped) = oneshot::channel::<()>();
    let (started, mocks) = std::sync::mpsc::channel();
    let runtime = Builder::new_current_thread().enable_all().build()?;
    thread::spawn(move || {
        runtime.block_on(async {
            for (_, limits) in MOCKS {
                if started.send(mocks::start(limits).await).is_err() {
                    return;
                }
            }
            drop(started);
            let _ = stopped.await;
        });
    });
    let mocks: Result<Vec<Mock>, _> = mocks.into_iter().collect();
    Ok((mocks?, stop))
}

/// Fetches every URL, in turn from each host, and returns how many were answered with success.
async fn fetch_all(
    contender: Arc<dyn Contender>,
    hosts: Vec<String>,
) -> Result<u32, Box<dyn Error>> {
    let (next, hosts) = (Arc::new(AtomicUsize::new(0)), Arc::new(hosts));
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| {
            let (contender, next, hosts) = (contender.clone(), next.clone(), hosts.clone());
            tokio::spawn(async move {
                let mut answered = 0;
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= URLS {
                        return answered;
                    }
                    let host = &hosts[number % hosts.len()];
                    let url = format!("http://{host}/{number}");
                    if contender.fetch(host, url).await == Some(200) {
                        answered += 1;
                    }
                }
            })
        })
        .collect();
    let mut answered = 0;
    for worker in workers {
        answered += worker.await?;
    }
    Ok(answered)
}
