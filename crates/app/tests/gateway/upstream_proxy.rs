//! `network.proxy`: what the proxy is asked for, and what happens when it refuses.

use std::io::copy;
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::thread;

use crate::forward::LOCAL;
use crate::support::{Client, Fixture, OPEN, Raw, closed_port, mock, pool};
use crate::tls::{listen, ordinary, trusting};

/// What a proxy was asked, head by head.
type Heads = Arc<Mutex<Vec<String>>>;

/// A proxy that answers everything with these bytes.
fn proxy(answer: &'static str) -> (Raw, Heads) {
    let heads = Heads::default();
    let seen = Arc::clone(&heads);
    let proxy = Raw::start(move |_, mut client| {
        while let Some(head) = client.request() {
            seen.lock().unwrap().push(head);
            client.send(answer);
        }
    });
    (proxy, heads)
}

/// Settings with this proxy, and a pool at this address.
fn settings(proxy: &str, url: &str) -> String {
    format!(
        "{OPEN}[network]\nproxy = '{proxy}'\n{}",
        pool(&[("a", url)])
    )
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[test]
fn requests_without_tls_are_sent_in_absolute_form() {
    let (proxy, heads) = proxy(OK);
    let gateway = Fixture::new(&settings(&proxy.url(), "http://upstream.test:8080/v1"));
    let mut client = gateway.connect();
    for _ in 0..2 {
        let reply = client.get("/api/x?y=1");
        assert_eq!((reply.status, reply.text()), (200, "ok"));
    }
    let reply = client.ask("OPTIONS", "/api", &[], "");
    assert_eq!(reply.status, 200);
    let heads = heads.lock().unwrap();
    let head = &heads[0];
    assert!(
        head.starts_with("GET http://upstream.test:8080/v1/x?y=1 HTTP/1.1\r\n"),
        "{head}"
    );
    assert!(head.contains("host: upstream.test:8080\r\n"), "{head}");
    assert!(!head.contains("proxy-authorization"), "{head}");
    assert_eq!(heads.len(), 3);
    assert_eq!(proxy.connections(), 1, "the connection is used again");
}

#[test]
fn credentials_are_for_the_proxy_alone() {
    let (proxy, heads) = proxy(OK);
    let port = proxy.url().rsplit(':').next().unwrap().to_owned();
    let settings = settings(&format!("env:PROXY_{port}"), "http://upstream.test/v1");
    let gateway = Fixture::new(&settings);
    let reply = gateway
        .connect()
        .get_with("/api/x", &["proxy-authorization: Basic eDp5"]);
    assert_eq!(reply.status, 200);
    let head = heads.lock().unwrap()[0].clone();
    // `user:pass`
    assert!(
        head.contains("proxy-authorization: Basic dXNlcjpwYXNz\r\n"),
        "{head}"
    );
    assert!(!head.contains("eDp5"), "{head}");
    assert!(!gateway.logged().contains("dXNlcjpwYXNz"));
    assert!(!format!("{:?}", gateway.gateway.routes()).contains("dXNlcjpwYXNz"));
}

#[test]
fn a_refusal_of_the_proxy_is_no_response_of_the_server() {
    for (answer, url, attempts, said) in [
        (
            "HTTP/1.1 407 no\r\ncontent-length: 0\r\n\r\n",
            "http://upstream.test",
            1,
            "407",
        ),
        (
            "HTTP/1.1 407 no\r\ncontent-length: 0\r\n\r\n",
            "https://upstream.test",
            1,
            "407",
        ),
        (
            "HTTP/1.1 403 no\r\ncontent-length: 0\r\n\r\n",
            "https://upstream.test",
            1,
            "answered 403",
        ),
        (
            "HTTP/1.1 503 no\r\ncontent-length: 0\r\n\r\n",
            "https://upstream.test",
            4,
            "answered 503",
        ),
        ("220 smtp\r\n", "https://upstream.test", 4, "not HTTP"),
    ] {
        let (proxy, heads) = proxy(answer);
        let gateway = Fixture::new(&settings(&proxy.url(), url));
        let reply = gateway.get("/api/x");
        reply.is_own(502, "unreachable");
        assert!(reply.text().contains(said), "{}", reply.text());
        assert_eq!(reply.attempts(), attempts, "{answer}");
        if url.starts_with("https") {
            let head = heads.lock().unwrap()[0].clone();
            let line = "CONNECT upstream.test:443 HTTP/1.1\r\nhost: upstream.test:443\r\nvia: ";
            assert!(head.starts_with(line), "{head}");
        }
    }
}

#[test]
fn a_proxy_that_cannot_be_reached_is_named() {
    let proxy = format!("http://{}", closed_port());
    let gateway = Fixture::new(&settings(&proxy, "http://upstream.test"));
    let reply = gateway.get("/api/x");
    reply.is_own(502, "unreachable");
    assert!(
        reply.text().contains("the proxy cannot be used"),
        "{}",
        reply.text()
    );
}

#[test]
fn this_machine_is_reached_without_the_proxy() {
    let mock = mock();
    let port = mock.url().rsplit(':').next().unwrap().to_owned();
    let proxy = format!("http://{}", closed_port());
    for url in [mock.url(), format!("http://localhost:{port}")] {
        let gateway = Fixture::new(&settings(&proxy, &url));
        assert_eq!(gateway.get("/api/echo").status, 200);
    }
}

#[test]
fn addresses_written_out_are_checked_before_the_proxy_is_asked() {
    let (proxy, heads) = proxy(OK);
    let forward = "[forward]\nallow = ['10.0.0.1', '169.254.169.254', 'upstream.test']\n";
    let gateway = Fixture::new(&format!(
        "{}{forward}",
        settings(&proxy.url(), "http://a.test")
    ));
    for host in ["10.0.0.1", "169.254.169.254"] {
        let reply = gateway.get(&format!("http://{host}/"));
        reply.is_own(403, "address_not_allowed");
    }
    assert_eq!(heads.lock().unwrap().len(), 0);
    // A name is for the proxy to resolve.
    assert_eq!(gateway.get("http://upstream.test/").status, 200);
}

/// A proxy that makes tunnels to `server`, whatever name it is asked for, and greets right behind its
/// own head.
fn tunnelling(server: String, greeting: &'static str) -> Raw {
    Raw::start(move |_, mut client| {
        let head = client.request_head().unwrap();
        assert!(head.starts_with("CONNECT upstream.test:"), "{head}");
        client.send(&format!("HTTP/1.1 200 OK\r\nx: y\r\n\r\n{greeting}"));
        let server = TcpStream::connect(&server).unwrap();
        let stream = client.stream();
        let (mut near, mut far) = (stream.try_clone().unwrap(), server.try_clone().unwrap());
        thread::spawn(move || _ = copy(&mut far, &mut near));
        _ = copy(stream, &mut &server);
    })
}

#[test]
fn tls_goes_through_a_tunnel() {
    trusting("upstream_proxy::tls_goes_through_a_tunnel", |folder| {
        for (protocols, version) in [(&["h2"][..], "HTTP/2.0"), (&["http/1.1"], "HTTP/1.1")] {
            let server = listen(folder, "localhost", protocols, ordinary);
            let server = server.trim_start_matches("https://").to_owned();
            let proxy = tunnelling(server, "");
            let gateway = Fixture::new(&settings(&proxy.url(), "https://upstream.test"));
            let mut client = gateway.connect();
            for _ in 0..2 {
                let reply = client.post("/api/x", &[], "hello");
                assert_eq!(reply.status, 200, "{reply:?}");
                let expected = format!("{version} 5 upstream.test");
                assert!(reply.text().starts_with(&expected), "{}", reply.text());
            }
            assert_eq!(proxy.connections(), 1);
        }
    });
}

#[test]
fn tunnels_of_clients_go_through_the_proxy() {
    let server = Raw::start(|_, mut client| drop(client.rest()));
    let proxy = tunnelling(server.url().replace("http://", ""), "hello");
    let forward = "[forward]\nallow = ['upstream.test']\n";
    let gateway = Fixture::new(&format!(
        "{}{forward}",
        settings(&proxy.url(), "http://a.test")
    ));
    let mut client = gateway.connect();
    client.send("CONNECT upstream.test:22 HTTP/1.1\r\nhost: x\r\n\r\n");
    assert_eq!(client.head().unwrap().status, 200);
    let mut greeting = [0; 5];
    let read = Client::read(&mut client, &mut greeting);
    assert_eq!(&greeting[..read], b"hello");
}

#[test]
fn a_proxy_that_is_the_gateway_itself_is_a_loop() {
    let gateway = Fixture::new(OPEN);
    let own = format!("http://{}", gateway.address());
    let pools = pool(&[
        ("plain", "http://upstream.test"),
        ("tls", "https://upstream.test"),
    ]);
    let local = LOCAL.replace("allow = [\"127.0.0.0/8\"]", &format!("proxy = '{own}'"));
    let local = local.replace("\"localhost\"", "\"upstream.test\"");
    gateway.reload(&format!("{OPEN}{local}{pools}"));
    let reply = gateway.get("http://upstream.test/");
    assert_eq!(reply.status, 508, "{reply:?}");
    let reply = gateway.get("https://upstream.test/");
    reply.is_own(502, "unreachable");
    assert!(reply.text().contains("answered 508"), "{}", reply.text());
}
