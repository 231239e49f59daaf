//! The data folder: its lock and its permissions.
//!
//! A lock on a file of its own says whose the folder is. The system frees it with the process,
//! however that ends, and the database stays readable for others meanwhile. The number in the file
//! is only for people; a second line says that a database was made here, so that one that was cut to
//! nothing is not taken for a new one.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use crate::error::OpenError;

/// Creates what is missing and takes the lock. The folder is ours until the file is dropped.
pub(super) fn prepare(folder: &Path) -> Result<(PathBuf, File), OpenError> {
    create_folder(folder).map_err(at(folder))?;
    let (lock, has_database) = take_lock(folder)?;
    let path = folder.join("tidegate.db");
    if has_database && is_empty(&path) {
        let reason = "it is empty".to_owned();
        return Err(OpenError::Damaged { path, reason });
    }
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

/// Notes that the folder has a database. Without the note, an empty file counts as a new one.
pub(super) fn note_database(lock: &mut File) {
    _ = sign(lock, true);
}

/// The lock, and whether the folder has a database.
fn take_lock(folder: &Path) -> Result<(File, bool), OpenError> {
    let path = folder.join("tidegate.lock");
    let mut file = private().open(&path).map_err(at(&path))?;
    match file.try_lock() {
        Ok(()) => {
            let has_database = read(&mut file).lines().nth(1) == Some(DATABASE);
            sign(&mut file, has_database).map_err(at(&path))?;
            Ok((file, has_database))
        }
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse {
            folder: folder.to_owned(),
            process: owner(&mut file),
        }),
        Err(TryLockError::Error(source)) => Err(OpenError::Io { path, source }),
    }
}

const DATABASE: &str = "database";

fn sign(file: &mut File, has_database: bool) -> io::Result<()> {
    let note = match has_database {
        true => DATABASE,
        false => "",
    };
    file.set_len(0)?;
    file.rewind()?;
    write!(file, "{}\n{note}\n", std::process::id())
}

fn owner(file: &mut File) -> Option<u32> {
    read(file).lines().next()?.parse().ok()
}

/// What the lock says; nothing if it cannot be read.
fn read(file: &mut File) -> String {
    let mut text = String::new();
    _ = file.take(40).read_to_string(&mut text);
    text
}

fn is_empty(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.len() == 0)
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
