//! Reports of made-up fetches, small and large.

use std::fmt::Write;
use std::time::Duration;

use policy::hint::Source;
use policy::item::TerminalReason;
use policy::outcome::Verdict;
use policy::time::{Timestamp, WallTime};
use tidegate::event::Event;

use super::builder::{MAX_HOSTS, MAX_PLOTTED, MAX_ROWS};
use super::*;
use crate::fetch::{ThirdParty, UrlRecord};

const ORIGIN: Timestamp = Timestamp::from_secs(1000);

fn at(seconds: u64) -> Timestamp {
    ORIGIN + Duration::from_secs(seconds)
}

fn builder() -> ReportBuilder {
    ReportBuilder::new(WallTime::from_unix_millis(1_794_000_000_000), ORIGIN)
}

fn finish(builder: ReportBuilder) -> Report {
    finish_at(builder, 60)
}

fn finish_at(builder: ReportBuilder, seconds: u64) -> Report {
    let end = ReportEnd {
        at: at(seconds),
        is_complete: true,
        throttled: 7,
    };
    builder.finish(end, |_| Vec::new())
}

fn page(url: &str) -> UrlRecord {
    UrlRecord {
        url: url.to_owned(),
        status: Some(200),
        attempts: 1,
        latency_ms: Some(20),
        bytes: 1000,
        content_type: Some("Text/HTML; charset=utf-8".to_owned()),
        ..UrlRecord::default()
    }
}

fn failed(url: &str, status: Option<u16>, error: UrlError) -> UrlRecord {
    UrlRecord {
        status,
        error: Some(error),
        source: Some("http://a.example/".to_owned()),
        ..page(url)
    }
}

const REJECTED: UrlError = UrlError::Item(TerminalReason::Rejected);
const EXHAUSTED: UrlError = UrlError::Item(TerminalReason::Exhausted);

#[test]
fn counts_every_url_once() {
    let mut builder = builder();
    builder.add(&page("http://a.example/"), "a.example", false);
    builder.add(
        &failed("http://a.example/1", Some(404), REJECTED),
        "a.example",
        false,
    );
    builder.add(
        &failed("http://a.example/2", Some(500), EXHAUSTED),
        "a.example",
        false,
    );
    builder.add(
        &failed("http://b.example/", None, UrlError::RobotsDenied),
        "b.example",
        false,
    );
    builder.add(
        &failed("http://b.example/l", Some(302), UrlError::RedirectLoop),
        "b.example",
        false,
    );
    let report = finish(builder);
    let totals = report.totals;
    assert_eq!(
        (
            totals.urls,
            totals.fetched,
            totals.broken,
            totals.failed,
            totals.denied
        ),
        (5, 1, 2, 1, 1)
    );
    assert_eq!(totals.throttled, 7);
    assert_eq!(report.broken_links.total, 2);
    assert_eq!(report.broken_links.rows[0].sources, ["http://a.example/"]);
    assert_eq!(report.failed.rows[0].url, "http://a.example/2");
    assert_eq!(report.denied.rows[0].url, "http://b.example/");
    let types = &report.content_types.rows;
    assert_eq!(
        (
            types[0].content_type.as_str(),
            types[0].urls,
            types[0].bytes
        ),
        ("text/html", 1, 1000)
    );
    assert_eq!(
        report.statuses.iter().map(|count| count.urls).sum::<u64>(),
        4
    );
    assert_eq!(report.errors.iter().map(|count| count.urls).sum::<u64>(), 4);
}

#[test]
fn adds_further_sources_of_broken_links() {
    let mut builder = builder();
    builder.add(
        &failed("http://a.example/1", Some(404), REJECTED),
        "a.example",
        false,
    );
    let end = ReportEnd {
        at: at(1),
        is_complete: true,
        throttled: 0,
    };
    let report = builder.finish(end, |url| {
        assert_eq!(url, "http://a.example/1");
        let others = (0..30).map(|index| format!("http://a.example/p{index}"));
        std::iter::once("http://a.example/".to_owned())
            .chain(others)
            .collect()
    });
    let sources = &report.broken_links.rows[0].sources;
    assert_eq!(sources.len(), 20);
    assert_eq!(sources[..2], ["http://a.example/", "http://a.example/p0"]);
}

#[test]
fn requests_are_counted_by_host_and_over_time() {
    let mut builder = builder();
    for second in 0..200 {
        builder.attempted("a.example", at(second), AttemptClass::Accepted);
    }
    builder.attempted(
        "b.example",
        at(100),
        AttemptClass::of(Verdict::Throttled, Some(429)),
    );
    builder.attempted(
        "b.example",
        at(100),
        AttemptClass::of(Verdict::Overloaded, Some(503)),
    );
    builder.attempted(
        "b.example",
        at(100),
        AttemptClass::of(Verdict::Overloaded, Some(500)),
    );
    builder.attempted(
        "b.example",
        at(100),
        AttemptClass::of(Verdict::Rejected, Some(404)),
    );
    builder.add(&page("http://a.example/"), "a.example", false);
    let report = finish_at(builder, 200);
    assert_eq!(report.step_ms, 1000);
    let hosts = &report.hosts.rows;
    assert_eq!(hosts[0].key, "a.example");
    assert_eq!(
        hosts[1].requests,
        RequestCounts {
            sent: 4,
            accepted: 0,
            refused: 2,
            rejected: 1,
            failed: 1,
        }
    );
    let series = hosts[1].series.as_ref().unwrap();
    assert_eq!(series.refused.len(), 201);
    assert_eq!((series.refused[99], series.refused[100]), (0, 2));
    assert_eq!(report.series.accepted.iter().sum::<u32>(), 200);
    assert_eq!(report.title, "a.example and 1 other host");
}

#[test]
fn holds_and_breakers_become_bands() {
    let mut builder = builder();
    builder.attempted("a.example", at(0), AttemptClass::Refused);
    let key = "a.example";
    builder.event(
        at(10),
        &Event::HoldStarted {
            key,
            until: at(15),
            source: Source::Assumed,
        },
    );
    builder.event(
        at(20),
        &Event::BreakerOpened {
            key,
            until: Some(at(24)),
        },
    );
    builder.event(at(26), &Event::BreakerClosed { key });
    builder.event(at(50), &Event::BreakerOpened { key, until: None });
    builder.event(
        at(1),
        &Event::BreakerOpened {
            key: "unknown.example",
            until: None,
        },
    );
    let host = finish_at(builder, 60).hosts.rows.remove(0);
    let bands: Vec<_> = host
        .bands
        .iter()
        .map(|band| (band.kind, band.from_ms, band.to_ms, band.reason.as_str()))
        .collect();
    assert_eq!(
        bands,
        [
            (BandKind::Held, 10_000, 15_000, "assumed"),
            (BandKind::Open, 20_000, 24_000, "failures"),
            (BandKind::Isolated, 50_000, 60_000, "isolated"),
        ]
    );
    assert_eq!((host.held_ms, host.open_ms), (5000, 14_000));
}

#[test]
fn earlier_urls_are_counted_but_not_over_time() {
    let mut builder = builder();
    let earlier = UrlRecord {
        attempts: 3,
        ..page("http://a.example/1")
    };
    builder.add(&earlier, "a.example", true);
    builder.attempted("a.example", at(1), AttemptClass::Accepted);
    builder.add(&page("http://a.example/2"), "a.example", false);
    let report = finish(builder);
    assert_eq!((report.earlier_urls, report.totals.urls), (1, 2));
    let requests = report.totals.requests;
    assert_eq!((requests.sent, requests.accepted), (4, 1));
    assert_eq!(report.hosts.rows[0].requests, requests);
}

#[test]
fn lists_the_slowest_urls_first() {
    let mut builder = builder();
    for index in 0..1000_u64 {
        let record = UrlRecord {
            latency_ms: Some(index * 7919 % 1000),
            ..page(&format!("http://a.example/{index}"))
        };
        builder.add(&record, "a.example", false);
    }
    let slowest = finish(builder).slowest;
    assert_eq!(slowest.total, 1000);
    let latencies: Vec<_> = slowest.rows.iter().map(|row| row.latency_ms).collect();
    assert_eq!(latencies, (800..1000).rev().collect::<Vec<_>>());
}

#[test]
fn third_parties_name_the_owners_of_known_trackers() {
    let mut builder = builder();
    let party = |host: &str, is_tracker| ThirdParty {
        host: host.to_owned(),
        is_tracker,
    };
    let record = UrlRecord {
        third_parties: vec![
            party("cdn.example", false),
            party("www.google-analytics.com", true),
        ],
        ..page("http://a.example/")
    };
    builder.add(&record, "a.example", false);
    builder.add(&record, "a.example", false);
    let rows = finish(builder).third_parties.rows;
    assert_eq!(
        (rows[0].host.as_str(), rows[0].pages, rows[0].is_tracker),
        ("cdn.example", 2, false)
    );
    assert_eq!(rows[1].owner.as_deref(), Some("Google"));
    assert_eq!(rows[1].category.as_deref(), Some("analytics"));
}

#[test]
fn a_million_urls_stay_within_the_bounds() {
    let mut builder = builder();
    let keys: Vec<_> = (0..20_000)
        .map(|index| format!("h{index}.example"))
        .collect();
    let parties: Vec<_> = (0..30_000)
        .map(|index| {
            vec![ThirdParty {
                host: format!("t{index}.example"),
                is_tracker: false,
            }]
        })
        .collect();
    let types: Vec<_> = (0..500)
        .map(|index| Some(format!("type/{index}")))
        .collect();
    let mut record = page("");
    for index in 0..1_000_000_usize {
        let key = &keys[index % keys.len()];
        record.url.clear();
        _ = write!(
            record.url,
            "http://{key}/{index}/path/path/path/path/path/path/path/path/"
        );
        let title = record.title.get_or_insert_default();
        title.clear();
        _ = write!(title, "Title {}", index % 400_000);
        record.latency_ms = Some(index as u64 % 5000);
        record.content_type.clone_from(&types[index % types.len()]);
        record
            .third_parties
            .clone_from(&parties[index % parties.len()]);
        record.final_url = None;
        (record.status, record.error) = match index % 10 {
            0 => (Some(404), Some(REJECTED)),
            1 => (None, Some(EXHAUSTED)),
            2 => (None, Some(UrlError::RobotsDenied)),
            _ => (Some(200), None),
        };
        if index % 10 == 3 {
            record.final_url = Some(format!("http://{key}/x/{index}"));
        }
        builder.attempted(key, at(index as u64 / 100), AttemptClass::Accepted);
        builder.add(&record, key, false);
    }
    assert!(builder.size() < (40 << 20), "{} bytes", builder.size());
    let report = builder.finish(
        ReportEnd {
            at: at(10_000),
            is_complete: true,
            throttled: 0,
        },
        |url| (0..20).map(|index| format!("{url}?from={index}")).collect(),
    );
    assert_eq!(report.totals.urls, 1_000_000);
    assert_eq!(report.broken_links.total, 100_000);
    assert_eq!(report.broken_links.rows.len(), MAX_ROWS);
    assert!(report.hosts.rows.len() <= MAX_ROWS + MAX_PLOTTED);
    assert_eq!(report.hosts.total, MAX_HOSTS as u64);
    let others = report.other_hosts.as_ref().unwrap();
    assert_eq!(others.urls, 950_000);
    let plotted = report
        .hosts
        .rows
        .iter()
        .filter(|host| host.series.is_some());
    assert!(plotted.count() <= MAX_PLOTTED);
    assert!(report.content_types.is_at_least);
    assert!(report.third_parties.is_at_least);
    let json = serde_json::to_string(&report).unwrap();
    assert!(json.len() < 3_000_000, "{} bytes of JSON", json.len());
    let html = report.to_html();
    assert!(html.len() < 3_000_000, "{} bytes of HTML", html.len());
    assert!(html.contains("Showing 500 of 100,000."));
    let read: Report = serde_json::from_str(&json).unwrap();
    assert_eq!(read.totals, report.totals);
}

#[test]
fn long_hostile_text_stays_within_the_bounds() {
    let mut builder = builder();
    let long = "\u{202e}<script>".repeat(2000);
    for index in 0..2000 {
        let url = format!("http://a.example/{index}/{long}");
        let mut record = failed(&url, Some(404), REJECTED);
        record.message = Some(long.clone());
        record.source = Some(url.clone());
        builder.add(&record, &format!("{index}{long}"), false);
        record.error = None;
        record.title = Some(long.clone());
        record.content_type = Some(long.clone());
        record.final_url = Some(url.clone());
        record.third_parties = vec![ThirdParty {
            host: long.clone(),
            is_tracker: true,
        }];
        builder.add(&record, &long, false);
    }
    let report = builder.finish(
        ReportEnd {
            at: at(1),
            is_complete: false,
            throttled: 0,
        },
        |_| vec![long.clone(); 50],
    );
    let json = serde_json::to_string(&report).unwrap();
    assert!(json.len() < 3_000_000, "{} bytes of JSON", json.len());
    let html = report.to_html();
    assert!(html.len() < 3_000_000, "{} bytes of HTML", html.len());
    assert_eq!(html.matches("<script").count(), 1);
    assert!(!html.contains('\u{202e}'));
}

#[test]
fn a_page_has_no_external_resources_and_no_inline_styles() {
    let mut builder = builder();
    builder.attempted("a.example", at(1), AttemptClass::Accepted);
    builder.add(&page("http://a.example/"), "a.example", false);
    let html = finish(builder).to_html_with_links(&[("JSON", "/r/x.json")]);
    assert!(html.contains("<a href=\"/r/x.json\">JSON</a>"));
    for forbidden in [
        " src=",
        "style=\"",
        "<link",
        "@import",
        "url(",
        " onclick",
        "innerHTML",
    ] {
        assert!(!html.contains(forbidden), "{forbidden}");
    }
    let policy = Report::content_security_policy();
    assert!(
        policy.starts_with("default-src 'none'; script-src 'sha256-"),
        "{policy}"
    );
}

#[test]
fn an_empty_report_is_a_page() {
    let report = finish_at(builder(), 0);
    let html = report.to_html();
    assert!(
        html.contains("0 URLs: 0 fetched. 0 % of 0 requests refused."),
        "{html}"
    );
    assert!(!html.contains("NaN"));
    let json = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
}

#[test]
fn a_page_says_what_is_missing() {
    let mut builder = builder();
    builder.add(&page("http://a.example/"), "a.example", true);
    let end = ReportEnd {
        at: at(1),
        is_complete: false,
        throttled: 0,
    };
    let html = builder.finish(end, |_| Vec::new()).to_html();
    assert!(html.contains("The fetch was interrupted: URLs are left."));
    assert!(html.contains("1 URL was finished before this fetch was resumed."));
}

#[test]
fn reference_names_every_field() {
    const REFERENCE: &str = include_str!("../../../../../docs/reference/report.md");
    let mut builder = builder();
    let long_key = "x".repeat(1000);
    for key in ["a.example", &long_key] {
        builder.attempted(key, at(1), AttemptClass::Accepted);
    }
    let key = "a.example";
    builder.event(at(2), &Event::BreakerOpened { key, until: None });
    let mut record = page("http://a.example/");
    record.title = Some("Home".to_owned());
    record.final_url = Some("http://a.example/x".to_owned());
    record.third_parties = vec![ThirdParty {
        host: "google-analytics.com".to_owned(),
        is_tracker: true,
    }];
    builder.add(&record, key, false);
    record.final_url = Some("http://a.example/y".to_owned());
    builder.add(&record, key, false);
    record.message = Some("message".to_owned());
    for error in [REJECTED, EXHAUSTED, UrlError::RobotsDenied] {
        (record.status, record.error) = (Some(404), Some(error));
        builder.add(&record, key, false);
    }
    let mut report = finish(builder);
    report.hosts.is_at_least = true;
    report.hosts.rows[0].are_bands_joined = true;
    let series = report.hosts.rows[0].series.as_mut().unwrap();
    (series.rate, series.ceiling) = (vec![None], vec![None]);
    let mut names = std::collections::BTreeSet::new();
    collect_names(&serde_json::to_value(&report).unwrap(), &mut names);
    assert!(names.len() > 60, "{names:?}");
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words: std::collections::BTreeSet<_> = REFERENCE.split(|c| !is_word(c)).collect();
    let missing: Vec<_> = names
        .iter()
        .filter(|name| !words.contains(name.as_str()))
        .collect();
    assert!(
        missing.is_empty(),
        "not in docs/reference/report.md: {missing:?}"
    );
}

fn collect_names(value: &serde_json::Value, names: &mut std::collections::BTreeSet<String>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                names.insert(name.clone());
                collect_names(value, names);
            }
        }
        serde_json::Value::Array(values) => {
            for value in values {
                collect_names(value, names);
            }
        }
        _ => {}
    }
}
