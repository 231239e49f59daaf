//! Why a call of the admin API, or a data folder in its place, cannot be used.

use std::io;

use http::StatusCode;
use store::{OpenError, StoreError};

/// Why a data folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A server uses it.
    #[error("a server uses the data folder `{0}`")]
    InUse(String),
    /// It cannot be opened.
    #[error(transparent)]
    Open(OpenError),
    /// What is stored cannot be read.
    #[error("cannot read what was stored")]
    Read(#[from] StoreError),
}

impl FolderError {
    /// Why the store in `folder` cannot be opened.
    pub(in crate::admin) fn of(error: OpenError, folder: String) -> Self {
        match error {
            OpenError::InUse { .. } => Self::InUse(folder),
            error => Self::Open(error),
        }
    }
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No server listens there.
    #[error("cannot reach the server at {url}: {error}")]
    Unreachable {
        /// Where.
        url: String,
        /// Why not.
        error: io::Error,
    },
    /// There is no TLS with it, or its certificate is not trusted.
    #[error("no TLS with the server at {url}: {error}")]
    NoTls {
        /// Where.
        url: String,
        /// Why not.
        error: io::Error,
    },
    /// Its token is another one.
    #[error("the server at {url} does not take this token")]
    WrongToken {
        /// Where.
        url: String,
    },
    /// It says no.
    #[error("{detail}")]
    Refused {
        /// With this status.
        status: StatusCode,
        /// In one word.
        reason: String,
        /// In its words.
        detail: String,
    },
    /// It is something else, or of another version.
    #[error("what responds at {url} is no admin API: {what}")]
    Strange {
        /// Where.
        url: String,
        /// What is strange about it.
        what: String,
    },
}

/// It is no address of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected an address such as `http://127.0.0.1:7071`")]
pub struct NoServer;
