//! A folder for as long as the demo runs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A new folder that only its owner may read; it goes with this value.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new() -> io::Result<Self> {
        let process = std::process::id();
        let base = std::env::temp_dir();
        let mut number = 0;
        loop {
            let path = base.join(format!("tidegate-demo-{process}-{number}"));
            match make(&path) {
                Ok(()) => return Ok(Self(path)),
                // Left behind by a process that had our number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < MOST => {
                    number += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

/// Whoever finds that many taken is being kept from starting.
const MOST: u32 = 1000;

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed goes when the system cleans up.
        _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(unix)]
fn make(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().mode(0o700).create(path)
}

#[cfg(not(unix))]
fn make(path: &Path) -> io::Result<()> {
    fs::create_dir(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_new_and_goes_with_all_that_is_in_it() {
        let (one, other) = (Folder::new().unwrap(), Folder::new().unwrap());
        assert_ne!(one.path(), other.path());
        let path = one.path().to_owned();
        fs::write(path.join("file"), "x").unwrap();
        drop(one);
        assert!(!path.exists() && other.path().exists());
    }
}
