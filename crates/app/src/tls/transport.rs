//! How an endpoint is spoken to: whom its certificate is trusted from, which certificate we show it,
//! and which version of HTTP it speaks.

use std::sync::Arc;

use ring::digest::{Context, SHA256};
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, RootCertStore};

use super::identity::{Certificates, Identity};
use super::trust::PinnedOrTrusted;
use super::{DEFAULT_VERSIONS, provider};

/// How an endpoint is spoken to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transport {
    /// Who may have signed its certificate, besides the authorities of the system.
    pub authorities: Option<Certificates>,
    /// A server with exactly the first of these is accepted, whatever its name and dates.
    pub pinned: Option<Certificates>,
    /// What we show it.
    pub identity: Option<Identity>,
    /// Which version of HTTP it is spoken to with.
    pub http2: Http2Mode,
}

/// Whether HTTP/2 is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Http2Mode {
    /// Over TLS, if the server chooses it.
    #[default]
    Auto,
    /// Never.
    Off,
    /// Always, without asking: also without TLS.
    PriorKnowledge,
}

policy::words! {
    pub Http2Mode { Auto = "auto", Off = "off", PriorKnowledge = "prior_knowledge" }
}

/// Identifies a way to speak to a server: connections are shared only by those with the same.
pub(crate) type TransportId = Option<[u8; 32]>;

impl Transport {
    /// `None` for the default, which is that of nearly all servers.
    pub(crate) fn id(&self) -> TransportId {
        if *self == Self::default() {
            return None;
        }
        let mut context = Context::new(&SHA256);
        let mut add = |bytes: &[u8]| {
            context.update(&bytes.len().to_be_bytes());
            context.update(bytes);
        };
        add(self.http2.as_str().as_bytes());
        let chain = self.identity.as_ref().map(Identity::chain);
        for certificates in [self.authorities.as_ref(), self.pinned.as_ref(), chain] {
            let all = certificates.into_iter().flat_map(Certificates::iter);
            for certificate in all {
                add(certificate);
            }
            // Between one list and the next.
            add(&[]);
        }
        context.finish().as_ref().try_into().ok()
    }

    /// Its TLS, for a client that trusts `roots` as well.
    pub(crate) fn client_config(&self, roots: &RootCertStore) -> ClientConfig {
        let mut roots = roots.clone();
        if let Some(authorities) = &self.authorities {
            // They were checked when they were read.
            _ = authorities.add_to(&mut roots);
        }
        let roots = Arc::new(roots);
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect(DEFAULT_VERSIONS)
            .with_root_certificates(Arc::clone(&roots));
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let resolver = SingleCertAndKey::from(identity.certified_key());
                builder.with_client_cert_resolver(Arc::new(resolver))
            }
        };
        let protocols: &[&[u8]] = match self.http2 {
            Http2Mode::Auto => &[b"h2", b"http/1.1"],
            Http2Mode::Off => &[b"http/1.1"],
            Http2Mode::PriorKnowledge => &[b"h2"],
        };
        if let Some(pinned) = &self.pinned {
            let verifier = PinnedOrTrusted::new(pinned.first(), Arc::clone(&roots));
            let mut config = config.dangerous();
            config.set_certificate_verifier(Arc::new(verifier));
        }
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_differs_with_everything_that_differs() {
        let certificates = || {
            let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            let chain = Certificates::from_pem(made.cert.pem().as_bytes()).unwrap();
            let key = made.signing_key.serialize_pem();
            (
                chain.clone(),
                Identity::new(chain, key.as_bytes(), "").unwrap(),
            )
        };
        let ((first, identity), (second, _)) = (certificates(), certificates());
        let plain = Transport::default();
        let transports = [
            plain.clone(),
            Transport {
                http2: Http2Mode::Off,
                ..plain.clone()
            },
            Transport {
                authorities: Some(first.clone()),
                ..plain.clone()
            },
            Transport {
                authorities: Some(second),
                ..plain.clone()
            },
            Transport {
                pinned: Some(first.clone()),
                ..plain.clone()
            },
            // The same certificate as an authority and as our own.
            Transport {
                identity: Some(identity.clone()),
                ..plain.clone()
            },
            Transport {
                identity: Some(identity),
                authorities: Some(first),
                ..plain
            },
        ];
        let ids: Vec<TransportId> = transports.iter().map(Transport::id).collect();
        assert_eq!(ids[0], None);
        for (index, id) in ids.iter().enumerate() {
            assert_eq!(*id, transports[index].clone().id());
            assert!(!ids[..index].contains(id), "{index}");
        }
    }
}
