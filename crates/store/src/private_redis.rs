//! A Redis server of its own for a test: in a temporary folder, on a free port, ended with the test.
//!
//! Nothing is written to the disk, so a server that is killed comes back empty, as a cache does.

use std::fmt;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A server. Dropped, it is ended and its folder removed.
pub struct PrivateRedis {
    folder: PathBuf,
    port: u16,
    options: Vec<String>,
    /// Whether it has a network namespace of its own.
    is_isolated: bool,
    process: Option<Child>,
}

/// The password of all servers.
pub const PASSWORD: &str = "pass-of-tests";

impl PrivateRedis {
    /// Starts an empty server.
    ///
    /// # Panics
    ///
    /// If there is no server on this machine, or it does not start.
    pub fn start() -> Self {
        Self::start_with(&[], |_| {})
    }

    /// Starts a server with more options, such as `--replicaof`, after `prepare` has changed its
    /// folder.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn start_with(options: &[&str], prepare: impl FnOnce(&Path)) -> Self {
        Self::begin(options, false, prepare)
    }

    /// Starts an empty server in a network namespace of its own, which ends with it. It listens on all
    /// addresses that the namespace gets; at first there are none.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn start_isolated() -> Self {
        Self::begin(&["--bind", "0.0.0.0"], true, |_| {})
    }

    fn begin(options: &[&str], is_isolated: bool, prepare: impl FnOnce(&Path)) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidegate-redis-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("there is a temporary folder");
        prepare(&folder);
        let mut server = Self {
            folder,
            port: 0,
            options: options.iter().map(|&option| option.to_owned()).collect(),
            is_isolated,
            process: None,
        };
        server.resume_service();
        server
    }

    /// The address of the server, with its password.
    pub fn url(&self) -> String {
        self.url_at("127.0.0.1")
    }

    /// The same at another of its addresses.
    pub fn url_at(&self, host: &str) -> String {
        format!("redis://:{PASSWORD}@{host}:{}", self.port)
    }

    /// The number of its process; `None` after a crash.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// The port.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Its folder, which has what `prepare` has put there.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Runs a command with redis-cli, and returns what it prints.
    ///
    /// # Panics
    ///
    /// If it fails.
    pub fn command(&self, words: &[&str]) -> String {
        let output = Command::new("redis-cli")
            .args(["--no-auth-warning", "-a", PASSWORD, "-p"])
            .arg(self.port.to_string())
            .args(words)
            .output()
            .expect("redis-cli runs; if not, run scripts/install-clients");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{words:?}: {printed}");
        printed.trim_end().to_owned()
    }

    /// How long the server takes for a PING, there and back: the median of many.
    ///
    /// # Panics
    ///
    /// If it does not answer.
    pub fn latency(&self) -> Duration {
        let connected = TcpStream::connect(("127.0.0.1", self.port));
        let mut stream = connected.expect("it listens");
        let mut say = |line: String| {
            let begin = Instant::now();
            stream.write_all(line.as_bytes()).expect("it reads");
            let read = stream.read(&mut [0; 64]).expect("it answers");
            assert!(read > 0, "it has closed the connection");
            begin.elapsed()
        };
        say(format!("AUTH {PASSWORD}\r\n"));
        let mut times: Vec<Duration> = (0..101).map(|_| say("PING\r\n".to_owned())).collect();
        times.sort_unstable();
        times[times.len() / 2]
    }

    /// Ends the server at once, as after a crash.
    pub fn crash(&mut self) {
        if let Some(mut process) = self.process.take() {
            _ = process.kill();
            _ = process.wait();
        }
    }

    /// Starts the server again, on the same port and empty, after a crash.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn resume_service(&mut self) {
        if self.port == 0 {
            let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
            self.port = free.expect("there is a free port").port();
        }
        let mut process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            // Each replaces itself by the next, so it stays the same process.
            .args(
                self.is_isolated
                    .then_some(["unshare", "--net"])
                    .into_iter()
                    .flatten(),
            )
            .arg("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &self.port.to_string()])
            .args(["--requirepass", PASSWORD, "--masterauth", PASSWORD])
            .args(["--save", "", "--appendonly", "no", "--dir"])
            .arg(&self.folder)
            .args(&self.options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server starts");
        let log = process.stdout.take().expect("it is piped");
        let is_ready = wait_until_ready(BufReader::new(log));
        self.process = Some(process);
        if let Err(log) = is_ready {
            self.port = 0;
            panic!(
                "the server did not start; if there is none, run scripts/install-clients: {log}"
            );
        }
    }

    /// Stops the process of the server, which keeps its connections, until [`Self::thaw`].
    pub fn freeze(&self) {
        self.signal("STOP");
    }

    /// Lets a frozen server go on.
    pub fn thaw(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        if let Some(process) = &self.process {
            let mut command = Command::new("kill");
            command
                .arg(format!("-{name}"))
                .arg(process.id().to_string());
            // One that has ended meanwhile needs no signal.
            _ = command.stderr(Stdio::null()).status();
        }
    }
}

impl Drop for PrivateRedis {
    fn drop(&mut self) {
        self.crash();
        _ = fs::remove_dir_all(&self.folder);
    }
}

impl fmt::Debug for PrivateRedis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateRedis")
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

/// Reads the log up to the line that says so, and the rest on a thread; the log, if it ends before.
fn wait_until_ready(log: impl BufRead + Send + 'static) -> Result<(), String> {
    let mut lines = log.lines();
    let mut read = String::new();
    for line in lines.by_ref().map_while(Result::ok) {
        if line.contains("Ready to accept connections") {
            thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
            return Ok(());
        }
        read.push_str(&line);
        read.push('\n');
    }
    Err(read)
}
