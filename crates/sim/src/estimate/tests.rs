//! Logs of servers whose limit is known, and what is estimated from them.

use super::*;
use crate::scenario::Draft;
use policy::random::Random;

/// A server with a limit, asked at these times by clients that do not care.
fn log(limit: Limit, times: impl Iterator<Item = f64>) -> Vec<String> {
    let mut taken = 0.0_f64;
    let mut last = 0.0_f64;
    let mut lines = Vec::new();
    for at in times {
        let is_accepted = match limit {
            Limit::Bucket { rate, burst } => {
                taken = (taken - rate * (at - last)).max(0.0);
                taken + 1.0 <= burst
            }
            Limit::Window {
                quota,
                period_s,
                phase_s,
            } => {
                let number = |at: f64| ((at + phase_s) / period_s).floor();
                if number(at) > number(last) {
                    taken = 0.0;
                }
                taken < quota as f64
            }
        };
        last = at;
        taken += f64::from(u8::from(is_accepted));
        let status = if is_accepted { 200 } else { 429 };
        let latency = if is_accepted { 80 } else { 15 };
        lines.push(line(at, status, latency));
    }
    lines
}

fn line(at: f64, status: u16, latency: u32) -> String {
    let (minutes, seconds) = ((at / 60.0).floor(), at % 60.0);
    let hours = (minutes / 60.0).floor();
    let minutes = minutes % 60.0;
    format!(
        r#"{{"time":"2026-11-15T{hours:02}:{minutes:02}:{seconds:06.3}Z","route":"llm","status":{status},"latency_ms":{latency}}}"#
    )
}

/// Requests at random times, so many per second.
fn arrivals(rate: f64, until: f64) -> impl Iterator<Item = f64> {
    let mut random = Random::from_seed(7);
    let mut at = 0.0;
    std::iter::from_fn(move || {
        at += -(1.0 - random.unit()).ln() / rate;
        (at < until).then_some(at)
    })
}

fn estimate_of(lines: &[String]) -> Estimate {
    let mut reader = AccessLogReader::new(None);
    for line in lines {
        reader.read(line).unwrap();
    }
    reader.estimate().unwrap()
}

/// Every estimate is a scenario that can be run.
fn check_scenario(estimate: &Estimate) -> String {
    let text = estimate.scenario("access.log");
    let draft = Draft {
        file: Some(("estimated".to_owned(), text.clone().into_bytes())),
        ..Draft::default()
    };
    let variants = draft.variants();
    assert!(variants.is_ok(), "{text}\n{variants:?}");
    text
}

fn is_near(value: f64, expected: f64, share: f64) -> bool {
    (value - expected).abs() <= expected * share
}

#[test]
fn finds_the_rate_and_the_burst_of_a_bucket() {
    for (rate, burst, offered) in [(10.0, 5.0, 14.0), (50.0, 20.0, 60.0), (2.0, 10.0, 3.0)] {
        let limit = Limit::Bucket { rate, burst };
        let estimate = estimate_of(&log(limit, arrivals(offered, 300.0)));
        let Limit::Bucket {
            rate: found,
            burst: found_burst,
        } = estimate.limit.limit
        else {
            panic!("{:?}", estimate.limit);
        };
        assert!(is_near(found, rate, 0.1), "{found} of {rate}");
        assert!(is_near(found_burst, burst, 0.5), "{found_burst} of {burst}");
        assert!(estimate.limit.explained > Some(0.9), "{:?}", estimate.limit);
        assert!(is_near(estimate.offered_per_second(), offered, 0.1));
        check_scenario(&estimate);
    }
}

#[test]
fn finds_the_quota_and_the_period_of_a_window() {
    for (quota, period_s, phase_s, offered) in [
        (600, 60.0, 0.0, 15.0),
        (100, 10.0, 3.0, 20.0),
        (1000, 300.0, 120.0, 5.0),
    ] {
        let limit = Limit::Window {
            quota,
            period_s,
            phase_s,
        };
        let estimate = estimate_of(&log(limit, arrivals(offered, period_s * 8.0)));
        let Limit::Window {
            quota: found,
            period_s: found_period,
            ..
        } = estimate.limit.limit
        else {
            panic!("{:?} of {limit:?}", estimate.limit);
        };
        assert!(is_near(found_period, period_s, 1e-9), "{found_period}");
        assert!(is_near(found as f64, quota as f64, 0.02), "{found}");
        assert!(
            estimate.limit.explained > Some(0.95),
            "{:?}",
            estimate.limit
        );
        check_scenario(&estimate);
    }
}

#[test]
fn without_refusals_the_highest_rate_is_a_lower_bound() {
    let limit = Limit::Bucket {
        rate: 1e6,
        burst: 1e6,
    };
    let estimate = estimate_of(&log(limit, arrivals(8.0, 120.0)));
    assert_eq!(estimate.limit.explained, None);
    let Limit::Bucket { rate, .. } = estimate.limit.limit else {
        panic!("{:?}", estimate.limit);
    };
    assert!((8.0..16.0).contains(&rate), "{rate}");
    assert!(check_scenario(&estimate).contains("No limit was met"));
}

#[test]
fn latencies_and_failures_are_those_of_the_log() {
    let mut lines: Vec<String> = (0..90)
        .map(|second| line(f64::from(second), 200, 100))
        .collect();
    lines.extend((90..100).map(|second| line(f64::from(second), 502, 3000)));
    let estimate = estimate_of(&lines);
    assert!(is_near(estimate.latency.unwrap().mean_s, 0.1, 0.001));
    assert_eq!(estimate.answers.failed, 10);
    let text = check_scenario(&estimate);
    for expected in [
        "latency = \"100ms\"",
        "failure_rate = 0.1",
        "backlog = \"1/s\"",
    ] {
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn requests_of_several_routes_need_a_choice() {
    let lines = [
        r#"{"time":"2026-11-15T06:00:00Z","route":"a","status":200}"#,
        r#"{"time":"2026-11-15T06:00:01Z","route":"b","status":200}"#,
        r#"{"time":"2026-11-15T06:00:02Z","route":"b","status":200}"#,
    ];
    let read = |route: Option<&str>| {
        let mut reader = AccessLogReader::new(route.map(str::to_owned));
        lines.iter().for_each(|line| reader.read(line).unwrap());
        reader.estimate()
    };
    let routes = vec![("b".to_owned(), 2), ("a".to_owned(), 1)];
    assert_eq!(read(None), Err(EstimateError::SeveralRoutes(routes)));
    assert_eq!(read(Some("b")).unwrap().requests, 2);
    assert_eq!(read(Some("a")), Err(EstimateError::TooFew(1)));
}

#[test]
fn the_name_of_a_log_stays_in_its_comment() {
    let lines: Vec<String> = (0..3)
        .map(|second| line(f64::from(second), 200, 1))
        .collect();
    let text = estimate_of(&lines).scenario("a\nkind = 1");
    assert!(text.starts_with("# Estimated from a kind = 1:"), "{text}");
}
