//! Which servers a client of ours trusts.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use super::provider;

/// The authorities of the system and of the Mozilla programme.
pub(crate) fn trusted_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    // Certificates that cannot be read are left out.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// Accepts a server with exactly the certificate `pinned`, whatever its name and dates, and every
/// server that an authority vouches for.
///
/// A command on the machine of a server reads the certificate from the settings of the server. Most
/// often it dials an address that the certificate does not name, and needs no further proof: only the
/// holder of the key can use that certificate.
#[derive(Debug)]
pub(super) struct PinnedOrTrusted {
    pinned: CertificateDer<'static>,
    trusted: Arc<WebPkiServerVerifier>,
}

impl PinnedOrTrusted {
    pub(super) fn new(pinned: &CertificateDer<'static>, roots: Arc<RootCertStore>) -> Self {
        let trusted = WebPkiServerVerifier::builder_with_provider(roots, provider());
        Self {
            pinned: pinned.clone(),
            trusted: trusted
                .build()
                .expect("there are authorities, and no revocation list"),
        }
    }
}

impl ServerCertVerifier for PinnedOrTrusted {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if *end_entity == self.pinned {
            return Ok(ServerCertVerified::assertion());
        }
        let trusted = &self.trusted;
        trusted.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.trusted
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.trusted
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.trusted.supported_verify_schemes()
    }
}
