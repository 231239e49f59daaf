//! A mock with a manual clock, and a client that shows raw responses.

use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::thread;
use std::time::Duration;

use app::mock::{Mock, MockSettings, Script, Style, spec};
use sim::upstream::UpstreamSettings;
use tidegate::ManualClock;

use crate::wire;
pub(crate) use crate::wire::Reply;

/// A mock with a manual clock.
pub(crate) struct Fixture {
    pub(crate) mock: Mock,
    pub(crate) clock: ManualClock,
}

impl Fixture {
    pub(crate) fn new(settings: MockSettings) -> Self {
        let clock = ManualClock::new();
        let settings = MockSettings {
            clock: clock.clock(),
            ..settings
        };
        Self {
            mock: start(settings),
            clock,
        }
    }

    pub(crate) fn of(style: Style, limits: &[&str]) -> Self {
        Self::new(limited(style, limits))
    }

    pub(crate) fn scripted(script: &str) -> Self {
        Self::new(MockSettings {
            script: Some(Script::parse(script).unwrap()),
            ..MockSettings::default()
        })
    }

    pub(crate) fn advance(&self, millis: u64) {
        self.clock.advance(Duration::from_millis(millis));
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.mock.address())
    }

    /// One request on a new connection.
    pub(crate) fn get(&self, path: &str) -> Reply {
        self.connect().get(path)
    }

    /// The statuses of `count` requests, one after the other.
    pub(crate) fn statuses(&self, count: usize) -> Vec<u16> {
        let mut client = self.connect();
        (0..count).map(|_| client.get("/").status).collect()
    }

    /// Waits until a condition on the mock holds.
    pub(crate) fn wait_until(&self, condition: impl Fn(&Mock) -> bool) {
        while !condition(&self.mock) {
            thread::yield_now();
        }
    }
}

pub(crate) fn start(settings: MockSettings) -> Mock {
    Mock::start(settings, any_port(), NonZeroUsize::MIN).unwrap()
}

/// An address with any free port.
pub(crate) fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// A mock with these limits and without latency.
pub(crate) fn limited(style: Style, limits: &[&str]) -> MockSettings {
    let mut kinds = limits.iter().map(|text| spec::limit(text).unwrap().kind());
    MockSettings {
        upstream: kinds.next().map(|kind| UpstreamSettings {
            latency: Duration::ZERO,
            refuse_latency: Duration::ZERO,
            network: Duration::ZERO,
            latency_spread: 0.0,
            ..UpstreamSettings::of(kind)
        }),
        further: kinds.collect(),
        style,
        ..MockSettings::default()
    }
}

/// A client's connection.
pub(crate) struct Client(BufReader<TcpStream>);

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self(BufReader::new(TcpStream::connect(address).unwrap()))
    }

    pub(crate) fn get(&mut self, path: &str) -> Reply {
        self.send(&format!("GET {path} HTTP/1.1\r\nhost: mock\r\n\r\n"));
        self.reply(false).unwrap()
    }

    pub(crate) fn head(&mut self, path: &str) -> Reply {
        self.send(&format!("HEAD {path} HTTP/1.1\r\nhost: mock\r\n\r\n"));
        self.reply(true).unwrap()
    }

    pub(crate) fn post(&mut self, path: &str, body: &str) -> Reply {
        let length = body.len();
        self.send(&format!(
            "POST {path} HTTP/1.1\r\nhost: mock\r\ncontent-length: {length}\r\n\r\n{body}"
        ));
        self.reply(false).unwrap()
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn stream(&mut self) -> &mut TcpStream {
        self.0.get_mut()
    }

    /// Reads until the connection ends.
    pub(crate) fn rest(&mut self, bytes: &mut Vec<u8>) -> io::Result<usize> {
        self.0.read_to_end(bytes)
    }

    /// Reads a whole response.
    pub(crate) fn reply(&mut self, is_head: bool) -> io::Result<Reply> {
        Reply::read(&mut self.0, is_head)
    }

    /// Reads a response up to its body.
    pub(crate) fn reply_head(&mut self) -> io::Result<Reply> {
        Reply::read_head(&mut self.0)
    }

    /// Reads the next chunk of a chunked body; `None` after the last.
    pub(crate) fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        wire::chunk(&mut self.0)
    }
}
