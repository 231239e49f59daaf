//! What the demo came to, for people and for programs.

use app::demo::{Learned, Outcome};
use serde_json::{Value, json};

use super::draw::{per_second, percent, seconds};

pub(super) fn text(outcome: &Outcome) -> String {
    let mut text = format!(
        "\nWhat was learned in {}, without being told:\n",
        seconds(outcome.elapsed)
    );
    for learned in &outcome.upstreams {
        text.push_str(&sentence(learned));
    }
    text
}

fn sentence(learned: &Learned) -> String {
    let (found, really) = (per_second(learned.found), learned.really);
    let within = match learned.within {
        Some(within) => format!("within {}", seconds(within)),
        None => "and was still on its way".to_owned(),
    };
    let (refused, naive) = (
        percent(learned.refused_ratio()),
        percent(learned.naive_refused_ratio),
    );
    let name = learned.name;
    format!(
        "  {name:<8} found {found} of {really}/s {within}; {refused} refused (naive retries: {naive})\n"
    )
}

pub(super) fn json(outcome: &Outcome) -> String {
    let upstreams: Vec<Value> = outcome.upstreams.iter().map(record).collect();
    let record = json!({
        "elapsed_s": rounded(outcome.elapsed.as_secs_f64()),
        "gateway": format!("http://{}", outcome.gateway),
        "admin": format!("http://{}", outcome.admin),
        "upstreams": upstreams,
    });
    format!("{record}\n")
}

fn record(learned: &Learned) -> Value {
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
        "naive_refused_ratio": rounded(learned.naive_refused_ratio),
    })
}

/// Digits beyond these are chance.
fn rounded(number: f64) -> f64 {
    (number * 1e4).round() / 1e4
}
