//! A scenario in one line.

use std::fmt::Write;
use std::time::Duration;

use policy::time::Timestamp;

use crate::draw::number;
use crate::load::Backlog;
use crate::scenario::Scenario;
use crate::upstream::{Kind, UpstreamSettings};

/// A scenario in one line: limit, hints, latencies, troubles, clients, duration.
pub fn describe(scenario: &Scenario) -> String {
    let upstream = &scenario.upstream;
    let mut line = limit(&upstream.kind);
    for (is_set, name) in [
        (upstream.retry_after, "Retry-After"),
        (upstream.headers, "headers"),
    ] {
        if is_set {
            _ = write!(line, ", {name}");
        }
    }
    if !matches!(upstream.kind, Kind::Slots { .. }) {
        _ = write!(line, ", latency {}", millis(upstream.latency));
    }
    _ = write!(line, ", spread {}", number(upstream.latency_spread));
    _ = write!(line, ", network {}", millis(upstream.network));
    troubles(upstream, &mut line);
    for client in &scenario.clients {
        if client.count > 1 {
            _ = write!(line, ", {} clients", client.count);
        }
        if client.backlog != Backlog::Endless {
            _ = write!(line, ", backlog {}", client.backlog);
        }
    }
    _ = write!(line, ", {}s", scenario.duration.as_secs());
    line
}

fn troubles(upstream: &UpstreamSettings, line: &mut String) {
    if upstream.failure_rate > 0.0 {
        let share = number(100.0 * upstream.failure_rate);
        _ = write!(line, ", {share} % fail");
    }
    for step in &upstream.steps {
        let to = match step.kind {
            Kind::Bucket { rate, .. } => format!("{}/s", number(rate)),
            Kind::Window { quota, .. } => quota.to_string(),
            Kind::Slots { slots, .. } => slots.to_string(),
        };
        _ = write!(line, ", to {to} at {}", moment(step.at));
    }
    for outage in &upstream.outages {
        let (from, to) = (moment(outage.from), moment(outage.to));
        _ = write!(line, ", outage {from}..{to}");
    }
    if let Some(ban) = &upstream.ban {
        let (within, length) = (ban.within.as_secs(), ban.length.as_secs());
        let excesses = ban.excesses;
        _ = write!(line, ", ban {excesses} in {within}s for {length}s");
    }
}

fn limit(kind: &Kind) -> String {
    match kind {
        Kind::Bucket { rate, burst } => {
            format!("bucket {}/s burst {}", number(*rate), number(*burst))
        }
        Kind::Window { quota, period, .. } => {
            format!("window {quota} in {}s", number(period.as_secs_f64()))
        }
        Kind::Slots {
            slots,
            service,
            queue,
        } => format!("slots {slots} x {} queue {queue}", millis(*service)),
    }
}

fn millis(duration: Duration) -> String {
    format!("{}ms", number(1e3 * duration.as_secs_f64()))
}

fn moment(at: Timestamp) -> String {
    format!("{}s", at.seconds_since(Timestamp::ZERO).round())
}
