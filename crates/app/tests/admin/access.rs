//! Access by host, origin and token; and malformed requests.

use std::io::{Read, Write};
use std::time::Duration;

use crate::child::in_child_with_descriptors;
use crate::support::{Answer, Running, TWO, ask, connect};

fn with(running: &Running, method: &str, path: &str, headers: &[&str], body: &str) -> Answer {
    let token = format!("Authorization: Bearer {}", running.token.expose());
    let mut all = vec![token.as_str()];
    all.extend(headers);
    ask(running.address(), method, path, &all, body)
}

#[test]
fn refuses_everything_but_health_without_the_token() {
    let (running, _folder) = Running::new(TWO);
    for path in ["/healthz", "/readyz"] {
        let answer = ask(running.address(), "GET", path, &[], "");
        assert_eq!((answer.status, &*answer.body), (200, r#"{"status":"ok"}"#));
    }
    for path in [
        "/metrics",
        "/openapi.json",
        "/api/v1/gates",
        "/nowhere",
        "/version",
    ] {
        for token in ["X-Nothing: 1", "Authorization: Bearer 0123456789abcdef"] {
            let answer = ask(running.address(), "GET", path, &[token], "");
            assert_eq!(answer.problem(), (401, "no_token".to_owned()), "{path}");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        }
    }
    let answer = running.ask("GET", "/metrics", None);
    assert_eq!(answer.status, 200);
    assert!(
        answer.body.contains("\ntidegate_gates 0\n"),
        "{}",
        answer.body
    );
    let kind = answer.header("content-type").unwrap();
    assert!(kind.starts_with("text/plain"), "{kind}");
}

#[test]
fn refuses_cross_site_requests_even_with_the_token() {
    let (running, _folder) = Running::new(TWO);
    let check = |header: &str, status: u16, reason: &str| {
        for (method, path) in [
            ("GET", "/api/v1/gates"),
            ("GET", "/healthz"),
            ("POST", "/x"),
        ] {
            let answer = with(&running, method, path, &[header], "");
            assert_eq!(answer.problem(), (status, reason.to_owned()), "{header}");
        }
    };
    check("Host: evil.example.com", 421, "wrong_host");
    check("Host: 127.0.0.1.nip.io:7071", 421, "wrong_host");
    check("Origin: https://evil.example.com", 403, "cross_site");
    check("Origin: null", 403, "cross_site");
    check("Sec-Fetch-Site: cross-site", 403, "cross_site");
    check("Sec-Fetch-Site: same-site", 403, "cross_site");
    let answer = with(&running, "GET", "/api/v1/gates", &["Host: localhost"], "");
    assert_eq!(answer.status, 200);
}

#[test]
fn every_response_has_safe_headers_for_browsers() {
    let (running, _folder) = Running::new(TWO);
    for path in ["/api/v1/gates", "/nowhere", "/healthz"] {
        let answer = running.ask("GET", path, None);
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        let policy = answer.header("content-security-policy");
        assert_eq!(policy, Some("default-src 'self'; frame-ancestors 'none'"));
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
}

#[test]
fn problems_say_what_is_wrong_with_a_request() {
    let (running, _folder) = Running::new(TWO);
    let check = |method: &str, path: &str, body: Option<&str>, status: u16, reason: &str| {
        let answer = running.ask(method, path, body);
        assert_eq!(answer.problem(), (status, reason.to_owned()), "{path}");
        answer
    };
    check("GET", "/nowhere", None, 404, "not_found");
    check("GET", "/api/v1/gates/", None, 404, "not_found");
    check("GET", "/api/v1/gates?sort=size", None, 400, "bad_request");
    check("GET", "/api/v1/gates/%FF", None, 400, "bad_request");
    check("GET", "/api/v1/explain/xyz", None, 400, "bad_request");
    let answer = check("DELETE", "/api/v1/gates", None, 405, "method_not_allowed");
    assert_eq!(answer.header("allow"), Some("GET,HEAD"));
    let reset = "/api/v1/gates/llm/a/reset";
    check("GET", reset, None, 405, "method_not_allowed");
    let endpoint = "/api/v1/pools/llm/endpoints/a";
    check("PATCH", endpoint, Some("{"), 400, "bad_request");
    check("PATCH", endpoint, Some("[]"), 422, "invalid");
    check("PATCH", endpoint, Some("{}"), 422, "invalid");
    check("PATCH", endpoint, None, 415, "not_json");
    let long = format!("{{\"enabled\":{}true}}", " ".repeat(70_000));
    check("PATCH", endpoint, Some(&long), 413, "body_too_large");
    let answer = check(
        "PATCH",
        endpoint,
        Some(r#"{"enabled":"yes","enabeld":1}"#),
        422,
        "invalid",
    );
    let detail = answer.json()["detail"].as_str().unwrap().to_owned();
    assert_eq!(
        detail,
        "`enabled` is `yes`, expected `true` or `false`; \
         `enabeld`: is not known; did you mean `enabled`?"
    );
    let text = with(
        &running,
        "PATCH",
        endpoint,
        &["Content-Type: text/plain"],
        "{}",
    );
    assert_eq!(text.problem(), (415, "not_json".to_owned()));
}

#[test]
fn readiness_is_draining_while_the_server_stops() {
    let (running, _folder) = Running::new(TWO);
    running.admin().drain();
    let answer = ask(running.address(), "GET", "/readyz", &[], "");
    assert_eq!(answer.status, 503);
    assert_eq!(answer.json()["status"], "draining");
    assert_eq!(
        ask(running.address(), "GET", "/healthz", &[], "").status,
        200
    );
}

#[test]
fn connections_without_a_credential_make_room_for_others() {
    app::descriptors::raise_limit();
    let (running, _folder) = Running::new(TWO);
    let known = running.ask("GET", "/api/v1/gates", None);
    assert_eq!(known.status, 200);
    let mut idle: Vec<_> = (0..1100).map(|_| connect(running.address())).collect();
    assert_eq!(running.ask("GET", "/api/v1/gates", None).status, 200);
    assert_eq!(
        ask(running.address(), "GET", "/healthz", &[], "").status,
        200
    );
    // The oldest made room. Others were not closed by a timeout meanwhile.
    let other = &mut idle[1000];
    let wait = Duration::from_secs(1);
    other.set_read_timeout(Some(wait)).unwrap();
    let read = other.read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(read, Err(std::io::ErrorKind::WouldBlock));
}

#[test]
fn connections_without_a_credential_take_no_more_than_half_the_reserve() {
    let name = "access::connections_without_a_credential_take_no_more_than_half_the_reserve";
    in_child_with_descriptors(name, 512, || {
        let (running, _folder) = Running::new(TWO);
        let mut idle: Vec<_> = (0..150).map(|_| connect(running.address())).collect();
        assert_eq!(running.ask("GET", "/api/v1/gates", None).status, 200);
        // A quarter of 512 is the reserve, and half of that is 64.
        let wait = Duration::from_secs(2);
        for (number, expected) in [(50, Ok(0)), (149, Err(std::io::ErrorKind::WouldBlock))] {
            let stream = &mut idle[number];
            stream.set_read_timeout(Some(wait)).unwrap();
            let read = stream.read(&mut [0]).map_err(|error| error.kind());
            assert_eq!(read, expected, "{number}");
        }
    });
}

#[test]
fn connections_without_a_credential_make_room_when_descriptors_are_used_up() {
    let name = "access::connections_without_a_credential_make_room_when_descriptors_are_used_up";
    in_child_with_descriptors(name, 256, || {
        let (running, _folder) = Running::new(TWO);
        let mut idle: Vec<_> = (0..10).map(|_| connect(running.address())).collect();
        assert_eq!(running.ask("GET", "/api/v1/gates", None).status, 200);
        let mut files = Vec::new();
        // Twice, because the last connection is closed meanwhile.
        for wait in [Duration::from_millis(500), Duration::from_millis(1)] {
            while let Ok(file) = std::fs::File::open("/dev/null") {
                files.push(file);
            }
            idle[0].set_read_timeout(Some(wait)).unwrap();
            assert!(idle[0].read(&mut [0]).is_err());
        }
        // For the client's own side.
        drop(files.pop());
        let mut client = connect(running.address());
        client
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        let request = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
        client.write_all(request).unwrap();
        let mut start = [0; 12];
        client.read_exact(&mut start).unwrap();
        assert_eq!(&start, b"HTTP/1.1 200");
    });
}
