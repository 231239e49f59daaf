//! Which request goes where, and as what.

use serde_json::json;

use crate::support::{Fixture, Raw, mock, request};

/// What an upstream was asked for: the first line of a request, as it was sent.
fn first_line(path: &str, base: &str) -> String {
    let raw = Raw::start(|_, mut client| {
        let head = client.request().unwrap();
        let line = head.lines().next().unwrap().to_owned();
        let length = line.len();
        client.send(&format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{line}"
        ));
    });
    let gateway = Fixture::before(&format!("{}{base}", raw.url()));
    gateway.get(path).text().to_owned()
}

#[test]
fn appends_path_and_query_to_the_endpoints_path() {
    for (path, base, expected) in [
        ("/api/chat?x=1&y", "/v1", "GET /v1/chat?x=1&y HTTP/1.1"),
        ("/api/chat", "/v1/", "GET /v1/chat HTTP/1.1"),
        ("/api", "", "GET / HTTP/1.1"),
        ("/api", "/v1", "GET /v1 HTTP/1.1"),
        ("/api/", "/v1", "GET /v1/ HTTP/1.1"),
        ("/api?x", "/v1", "GET /v1?x HTTP/1.1"),
        ("/api//a//b/", "", "GET //a//b/ HTTP/1.1"),
    ] {
        assert_eq!(first_line(path, base), expected, "{path} at {base}");
    }
}

#[test]
fn forwards_escapes_in_paths_unchanged() {
    for path in [
        "/a%20b%2Fc%3F?q=%26%00+%zz",
        "/a;b=c,d:e@f!$&'()*+~-_.",
        "/%E2%82%AC/%ff",
        "/a..b/...",
        "/x?redirect=http://other.example.com/../etc",
        "/[a]|{b}^\"",
        "/x?a[]=1&b={}'",
    ] {
        let line = first_line(&format!("/api{path}"), "");
        assert_eq!(line, format!("GET {path} HTTP/1.1"));
    }
}

#[test]
fn names_the_pools_when_a_path_has_none() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    for path in ["/", "/nope/x", "//api/x", "/API/x", "/api%2Fx"] {
        let reply = gateway.get(path);
        reply.is_own(404, "no_route");
        assert!(reply.text().contains("/api/"), "{path}: {}", reply.text());
    }
    let none = Fixture::new("");
    let reply = none.get("/api/x");
    reply.is_own(404, "no_route");
    assert!(reply.text().contains("no pool is configured"));
    assert_eq!(mock.stats().received, 0);
}

#[test]
fn refuses_paths_with_parent_segments() {
    let mock = mock();
    let gateway = Fixture::before(&format!("{}/v1", mock.url()));
    for path in ["/api/..", "/api/../admin", "/api/a/%2e%2E/x", "/api/..%2f"] {
        gateway.get(path).is_own(404, "no_route");
    }
    assert_eq!(mock.stats().received, 0);
}

#[test]
fn forwards_every_method() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    let mut client = gateway.connect();
    for method in [
        "GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "X-OWN",
    ] {
        let reply = client.ask(method, "/api/echo", &[], "");
        assert_eq!(reply.status, 200, "{method}");
        assert_eq!(reply.json()["method"], method);
        reply.is_marked();
    }
}

#[test]
fn passes_head_responses_with_length_and_without_body() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    let mut client = gateway.connect();
    let reply = client.ask("HEAD", "/api/bytes/70000", &[], "");
    assert_eq!(
        (reply.status, reply.header("content-length")),
        (200, Some("70000"))
    );
    let reply = client.ask("HEAD", "/api/status/404", &[], "");
    assert_eq!(reply.status, 404);
    assert!(reply.header("content-length").is_some());
    let reply = client.ask("HEAD", "/nope", &[], "");
    assert_eq!((reply.status, reply.reason()), (404, Some("no_route")));
    // The connection is where it should be: nothing of a body was sent.
    assert_eq!(client.get("/api/echo").status, 200);
}

#[test]
fn passes_statuses_without_body() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    let mut client = gateway.connect();
    for status in [204, 304] {
        let reply = client.get(&format!("/api/status/{status}"));
        assert_eq!(reply.status, status);
        assert_eq!(reply.header("transfer-encoding"), None);
    }
    assert_eq!(client.get("/api/echo").status, 200);
}

#[test]
fn serves_absolute_urls_with_its_own_host() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    let port = gateway.address().port();
    for host in ["localhost", "127.0.0.1", "[::1]"] {
        let reply = gateway.get(&format!("http://{host}:{port}/api/echo?x"));
        assert_eq!(
            (reply.status, &reply.json()["path"]),
            (200, &json!("/echo"))
        );
    }
    for host in ["example.com", "127.0.0.1.example.com", "10.0.0.1"] {
        let reply = gateway.get(&format!("http://{host}/api/echo"));
        reply.is_own(403, "host_not_allowed");
    }
    assert_eq!(mock.stats().received, 3);
}

#[test]
fn refuses_connect() {
    let gateway = Fixture::before(&mock().url());
    for target in ["example.com:443", "127.0.0.1:22", "localhost:80"] {
        let mut client = gateway.connect();
        client.send(&format!(
            "CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n\r\n"
        ));
        client.reply(false).unwrap().is_own(403, "host_not_allowed");
    }
}

#[test]
fn refuses_options_asterisk_with_no_route() {
    let gateway = Fixture::before(&mock().url());
    let mut client = gateway.connect();
    client.send(&request("OPTIONS", "*", &[], ""));
    client.reply(false).unwrap().is_own(404, "no_route");
}
