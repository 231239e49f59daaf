//! TLS of our own listeners, and the certificates and keys of both sides.
//!
//! Files are read with the settings, into types that cannot be wrong: a key belongs to its certificate,
//! and a certificate is valid at that time. So a broken file is a problem with a position at the start,
//! and one that a reload finds leaves the old certificate in use. Everything here is made once for a
//! certificate; a connection only clones a pointer to it.
//!
//! Cryptography is that of `ring`. No other provider is compiled in.

mod accept;
mod identity;
mod listener;
mod transport;
mod trust;
mod validity;

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

pub(crate) use accept::{Handshakes, NOT_TLS, NoTls, accept, answer_in_plain_text};
pub use identity::{Certificates, Identity, TlsFileError};
pub use listener::ListenerTls;
pub(crate) use transport::TransportId;
pub use transport::{Http2Mode, Transport};
pub(crate) use trust::trusted_roots;

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Why a provider has what is asked of it.
pub(crate) const DEFAULT_VERSIONS: &str = "ring has the protocols that are on by default";
