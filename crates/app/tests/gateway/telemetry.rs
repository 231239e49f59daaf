//! Traces and metrics, as a collector gets them: decoded with the published types.

use std::sync::{Arc, Mutex};

use app::telemetry::Telemetry;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message;

use crate::collector::{Collector, number, stop, text};
use crate::support::{Fixture, Raw, closed_port, mock, until};

/// A gateway in front of `upstream` that exports to `collector`.
fn exporting(upstream: &str, collector: &str, settings: &str) -> (Fixture, Telemetry) {
    let telemetry = format!("[telemetry]\notlp = \"{collector}\"\n{settings}");
    let gateway = Fixture::with(upstream, &telemetry);
    let configuration = gateway.state.configuration();
    let telemetry = Telemetry::start(gateway.state.core(), configuration.settings());
    (gateway, telemetry.unwrap().unwrap())
}

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

#[test]
fn request_and_attempts_are_spans_of_the_clients_trace() {
    let heads: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&heads);
    let upstream = Raw::start(move |number, mut client| {
        let Some(head) = client.request() else { return };
        seen.lock().unwrap().push(head);
        let status = if number == 0 { 503 } else { 200 };
        client.send(&format!(
            "HTTP/1.1 {status} X\r\ncontent-length: 2\r\n\r\nok"
        ));
    });
    let collector = Collector::start();
    let (gateway, telemetry) = exporting(&upstream.url(), &collector.url, "");
    let parent = format!("traceparent: 00-{TRACE}-b7ad6b7169203331-01");
    let secret = "authorization: Bearer mark-of-caller";
    let reply = gateway
        .connect()
        .get_with("/api/x?key=mark-of-query", &[&parent, secret]);
    assert_eq!((reply.status, reply.attempts()), (200, 2));
    stop(telemetry);

    let spans = collector.spans();
    assert_eq!(spans.len(), 3, "{spans:#?}");
    let trace = TRACE.as_bytes().chunks(2);
    let trace: Vec<u8> = trace
        .map(|digits| u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap())
        .collect();
    assert!(spans.iter().all(|span| span.trace_id == trace));
    let [request, first, second] = &*spans else {
        panic!("{spans:#?}")
    };
    assert_eq!(request.name, "GET api");
    assert_eq!(request.kind(), SpanKind::Server);
    assert_eq!(
        request.parent_span_id,
        0xb7ad_6b71_6920_3331_u64.to_be_bytes()
    );
    let attributes = &request.attributes;
    assert_eq!(text(attributes, "http.request.method"), "GET");
    assert_eq!(text(attributes, "url.path"), "/api/x");
    assert_eq!(text(attributes, "tidegate.route"), "api");
    assert_eq!(text(attributes, "tidegate.endpoint"), "a");
    assert_eq!(text(attributes, "tidegate.outcome"), "success");
    let id = reply.header("tidegate-request-id").unwrap();
    assert_eq!(text(attributes, "tidegate.request_id"), id);
    assert_eq!(number(attributes, "http.response.status_code"), 200);
    assert_eq!(number(attributes, "http.response.body.size"), 2);
    assert_eq!(number(attributes, "tidegate.attempts"), 2);
    assert!(request.status.is_none());

    for (span, status, resent) in [(first, 503, 0), (second, 200, 1)] {
        assert_eq!(span.name, "GET api/a");
        assert_eq!(span.kind(), SpanKind::Client);
        assert_eq!(span.parent_span_id, request.span_id);
        assert_eq!(
            number(&span.attributes, "http.response.status_code"),
            status
        );
        assert_eq!(
            number(&span.attributes, "http.request.resend_count"),
            resent
        );
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano);
        assert!(request.start_time_unix_nano <= span.start_time_unix_nano);
        assert!(span.end_time_unix_nano <= request.end_time_unix_nano);
    }
    assert_eq!(text(&first.attributes, "tidegate.verdict"), "overloaded");
    assert_eq!(text(&first.attributes, "error.type"), "503");
    let events: Vec<&str> = request.events.iter().map(|event| &*event.name).collect();
    assert_eq!(events, ["admitted", "retry_scheduled", "admitted"]);
    let retry = &request.events[1].attributes;
    assert_eq!(text(retry, "tidegate.reason"), "overloaded");
    assert_eq!(number(retry, "tidegate.delay_ms"), 20);

    // Each attempt was sent with its own span.
    for (head, span) in heads.lock().unwrap().iter().zip([first, second]) {
        let id: String = span
            .span_id
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let expected = format!("traceparent: 00-{TRACE}-{id}-01\r\n");
        assert!(head.contains(&expected), "{head}");
    }
    for body in collector.bodies("/v1/traces") {
        let shown = String::from_utf8_lossy(&body);
        assert!(!shown.contains("mark-of-"), "{shown}");
    }
}

#[test]
fn attempts_of_forward_mode_are_sent_with_their_span() {
    let heads: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&heads);
    let upstream = Raw::start(move |_, mut client| {
        let Some(head) = client.request() else { return };
        seen.lock().unwrap().push(head);
        client.send("HTTP/1.1 200 X\r\ncontent-length: 2\r\n\r\nok");
    });
    let collector = Collector::start();
    let forward = "[network]\nallow = [\"127.0.0.0/8\"]\n[forward]\nallow = [\"127.0.0.1\"]\n";
    let (gateway, telemetry) = exporting(&upstream.url(), &collector.url, forward);
    let reply = gateway.get(&format!("{}/x", upstream.url()));
    assert_eq!(reply.status, 200, "{reply:?}");
    stop(telemetry);
    let spans = collector.spans();
    let mut attempts = spans.iter().filter(|span| span.kind() == SpanKind::Client);
    let attempt = attempts.next().unwrap();
    let hex = |id: &[u8]| -> String { id.iter().map(|byte| format!("{byte:02x}")).collect() };
    let (trace, span) = (hex(&attempt.trace_id), hex(&attempt.span_id));
    let head = heads.lock().unwrap()[0].clone();
    let expected = format!("traceparent: 00-{trace}-{span}-01\r\n");
    assert!(head.contains(&expected), "{head}");
}

#[test]
fn waits_are_events_with_their_reason() {
    let upstream = mock();
    let collector = Collector::start();
    let slow = "[gate.\"127.0.0.1\"]\nstrategy = \"fixed\"\ninitial_rate = 10\n";
    let (gateway, telemetry) = exporting(&upstream.url(), &collector.url, slow);
    for _ in 0..4 {
        assert_eq!(gateway.get("/api/echo").status, 200);
    }
    stop(telemetry);
    let spans = collector.spans();
    let events = spans.iter().flat_map(|span| &span.events);
    let waits: Vec<_> = events.filter(|event| event.name == "waiting").collect();
    assert!(!waits.is_empty(), "{spans:#?}");
    for wait in waits {
        assert_eq!(text(&wait.attributes, "tidegate.reason"), "rate");
        // A request waits for whichever endpoint of its pool is ready first.
        assert_eq!(text(&wait.attributes, "tidegate.key"), "api");
    }
    // Without a `traceparent`, the trace is the request's own.
    let requests = spans.iter().filter(|span| span.kind() == SpanKind::Server);
    assert!(
        requests
            .into_iter()
            .all(|span| span.parent_span_id.is_empty())
    );
}

#[test]
fn refusals_are_errors_and_what_is_not_sampled_is_not_exported() {
    let dead = format!("http://{}", closed_port());
    let collector = Collector::start();
    let (gateway, telemetry) = exporting(&dead, &collector.url, "sample = 0.0\n");
    let with = |flags: &str| {
        let parent = format!("traceparent: 00-{TRACE}-b7ad6b7169203331-{flags}");
        gateway.connect().get_with("/api/x", &[&parent])
    };
    with("00").is_own(502, "unreachable");
    gateway.get("/api/x").is_own(502, "unreachable");
    with("01").is_own(502, "unreachable");
    stop(telemetry);
    let spans = collector.spans();
    let servers: Vec<&Span> = spans
        .iter()
        .filter(|span| span.kind() == SpanKind::Server)
        .collect();
    assert_eq!(servers.len(), 1, "{spans:#?}");
    assert_eq!(text(&servers[0].attributes, "error.type"), "unreachable");
    let attempts = spans.iter().filter(|span| span.kind() == SpanKind::Client);
    for attempt in attempts {
        assert_eq!(text(&attempt.attributes, "error.type"), "connect failed");
    }
}

#[test]
fn all_metrics_of_a_scrape_are_exported() {
    let upstream = mock();
    let collector = Collector::start();
    let (gateway, telemetry) = exporting(&upstream.url(), &collector.url, "");
    assert_eq!(gateway.get("/api/echo").status, 200);
    let scrape = gateway.state.core().metrics().render();
    stop(telemetry);
    let body = collector.bodies("/v1/metrics").pop().unwrap();
    let export = ExportMetricsServiceRequest::decode(&*body).unwrap();
    let metrics = &export.resource_metrics[0].scope_metrics[0].metrics;
    let names: Vec<&str> = metrics.iter().map(|metric| &*metric.name).collect();
    let scraped = scrape
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "));
    let scraped: Vec<&str> = scraped
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    assert!(scraped.len() > 15, "{scrape}");
    for name in scraped {
        assert!(names.contains(&name), "{name} is not in {names:?}");
    }
    let data = |name: &str| {
        let found = metrics.iter().find(|metric| metric.name == name);
        found.unwrap().data.clone().unwrap()
    };
    let Data::Sum(requests) = data("tidegate_requests_total") else {
        panic!("{names:?}")
    };
    assert!(requests.is_monotonic && requests.aggregation_temporality == 2);
    let point = requests.data_points.iter().find(|point| {
        text(&point.attributes, "route") == "api" && text(&point.attributes, "outcome") == "success"
    });
    let point = point.unwrap();
    assert!(point.start_time_unix_nano > 0 && point.start_time_unix_nano < point.time_unix_nano);
    let Data::Histogram(latency) = data("tidegate_gate_latency_seconds") else {
        panic!("{names:?}")
    };
    let of_key = |key: &str| {
        let mut points = latency.data_points.iter();
        points
            .find(|point| text(&point.attributes, "key") == key)
            .unwrap()
            .clone()
    };
    let point = of_key("api/a");
    assert_eq!(
        (point.count, point.bucket_counts.iter().sum::<u64>()),
        (1, 1)
    );
    assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
    assert!(matches!(data("tidegate_gates"), Data::Gauge(_)));
}

#[test]
fn a_dead_collector_is_reported_once_and_delays_no_request() {
    let upstream = mock();
    let dead = format!("http://{}", closed_port());
    let quick = "metrics_interval = \"50ms\"\n";
    let (gateway, telemetry) = exporting(&upstream.url(), &dead, quick);
    let counted = |name: &str| {
        let text = gateway.state.core().metrics().render();
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map_or(0, |count| count.trim().parse().unwrap())
    };
    until("two exports have failed", || {
        assert_eq!(gateway.get("/api/echo").status, 200);
        counted("tidegate_otlp_failures_total{signal=\"metrics\"} ") >= 2
    });
    stop(telemetry);
    let log = gateway.logged();
    let reported = log.lines().filter(|line| line.contains("otlp_failed"));
    let reported = reported.filter(|line| line.contains("\"signal\":\"metrics\""));
    assert_eq!(reported.count(), 1, "{log}");
}

#[test]
fn exports_carry_the_token_that_a_collector_asks_for() {
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&heads);
    let collector = Raw::start(move |_, mut client| {
        if let Some(head) = client.request_head() {
            let is_known = head.contains("authorization: Bearer value-of-OTLP_TOKEN\r\n");
            seen.lock().unwrap().push(head.to_ascii_lowercase());
            let status = if is_known { 200 } else { 401 };
            client.send(&format!(
                "HTTP/1.1 {status} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            ));
        }
    });
    let mock = mock();
    let headers =
        "headers = { authorization = \"Bearer env:OTLP_TOKEN\", x-scope-orgid = \"7\" }\n";
    let (gateway, telemetry) = exporting(&mock.url(), &collector.url(), headers);
    assert_eq!(gateway.get("/api/echo").status, 200);
    stop(telemetry);
    let heads = std::mem::take(&mut *heads.lock().unwrap());
    for path in ["post /v1/traces ", "post /v1/metrics "] {
        let head = heads.iter().find(|head| head.starts_with(path)).unwrap();
        assert!(head.contains("x-scope-orgid: 7\r\n"), "{head}");
        assert!(
            head.contains("content-type: application/x-protobuf\r\n"),
            "{head}"
        );
    }
    let logged = gateway.logged();
    assert!(!logged.contains("otlp_failed"), "{logged}");
    assert!(!logged.contains("value-of"), "{logged}");
    // Without them it is not accepted, which is said.
    let (gateway, telemetry) = exporting(&mock.url(), &collector.url(), "");
    assert_eq!(gateway.get("/api/echo").status, 200);
    stop(telemetry);
    assert!(gateway.logged().contains("otlp_failed"));
}
