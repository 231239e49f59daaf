//! TLS of a listener: its certificate, and which clients it accepts.

use std::fmt;
use std::sync::Arc;

use rustls::server::WebPkiClientVerifier;
use rustls::sign::SingleCertAndKey;
use rustls::{RootCertStore, ServerConfig};

use super::identity::{Certificates, Identity};
use super::{DEFAULT_VERSIONS, provider};

/// TLS of a listener.
#[derive(Clone)]
pub struct ListenerTls {
    identity: Identity,
    /// Who may have signed the certificates of clients, which then need one.
    client_authorities: Option<Certificates>,
    config: Arc<ServerConfig>,
}

impl ListenerTls {
    /// TLS with this certificate, for the protocols that the listener speaks, the preferred one first.
    /// With `client_authorities`, a client needs a certificate that one of them has signed.
    pub fn new(
        identity: Identity,
        client_authorities: Option<Certificates>,
        protocols: &[&str],
    ) -> Self {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect(DEFAULT_VERSIONS);
        let builder = match &client_authorities {
            None => builder.with_no_client_auth(),
            Some(authorities) => {
                let mut roots = RootCertStore::empty();
                // They were checked when they were read.
                _ = authorities.add_to(&mut roots);
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
                builder.with_client_cert_verifier(
                    verifier
                        .build()
                        .expect("there is an authority, and no revocation list"),
                )
            }
        };
        let resolver = SingleCertAndKey::from(identity.certified_key());
        let mut config = builder.with_cert_resolver(Arc::new(resolver));
        let protocols = protocols.iter().map(|name| name.as_bytes().to_vec());
        config.alpn_protocols = protocols.collect();
        Self {
            identity,
            client_authorities,
            config: Arc::new(config),
        }
    }

    /// Do clients need a certificate?
    pub fn asks_clients(&self) -> bool {
        self.client_authorities.is_some()
    }

    pub(crate) fn config(&self) -> &Arc<ServerConfig> {
        &self.config
    }
}

impl PartialEq for ListenerTls {
    fn eq(&self, other: &Self) -> bool {
        let protocols = |tls: &Self| tls.config.alpn_protocols.clone();
        self.identity == other.identity
            && self.client_authorities == other.client_authorities
            && protocols(self) == protocols(other)
    }
}

impl Eq for ListenerTls {}

impl fmt::Debug for ListenerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListenerTls")
            .field("identity", &self.identity)
            .field("client_authorities", &self.client_authorities)
            .finish_non_exhaustive()
    }
}
