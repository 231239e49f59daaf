//! Which headers pass, which clients are admitted, and the headers of every response.

use serde_json::Value;

use crate::support::{Client, Fixture, OPEN, Raw, mock, pool, scripted};

/// The headers that an upstream gets from a request with these.
fn passed(headers: &[&str]) -> Value {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    let reply = gateway.connect().get_with("/api/echo", headers);
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()["headers"].clone()
}

#[test]
fn does_not_forward_connection_headers() {
    let got = passed(&[
        "connection: keep-alive, X-Local",
        "connection: x-second",
        "x-local: 1",
        "x-second: 2",
        "keep-alive: timeout=5",
        "proxy-connection: keep-alive",
        "proxy-authorization: Basic abc",
        "te: gzip",
        "x-passed: yes",
    ]);
    for name in [
        "connection",
        "x-local",
        "x-second",
        "keep-alive",
        "proxy-connection",
        "proxy-authorization",
        "te",
    ] {
        assert_eq!(got[name], Value::Null, "{name}");
    }
    assert_eq!(got["x-passed"], "yes");
}

#[test]
fn does_not_forward_headers_that_only_proxies_may_set() {
    let got = passed(&[
        "tidegate-token: t",
        "Tidegate-Max-Wait: 5s",
        "tidegate-anything: 1",
        "forwarded: for=1.2.3.4",
        "x-forwarded-for: 1.2.3.4",
        "X-Forwarded-Host: evil.example.com",
        "x-forwarded-proto: https",
        "traceparent: 00-0123456789abcdef0123456789abcdef-0123456789abcdef-01",
    ]);
    let names: Vec<&String> = got.as_object().unwrap().keys().collect();
    assert_eq!(names, ["host", "traceparent", "via"]);
}

#[test]
fn keeps_repeated_headers_apart() {
    let got = passed(&["x-many: 1", "x-many: 2", "accept: a, b", "accept: c"]);
    assert_eq!(got["x-many"], serde_json::json!(["1", "2"]));
    assert_eq!(got["accept"], serde_json::json!(["a, b", "c"]));
}

#[test]
fn forwards_no_upgrade_of_our_own_connection() {
    let got = passed(&[
        "connection: Upgrade, HTTP2-Settings",
        "upgrade: h2c, websocket",
        "http2-settings: AAMAAABkAAQAAP__",
        "sec-websocket-key: x",
    ]);
    assert_eq!(got["upgrade"], "websocket");
    assert_eq!(got["http2-settings"], Value::Null);
}

#[test]
fn treats_an_unrequested_upgrade_as_a_failure() {
    let raw = Raw::saying(
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\nGET / HTTP/1.1\r\n\r\n",
    );
    let gateway = Fixture::before(&raw.url());
    let reply = gateway.connect().post("/api/x", &[], "body");
    reply.is_own(502, "unreachable");
}

#[test]
fn does_not_pass_back_connection_headers() {
    let raw = Raw::saying(
        b"HTTP/1.1 200 OK\r\nconnection: close, X-Local\r\nx-local: 1\r\nkeep-alive: timeout=5\r\n\
          proxy-authenticate: Basic\r\nupgrade: h2c\r\ntidegate-reason: forged\r\n\
          tidegate-endpoint: forged\r\ntidegate-own: forged\r\nx-passed: 1\r\nx-passed: 2\r\n\
          retry-after: 7\r\nratelimit: \"a\";r=5;t=3\r\nx-ratelimit-remaining: 5\r\n\
          set-cookie: a=1\r\nset-cookie: b=2\r\ncontent-length: 2\r\n\r\nok",
    );
    let gateway = Fixture::before(&raw.url());
    let reply = gateway.get("/api/x");
    reply.is_marked();
    for name in [
        "x-local",
        "keep-alive",
        "proxy-authenticate",
        "upgrade",
        "tidegate-reason",
        "tidegate-own",
    ] {
        assert_eq!(reply.header(name), None, "{name}");
    }
    assert_eq!(reply.header("tidegate-endpoint"), Some("a"));
    assert_eq!(reply.header("retry-after"), Some("7"));
    assert_eq!(reply.header("ratelimit"), Some("\"a\";r=5;t=3"));
    assert_eq!(reply.header("x-ratelimit-remaining"), Some("5"));
    let cookies = reply
        .headers
        .iter()
        .filter(|(name, _)| name == "set-cookie");
    assert_eq!(cookies.count(), 2);
}

/// A pool of two endpoints with a secret each, of which the first fails.
fn with_secrets(a: &str, b: &str) -> Fixture {
    Fixture::new(&format!(
        r#"{OPEN}
[pool.api]
balance = "first"
endpoints = [
  {{ name = "a", url = "{a}", headers = {{ authorization = "env:secret-of-a", x-only-a = "env:only-a" }} }},
  {{ name = "b", url = "{b}", headers = {{ authorization = "env:secret-of-b" }} }},
]
"#
    ))
}

#[test]
fn endpoint_headers_replace_those_of_clients_and_go_nowhere_else() {
    let (failing, echoing) = (scripted("503"), mock());
    let gateway = with_secrets(&failing.url(), &echoing.url());
    let reply = gateway
        .connect()
        .get_with("/api/echo", &["authorization: mine", "x-api-key: mine too"]);
    assert_eq!(reply.header("tidegate-endpoint"), Some("b"));
    assert_eq!(failing.stats().received, 1);
    let got = &reply.json()["headers"];
    assert_eq!(got["authorization"], "value-of-secret-of-b");
    assert_eq!(got["x-only-a"], Value::Null);
    assert_eq!(got["x-api-key"], "mine too");
}

#[test]
fn sends_the_endpoints_own_host() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    let reply = gateway.get("/api/echo");
    let host = mock.address().to_string();
    assert_eq!(reply.json()["headers"]["host"], host.as_str());
}

#[test]
fn refuses_a_request_that_passed_before() {
    let mock = mock();
    let outer = Fixture::before(&mock.url());
    let via = outer.get("/api/echo").json()["headers"]["via"].clone();
    let via = format!("via: 1.0 other, {}", via.as_str().unwrap());
    let reply = outer.connect().get_with("/api/echo", &[&via]);
    reply.is_own(508, "loop_detected");
    let reply = outer.connect().get_with("/api/echo", &["via: 1.0 other"]);
    assert_eq!(reply.status, 200);
    assert!(reply.json()["headers"]["via"].is_array());
}

#[test]
fn detects_a_loop_through_its_own_endpoint() {
    let gateway = Fixture::before("http://127.0.0.1:1");
    let url = format!("http://{}/api", gateway.address());
    gateway.reload(&format!("{OPEN}{}", pool(&[("a", &url)])));
    let reply = gateway.get("/api/x");
    assert_eq!((reply.status, reply.reason()), (508, None));
    assert_eq!(reply.json()["reason"], "loop_detected");
    // Sent again, it would go in the same circle.
    assert_eq!(reply.attempts(), 1);
}

#[test]
fn serves_only_its_own_hosts() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    for (host, expected) in [
        ("localhost", 200),
        ("127.0.0.1:80", 200),
        ("[::1]:7070", 200),
        ("gate.localhost:7070", 200),
        ("GATE.LocalHost.", 200),
        ("evil-localhost", 421),
        ("evil.example.com", 421),
        ("localhost.evil.example.com", 421),
        ("127.0.0.1.evil.example.com:7070", 421),
        ("", 421),
    ] {
        let mut client = gateway.connect();
        client.send(&format!("GET /api/echo HTTP/1.1\r\nhost: {host}\r\n\r\n"));
        let reply = client.reply(false).unwrap();
        assert_eq!(reply.status, expected, "{host}");
        if expected == 421 {
            reply.is_own(421, "wrong_host");
        }
    }
}

#[test]
fn requires_client_tokens_and_does_not_forward_them() {
    let mock = mock();
    let clients =
        "[client.one]\ntoken = \"env:first-token\"\n[client.two]\ntoken = \"env:second-token\"\n";
    let gateway = Fixture::with(&mock.url(), clients);
    for headers in [
        &[][..],
        &["tidegate-token: "],
        &["tidegate-token: value-of-first"],
        &["tidegate-token: value-of-first-token2"],
        &["authorization: Bearer value-of-first-token"],
    ] {
        let reply = gateway.connect().get_with("/api/echo", headers);
        reply.is_own(401, "no_token");
    }
    assert_eq!(mock.stats().received, 0);
    for token in ["first-token", "second-token"] {
        let token = format!("Tidegate-Token: value-of-{token}");
        let reply = gateway.connect().get_with("/api/echo", &[&token]);
        assert_eq!(reply.status, 200);
        assert!(!reply.text().contains("-token"), "{}", reply.text());
    }
}

#[test]
fn refuses_too_long_and_too_many_headers() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    let long = format!("x-long: {}", "a".repeat(70_000));
    let reply = gateway.connect().get_with("/api/echo", &[&long]);
    reply.is_own(431, "headers_too_large");
    let many = vec!["x-many: 1"; 300];
    let reply = gateway.connect().get_with("/api/echo", &many);
    reply.is_own(431, "headers_too_large");
    assert_eq!(mock.stats().received, 0);
    let fine = format!("x-long: {}", "a".repeat(60_000));
    // As long as we take; what the upstream makes of it is its own matter.
    assert_ne!(
        gateway.connect().get_with("/api/echo", &[&fine]).reason(),
        Some("headers_too_large")
    );
    gateway.works();
}

#[test]
fn every_response_carries_the_tidegate_headers() {
    let mock = scripted("200,404,503,200");
    let gateway = Fixture::before(&mock.url());
    let mut client = gateway.connect();
    let found = [(200, 1), (404, 1), (200, 2)].map(|expected| {
        let reply = client.get("/api/x");
        reply.is_marked();
        assert_eq!(reply.header("tidegate-endpoint"), Some("a"));
        assert_eq!((reply.status, reply.attempts()), expected);
        reply.header("tidegate-request-id").unwrap().to_owned()
    });
    assert_ne!(found[0], found[1]);
    let reply = client.get("/nope");
    assert_eq!(
        reply.json()["request_id"],
        reply.header("tidegate-request-id").unwrap()
    );
}

#[test]
fn serves_http2_with_prior_knowledge() {
    use hyper::client::conn::http2;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    let address = gateway.address();
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    let statuses = runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let io = TokioIo::new(stream);
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        let mut statuses = Vec::new();
        for uri in [
            format!("http://{address}/api/echo"),
            "http://evil.example.com/api/echo".to_owned(),
        ] {
            let request = http::Request::get(uri);
            let request = request.body(http_body_util::Empty::<bytes::Bytes>::new());
            let answer = sender.send_request(request.unwrap()).await.unwrap();
            statuses.push(answer.status().as_u16());
        }
        statuses
    });
    assert_eq!(statuses, [200, 421]);
}

#[test]
fn serves_http_1_0() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    let mut client = Client::connect(gateway.address());
    client.send("GET /api/slow?first=0s&n=3 HTTP/1.0\r\n\r\n");
    let reply = client.reply(false).unwrap();
    assert_eq!((reply.status, reply.text()), (200, "slow\nslow\nslow\n"));
    assert_eq!(reply.header("transfer-encoding"), None);
}
