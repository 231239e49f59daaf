//! Forward mode, in absolute form: which servers are reached, as whom, and what they get.

use app::mock::Mock;
use serde_json::json;

use crate::support::{Client, Fixture, OPEN, closed_port, mock, pool, request, scripted};

/// Servers of tests are on loopback, which has to be allowed.
pub(crate) const LOCAL: &str = r#"
[network]
allow = ["127.0.0.0/8"]
[forward]
allow = ["127.0.0.1", "localhost"]
"#;

/// A gateway in forward mode with further settings; nothing is paced.
pub(crate) fn gateway(settings: &str) -> Fixture {
    Fixture::new(&format!("{OPEN}{LOCAL}{settings}"))
}

/// Host and port of a server.
fn authority(mock: &Mock) -> String {
    mock.url().trim_start_matches("http://").to_owned()
}

/// `user:password` as a client sends it: the token of the client `app` is `value-of-APP_TOKEN`.
fn credentials(base64: &str) -> String {
    format!("proxy-authorization: Basic {base64}")
}

const CLIENT: &str = "[client.app]\ntoken = 'env:APP_TOKEN'\n";
/// `app:value-of-APP_TOKEN`, `x:value-of-APP_TOKEN` and `app:wrong`.
const RIGHT: &str = "YXBwOnZhbHVlLW9mLUFQUF9UT0tFTg==";
const OTHER_USER: &str = "eDp2YWx1ZS1vZi1BUFBfVE9LRU4=";
const WRONG: &str = "YXBwOndyb25n";

#[test]
fn passes_requests_on_to_the_server_that_they_name() {
    let (mock, gateway) = (mock(), gateway(""));
    let authority = authority(&mock);
    let url = format!("{}/echo?q=1%202", mock.url());
    let reply = gateway.connect().ask(
        "POST",
        &url,
        &[
            "proxy-connection: keep-alive",
            "x-a: b",
            "content-type: text/plain",
        ],
        "hello",
    );
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.is_marked();
    assert_eq!(reply.attempts(), 1);
    assert_eq!(reply.header("tidegate-endpoint"), Some(authority.as_str()));
    let seen = reply.json();
    assert_eq!(
        (&seen["method"], &seen["path"]),
        (&json!("POST"), &json!("/echo"))
    );
    assert_eq!(
        (&seen["query"], &seen["body_length"]),
        (&json!("q=1%202"), &json!(5))
    );
    // The client wrote `localhost`, which does not count.
    assert_eq!(seen["headers"]["host"], authority);
    assert_eq!(seen["headers"]["x-a"], "b");
    assert_eq!(seen["headers"]["proxy-connection"], json!(null));
    assert!(
        seen["headers"]["via"]
            .as_str()
            .unwrap()
            .contains("tidegate-")
    );
}

#[test]
fn a_host_has_one_gate_a_trail_and_a_bounded_label() {
    let (mock, gateway) = (mock(), gateway(""));
    let authority = authority(&mock);
    let reply = gateway.get(&format!("{}/echo", mock.url()));
    let id = reply.header("tidegate-request-id").unwrap();
    let trail = gateway.gateway.trails().find(id.parse().unwrap()).unwrap();
    assert_eq!(&*trail.route, "_forward");
    assert_eq!(trail.endpoint.as_deref(), Some(authority.as_str()));
    assert!(format!("{:?}", trail.decisions).contains(&authority));
    let metrics = gateway.state.core().metrics().render();
    for line in [
        "tidegate_requests_total{route=\"_forward\",outcome=\"success\"} 1".to_owned(),
        format!("tidegate_attempts_total{{key=\"{authority}\",verdict=\"success\"}} 1"),
    ] {
        assert!(metrics.contains(&line), "{line} is missing in\n{metrics}");
    }
}

#[test]
fn retries_what_is_safe_and_follows_rules_of_the_host() {
    let rule = "[[gate.'127.0.0.1'.rule]]\nstatus = [404]\nverdict = 'overloaded'\n";
    let gateway = gateway(rule);
    for (script, method, status, attempts) in [
        ("503,200", "GET", 200, 2),
        ("404,200", "GET", 200, 2),
        ("503,200", "POST", 503, 1),
        ("503,503,503,503,200", "GET", 503, 4),
    ] {
        let mock = scripted(script);
        let reply = gateway.connect().ask(method, &mock.url(), &[], "");
        assert_eq!(
            (reply.status, reply.attempts()),
            (status, attempts),
            "{script}"
        );
    }
    let key = ["idempotency-key: 1"];
    let mock = scripted("503,200");
    let reply = gateway.connect().post(&mock.url(), &key, "x");
    assert_eq!((reply.status, reply.attempts()), (200, 2));
}

#[test]
fn unreachable_servers_open_the_breaker_of_their_host() {
    let gateway = gateway(
        "[gate.'127.0.0.1']\nconsecutive_failures = 4\nopen_first = '1h'\nopen_for = '1h'\n",
    );
    let url = format!("http://{}/x", closed_port());
    let reply = gateway.get(&url);
    reply.is_own(502, "unreachable");
    assert_eq!(reply.attempts(), 4);
    gateway.get(&url).is_own(503, "breaker_open");
    // Another port is another gate.
    let mock = mock();
    assert_eq!(gateway.get(&format!("{}/echo", mock.url())).status, 200);
}

#[test]
fn only_allowed_hosts_are_reached() {
    let mock = mock();
    let port = authority(&mock).split(':').nth(1).unwrap().to_owned();
    let gateway = gateway("deny = ['localhost', '127.0.0.1']\n");
    for host in ["localhost", "127.0.0.1", "example.com", "127.0.0.2"] {
        let reply = gateway.get(&format!("http://{host}:{port}/echo"));
        let is_ours = !matches!(host, "example.com");
        match is_ours {
            // A name of the gateway itself, at another port: no pool has that path.
            true => reply.is_own(404, "no_route"),
            false => reply.is_own(403, "host_not_allowed"),
        }
        let mut client = gateway.connect();
        client.send(&connect(&format!("{host}:{port}")));
        client.reply(false).unwrap().is_own(403, "host_not_allowed");
    }
    assert_eq!(mock.stats().received, 0);
}

/// A `CONNECT` as it is sent.
fn connect(target: &str) -> String {
    format!("CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n\r\n")
}

#[test]
fn addresses_are_checked_after_resolving() {
    let mock = mock();
    let port = authority(&mock).split(':').nth(1).unwrap().to_owned();
    let forward = "[forward]\nallow = ['127.0.0.1', 'localhost', '[::ffff:127.0.0.1]']\n";
    let denied = "deny = ['127.0.0.0/8']\n[network]\nallow = ['127.0.0.0/8']\n";
    for (settings, hosts) in [
        // Loopback is not public, by whatever name.
        (
            forward.to_owned(),
            &["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433"][..],
        ),
        // A denied network is denied to names that lead there.
        (
            format!("{forward}{denied}"),
            &["localhost", "[::ffff:127.0.0.1]"],
        ),
    ] {
        let gateway = Fixture::new(&format!("{OPEN}{settings}"));
        for host in hosts {
            let reply = gateway.get(&format!("http://{host}:{port}/echo"));
            reply.is_own(403, "address_not_allowed");
            let mut client = gateway.connect();
            client.send(&connect(&format!("{host}:{port}")));
            client
                .reply(false)
                .unwrap()
                .is_own(403, "address_not_allowed");
        }
    }
    assert_eq!(mock.stats().received, 0);
}

#[test]
fn clients_show_their_token_to_the_proxy() {
    let mock = mock();
    let gateway = gateway(CLIENT);
    let url = format!("{}/echo", mock.url());
    let wrong = credentials(WRONG);
    let bearer = "proxy-authorization: Bearer value-of-APP_TOKEN";
    for headers in [
        &[][..],
        &[wrong.as_str()],
        &[bearer],
        &["tidegate-token: wrong"],
    ] {
        for text in [request("GET", &url, headers, ""), {
            let lines: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
            format!(
                "CONNECT {a} HTTP/1.1\r\nhost: {a}\r\n{lines}\r\n",
                a = authority(&mock)
            )
        }] {
            let mut client = gateway.connect();
            client.send(&text);
            let reply = client.reply(false).unwrap();
            reply.is_own(407, "no_token");
            let challenge = reply.header("proxy-authenticate");
            assert_eq!(challenge, Some("Basic realm=\"tidegate\""));
        }
    }
    // Without a token it is not said which hosts are allowed.
    gateway.get("http://example.com/").is_own(407, "no_token");
    assert_eq!(mock.stats().received, 0);
    for header in [
        credentials(RIGHT),
        credentials(OTHER_USER),
        "tidegate-token: value-of-APP_TOKEN".to_owned(),
    ] {
        let reply = gateway.connect().get_with(&url, &[&header]);
        assert_eq!(reply.status, 200, "{header}: {reply:?}");
        assert!(!reply.text().contains("value-of") && !reply.text().contains(RIGHT));
        assert_eq!(reply.json()["headers"]["proxy-authorization"], json!(null));
    }
    // A path alone is no request to a proxy.
    let reply = gateway
        .connect()
        .get_with("/api/echo", &[&credentials(RIGHT)]);
    reply.is_own(401, "no_token");
}

#[test]
fn loops_are_found() {
    let mock = mock();
    let settings = format!("{LOCAL}{}", pool(&[("a", &mock.url())]));
    let gateway = Fixture::new(&format!("{OPEN}{settings}"));
    let own = gateway.address();
    // It is for the gateway itself.
    let reply = gateway.get(&format!("http://{own}/api/echo"));
    assert_eq!(
        (reply.status, &reply.json()["path"]),
        (200, &json!("/echo"))
    );
    let mut client = gateway.connect();
    client.send(&connect(&own.to_string()));
    client.reply(false).unwrap().is_own(508, "loop_detected");
    // What has passed before comes back.
    let url = format!("{}/echo", mock.url());
    let via = gateway.get(&url).json()["headers"]["via"].clone();
    let via = format!("via: 1.0 other, {}", via.as_str().unwrap());
    gateway
        .connect()
        .get_with(&url, &[&via])
        .is_own(508, "loop_detected");
    let mut client = gateway.connect();
    let target = authority(&mock);
    client.send(&format!(
        "CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n{via}\r\n\r\n"
    ));
    client.reply(false).unwrap().is_own(508, "loop_detected");
}

#[test]
fn pages_of_a_browser_with_this_proxy_are_served_and_others_are_not() {
    let mock = mock();
    let pools = pool(&[("a", &mock.url())]);
    let gateway = Fixture::new(&format!(
        "origins = ['https://app.example.com']\n{OPEN}{LOCAL}{pools}"
    ));
    let url = format!("{}/echo", mock.url());
    let page = [
        "origin: https://evil.example.com",
        "sec-fetch-site: cross-site",
    ];
    let reply = gateway.connect().get_with(&url, &page);
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(reply.header("access-control-allow-origin"), None);
    // Not even for an allowed origin: what pages may read is for the server to say.
    let reply = gateway
        .connect()
        .get_with(&url, &["origin: https://app.example.com"]);
    assert_eq!(
        (reply.status, reply.header("access-control-allow-origin")),
        (200, None)
    );
    let preflight = [page[0], page[1], "access-control-request-method: PUT"];
    let reply = gateway.connect().ask("OPTIONS", &url, &preflight, "");
    assert_eq!(
        (reply.status, &reply.json()["method"]),
        (200, &json!("OPTIONS"))
    );
    // A page that is pointed at the gateway sends its path alone, or names the gateway.
    let own = format!("http://{}/api/echo", gateway.address());
    for path in ["/api/echo", &own] {
        gateway
            .connect()
            .get_with(path, &page)
            .is_own(403, "cross_site");
    }
    let mut client = gateway.connect();
    client.send("GET /echo HTTP/1.1\r\nhost: evil.example.com\r\n\r\n");
    client.reply(false).unwrap().is_own(421, "wrong_host");
}

#[test]
fn refuses_what_names_no_server() {
    let gateway = gateway("");
    let check = |text: &str| {
        let mut client = gateway.connect();
        client.send(text);
        client.reply(false).unwrap().is_own(400, "bad_request");
    };
    check(&request("GET", "ftp://127.0.0.1/x", &[], ""));
    check(&request("GET", "http://user:pw@127.0.0.1/x", &[], ""));
    check(&request("GET", "http://127.0.0.1/x", &["host: again"], ""));
    check(&connect("127.0.0.1"));
    check(&connect("user@127.0.0.1:80"));
    check("CONNECT 127.0.0.1:80 HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello");
    check(
        "CONNECT 127.0.0.1:80 HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    );
}

#[test]
fn framing_is_checked_after_a_refused_connect() {
    let mock = mock();
    let gateway = gateway("");
    let mut client = gateway.connect();
    client.send(&connect("example.com:443"));
    client.reply(false).unwrap().is_own(403, "host_not_allowed");
    assert_eq!(client.get(&format!("{}/echo", mock.url())).status, 200);
    client.send(&connect("example.com:443"));
    client.reply(false).unwrap().is_own(403, "host_not_allowed");
    let conflict = ["content-length: 5", "transfer-encoding: chunked"];
    let conflict = request("POST", &format!("{}/echo", mock.url()), &conflict, "");
    client.send(&format!("{conflict}0\r\n\r\n"));
    client.reply(false).unwrap().is_own(400, "bad_request");
}

#[test]
fn a_reload_switches_it_on_and_off() {
    let mock = mock();
    let gateway = Fixture::new(OPEN);
    let port = authority(&mock).split(':').nth(1).unwrap().to_owned();
    let ask = |client: &mut Client| client.get(&format!("http://localhost:{port}/echo")).status;
    let mut client = gateway.connect();
    assert_eq!(ask(&mut client), 404);
    gateway.reload(&format!("{OPEN}{LOCAL}"));
    assert_eq!(ask(&mut client), 200);
    gateway.reload(&format!("{OPEN}{LOCAL}deny = ['127.0.0.0/8', '::1']\n"));
    assert_eq!(ask(&mut client), 403);
    gateway.reload(OPEN);
    assert_eq!(ask(&mut client), 404);
}

#[test]
fn waits_at_the_gate_of_the_host() {
    let mock = mock();
    let gateway = gateway("[gate.'127.0.0.1']\nlimits = ['2/1h']\n");
    let url = format!("{}/echo", mock.url());
    let mut client = gateway.connect();
    assert_eq!(client.get(&url).status, 200);
    assert_eq!(client.get(&url).status, 200);
    let reply = client.get_with(&url, &["tidegate-max-wait: 1s"]);
    reply.is_own(429, "wait_too_long");
    assert!(reply.header("retry-after").is_some());
    client
        .get_with(&url, &["tidegate-max-wait: soon"])
        .is_own(400, "bad_wait");
    assert_eq!(mock.stats().received, 2);
}
