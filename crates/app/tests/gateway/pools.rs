//! Which endpoint a request goes to, and what becomes of those that fail.

use std::time::{Duration, Instant};

use app::mock::Mock;

use crate::support::{Fixture, OPEN, Raw, mock, pause, pool, request, scripted, until};

/// The pool of these mocks, `a` and `b`, with further settings of the pool.
fn of_two(a: &Mock, b: &Mock, settings: &str) -> Fixture {
    let pool = pool(&[("a", &a.url()), ("b", &b.url())]);
    Fixture::new(&format!("{OPEN}{pool}{settings}"))
}

/// Where so many requests went, one after the other.
fn endpoints(gateway: &Fixture, count: usize) -> String {
    let mut client = gateway.connect();
    let replies = (0..count).map(|_| client.get("/api/x"));
    replies
        .map(|reply| reply.header("tidegate-endpoint").unwrap().to_owned())
        .collect()
}

#[test]
fn round_robin_takes_endpoints_in_turn() {
    let (a, b) = (mock(), mock());
    let gateway = of_two(&a, &b, "balance = \"round_robin\"\n");
    let went = endpoints(&gateway, 6);
    assert!(went == "ababab" || went == "bababa", "{went}");
}

#[test]
fn first_takes_the_first_usable_endpoint() {
    let (a, b) = (mock(), mock());
    let gateway = of_two(&a, &b, "balance = \"first\"\n");
    assert_eq!(endpoints(&gateway, 4), "aaaa");
}

#[test]
fn least_loaded_takes_the_endpoint_with_fewest_in_flight() {
    let (a, b) = (mock(), mock());
    let gateway = of_two(&a, &b, "balance = \"least_loaded\"\n");
    let mut busy: Vec<_> = (0..4).map(|_| gateway.connect()).collect();
    for (number, client) in busy.iter_mut().enumerate() {
        client.send(&request("GET", "/api/slow?first=1h", &[], ""));
        let sent = u64::try_from(number).unwrap() + 1;
        until("it is under way", || {
            a.stats().in_flight + b.stats().in_flight == sent
        });
    }
    assert_eq!((a.stats().in_flight, b.stats().in_flight), (2, 2));
}

#[test]
fn fails_over_to_another_endpoint_at_once() {
    let (a, b) = (scripted("503"), mock());
    let backoff = "backoff = \"long\"\n[backoff.long]\nbase = \"20s\"\nmax = \"30s\"\n\
                   max_attempts = 3\njitter = \"none\"\n";
    let gateway = of_two(&a, &b, &format!("balance = \"first\"\n{backoff}"));
    let since = Instant::now();
    let reply = gateway.get("/api/echo");
    assert_eq!((reply.status, reply.attempts()), (200, 2));
    assert_eq!(reply.header("tidegate-endpoint"), Some("b"));
    assert!(since.elapsed() < Duration::from_secs(15));
    // And gets no requests for a while.
    assert_eq!(endpoints(&gateway, 3), "bbb");
    assert_eq!(a.stats().received, 1);
    assert!(gateway.logged().contains("endpoint_paused"));
}

/// What is known of endpoint `a`.
fn a_is(gateway: &Fixture) -> tidegate::pool::EndpointView {
    let served = gateway.gateway.routes();
    served.route("api").unwrap().pool.view().remove(0)
}

const ALONE: &str = "[pool.api.protection]\nenabled = true\npauses = [\"1s\"]\ndisable_after = 2\n";

#[test]
fn consecutive_errors_pause_and_then_disable() {
    let mock = scripted("503*2,200");
    let gateway = Fixture::with(&mock.url(), ALONE);
    let mut client = gateway.connect();
    assert_eq!(client.post("/api/x", &[], "x").status, 503);
    let paused = a_is(&gateway);
    assert_eq!((paused.consecutive_errors, paused.disabled), (1, None));
    assert!(paused.paused_until.is_some());
    // Too long for a client that cannot wait, ...
    let reply = client.get_with("/api/x", &["tidegate-max-wait: 1ms"]);
    reply.is_own(503, "no_endpoint");
    assert_eq!(reply.header("retry-after"), Some("1"));
    // ... while others wait for its end, and find the second error.
    assert_eq!(client.post("/api/x", &[], "x").status, 503);
    assert!(a_is(&gateway).disabled.is_some());
    let reply = client.get("/api/x");
    reply.is_own(503, "no_endpoint");
    assert_eq!(reply.header("retry-after"), None);
    assert_eq!(mock.stats().received, 2);
    // A person enables it, and it works.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let enabled = gateway.state.switch_endpoint("api", "a", true);
    runtime.block_on(enabled).unwrap();
    assert_eq!(client.get("/api/x").status, 200);
}

#[test]
fn waits_for_the_earliest_endpoint_when_all_are_paused() {
    let (a, b) = (scripted("503,200"), scripted("503,200"));
    let pauses = "balance = \"first\"\n[pool.api.protection]\npauses = [\"1s\"]\n";
    let gateway = of_two(&a, &b, pauses);
    let since = Instant::now();
    let reply = gateway.get("/api/x");
    assert_eq!((reply.status, reply.attempts()), (200, 3));
    assert_eq!(reply.header("tidegate-endpoint"), Some("a"));
    assert!(since.elapsed() >= Duration::from_millis(900));
    let waited: u64 = reply.header("tidegate-wait-ms").unwrap().parse().unwrap();
    assert!(waited >= 800, "{waited}");
}

#[test]
fn sends_waiting_requests_when_a_person_ends_the_pause() {
    let mock = scripted("503,200");
    let pauses = "[pool.api.protection]\nenabled = true\npauses = [\"25s\"]\n";
    let gateway = Fixture::with(&mock.url(), pauses);
    assert_eq!(gateway.connect().post("/api/x", &[], "x").status, 503);
    let mut client = gateway.connect();
    client.send(&request("GET", "/api/x", &[], ""));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    pause(100);
    let enabled = gateway.state.switch_endpoint("api", "a", true);
    runtime.block_on(enabled).unwrap();
    assert_eq!(client.reply(false).unwrap().status, 200);
}

#[test]
fn exhausted_quota_disables_the_endpoint_with_its_reason() {
    let raw = Raw::saying(
        b"HTTP/1.1 429 X\r\ncontent-type: application/json\r\ncontent-length: 39\r\n\r\n\
          {\"error\":{\"code\":\"insufficient_quota\"}}",
    );
    let gateway = Fixture::with(&raw.url(), ALONE);
    assert_eq!(gateway.get("/api/x").status, 429);
    let view = a_is(&gateway);
    assert!(view.disabled.is_some(), "{view:?}");
    gateway.get("/api/x").is_own(503, "no_endpoint");
    assert_eq!(raw.connections(), 1);
    assert!(gateway.logged().contains("endpoint_disabled"));
}

#[test]
fn uses_other_endpoints_while_one_is_held() {
    let (a, b) = (scripted("429:60"), mock());
    let gateway = of_two(&a, &b, "balance = \"first\"\n");
    assert_eq!(endpoints(&gateway, 5), "bbbbb");
    assert_eq!(a.stats().received, 1);
}

#[test]
fn refuses_with_no_endpoint_when_a_pool_is_empty() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime
        .block_on(gateway.state.remove_endpoint("api", "a"))
        .unwrap();
    gateway.get("/api/x").is_own(503, "no_endpoint");
}

/// Three endpoints of one server, which differ by their key.
fn of_three_keys(server: &Raw, settings: &str) -> Fixture {
    let url = server.url();
    let endpoints: Vec<String> = ["a", "b", "c"]
        .map(|name| {
            let key = format!("headers = {{ x-api-key = \"env:{name}\" }}");
            format!("{{ name = \"{name}\", url = \"{url}\", {key} }}")
        })
        .into();
    let endpoints = endpoints.join(", ");
    Fixture::new(&format!(
        "{OPEN}[pool.api]\nbalance = \"round_robin\"\nendpoints = [{endpoints}]\n{settings}"
    ))
}

/// A server that responds to requests with one of the `bad` keys like this, and with 200 to others.
fn rejecting(bad: &'static [&'static str], status: u16, body: &'static str) -> Raw {
    Raw::start(move |_, mut client| {
        while let Some(request) = client.request() {
            let is_bad = bad
                .iter()
                .any(|name| request.contains(&format!("value-of-{name}")));
            let (status, body) = if is_bad {
                (status, body)
            } else {
                (200, "fine")
            };
            let length = body.len();
            client.send(&format!(
                "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n{body}"
            ));
        }
    })
}

#[test]
fn one_bad_key_of_three_fails_no_request() {
    for (status, body) in [
        (401, ""),
        (402, ""),
        (
            403,
            r#"{"error":{"message":"Invalid API key provided: sk-123"}}"#,
        ),
    ] {
        let server = rejecting(&["a"], status, body);
        let gateway = of_three_keys(&server, "");
        let mut client = gateway.connect();
        for _ in 0..10 {
            assert_eq!(client.post("/api/x", &[], "x").status, 200, "{status}");
        }
        let view = a_is(&gateway);
        assert_eq!(view.consecutive_errors, 1, "{status}");
        let error = format!("credential rejected: HTTP {status}");
        assert_eq!(view.last_error.as_deref(), Some(&*error));
    }
}

#[test]
fn client_gets_the_rejection_when_no_key_is_left() {
    let server = rejecting(&["a", "b", "c"], 401, "who are you");
    let gateway = of_three_keys(&server, "");
    let reply = gateway.connect().post("/api/x", &[], "x");
    assert_eq!((reply.status, reply.attempts()), (401, 3));
    assert_eq!(reply.body, b"who are you");
}

#[test]
fn rejected_key_is_disabled_with_that_reason() {
    let server = rejecting(&["a"], 401, "");
    let protection = "[pool.api.protection]\ndisable_after = 1\n";
    let gateway = of_three_keys(&server, protection);
    assert_eq!(gateway.connect().post("/api/x", &[], "x").status, 200);
    let disabled = Some(policy::ladder::Disabled::CredentialRejected);
    assert_eq!(a_is(&gateway).disabled, disabled);
    assert!(gateway.logged().contains("its credential is rejected"));
}

#[test]
fn forbidden_request_is_passed_on_from_the_first_endpoint() {
    let server = rejecting(&["a", "b", "c"], 403, "not your file");
    let gateway = of_three_keys(&server, "");
    let reply = gateway.connect().post("/api/x", &[], "x");
    assert_eq!((reply.status, reply.attempts()), (403, 1));
    assert_eq!(a_is(&gateway).consecutive_errors, 0);
}
