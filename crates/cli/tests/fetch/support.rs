//! Runs the real binary.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// A folder with the settings of a test.
pub(crate) fn folder(settings: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tidegate.toml"), settings).unwrap();
    folder
}

/// `tidegate fetch` in this folder, without the settings of the environment.
pub(crate) fn tidegate_fetch(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("fetch").args(args).current_dir(folder);
    for (variable, _) in std::env::vars_os() {
        if variable.to_string_lossy().starts_with("TIDEGATE_") {
            command.env_remove(variable);
        }
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}
