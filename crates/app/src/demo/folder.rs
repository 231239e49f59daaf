//! The temporary folder of a demo.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::admin::Token;
use crate::state::new_slug;

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

    /// Writes an admin token of 128 random bits, and returns it. It is shorter than the one that a
    /// server makes, so that the console's address fits on a line of 80 columns.
    pub(super) fn write_token(&self) -> io::Result<String> {
        let token = new_slug();
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(Token::path(&self.0))?;
        writeln!(file, "{token}")?;
        Ok(token)
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
    fn writes_a_token_that_a_server_accepts() {
        let folder = Folder::new().unwrap();
        let token = folder.write_token().unwrap();
        assert!((24..=32).contains(&token.len()));
        assert_eq!(Token::open(folder.path()).unwrap().expose(), token);
    }

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
