//! A connection whose bytes are passed on as they are.

use std::fmt;

use tokio::io::{AsyncRead, AsyncWrite};

use super::http1::Io;

/// A connection to a server, of which the client alone knows what is spoken over it.
pub struct Tunnel(Box<dyn Io>);

impl Tunnel {
    pub(super) fn new(io: impl Io + 'static) -> Self {
        Self(Box::new(io))
    }

    /// Its bytes.
    pub fn into_io(self) -> impl AsyncRead + AsyncWrite + Send + Unpin {
        self.0
    }
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tunnel").finish_non_exhaustive()
    }
}
