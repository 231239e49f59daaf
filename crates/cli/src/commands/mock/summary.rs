//! What a mock is set to do and what it has done, for people.

use std::time::Duration;

use app::mock::{MockSettings, MockStats, UNLIMITED};
use policy::duration::{Exact, Rounded};
use policy::time::Timestamp;
use sim::upstream::{Ban, Kind, Outage, Step, UpstreamSettings};

use crate::output::columns;

/// What it is set to do, a line for each setting.
pub(super) fn text(settings: &MockSettings) -> String {
    let mut rows = Rows::default();
    match &settings.upstream {
        Some(upstream) => {
            rows.push("limit", limit(upstream.kind));
            for kind in &settings.further {
                rows.push("and", limit(*kind));
            }
            if let Some(kind) = upstream.cost {
                rows.push("cost", limit(kind));
            }
            rows.upstream(upstream);
        }
        None => rows.push("limit", limit(UNLIMITED)),
    }
    if settings.script.is_some() {
        rows.push(
            "script",
            "requests within the limit get the scripted responses",
        );
    }
    rows.push("see", "/_mock/stats, /_mock/log");
    columns(&rows.0)
}

#[derive(Default)]
struct Rows(Vec<Vec<String>>);

impl Rows {
    fn push(&mut self, name: &str, what: impl Into<String>) {
        self.0.push(vec![format!("  {name}"), what.into()]);
    }

    fn upstream(&mut self, upstream: &UpstreamSettings) {
        for Step { at, kind } in &upstream.steps {
            self.push("step", format!("{} after {}", limit(*kind), since(*at)));
        }
        if let Some(headers) = headers(upstream) {
            self.push("headers", headers);
        }
        self.push("latency", latency(upstream));
        if upstream.failure_rate > 0.0 {
            let percent = percent(upstream.failure_rate);
            self.push("fails", format!("{percent} % at random, with 500"));
        }
        for outage in &upstream.outages {
            self.push("outage", outage_text(outage));
        }
        if let Some(Ban {
            excesses,
            within,
            length,
        }) = upstream.ban
        {
            let (within, length) = (Exact(within), Exact(length));
            self.push(
                "ban",
                format!("{length} after {excesses} refusals in {within}"),
            );
        }
    }
}

fn limit(kind: Kind) -> String {
    match kind {
        kind if kind == UNLIMITED => "none".to_owned(),
        Kind::Bucket { rate, burst } => format!("token bucket of {rate}/s, {burst} at once"),
        Kind::Window { quota, period, .. } => {
            format!("{quota} in each window of {}", Exact(period))
        }
        Kind::Slots {
            slots,
            service,
            queue,
        } => {
            let service = Exact(service);
            format!("{slots} slots of {service}, {queue} may queue")
        }
    }
}

fn headers(upstream: &UpstreamSettings) -> Option<&'static str> {
    match (upstream.retry_after, upstream.headers) {
        (true, true) => Some("Retry-After and X-RateLimit headers"),
        (true, false) => Some("Retry-After"),
        (false, true) => Some("X-RateLimit headers"),
        (false, false) => None,
    }
}

fn latency(upstream: &UpstreamSettings) -> String {
    let ways = upstream.network * 2;
    let served = match upstream.kind {
        Kind::Slots { service, .. } => service,
        Kind::Bucket { .. } | Kind::Window { .. } => upstream.latency,
    };
    let refused = Exact(upstream.refuse_latency + ways);
    let spread = upstream.latency_spread;
    match served + ways {
        Duration::ZERO if upstream.refuse_latency.is_zero() => "none".to_owned(),
        Duration::ZERO => format!("none, {refused} for a refusal"),
        served => format!(
            "{} (spread {spread}), {refused} for a refusal",
            Exact(served)
        ),
    }
}

fn outage_text(outage: &Outage) -> String {
    let (from, to) = (since(outage.from), since(outage.to));
    let silent = percent(outage.timeout_share);
    let others = match outage.status {
        Some(status) => format!("get {status}"),
        None => "are reset".to_owned(),
    };
    format!("{from} to {to}: {silent} % get no response, others {others}")
}

/// Rounded, so that no digits of the binary fraction show.
fn percent(share: f64) -> f64 {
    (share * 1e6).round() / 1e4
}

fn since(at: Timestamp) -> Exact {
    Exact(at.since(Timestamp::ZERO))
}

/// What it has done.
pub(super) fn counts(stats: &MockStats) -> String {
    let mut text = format!(
        "received {}: accepted {}, refused {}, failed {}",
        stats.received, stats.accepted, stats.refused, stats.failed
    );
    if stats.early > 0 {
        text.push_str(&format!("; {} before a Retry-After had ended", stats.early));
    }
    if stats.bans > 0 {
        text.push_str(&format!("; {} bans", stats.bans));
    }
    let uptime = Rounded(Duration::from_millis(stats.uptime_ms));
    format!(
        "{text}; at most {} at once, in {uptime}\n",
        stats.max_in_flight
    )
}
