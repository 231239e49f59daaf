//! The console in Chromium. Each test is a script of this folder, which starts the servers that its
//! pages need. `PICTURES=FOLDER` stores a picture of every page.

mod fill;

use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a script, and prints its output if it fails.
fn run(name: &str) {
    run_in(name, Path::new(""));
}

/// The same with a folder that was filled.
fn run_in(name: &str, filled: &Path) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/console");
    let mut command = Command::new("node");
    command
        .arg(folder.join(name))
        .env("FOLDER", filled)
        .env("BINARY", env!("CARGO_BIN_EXE_tidegate"))
        .env("AXE", packages().join("axe-core/axe.min.js"));
    for name in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
        command.env_remove(name).env_remove(name.to_uppercase());
    }
    let output = command
        .output()
        .expect("Node runs; scripts/install-clients installs it");
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(
        output.status.success(),
        "{name} failed\n--- stdout\n{stdout}\n--- stderr\n{stderr}"
    );
    print(&stdout);
}

#[expect(clippy::print_stdout, reason = "scripts print what they measured")]
fn print(text: &str) {
    println!("{text}");
}

/// Node's packages, which `scripts/install-clients` installs.
fn packages() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(target)
        .join("clients/node/node_modules")
}

#[test]
fn overview() {
    run("overview.mjs");
}

#[test]
fn gates() {
    run("gates.mjs");
}

#[test]
fn pools() {
    run("pools.mjs");
}

#[test]
fn operations() {
    run("operations.mjs");
}

#[test]
fn jobs() {
    run("jobs.mjs");
}

#[test]
fn job_polling() {
    run("job.mjs");
}

#[test]
fn simulate() {
    run("simulate.mjs");
}

#[test]
fn demo() {
    run("demo.mjs");
}

#[test]
fn hostile_text() {
    run("hostile.mjs");
}

#[test]
fn access() {
    run("access.mjs");
}

#[test]
fn ten_thousand_gates_and_a_hundred_thousand_operations() {
    let folder = tempfile::tempdir().unwrap();
    fill::fill(&folder.path().join("data"), 10_000, 100_000);
    run_in("scale.mjs", folder.path());
}
