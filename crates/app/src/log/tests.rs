//! Lines, and how they get to the sink.

use std::io;
use std::sync::{Condvar, Mutex};

use policy::hint::Source;
use policy::item::{ResendReason, TerminalReason};
use policy::ladder::Disabled;
use policy::outcome::Verdict;
use policy::poll::Notice;
use policy::time::Timestamp;
use proptest::prelude::*;
use serde_json::Value;
use tidegate::ManualClock;
use tidegate::event::Event;

use super::*;
use crate::metrics::RequestOutcome;
use crate::redact::Text;

/// A sink that tests can read, and that takes nothing while it is shut.
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

fn log(sink: &Sink, format: Format, level: Level) -> Log {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(100));
    Log::new(Box::new(sink.clone()), format, level, &clock.clock())
}

/// What comes of lines.
fn written(format: Format, lines: &[Line<'_>]) -> String {
    let sink = Sink::default();
    let log = log(&sink, format, Level::Debug);
    lines.iter().for_each(|line| log.write(line));
    assert!(log.flush());
    sink.text()
}

/// One of each, with `text` wherever a text of others goes.
fn samples(text: &str) -> Vec<Line<'_>> {
    let until = Timestamp::from_secs(120);
    let trace_id = Some(text);
    let delay = Duration::from_millis(1500);
    vec![
        Line::RetryScheduled {
            whose: Whose::Request(text),
            key: text,
            attempt: 1,
            delay,
            reason: ResendReason::Verdict(Verdict::Throttled),
            trace_id,
        },
        Line::RetryScheduled {
            whose: Whose::Operation(text),
            key: text,
            attempt: 2,
            delay: Duration::ZERO,
            reason: ResendReason::Verdict(Verdict::Unauthorized),
            trace_id: None,
        },
        Line::OperationFailed {
            operation_id: text,
            key: text,
            reason: TerminalReason::Exhausted,
            trace_id,
        },
        Line::Request {
            request_id: text,
            route: text,
            status: 200,
            outcome: RequestOutcome::Success,
            attempts: 2,
            wait: delay,
            latency: delay,
            trace_id,
        },
        Line::HoldStarted {
            key: text,
            until,
            source: Source::RetryAfter,
        },
        Line::BreakerOpened {
            key: text,
            until: Some(until),
        },
        Line::BreakerOpened {
            key: text,
            until: None,
        },
        Line::BreakerClosed { key: text },
        Line::EndpointPaused {
            pool: text,
            endpoint: text,
            until,
            errors: 2,
            last_error: Some(Text::new(text)),
        },
        Line::EndpointDisabled {
            pool: text,
            endpoint: text,
            why: Disabled::Errors(5),
            last_error: None,
        },
        Line::EndpointDisabled {
            pool: text,
            endpoint: text,
            why: Disabled::QuotaExhausted,
            last_error: Some(Text::new(text)),
        },
        Line::EndpointEnabled {
            pool: text,
            endpoint: text,
        },
        Line::Refreshed {
            credential: text,
            succeeded: true,
        },
        Line::Refreshed {
            credential: text,
            succeeded: false,
        },
        Line::Poll {
            key: text,
            notice: Notice::RateLimited {
                wait: Duration::from_secs(2),
                attempt: 1,
            },
        },
        Line::Poll {
            key: text,
            notice: Notice::Recovered,
        },
        Line::Poll {
            key: text,
            notice: Notice::GaveUp,
        },
        Line::Listening {
            what: text,
            address: ([127, 0, 0, 1], 7070).into(),
        },
        Line::Reloaded,
        Line::ReloadFailed { problem: text },
        Line::Draining { in_flight: 3 },
        Line::Stopped,
        Line::StoreDegraded {
            problem: Text::new(text),
        },
        Line::StoreRecovered,
        Line::LinesDropped { count: 7 },
    ]
}

#[test]
fn people_read_a_sentence_for_each() {
    insta::assert_snapshot!(written(Format::Human, &samples("api/a")), @"
    00:01:40.000Z INFO  retry_scheduled   api/a again in 2s at api/a after attempt 1: throttled
    00:01:40.000Z INFO  retry_scheduled   api/a again at once at api/a after attempt 2: unauthorized
    00:01:40.000Z ERROR operation_failed  api/a at api/a will not be sent again: exhausted
    00:01:40.000Z DEBUG request           api/a api/a 200 success, attempts 2, waited 1500ms, took 1500ms
    00:01:40.000Z WARN  hold_started      api/a held until 00:02:00Z (20s) by retry-after
    00:01:40.000Z WARN  breaker_opened    api/a lets nobody through until 00:02:00Z (20s)
    00:01:40.000Z WARN  breaker_opened    api/a lets nobody through until a person releases it
    00:01:40.000Z WARN  breaker_closed    api/a works again
    00:01:40.000Z WARN  endpoint_paused   api/a/api/a left alone until 00:02:00Z (20s), errors in a row: 2, the last: api/a
    00:01:40.000Z WARN  endpoint_disabled api/a/api/a switched off after 5 errors in a row
    00:01:40.000Z WARN  endpoint_disabled api/a/api/a switched off because its allowance is used up, the last: api/a
    00:01:40.000Z INFO  endpoint_enabled  api/a/api/a is used again
    00:01:40.000Z DEBUG refreshed         api/a is new
    00:01:40.000Z WARN  refreshed         api/a could not be refreshed
    00:01:40.000Z WARN  poll_rate_limited Rate limited. Backing off to 2000ms. Attempt 1
    00:01:40.000Z INFO  poll_recovered    Rate limit cleared. Resetting to normal interval.
    00:01:40.000Z ERROR poll_gave_up      Rate limited for too long. Stopping retries.
    00:01:40.000Z INFO  listening         api/a on 127.0.0.1:7070
    00:01:40.000Z INFO  reloaded          the settings were read again
    00:01:40.000Z ERROR reload_failed     the settings stay as they were: api/a
    00:01:40.000Z INFO  draining          nothing new is taken, still under way: 3
    00:01:40.000Z INFO  stopped           everything has stopped
    00:01:40.000Z WARN  store_degraded    nothing can be written down: api/a
    00:01:40.000Z INFO  store_recovered   everything is written down again
    00:01:40.000Z WARN  lines_dropped     lines missing here: 7
    ");
}

#[test]
fn programs_read_an_object_for_each() {
    insta::assert_snapshot!(written(Format::Json, &samples("api/a")), @r#"
    {"ts":"2026-01-01T00:01:40.000Z","level":"info","event":"retry_scheduled","request_id":"api/a","key":"api/a","attempt":1,"delay_ms":1500,"reason":"throttled","trace_id":"api/a","message":"api/a again in 2s at api/a after attempt 1: throttled"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"info","event":"retry_scheduled","operation_id":"api/a","key":"api/a","attempt":2,"delay_ms":0,"reason":"unauthorized","message":"api/a again at once at api/a after attempt 2: unauthorized"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"error","event":"operation_failed","operation_id":"api/a","key":"api/a","reason":"exhausted","trace_id":"api/a","message":"api/a at api/a will not be sent again: exhausted"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"debug","event":"request","request_id":"api/a","route":"api/a","status":200,"outcome":"success","attempts":2,"wait_ms":1500,"latency_ms":1500,"trace_id":"api/a","message":"api/a api/a 200 success, attempts 2, waited 1500ms, took 1500ms"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"warn","event":"hold_started","key":"api/a","until":"2026-01-01T00:02:00.000Z","source":"retry-after","message":"api/a held until 00:02:00Z (20s) by retry-after"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"warn","event":"breaker_opened","key":"api/a","until":"2026-01-01T00:02:00.000Z","message":"api/a lets nobody through until 00:02:00Z (20s)"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"warn","event":"breaker_opened","key":"api/a","message":"api/a lets nobody through until a person releases it"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"warn","event":"breaker_closed","key":"api/a","message":"api/a works again"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"warn","event":"endpoint_paused","key":"api/a/api/a","pool":"api/a","endpoint":"api/a","until":"2026-01-01T00:02:00.000Z","errors":2,"last_error":"api/a","message":"api/a/api/a left alone until 00:02:00Z (20s), errors in a row: 2, the last: api/a"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"warn","event":"endpoint_disabled","key":"api/a/api/a","pool":"api/a","endpoint":"api/a","reason":"errors","message":"api/a/api/a switched off after 5 errors in a row"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"warn","event":"endpoint_disabled","key":"api/a/api/a","pool":"api/a","endpoint":"api/a","reason":"quota_exhausted","last_error":"api/a","message":"api/a/api/a switched off because its allowance is used up, the last: api/a"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"info","event":"endpoint_enabled","key":"api/a/api/a","pool":"api/a","endpoint":"api/a","message":"api/a/api/a is used again"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"debug","event":"refreshed","credential":"api/a","succeeded":true,"message":"api/a is new"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"warn","event":"refreshed","credential":"api/a","succeeded":false,"message":"api/a could not be refreshed"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"warn","event":"poll_rate_limited","key":"api/a","attempt":1,"delay_ms":2000,"message":"Rate limited. Backing off to 2000ms. Attempt 1"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"info","event":"poll_recovered","key":"api/a","message":"Rate limit cleared. Resetting to normal interval."}
    {"ts":"2026-01-01T00:01:40.000Z","level":"error","event":"poll_gave_up","key":"api/a","message":"Rate limited for too long. Stopping retries."}
    {"ts":"2026-01-01T00:01:40.000Z","level":"info","event":"listening","what":"api/a","address":"127.0.0.1:7070","message":"api/a on 127.0.0.1:7070"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"info","event":"reloaded","message":"the settings were read again"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"error","event":"reload_failed","problem":"api/a","message":"the settings stay as they were: api/a"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"info","event":"draining","in_flight":3,"message":"nothing new is taken, still under way: 3"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"info","event":"stopped","message":"everything has stopped"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"warn","event":"store_degraded","problem":"api/a","message":"nothing can be written down: api/a"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"info","event":"store_recovered","message":"everything is written down again"}
    {"ts":"2026-01-01T00:01:40.000Z","level":"warn","event":"lines_dropped","count":7,"message":"lines missing here: 7"}
    "#);
}

#[test]
fn the_names_of_events_are_those_of_the_library() {
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
        Event::EndpointPaused {
            pool,
            endpoint,
            until,
            errors: 1,
        },
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
        let line = Line::from_event(&event);
        assert_eq!(line.map(|line| line.event()), Some(event.name()));
    }
    let retry = Event::RetryScheduled {
        key,
        sent: 1,
        delay: Duration::ZERO,
        reason: ResendReason::Verdict(Verdict::Throttled),
    };
    assert_eq!(Line::from_event(&retry), None);
    assert_eq!(Line::from_event(&Event::Abandoned { key }), None);
}

#[test]
fn the_last_error_of_an_endpoint_is_shown_without_secrets() {
    let event = Event::EndpointPaused {
        pool: "p",
        endpoint: "e",
        until: Timestamp::from_secs(130),
        errors: 1,
    };
    let line = Line::from_event(&event).unwrap();
    let line = line.with_last_error(Some("bad key sk-0123456789"));
    let text = written(Format::Human, &[line]);
    assert!(text.ends_with(", the last: bad key sk-…\n"), "{text}");
    let text = written(Format::Json, &[line]);
    assert!(text.contains(r#""last_error":"bad key sk-…""#), "{text}");
    let other = Line::Stopped.with_last_error(Some("x"));
    assert_eq!(other, Line::Stopped);
}

#[test]
fn only_lines_that_matter_enough_are_written() {
    let sink = Sink::default();
    let log = log(&sink, Format::Human, Level::Warn);
    assert!(log.has(Level::Error) && log.has(Level::Warn) && !log.has(Level::Info));
    samples("k").iter().for_each(|line| log.write(line));
    assert!(log.flush());
    let wanted = samples("k").into_iter();
    let wanted = wanted.filter(|line| line.level() <= Level::Warn).count();
    assert_eq!(sink.text().lines().count(), wanted);
    assert!(!sink.text().contains("INFO"));
}

#[test]
fn a_silent_log_takes_everything_and_does_nothing() {
    let log = Log::silent().with_colour(true);
    log.write(&Line::Stopped);
    assert!(log.flush());
    assert!(!log.has(Level::Error));
    assert_eq!(log.dropped(), 0);
}

#[test]
fn levels_have_colours_only_if_told() {
    let sink = Sink::default();
    let plain = log(&sink, Format::Human, Level::Info);
    plain.write(&Line::Stopped);
    assert!(plain.flush());
    assert!(!sink.text().contains('\u{1b}'));
    let coloured = plain.with_colour(true);
    coloured.write(&Line::Stopped);
    assert!(coloured.flush());
    assert!(sink.text().contains("\u{1b}[32mINFO \u{1b}[0m stopped"));
    let sink = Sink::default();
    let json = log(&sink, Format::Json, Level::Info).with_colour(true);
    json.write(&Line::Stopped);
    assert!(json.flush());
    assert!(!sink.text().contains('\u{1b}'));
}

#[test]
fn nobody_waits_for_a_slow_sink_and_a_line_says_what_is_missing() {
    let sink = Sink::default().shut();
    let log = log(&sink, Format::Human, Level::Info);
    let problem = |number: usize| format!("number {number}");
    for number in 0..Log::MOST_WAITING + 7 {
        let problem = problem(number);
        log.write(&Line::ReloadFailed { problem: &problem });
    }
    assert_eq!(log.dropped(), 7);
    sink.open();
    // The first batch makes room for the line about what is missing, the second time it is there.
    assert!(log.flush() && log.flush());
    log.write(&Line::Stopped);
    assert!(log.flush());
    let text = sink.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), Log::MOST_WAITING + 2);
    for (line, number) in lines.iter().zip(0..Log::MOST_WAITING) {
        assert!(line.ends_with(&problem(number)), "{line}");
    }
    assert!(lines[Log::MOST_WAITING].ends_with("lines missing here: 7"));
    assert!(lines[Log::MOST_WAITING + 1].contains("stopped"));
}

#[test]
fn a_sink_that_fails_is_ignored() {
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
    let log = Log::new(Box::new(Broken), Format::Json, Level::Debug, &clock);
    for _ in 0..3 {
        samples("k").iter().for_each(|line| log.write(line));
        assert!(log.flush());
    }
    assert_eq!(log.dropped(), 0);
}

#[test]
fn what_was_taken_is_written_after_the_last_clone_is_gone() {
    let sink = Sink::default().shut();
    let log = log(&sink, Format::Human, Level::Info);
    let clone = log.clone();
    clone.write(&Line::Stopped);
    drop((log, clone));
    sink.open();
    // The thread has the last other handle, and gives it back when it ends.
    while Arc::strong_count(&sink.0) > 1 {
        std::thread::yield_now();
    }
    assert!(sink.text().ends_with("everything has stopped\n"));
}

#[test]
fn lines_of_many_threads_stay_whole() {
    let sink = Sink::default();
    let log = log(&sink, Format::Json, Level::Info);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let log = log.clone();
            scope.spawn(move || {
                for _ in 0..100 {
                    log.write(&Line::Draining { in_flight: 1 });
                }
            });
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_text_can_forge_a_line(text in "(\\PC|[\n\r\u{1b}\u{85}\u{2028}\"\\\\])*") {
        let lines = samples(&text);
        for format in [Format::Human, Format::Json] {
            let written = written(format, &lines);
            prop_assert!(written.ends_with('\n'));
            prop_assert_eq!(written.matches('\n').count(), lines.len());
            let is_forged = |c: char| c != '\n' && (c.is_control() || c == '\u{2028}');
            prop_assert!(!written.contains(is_forged));
        }
    }

    #[test]
    fn every_object_is_json_with_its_name_and_level(text in any::<String>()) {
        let lines = samples(&text);
        let written = written(Format::Json, &lines);
        for (line, written) in lines.iter().zip(written.lines()) {
            let object: Value = serde_json::from_str(written).unwrap();
            prop_assert_eq!(&object["event"], line.event());
            prop_assert_eq!(&object["level"], line.level().as_str());
            prop_assert!(object["ts"].is_string() && object["message"].is_string());
        }
    }
}
