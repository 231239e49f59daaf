//! Web pages use the gateway only if their origin is allowed.

use crate::support::{Fixture, OPEN, mock, pool, request};

fn gateway(url: &str, origins: &str) -> Fixture {
    let pools = pool(&[("a", url)]);
    Fixture::new(&format!("origins = [{origins}]\n{OPEN}{pools}"))
}

#[test]
fn refuses_pages_of_other_sites() {
    let mock = mock();
    let gateway = gateway(&mock.url(), "");
    for headers in [
        &["origin: https://evil.example.com"][..],
        &["origin: null"],
        &["origin: "],
        &["Origin: HTTP://EVIL.EXAMPLE.COM"],
        // Another port is another origin, on the same machine too.
        &["origin: http://localhost:3000", "sec-fetch-site: same-site"],
        &["origin: http://127.0.0.1:3000"],
        &["origin: http://localhost.evil.example.com"],
        &[
            "origin: chrome-extension://abcdefgh",
            "sec-fetch-site: none",
        ],
        &[
            "origin: https://evil.example.com",
            "sec-fetch-site: same-origin",
        ],
        &[
            "origin: http://localhost",
            "origin: https://evil.example.com",
        ],
        // Images, scripts and links carry no origin.
        &["sec-fetch-site: cross-site"],
        &["Sec-Fetch-Site: Cross-Site"],
        &["sec-fetch-site: same-site"],
        &["sec-fetch-site: something-new"],
        &[
            "sec-fetch-site: cross-site",
            "sec-fetch-mode: navigate",
            "sec-fetch-dest: document",
        ],
        &["sec-fetch-site: same-origin", "sec-fetch-site: cross-site"],
    ] {
        for method in ["GET", "POST", "HEAD"] {
            let reply = gateway.connect().ask(method, "/api/echo", headers, "");
            assert_eq!(reply.reason(), Some("cross_site"), "{method} {headers:?}");
            assert_eq!(
                (reply.status, reply.header("access-control-allow-origin")),
                (403, None)
            );
        }
    }
    gateway
        .connect()
        .get_with("/api/echo", &["origin: null"])
        .is_own(403, "cross_site");
    assert_eq!(mock.stats().received, 0);
    // DNS rebinding: a name of the page's own resolves to this address; the `Host` shows it.
    let mut client = gateway.connect();
    client.send("GET /api/echo HTTP/1.1\r\nhost: evil.example.com\r\norigin: http://evil.example.com\r\nsec-fetch-site: same-origin\r\n\r\n");
    client.reply(false).unwrap().is_own(421, "wrong_host");
}

#[test]
fn serves_programs_addresses_typed_by_people_and_pages_of_its_own() {
    let mock = mock();
    let gateway = gateway(&mock.url(), "");
    for headers in [
        &[][..],
        &["sec-fetch-site: none", "sec-fetch-mode: navigate"],
        &["sec-fetch-site: same-origin"],
        // `request` names the host `localhost`.
        &["sec-fetch-site: same-origin", "origin: http://localhost"],
        &["origin: HTTPS://LOCALHOST"],
        &["referer: https://evil.example.com/"],
    ] {
        let reply = gateway.connect().post("/api/echo", headers, "hello");
        assert_eq!(reply.status, 200, "{headers:?}");
        assert_eq!(reply.header("access-control-allow-origin"), None);
    }
    let mut client = gateway.connect();
    client.send(
        "GET /api/echo HTTP/1.1\r\nhost: 127.0.0.1:7070\r\norigin: http://127.0.0.1:7070\r\n\r\n",
    );
    assert_eq!(client.reply(false).unwrap().status, 200);
    // A question about an upstream's methods is the upstream's to answer.
    let reply = gateway.connect().ask("OPTIONS", "/api/echo", &[], "");
    assert_eq!((reply.status, reply.attempts()), (200, 1));
}

#[test]
fn serves_allowed_origins_and_lets_their_pages_read_the_response() {
    let mock = mock();
    let gateway = gateway(
        &mock.url(),
        "\"https://app.example.com\", \"http://localhost:3000\"",
    );
    for origin in ["https://app.example.com", "http://localhost:3000"] {
        let from = format!("origin: {origin}");
        let headers = [
            from.as_str(),
            "sec-fetch-site: cross-site",
            "sec-fetch-mode: cors",
        ];
        for (path, status) in [("/api/echo", 200), ("/nope", 404)] {
            let reply = gateway.connect().get_with(path, &headers);
            assert_eq!(reply.status, status);
            assert_eq!(reply.header("access-control-allow-origin"), Some(origin));
            assert_eq!(reply.header("access-control-allow-credentials"), None);
            assert!(
                reply.header("vary").unwrap().contains("origin"),
                "{reply:?}"
            );
            let exposed = reply.header("access-control-expose-headers").unwrap();
            for name in ["tidegate-request-id", "tidegate-reason", "retry-after"] {
                assert!(exposed.contains(name), "{exposed}");
            }
        }
    }
    for origin in [
        "http://app.example.com",
        "https://app.example.com:444",
        "https://app.example.com.evil.example.com",
        "http://localhost:3001",
        "null",
    ] {
        let reply = gateway
            .connect()
            .get_with("/api/echo", &[&format!("origin: {origin}")]);
        reply.is_own(403, "cross_site");
    }
    // Without an origin it cannot be known which page it is.
    let reply = gateway
        .connect()
        .get_with("/api/echo", &["sec-fetch-site: cross-site"]);
    reply.is_own(403, "cross_site");
    // Caches must not give a program's response to a page.
    let reply = gateway.get("/api/echo");
    assert!(
        reply.header("vary").unwrap().contains("origin"),
        "{reply:?}"
    );
}

#[test]
fn replaces_what_the_upstream_says_about_origins() {
    let raw = crate::support::Raw::saying(
        b"HTTP/1.1 200 OK\r\naccess-control-allow-origin: *\r\naccess-control-allow-credentials: true\r\nvary: accept\r\naccess-control-expose-headers: x-total\r\ncontent-length: 0\r\n\r\n",
    );
    let gateway = gateway(&raw.url(), "\"https://app.example.com\"");
    let reply = gateway
        .connect()
        .get_with("/api/x", &["origin: https://app.example.com"]);
    let all = |name: &str| -> Vec<&str> {
        let headers = reply.headers.iter().filter(|(key, _)| key == name);
        headers.map(|(_, value)| value.as_str()).collect()
    };
    assert_eq!(
        all("access-control-allow-origin"),
        ["https://app.example.com"]
    );
    assert!(all("access-control-allow-credentials").is_empty());
    assert_eq!(all("vary"), ["accept", "origin"]);
    assert_eq!(all("access-control-expose-headers").len(), 2);
    // To a page that was not asked about nothing is added, and nothing taken away.
    let reply = gateway.get("/api/x");
    assert_eq!(reply.header("access-control-allow-origin"), Some("*"));
}

#[test]
fn answers_preflights_itself() {
    let mock = mock();
    let settings = "[client.one]\ntoken = \"env:first-token-of-all\"\n";
    let pools = pool(&[("a", &mock.url())]);
    let gateway = Fixture::new(&format!(
        "origins = [\"https://app.example.com\"]\n{OPEN}{pools}{settings}"
    ));
    let asked = [
        "access-control-request-method: PUT",
        "access-control-request-headers: authorization, tidegate-token",
        "access-control-request-private-network: true",
    ];
    let ask = |origin: &str| {
        let headers: Vec<&str> = asked.iter().copied().chain([origin]).collect();
        let mut client = gateway.connect();
        client.send(&request("OPTIONS", "/api/echo", &headers, ""));
        client.reply(false).unwrap()
    };
    let reply = ask("origin: https://app.example.com");
    assert_eq!((reply.status, reply.attempts()), (204, 0));
    reply.is_marked();
    for (name, value) in [
        ("access-control-allow-origin", "https://app.example.com"),
        ("access-control-allow-methods", "PUT"),
        (
            "access-control-allow-headers",
            "authorization, tidegate-token",
        ),
        ("access-control-allow-private-network", "true"),
        ("access-control-max-age", "600"),
    ] {
        assert_eq!(reply.header(name), Some(value), "{name}");
    }
    for origin in ["origin: https://evil.example.com", "origin: null"] {
        ask(origin).is_own(403, "cross_site");
    }
    assert_eq!(mock.stats().received, 0);
    // The request itself needs its token.
    let mut client = gateway.connect();
    let reply = client.get_with("/api/echo", &["origin: https://app.example.com"]);
    reply.is_own(401, "no_token");
    assert!(reply.header("access-control-allow-origin").is_some());
}
