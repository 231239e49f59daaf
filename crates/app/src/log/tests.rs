//! Events, their lines, and how these get to the sink.

use std::io;
use std::sync::{Condvar, Mutex};

use policy::hint::Source;
use policy::item::{ResendReason, TerminalReason};
use policy::ladder::Disabled;
use policy::outcome::Verdict;
use policy::poll::Notice;
use policy::time::{Timestamp, WallTime};
use proptest::prelude::*;
use serde_json::Value;
use tidegate::ManualClock;
use tidegate::event::Event;

use super::line::rfc3339;
use super::*;
use crate::metrics::RequestOutcome;
use crate::redact::Text;

/// A sink that tests can read, and that blocks while it is shut.
#[derive(Clone, Default)]
struct Sink(Arc<(Mutex<Inside>, Condvar)>);

#[derive(Default)]
struct Inside {
    bytes: Vec<u8>,
    is_shut: bool,
}

impl Sink {
    fn shut(self) -> Self {
        self.0.0.lock().unwrap().is_shut = true;
        self
    }

    fn open(&self) {
        self.0.0.lock().unwrap().is_shut = false;
        self.0.1.notify_all();
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.0.lock().unwrap().bytes.clone()).unwrap()
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let inside = self.0.0.lock().unwrap();
        let mut inside = self
            .0
            .1
            .wait_while(inside, |inside| inside.is_shut)
            .unwrap();
        inside.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn log(sink: &Sink, format: Format, filter: impl Into<Filter>) -> Log {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(100));
    Log::new(Box::new(sink.clone()), format, filter, &clock.clock())
}

const HUMAN: Format = Format::Human { has_colour: false };

/// The lines of what `write` writes.
fn written(format: Format, write: impl FnOnce(&Log)) -> String {
    let sink = Sink::default();
    let log = log(&sink, format, Level::DEBUG);
    write(&log);
    assert!(log.flush());
    sink.text()
}

/// Writes each event once, with `text` wherever a text from outside goes.
fn write_all(log: &Log, text: &str) {
    let until = Timestamp::from_secs(120);
    let delay = Duration::from_millis(1500);
    let (key, pool, endpoint, trace_id) = (text, text, text, text);
    log.retry_scheduled(&Retry {
        item: ItemId::Request(text),
        key,
        attempt: 1,
        delay,
        reason: ResendReason::Verdict(Verdict::Throttled),
        trace_id,
    });
    log.retry_scheduled(&Retry {
        item: ItemId::Operation(text),
        key,
        attempt: 2,
        delay: Duration::ZERO,
        reason: ResendReason::Verdict(Verdict::Unauthorized),
        trace_id,
    });
    log.operation_failed(text, key, 5, TerminalReason::Exhausted, trace_id);
    log.claim_lost(text, key);
    log.heartbeat_failed(3, Text::new(text));
    log.store_unreadable(text, key, Text::new(text));
    log.job_failed(text, Text::new(text));
    log.request_exhausted(text, key, 5, trace_id);
    log.request(&RequestEnd {
        request_id: text,
        route: text,
        status: 200,
        outcome: RequestOutcome::Success,
        attempts: 2,
        wait: delay,
        latency: delay,
        trace_id,
    });
    let source = Source::RetryAfter;
    let last_error = Some(text);
    let opened = |until| Event::BreakerOpened { key, until };
    let disabled = |why| Event::EndpointDisabled {
        pool,
        endpoint,
        why,
    };
    let refreshed = |succeeded| Event::Refreshed {
        credential: text,
        succeeded,
    };
    log.limiter_event(&Event::HoldStarted { key, until, source }, None);
    log.limiter_event(&opened(Some(until)), None);
    log.limiter_event(&opened(None), None);
    log.limiter_event(&Event::BreakerClosed { key }, None);
    log.limiter_event(&paused(pool, endpoint, until), last_error);
    log.limiter_event(&disabled(Disabled::Errors(5)), None);
    log.limiter_event(&disabled(Disabled::QuotaExhausted), last_error);
    log.limiter_event(&Event::EndpointEnabled { pool, endpoint }, None);
    log.limiter_event(&refreshed(true), None);
    log.limiter_event(&refreshed(false), None);
    let wait = Duration::from_secs(2);
    log.poll(key, Notice::RateLimited { wait, attempt: 1 });
    log.poll(key, Notice::Recovered);
    log.poll(key, Notice::GaveUp);
    log.reloaded();
    log.reload_failed(text);
    log.draining(3);
    log.stopped();
    log.store_degraded(Text::new(text));
    log.store_recovered();
    log.fleet_degraded(Text::new(text));
    log.fleet_recovered(wait);
    log.no_descriptors(1024);
    log.tls_failed(&io::Error::other(text.to_owned()));
    log.access_log_gap(7);
    log.access_log_failed(text);
    log.otlp_failed("spans", Text::new(text));
    log.otlp_recovered("spans");
}

/// How many events [`write_all`] writes.
const ALL: usize = 36;

fn paused<'a>(pool: &'a str, endpoint: &'a str, until: Timestamp) -> Event<'a> {
    Event::EndpointPaused {
        pool,
        endpoint,
        until,
        errors: 2,
        source: Source::Assumed,
    }
}

#[test]
fn human_lines_have_time_level_name_and_sentence() {
    insta::assert_snapshot!(written(HUMAN, |log| write_all(log, "api/a")), @"
    00:01:40.000Z INFO  retry_scheduled   api/a is sent again in 2s at api/a after attempt 1: throttled
    00:01:40.000Z INFO  retry_scheduled   api/a is sent again at once at api/a after attempt 2: unauthorized
    00:01:40.000Z ERROR operation_failed  api/a at api/a failed, attempts 5: exhausted
    00:01:40.000Z WARN  claim_lost        api/a at api/a was sent, but its result came too late: its claim was lost
    00:01:40.000Z WARN  heartbeat_failed  the leases of 3 operations were not extended: api/a
    00:01:40.000Z ERROR store_unreadable  api/a at api/a waits, because its request cannot be read: api/a
    00:01:40.000Z ERROR job_failed        api/a failed: api/a
    00:01:40.000Z WARN  request_exhausted api/a at api/a failed, attempts 5: exhausted
    00:01:40.000Z DEBUG request           api/a api/a 200 success, attempts 2, waited 1500ms, took 1500ms
    00:01:40.000Z WARN  hold_started      api/a is held until 00:02:00Z (20s): the server named it in `retry-after`
    00:01:40.000Z WARN  breaker_opened    breaker of api/a is open until 00:02:00Z (20s)
    00:01:40.000Z WARN  breaker_opened    breaker of api/a is open until a person releases it
    00:01:40.000Z WARN  breaker_closed    breaker of api/a is closed
    00:01:40.000Z WARN  endpoint_paused   api/a/api/a is paused until 00:02:00Z (20s): the server named no wait, consecutive errors 2, last error: api/a
    00:01:40.000Z WARN  endpoint_disabled api/a/api/a is disabled after consecutive errors: 5
    00:01:40.000Z WARN  endpoint_disabled api/a/api/a is disabled because its quota is exhausted, last error: api/a
    00:01:40.000Z INFO  endpoint_enabled  api/a/api/a is enabled
    00:01:40.000Z DEBUG refreshed         credential api/a is refreshed
    00:01:40.000Z WARN  refreshed         credential api/a cannot be refreshed
    00:01:40.000Z WARN  poll_rate_limited Rate limited. Backing off to 2000ms. Attempt 1
    00:01:40.000Z INFO  poll_recovered    Rate limit cleared. Resetting to normal interval.
    00:01:40.000Z ERROR poll_gave_up      Rate limited for too long. Stopping retries.
    00:01:40.000Z INFO  reloaded          the settings were reloaded
    00:01:40.000Z ERROR reload_failed     the previous settings stay in use: api/a
    00:01:40.000Z INFO  draining          no new requests are accepted, in flight: 3
    00:01:40.000Z INFO  stopped           the server has stopped
    00:01:40.000Z WARN  store_degraded    state cannot be stored: api/a
    00:01:40.000Z INFO  store_recovered   state is stored again
    00:01:40.000Z WARN  fleet_degraded    gates continue with the last share of this node: api/a
    00:01:40.000Z INFO  fleet_recovered   gates are shared again, after 2s
    00:01:40.000Z ERROR no_descriptors    no connection can be opened, because the process may have 1024 descriptors open (`ulimit -n`)
    00:01:40.000Z DEBUG tls_failed        a TLS handshake failed: api/a
    00:01:40.000Z WARN  access_log_gap    7 lines are missing in the access log: it could not be written as fast
    00:01:40.000Z ERROR access_log_failed the access log cannot be written: api/a
    00:01:40.000Z WARN  otlp_failed       the collector does not accept spans: api/a
    00:01:40.000Z INFO  otlp_recovered    the collector accepts spans again
    ");
}

#[test]
fn json_lines_have_the_fields_of_the_contract() {
    insta::assert_snapshot!(written(Format::Json, |log| write_all(log, "api/a")), @r#"
    {"ts":"2026-01-01T00:01:40.000Z","level":"info","event":"retry_scheduled","request_id":"api/a","key":"api/a","attempt":1,"delay_ms":1500,"reason":"throttled","trace_id":"api/a","message":"api/a is sent again in 2s at api/a after attempt 1: throttled"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"info","event":"retry_scheduled","operation_id":"api/a","key":"api/a","attempt":2,"delay_ms":0,"reason":"unauthorized","trace_id":"api/a","message":"api/a is sent again at once at api/a after attempt 2: unauthorized"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"error","event":"operation_failed","operation_id":"api/a","key":"api/a","attempts":5,"reason":"exhausted","trace_id":"api/a","message":"api/a at api/a failed, attempts 5: exhausted"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"warn","event":"claim_lost","operation_id":"api/a","key":"api/a","message":"api/a at api/a was sent, but its result came too late: its claim was lost"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"warn","event":"heartbeat_failed","claims":3,"problem":"api/a","message":"the leases of 3 operations were not extended: api/a"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"error","event":"store_unreadable","operation_id":"api/a","key":"api/a","problem":"api/a","message":"api/a at api/a waits, because its request cannot be read: api/a"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"error","event":"job_failed","job_id":"api/a","problem":"api/a","message":"api/a failed: api/a"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"warn","event":"request_exhausted","request_id":"api/a","key":"api/a","attempts":5,"trace_id":"api/a","message":"api/a at api/a failed, attempts 5: exhausted"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"debug","event":"request","request_id":"api/a","route":"api/a","status":200,"outcome":"success","attempts":2,"wait_ms":1500,"latency_ms":1500,"trace_id":"api/a","message":"api/a api/a 200 success, attempts 2, waited 1500ms, took 1500ms"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"warn","event":"hold_started","key":"api/a","until":"2026-01-01T00:02:00.000Z","source":"retry-after","message":"api/a is held until 00:02:00Z (20s): the server named it in `retry-after`"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"warn","event":"breaker_opened","key":"api/a","until":"2026-01-01T00:02:00.000Z","message":"breaker of api/a is open until 00:02:00Z (20s)"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"warn","event":"breaker_opened","key":"api/a","message":"breaker of api/a is open until a person releases it"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"warn","event":"breaker_closed","key":"api/a","message":"breaker of api/a is closed"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"warn","event":"endpoint_paused","key":"api/a/api/a","pool":"api/a","endpoint":"api/a","until":"2026-01-01T00:02:00.000Z","source":"assumed","errors":2,"last_error":"api/a","message":"api/a/api/a is paused until 00:02:00Z (20s): the server named no wait, consecutive errors 2, last error: api/a"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"warn","event":"endpoint_disabled","key":"api/a/api/a","pool":"api/a","endpoint":"api/a","reason":"errors","message":"api/a/api/a is disabled after consecutive errors: 5"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"warn","event":"endpoint_disabled","key":"api/a/api/a","pool":"api/a","endpoint":"api/a","reason":"quota_exhausted","last_error":"api/a","message":"api/a/api/a is disabled because its quota is exhausted, last error: api/a"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"info","event":"endpoint_enabled","key":"api/a/api/a","pool":"api/a","endpoint":"api/a","message":"api/a/api/a is enabled"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"debug","event":"refreshed","credential":"api/a","succeeded":true,"message":"credential api/a is refreshed"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"warn","event":"refreshed","credential":"api/a","succeeded":false,"message":"credential api/a cannot be refreshed"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"warn","event":"poll_rate_limited","key":"api/a","attempt":1,"delay_ms":2000,"message":"Rate limited. Backing off to 2000ms. Attempt 1"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"info","event":"poll_recovered","key":"api/a","message":"Rate limit cleared. Resetting to normal interval."}
    {"ts":"2026-01-01T00:01:40.000Z","level":"error","event":"poll_gave_up","key":"api/a","message":"Rate limited for too long. Stopping retries."}
    {"ts":"2026-01-01T00:01:40.000Z","level":"info","event":"reloaded","message":"the settings were reloaded"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"error","event":"reload_failed","problem":"api/a","message":"the previous settings stay in use: api/a"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"info","event":"draining","in_flight":3,"message":"no new requests are accepted, in flight: 3"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"info","event":"stopped","message":"the server has stopped"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"warn","event":"store_degraded","problem":"api/a","message":"state cannot be stored: api/a"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"info","event":"store_recovered","message":"state is stored again"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"warn","event":"fleet_degraded","problem":"api/a","message":"gates continue with the last share of this node: api/a"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"info","event":"fleet_recovered","silence_ms":2000,"message":"gates are shared again, after 2s"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"error","event":"no_descriptors","limit":1024,"message":"no connection can be opened, because the process may have 1024 descriptors open (`ulimit -n`)"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"debug","event":"tls_failed","reason":"api/a","message":"a TLS handshake failed: api/a"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"warn","event":"access_log_gap","count":7,"message":"7 lines are missing in the access log: it could not be written as fast"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"error","event":"access_log_failed","problem":"api/a","message":"the access log cannot be written: api/a"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"warn","event":"otlp_failed","signal":"spans","problem":"api/a","message":"the collector does not accept spans: api/a"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"info","event":"otlp_recovered","signal":"spans","message":"the collector accepts spans again"}
    "#);
}

#[test]
fn every_event_is_in_the_list_of_names() {
    let text = written(Format::Json, |log| write_all(log, "a"));
    let mut names: Vec<String> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["event"].to_string())
        .collect();
    names.dedup();
    let listed = EVENTS.iter().filter(|name| **name != "lines_dropped");
    assert_eq!(
        names,
        listed.map(|name| format!("{name:?}")).collect::<Vec<_>>()
    );
    let page = include_str!("../../../../docs/reference/logs.md");
    for name in EVENTS {
        assert!(page.contains(&format!("| `{name}` | ")), "{name}");
    }
}

#[test]
fn events_of_the_library_keep_their_names() {
    let (key, pool, endpoint) = ("k", "p", "e");
    let until = Timestamp::from_secs(1);
    let events = [
        Event::HoldStarted {
            key,
            until,
            source: Source::Body,
        },
        Event::BreakerOpened { key, until: None },
        Event::BreakerClosed { key },
        paused(pool, endpoint, until),
        Event::EndpointDisabled {
            pool,
            endpoint,
            why: Disabled::Person,
        },
        Event::EndpointEnabled { pool, endpoint },
        Event::Refreshed {
            credential: "c",
            succeeded: false,
        },
    ];
    for event in events {
        let line = written(Format::Json, |log| log.limiter_event(&event, None));
        let name = format!("\"event\":\"{}\"", event.name());
        assert!(line.contains(&name), "{line}");
    }
    let retry = Event::RetryScheduled {
        key,
        sent: 1,
        delay: Duration::ZERO,
        reason: ResendReason::Verdict(Verdict::Throttled),
    };
    for event in [retry, Event::Abandoned { key }] {
        let line = written(Format::Json, |log| log.limiter_event(&event, None));
        assert_eq!(line, "");
    }
}

#[test]
fn last_error_is_redacted() {
    let event = paused("p", "e", Timestamp::from_secs(130));
    let last_error = Some("bad key sk-0123456789");
    let text = written(HUMAN, |log| log.limiter_event(&event, last_error));
    assert!(text.ends_with(", last error: bad key sk-…\n"), "{text}");
    let text = written(Format::Json, |log| log.limiter_event(&event, last_error));
    assert!(text.contains(r#""last_error":"bad key sk-…""#), "{text}");
}

#[test]
fn until_has_the_date_only_on_another_day() {
    let held = |seconds: u64| {
        let event = Event::HoldStarted {
            key: "k",
            until: Timestamp::from_secs(100 + seconds),
            source: Source::RetryAfter,
        };
        written(HUMAN, |log| log.limiter_event(&event, None))
    };
    assert!(held(20).contains("until 00:02:00Z (20s)"));
    assert!(held(86_400).contains("until 2026-01-02 00:01:40Z (1440m)"));
}

#[test]
fn times_are_clamped_to_the_years_1970_to_9999() {
    let shown = |millis| rfc3339(WallTime::from_unix_millis(millis));
    assert_eq!(shown(1_794_722_400_123), "2026-11-15T06:00:00.123Z");
    assert_eq!(shown(i64::MIN), "1970-01-01T00:00:00.000Z");
    assert_eq!(shown(i64::MAX), "9999-12-31T23:59:59.999Z");
}

#[test]
fn level_limits_what_is_written() {
    let sink = Sink::default();
    let log = log(&sink, HUMAN, Level::WARN);
    assert!(log.has(Level::ERROR) && log.has(Level::WARN) && !log.has(Level::INFO));
    write_all(&log, "k");
    assert!(log.flush());
    let text = sink.text();
    let levels = text.lines().map(|line| line.split(' ').nth(1).unwrap());
    assert!(
        levels
            .clone()
            .all(|level| ["WARN", "ERROR"].contains(&level))
    );
    let all = written(HUMAN, |log| write_all(log, "k"));
    let is_wanted = |line: &&str| line.contains(" WARN ") || line.contains(" ERROR ");
    assert_eq!(levels.count(), all.lines().filter(is_wanted).count());
}

#[test]
fn filter_selects_events_by_name() {
    let sink = Sink::default();
    let filter: Filter = "warn,endpoint=off,endpoint_enabled=info,request=debug"
        .parse()
        .unwrap();
    let log = log(&sink, HUMAN, filter);
    assert!(log.has(Level::DEBUG));
    write_all(&log, "k");
    assert!(log.flush());
    let text = sink.text();
    for name in ["DEBUG request ", "endpoint_enabled", "request_exhausted"] {
        assert!(text.contains(name), "{name}");
    }
    for name in ["endpoint_paused", "endpoint_disabled", "retry_scheduled"] {
        assert!(!text.contains(name), "{name}");
    }
}

#[test]
fn filter_refuses_unknown_levels_and_names() {
    let problem = |text: &str| text.parse::<Filter>().unwrap_err();
    assert!(problem("loud").contains("`loud`"), "{}", problem("loud"));
    assert!(problem("request=loud").contains("expected LEVEL"));
    let expected = "no event is called or begins with `requests`";
    assert_eq!(problem("info,requests=debug"), expected);
    assert!(problem("info,").contains("expected LEVEL") && problem("").contains("expected LEVEL"));
}

#[test]
fn silent_log_writes_nothing() {
    let log = Log::silent();
    write_all(&log, "k");
    assert!(log.flush());
    assert!(!log.has(Level::ERROR));
    assert_eq!(log.dropped(), 0);
}

#[test]
fn two_logs_in_one_thread_stay_apart() {
    let (one, other) = (Sink::default(), Sink::default());
    let (first, second) = (
        log(&one, HUMAN, Level::INFO),
        log(&other, Format::Json, Level::ERROR),
    );
    first.stopped();
    second.stopped();
    second.reload_failed("x");
    assert!(first.flush() && second.flush());
    assert!(one.text().contains("stopped") && one.text().lines().count() == 1);
    assert!(other.text().contains("reload_failed") && other.text().lines().count() == 1);
}

#[test]
fn only_human_levels_have_colours() {
    let stopped = |format| written(format, Log::stopped);
    assert!(!stopped(HUMAN).contains('\u{1b}'));
    let coloured = stopped(Format::Human { has_colour: true });
    assert!(coloured.contains("\u{1b}[32mINFO \u{1b}[0m stopped"));
    assert!(!stopped(Format::Json).contains('\u{1b}'));
}

#[test]
fn slow_sink_drops_lines_and_reports_the_gap_in_its_place() {
    let sink = Sink::default().shut();
    let log = log(&sink, HUMAN, Level::INFO);
    let problem = |number: usize| format!("number {number}");
    for number in 0..Log::MAX_QUEUED + 7 {
        log.reload_failed(&problem(number));
    }
    assert_eq!(log.dropped(), 7);
    sink.open();
    // The first flush makes room for the report, the second waits until it is written.
    assert!(log.flush() && log.flush());
    log.stopped();
    assert!(log.flush());
    let text = sink.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), Log::MAX_QUEUED + 2);
    for (line, number) in lines.iter().zip(0..Log::MAX_QUEUED) {
        assert!(line.ends_with(&problem(number)), "{line}");
    }
    assert!(lines[Log::MAX_QUEUED].contains("WARN  lines_dropped     7 lines are missing here"));
    assert!(lines[Log::MAX_QUEUED + 1].contains("stopped"));
}

#[test]
fn failing_sink_is_ignored() {
    struct Broken;
    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }
    let clock = ManualClock::new().clock();
    let log = Log::new(Box::new(Broken), Format::Json, Level::DEBUG, &clock);
    for _ in 0..3 {
        write_all(&log, "k");
        assert!(log.flush());
    }
    assert_eq!(log.dropped(), 0);
}

#[test]
fn queued_lines_are_written_after_the_last_clone_is_dropped() {
    let sink = Sink::default().shut();
    let log = log(&sink, HUMAN, Level::INFO);
    let clone = log.clone();
    clone.stopped();
    drop((log, clone));
    sink.open();
    // The thread has the last other handle and drops it at its end.
    while Arc::strong_count(&sink.0) > 1 {
        std::thread::yield_now();
    }
    assert!(sink.text().ends_with("the server has stopped\n"));
}

#[test]
fn lines_of_many_threads_stay_whole() {
    let sink = Sink::default();
    let log = log(&sink, Format::Json, Level::INFO);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let log = log.clone();
            scope.spawn(move || (0..100).for_each(|_| log.draining(1)));
        }
    });
    assert!(log.flush());
    let text = sink.text();
    assert_eq!(text.lines().count(), 400);
    assert!(
        text.lines()
            .all(|line| line == text.lines().next().unwrap())
    );
}

#[test]
fn control_and_invisible_characters_are_escaped() {
    let text = "a\nb\r\u{1b}[2J\u{2028}\u{202e}\u{9b}é😀\"\\";
    let line = written(HUMAN, |log| log.reload_failed(text));
    let expected = r#"a\nb\r\u{1b}[2J\u{2028}\u{202e}\u{9b}é😀"\"#;
    assert!(line.ends_with(&format!("{expected}\n")), "{line}");
    let line = written(Format::Json, |log| log.reload_failed(text));
    let expected = r#""problem":"a\nb\r\u001b[2J\u2028\u202e\u009bé😀\"\\","#;
    assert!(line.contains(expected), "{line}");
}

#[test]
fn a_text_has_at_most_2000_characters() {
    let line = written(Format::Json, |log| log.reload_failed(&"é".repeat(2001)));
    let object: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(object["problem"], format!("{}…", "é".repeat(2000)));
    assert_eq!(object["message"].as_str().unwrap().chars().count(), 2001);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_text_can_forge_a_line(text in "(\\PC|[\n\r\u{1b}\u{85}\u{2028}\"\\\\])*") {
        for format in [HUMAN, Format::Json] {
            let written = written(format, |log| write_all(log, &text));
            prop_assert!(written.ends_with('\n'));
            prop_assert_eq!(written.matches('\n').count(), ALL);
            let is_dangerous =
                |c: char| c != '\n' && (c.is_control() || crate::redact::is_invisible(c));
            prop_assert!(!written.contains(is_dangerous));
        }
    }

    #[test]
    fn json_lines_hold_the_exact_text(text in any::<String>()) {
        let written = written(Format::Json, |log| write_all(log, &text));
        for line in written.lines() {
            let object: Value = serde_json::from_str(line).unwrap();
            prop_assert!(object["ts"].is_string() && object["message"].is_string());
            prop_assert!(object["event"].is_string() && object["level"].is_string());
            let trace_id = object.get("trace_id");
            prop_assert!(trace_id.is_none_or(|id| *id == *text));
        }
    }
}
