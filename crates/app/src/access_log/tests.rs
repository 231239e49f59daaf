//! Lines, and what happens when they cannot be written.

use std::sync::atomic::{AtomicBool, Ordering};

use http::Method;
use policy::time::Timestamp;
use proptest::prelude::*;
use tidegate::ManualClock;
use tidegate::call::Trail;

use super::*;
use crate::log::{Format, Level};
use crate::metrics::RequestOutcome;

/// A request to a pool that succeeded with its second attempt.
fn request(path: &str) -> FinishedRequest {
    FinishedRequest {
        started: Timestamp::from_secs(100),
        ended: Timestamp::from_secs(101),
        client: Some("app1".into()),
        method: Some(Method::GET),
        version: Version::HTTP_11,
        path: path.into(),
        route: "llm".into(),
        endpoint: Some("a".into()),
        status: 200,
        bytes: 512,
        is_truncated: false,
        attempts: 2,
        wait: Duration::from_micros(40_500),
        outcome: RequestOutcome::Success,
        request_id: "0123456789abcdef01234567".to_owned(),
        trace_id: 0xabc,
        trace: None,
        trail: Trail::default(),
    }
}

fn refused() -> FinishedRequest {
    FinishedRequest {
        client: None,
        method: None,
        endpoint: None,
        status: 429,
        outcome: RequestOutcome::WaitTooLong,
        ..request("-")
    }
}

/// 2026-11-15T06:00:00.123Z
const AT: WallTime = WallTime::from_unix_millis(1_794_722_400_123);

#[test]
fn json_lines_have_every_field() {
    insta::assert_snapshot!(
        json_line(&request("/llm/v1/models?q=…"), AT) + &json_line(&refused(), AT),
        @r#"
    {"time":"2026-11-15T06:00:00.123Z","client":"app1","method":"GET","route":"llm","endpoint":"a","path":"/llm/v1/models?q=…","status":200,"bytes":512,"attempts":2,"refused":0,"wait_ms":41,"latency_ms":null,"duration_ms":1000,"reason":null,"request_id":"0123456789abcdef01234567","trace_id":"00000000000000000000000000000abc"}
    {"time":"2026-11-15T06:00:00.123Z","client":null,"method":null,"route":"llm","endpoint":null,"path":"-","status":429,"bytes":512,"attempts":2,"refused":0,"wait_ms":41,"latency_ms":null,"duration_ms":1000,"reason":"wait_too_long","request_id":"0123456789abcdef01234567","trace_id":"00000000000000000000000000000abc"}
    "#
    );
}

#[test]
fn combined_lines_are_those_of_other_servers_with_our_fields_behind() {
    insta::assert_snapshot!(
        combined_line(&request("/llm/v1/a \"b\\"), AT) + &combined_line(&refused(), AT),
        @r#"
    - - app1 [15/Nov/2026:06:00:00 +0000] "GET /llm/v1/a\x20\x22b\x5C HTTP/1.1" 200 512 "-" "-" route=llm endpoint=a attempts=2 refused=0 wait_ms=41 latency_ms=- duration_ms=1000 reason=- request_id=0123456789abcdef01234567 trace_id=00000000000000000000000000000abc
    - - - [15/Nov/2026:06:00:00 +0000] "- - HTTP/1.1" 429 512 "-" "-" route=llm endpoint=- attempts=2 refused=0 wait_ms=41 latency_ms=- duration_ms=1000 reason=wait_too_long request_id=0123456789abcdef01234567 trace_id=00000000000000000000000000000abc
    "#
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_path_can_end_a_line_or_a_field(path in any::<String>()) {
        let shown = crate::redact::Url::new(&path).to_string();
        for line in [json_line(&request(&shown), AT), combined_line(&request(&shown), AT)] {
            prop_assert!(line.ends_with('\n'));
            prop_assert_eq!(line.matches('\n').count(), 1);
        }
        let combined = combined_line(&request(&shown), AT);
        prop_assert_eq!(combined.matches('"').count(), 6);
        let object: Value = serde_json::from_str(&json_line(&request(&shown), AT)).unwrap();
        prop_assert_eq!(object["path"].as_str(), Some(shown.as_str()));
    }
}

/// What is written, and whether writing works.
#[derive(Clone, Default)]
struct Sink {
    bytes: Arc<Mutex<Vec<u8>>>,
    is_broken: Arc<AtomicBool>,
}

impl Sink {
    fn text(&self) -> String {
        String::from_utf8(self.bytes.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_broken.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn started(sink: &Sink) -> (AccessLog, Log, Sink) {
    let clock = ManualClock::new().clock();
    let events = Sink::default();
    let log = Log::new(Box::new(events.clone()), Format::Json, Level::INFO, &clock);
    let access = AccessLog::start(AccessFormat::Json, Box::new(sink.clone()), &log, &clock);
    (access, log, events)
}

#[test]
fn a_failing_sink_is_reported_once_until_it_works_again() {
    let sink = Sink::default();
    let (access, log, events) = started(&sink);
    sink.is_broken.store(true, Ordering::Relaxed);
    for _ in 0..3 {
        access.write(&request("/x"));
        access.flush();
    }
    log.flush();
    assert_eq!(events.text().matches("access_log_failed").count(), 1);
    sink.is_broken.store(false, Ordering::Relaxed);
    access.write(&request("/y"));
    access.flush();
    assert!(sink.text().contains("\"path\":\"/y\""));
}

#[test]
fn dropped_lines_are_counted_and_reported_in_the_log() {
    let sink = Sink::default();
    // The sink cannot be written while this is held.
    let held = sink.bytes.lock().unwrap();
    let (access, log, events) = started(&sink);
    for _ in 0..AccessLog::MAX_QUEUED + 5 {
        access.write(&request("/x"));
    }
    assert_eq!(access.dropped(), 5);
    drop(held);
    access.flush();
    access.write(&request("/last"));
    access.flush();
    log.flush();
    assert_eq!(sink.text().lines().count(), AccessLog::MAX_QUEUED + 1);
    assert!(events.text().contains("\"event\":\"access_log_gap\""));
    assert!(events.text().contains("\"count\":5"), "{}", events.text());
}
