//! A Postgres server of its own for a test: in a temporary folder, on a free port, ended with the test.
//!
//! Postgres does not run as root: started by root, it runs as the user `postgres`. The first test
//! initialises a folder, of which all others start with a copy. Nothing is synced to the disk, so a
//! server that is killed keeps what it had acknowledged, but a machine that fails would not.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use crate::DatabaseAddress;

/// A server. Dropped, it is ended and its folder removed.
pub struct PrivatePostgres {
    programs: PathBuf,
    folder: PathBuf,
    port: u16,
    options: Vec<String>,
    process: Option<Child>,
}

/// The user of all databases, who may do anything.
pub const USER: &str = "tidegate";

/// The password of that user.
pub const PASSWORD: &str = "pass-of-tests";

impl PrivatePostgres {
    /// Starts a server with the empty database `work`.
    ///
    /// # Panics
    ///
    /// If there is no server on this machine, or it does not start.
    pub fn start() -> Self {
        Self::start_with(&[], |_| {})
    }

    /// Starts a server with more options, such as `ssl=on`, after `prepare` has changed its folder.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn start_with(options: &[&str], prepare: impl FnOnce(&Path)) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let programs = programs();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidegate-pg-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        copy(&template(&programs), &folder);
        prepare(&folder);
        own(&folder);
        let mut server = Self {
            programs,
            folder,
            port: 0,
            options: options.iter().map(|&option| option.to_owned()).collect(),
            process: None,
        };
        server.resume_service();
        server
    }

    /// The address of the database.
    ///
    /// # Panics
    ///
    /// Never: it is a valid one.
    pub fn address(&self) -> DatabaseAddress {
        self.url().parse().expect("it is a valid address")
    }

    /// The same as a URL, with its password.
    pub fn url(&self) -> String {
        format!("postgres://{USER}:{PASSWORD}@127.0.0.1:{}/work", self.port)
    }

    /// The port.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Runs a statement with psql, and returns its rows, with `|` between columns.
    ///
    /// # Panics
    ///
    /// If it fails.
    pub fn query(&self, sql: &str) -> String {
        let output = Command::new(self.programs.join("psql"))
            .args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align"])
            .args(["--set", "ON_ERROR_STOP=1", "--command", sql])
            .arg(self.url())
            .output()
            .expect("psql runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{sql}: {error}");
        String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned()
    }

    /// Ends the server at once, as after a crash.
    pub fn crash(&mut self) {
        if let Some(mut process) = self.process.take() {
            signal("QUIT", &[process.id()]);
            _ = process.wait();
        }
    }

    /// Starts the server again, on the same port, after a crash.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn resume_service(&mut self) {
        if self.port == 0 {
            let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
            self.port = free.expect("there is a free port").port();
        }
        let mut command = as_owner(&self.programs.join("postgres"));
        command.arg("-D").arg(&self.folder);
        let fixed = [
            "listen_addresses=127.0.0.1".to_owned(),
            format!("port={}", self.port),
            "unix_socket_directories=".to_owned(),
            "fsync=off".to_owned(),
            "shared_buffers=16MB".to_owned(),
            "max_connections=60".to_owned(),
            "log_min_messages=error".to_owned(),
        ];
        for option in fixed.iter().chain(&self.options) {
            command.arg("-c").arg(option);
        }
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let log = process.stderr.take().expect("it is piped");
        let is_ready = wait_until_ready(BufReader::new(log));
        self.process = Some(process);
        if let Err(log) = is_ready {
            self.port = 0;
            panic!("the server did not start: {log}");
        }
    }

    /// Stops all processes of the server, which keep their connections, until [`Self::thaw`].
    pub fn freeze(&self) {
        signal("STOP", &self.processes());
    }

    /// Lets a frozen server go on.
    pub fn thaw(&self) {
        signal("CONT", &self.processes());
    }

    /// The server and the processes of its connections.
    fn processes(&self) -> Vec<u32> {
        let Some(server) = self.process.as_ref().map(Child::id) else {
            return Vec::new();
        };
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let children = numbers.filter(|&process: &u32| parent(process) == Some(server));
        std::iter::once(server).chain(children).collect()
    }
}

impl Drop for PrivatePostgres {
    fn drop(&mut self) {
        self.thaw();
        self.crash();
        _ = fs::remove_dir_all(&self.folder);
    }
}

impl fmt::Debug for PrivatePostgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivatePostgres")
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

/// Reads the log up to the line that says so, and the rest on a thread; the log, if it ends before.
fn wait_until_ready(log: impl BufRead + Send + 'static) -> Result<(), String> {
    let mut lines = log.lines();
    let mut read = String::new();
    for line in lines.by_ref().map_while(Result::ok) {
        if line.contains("database system is ready to accept connections") {
            thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
            return Ok(());
        }
        read.push_str(&line);
        read.push('\n');
    }
    Err(read)
}

fn parent(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(1)?.parse().ok()
}

fn signal(name: &str, processes: &[u32]) {
    let mut command = Command::new("kill");
    command.arg(format!("-{name}"));
    command.args(processes.iter().map(u32::to_string));
    // One that has ended meanwhile needs no signal.
    _ = command.stderr(Stdio::null()).status();
}

/// The folder with the programs of the newest server on this machine.
fn programs() -> PathBuf {
    let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let mut versions: Vec<(u32, PathBuf)> = installed
        .flatten()
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    versions.sort();
    let newest = versions.pop().map(|(_, folder)| folder);
    newest.expect("PostgreSQL is installed; if not, run scripts/install-clients")
}

/// A folder with an empty database, made once for all tests of this user.
fn template(programs: &Path) -> PathBuf {
    let version = programs.parent().and_then(Path::file_name);
    let version = version.unwrap_or_default().to_string_lossy().into_owned();
    let name = format!("tidegate-pg-template-{version}-{}", user());
    let folder = std::env::temp_dir().join(name);
    let lock = File::create(folder.with_extension("lock")).expect("there is a temporary folder");
    lock.lock().expect("it can be locked");
    if !folder.join("ready").exists() {
        _ = fs::remove_dir_all(&folder);
        initialise(programs, &folder).expect("a database can be initialised");
    }
    folder
}

fn initialise(programs: &Path, folder: &Path) -> io::Result<()> {
    let password = folder.with_extension("password");
    fs::write(&password, PASSWORD)?;
    own(&password);
    let made = as_owner(&programs.join("initdb"))
        .arg("-D")
        .arg(folder)
        .args(["--username", USER, "--auth", "scram-sha-256"])
        .arg("--pwfile")
        .arg(&password)
        .args(["--no-sync", "--encoding", "UTF8", "--locale", "C"])
        .stdout(Stdio::null())
        .status()?;
    assert!(made.success(), "initdb failed");
    let mut single = as_owner(&programs.join("postgres"))
        .args(["--single", "-D"])
        .arg(folder)
        .arg("postgres")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()?;
    let mut input = single.stdin.take().expect("it is piped");
    io::Write::write_all(&mut input, b"CREATE DATABASE work\n")?;
    drop(input);
    assert!(single.wait()?.success(), "the database cannot be created");
    fs::write(folder.join("ready"), "")
}

fn copy(from: &Path, to: &Path) {
    _ = fs::remove_dir_all(to);
    let mut command = Command::new("cp");
    let copied = command
        .args(["--archive", "--reflink=auto"])
        .arg(from)
        .arg(to)
        .status();
    assert!(copied.is_ok_and(|status| status.success()), "cp failed");
}

fn user() -> String {
    let output = Command::new("id").arg("-u").output().expect("id runs");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn is_root() -> bool {
    user() == "0"
}

/// Gives a file or folder to the user that the server runs as.
fn own(path: &Path) {
    if is_root() {
        let owner = Command::new("chown")
            .args(["-R", "postgres:postgres"])
            .arg(path)
            .status();
        assert!(owner.is_ok_and(|status| status.success()), "chown failed");
    }
}

/// A program as a user that a server may run as. It ends with the thread that starts it.
fn as_owner(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "QUIT"]);
    if is_root() {
        command.args([
            "--reuid",
            "postgres",
            "--regid",
            "postgres",
            "--clear-groups",
        ]);
    }
    command.arg(program);
    // The folder of a test may be one that this user must not enter.
    command.current_dir("/");
    command
}
