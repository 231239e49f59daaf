//! The summary of the demo, for people and for programs.

use std::time::Duration;

use app::demo::{Outcome, UpstreamOutcome};
use serde_json::{Value, json};

use super::draw::{per_second, percent, seconds};

pub(super) fn text(outcome: &Outcome) -> String {
    let mut text = format!(
        "\nLearned in {}, without being given a limit:\n",
        seconds(outcome.elapsed)
    );
    for learned in &outcome.upstreams {
        text.push_str(&sentence(learned));
    }
    text
}

fn sentence(learned: &UpstreamOutcome) -> String {
    let within = match learned.within {
        Some(within) => format!("within {}", seconds(within)),
        None => "and was still learning".to_owned(),
    };
    let found = format!(
        "found {} of {} {within}",
        per_second(learned.found),
        per_second(learned.really)
    );
    let refused = percent(learned.refused_ratio());
    let naive = percent(learned.naive.refused_ratio);
    let mut text = format!("{found}; {refused} refused (naive retries: {naive})");
    // An upstream that queues instead of refusing becomes slow.
    if learned.naive.latency > learned.latency * 3 / 2 {
        let (ours, theirs) = (millis(learned.latency), millis(learned.naive.latency));
        text.push_str(&format!("; responses take {ours} (naive: {theirs})"));
    }
    format!("  {:<8} {text}\n", learned.name)
}

fn millis(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

pub(super) fn json(outcome: &Outcome) -> Value {
    let upstreams: Vec<Value> = outcome.upstreams.iter().map(record).collect();
    let steps = outcome.steps.iter().map(|step| {
        let state = step.state.as_str();
        json!({ "n": step.n, "title": step.title, "text": step.text, "state": state })
    });
    let steps: Vec<Value> = steps.collect();
    json!({
        "elapsed_s": rounded(outcome.elapsed.as_secs_f64()),
        "gateway": format!("http://{}", outcome.gateway),
        "admin": format!("http://{}", outcome.admin),
        "steps": steps,
        "upstreams": upstreams,
    })
}

fn record(learned: &UpstreamOutcome) -> Value {
    json!({
        "name": learned.name,
        "about": learned.about,
        "really_per_second": learned.really,
        "found_per_second": rounded(learned.found),
        "within_s": learned.within.map(|within| rounded(within.as_secs_f64())),
        "initial_per_second": learned.initial,
        "learned_per_second": rounded(learned.learned),
        "received": learned.received,
        "accepted": learned.accepted,
        "refused": learned.refused,
        "refused_ratio": rounded(learned.refused_ratio()),
        "early_after_hint": learned.early,
        "unserved": learned.unserved,
        "latency_ms": rounded(learned.latency.as_secs_f64() * 1000.0),
        "naive_refused_ratio": rounded(learned.naive.refused_ratio),
        "naive_latency_ms": rounded(learned.naive.latency.as_secs_f64() * 1000.0),
    })
}

/// Further digits are noise.
fn rounded(number: f64) -> f64 {
    (number * 1e4).round() / 1e4
}
