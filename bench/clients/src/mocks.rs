//! Five servers whose limits the clients do not know.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

/// How a server limits its clients.
#[derive(Clone, Copy)]
pub(crate) enum Limits {
    /// So many per second, and a burst; 429 says nothing, or how long to wait.
    Bucket {
        rate: f64,
        burst: f64,
        has_retry_after: bool,
    },
    /// So many in each period. Every response has `X-RateLimit-*` headers.
    Window { quota: u32, period: Duration },
    /// So many at once; others get 503.
    Slots { slots: u32 },
    /// So many per second, and every twentieth request fails with 500.
    Failing { rate: f64, burst: f64 },
}

/// The servers of one run, and what each does.
pub(crate) const MOCKS: [(&str, Limits); 5] = [
    (
        "20/s, 429 without a hint",
        Limits::Bucket {
            rate: 20.0,
            burst: 5.0,
            has_retry_after: false,
        },
    ),
    (
        "50/s, 429 with Retry-After",
        Limits::Bucket {
            rate: 50.0,
            burst: 10.0,
            has_retry_after: true,
        },
    ),
    (
        "60 in 2 s, X-RateLimit headers",
        Limits::Window {
            quota: 60,
            period: Duration::from_secs(2),
        },
    ),
    ("4 at once, 503", Limits::Slots { slots: 4 }),
    (
        "100/s, every 20th request fails",
        Limits::Failing {
            rate: 100.0,
            burst: 20.0,
        },
    ),
];

/// A running server and its counts.
pub(crate) struct Mock {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
}

impl Mock {
    /// Requests received, and those refused by 429 or 503.
    pub(crate) fn counts(&self) -> (u32, u32) {
        let count = |counter: &AtomicU32| counter.load(Ordering::Relaxed);
        (count(&self.state.received), count(&self.state.refused))
    }
}

struct State {
    limits: Limits,
    started: Instant,
    received: AtomicU32,
    refused: AtomicU32,
    in_service: AtomicU32,
    /// Tokens and when they were counted; or the number of the window and its requests.
    used: Mutex<(f64, f64)>,
}

/// Starts a server. It ends with the runtime.
pub(crate) async fn start(limits: Limits) -> io::Result<Mock> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let burst = match limits {
        Limits::Bucket { burst, .. } | Limits::Failing { burst, .. } => burst,
        Limits::Window { .. } | Limits::Slots { .. } => 0.0,
    };
    let state = Arc::new(State {
        limits,
        started: Instant::now(),
        received: AtomicU32::new(0),
        refused: AtomicU32::new(0),
        in_service: AtomicU32::new(0),
        used: Mutex::new((burst, 0.0)),
    });
    let shared = Arc::clone(&state);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let state = Arc::clone(&shared);
            tokio::spawn(async move { state.serve(stream).await });
        }
    });
    Ok(Mock { address, state })
}

/// A response: status and header lines.
type Head = (u16, String);

/// How long a response takes.
const SERVICE: Duration = Duration::from_millis(30);

impl State {
    /// Answers the requests of a connection.
    async fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        let mut buffer = Vec::new();
        loop {
            while !buffer.windows(4).any(|end| end == b"\r\n\r\n") {
                if stream.read_buf(&mut buffer).await? == 0 {
                    return Ok(());
                }
            }
            // Requests have no body, and a client waits for the response.
            buffer.clear();
            let (status, fields) = self.answer().await;
            let head = format!("HTTP/1.1 {status} -\r\n{fields}content-length: 2\r\n\r\nok");
            stream.write_all(head.as_bytes()).await?;
        }
    }

    async fn answer(&self) -> Head {
        let number = self.received.fetch_add(1, Ordering::Relaxed) + 1;
        let in_service = self.in_service.fetch_add(1, Ordering::Relaxed) + 1;
        let head = self.decide(number, in_service);
        if head.0 == 200 {
            sleep(SERVICE).await;
        }
        self.in_service.fetch_sub(1, Ordering::Relaxed);
        if matches!(head.0, 429 | 503) {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        head
    }

    fn decide(&self, number: u32, in_service: u32) -> Head {
        match self.limits {
            Limits::Bucket {
                rate,
                burst,
                has_retry_after,
            } => match self.take(rate, burst) {
                true => (200, String::new()),
                false if has_retry_after => (429, "retry-after: 1\r\n".to_owned()),
                false => (429, String::new()),
            },
            Limits::Failing { rate, burst } => match self.take(rate, burst) {
                true if number.is_multiple_of(20) => (500, String::new()),
                true => (200, String::new()),
                false => (429, String::new()),
            },
            Limits::Slots { slots } if in_service > slots => (503, String::new()),
            Limits::Slots { .. } => (200, String::new()),
            Limits::Window { quota, period } => self.count(quota, period),
        }
    }

    /// Takes a token, if there is one.
    fn take(&self, rate: f64, burst: f64) -> bool {
        let now = self.started.elapsed().as_secs_f64();
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let (tokens, at) = *used;
        let tokens = (tokens + (now - at) * rate).min(burst);
        let has_token = tokens >= 1.0;
        *used = (if has_token { tokens - 1.0 } else { tokens }, now);
        has_token
    }

    /// Counts a request in its window.
    fn count(&self, quota: u32, period: Duration) -> Head {
        let now = self.started.elapsed().as_secs_f64() / period.as_secs_f64();
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used.1 < now.floor() {
            *used = (0.0, now.floor());
        }
        used.0 += 1.0;
        let left = (f64::from(quota) - used.0).max(0.0);
        let reset = ((now.floor() + 1.0 - now) * period.as_secs_f64()).ceil();
        let fields = format!(
            "x-ratelimit-limit: {quota}\r\nx-ratelimit-remaining: {left}\r\nx-ratelimit-reset: {reset}\r\n"
        );
        let is_admitted = used.0 <= f64::from(quota);
        (if is_admitted { 200 } else { 429 }, fields)
    }
}
