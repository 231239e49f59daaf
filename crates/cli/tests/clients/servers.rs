//! A mock and a gateway in front of it, each in its own process.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// After this time a step counts as hung; long, because the machine may be busy.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// The settings of every server.
const POOL: &str = r#"
[server]
listen = "127.0.0.1:0"
admin = "127.0.0.1:0"
[pool.api]
endpoints = [{ name = "mock", url = "http://MOCK" }]
"#;

/// A mock, and a server with one pool, `api`, that calls it.
pub(crate) struct Servers {
    pub(crate) mock: Program,
    server: Program,
    pub(crate) folder: TempDir,
}

impl Servers {
    /// Starts both: the mock with these flags, and the server with these settings besides its pool.
    /// `MOCK` in them stands for the mock's address.
    pub(crate) fn start(mock: &[&str], settings: &str) -> Self {
        Self::start_with(mock, |_| settings.to_owned())
    }

    /// The same with settings that depend on the folder.
    pub(crate) fn start_with(mock: &[&str], settings: impl FnOnce(&Path) -> String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mock = Program::start("mock", mock, &folder);
        let settings = format!("{POOL}{}", settings(folder.path()));
        let settings = settings.replace("MOCK", &mock.address("listening"));
        let file = folder.path().join("tidegate.toml");
        fs::write(&file, settings).unwrap();
        let data = folder.path().join("data");
        let flags = [
            "--config",
            file.to_str().unwrap(),
            "--data",
            data.to_str().unwrap(),
        ];
        let server = Program::start("serve", &flags, &folder);
        Self {
            mock,
            server,
            folder,
        }
    }

    /// The base URL of the mock behind the gateway.
    pub(crate) fn base(&self) -> String {
        format!("http://{}/api", self.gateway())
    }

    /// Host and port of the gateway.
    pub(crate) fn gateway(&self) -> String {
        self.server.address("listening")
    }

    /// Host and port of the admin API.
    pub(crate) fn admin(&self) -> String {
        self.server.address("admin")
    }

    /// The URL that the server announced under this name.
    pub(crate) fn url(&self, name: &str) -> String {
        self.server.announced[name].as_str().unwrap().to_owned()
    }

    /// Sends the server a signal.
    pub(crate) fn signal(&self, name: &str) {
        self.server.signal(name);
    }

    /// What the server has logged so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.server.log).unwrap()
    }

    pub(crate) fn token(&self) -> String {
        let token = fs::read_to_string(self.folder.path().join("data/admin-token"));
        token.unwrap().trim().to_owned()
    }

    /// The mock's counts.
    pub(crate) fn stats(&self) -> Value {
        get(&self.mock.address("listening"), "/_mock/stats", &[]).json()
    }

    /// Waits until the mock's counts meet a condition.
    pub(crate) fn await_stats(&self, condition: &str, is_met: impl Fn(&Value) -> bool) -> Value {
        let start = Instant::now();
        loop {
            let stats = self.stats();
            if is_met(&stats) {
                return stats;
            }
            assert!(start.elapsed() < TIMEOUT, "never {condition}: {stats}");
            pause();
        }
    }

    /// Stops both with SIGTERM; they have to exit with 0.
    pub(crate) fn end(mut self) {
        self.server.end();
        self.mock.end();
    }
}

/// The binary, running.
pub(crate) struct Program {
    name: &'static str,
    child: Child,
    /// The first line it printed: its addresses.
    announced: Value,
    log: PathBuf,
}

impl Program {
    fn start(name: &'static str, flags: &[&str], folder: &TempDir) -> Self {
        let log = folder.path().join(format!("{name}.log"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args([name, "--json"]).args(flags);
        if name == "mock" {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("TIDEGATE_") {
                command.env_remove(variable);
            }
        }
        let mut child = command
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        // The rest of its stdout is read and dropped, so that the program never blocks.
        std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
        let announced = serde_json::from_str(&line).unwrap_or_else(|_| {
            _ = child.wait();
            panic!(
                "{name} did not start: {}",
                fs::read_to_string(&log).unwrap()
            )
        });
        Self {
            name,
            child,
            announced,
            log,
        }
    }

    /// Host and port of the address with this name.
    pub(crate) fn address(&self, name: &str) -> String {
        let url = self.announced[name].as_str().unwrap();
        let authority = url.trim_start_matches("https://");
        authority.trim_start_matches("http://").to_owned()
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.unwrap().success());
    }

    fn end(&mut self) {
        self.signal("TERM");
        let status = wait(&mut self.child, TIMEOUT);
        let name = self.name;
        assert!(status.success(), "{name} ended with {status}");
    }
}

/// Stops the program in any case; if the test failed, prints its log.
impl Drop for Program {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
        if std::thread::panicking() {
            show(
                self.name,
                &fs::read_to_string(&self.log).unwrap_or_default(),
            );
        }
    }
}

#[expect(clippy::print_stderr, reason = "a failed test reports on stderr")]
fn show(name: &str, log: &str) {
    eprintln!("--- stderr of {name}\n{log}---");
}

/// Waits for a process to end, and kills it after `timeout`.
pub(crate) fn wait(child: &mut Child, timeout: Duration) -> ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if start.elapsed() > timeout {
            _ = child.kill();
            return child.wait().unwrap();
        }
        pause();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the standard library has no wait with a timeout, so processes are polled"
)]
pub(crate) fn pause() {
    std::thread::sleep(Duration::from_millis(10));
}

/// A response, read to its end.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// With the status line; names in lower case.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields
            .find(|(known, _)| *known == name)
            .map(|found| found.1)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }
}

/// Sends a GET without an HTTP client, so that nothing is added to the headers given.
pub(crate) fn get(address: &str, path: &str, headers: &[&str]) -> Response {
    send(address, "GET", path, headers, "")
}

/// Sends a request without an HTTP client.
pub(crate) fn send(
    address: &str,
    method: &str,
    path: &str,
    headers: &[&str],
    body: &str,
) -> Response {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
    if !headers.iter().any(|header| header.starts_with("host:")) {
        head.push_str(&format!("host: {address}\r\n"));
    }
    for header in headers {
        head.push_str(&format!("{header}\r\n"));
    }
    let length = body.len();
    let request = format!("{head}content-length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    Response {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        head: head.to_owned(),
        body: body.to_owned(),
    }
}
