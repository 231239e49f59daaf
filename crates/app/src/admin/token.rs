//! The token that opens the admin API.
//!
//! It is made at the first start, from the system's randomness, and stored in a file that only its
//! owner may read. A file that others may read is refused and not repaired: anyone who could read it
//! has the token, and a new one has to be made.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use subtle::ConstantTimeEq;

use crate::settings::Secret;

/// The token of the admin API.
#[derive(Clone, Debug)]
pub struct Token(Secret);

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read or made.
    #[error("cannot read or make the admin token `{}`", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// Others may read it.
    #[error(
        "others may read the admin token `{}` (mode {mode:03o}, expected 600)\nhint: delete it, and the next start makes a new one; or `chmod 600` it, if no one has read it",
        .path.display()
    )]
    Readable {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// There is nothing in it that could be one.
    #[error(
        "the admin token `{}` is {what}, expected 16 to 512 letters, digits and signs on one line\nhint: delete it, and the next start makes a new one",
        .path.display()
    )]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
}

impl Token {
    /// The file in the folder of data.
    pub fn path(folder: &Path) -> PathBuf {
        folder.join("admin-token")
    }

    /// The token of this folder; made if there is none.
    ///
    /// # Errors
    ///
    /// If it cannot be read or made, or must not be used.
    pub fn open(folder: &Path) -> Result<Self, TokenError> {
        let path = Self::path(folder);
        match Self::read(&path) {
            Err(TokenError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
                Self::make(folder, &path)
            }
            read => read,
        }
    }

    /// The token in this file.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or must not be used.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let failed = |error| TokenError::Io {
            path: path.to_owned(),
            error,
        };
        let mut file = File::open(path).map_err(failed)?;
        check_mode(path, &file)?;
        let mut text = String::new();
        (&mut file)
            .take(MAX_BYTES)
            .read_to_string(&mut text)
            .map_err(failed)?;
        Self::new(&text).map_err(|what| TokenError::Unusable {
            path: path.to_owned(),
            what,
        })
    }

    /// A token from what was written.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn new(text: &str) -> Result<Self, &'static str> {
        let text = text.trim();
        match text.len() {
            0 => Err("empty"),
            1..16 => Err("too short"),
            512.. => Err("too long"),
            _ if !text.bytes().all(|byte| byte.is_ascii_graphic()) => Err("not one word"),
            _ => Ok(Self(Secret::new(text))),
        }
    }

    /// The token itself, to send it.
    pub fn expose(&self) -> &str {
        self.0.expose()
    }

    /// Is it this one? Takes as long whatever was given, but for its length.
    pub(super) fn is(&self, given: &[u8]) -> bool {
        self.0.expose().as_bytes().ct_eq(given).into()
    }

    fn make(folder: &Path, path: &Path) -> Result<Self, TokenError> {
        let failed = |error| TokenError::Io {
            path: path.to_owned(),
            error,
        };
        make_folder(folder).map_err(failed)?;
        let text = random_text().map_err(failed)?;
        let mut file = new_file(path).map_err(failed)?;
        file.write_all(text.as_bytes())
            .and_then(|()| file.write_all(b"\n"))
            .and_then(|()| file.sync_all())
            .map_err(failed)?;
        Ok(Self(Secret::new(text)))
    }
}

/// More than the longest token; what is longer is none.
const MAX_BYTES: u64 = 1024;

/// 32 bytes of the system's randomness.
fn random_text() -> io::Result<String> {
    let mut bytes = [0; 32];
    let provider = rustls::crypto::ring::default_provider();
    let filled = provider.secure_random.fill(&mut bytes);
    filled.map_err(|_| io::Error::other("the system gives no randomness"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(unix)]
fn make_folder(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
}

#[cfg(not(unix))]
fn make_folder(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)
}

/// A file that is not there yet, for its owner alone from the first moment on.
fn new_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

#[cfg(unix)]
fn check_mode(path: &Path, file: &File) -> Result<(), TokenError> {
    use std::os::unix::fs::PermissionsExt;
    let metadata = file.metadata().map_err(|error| TokenError::Io {
        path: path.to_owned(),
        error,
    })?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    Err(TokenError::Readable {
        path: path.to_owned(),
        mode,
    })
}

#[cfg(not(unix))]
fn check_mode(_path: &Path, _file: &File) -> Result<(), TokenError> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_made_once_and_read_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let made = Token::open(&data).unwrap();
        assert_eq!(made.expose().len(), 64);
        assert_eq!(Token::open(&data).unwrap().expose(), made.expose());
        assert!(made.is(made.expose().as_bytes()));
        assert!(!made.is(b"") && !made.is(b"x"));
        assert!(!format!("{made:?}").contains(made.expose()));
    }

    #[cfg(unix)]
    #[test]
    fn only_its_owner_may_read_it() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        Token::open(&data).unwrap();
        let path = Token::path(&data);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&data)), (0o600, 0o700));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = Token::open(&data).unwrap_err();
        assert!(matches!(error, TokenError::Readable { mode: 0o640, .. }));
    }

    #[test]
    fn refuses_invalid_tokens() {
        let long = "x".repeat(600);
        for text in ["", "\n", "short", "two words of a token", &long] {
            assert!(Token::new(text).is_err(), "{text}");
        }
        assert!(Token::new(" 0123456789abcdef\n").is_ok());
    }
}
