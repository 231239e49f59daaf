//! Endpoints with certificates and a version of HTTP of their own.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;

use crate::certificates::Authority;
use crate::support::{Fixture, OPEN, free};

/// Says over which version of HTTP it was asked, and by whom.
async fn say(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, client: &'static str) {
    let service = service_fn(|request: http::Request<Incoming>| async move {
        let scheme = request.uri().scheme_str().unwrap_or("-");
        let said = format!("{:?} {scheme} {client}", request.version());
        Ok::<_, Infallible>(http::Response::new(Full::new(Bytes::from(said))))
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    let stream = TokioIo::new(stream);
    _ = builder.serve_connection(stream, service).await;
}

/// TLS with the certificate that `authority` signed as `server`, for both versions of HTTP. Accepts
/// clients with a certificate of that authority, and others.
pub(crate) fn acceptor(authority: &Authority) -> TlsAcceptor {
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_file(authority.path("ca.pem")).unwrap();
    roots.add(root).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let verifier = verifier.allow_unauthenticated().build().unwrap();
    let chain = vec![CertificateDer::from_pem_file(authority.path("server.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_file(authority.path("server.key")).unwrap();
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// A server of plain HTTP, or of [TLS](acceptor).
fn serve(authority: Option<&Authority>) -> SocketAddr {
    let acceptor = authority.map(acceptor);
    let (sender, address) = mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind(free()).await.unwrap();
            sender.send(listener.local_addr().unwrap()).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let Some(acceptor) = acceptor.clone() else {
                    tokio::spawn(say(stream, "-"));
                    continue;
                };
                if let Ok(stream) = acceptor.accept(stream).await {
                    let is_known = stream.get_ref().1.peer_certificates().is_some();
                    tokio::spawn(say(stream, if is_known { "known" } else { "unknown" }));
                }
            }
        });
    });
    address.recv().unwrap()
}

/// A pool for each endpoint, all at this URL: `/NAME/x` asks the one of that name.
fn gateway(url: &str, endpoints: &[(&str, &str)]) -> Fixture {
    let pools = endpoints.iter().map(|(name, more)| {
        format!("[pool.{name}]\nendpoints = [{{ name = \"a\", url = \"{url}\"{more} }}]\n")
    });
    Fixture::new(&format!("{OPEN}{}", pools.collect::<String>()))
}

#[test]
fn trusts_the_authority_of_an_endpoint_and_shows_its_certificate() {
    let authority = Authority::new();
    authority.sign("server", &["localhost"]);
    authority.sign("client", &["gateway"]);
    let url = format!("https://localhost:{}", serve(Some(&authority)).port());
    let ca = format!(", ca = \"{}\"", authority.file("ca.pem"));
    let shown = format!(
        "{ca}, client_cert = \"{}\", client_key = \"{}\"",
        authority.file("client.pem"),
        authority.file("client.key")
    );
    let endpoints = [
        ("none", String::new()),
        ("trusted", ca.clone()),
        ("shown", shown),
        ("off", format!("{ca}, http2 = \"off\"")),
        ("prior", format!("{ca}, http2 = \"prior_knowledge\"")),
    ];
    let endpoints: Vec<(&str, &str)> = endpoints
        .iter()
        .map(|(name, more)| (*name, more.as_str()))
        .collect();
    let gateway = gateway(&url, &endpoints);
    let unknown = gateway.get("/none/x");
    unknown.is_own(502, "unreachable");
    assert!(
        unknown.text().contains("UnknownIssuer"),
        "{}",
        unknown.text()
    );
    // All of them go to one server; each has connections of its own.
    for _ in 0..2 {
        for (path, expected) in [
            ("/trusted/x", "HTTP/2.0 https unknown"),
            ("/shown/x", "HTTP/2.0 https known"),
            ("/off/x", "HTTP/1.1 - unknown"),
            ("/prior/x", "HTTP/2.0 https unknown"),
        ] {
            let reply = gateway.get(path);
            assert_eq!(reply.text(), expected, "{path}");
        }
    }
}

#[test]
fn speaks_http2_without_tls_if_it_is_known_to_work() {
    let url = format!("http://{}", serve(None));
    let prior = ", http2 = \"prior_knowledge\"";
    let gateway = gateway(&url, &[("usual", ""), ("prior", prior)]);
    for _ in 0..2 {
        assert_eq!(gateway.get("/usual/x").text(), "HTTP/1.1 - -");
        assert_eq!(gateway.get("/prior/x").text(), "HTTP/2.0 http -");
    }
    let posted = gateway.connect().post("/prior/x", &[], "hello");
    assert_eq!(posted.text(), "HTTP/2.0 http -");
}

#[test]
fn uses_a_renewed_certificate_after_a_reload() {
    let (authority, other) = (Authority::new(), Authority::new());
    authority.sign("server", &["localhost"]);
    let url = format!("https://localhost:{}", serve(Some(&authority)).port());
    let file = other.path("trusted.pem");
    std::fs::copy(other.path("ca.pem"), &file).unwrap();
    let settings = format!(
        "{OPEN}[pool.api]\nendpoints = [{{ name = \"a\", url = \"{url}\", ca = \"{}\" }}]\n",
        other.file("trusted.pem")
    );
    let gateway = Fixture::new(&settings);
    gateway.get("/api/x").is_own(502, "unreachable");
    std::fs::copy(authority.path("ca.pem"), &file).unwrap();
    gateway.reload(&settings);
    assert_eq!(gateway.get("/api/x").text(), "HTTP/2.0 https unknown");
}
