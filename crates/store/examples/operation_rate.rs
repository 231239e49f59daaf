//! How many operations per second are accepted, claimed and settled, compared with commits of a single
//! row in the same folder; with an empty queue and with many that wait.
//!
//! `cargo run --release -p tidegate-store --example operation_rate -- FOLDER [QUEUED]`

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use policy::random::Random;
use policy::time::WallTime;
use rusqlite::Connection;
use store::Store;
use store::operations::{
    AttemptRecord, ClaimResult, Claimed, Counters, Lane, Lease, NewOperation, OperationQueue,
    Settlement, StoredRequest, wait,
};

const LENGTH: Duration = Duration::from_secs(5);
const THREADS: u64 = 64;
const BODY: usize = 512;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("expected a folder")?);
    let queued: u64 = match arguments.next() {
        Some(text) => text.to_string_lossy().parse()?,
        None => 1_000_000,
    };
    let mut out = std::io::stdout();
    let raw = raw(&folder)?;
    writeln!(out, "commits of a single row:      {raw:>8.0}/s")?;

    let store = Store::open(&folder)?;
    let queue = store.operations();
    let empty = measure(&mut out, &*queue, raw)?;
    let start = Instant::now();
    fill(&*queue, queued);
    let waiting = queue.counts().available;
    let took = start.elapsed().as_secs_f64();
    writeln!(out, "with {waiting} waiting, after {took:.0} s:")?;
    let full = measure(&mut out, &*queue, raw)?;
    let ratio = full / empty;
    writeln!(out, "{ratio:.2} of the inserts into an empty queue")?;
    drop((queue, store));
    let start = Instant::now();
    drop(Store::open(&folder)?);
    writeln!(out, "opened in {:?}", start.elapsed())?;
    Ok(())
}

/// Prints rates, and returns that of inserts.
fn measure(
    out: &mut impl Write,
    queue: &dyn OperationQueue,
    raw: f64,
) -> Result<f64, std::io::Error> {
    let work = Work::done();
    let rate = inserts(queue, KeyKind::Id);
    let times = rate / raw;
    let work = work.each(rate);
    writeln!(
        out,
        "inserts by {THREADS} threads:        {rate:>8.0}/s, {times:.1} times that, {work}"
    )?;
    let work = Work::done();
    let random = inserts(queue, KeyKind::Random);
    let work = work.each(random);
    writeln!(out, "with random keys of clients:  {random:>8.0}/s, {work}")?;
    let work = Work::done();
    let deliveries = deliveries(queue);
    let work = work.each(deliveries);
    writeln!(
        out,
        "claimed and settled:          {deliveries:>8.0}/s, {work}"
    )?;
    Ok(rate)
}

/// What the thread that writes has done so far. Other than rates it hardly depends on what else the
/// machine does. Zero where the system does not say it.
struct Work {
    cpu_ns: u64,
    written: u64,
}

impl Work {
    fn done() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten();
        let mut paths = threads.flatten().map(|thread| thread.path());
        let writer = paths.find(|path| read(path.join("comm")).trim() == "tidegate-store");
        let file = |name| read(writer.clone().unwrap_or_default().join(name));
        let cpu_ns = file("schedstat").split(' ').next().map(str::to_owned);
        let written = file("io")
            .lines()
            .find_map(|line| line.strip_prefix("wchar: ").map(str::to_owned));
        let number = |text: Option<String>| text.and_then(|text| text.parse().ok()).unwrap_or(0);
        Self {
            cpu_ns: number(cpu_ns),
            written: number(written),
        }
    }

    /// As text: what each of `rate` per second has taken since then.
    fn each(&self, rate: f64) -> String {
        let now = Self::done();
        let count = rate * LENGTH.as_secs_f64();
        let cpu = (now.cpu_ns - self.cpu_ns) as f64 / 1000.0 / count;
        let written = (now.written - self.written) as f64 / 1024.0 / count;
        format!("{cpu:.0} µs of CPU and {written:.1} KiB written each")
    }
}

/// One row per commit, with full durability, by one connection.
fn raw(folder: &Path) -> Result<f64, Box<dyn std::error::Error>> {
    let connection = Connection::open(folder.join("raw.db"))?;
    connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS raw (number INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT",
    )?;
    let mut insert = connection.prepare("INSERT INTO raw (body) VALUES (?)")?;
    let (start, mut count) = (Instant::now(), 0_u32);
    while start.elapsed() < LENGTH {
        insert.execute([[7_u8; BODY]])?;
        count += 1;
    }
    Ok(f64::from(count) / start.elapsed().as_secs_f64())
}

/// Every thread inserts an operation and waits until it is durable.
fn inserts(queue: &dyn OperationQueue, keys: KeyKind) -> f64 {
    let start = Instant::now();
    let count: u64 = std::thread::scope(|scope| {
        let insert = || {
            let mut count = 0;
            while start.elapsed() < LENGTH {
                wait(queue.insert(operation(keys, 0))).expect("the disk works");
                count += 1;
            }
            count
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(insert)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or(0))
            .sum()
    });
    count as f64 / start.elapsed().as_secs_f64()
}

/// Runners claim one operation at a time, as the worker does: they settle it and claim the next in one
/// transaction. Two threads drive half of the runners each, so that one half waits to be written while
/// the other is being written.
fn deliveries(queue: &dyn OperationQueue) -> f64 {
    let start = Instant::now();
    let deliver = || {
        let mut count = 0;
        let mut claimed: Vec<Option<Claimed>> = (0..RUNNERS / 2).map(|_| None).collect();
        while start.elapsed() < LENGTH {
            let calls: Vec<_> = claimed
                .drain(..)
                .enumerate()
                .map(|(runner, claimed)| {
                    let settled = claimed.map(|claimed| queue.settle(claimed.claim, completed()));
                    let lease = Lease {
                        now: now(),
                        until: now() + Duration::from_secs(60),
                    };
                    (settled, queue.claim(&lane(runner as u64 % LANES), lease, 1))
                })
                .collect();
            for (settled, claims) in calls {
                if let Some(settled) = settled {
                    wait(settled).expect("the disk works");
                    count += 1;
                }
                claimed.push(wait(claims).expect("the disk works").claimed.pop());
            }
        }
        count
    };
    let count: u64 = std::thread::scope(|scope| {
        let threads = [scope.spawn(deliver), scope.spawn(deliver)];
        let counts = threads.map(|thread| thread.join().unwrap_or(0));
        counts.iter().sum()
    });
    count as f64 / start.elapsed().as_secs_f64()
}

/// Operations that are due in an hour, until so many wait.
fn fill(queue: &dyn OperationQueue, queued: u64) {
    while queue.counts().available < queued {
        let calls: Vec<_> = (0..2000)
            .map(|_| queue.insert(operation(KeyKind::Random, 3600)))
            .collect();
        for call in calls {
            wait(call).expect("the disk works");
        }
    }
}

const LANES: u64 = 4;
const RUNNERS: usize = 64;

fn lane(number: u64) -> Lane {
    Lane {
        destination: format!("{number}.api.example.com"),
        kind: "default".to_owned(),
    }
}

static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Whose idempotency keys operations have.
#[derive(Clone, Copy)]
enum KeyKind {
    /// Their ids, which rise with time.
    Id,
    /// Random ones, as clients make them.
    Random,
}

fn operation(keys: KeyKind, due_in: u64) -> NewOperation {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let now = now();
    let mut random = Random::from_seed(number ^ (now.as_unix_millis().cast_unsigned() << 20));
    let id = format!(
        "op_{:012x}{:014x}",
        now.as_unix_millis(),
        random.next_u64() >> 8
    );
    let key = match keys {
        KeyKind::Id => id.clone(),
        KeyKind::Random => format!("{:016x}{:016x}", random.next_u64(), random.next_u64()),
    };
    NewOperation {
        idempotency_key: key,
        id,
        kind: "default".to_owned(),
        destination: lane(number % LANES).destination,
        request: StoredRequest {
            method: "POST".to_owned(),
            url: "https://api.example.com/v1/things".to_owned(),
            headers: vec![("content-type".to_owned(), b"application/json".to_vec())],
            body: vec![7; BODY],
            base: None,
            resource: None,
        },
        summary: "POST https://api.example.com/v1/things".to_owned(),
        fingerprint: vec![7; 32],
        client: String::new(),
        credential: None,
        backoff: None,
        order_key: None,
        priority: 0,
        trace_id: Some("4bf92f3577b34da6a3ce929d0e0e4736".to_owned()),
        accepted_at: now + Duration::from_secs(due_in),
        expires_at: now + Duration::from_secs(86_400),
        retain: Duration::from_secs(7 * 86_400),
        is_reported: false,
    }
}

fn completed() -> Settlement {
    Settlement {
        now: now(),
        result: ClaimResult::Completed(None),
        counters: Counters {
            sent: 1,
            attempts: 1,
            ..Counters::default()
        },
        attempts: vec![AttemptRecord {
            at: now(),
            phase: "receiving".to_owned(),
            status: Some(204),
            latency: Duration::from_millis(3),
            waited: Duration::ZERO,
            reason: "success".to_owned(),
        }],
    }
}

fn now() -> WallTime {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let millis = since.map_or(0, |since| since.as_millis());
    WallTime::from_unix_millis(i64::try_from(millis).unwrap_or(i64::MAX))
}
