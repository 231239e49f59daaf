//! Files and environment variables, from which settings are read.
//!
//! A trait, so that tests have their own and no test changes the environment of the process.

use std::io::{self, Read};
use std::path::Path;

/// Files and environment variables.
pub trait Environment {
    /// The whole of a file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Every environment variable; those that are not UTF-8 with replacement characters.
    fn variables(&self) -> Vec<(String, String)>;

    /// One environment variable.
    fn variable(&self, name: &str) -> Option<String> {
        let variables = self.variables();
        let mut found = variables.into_iter().filter(|(known, _)| known == name);
        found.next().map(|(_, value)| value)
    }
}

/// The files and the environment of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Process;

impl Environment for Process {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        /// What looks like a settings file but never ends, such as a device, must not fill the
        /// memory; a file of this size is refused for its size afterwards.
        const MAX_BYTES: u64 = 16 << 20;
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path)?;
        file.take(MAX_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn variables(&self) -> Vec<(String, String)> {
        let lossy = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
        let variables = std::env::vars_os();
        variables
            .map(|(name, value)| (lossy(name), lossy(value)))
            .collect()
    }
}

/// The same, but plain files only. The operator may give the process a pipe; a pipe that the admin API
/// names could block indefinitely.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PlainFiles;

impl Environment for PlainFiles {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        if !std::fs::metadata(path)?.is_file() {
            return Err(io::Error::other("it is not a plain file"));
        }
        Process.read(path)
    }

    fn variables(&self) -> Vec<(String, String)> {
        Process.variables()
    }
}
