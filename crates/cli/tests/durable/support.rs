//! A server that is started and ended, and a client that speaks just enough HTTP.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use app::mock::{Mock, MockSettings, Script};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A folder with settings and data, over all servers that have it one after the other.
pub(crate) struct Home {
    folder: TempDir,
}

impl Home {
    pub(crate) fn new(settings: &str) -> Self {
        let home = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        home.write(settings);
        home
    }

    pub(crate) fn write(&self, settings: &str) {
        fs::write(self.folder.path().join("tidegate.toml"), settings).unwrap();
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// A command that uses the settings and the data of this place.
    pub(crate) fn tidegate(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command
            .args(words)
            .arg("--config")
            .arg(self.folder.path().join("tidegate.toml"))
            .arg("--data")
            .arg(self.data())
            .env("NO_COLOR", "1");
        command
    }

    /// The command that serves from here, on any ports.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command
            .args(["serve", "--json", "--config"])
            .arg(self.folder.path().join("tidegate.toml"))
            .args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
            .arg("--data")
            .arg(self.data())
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// What the last server has logged so far.
    pub(crate) fn stderr(&self) -> String {
        fs::read_to_string(self.stderr_file()).unwrap()
    }

    fn stderr_file(&self) -> PathBuf {
        self.folder.path().join("stderr")
    }

    pub(crate) fn start(&self) -> Running {
        self.start_with(self.command())
    }

    /// Starts a server with this command, which ends with that of [`Home::command`].
    pub(crate) fn start_with(&self, mut command: Command) -> Running {
        // A file, because the output is not read while it runs.
        let stderr = fs::File::create(self.stderr_file()).unwrap();
        let mut child = command.stderr(stderr).spawn().unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        if line.is_empty() {
            child.wait().unwrap();
            panic!("the server did not start:\n{}", self.stderr());
        }
        let record: Value = serde_json::from_str(&line).unwrap();
        let address = |name: &str| {
            let url = record[name].as_str().unwrap();
            url.strip_prefix("http://").unwrap().to_owned()
        };
        Running {
            listen: address("listening"),
            admin: Admin {
                address: address("admin"),
                token: token(&self.data()),
            },
            child,
        }
    }
}

fn token(data: &Path) -> String {
    let token = fs::read_to_string(data.join("admin-token")).unwrap();
    token.trim().to_owned()
}

/// A server that runs. Dropping it kills it.
pub(crate) struct Running {
    pub(crate) listen: String,
    pub(crate) admin: Admin,
    child: Child,
}

impl Running {
    /// The response to a request through the gateway; `None` if there is none.
    pub(crate) fn get(&self, path: &str) -> Option<Answer> {
        get(&self.listen, path)
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.unwrap().success());
    }

    /// Ends it as a service manager does.
    pub(crate) fn stop(mut self) -> ExitStatus {
        self.signal("TERM");
        self.child.wait().unwrap()
    }

    /// Ends it without a warning.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// The admin API of a server.
#[derive(Clone)]
pub(crate) struct Admin {
    address: String,
    token: String,
}

impl Admin {
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The response to a call; `None` if there is none.
    pub(crate) fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Option<Answer> {
        let headers = format!("authorization: Bearer {}\r\n", self.token);
        send(&self.address, method, path, &headers, body)
    }

    /// The same for one that has to succeed.
    pub(crate) fn must(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let answer = self.call(method, path, body).unwrap();
        assert!(answer.status < 300, "{method} {path}: {answer:?}");
        answer.json()
    }

    pub(crate) fn gate(&self, key: &str) -> Value {
        self.must("GET", &format!("/api/v1/gates/{key}"), None)
    }

    pub(crate) fn gates(&self) -> Option<Vec<Value>> {
        let answer = self.call("GET", "/api/v1/gates?limit=1000", None)?;
        answer.json()["gates"].as_array().cloned()
    }

    pub(crate) fn pools(&self) -> Option<Vec<Value>> {
        let answer = self.call("GET", "/api/v1/pools", None)?;
        answer.json()["pools"].as_array().cloned()
    }

    pub(crate) fn pool(&self, name: &str) -> Value {
        self.must("GET", &format!("/api/v1/pools/{name}"), None)
    }

    pub(crate) fn endpoint(&self, pool: &str, name: &str) -> Value {
        let pool = self.pool(pool);
        let endpoints = pool["endpoints"].as_array().unwrap();
        let found = endpoints.iter().find(|endpoint| endpoint["name"] == name);
        found.unwrap_or(&Value::Null).clone()
    }
}

/// A body for an endpoint to add.
pub(crate) fn endpoint(name: &str, url: &str) -> Value {
    json!({ "name": name, "url": url })
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }
}

/// The response to a request through a gateway. It does not wait for long.
pub(crate) fn get(address: &str, path: &str) -> Option<Answer> {
    send(address, "GET", path, "tidegate-max-wait: 200ms\r\n", None)
}

/// The same, waiting for as long as it takes.
pub(crate) fn patient_get(address: &str, path: &str) -> Option<Answer> {
    send(address, "GET", path, "tidegate-max-wait: 25s\r\n", None)
}

fn send(
    address: &str,
    method: &str,
    path: &str,
    headers: &str,
    body: Option<&Value>,
) -> Option<Answer> {
    let body = body.map(Value::to_string).unwrap_or_default();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n{headers}\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all((head + &body).as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split_whitespace().nth(1)?.parse().ok()?;
    Some(Answer {
        status,
        head: head.to_ascii_lowercase(),
        body: body.to_owned(),
    })
}

/// A mock with answers in this order.
pub(crate) fn mock(script: &str) -> Mock {
    let settings = MockSettings {
        script: Some(Script::parse(script).unwrap()),
        ..MockSettings::default()
    };
    let listen = "127.0.0.1:0".parse().unwrap();
    Mock::start(settings, listen, NonZeroUsize::MIN).unwrap()
}

/// Longer than anything takes on the busiest machine.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// Waits until `look` finds something.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = SystemTime::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed().unwrap_or_default() < LONG, "no {what}");
        wait(Duration::from_millis(10));
    }
}

/// Lets time pass.
pub(crate) fn wait(length: Duration) {
    let (_keep, nothing) = mpsc::channel::<()>();
    _ = nothing.recv_timeout(length);
}

/// Milliseconds of Unix time.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    i64::try_from(since.unwrap().as_millis()).unwrap()
}

/// By how much an end in milliseconds may seem to be earlier: showing one reads two clocks,
/// and may be interrupted in between.
pub(crate) const SLACK_MS: i64 = 250;
