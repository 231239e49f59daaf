//! Certificates and private keys, read from PEM files.

use std::fmt;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::sign::CertifiedKey;

use super::provider;
use super::validity::{Validity, shown_time};

/// What is wrong with a file of certificates or keys, as the rest of a sentence that names it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsFileError {
    /// It has no certificate.
    #[error("has no certificate, expected PEM with `-----BEGIN CERTIFICATE-----`")]
    NoCertificate,
    /// It has no private key.
    #[error("has no private key, expected PEM with `-----BEGIN PRIVATE KEY-----`")]
    NoKey,
    /// Its key needs a passphrase.
    #[error("has an encrypted private key, expected one without a passphrase")]
    EncryptedKey,
    /// It is not PEM.
    #[error("is not PEM: {0}")]
    NotPem(String),
    /// What is in it is no certificate.
    #[error("has a certificate that cannot be read: {0}")]
    BadCertificate(String),
    /// What is in it is no key that can be used.
    #[error("has a private key that cannot be used: {0}")]
    BadKey(String),
    /// The key is that of another certificate.
    #[error("has the private key of another certificate than `{0}`")]
    Mismatch(&'static str),
    /// The certificate is too old.
    #[error("has a certificate that expired at {0}, expected one that is valid now")]
    Expired(String),
    /// The certificate begins later.
    #[error("has a certificate that is not valid before {0}, expected one that is valid now")]
    NotYetValid(String),
}

/// Certificates, of which there is at least one: a chain, or authorities.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificates(Arc<[CertificateDer<'static>]>);

impl Certificates {
    /// Reads all certificates of a PEM file.
    ///
    /// # Errors
    ///
    /// If it has none, or something else that cannot be read.
    pub fn from_pem(pem: &[u8]) -> Result<Self, TlsFileError> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let found = found.map_err(|error| not_pem(&error, TlsFileError::NoCertificate))?;
        match found.is_empty() {
            true => Err(TlsFileError::NoCertificate),
            false => Ok(Self(found.into())),
        }
    }

    /// The same, of which each may sign certificates of others.
    ///
    /// # Errors
    ///
    /// If one of them cannot be read as that.
    pub fn authorities_from_pem(pem: &[u8]) -> Result<Self, TlsFileError> {
        let certificates = Self::from_pem(pem)?;
        certificates.add_to(&mut RootCertStore::empty())?;
        Ok(certificates)
    }

    /// Checks that the first of them is valid at `now`.
    ///
    /// # Errors
    ///
    /// If it is not, or cannot be read.
    pub fn check_validity(&self, now: UnixTime) -> Result<(), TlsFileError> {
        let Some(validity) = Validity::of(self.first()) else {
            let what = "its dates are malformed";
            return Err(TlsFileError::BadCertificate(what.to_owned()));
        };
        let now = now.as_secs();
        if now > validity.not_after {
            return Err(TlsFileError::Expired(shown_time(validity.not_after)));
        }
        if now < validity.not_before {
            return Err(TlsFileError::NotYetValid(shown_time(validity.not_before)));
        }
        Ok(())
    }

    /// The first of them: in a chain, that of the server or client itself.
    pub(crate) fn first(&self) -> &CertificateDer<'static> {
        &self.0[0]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &CertificateDer<'static>> {
        self.0.iter()
    }

    pub(super) fn add_to(&self, roots: &mut RootCertStore) -> Result<(), TlsFileError> {
        for certificate in self.iter() {
            let added = roots.add(certificate.clone());
            added.map_err(|error| TlsFileError::BadCertificate(error.to_string()))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Certificates({})", self.0.len())
    }
}

/// A certificate chain and its private key.
///
/// Two are equal if their chains are: the key belongs to it.
#[derive(Clone)]
pub struct Identity {
    chain: Certificates,
    key: Arc<CertifiedKey>,
}

impl Identity {
    /// Puts a chain and the key of a PEM file together. `certificate` is the setting that names the
    /// chain, for the error.
    ///
    /// # Errors
    ///
    /// If the file has no key that can be used, or one of another certificate.
    pub fn new(
        chain: Certificates,
        key_pem: &[u8],
        certificate: &'static str,
    ) -> Result<Self, TlsFileError> {
        let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(|error| {
            match contains(key_pem, b"ENCRYPTED") {
                true => TlsFileError::EncryptedKey,
                false => not_pem(&error, TlsFileError::NoKey),
            }
        })?;
        let certificates = chain.iter().cloned().collect();
        let key = CertifiedKey::from_der(certificates, key, &provider());
        let key = key.map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => TlsFileError::Mismatch(certificate),
            rustls::Error::InvalidCertificate(_) => TlsFileError::BadCertificate(error.to_string()),
            error => TlsFileError::BadKey(error.to_string()),
        })?;
        Ok(Self {
            chain,
            key: Arc::new(key),
        })
    }

    /// The chain.
    pub fn chain(&self) -> &Certificates {
        &self.chain
    }

    pub(super) fn certified_key(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.key)
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.chain == other.chain
    }
}

impl Eq for Identity {}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the key.
        f.debug_tuple("Identity").field(&self.chain).finish()
    }
}

fn not_pem(error: &PemError, missing: TlsFileError) -> TlsFileError {
    match error {
        PemError::NoItemsFound => missing,
        // Its details may contain a line of the file, and that a part of a key.
        PemError::MissingSectionEnd { .. } => TlsFileError::NotPem("it breaks off".to_owned()),
        _ => TlsFileError::NotPem("a section is malformed".to_owned()),
    }
}

fn contains(bytes: &[u8], word: &[u8]) -> bool {
    memchr::memmem::find(bytes, word).is_some()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn certified(name: &str) -> (String, String) {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    fn error(chain: &str, key: &str) -> String {
        let made = Certificates::from_pem(chain.as_bytes())
            .and_then(|chain| Identity::new(chain, key.as_bytes(), "cert"));
        made.unwrap_err().to_string()
    }

    #[test]
    fn a_certificate_and_its_key_fit_together() {
        let (chain, key) = certified("localhost");
        // Both may be in one file.
        for key in [key.clone(), format!("{chain}{key}")] {
            let chain = Certificates::from_pem(chain.as_bytes()).unwrap();
            let identity = Identity::new(chain.clone(), key.as_bytes(), "cert").unwrap();
            assert_eq!(*identity.chain(), chain);
            assert_eq!(format!("{identity:?}"), "Identity(Certificates(1))");
        }
    }

    #[test]
    fn says_what_is_wrong_with_files() {
        let (chain, key) = certified("localhost");
        let (_, other) = certified("localhost");
        let cut = &key[..key.len() / 2];
        let encrypted =
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
        let nonsense = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        for (chain, key, expected) in [
            ("", &*key, "has no certificate"),
            (&*key, &key, "has no certificate"),
            (&chain[..200], &key, "is not PEM"),
            (&chain, "", "has no private key"),
            (&chain, &chain, "has no private key"),
            (&chain, cut, "is not PEM"),
            (&chain, encrypted, "has an encrypted private key"),
            (&chain, nonsense, "has a private key that cannot be used"),
            (
                &chain,
                &other,
                "has the private key of another certificate than `cert`",
            ),
        ] {
            let error = error(chain, key);
            assert!(error.starts_with(expected), "{error}");
            assert!(!error.contains("MIG"), "{error}");
        }
    }

    #[test]
    fn judges_validity_at_a_time() {
        let (chain, _) = certified("localhost");
        let chain = Certificates::from_pem(chain.as_bytes()).unwrap();
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        // rcgen's certificates are valid from 1975 to 4096.
        assert_eq!(chain.check_validity(at(1_800_000_000)), Ok(()));
        let early = chain.check_validity(at(1)).unwrap_err().to_string();
        assert!(early.contains("is not valid before 1975-01-01"), "{early}");
        let late = chain.check_validity(at(1 << 40)).unwrap_err().to_string();
        assert!(late.contains("expired at 4096-01-01"), "{late}");
    }
}
