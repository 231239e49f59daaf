//! A gateway, scripted upstreams, and a client that shows whole responses.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use app::core::Core;
use app::gateway::Gateway;
use app::log::{Format, Level, Log};
use app::mock::{Mock, MockSettings, Script};
use app::settings::{Environment, Settings, Sources};
use app::state::State;
use socket2::{Domain, Socket, Type};
use store::Store;
use tidegate::Clock;

pub(crate) use crate::child::{
    in_child, in_child_with, in_child_with_descriptors, in_child_with_soft_descriptors,
};
use crate::wire;
pub(crate) use crate::wire::Reply;

/// A gateway that serves, and what it logs.
pub(crate) struct Fixture {
    pub(crate) state: Arc<State>,
    pub(crate) gateway: Gateway,
    log: Captured,
}

/// What keeps tests quick: no pacing unless a test asks for it, and short waits. Settings that begin
/// without a section are those of `[server]`.
const USUAL: &str = r#"
[backoff.standard]
base = "20ms"
max = "40ms"
max_attempts = 4
jitter = "none"
retry_after_jitter = "0s"
[server]
listen = "127.0.0.1:0"
"#;

/// A gate that lets everything out.
pub(crate) const OPEN: &str = r#"
[gate]
strategy = "fixed"
initial_rate = 10000
"#;

impl Fixture {
    /// A gateway with these settings, on top of short backoffs.
    pub(crate) fn new(settings: &str) -> Self {
        app::descriptors::raise_limit();
        let clock = Clock::system();
        let log = Captured::default();
        let lines = Log::new(Box::new(log.clone()), Format::Json, Level::DEBUG, &clock);
        let settings = Arc::new(read(settings));
        let core = Core::new(&settings, lines, clock, 2);
        let (state, _) = State::restore(core, settings, Store::memory()).unwrap();
        let gateway = Gateway::start(Arc::clone(&state), free()).unwrap();
        Self {
            state,
            gateway,
            log,
        }
    }

    /// One pool, `api`, with one endpoint, `a`, at this address; nothing is paced.
    pub(crate) fn before(url: &str) -> Self {
        Self::with(url, "")
    }

    /// The same with further settings.
    pub(crate) fn with(url: &str, settings: &str) -> Self {
        Self::new(&format!("{OPEN}{}{settings}", pool(&[("a", url)])))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.gateway.address()
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address())
    }

    /// One request on a connection of its own.
    pub(crate) fn get(&self, path: &str) -> Reply {
        self.connect().get(path)
    }

    /// Serves by other settings from now on.
    pub(crate) fn reload(&self, settings: &str) {
        self.state.reload(Arc::new(read(settings)));
        self.gateway.reload();
    }

    /// Everything that was logged so far.
    pub(crate) fn logged(&self) -> String {
        self.state.log().flush();
        self.log.text()
    }

    /// Does a well-behaved connection still work?
    pub(crate) fn works(&self) {
        assert_eq!(self.get("/api/echo").status, 200);
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.gateway.drain();
    }
}

fn read(settings: &str) -> Settings {
    let text = format!("{USUAL}{settings}");
    let sources = Sources {
        file: Some(("test.toml".to_owned(), text.into_bytes())),
        flags: Vec::new(),
    };
    Settings::load(&sources, &Variables).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

/// Secrets are not written into settings: `env:NAME` is `value-of-NAME` here, and `env:PROXY_3128` is
/// a proxy at that port, with credentials.
struct Variables;

impl Environment for Variables {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }

    fn variables(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn variable(&self, name: &str) -> Option<String> {
        Some(match name.strip_prefix("PROXY_") {
            Some(port) => format!("http://user:pass@127.0.0.1:{port}"),
            None => format!("value-of-{name}"),
        })
    }
}

/// The pool `api` with these endpoints.
pub(crate) fn pool(endpoints: &[(&str, &str)]) -> String {
    let endpoints: Vec<String> = endpoints
        .iter()
        .map(|(name, url)| format!("{{ name = \"{name}\", url = \"{url}\" }}"))
        .collect();
    format!("[pool.api]\nendpoints = [{}]\n", endpoints.join(", "))
}

/// Any free port.
pub(crate) fn free() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// A port that refuses connections.
pub(crate) fn closed_port() -> SocketAddr {
    // Bound for good, so that no other process gets it, and never listening.
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&free().into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    std::mem::forget(socket);
    address
}

/// A sink that keeps what it gets.
#[derive(Clone, Default)]
pub(crate) struct Captured(Arc<Mutex<Vec<u8>>>);

impl Captured {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A mock that answers everything at once.
pub(crate) fn mock() -> Mock {
    start(MockSettings::default())
}

/// A mock that answers by a script.
pub(crate) fn scripted(script: &str) -> Mock {
    start(MockSettings {
        script: Some(Script::parse(script).unwrap()),
        ..MockSettings::default()
    })
}

pub(crate) fn start(settings: MockSettings) -> Mock {
    Mock::start(settings, free(), NonZeroUsize::MIN).unwrap()
}

/// Lets some time pass.
#[expect(
    clippy::disallowed_methods,
    reason = "sockets and their timeouts go by the machine's clock"
)]
pub(crate) fn pause(millis: u64) {
    thread::sleep(Duration::from_millis(millis));
}

/// Waits until something holds. Fails after so long that no machine is that busy.
pub(crate) fn until(what: &str, holds: impl Fn() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < TEST_TIMEOUT, "still not: {what}");
        pause(2);
    }
}

const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// An upstream that sends exactly these bytes.
pub(crate) struct Raw {
    address: SocketAddr,
    /// How many connections there were.
    connections: Arc<Mutex<usize>>,
}

impl Raw {
    /// Serves every connection by `serve`, which gets its number, from 0.
    pub(crate) fn start(serve: impl Fn(usize, Client) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(free()).unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(Mutex::new(0));
        let count = Arc::clone(&connections);
        let serve = Arc::new(serve);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { continue };
                let mut count = count.lock().unwrap();
                let (number, serve) = (*count, Arc::clone(&serve));
                *count += 1;
                thread::spawn(move || serve(number, Client::of(stream)));
            }
        });
        Self {
            address,
            connections,
        }
    }

    /// Answers every request with these bytes, and closes the connection.
    pub(crate) fn saying(answer: &'static [u8]) -> Self {
        Self::start(move |_, mut client| {
            if client.request().is_some() {
                client.send_bytes(answer);
            }
        })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn connections(&self) -> usize {
        *self.connections.lock().unwrap()
    }
}

/// A connection, of either side.
pub(crate) struct Client(BufReader<TcpStream>);

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::of(TcpStream::connect(address).unwrap())
    }

    fn of(stream: TcpStream) -> Self {
        // Longer than any test should take, so that a failure is one and not an endless wait.
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TEST_TIMEOUT)).unwrap();
        Self(BufReader::new(stream))
    }

    pub(crate) fn get(&mut self, path: &str) -> Reply {
        self.ask("GET", path, &[], "")
    }

    pub(crate) fn get_with(&mut self, path: &str, headers: &[&str]) -> Reply {
        self.ask("GET", path, headers, "")
    }

    pub(crate) fn post(&mut self, path: &str, headers: &[&str], body: &str) -> Reply {
        self.ask("POST", path, headers, body)
    }

    /// A request and its answer.
    pub(crate) fn ask(&mut self, method: &str, path: &str, headers: &[&str], body: &str) -> Reply {
        self.send(&request(method, path, headers, body));
        self.reply(method == "HEAD").unwrap()
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.send_bytes(text.as_bytes());
    }

    /// Sends as much as the other side takes.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        // A peer that reads no more closes the connection; that is no error here.
        _ = self.0.get_mut().write_all(bytes);
    }

    pub(crate) fn stream(&mut self) -> &mut TcpStream {
        self.0.get_mut()
    }

    /// Says that nothing more will come.
    pub(crate) fn half_close(&mut self) {
        _ = self.stream().shutdown(Shutdown::Write);
    }

    /// Reads whatever comes until the connection ends, in whatever way.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let ended = self.0.read_to_end(&mut bytes);
        if let Err(error) = ended {
            let is_timeout = matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
            );
            assert!(!is_timeout, "the connection stays open");
        }
        bytes
    }

    /// Reads an answer to its end.
    pub(crate) fn reply(&mut self, is_head: bool) -> io::Result<Reply> {
        Reply::read(&mut self.0, is_head)
    }

    /// Reads an answer up to its body.
    pub(crate) fn head(&mut self) -> io::Result<Reply> {
        Reply::read_head(&mut self.0)
    }

    /// As an upstream: the head of the next request, and its body if it has a length.
    pub(crate) fn request(&mut self) -> Option<String> {
        let mut text = self.request_head()?;
        let lower = text.to_ascii_lowercase();
        let length = lower
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        self.0.read_exact(&mut body).ok()?;
        text.push_str(&String::from_utf8_lossy(&body));
        Some(text)
    }

    /// As an upstream: the head of the next request alone.
    pub(crate) fn request_head(&mut self) -> Option<String> {
        let mut text = String::new();
        while !text.ends_with("\r\n\r\n") {
            if self.0.read_line(&mut text).ok()? == 0 {
                return None;
            }
        }
        Some(text)
    }

    /// The next piece of a body in pieces; `None` after the last.
    pub(crate) fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        wire::chunk(&mut self.0)
    }
}

/// A request as it is sent.
pub(crate) fn request(method: &str, path: &str, headers: &[&str], body: &str) -> String {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
    for header in headers {
        text.push_str(header);
        text.push_str("\r\n");
    }
    if !body.is_empty() {
        text.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    text + "\r\n" + body
}

impl Reply {
    /// How often it was sent.
    pub(crate) fn attempts(&self) -> u32 {
        self.header("tidegate-attempts").unwrap().parse().unwrap()
    }

    pub(crate) fn reason(&self) -> Option<&str> {
        self.header("tidegate-reason")
    }

    /// An answer of the gateway's own, as documented: status, reason, and everything that belongs
    /// to it.
    pub(crate) fn is_own(&self, status: u16, reason: &str) {
        assert_eq!(
            (self.status, self.reason()),
            (status, Some(reason)),
            "{self:?}"
        );
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json")
        );
        let problem = self.json();
        assert_eq!(problem["status"], status);
        assert_eq!(problem["reason"], reason);
        let waits = self.header("retry-after").map(|wait| wait.parse().unwrap());
        assert_eq!(problem["retry_after"].as_u64(), waits);
        self.is_marked();
    }

    /// Has it what every answer carries?
    pub(crate) fn is_marked(&self) {
        for name in [
            "tidegate-request-id",
            "tidegate-attempts",
            "tidegate-wait-ms",
            "tidegate-endpoint",
        ] {
            assert!(self.header(name).is_some(), "{name} is missing: {self:?}");
        }
    }
}

impl Client {
    /// Reads some bytes; 0 at the end.
    pub(crate) fn read(&mut self, bytes: &mut [u8]) -> usize {
        self.0.read(bytes).unwrap()
    }
}
