//! A local upstream that limits, fails and answers like real ones, over real HTTP.
//!
//! What becomes of a request is decided by the models that the simulator plays, asked with a real
//! clock: a client meets the same server in virtual time and on a socket. Everything is decided
//! when a request arrives, so the one lock that all threads share is held for a moment only, and an
//! answer that takes no time passes no timer.
//!
//! A [`Mock`] runs on threads of its own, each with its own runtime and listener, whatever the
//! program that starts it runs on. Clients are told apart by their addresses; everything behind one
//! gateway is one client.
//!
//! Paths below `/_mock/` are about the mock itself and never limited.

mod body;
mod desk;
mod endpoint;
mod handle;
mod journal;
mod model;
mod script;
mod serve;
pub mod spec;
mod style;

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use sim::upstream::UpstreamSettings;
use tidegate::Clock;

use desk::Desk;
pub use journal::{LogEntry, MockStats};
pub use model::UNLIMITED;
pub use script::Script;
use serve::Threads;
pub use style::Style;

/// What a mock is like. By default it has no limit and answers everything at once.
#[derive(Clone, Debug)]
pub struct MockSettings {
    /// Its limit, its times and its troubles; [`UNLIMITED`] is a kind for one without a limit. Its
    /// `network` is added to what answers take, for both ways.
    pub upstream: Option<UpstreamSettings>,
    /// Further limits: a request has to be within all of them.
    pub further: Vec<sim::upstream::Kind>,
    /// What those get that are within the limits; `None`: a 200.
    pub script: Option<Script>,
    /// Whom it speaks like.
    pub style: Style,
    /// Where random numbers come from.
    pub seed: u64,
    /// The length of the bodies of ordinary answers; `None`: as long as they are.
    pub body_size: Option<usize>,
    /// From one part of a streamed answer to the next. 20 ms.
    pub stream_every: Duration,
    /// What time it is. The machine's.
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

/// A mock that runs. Dropping it stops it at once.
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
/// let mut answer = String::new();
/// stream.read_to_string(&mut answer)?;
/// assert!(answer.starts_with("HTTP/1.1 200 OK"));
/// assert_eq!(mock.stats().accepted, 1);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Mock {
    address: SocketAddr,
    desk: Arc<Desk>,
    threads: Threads,
}

impl Mock {
    /// Starts a mock that listens at `listen`; port 0 is any that is free.
    ///
    /// # Errors
    ///
    /// Those of listening: somebody else has the port, or the address is not ours.
    pub fn start(
        settings: MockSettings,
        listen: SocketAddr,
        threads: NonZeroUsize,
    ) -> io::Result<Self> {
        let listeners = serve::listen(listen, threads)?;
        let address = listeners[0].local_addr()?;
        let desk = Desk::new(settings);
        let threads = Threads::start(listeners, &desk)?;
        Ok(Self {
            address,
            desk,
            threads,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same as a URL, without a slash at its end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What it has seen so far.
    pub fn stats(&self) -> MockStats {
        self.desk.stats()
    }

    /// The last 10 000 requests, in the order in which they arrived.
    pub fn log(&self) -> Vec<LogEntry> {
        self.desk.log().0
    }

    /// Begins anew: limits, script, counts and time; connections stay.
    pub fn reset(&self) {
        self.desk.reset();
    }

    /// Takes nothing more, lets what is under way end for at most `patience`, and tells what it has
    /// seen. Blocks for as long.
    pub fn stop(mut self, patience: Duration) -> MockStats {
        self.threads.stop(patience);
        self.desk.stats()
    }
}
