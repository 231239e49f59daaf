//! The data folder: its lock and its permissions.
//!
//! A lock on a file of its own says whose the folder is. The system frees it with the process,
//! however that ends, and the database stays readable for others meanwhile; the number in the file
//! is only for people.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use crate::error::OpenError;

/// Creates what is missing and takes the lock. The folder is ours until the file is dropped.
pub(super) fn prepare(folder: &Path) -> Result<(PathBuf, File), OpenError> {
    create_folder(folder).map_err(at(folder))?;
    let lock = take_lock(folder)?;
    let path = folder.join("tidegate.db");
    create_file(&path).map_err(at(&path))?;
    sync(folder).map_err(at(folder))?;
    Ok((path, lock))
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> OpenError {
    move |source| OpenError::Io {
        path: path.to_owned(),
        source,
    }
}

fn create_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)?;
    match folder.canonicalize()?.parent() {
        Some(parent) => sync(parent),
        None => Ok(()),
    }
}

fn take_lock(folder: &Path) -> Result<File, OpenError> {
    let path = folder.join("tidegate.lock");
    let mut file = private().open(&path).map_err(at(&path))?;
    match file.try_lock() {
        Ok(()) => {
            sign(&mut file).map_err(at(&path))?;
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse {
            folder: folder.to_owned(),
            process: owner(&mut file),
        }),
        Err(TryLockError::Error(source)) => Err(OpenError::Io { path, source }),
    }
}

fn sign(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

fn owner(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(20).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// An empty file is an empty database. SQLite gives the files beside it the same mode.
fn create_file(path: &Path) -> io::Result<()> {
    private().open(path).map(drop)
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// A file that was created is only there after a power cut if its folder was synced.
fn sync(folder: &Path) -> io::Result<()> {
    if cfg!(unix) {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}
