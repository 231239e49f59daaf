//! Scripted responses under `aimd`: rates and breaker are those of `tidegate replay`.

use std::time::Duration;

use app::mock::{MockSettings, Script};
use policy::breaker::BreakerState;
use serde_json::{Value, json};
use sim::replay::{Policy, ReplayOptions};

use crate::virtual_time::{Observed, VirtualFetch};

/// What an attempt did to its gate.
#[derive(Debug, PartialEq)]
struct AfterResponse {
    rate: f64,
    is_open: bool,
}

#[test]
fn rates_and_breaker_after_scripted_responses_are_those_of_replay() {
    let script = "200,200@2500ms,429,200,503*5";
    let mock = MockSettings {
        script: Some(Script::parse(script).unwrap()),
        ..MockSettings::default()
    };
    // One request at a time, so that responses come in the order of the script.
    let settings = "[gate]\nstrategy = \"aimd\"\n[fetch]\nrobots = false\nconcurrency = 1\n";
    let fetch = VirtualFetch::new(settings, vec![mock]);
    let key = fetch.mocks[0].address().to_string();
    let urls: Vec<String> = (0..9).map(|n| format!("http://{key}/{n}")).collect();
    let (mut seen, mut is_late) = (Vec::new(), true);
    fetch.run(&urls, || {
        let Some(view) = fetch.core.limiter().gate(&key) else {
            return Observed::Nothing;
        };
        let gate = view.gate;
        let settled = (gate.succeeded + gate.throttled + gate.failed) as usize;
        if settled > seen.len() {
            assert_eq!(settled, seen.len() + 1, "one at a time");
            seen.push(AfterResponse {
                rate: gate.rate,
                is_open: gate.breaker == BreakerState::Open,
            });
        }
        let stats = fetch.mocks[0].stats();
        if seen.last().is_some_and(|last| last.is_open) {
            Observed::Enough
        } else if (stats.received, stats.in_flight) == (2, 1) && std::mem::take(&mut is_late) {
            Observed::Late(Duration::from_millis(2500))
        } else {
            Observed::Nothing
        }
    });
    let log = fetch.mocks[0].log();
    let attempts = log.iter().map(|entry| Attempt {
        at: entry.at.as_secs_f64(),
        latency_ms: entry.took.unwrap().as_millis(),
        status: entry.status.unwrap(),
    });
    let attempts: Vec<Attempt> = attempts.collect();
    let statuses: Vec<u16> = attempts.iter().map(|attempt| attempt.status).collect();
    assert_eq!(statuses, [200, 200, 429, 200, 503, 503, 503, 503, 503]);
    assert_eq!(seen, replay(&attempts));
    assert_eq!(seen.iter().filter(|after| after.is_open).count(), 1);
}

/// An attempt as the mock saw it.
struct Attempt {
    at: f64,
    latency_ms: u128,
    status: u16,
}

/// What `tidegate replay --policy gate --set strategy=aimd` says about the same outcomes.
fn replay(attempts: &[Attempt]) -> Vec<AfterResponse> {
    let options = ReplayOptions::default();
    let settings = [("strategy", "aimd")];
    let mut replay = Policy::Gate.start(settings, None, options).unwrap();
    let mut events = attempts.iter().enumerate().flat_map(|(index, attempt)| {
        let acquire = json!({"at": attempt.at, "acquire": "host"});
        let settle = json!({
            "at": attempt.at + attempt.latency_ms as f64 / 1000.0,
            "settle": index + 1,
            "status": attempt.status,
            "latency_ms": u64::try_from(attempt.latency_ms).unwrap(),
        });
        [acquire, settle]
    });
    let mut output = Vec::new();
    events
        .try_for_each(|event| replay.line(&event.to_string(), &mut output))
        .unwrap();
    let output = String::from_utf8(output).unwrap();
    let lines = output
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let settled = lines.filter(|line| {
        assert_ne!(line["decision"], "refuse", "{line}");
        line.get("verdict").is_some()
    });
    let settled = settled.map(|line| AfterResponse {
        rate: line["rate"].as_f64().unwrap(),
        is_open: line["breaker"] == "open",
    });
    settled.collect()
}

#[test]
fn waits_over_throttled_after_are_counted() {
    let fetch = VirtualFetch::new(
        "[gate]\nstrategy = \"fixed\"\ninitial_rate = 5.0\nmax_rate = 5.0\n[fetch]\nrobots = false\n",
        vec![MockSettings::default()],
    );
    let urls: Vec<String> = (0..20)
        .map(|n| format!("{}/{n}", fetch.mocks[0].url()))
        .collect();
    let (summary, records) = fetch.run(&urls, || Observed::Nothing);
    assert_eq!((summary.counts.done, summary.counts.failed), (20, 0));
    // All but the first, which takes the token that was saved.
    assert_eq!(summary.totals.throttled, 19);
    assert!(
        records[1..].iter().all(|record| record.wait_ms >= 100),
        "{records:#?}"
    );
}
