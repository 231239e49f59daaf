//! Certificates and keys: of our listeners, and of endpoints.
//!
//! Files are read with the settings, so that one that is missing, broken or expired is reported with
//! the position of the setting that names it, before anything starts or changes.

use config::Reader;
use policy::setting::Options;
use rustls::pki_types::UnixTime;
use url::Url;

use super::pool::EndpointOptions;
use super::server::Server;
use super::value;
use crate::tls::{Certificates, Http2Mode, Identity, ListenerTls, TlsFileError, Transport};

policy::settings! {
    /// What is written in `server.tls` and `server.admin_tls`.
    pub struct TlsOptions {
        /// The certificate chain.
        cert: String = none, value::FILE;
        /// Its private key.
        key: String = none, value::FILE;
        /// Certificates that clients must have been signed by.
        client_ca: String = none, value::FILE;
    }
}

/// TLS of both listeners; `None`: plain HTTP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listeners {
    /// `server.tls`
    pub data_plane: Option<ListenerTls>,
    /// `server.admin_tls`
    pub admin: Option<ListenerTls>,
}

impl Listeners {
    /// Reads both from `[server]`.
    pub(crate) fn read(server: &Reader<'_>) -> Self {
        Self {
            data_plane: read_listener(&server.table("tls"), &["h2", "http/1.1"]),
            admin: read_listener(&server.table("admin_tls"), &["http/1.1"]),
        }
    }
}

/// What a command has to know of a server that runs.
#[derive(Clone, Debug, Default)]
pub struct RunningServer {
    /// `[server]`
    pub server: Server,
    /// The certificate of its admin API, if that speaks TLS. Its key is not read.
    pub admin_certificate: Option<Certificates>,
}

impl RunningServer {
    pub(crate) fn read(server: &Reader<'_>) -> Self {
        let admin = server.table("admin_tls");
        check_options::<TlsOptions>(&admin);
        Self {
            server: Server::read(server),
            admin_certificate: read_file(&admin, "cert", Certificates::from_pem),
        }
    }
}

fn read_listener(reader: &Reader<'_>, protocols: &[&str]) -> Option<ListenerTls> {
    if !reader.is_written() {
        return None;
    }
    check_options::<TlsOptions>(reader);
    reader.require_of::<TlsOptions>(&["cert", "key"]);
    let identity = read_identity(reader, "cert", "key");
    let client_ca = read_file(reader, "client_ca", Certificates::authorities_from_pem);
    // Without the authorities that were asked for, every client would be accepted.
    if reader.has("client_ca") && client_ca.is_none() {
        return None;
    }
    Some(ListenerTls::new(identity?, client_ca, protocols))
}

/// How the endpoint at `url` is spoken to.
pub(super) fn read_transport(
    endpoint: &Reader<'_>,
    url: Option<&Url>,
    http2: Http2Mode,
) -> Transport {
    let is_plain = url.is_some_and(|url| url.scheme() == "http");
    for name in ["ca", "client_cert", "client_key"] {
        if is_plain && endpoint.has(name) {
            let what = "has no effect without TLS, expected a `url` that begins with `https://`";
            endpoint.report(name, what);
        }
    }
    for (name, other) in [("client_cert", "client_key"), ("client_key", "client_cert")] {
        if endpoint.has(name) {
            endpoint.require_of::<EndpointOptions>(&[other]);
        }
    }
    Transport {
        authorities: read_file(endpoint, "ca", Certificates::authorities_from_pem),
        pinned: None,
        identity: read_identity(endpoint, "client_cert", "client_key"),
        http2,
    }
}

/// A certificate that is valid now, with its key.
fn read_identity(reader: &Reader<'_>, cert: &'static str, key: &str) -> Option<Identity> {
    let chain = read_file(reader, cert, |pem| {
        let chain = Certificates::from_pem(pem)?;
        chain.check_validity(UnixTime::now())?;
        Ok(chain)
    });
    read_file(reader, key, |pem| match chain {
        Some(chain) => Identity::new(chain, pem, cert).map(Some),
        // Its problem is reported already.
        None => Ok(None),
    })?
}

/// What is in the file that a setting names; `None`, after a report, if it is wrong.
fn read_file<T>(
    reader: &Reader<'_>,
    name: &str,
    read: impl FnOnce(&[u8]) -> Result<T, TlsFileError>,
) -> Option<T> {
    let content = read(&reader.file(name)?);
    content
        .map_err(|error| reader.report(name, format!("the file {error}")))
        .ok()
}

/// Reports values that are no files.
fn check_options<O: Options>(reader: &Reader<'_>) {
    reader.options::<O>();
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;

    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use crate::settings::{Environment, Settings, Sources};

    /// Files by name.
    struct Files(Vec<(&'static str, String)>);

    impl Environment for Files {
        fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
            let mut files = self.0.iter();
            let found = files.find(|(name, _)| path == Path::new(name));
            let found = found.map(|(_, text)| text.clone().into_bytes());
            found.ok_or_else(|| io::ErrorKind::NotFound.into())
        }

        fn variables(&self) -> Vec<(String, String)> {
            Vec::new()
        }
    }

    fn files() -> Files {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let other = KeyPair::generate().unwrap();
        let dated = |from, to| {
            let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
            (params.not_before, params.not_after) = (from, to);
            params.self_signed(&other).unwrap().pem()
        };
        let expired = dated(date_time_ymd(2019, 1, 1), date_time_ymd(2020, 2, 3));
        let early = dated(date_time_ymd(3000, 1, 1), date_time_ymd(3001, 1, 1));
        Files(vec![
            ("cert", made.cert.pem()),
            ("key", made.signing_key.serialize_pem()),
            ("other-key", other.serialize_pem()),
            ("expired", expired),
            ("early", early),
            ("empty", String::new()),
        ])
    }

    fn load(text: &str) -> Result<Settings, Vec<String>> {
        let sources = Sources {
            file: Some(("t.toml".to_owned(), text.as_bytes().to_vec())),
            flags: Vec::new(),
        };
        let problems = Settings::load(&sources, &files());
        problems.map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }

    fn check(text: &str, expected: &[&str]) {
        let problems = load(text).unwrap_err();
        assert_eq!(problems, expected, "{text}");
    }

    #[test]
    fn reads_certificates_of_both_listeners() {
        let settings = load(
            "[server]\ntls = { cert = \"file:cert\", key = \"file:key\", client_ca = \"file:cert\" }\n\
             admin_tls = { cert = \"file:cert\", key = \"file:key\" }\n",
        );
        let settings = settings.unwrap();
        assert!(settings.listeners.data_plane.unwrap().asks_clients());
        assert!(!settings.listeners.admin.unwrap().asks_clients());
    }

    #[test]
    fn reports_wrong_files_at_the_setting_that_names_them() {
        let tls = |cert: &str, key: &str| {
            format!("[server]\n[server.tls]\ncert = \"{cert}\"\nkey = \"{key}\"\n")
        };
        check(
            &tls("file:missing", "file:key"),
            &["t.toml:3:8: `server.tls.cert`: the file `missing` cannot be read: entity not found"],
        );
        check(
            &tls("file:empty", "file:empty"),
            &[
                "t.toml:3:8: `server.tls.cert`: the file has no certificate, expected PEM with `-----BEGIN CERTIFICATE-----`",
            ],
        );
        check(
            &tls("file:cert", "file:cert"),
            &[
                "t.toml:4:7: `server.tls.key`: the file has no private key, expected PEM with `-----BEGIN PRIVATE KEY-----`",
            ],
        );
        check(
            &tls("file:cert", "file:other-key"),
            &[
                "t.toml:4:7: `server.tls.key`: the file has the private key of another certificate than `cert`",
            ],
        );
        check(
            &tls("file:expired", "file:other-key"),
            &[
                "t.toml:3:8: `server.tls.cert`: the file has a certificate that expired at 2020-02-03T00:00:00Z, expected one that is valid now",
            ],
        );
        check(
            &tls("file:early", "file:other-key"),
            &[
                "t.toml:3:8: `server.tls.cert`: the file has a certificate that is not valid before 3000-01-01T00:00:00Z, expected one that is valid now",
            ],
        );
        check(
            "[server]\nadmin_tls = { cert = \"/etc/cert\" }\n",
            &[
                "t.toml:2:1: `server.admin_tls.key` is missing, expected a file such as `\"file:/etc/tls/cert.pem\"`",
                "t.toml:2:22: `server.admin_tls.cert` is `/etc/cert`, expected a file such as `file:/etc/tls/cert.pem`",
            ],
        );
    }

    #[test]
    fn reports_wrong_uses_of_an_endpoints_files() {
        let endpoint = |url: &str, more: &str| {
            format!("[pool.a]\nendpoints = [{{ name = \"a\", url = \"{url}\", {more} }}]\n")
        };
        let https = "https://a.example.com";
        load(&endpoint(
            https,
            "ca = \"file:cert\", client_cert = \"file:cert\", client_key = \"file:key\"",
        ))
        .unwrap();
        check(
            &endpoint(https, "client_cert = \"file:cert\""),
            &[
                "t.toml:2:14: `pool.a.endpoints[0].client_key` is missing, expected a file such as `\"file:/etc/tls/cert.pem\"`",
            ],
        );
        check(
            &endpoint("http://a.example.com", "ca = \"file:cert\""),
            &[
                "t.toml:2:63: `pool.a.endpoints[0].ca` has no effect without TLS, expected a `url` that begins with `https://`",
            ],
        );
        check(
            &endpoint(https, "ca = \"file:key\""),
            &[
                "t.toml:2:64: `pool.a.endpoints[0].ca`: the file has no certificate, expected PEM with `-----BEGIN CERTIFICATE-----`",
            ],
        );
    }
}
