//! The report of a fetch in Chromium. `PICTURES=FOLDER` stores pictures of it.

use std::fs;
use std::time::Duration;

use app::fetch::{AttemptClass, Report, ReportBuilder, ReportEnd, ThirdParty, UrlError, UrlRecord};
use policy::hint::Source;
use tidegate::event::Event;
use tidegate::{Limiter, ManualClock, TerminalReason, Timestamp};

use crate::client::{program, run, script};

#[test]
fn report_works_in_chromium() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    fs::write(&page, report().to_html()).unwrap();
    let mut command = program("node");
    command
        .arg(script("report_page.mjs"))
        .arg(&page)
        .arg(folder.path().join("profile"));
    run(&mut command);
}

const START: Timestamp = Timestamp::from_secs(100);
const SECONDS: u64 = 300;

fn at(seconds: f64) -> Timestamp {
    START + Duration::from_secs_f64(seconds)
}

/// Five minutes of a crawl, with everything that a report shows.
fn report() -> Report {
    let started = ManualClock::new().clock().wall();
    let mut builder = ReportBuilder::new(started, START);
    add_course(&mut builder);
    add_records(&mut builder);
    let end = ReportEnd {
        at: at(SECONDS as f64),
        is_complete: true,
        throttled: 1234,
    };
    builder.finish(end, |url| {
        let sources =
            (0..url.len() % 7).map(|index| format!("http://docs.example.com/page-{index}"));
        sources.collect()
    })
}

/// Requests, rates, holds and a breaker of three hosts.
fn add_course(builder: &mut ReportBuilder) {
    const KEYS: [&str; 3] = [
        "docs.example.com",
        "shop.example.com:8443",
        "dead.example.com",
    ];
    let clock = ManualClock::new();
    let limiter = Limiter::builder().clock(clock.clock()).build();
    for key in KEYS {
        limiter.try_acquire(key).unwrap().give_back();
    }
    let mut views = KEYS.map(|key| limiter.gate(key).unwrap());
    for second in 0..SECONDS {
        let now = second as f64;
        // Rises, is refused at about 50 a second, and stays below.
        let rate = [2.0 + now * 0.6, 46.0 + (now * 0.3).sin() * 4.0][usize::from(second > 80)];
        for index in (0_u32..).take_while(|index| f64::from(*index) < rate) {
            let class = match (second, index) {
                (70..=80 | 140 | 200, 0) => AttemptClass::Refused,
                (_, 3) if second % 5 == 0 => AttemptClass::Rejected,
                _ => AttemptClass::Accepted,
            };
            builder.attempted(KEYS[0], at(now + f64::from(index) / rate), class);
        }
        if second % 3 == 0 {
            builder.attempted(KEYS[1], at(now), AttemptClass::Accepted);
        }
        if second < 40 || second % 30 == 0 {
            builder.attempted(KEYS[2], at(now), AttemptClass::Failed);
        }
        views[0].gate.rate = rate;
        views[0].gate.ceiling = (second > 70).then_some(50.0);
        views[1].gate.rate = 2.0;
        views[2].gate.rate = 0.5;
        builder.sample(at(now), &views);
    }
    let key = KEYS[0];
    for (from, until) in [(75.0, 82.0), (140.0, 170.5), (200.0, 200.4)] {
        let (until, source) = (at(until), Source::Assumed);
        builder.event(at(from), &Event::HoldStarted { key, until, source });
    }
    for from in (40..SECONDS).step_by(30) {
        let (key, from) = (KEYS[2], from as f64);
        let until = Some(at(from + 20.0));
        builder.event(at(from), &Event::BreakerOpened { key, until });
    }
}

fn add_records(builder: &mut ReportBuilder) {
    let hostile = "<script>window.ran = 1</script><img src=x onerror=\"window.ran=1\">\u{202e}";
    let long = "x".repeat(10_000);
    for index in 0..400_u64 {
        let mut record = UrlRecord {
            url: format!(
                "http://docs.example.com/guide/chapter-{}/page-{index}.html",
                index / 20
            ),
            status: Some(200),
            attempts: 1,
            wait_ms: index * 90,
            latency_ms: Some(20 + index * 7919 % 3000),
            bytes: 1000 + index * 997 % 90_000,
            content_type: Some("text/html; charset=utf-8".to_owned()),
            title: Some(format!("Chapter {}", index / 6)),
            source: Some("http://docs.example.com/".to_owned()),
            ..UrlRecord::default()
        };
        let party = |host: &str, is_tracker| ThirdParty {
            host: host.to_owned(),
            is_tracker,
        };
        record.third_parties = vec![
            party("fonts.example.net", false),
            party("www.google-analytics.com", true),
        ];
        let mut key = "docs.example.com";
        match index % 20 {
            0 => {
                record.url = format!("http://docs.example.com/missing-{index}");
                record.status = Some(404);
                record.error = Some(UrlError::Item(TerminalReason::Rejected));
            }
            1 => {
                key = "dead.example.com";
                record.url = format!("http://dead.example.com/{index}");
                record.status = None;
                record.latency_ms = None;
                record.error = Some(UrlError::Item(TerminalReason::BreakerOpen));
                record.message = Some("connection refused".to_owned());
            }
            2 => record.error = Some(UrlError::RobotsDenied),
            3 => record.final_url = Some(format!("https://shop.example.com:8443/{index}")),
            4 => record.content_type = Some("image/png".to_owned()),
            _ => {}
        }
        builder.add(&record, key, false);
    }
    for hostile in [hostile, &long] {
        for index in 0..2 {
            let record = UrlRecord {
                url: format!("http://shop.example.com/{index}/{hostile}"),
                status: Some(200),
                latency_ms: Some(3500 + index),
                title: Some(hostile.to_owned()),
                content_type: Some(hostile.to_owned()),
                final_url: Some(format!("http://{hostile}/{index}")),
                third_parties: vec![ThirdParty {
                    host: hostile.to_owned(),
                    is_tracker: true,
                }],
                ..UrlRecord::default()
            };
            builder.add(&record, hostile, false);
            let failed = UrlRecord {
                status: Some(410),
                error: Some(UrlError::Item(TerminalReason::Rejected)),
                message: Some(hostile.to_owned()),
                source: Some(record.url.clone()),
                ..record
            };
            builder.add(&failed, hostile, false);
        }
    }
}
