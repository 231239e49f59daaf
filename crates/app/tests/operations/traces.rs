//! Spans of operations and of their attempts, as a collector gets them.

use std::time::Duration;

use app::state::OperationRequest;
use app::telemetry::Telemetry;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;

use super::collector::{Collector, number, stop, text};
use super::support::{QUICK, Running, Upstream, post};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

fn exporting(collector: &Collector, settings: &str) -> (Running, Telemetry) {
    let running = Running::new(&format!(
        "{QUICK}[telemetry]\notlp = \"{}\"\n{settings}",
        collector.url
    ));
    let configuration = running.state.configuration();
    let telemetry = Telemetry::start(running.state.core(), configuration.settings());
    (running, telemetry.unwrap().unwrap())
}

/// Its spans, after everything has stopped: attempts, then operations.
fn spans(mut running: Running, telemetry: Telemetry, collector: &Collector) -> Vec<Span> {
    // An operation is recorded when its end is stored, which may be seen before.
    running.stop(Duration::from_secs(5));
    stop(telemetry);
    collector.spans()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn operation_and_attempts_are_spans_of_the_callers_trace() {
    let upstream = Upstream::statuses(&[503, 200]);
    let collector = Collector::start();
    let (running, telemetry) = exporting(&collector, "sample = 0.0\n");
    let accepted = running.accept(OperationRequest {
        headers: vec![(
            "traceparent".to_owned(),
            format!("00-{TRACE}-b7ad6b7169203331-01"),
        )],
        ..post(&upstream.url("/v1/users?key=mark-of-query"))
    });
    let id = accepted.unwrap().operation.id;
    let operation = running.until(&id, "completed");
    let received = upstream.received();
    let spans = spans(running, telemetry, &collector);

    assert_eq!(spans.len(), 3, "{spans:#?}");
    assert!(spans.iter().all(|span| hex(&span.trace_id) == TRACE));
    let [first, second, whole] = &*spans else {
        panic!("{spans:#?}")
    };
    assert_eq!(whole.kind(), SpanKind::Consumer);
    assert_eq!(whole.name, "operation default");
    assert_eq!(hex(&whole.parent_span_id), "b7ad6b7169203331");
    assert_eq!(text(&whole.attributes, "tidegate.operation_id"), id);
    assert_eq!(text(&whole.attributes, "tidegate.outcome"), "completed");
    assert_eq!(number(&whole.attributes, "tidegate.attempts"), 2);
    assert!(whole.status.is_none());
    let accepted_at = operation.accepted_at.as_unix_millis().unsigned_abs();
    assert_eq!(whole.start_time_unix_nano, accepted_at * 1_000_000);

    for (span, status, resent) in [(first, 503, 0), (second, 200, 1)] {
        assert_eq!(span.kind(), SpanKind::Client);
        assert_eq!(span.name, format!("POST {}", operation.destination));
        assert_eq!(span.parent_span_id, whole.span_id);
        assert_eq!(
            number(&span.attributes, "http.response.status_code"),
            status
        );
        assert_eq!(
            number(&span.attributes, "http.request.resend_count"),
            resent
        );
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano);
        assert!(span.end_time_unix_nano <= whole.end_time_unix_nano);
    }
    let events = |span: &Span| -> Vec<String> {
        span.events.iter().map(|event| event.name.clone()).collect()
    };
    assert_eq!(events(first), ["admitted", "retry_scheduled"]);
    assert_eq!(events(second), ["admitted"]);
    let retry = &first.events[1].attributes;
    assert_eq!(text(retry, "tidegate.reason"), "overloaded");
    // The base of 20 ms, with up to half of it added by jitter.
    assert!(number(retry, "tidegate.delay_ms") <= 30);
    number(&second.events[0].attributes, "tidegate.wait_ms");

    // Each attempt was sent with its own span.
    for (request, span) in received.iter().zip([first, second]) {
        let expected = format!("00-{TRACE}-{}-01", hex(&span.span_id));
        assert_eq!(request.header("traceparent"), Some(expected));
    }
    for body in collector.bodies("/v1/traces") {
        let shown = String::from_utf8_lossy(&body);
        assert!(!shown.contains("mark-of-"), "{shown}");
    }
}

#[test]
fn failed_operations_are_errors_with_their_reason() {
    let upstream = Upstream::statuses(&[400]);
    let collector = Collector::start();
    let (running, telemetry) = exporting(&collector, "");
    let id = running.post(&upstream.url("/"));
    let operation = running.until(&id, "failed");
    let spans = spans(running, telemetry, &collector);
    let whole = spans.iter().find(|span| span.kind() == SpanKind::Consumer);
    let whole = whole.unwrap();
    assert_eq!(text(&whole.attributes, "error.type"), "rejected");
    assert_eq!(text(&whole.attributes, "tidegate.outcome"), "failed");
    assert!(whole.parent_span_id.is_empty());
    assert_eq!(Some(hex(&whole.trace_id)), operation.trace_id);
}

#[test]
fn what_is_not_sampled_is_not_exported() {
    let upstream = Upstream::statuses(&[200]);
    let collector = Collector::start();
    let (running, telemetry) = exporting(&collector, "sample = 0.0\n");
    let id = running.post(&upstream.url("/"));
    running.until(&id, "completed");
    let received = upstream.received();
    assert_eq!(spans(running, telemetry, &collector), []);
    let sent = received[0].header("traceparent").unwrap();
    assert!(sent.ends_with("-00"), "{sent}");
}
