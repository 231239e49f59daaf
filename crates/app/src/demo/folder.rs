//! The temporary folder of a demo.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A new folder that only its owner may read; dropping this value removes it.
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
                // Left behind by an earlier process with the same id.
                Err(error)
                    if error.kind() == io::ErrorKind::AlreadyExists && number < MAX_TRIES =>
                {
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

/// After this many taken names, starting fails.
const MAX_TRIES: u32 = 1000;

impl Drop for Folder {
    fn drop(&mut self) {
        // If it cannot be removed, the system cleans it up.
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
