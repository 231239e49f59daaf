//! A state with a store in a folder of its own, and a client that speaks just enough HTTP.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, SystemTime};

use app::core::Core;
use app::log::{Format, Level, Log};
use app::settings::{Process, Settings, Sources};
use app::state::{Persister, State};
use store::Store;
use tidegate::{Clock, Outcome};

/// Settings that are written here, with data in this folder and any ports.
pub(crate) fn settings(text: &str, data: &Path) -> Settings {
    let server = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\ndata = \"{}\"\n",
        data.display()
    );
    let sources = Sources {
        file: Some(("test.toml".to_owned(), (server + text).into_bytes())),
        flags: Vec::new(),
    };
    Settings::load(&sources, &Process).unwrap()
}

/// A state that is persisted.
pub(crate) struct Persisted {
    // First, for it writes what is left when it is dropped.
    _persister: Persister,
    pub(crate) state: Arc<State>,
    pub(crate) log: Lines,
}

impl Persisted {
    pub(crate) fn start(text: &str, data: &Path, store: Store) -> Self {
        let settings = settings(text, data);
        let (lines, clock) = (Lines::default(), Clock::system());
        let sink = Box::new(lines.clone());
        let format = Format::Human { has_colour: false };
        let log = Log::new(sink, format, Level::INFO, &clock);
        let settings = Arc::new(settings);
        let core = Core::new(&settings, log, clock, 1);
        let (state, warnings) = State::restore(core, settings, store).unwrap();
        assert_eq!(warnings, [""; 0]);
        let persister = Persister::start(&state).unwrap();
        Self {
            _persister: persister,
            state,
            log: lines,
        }
    }

    /// One request that is answered with a wait of so long.
    pub(crate) fn throttle(&self, key: &str, seconds: u64) {
        let permit = self.state.limiter().try_acquire(key).unwrap();
        let wait = Some(Duration::from_secs(seconds));
        permit.settle(&Outcome::throttled(Duration::from_millis(5), wait));
    }
}

/// A log that can be read.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    pub(crate) fn count(&self, word: &str) -> usize {
        let bytes = self.0.lock().unwrap();
        String::from_utf8_lossy(&bytes).matches(word).count()
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Status and body of an answer.
pub(crate) fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    token: &str,
    body: &str,
) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
         tidegate-max-wait: 100ms\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split_whitespace().nth(1).unwrap();
    (status.parse().unwrap(), body.to_owned())
}

/// Waits until something is so.
pub(crate) fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let begin = SystemTime::now();
    while !is() {
        let waited = begin.elapsed().unwrap_or_default();
        assert!(waited < Duration::from_secs(30), "never {what}");
        wait(Duration::from_millis(10));
    }
}

/// Lets time pass.
pub(crate) fn wait(length: Duration) {
    let (_keep, nothing) = mpsc::channel::<()>();
    _ = nothing.recv_timeout(length);
}

/// A folder for a store.
pub(crate) fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    (folder, data)
}
