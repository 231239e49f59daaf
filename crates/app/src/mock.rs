//! A local upstream that limits, fails and responds like real ones, over real HTTP.
//!
//! The simulator's upstream models decide about each request, with a real clock instead of virtual
//! time. They decide when the request arrives, so the one lock that all threads share is held only
//! briefly, and a response without latency uses no timer.
//!
//! A [`Mock`] runs on its own threads, each with its own runtime and listener. A client is an IP
//! address; everything behind one gateway is one client.
//!
//! Paths below `/_mock/` show and reset the mock's state. They are never limited or counted.

mod body;
mod endpoint;
mod handle;
mod model;
mod script;
mod serve;
pub mod spec;
mod state;
mod stats;
mod style;

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use sim::upstream::UpstreamSettings;
use tidegate::Clock;

pub use model::UNLIMITED;
pub use script::Script;
use serve::Threads;
use state::MockState;
pub use stats::{LogEntry, MockStats};
pub use style::Style;

/// The settings of a mock. By default it has no limit and responds at once.
#[derive(Clone, Debug)]
pub struct MockSettings {
    /// Its limit, latencies and failures; the kind [`UNLIMITED`] has no limit. Its `network` is
    /// added to the latency twice.
    pub upstream: Option<UpstreamSettings>,
    /// Further limits; a request has to be within all limits.
    pub further: Vec<sim::upstream::Kind>,
    /// The responses to requests within the limits; `None`: 200.
    pub script: Option<Script>,
    /// The API that it imitates.
    pub style: Style,
    /// The seed of the random numbers.
    pub seed: u64,
    /// The length of the bodies of ordinary responses; `None`: their natural length.
    pub body_size: Option<usize>,
    /// The time between the parts of a streamed response, 20 ms by default.
    pub stream_every: Duration,
    /// The clock, the system's by default.
    pub clock: Clock,
}

impl Default for MockSettings {
    fn default() -> Self {
        Self {
            upstream: None,
            further: Vec::new(),
            script: None,
            style: Style::Plain,
            seed: 1,
            body_size: None,
            stream_every: Duration::from_millis(20),
            clock: Clock::system(),
        }
    }
}

impl MockSettings {
    fn limits_cost(&self) -> bool {
        let upstream = self.upstream.as_ref();
        upstream.is_some_and(|upstream| upstream.cost.is_some())
    }
}

/// A running mock. Dropping it stops it at once.
///
/// ```
/// use std::io::{Read, Write};
/// use std::net::TcpStream;
/// use std::num::NonZeroUsize;
///
/// use app::mock::{Mock, MockSettings};
///
/// let listen = "127.0.0.1:0".parse().unwrap();
/// let mock = Mock::start(MockSettings::default(), listen, NonZeroUsize::MIN)?;
/// let mut stream = TcpStream::connect(mock.address())?;
/// stream.write_all(b"GET / HTTP/1.1\r\nhost: mock\r\nconnection: close\r\n\r\n")?;
/// let mut response = String::new();
/// stream.read_to_string(&mut response)?;
/// assert!(response.starts_with("HTTP/1.1 200 OK"));
/// assert_eq!(mock.stats().accepted, 1);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Mock {
    address: SocketAddr,
    state: Arc<MockState>,
    threads: Threads,
}

impl Mock {
    /// Starts a mock that listens at `listen`; port 0 takes any free port.
    ///
    /// # Errors
    ///
    /// Those of listening: the port is taken, or this machine does not have the address.
    pub fn start(
        settings: MockSettings,
        listen: SocketAddr,
        threads: NonZeroUsize,
    ) -> io::Result<Self> {
        let listeners = serve::listen(listen, threads)?;
        let address = listeners[0].local_addr()?;
        let state = MockState::new(settings);
        let threads = Threads::start(listeners, &state)?;
        Ok(Self {
            address,
            state,
            threads,
        })
    }

    /// The address that it listens at.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same as a URL, without a trailing slash.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The counts so far.
    pub fn stats(&self) -> MockStats {
        self.state.stats()
    }

    /// The last 10 000 requests, in order of arrival.
    pub fn log(&self) -> Vec<LogEntry> {
        self.state.log().0
    }

    /// Resets limits, script, counts, log and time; connections stay open.
    pub fn reset(&self) {
        self.state.reset();
    }

    /// Accepts no more connections, waits up to `timeout` for requests in flight, and returns the
    /// counts. Blocks meanwhile.
    pub fn stop(mut self, timeout: Duration) -> MockStats {
        self.threads.stop(timeout);
        self.state.stats()
    }
}
