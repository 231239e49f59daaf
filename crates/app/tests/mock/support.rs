//! A mock, its clock, and a client that shows all that it gets.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::thread;
use std::time::Duration;

use app::mock::{Mock, MockSettings, Script, Style, spec};
use serde_json::Value;
use sim::upstream::UpstreamSettings;
use tidegate::ManualClock;

/// A mock by a clock that is moved by hand.
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

    /// One request on a connection of its own.
    pub(crate) fn get(&self, path: &str) -> Reply {
        self.connect().get(path)
    }

    /// The statuses of so many requests, one after the other.
    pub(crate) fn statuses(&self, count: usize) -> Vec<u16> {
        let mut client = self.connect();
        (0..count).map(|_| client.get("/").status).collect()
    }

    /// Waits until something holds; whoever has to do something for it does it by himself.
    pub(crate) fn wait_until(&self, holds: impl Fn(&Mock) -> bool) {
        while !holds(&self.mock) {
            thread::yield_now();
        }
    }
}

pub(crate) fn start(settings: MockSettings) -> Mock {
    Mock::start(settings, free(), NonZeroUsize::MIN).unwrap()
}

/// Any free port.
pub(crate) fn free() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// These limits, and nothing takes any time.
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

/// A connection.
pub(crate) struct Client(BufReader<TcpStream>);

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
}

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

    /// Reads whatever comes until the connection ends.
    pub(crate) fn rest(&mut self, bytes: &mut Vec<u8>) -> io::Result<usize> {
        self.0.read_to_end(bytes)
    }

    /// Reads an answer to its end.
    pub(crate) fn reply(&mut self, is_head: bool) -> io::Result<Reply> {
        let mut reply = self.reply_head()?;
        if is_head || matches!(reply.status, 204 | 304) {
            return Ok(reply);
        }
        if reply.header("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = self.chunk()? {
                reply.body.extend(chunk);
            }
            reply.trailers = self.header_lines()?;
        } else {
            let length = reply.header("content-length").unwrap().parse().unwrap();
            reply.body.resize(length, 0);
            self.0.read_exact(&mut reply.body)?;
        }
        Ok(reply)
    }

    /// Reads an answer up to its body.
    pub(crate) fn reply_head(&mut self) -> io::Result<Reply> {
        let line = self.line()?;
        let status = line.split(' ').nth(1);
        let status = status.and_then(|status| status.parse().ok());
        Ok(Reply {
            status: status.ok_or(io::ErrorKind::UnexpectedEof)?,
            headers: self.header_lines()?,
            body: Vec::new(),
            trailers: Vec::new(),
        })
    }

    /// The next piece of a body in pieces; `None` after the last.
    pub(crate) fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let length = usize::from_str_radix(&self.line()?, 16);
        let length = length.map_err(|_| io::ErrorKind::UnexpectedEof)?;
        if length == 0 {
            return Ok(None);
        }
        let mut chunk = vec![0; length + 2];
        self.0.read_exact(&mut chunk)?;
        chunk.truncate(length);
        Ok(Some(chunk))
    }

    fn header_lines(&mut self) -> io::Result<Vec<(String, String)>> {
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(": ") else {
                return Ok(headers);
            };
            headers.push((name.to_owned(), value.to_owned()));
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}
