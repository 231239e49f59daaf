//! How it ends when nothing helps: the last answer, or why there is none.

use app::state::NewEndpoint;

use crate::support::{Fixture, OPEN, Raw, closed_port, mock, pool, scripted};

#[test]
fn passes_on_the_last_response_when_attempts_are_exhausted() {
    let raw = Raw::saying(
        b"HTTP/1.1 503 Busy\r\nx-own: yes\r\nx-ratelimit-limit: 5\r\ncontent-type: text/odd\r\n\
          transfer-encoding: chunked\r\n\r\n4\r\nbusy\r\n6\r\n as ev\r\n0\r\n\r\n",
    );
    let gateway = Fixture::before(&raw.url());
    let reply = gateway.get("/api/x");
    assert_eq!(
        (reply.status, reply.attempts(), reply.reason()),
        (503, 4, None)
    );
    assert_eq!(reply.text(), "busy as ev");
    assert_eq!(reply.header("x-own"), Some("yes"));
    assert_eq!(reply.header("x-ratelimit-limit"), Some("5"));
    assert_eq!(reply.header("content-type"), Some("text/odd"));
    reply.is_marked();
    assert_eq!(raw.connections(), 4);
}

#[test]
fn passes_on_a_long_error_whole() {
    let raw = Raw::start(|_, mut client| {
        client.request();
        let body = "0123456789".repeat(20_000);
        client.send(&format!(
            "HTTP/1.1 400 X\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ));
    });
    let gateway = Fixture::before(&raw.url());
    let reply = gateway.get("/api/x");
    assert_eq!((reply.status, reply.body.len()), (400, 200_000));
    assert!(reply.text().ends_with("789"));
}

#[test]
fn passes_on_trailers_of_errors() {
    let raw = Raw::saying(
        b"HTTP/1.1 404 X\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n\
          2\r\nno\r\n0\r\nx-sum: 7\r\n\r\n",
    );
    let gateway = Fixture::before(&raw.url());
    let reply = gateway.connect().get_with("/api/x", &["te: trailers"]);
    assert_eq!((reply.status, reply.text()), (404, "no"));
    assert_eq!(reply.trailers, [("x-sum".to_owned(), "7".to_owned())]);
}

#[test]
fn responds_unreachable_when_no_connection_is_made() {
    let gateway = Fixture::before(&format!("http://{}", closed_port()));
    let reply = gateway.get("/api/x");
    reply.is_own(502, "unreachable");
    assert_eq!(reply.attempts(), 4);
    assert_eq!(reply.header("tidegate-endpoint"), Some("a"));
    assert!(reply.text().contains("refused"), "{}", reply.text());
}

#[test]
fn responds_unreachable_to_what_is_not_http() {
    for nonsense in [
        &b"SSH-2.0-OpenSSH_9.6\r\n"[..],
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"HTTP/1.1 abc\r\n\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"",
    ] {
        let raw = Raw::saying(nonsense);
        let gateway = Fixture::before(&raw.url());
        let reply = gateway.connect().post("/api/x", &[], "x");
        reply.is_own(502, "unreachable");
        assert_eq!(reply.attempts(), 1);
    }
}

#[test]
fn checks_addresses_of_untrusted_endpoints_when_dialling() {
    let mock = mock();
    let settings = format!("{OPEN}{}", pool(&[("a", "http://127.0.0.1:1")]));
    let allowing = format!("[network]\nallow = [\"127.0.0.0/8\"]\n{settings}");
    let gateway = Fixture::new(&allowing);
    let added = NewEndpoint {
        name: "b".to_owned(),
        url: mock.url(),
        headers: Vec::new(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let state = &gateway.state;
    runtime.block_on(state.add_endpoint("api", added)).unwrap();
    runtime.block_on(state.remove_endpoint("api", "a")).unwrap();
    assert_eq!(gateway.get("/api/echo").status, 200);
    gateway.reload(&settings);
    let reply = gateway.get("/api/echo");
    reply.is_own(403, "address_not_allowed");
    assert_eq!((reply.attempts(), mock.stats().received), (0, 1));
    assert!(!reply.text().contains("127.0.0.1"), "{}", reply.text());
    // Nothing was learned from it, and nothing was used up.
    gateway.reload(&allowing);
    assert_eq!(gateway.get("/api/echo").status, 200);
}

#[test]
fn passes_on_exhausted_quota_at_once() {
    let raw = Raw::saying(
        b"HTTP/1.1 429 X\r\ncontent-type: application/json\r\ncontent-length: 39\r\n\r\n\
          {\"error\":{\"code\":\"insufficient_quota\"}}",
    );
    let gateway = Fixture::before(&raw.url());
    let reply = gateway.get("/api/x");
    assert_eq!((reply.status, reply.attempts()), (429, 1));
    assert_eq!(raw.connections(), 1);
}

#[test]
fn retries_stay_within_the_budget_when_everything_fails() {
    let mock = scripted("500");
    let budget = "[retry_budget]\nratio = 0.1\nmin_per_second = 1\n";
    let gate = "[gate]\nstrategy = \"fixed\"\ninitial_rate = 10000\nerror_rate_threshold = 1\n\
                min_samples = 10000\nconsecutive_failures = 10000\n";
    let settings = format!("{gate}{budget}{}", pool(&[("a", &mock.url())]));
    let gateway = Fixture::new(&settings);
    let mut client = gateway.connect();
    let since = std::time::Instant::now();
    for _ in 0..50 {
        let reply = client.get_with("/api/x", &["tidegate-max-wait: 100ms"]);
        assert_eq!(reply.status, 500);
    }
    let sent = mock.stats().received;
    let budget = 50 / 10 + (since.elapsed().as_secs() + 2) * 10;
    assert!(sent <= 50 + budget, "{sent} were sent");
}
