//! Upstreams over TLS, with both versions of HTTP, and what their servers may refuse.
//!
//! Authorities are those of the system, which a variable of the environment can name: so each test
//! runs in a process of its own.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::frames::{GO_AWAY, HEADERS, RESET, SETTINGS, frame, read_frame};
use crate::support::{Fixture, OPEN, closed_port, free, in_child_with, mock, pause, pool, request};

/// Runs a test in a process that trusts the certificate of `localhost` in the given folder.
pub(crate) fn trusting(name: &str, test: impl FnOnce(&Path)) {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return in_child_with(name, &[], || test(Path::new(&folder)));
    }
    let folder = tempfile::tempdir().unwrap();
    let pem = folder.path().join("trusted.pem");
    std::fs::write(&pem, certify(folder.path(), "localhost")).unwrap();
    certify(folder.path(), "stranger");
    let folder = folder.path().to_str().unwrap();
    let variables = [(FOLDER, folder), ("SSL_CERT_FILE", pem.to_str().unwrap())];
    in_child_with(name, &variables, || ());
}

const FOLDER: &str = "GATEWAY_TEST_FOLDER";

/// The second is reached through a proxy only, which resolves it.
const NAMES: [&str; 2] = ["localhost", "upstream.test"];

/// Writes a certificate of both names and its key under this name, and gives it as text.
fn certify(folder: &Path, name: &str) -> String {
    let made = rcgen::generate_simple_self_signed(NAMES.map(str::to_owned)).unwrap();
    std::fs::write(folder.join(format!("{name}.der")), made.cert.der()).unwrap();
    let key = made.signing_key.serialize_der();
    std::fs::write(folder.join(format!("{name}.key")), key).unwrap();
    made.cert.pem()
}

/// Listens with that certificate, and serves every connection by `serve`, which gets its number.
pub(crate) fn listen<F>(
    folder: &Path,
    name: &str,
    protocols: &[&str],
    serve: impl Fn(usize, TlsStream<TcpStream>) -> F + Send + 'static,
) -> String
where
    F: Future<Output = ()> + Send + 'static,
{
    let read = |ending| std::fs::read(folder.join(format!("{name}.{ending}"))).unwrap();
    let certificate = CertificateDer::from(read("der"));
    let key = PrivatePkcs8KeyDer::from(read("key"));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key.into())
        .unwrap();
    config.alpn_protocols = protocols
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let (sender, address) = mpsc::channel::<SocketAddr>();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind(free()).await.unwrap();
            sender.send(listener.local_addr().unwrap()).unwrap();
            for number in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                if let Ok(stream) = acceptor.accept(stream).await {
                    tokio::spawn(serve(number, stream));
                }
            }
        });
    });
    format!("https://localhost:{}", address.recv().unwrap().port())
}

/// An ordinary server: says which HTTP it was spoken to, and how long the body was.
pub(crate) async fn ordinary(_: usize, stream: TlsStream<TcpStream>) {
    let service = service_fn(|request: http::Request<Incoming>| async move {
        let (head, body) = request.into_parts();
        let length = body.collect().await.map_or(0, |body| body.to_bytes().len());
        let host = head.uri.host().map(str::to_owned);
        let host = host.or_else(|| Some(head.headers.get("host")?.to_str().ok()?.to_owned()));
        let said = format!("{:?} {length} {}", head.version, host.unwrap_or_default());
        Ok::<_, Infallible>(http::Response::new(Full::new(Bytes::from(said))))
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    _ = builder
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

#[test]
fn negotiates_the_newest_http_version() {
    trusting("tls::negotiates_the_newest_http_version", |folder| {
        for (protocols, version) in [
            (&["h2", "http/1.1"][..], "HTTP/2.0"),
            (&["http/1.1"], "HTTP/1.1"),
            (&[], "HTTP/1.1"),
        ] {
            let url = listen(folder, "localhost", protocols, ordinary);
            let gateway = Fixture::before(&url);
            let mut client = gateway.connect();
            for _ in 0..3 {
                let reply = client.post("/api/x?y", &["te: trailers"], "hello");
                assert_eq!(reply.status, 200, "{reply:?}");
                let expected = format!("{version} 5 localhost");
                assert!(reply.text().starts_with(&expected), "{}", reply.text());
            }
        }
    });
}

/// The statuses of so many requests that are sent at once.
fn statuses_at_once(gateway: &Fixture, count: usize) -> Vec<u16> {
    let mut clients: Vec<_> = (0..count).map(|_| gateway.connect()).collect();
    for client in &mut clients {
        client.send(&request("GET", "/api/x", &["tidegate-max-wait: 5s"], ""));
    }
    let replies = clients
        .iter_mut()
        .map(|client| client.reply(false).unwrap());
    replies.map(|reply| reply.status).collect()
}

#[test]
fn requests_share_the_set_up_of_the_first_tls_connection() {
    let name = "tls::requests_share_the_set_up_of_the_first_tls_connection";
    trusting(name, |folder| {
        let connections = Arc::new(AtomicUsize::new(0));
        for (protocols, most) in [(&["h2"][..], 2), (&["http/1.1"], 16)] {
            connections.store(0, Ordering::SeqCst);
            let count = Arc::clone(&connections);
            let url = listen(folder, "localhost", protocols, move |number, stream| {
                count.fetch_add(1, Ordering::SeqCst);
                ordinary(number, stream)
            });
            let gateway = Fixture::before(&url);
            assert_eq!(statuses_at_once(&gateway, 16), [200; 16]);
            // Each of the two workers needs one connection over HTTP/2 for all its requests.
            let made = connections.load(Ordering::SeqCst);
            assert!((1..=most).contains(&made), "{protocols:?}: {made}");
        }
        // A set-up that fails fails for all that wait for it.
        let url = format!("https://localhost:{}", closed_port().port());
        let statuses = statuses_at_once(&Fixture::before(&url), 8);
        assert!(statuses.iter().all(|status| *status >= 429), "{statuses:?}");
    });
}

#[test]
fn refuses_unknown_and_misnamed_certificates() {
    trusting("tls::refuses_unknown_and_misnamed_certificates", |folder| {
        let strange = listen(folder, "stranger", &["h2"], ordinary);
        // The right certificate, under another name.
        let known = listen(folder, "localhost", &["h2"], ordinary);
        let misnamed = known.replace("localhost", "127.0.0.1");
        for url in [strange, misnamed] {
            let gateway = Fixture::before(&url);
            let reply = gateway.get("/api/x");
            reply.is_own(502, "unreachable");
            assert!(reply.text().contains("TLS failed"), "{}", reply.text());
            // The certificate is no better a moment later.
            assert_eq!(reply.attempts(), 1);
            let metrics = gateway.state.core().metrics().render();
            assert!(metrics.contains("verdict=\"unreachable\""), "{metrics}");
        }
    });
}

#[test]
fn moves_from_an_invalid_certificate_to_another_endpoint() {
    let name = "tls::moves_from_an_invalid_certificate_to_another_endpoint";
    trusting(name, |folder| {
        let strange = listen(folder, "stranger", &["h2"], ordinary);
        let known = listen(folder, "localhost", &["h2"], ordinary);
        let endpoints = pool(&[("a", &strange), ("b", &known)]);
        let gateway = Fixture::new(&format!("{OPEN}{endpoints}balance = \"first\"\n"));
        let reply = gateway.get("/api/x");
        assert_eq!((reply.status, reply.attempts()), (200, 2));
    });
}

#[test]
fn responds_unreachable_when_the_server_has_no_tls() {
    trusting(
        "tls::responds_unreachable_when_the_server_has_no_tls",
        |_| {
            let mock = mock();
            let url = mock.url().replace("http://127.0.0.1", "https://localhost");
            Fixture::before(&url)
                .get("/api/x")
                .is_own(502, "unreachable");
        },
    );
}

/// A server of HTTP/2, frame by frame. `refuse` says what to answer to the stream that has this
/// number over all connections; `None`: a 200.
async fn by_frames(mut stream: TlsStream<TcpStream>, refuse: impl Fn(u32) -> Option<Vec<u8>>) {
    let mut preface = [0; 24];
    if stream.read_exact(&mut preface).await.is_err() {
        return;
    }
    _ = stream.write_all(&frame(SETTINGS, 0, 0, &[])).await;
    loop {
        let Some((kind, flags, id)) = read_frame(&mut stream).await else {
            return;
        };
        let answer = match kind {
            SETTINGS if flags == 0 => frame(SETTINGS, 1, 0, &[]),
            // 0x88 is `:status: 200`, and 5 says that this is all there is.
            HEADERS => refuse(id).unwrap_or_else(|| frame(HEADERS, 5, id, &[0x88])),
            _ => continue,
        };
        _ = stream.write_all(&answer).await;
        _ = stream.flush().await;
    }
}

/// The response to a POST whose first stream was answered like this.
fn after(folder: &Path, answer: fn(u32) -> Vec<u8>) -> (u16, u32, usize) {
    let seen = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&seen);
    let url = listen(folder, "localhost", &["h2"], move |_, stream| {
        let count = Arc::clone(&count);
        by_frames(stream, move |id| {
            (count.fetch_add(1, Ordering::Relaxed) == 0).then(|| answer(id))
        })
    });
    let gateway = Fixture::with(&url, "[http]\nfirst_byte_timeout = \"1s\"\n");
    let mut client = gateway.connect();
    client.send(&request("POST", "/api/x", &[], "hello"));
    let reply = client.reply(false).unwrap();
    (reply.status, reply.attempts(), seen.load(Ordering::Relaxed))
}

#[test]
fn resends_a_post_only_if_http2_refused_its_stream() {
    let name = "tls::resends_a_post_only_if_http2_refused_its_stream";
    trusting(name, |folder| {
        let refused = |id| frame(RESET, 0, id, &7_u32.to_be_bytes());
        assert_eq!(after(folder, refused), (200, 2, 2));
        // GOAWAY names the last stream that was processed: none.
        let going = |_| frame(GO_AWAY, 0, 0, &[0; 8]);
        let (status, _, seen) = after(folder, going);
        assert_eq!((status, seen), (200, 2));
        // An error inside: it may have been done.
        let failed = |id| frame(RESET, 0, id, &2_u32.to_be_bytes());
        assert_eq!(after(folder, failed), (502, 1, 1));
        // It goes away, but not before having looked at it.
        let seen_it = |id: u32| {
            let mut last = id.to_be_bytes().to_vec();
            last.extend(2_u32.to_be_bytes());
            frame(GO_AWAY, 0, 0, &last)
        };
        assert_eq!(after(folder, seen_it), (502, 1, 1));
    });
}

#[test]
fn refuses_a_body_over_the_limit_over_http2() {
    let name = "tls::refuses_a_body_over_the_limit_over_http2";
    trusting(name, |folder| {
        let url = listen(folder, "localhost", &["h2"], ordinary);
        let gateway = Fixture::with(&url, "[http]\nmax_body = \"1KiB\"\n");
        let mut client = gateway.connect();
        client.send(&request(
            "POST",
            "/api/x",
            &["transfer-encoding: chunked"],
            "",
        ));
        client.send("1\r\nx\r\n");
        pause(100);
        client.send(&format!("400\r\n{}\r\n0\r\n\r\n", "x".repeat(1024)));
        client.reply(false).unwrap().is_own(413, "body_too_large");
        assert_eq!(gateway.get("/api/x").status, 200);
    });
}
