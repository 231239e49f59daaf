//! `Tidegate-Cost`: what a request costs, and what its response says that it really cost.

use crate::support::{Fixture, Raw, pool, until};

const DOCUMENT: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\
    content-length: 54\r\nconnection: close\r\n\r\n\
    {\"choices\":[],\"usage\":{\"total_tokens\":700, \"other\":1}}";

const STREAM: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n\
    data: {\"choices\":[{\"delta\":{\"content\":\"\\\"usage\\\":{\\\"total_tokens\\\":9}\"}}],\"usage\":null}\n\n\
    data: {\"choices\":[],\"usage\":{\"total_tokens\":700}}\n\ndata: [DONE]\n\n";

const COMPRESSED: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-encoding: x-none\r\nconnection: close\r\n\r\n\
    {\"usage\":{\"total_tokens\":700}}";

fn adaptive(upstream: &Raw) -> Fixture {
    Fixture::new(&pool(&[("a", &upstream.url())]))
}

/// The mean cost at the only gate; `None` if costs are not counted.
fn mean_cost(gateway: &Fixture) -> Option<f64> {
    let limiter = gateway.state.limiter();
    let gate = limiter.gate("api/a").expect("a request was sent");
    gate.gate.cost.map(|cost| cost.mean)
}

/// The mean cost after one request with these headers.
fn mean_after(answer: &'static [u8], headers: &[&str]) -> Option<f64> {
    let upstream = Raw::saying(answer);
    let gateway = adaptive(&upstream);
    let mut client = gateway.connect();
    let reply = client.post("/api/x", headers, "{}");
    assert_eq!(reply.status, 200);
    let body = answer
        .windows(4)
        .position(|end| end == b"\r\n\r\n")
        .unwrap()
        + 4;
    assert_eq!(reply.body, &answer[body..], "it passes unchanged");
    until("the body has ended", || {
        let gate = gateway.state.limiter().gate("api/a").unwrap();
        gate.gate.in_flight == 0
    });
    mean_cost(&gateway)
}

#[test]
fn usage_of_the_response_corrects_the_cost() {
    for answer in [DOCUMENT, STREAM] {
        assert_eq!(mean_after(answer, &["tidegate-cost: 200"]), Some(700.0));
    }
    let compressed = mean_after(COMPRESSED, &["tidegate-cost: 200"]);
    assert_eq!(compressed, Some(200.0), "not read");
    assert_eq!(mean_after(DOCUMENT, &[]), None, "costs are not counted");
}

#[test]
fn cost_is_not_forwarded() {
    let upstream = Raw::start(|_, mut client| {
        let request = client.request().unwrap().to_ascii_lowercase();
        let status = if request.contains("tidegate-cost") {
            500
        } else {
            204
        };
        client.send(&format!("HTTP/1.1 {status} X\r\nconnection: close\r\n\r\n"));
    });
    let gateway = adaptive(&upstream);
    let reply = gateway.connect().get_with("/api/x", &["tidegate-cost: 5"]);
    assert_eq!(reply.status, 204);
    assert_eq!(mean_cost(&gateway), Some(5.0));
}

#[test]
fn unreadable_cost_is_refused_by_name() {
    let upstream = Raw::saying(DOCUMENT);
    let gateway = adaptive(&upstream);
    let mut client = gateway.connect();
    for bad in ["0", "-1", "1.5", "many", "4294967296"] {
        let reply = client.get_with("/api/x", &[&format!("tidegate-cost: {bad}")]);
        reply.is_own(400, "bad_request");
        let body = String::from_utf8_lossy(&reply.body).into_owned();
        assert!(body.contains("Tidegate-Cost"), "{body}");
    }
    assert_eq!(upstream.connections(), 0);
}
