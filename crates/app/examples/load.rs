//! Keeps connections busy and tells what came back. `scripts/bench-reality` runs it.
//!
//! `load URL [--connections N] [--seconds N] [--rate N] [--max-wait DURATION]`
//!
//! Without `--rate` every connection sends its next request as soon as the last one is answered:
//! an endless backlog, as in the simulator. With it they send so many per second together, and a
//! latency counts from the moment at which a request was due, so that a stall is not left out. The
//! last line is JSON.

#![expect(clippy::print_stdout, reason = "a program that prints its result")]

use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Uri, header};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

type Failed = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failed> {
    let wanted = Arc::new(Wanted::read(std::env::args().skip(1))?);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let seen = runtime.block_on(run(Arc::clone(&wanted)));
    println!("{}", seen.told());
    Ok(())
}

/// What was asked for.
#[derive(Debug)]
struct Wanted {
    address: SocketAddr,
    path: String,
    connections: u32,
    length: Duration,
    rate: Option<f64>,
    max_wait: String,
}

impl Wanted {
    fn read(mut words: impl Iterator<Item = String>) -> Result<Self, Failed> {
        let url: Uri = words.next().ok_or("expected a URL")?.parse()?;
        let authority = url.authority().ok_or("expected a URL with an address")?;
        let mut wanted = Self {
            address: authority.as_str().parse()?,
            path: url.path().to_owned(),
            connections: 256,
            length: Duration::from_secs(60),
            rate: None,
            max_wait: "1h".to_owned(),
        };
        while let Some(word) = words.next() {
            let value = words
                .next()
                .ok_or_else(|| format!("{word} needs a value"))?;
            match word.as_str() {
                "--connections" => wanted.connections = value.parse()?,
                "--seconds" => wanted.length = Duration::from_secs(value.parse()?),
                "--rate" => wanted.rate = Some(value.parse()?),
                "--max-wait" => wanted.max_wait = value,
                _ => return Err(format!("unknown flag {word}").into()),
            }
        }
        Ok(wanted)
    }

    fn request(&self) -> Result<Request<Empty<Bytes>>, Failed> {
        let request = Request::get(&self.path)
            .header(header::HOST, self.address.to_string())
            .header("tidegate-max-wait", &self.max_wait);
        Ok(request.body(Empty::new())?)
    }
}

/// What came back.
#[derive(Debug, Default)]
struct Seen {
    good: u64,
    bad: u64,
    /// What was bad, by status and reason.
    reasons: BTreeMap<String, u64>,
    /// Of good answers.
    latencies: Vec<Duration>,
}

impl Seen {
    fn told(mut self) -> serde_json::Value {
        self.latencies.sort_unstable();
        let millis = |time: Duration| time.as_micros() as f64 / 1000.0;
        let at = |share: f64| {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a share of the length is a place in the list"
            )]
            let place = (self.latencies.len() as f64 * share) as usize;
            self.latencies.get(place).copied().map(millis)
        };
        let sum: Duration = self.latencies.iter().sum();
        let count = u32::try_from(self.latencies.len()).unwrap_or(u32::MAX);
        json!({
            "good": self.good,
            "bad": self.bad,
            "reasons": self.reasons,
            "mean_ms": (count > 0).then(|| millis(sum / count)),
            "p50_ms": at(0.5),
            "p99_ms": at(0.99),
        })
    }
}

async fn run(wanted: Arc<Wanted>) -> Seen {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let start = Instant::now();
    let clients: Vec<_> = (0..wanted.connections)
        .map(|number| {
            let client = client(Arc::clone(&wanted), Arc::clone(&seen), number, start);
            tokio::spawn(client)
        })
        .collect();
    for client in clients {
        // Who panicked has said so.
        _ = client.await;
    }
    let mut seen = seen.lock().unwrap_or_else(|poison| poison.into_inner());
    std::mem::take(&mut *seen)
}

async fn client(wanted: Arc<Wanted>, seen: Arc<Mutex<Seen>>, number: u32, start: Instant) {
    let end = start + wanted.length;
    let gap = wanted
        .rate
        .map(|rate| Duration::from_secs_f64(f64::from(wanted.connections) / rate));
    // Everybody in turn, not all at the same moment.
    let offset = gap.map_or(Duration::ZERO, |gap| gap * number / wanted.connections);
    let mut due = start + offset;
    let mut connection = None;
    while Instant::now() < end {
        if gap.is_some() {
            sleep_until(due).await;
        } else {
            due = Instant::now();
        }
        let Ok(asked) = timeout_at(end, ask(&wanted, &mut connection)).await else {
            return;
        };
        let bad = asked.unwrap_or_else(|error| Some(error.to_string()));
        let is_bad = bad.is_some();
        note(&seen, bad, due.elapsed());
        if is_bad {
            sleep(AFTER_AN_ERROR).await;
        }
        due += gap.unwrap_or_default();
    }
}

/// As long as a careless program takes to write its error down.
const AFTER_AN_ERROR: Duration = Duration::from_millis(100);

fn note(seen: &Mutex<Seen>, bad: Option<String>, latency: Duration) {
    let mut seen = seen.lock().unwrap_or_else(|poison| poison.into_inner());
    match bad {
        None => {
            seen.good += 1;
            seen.latencies.push(latency);
        }
        Some(reason) => {
            seen.bad += 1;
            *seen.reasons.entry(reason).or_default() += 1;
        }
    }
}

/// Sends one request; tells what was bad about the answer.
async fn ask(
    wanted: &Wanted,
    connection: &mut Option<SendRequest<Empty<Bytes>>>,
) -> Result<Option<String>, Failed> {
    let mut sender = match connection.take() {
        Some(sender) => sender,
        None => connect(wanted.address).await?,
    };
    let answer = sender.send_request(wanted.request()?).await?;
    let status = answer.status();
    let reason = answer.headers().get("tidegate-reason");
    let reason = reason.and_then(|reason| reason.to_str().ok());
    let bad = format!(
        "{} {}",
        status.as_u16(),
        reason.unwrap_or("of the upstream")
    );
    answer.into_body().collect().await?;
    *connection = Some(sender);
    Ok((!status.is_success()).then_some(bad))
}

async fn connect(address: SocketAddr) -> Result<SendRequest<Empty<Bytes>>, Failed> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}
