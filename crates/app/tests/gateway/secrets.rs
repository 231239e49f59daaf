//! Nothing that callers or endpoints keep to themselves shows up anywhere.

use crate::support::{Fixture, Raw, closed_port, request};

/// What must not show up.
const MARKS: [&str; 6] = [
    "value-of-mark-of-endpoint",
    "mark-of-caller",
    "value-of-mark-of-token",
    "mark-of-query",
    "mark-of-body",
    "mark-of-cookie",
];

/// What the upstream writes about an error, in its own words.
const FREE_TEXT: &str = "Ann owes 12 EUR";

fn shows_nothing(what: &str, text: &str) {
    for mark in MARKS {
        assert!(!text.contains(mark), "{mark} in {what}: {text}");
    }
}

/// An upstream that fails in many ways, and repeats in its errors what it was sent.
fn telling() -> Raw {
    Raw::start(|number, mut client| {
        let Some(text) = client.request() else { return };
        let line = text.lines().next().unwrap_or_default();
        let secret = text.lines().find(|line| line.starts_with("authorization"));
        let said = secret.unwrap_or_default();
        let body = match number % 3 {
            0 => format!("{{\"error\":{{\"message\":\"bad {said}\"}}}}"),
            1 => format!("refused {}: {line}", said.replace("authorization: ", "«")),
            _ => String::new(),
        };
        let status = [503, 429, 500][number % 3];
        let length = body.len();
        client.send(&format!(
            "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n{body}"
        ));
    })
}

#[test]
fn shows_no_secret_in_logs_problems_metrics_or_trails() {
    let (telling, dead) = (telling(), format!("http://{}", closed_port()));
    let endpoint = |name: &str, url: &str| {
        format!(
            "{{ name = \"{name}\", url = \"{url}/v1\", headers = {{ authorization = \"env:mark-of-endpoint\" }} }}"
        )
    };
    let settings = format!(
        "[gate]\nstrategy = \"fixed\"\ninitial_rate = 50\nconsecutive_failures = 4\n\
         [http]\nmax_body = \"1KiB\"\nidle_timeout = \"500ms\"\n\
         [client.one]\ntoken = \"env:mark-of-token\"\n\
         [pool.api]\nretry_unsafe = true\nendpoints = [{}, {}]\n\
         [pool.api.protection]\npauses = [\"1s\"]\ndisable_after = 2\n\
         [pool.dead]\nendpoints = [{}]\n",
        endpoint("a", &telling.url()),
        endpoint("b", &telling.url()),
        endpoint("c", &dead),
    );
    let gateway = Fixture::new(&settings);
    let token = "tidegate-token: value-of-mark-of-token";
    let own = [
        "x-api-key: mark-of-caller",
        "cookie: session=mark-of-cookie",
        "tidegate-max-wait: 300ms",
        token,
    ];
    let mut reasons = Vec::new();
    let mut ask = |method: &str, path: &str, headers: &[&str], body: &str| {
        let mut client = gateway.connect();
        client.send(&request(
            method,
            &format!("{path}?key=mark-of-query"),
            headers,
            body,
        ));
        let Ok(reply) = client.reply(false) else {
            return;
        };
        if let Some(reason) = reply.reason() {
            shows_nothing("a problem", &format!("{reply:?}{}", reply.text()));
            reasons.push(reason.to_owned());
        }
    };
    for _ in 0..8 {
        ask("POST", "/api/x", &own, "mark-of-body");
        ask("GET", "/dead/x", &own, "");
    }
    ask("GET", "/nope/x", &own, "");
    ask("GET", "/api/../x", &own, "");
    ask(
        "GET",
        "/api/x",
        &["tidegate-token: value-of-mark-of-token2"],
        "",
    );
    ask(
        "GET",
        "/api/x",
        &[token, "tidegate-max-wait: mark-of-caller"],
        "",
    );
    ask("GET", "http://mark-of-caller.example.com/x", &own, "");
    ask("POST", "/api/x", &own, &"mark-of-body".repeat(100));
    ask("POST", "/dead/x", &[token, "content-length: 900"], "");
    for reason in [
        "no_endpoint",
        "unreachable",
        "no_route",
        "no_token",
        "bad_wait",
        "body_too_large",
    ] {
        assert!(
            reasons.iter().any(|found| found == reason),
            "{reason}: {reasons:?}"
        );
    }
    shows_nothing("the log", &gateway.logged());
    shows_nothing("the metrics", &gateway.state.core().metrics().render());
    let served = gateway.gateway.routes();
    shows_nothing("what is served", &format!("{served:?}"));
    let trails = format!("{:?}", gateway.gateway.trails());
    shows_nothing("the trails", &trails);
}

/// The last errors of the endpoints after one request each, whose response is made from `body`.
fn last_error(status: u16, body: &'static str) -> String {
    let raw = Raw::start(move |_, mut client| {
        client.request();
        let length = body.len();
        client.send(&format!(
            "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n{body}"
        ));
    });
    let gateway = Fixture::with(
        &raw.url(),
        "[pool.api.protection]\nenabled = true\ntexts = [\"out of paper\", \"rate limit\"]\n",
    );
    gateway
        .connect()
        .post("/api/x", &["tidegate-max-wait: 10ms"], "hello");
    let log = gateway.logged();
    assert!(!log.contains("Ann"), "{log}");
    let routes = gateway.gateway.routes();
    let view = routes.route("api").unwrap().pool.view();
    view[0].last_error.clone().unwrap()
}

#[test]
fn last_error_has_status_code_and_matched_phrase_but_no_free_text() {
    for (status, body, expected) in [
        (503, FREE_TEXT, "HTTP 503"),
        (
            500,
            r#"{"error":{"message":"Ann owes 12 EUR"}}"#,
            "HTTP 500",
        ),
        (
            429,
            r#"{"error":{"code":"rate_limit_exceeded","message":"Ann owes 12 EUR"}}"#,
            "HTTP 429 rate_limit_exceeded",
        ),
        (
            400,
            r#"{"message":"Ann is Out Of Paper, call 555"}"#,
            "HTTP 400: out of paper",
        ),
        (
            400,
            "Ann\u{1b}[2J: too many requests",
            "HTTP 400: too many requests",
        ),
    ] {
        assert_eq!(last_error(status, body), expected, "{body}");
    }
}
