//! A thousand tasks that wait for one key at 500 per second, at our gate and at governor's.
//!
//! Three questions: is the whole rate used, does a task leave before one that joined earlier, and
//! how often is a task woken per admission. A task joins the line again as soon as it has left, so
//! the line is never empty. At the end all tasks leave and none joins, so that every place in line
//! has its admission.

use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::ours;

mod watch;

use watch::Watch;

/// How both lines moved.
pub(crate) struct Waiters {
    pub(crate) ours: Line,
    pub(crate) governor: Line,
}

/// How a line moved.
pub(crate) struct Line {
    /// Admissions over what the rate allows.
    pub(crate) rate_share: f64,
    /// Admissions that overtook a task that had joined before.
    pub(crate) inversions: usize,
    pub(crate) wakes_per_admission: f64,
    /// Without the poll with which a task joins.
    pub(crate) polls_per_admission: f64,
}

pub(crate) fn measure(time: Duration) -> Waiters {
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("a runtime can be made");
    runtime.block_on(async {
        Waiters {
            ours: measure_line(wait_at_ours(), time).await,
            governor: measure_line(wait_at_governor(), time).await,
        }
    })
}

/// An admission: when, as far as is known, in which order at that time, and the place in line.
type Admission<At> = (At, u64, u64);

/// A task that waits in a line over and over, and says when it was admitted.
type Task<At> = Pin<Box<dyn Future<Output = Vec<Admission<At>>> + Send>>;

async fn measure_line<At>(start: impl Fn(Arc<Watch>) -> Task<At>, time: Duration) -> Line
where
    At: Ord + Send + 'static,
{
    let watch = Arc::new(Watch::default());
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        tasks.spawn(start(Arc::clone(&watch)));
    }
    sleep(SETTLING).await;
    let (before, started) = (watch.counts(), Instant::now());
    sleep(time).await;
    let (after, took) = (watch.counts(), started.elapsed());
    watch.close();
    let admissions = tasks.join_all().await.into_iter().flatten().collect();

    let admitted = (after.admissions - before.admissions) as f64;
    Line {
        rate_share: admitted / took.as_secs_f64() / f64::from(RATE),
        inversions: inversions(admissions),
        wakes_per_admission: (after.wakes - before.wakes) as f64 / admitted,
        polls_per_admission: (after.polls - before.polls) as f64 / admitted,
    }
}

/// Admissions after which a task was still waiting that had joined before.
fn inversions<At: Ord>(mut admissions: Vec<Admission<At>>) -> usize {
    admissions.sort();
    let mut first_still_waiting = u64::MAX;
    let mut inversions = 0;
    for (_, _, number) in admissions.into_iter().rev() {
        inversions += usize::from(number > first_still_waiting);
        first_still_waiting = first_still_waiting.min(number);
    }
    inversions
}

/// A task at our gate. Its permit says when it was given out; the order of those given out
/// together is that of their wake-ups. Which task runs first after that is not the gate's doing.
fn wait_at_ours() -> impl Fn(Arc<Watch>) -> Task<Duration> {
    let rate = RATE.to_string();
    let limiter = ours::settings(&[
        ("strategy", "fixed"),
        ("initial_rate", &rate),
        ("max_rate", &rate),
    ])
    .build();
    let origin = limiter.clock().now();
    move |watch| {
        let limiter = limiter.clone();
        Box::pin(async move {
            let mut admissions = Vec::new();
            while !watch.is_closed() {
                let (answer, seen) = watch.observe(limiter.acquire(KEY)).await;
                let permit = answer.expect("there is room in line, and two seconds of waiting");
                let at = permit.admitted_at().since(origin);
                admissions.push((at, seen.last_wake, seen.number));
                permit.settle(&ours::outcome());
            }
            admissions
        })
    }
}

/// A task at governor's. It is admitted when it is polled, so the order of admissions is that in
/// which the waits end.
fn wait_at_governor() -> impl Fn(Arc<Watch>) -> Task<()> {
    let rate = NonZeroU32::new(RATE).expect("the rate is not zero");
    let limiter: DefaultKeyedRateLimiter<String> = RateLimiter::keyed(Quota::per_second(rate));
    let limiter = Arc::new(limiter);
    move |watch| {
        let limiter = Arc::clone(&limiter);
        Box::pin(async move {
            let key = KEY.to_owned();
            let mut admissions = Vec::new();
            while !watch.is_closed() {
                let ((), seen) = watch.observe(limiter.until_key_ready(&key)).await;
                admissions.push(((), seen.end, seen.number));
            }
            admissions
        })
    }
}

const KEY: &str = "host-0000123.example.com";
const RATE: u32 = 500;
const TASKS: usize = 1000;

/// Until bursts are used up and everyone is in line: governor lets the first 500 through at once.
const SETTLING: Duration = Duration::from_secs(1);
