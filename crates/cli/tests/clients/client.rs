//! Runs clients without proxies, and prints their output if they fail.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::servers::{TIMEOUT, wait};

/// What a client printed.
#[derive(Debug)]
pub(crate) struct ClientOutput {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A program of the system.
pub(crate) fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    without_proxies(&mut command);
    command
}

/// A program of the Python environment.
pub(crate) fn of_python(name: &str) -> Command {
    let path = environment().join("bin").join(name);
    program(path.to_str().unwrap())
}

/// A script in this folder.
pub(crate) fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/clients")
        .join(name)
}

/// A program of Prometheus, which is unpacked and not installed: its package would start a server.
pub(crate) fn prometheus(name: &str) -> Command {
    let path = clients().join("prometheus/usr/bin").join(name);
    program(path.to_str().unwrap())
}

/// The Python environment that `scripts/install-clients` creates.
fn environment() -> PathBuf {
    match std::env::var_os("CLIENTS_VENV") {
        Some(chosen) => in_workspace(chosen.into()),
        None => clients().join("venv"),
    }
}

/// The folder that `scripts/install-clients` fills.
fn clients() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    in_workspace(target.into()).join("clients")
}

/// Relative to the workspace, where the script runs; tests run in the folder of their package.
fn in_workspace(path: PathBuf) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

fn without_proxies(command: &mut Command) {
    for name in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
        command.env_remove(name).env_remove(name.to_uppercase());
    }
}

/// Runs a client, which has to exit with 0.
pub(crate) fn run(command: &mut Command) -> ClientOutput {
    run_for(command, TIMEOUT)
}

/// The same with another timeout.
pub(crate) fn run_for(command: &mut Command, timeout: Duration) -> ClientOutput {
    let folder = tempfile::tempdir().unwrap();
    let files = ["stdout", "stderr"].map(|name| folder.path().join(name));
    let [stdout, stderr] = files.each_ref().map(|file| File::create(file).unwrap());
    let spawned = command.stdout(stdout).stderr(stderr).spawn();
    let mut child = spawned.unwrap_or_else(|error| panic!("{}", missing(command, &error)));
    let status = wait(&mut child, timeout);
    let [stdout, stderr] =
        files.map(|file| String::from_utf8_lossy(&fs::read(file).unwrap()).into_owned());
    assert!(
        status.success(),
        "{command:?} ended with {status}\n--- stdout\n{stdout}\n--- stderr\n{stderr}"
    );
    ClientOutput { stdout, stderr }
}

/// Starts a client whose output is read while it runs.
pub(crate) fn start(command: &mut Command) -> std::process::Child {
    let spawned = command.stdout(Stdio::piped()).spawn();
    spawned.unwrap_or_else(|error| panic!("{}", missing(command, &error)))
}

fn missing(command: &Command, error: &std::io::Error) -> String {
    format!(
        "cannot run {}: {error}\nhint: scripts/install-clients installs the clients that tests use",
        command.get_program().display()
    )
}
