//! The upstreams of the goals: shipped scenarios, and some for single goals.

use std::error::Error;

use sim::scenario::{Scenario, Shipped};

/// All names, in the order of the table.
pub(crate) fn names() -> Vec<String> {
    let shipped = SHIPPED.iter().map(|name| (*name).to_owned());
    let own = OWN.iter().map(|(name, _)| (*name).to_owned());
    shipped
        .chain(own)
        .chain(tiny().map(|(name, _)| name))
        .collect()
}

/// The scenario with this name.
pub(crate) fn scenario(name: &str) -> Result<Scenario, Box<dyn Error>> {
    if let Some(shipped) = Shipped::find(name) {
        return Ok(shipped.scenario());
    }
    let own = OWN.iter().find(|(known, _)| *known == name);
    let text = match own {
        Some((_, text)) => (*text).to_owned(),
        None => tiny()
            .find(|(known, _)| known == name)
            .map(|(_, text)| text)
            .ok_or_else(|| format!("no upstream `{name}`"))?,
    };
    Scenario::read(name, text.as_bytes()).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        problems.join("\n").into()
    })
}

const SHIPPED: [&str; 12] = [
    "o1", "o2", "o3", "o4", "o5", "o6", "o7", "o8", "o8-4", "o8-8", "o8-16", "o9",
];

const OWN: &[(&str, &str)] = &[
    (
        "ban",
        r#"
[upstream]
kind = "bucket"
rate = 50
burst = 10
ban = { excesses = 5, within = "30s", for = "60s" }
"#,
    ),
    (
        "ban-step",
        r#"
[upstream]
kind = "bucket"
rate = 50
burst = 10
steps = [{ at = "60s", rate = 20 }]
outage = [{ from = "60s", to = "90s", timeout_share = 0.5, timeout = "5s" }]
ban = { excesses = 5, within = "30s", for = "60s" }
"#,
    ),
    (
        "share",
        r#"
duration = "600s"
[upstream]
kind = "window"
quota = 600
period = "60s"
[[client]]
count = 4
start = "0s..20s"
"#,
    ),
    (
        "share-hint",
        r#"
duration = "600s"
[upstream]
kind = "window"
quota = 600
period = "60s"
retry_after = true
[[client]]
count = 4
start = "0s..20s"
"#,
    ),
];

/// Low rates with a burst of 1 and of 10, each with at least 150 requests after the first two minutes.
fn tiny() -> impl Iterator<Item = (String, String)> {
    let rates: [f64; 5] = [0.1, 0.2, 0.35, 0.5, 1.0];
    rates.into_iter().flat_map(|rate| {
        [1, 10].map(|burst| {
            let duration = (120.0 + 150.0 / rate).max(600.0).ceil();
            let text = format!(
                "duration = \"{duration}s\"\n\
                 [upstream]\nkind = \"bucket\"\nrate = {rate}\nburst = {burst}\n"
            );
            (format!("{rate}/s-{burst}"), text)
        })
    })
}
