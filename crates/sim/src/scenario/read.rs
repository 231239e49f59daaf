//! Scenario files: from TOML to a [`Scenario`], or to everything that is wrong with it.

use std::time::Duration;

use policy::duration::Exact;
use policy::setting;
use policy::time::Timestamp;

use super::section::{Problems, Section};
use super::{Scenario, client, kind};
use crate::client::{ClientSettings, Strategy};
use crate::upstream::{Ban, Outage, UpstreamSettings};
use crate::written::document::{self, Table};
use crate::written::problem::{Place, Problem};

impl Scenario {
    /// Reads a scenario; `file` is what messages call it.
    ///
    /// ```
    /// use sim::scenario::Scenario;
    ///
    /// let text = "[upstream]\nkind = \"bucket\"\nrate = -5\n";
    /// let problems = Scenario::read("a.toml", text.as_bytes()).unwrap_err();
    /// assert_eq!(
    ///     problems[0].to_string(),
    ///     "a.toml:3:8: `upstream.rate` is `-5`, \
    ///      expected a number of requests per second above 0 and up to 1000000"
    /// );
    /// ```
    ///
    /// # Errors
    ///
    /// Every problem, in the order of the file.
    pub fn read(file: &str, bytes: &[u8]) -> Result<Self, Vec<Problem>> {
        let (table, mut problems) = parse(file, bytes)?;
        let (scenario, found) = judge(&table, beginning(file));
        problems.extend(found);
        problems.sort_by(|a, b| a.place.cmp(&b.place));
        match scenario {
            Some(scenario) if problems.is_empty() => Ok(scenario),
            _ => Err(problems),
        }
    }
}

/// What is written, and what is wrong with the writing; only the latter if it makes no sense to
/// judge the former.
pub(super) fn parse(file: &str, bytes: &[u8]) -> Result<(Table, Vec<Problem>), Vec<Problem>> {
    let mut problems = Vec::new();
    let parsed = document::parse(file, bytes, &mut problems);
    if parsed.is_whole {
        Ok((parsed.table, problems))
    } else {
        Err(problems)
    }
}

/// The scenario that is written, and everything that is wrong with it; `place` is where something
/// that is missing altogether should have been.
pub(super) fn judge(table: &Table, place: Place) -> (Option<Scenario>, Vec<Problem>) {
    let problems = Problems::default();
    let scenario = scenario(&Section::root(&problems, table, place));
    (scenario, problems.into_inner())
}

pub(super) fn beginning(file: &str) -> Place {
    Place::File {
        file: file.into(),
        line: 1,
        column: 1,
    }
}

fn scenario(root: &Section<'_>) -> Option<Scenario> {
    root.allow(&["duration", "seed", "upstream", "client"]);
    let duration = root.text("duration", length);
    let seed = root.whole("seed", 0, u64::MAX);
    let clients: Vec<_> = root.sections("client").iter().map(client::read).collect();
    let upstream = upstream(&root.section("upstream")?);
    let mut clients: Vec<_> = clients.into_iter().collect::<Option<_>>()?;
    if clients.is_empty() {
        clients.push(ClientSettings::of(Strategy::Adaptive));
    }
    let usual = Scenario::of(upstream?, clients);
    Some(Scenario {
        duration: duration.unwrap_or(usual.duration),
        seed: seed.unwrap_or(usual.seed),
        ..usual
    })
}

/// A month is simulated in minutes, and nobody learns more from two.
fn length(text: &str) -> Result<Duration, String> {
    let most = Duration::from_secs(31 * 86_400);
    let length = setting::positive(text)?;
    if length > most {
        return Err(format!("a duration of at most {}", Exact(most)));
    }
    Ok(length)
}

fn upstream(section: &Section<'_>) -> Option<UpstreamSettings> {
    let name = kind::name(section);
    section.allow(&[&COMMON, kind::keys(name)].concat());
    let kind = name.map(|name| kind::read(name, section));
    let steps = kind::steps(name, kind.flatten(), section);
    let outages = outages(section);
    let ban = section.has("ban").then(|| ban(section));
    let usual = UpstreamSettings::of(kind::USUAL);
    let settings = UpstreamSettings {
        retry_after: section.switch("retry_after").unwrap_or(usual.retry_after),
        headers: section.switch("headers").unwrap_or(usual.headers),
        latency: section.duration("latency").unwrap_or(usual.latency),
        latency_spread: spread(section).unwrap_or(usual.latency_spread),
        refuse_latency: section
            .duration("refuse_latency")
            .unwrap_or(usual.refuse_latency),
        network: section.duration("network").unwrap_or(usual.network),
        failure_rate: share(section, "failure_rate").unwrap_or(usual.failure_rate),
        steps,
        outages,
        ban: ban.flatten(),
        ..usual
    };
    Some(UpstreamSettings {
        kind: kind??,
        ..settings
    })
}

const COMMON: [&str; 11] = [
    "kind",
    "retry_after",
    "headers",
    "latency",
    "latency_spread",
    "refuse_latency",
    "network",
    "failure_rate",
    "steps",
    "outage",
    "ban",
];

pub(super) const A_DURATION: &str = "a duration such as `500ms`, `30s` or `5m`";

/// At five, one in a hundred takes longer than everything else together.
fn spread(section: &Section<'_>) -> Option<f64> {
    let fits = |spread| (0.0..=5.0).contains(&spread);
    section.number("latency_spread", fits, "a number from 0 to 5")
}

fn share(section: &Section<'_>, name: &str) -> Option<f64> {
    section.number(
        name,
        |share| (0.0..=1.0).contains(&share),
        "a share from 0 to 1",
    )
}

fn outages(section: &Section<'_>) -> Vec<Outage> {
    let mut outages: Vec<Outage> = Vec::new();
    for section in section.sections("outage") {
        let Some(outage) = outage(&section) else {
            continue;
        };
        let overlaps = |other: &&Outage| outage.from < other.to && other.from < outage.to;
        if let Some(other) = outages.iter().find(overlaps) {
            let shown = |at: Timestamp| Exact(at.since(Timestamp::ZERO));
            let (from, to) = (shown(other.from), shown(other.to));
            section.expected(
                "from",
                format!("an outage apart from that of {from} to {to}"),
            );
        }
        outages.push(outage);
    }
    outages.sort_by_key(|outage| outage.from);
    outages
}

fn outage(section: &Section<'_>) -> Option<Outage> {
    section.allow(&["from", "to", "timeout_share", "timeout", "status"]);
    section.require("from", A_DURATION);
    section.require("to", A_DURATION);
    let timeout_share = share(section, "timeout_share");
    let timeout = section.positive_duration("timeout");
    let status = section.whole("status", 400, 599);
    let usual_share = if status.is_some() { 0.0 } else { 0.5 };
    let (from, to) = (section.duration("from"), section.duration("to"));
    let (from, to) = (from?, to?);
    if to <= from {
        section.expected("to", format!("later than `from` ({})", Exact(from)));
        return None;
    }
    Some(Outage {
        from: Timestamp::ZERO + from,
        to: Timestamp::ZERO + to,
        timeout_share: timeout_share.unwrap_or(usual_share),
        timeout: timeout.unwrap_or(Duration::from_secs(5)),
        status: status.and_then(|status| u16::try_from(status).ok()),
    })
}

fn ban(section: &Section<'_>) -> Option<Ban> {
    let section = section.section("ban")?;
    section.allow(&["excesses", "within", "for"]);
    section.require("excesses", "a whole number of refused requests");
    section.require("within", A_DURATION);
    section.require("for", A_DURATION);
    let excesses = section.whole("excesses", 1, 1_000_000);
    let within = section.positive_duration("within");
    let length = section.positive_duration("for");
    Some(Ban {
        excesses: u32::try_from(excesses?).ok()?,
        within: within?,
        length: length?,
    })
}
