//! TLS on the data plane: versions of HTTP, certificates of clients, reloads, and what is not TLS.

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::certificates::Authority;
use crate::support::{Client, Fixture, OPEN, in_child, mock, pause, pool, request, until};
use crate::wire::Reply;

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// A client that trusts `authority`, speaks these protocols and shows the certificate in these files.
pub(crate) fn client_config(
    authority: &Authority,
    protocols: &[&str],
    identity: Option<(&Path, &Path)>,
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_file(authority.path("ca.pem")).unwrap();
    roots.add(root).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            let chain = vec![CertificateDer::from_pem_file(cert).unwrap()];
            let key = PrivateKeyDer::from_pem_file(key).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let protocols = protocols.iter().map(|name| name.as_bytes().to_vec());
    config.alpn_protocols = protocols.collect();
    Arc::new(config)
}

fn connect(config: &Arc<ClientConfig>, address: SocketAddr) -> Stream {
    let name = ServerName::try_from("localhost").unwrap();
    let session = ClientConnection::new(Arc::clone(config), name).unwrap();
    StreamOwned::new(session, TcpStream::connect(address).unwrap())
}

/// One request; an error if there is no TLS.
fn get(stream: &mut Stream, path: &str) -> std::io::Result<Reply> {
    stream.write_all(request("GET", path, &[], "").as_bytes())?;
    Reply::read(&mut BufReader::new(stream), false)
}

/// The setting of a listener with the certificate `server`.
pub(crate) fn listener(authority: &Authority, more: &str) -> String {
    format!(
        "tls = {{ cert = \"{}\", key = \"{}\"{more} }}\n",
        authority.file("server.pem"),
        authority.file("server.key"),
    )
}

fn settings(authority: &Authority, url: &str, more: &str) -> String {
    let listener = listener(authority, more);
    format!("{listener}{OPEN}{}", pool(&[("a", url)]))
}

pub(crate) fn authority() -> Authority {
    let authority = Authority::new();
    authority.sign("server", &["localhost"]);
    authority
}

#[test]
fn serves_over_tls_with_the_version_that_the_client_prefers() {
    let (authority, mock) = (authority(), mock());
    let gateway = Fixture::new(&settings(&authority, &mock.url(), ""));
    assert!(gateway.gateway.url().starts_with("https://127.0.0.1:"));
    for (protocols, chosen) in [
        (&["h2", "http/1.1"][..], Some(&b"h2"[..])),
        (&["http/1.1"], Some(b"http/1.1")),
        (&[], None),
    ] {
        let config = client_config(&authority, protocols, None);
        let mut stream = connect(&config, gateway.address());
        if chosen != Some(b"h2") {
            for _ in 0..3 {
                let reply = get(&mut stream, "/api/echo").unwrap();
                assert_eq!(reply.status, 200, "{reply:?}");
                reply.is_marked();
            }
        } else {
            stream.flush().unwrap();
        }
        assert_eq!(stream.conn.alpn_protocol(), chosen);
    }
    // No protocol in common.
    let config = client_config(&authority, &["imap"], None);
    assert!(get(&mut connect(&config, gateway.address()), "/api/echo").is_err());
}

#[test]
fn requires_and_verifies_certificates_of_clients() {
    let (authority, other, mock) = (authority(), Authority::new(), mock());
    authority.sign("client", &["app"]);
    other.sign("client", &["app"]);
    let more = format!(", client_ca = \"{}\"", authority.file("ca.pem"));
    let gateway = Fixture::new(&settings(&authority, &mock.url(), &more));
    let ask = |identity: Option<(&Path, &Path)>| {
        let config = client_config(&authority, &["http/1.1"], identity);
        get(&mut connect(&config, gateway.address()), "/api/echo")
    };
    let files =
        |authority: &Authority| (authority.path("client.pem"), authority.path("client.key"));
    let (cert, key) = files(&authority);
    assert_eq!(ask(Some((&cert, &key))).unwrap().status, 200);
    assert!(ask(None).is_err());
    let (cert, key) = files(&other);
    assert!(ask(Some((&cert, &key))).is_err());
    let logged = gateway.logged();
    assert!(logged.contains("\"tls_failed\""), "{logged}");
    // Nothing of the refused clients reached the upstream.
    assert_eq!(mock.stats().received, 1);
}

#[test]
fn answers_plain_http_with_a_problem_and_closes() {
    let (authority, mock) = (authority(), mock());
    let gateway = Fixture::new(&settings(&authority, &mock.url(), ""));
    let mut client = Client::connect(gateway.address());
    let reply = client.get("/api/echo");
    reply.is_own(400, "bad_request");
    assert!(reply.text().contains("https://"), "{}", reply.text());
    assert_eq!(client.rest(), b"");
    assert_eq!(mock.stats().received, 0);
}

#[test]
fn uses_a_renewed_certificate_for_new_connections() {
    let (authority, mock) = (authority(), mock());
    let text = settings(&authority, &mock.url(), "");
    let gateway = Fixture::new(&text);
    let config = client_config(&authority, &["http/1.1"], None);
    let shown = |stream: &Stream| stream.conn.peer_certificates().unwrap()[0].to_vec();
    let mut before = connect(&config, gateway.address());
    assert_eq!(get(&mut before, "/api/echo").unwrap().status, 200);
    authority.sign("server", &["localhost"]);
    gateway.reload(&text);
    let mut after = connect(&config, gateway.address());
    assert_eq!(get(&mut after, "/api/echo").unwrap().status, 200);
    assert_ne!(shown(&before), shown(&after));
    // An open connection goes on.
    assert_eq!(get(&mut before, "/api/echo").unwrap().status, 200);
}

#[test]
fn clients_that_finish_no_handshake_delay_no_others_and_no_drain() {
    let (authority, mock) = (authority(), mock());
    let gateway = Fixture::new(&settings(&authority, &mock.url(), ""));
    let mut stalled: Vec<TcpStream> = (0..20)
        .map(|_| TcpStream::connect(gateway.address()).unwrap())
        .collect();
    for stream in &mut stalled[10..] {
        stream.write_all(b"\x16\x03\x01").unwrap();
    }
    let config = client_config(&authority, &["http/1.1"], None);
    let mut stream = connect(&config, gateway.address());
    assert_eq!(get(&mut stream, "/api/echo").unwrap().status, 200);
    gateway.gateway.drain();
    until("all connections are closed", || gateway.gateway.is_done());
    assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
}

#[test]
fn serves_beside_more_unfinished_handshakes_than_may_be_under_way() {
    let name = "listener_tls::serves_beside_more_unfinished_handshakes_than_may_be_under_way";
    in_child(name, || {
        let (authority, mock) = (authority(), mock());
        let gateway = Fixture::new(&settings(&authority, &mock.url(), ""));
        let config = client_config(&authority, &["http/1.1"], None);
        let name = ServerName::try_from("localhost").unwrap();
        let mut session = ClientConnection::new(Arc::clone(&config), name).unwrap();
        let mut hello = Vec::new();
        session.write_tls(&mut hello).unwrap();
        // Two workers, with 256 handshakes each: half a hello, and a hello and nothing more.
        for sent in [&hello[..100], &hello] {
            let stalled: Vec<TcpStream> = (0..2 * 256 + 50)
                .map(|_| {
                    let mut stream = TcpStream::connect(gateway.address()).unwrap();
                    stream.write_all(sent).unwrap();
                    stream
                })
                .collect();
            pause(500);
            let mut stream = connect(&config, gateway.address());
            let timeout = std::time::Duration::from_secs(5);
            stream.sock.set_read_timeout(Some(timeout)).unwrap();
            assert_eq!(get(&mut stream, "/api/echo").unwrap().status, 200);
            drop(stalled);
        }
    });
}
