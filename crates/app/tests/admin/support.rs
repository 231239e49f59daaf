//! A server on free ports with a folder of its own, an upstream to call, and a minimal client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use app::admin::{Admin, Token};
use app::core::Core;
use app::gateway::Gateway;
use app::jobs::Jobs;
use app::log::Log;
use app::settings::{self, Process, Settings};
use app::state::State;
use serde_json::Value;
use store::Store;
use tempfile::TempDir;
use tidegate::Clock;

/// Two endpoints without a server.
pub(crate) const TWO: &str = r#"
[pool.llm]
endpoints = [
  { name = "a", url = "http://127.0.0.1:9/v1" },
  { name = "b", url = "https://b.example.com/v1" },
]
"#;

/// A running state with its admin API.
pub(crate) struct Running {
    pub(crate) state: Arc<State>,
    pub(crate) token: Token,
    /// What could not be restored.
    pub(crate) warnings: Vec<String>,
    pub(crate) gateway: Gateway,
    /// They do not run unless a test starts a worker.
    pub(crate) jobs: Arc<Jobs>,
    admin: Option<Admin>,
}

impl Running {
    /// Starts with these settings, and with a folder of its own.
    pub(crate) fn new(toml: &str) -> (Self, TempDir) {
        let folder = tempfile::tempdir().unwrap();
        (Self::in_folder(toml, folder.path()), folder)
    }

    pub(crate) fn in_folder(toml: &str, folder: &Path) -> Self {
        Self::with_store(toml, folder, Store::open(folder).unwrap())
    }

    pub(crate) fn with_store(toml: &str, folder: &Path, store: Store) -> Self {
        Self::with_log(toml, folder, store, Log::silent())
    }

    /// With an admin API at the address of a server that has ended.
    pub(crate) fn at(toml: &str, folder: &Path, admin: SocketAddr) -> Self {
        let mut settings = settings(toml, folder);
        settings.server.admin = admin;
        Self::start(
            settings,
            folder,
            Store::open(folder).unwrap(),
            Log::silent(),
        )
    }

    pub(crate) fn with_log(toml: &str, folder: &Path, store: Store, log: Log) -> Self {
        Self::start(settings(toml, folder), folder, store, log)
    }

    fn start(settings: Settings, folder: &Path, store: Store, log: Log) -> Self {
        let settings = Arc::new(settings);
        let core = Core::new(&settings, log, Clock::system(), 1);
        let (state, warnings) = State::restore(core, settings, store).unwrap();
        let gateway = Gateway::start(Arc::clone(&state), "127.0.0.1:0".parse().unwrap()).unwrap();
        let jobs = Jobs::new(Arc::clone(&state));
        let trails = Arc::clone(gateway.trails());
        let admin = Admin::start(Arc::clone(&state), trails, Arc::clone(&jobs)).unwrap();
        Self {
            state,
            token: Token::open(folder).unwrap(),
            warnings,
            gateway,
            jobs,
            admin: Some(admin),
        }
    }

    pub(crate) fn admin(&self) -> &Admin {
        self.admin.as_ref().unwrap()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.admin().address()
    }

    /// Asks with the token, and a body if there is one.
    pub(crate) fn ask(&self, method: &str, path: &str, body: Option<&str>) -> Answer {
        let mut headers = vec![format!("Authorization: Bearer {}", self.token.expose())];
        if body.is_some() {
            headers.push("Content-Type: application/json".to_owned());
        }
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        ask(
            self.address(),
            method,
            path,
            &headers,
            body.unwrap_or_default(),
        )
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let answer = self.ask("GET", path, None);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.json()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(admin) = self.admin.take() {
            admin.stop();
        }
        self.gateway.drain();
        // The folder is free when the last thread has dropped the store.
        wait_until("the gateway has ended", || self.gateway.is_done());
    }
}

pub(crate) fn settings(toml: &str, folder: &Path) -> Settings {
    let data = folder.display();
    let server =
        format!("[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\ndata = \"{data}\"\n");
    let file = format!("{server}{toml}");
    let sources = settings::Sources {
        file: Some(("t.toml".to_owned(), file.into_bytes())),
        flags: Vec::new(),
    };
    Settings::load(&sources, &Process).unwrap()
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// The status, and the reason of a problem.
    pub(crate) fn problem(&self) -> (u16, String) {
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json")
        );
        let problem = self.json();
        assert_eq!(problem["status"], self.status);
        (self.status, problem["reason"].as_str().unwrap().to_owned())
    }
}

pub(crate) fn ask(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[&str],
    body: &str,
) -> Answer {
    let mut stream = connect(address);
    let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|header| header.starts_with("Host:")) {
        head.push_str(&format!("Host: {address}\r\n"));
    }
    for header in headers {
        head.push_str(&format!("{header}\r\n"));
    }
    head.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
    // A server that refuses a body may stop reading it.
    _ = stream.write_all(head.as_bytes());
    let mut reader = BufReader::new(stream);
    let (status, headers) = read_head(&mut reader);
    let mut bytes = Vec::new();
    _ = reader.read_to_end(&mut bytes);
    Answer {
        status,
        headers,
        body: String::from_utf8(bytes).unwrap(),
    }
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    // A test that hangs says nothing.
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream
}

pub(crate) fn read_head(reader: &mut impl BufRead) -> (u16, Vec<(String, String)>) {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let status = line.split(' ').nth(1).unwrap().parse().unwrap();
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let Some((name, value)) = line.trim_end().split_once(':') else {
            return (status, headers);
        };
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
}

/// An upstream that answers with these statuses, one after the other, then with 200.
pub(crate) fn upstream(statuses: &'static [u16]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut statuses = statuses.iter().copied();
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut line = String::new();
            while reader.read_line(&mut line).unwrap_or(0) > 2 {
                line.clear();
            }
            let status = statuses.next().unwrap_or(200);
            let answer =
                format!("HTTP/1.1 {status} x\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
            _ = stream.write_all(answer.as_bytes());
        }
    });
    address
}

/// Waits until something is so, and fails after ten seconds.
pub(crate) fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let (_sender, pause) = std::sync::mpsc::channel::<()>();
    for _ in 0..1000 {
        if is() {
            return;
        }
        _ = pause.recv_timeout(Duration::from_millis(10));
    }
    panic!("never: {what}");
}
