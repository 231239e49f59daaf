//! The access log of the real server: on stdout, and in a file that SIGHUP opens again.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{shown, tidegate};

/// `tidegate serve` on free ports whose announcement is read from stderr, stopped with the test.
struct Logging {
    process: Child,
    stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
    address: String,
}

impl Logging {
    fn start(folder: &Path, settings: &str) -> Self {
        let file = folder.join("tidegate.toml");
        fs::write(&file, settings).unwrap();
        let mut process = tidegate("serve --listen 127.0.0.1:0 --admin 127.0.0.1:0")
            .arg("--data")
            .arg(folder.join("data"))
            .arg("--config")
            .arg(&file)
            .spawn()
            .unwrap();
        let stdout = BufReader::new(process.stdout.take().unwrap());
        let stderr = BufReader::new(process.stderr.take().unwrap());
        Self {
            process,
            stdout,
            stderr,
            address: String::new(),
        }
    }

    /// Sends a request, and reads the response to its end.
    fn get(&self, path: &str) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap();
    }

    fn signal(&self, name: &str) {
        let id = self.process.id().to_string();
        let killed = Command::new("kill").args([name, &id]).status();
        assert!(killed.unwrap().success());
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

/// The address behind the first line with these words.
fn address(lines: impl BufRead) -> String {
    let mut lines = lines.lines().map(Result::unwrap);
    let before = "listening on http://";
    let line = lines.find_map(|line| line.strip_prefix(before).map(str::to_owned));
    line.unwrap()
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(
            since.elapsed() < Duration::from_secs(20),
            "still not: {what}"
        );
        pause();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "another process writes the file, at its own time"
)]
fn pause() {
    std::thread::sleep(Duration::from_millis(5));
}

#[test]
fn every_line_of_stdout_is_a_request() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Logging::start(folder.path(), "[server]\naccess_log = \"json\"\n");
    server.address = address(&mut server.stderr);
    server.get("/nope/x?key=secret");
    let mut line = String::new();
    server.stdout.read_line(&mut line).unwrap();
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["path"], "/nope/x?key=…");
    assert_eq!(
        (&line["status"], &line["reason"]),
        (&404.into(), &"no_route".into())
    );
    // What is queued is written before it ends.
    server.get("/nope/last");
    server.signal("-TERM");
    let mut rest = String::new();
    server.stdout.read_to_string(&mut rest).unwrap();
    assert!(
        rest.contains("/nope/last") && rest.lines().count() == 1,
        "{rest}"
    );
}

#[test]
fn hang_up_opens_the_file_again() {
    let folder = tempfile::tempdir().unwrap();
    let (file, rotated) = (folder.path().join("a.log"), folder.path().join("a.log.1"));
    let settings = format!(
        "[server]\naccess_log = \"combined\"\naccess_log_file = {:?}\n",
        file.to_str().unwrap()
    );
    let mut server = Logging::start(folder.path(), &settings);
    server.address = address(&mut server.stdout);
    let lines = |path: &Path| fs::read_to_string(path).unwrap_or_default().lines().count();
    server.get("/nope/1");
    until("the first line is written", || lines(&file) == 1);
    fs::rename(&file, &rotated).unwrap();
    server.signal("-HUP");
    until("the file is there again", || file.exists());
    server.get("/nope/2");
    until("the second line is written", || lines(&file) == 1);
    assert_eq!(lines(&rotated), 1);
}

#[test]
fn a_file_that_cannot_be_opened_is_an_error_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidegate.toml");
    let settings = "[server]\naccess_log = \"json\"\naccess_log_file = \"no/such/folder/a.log\"\n";
    fs::write(&file, settings).unwrap();
    let output = tidegate("serve --listen 127.0.0.1:0 --admin 127.0.0.1:0")
        .current_dir(folder.path())
        .output()
        .unwrap();
    insta::assert_snapshot!(shown(&output), @r"
    exit 1
    --- stderr
    error: cannot open the access log `no/such/folder/a.log`: No such file or directory (os error 2)
    hint: `server.access_log_file` names a file in a folder that exists and that this user may write to
    ");
}
