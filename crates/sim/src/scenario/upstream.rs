//! `[upstream]`: its limit, latencies and failures.

use std::ops::Bound;
use std::time::Duration;

use config::Reader;
use policy::duration::Exact;
use policy::setting::{Kind, Setting};
use policy::time::Timestamp;

use crate::upstream::{
    Ban, Kind as Limit, Outage, Step, UpstreamOptions, UpstreamSettings, UpstreamValues,
};

policy::settings! {
    struct LimitOptions {
        /// How the upstream limits.
        kind: LimitKind = none, LimitKind::KIND;
    }

    struct BucketOptions;
    struct BucketValues(pub(super)) {
        /// Tokens per second.
        rate: f64 = none, RATE;
        /// Tokens that it holds.
        burst: f64 = "10", Kind::number("a number of requests", 1.0, 1e9);
    }

    struct WindowOptions;
    struct WindowValues(pub(super)) {
        /// Requests in a window.
        quota: u64 = none, Kind::whole(1, 1_000_000_000);
        /// Length of a window.
        period: Duration = none, Kind::POSITIVE;
        /// How far into a window the simulation begins.
        phase: Duration = "0s", Kind::DURATION;
    }

    struct SlotsOptions;
    struct SlotsValues(pub(super)) {
        /// Requests served at once.
        slots: u32 = none, Kind::whole(1, 100_000);
        /// Mean time to serve one.
        service: Duration = none, Kind::POSITIVE;
        /// How many may wait for a slot.
        queue: u32 = "100", Kind::whole(0, 10_000_000);
    }

    struct StepOptions {
        /// When the limit changes.
        at: Duration = none, Kind::DURATION;
    }

    struct OutageOptions;
    struct OutageValues(pub(super)) {
        /// Its first instant.
        from: Duration = none, Kind::DURATION;
        /// The first instant after it.
        to: Duration = none, Kind::DURATION;
        /// The share of requests that get no response at all.
        timeout_share: f64 = none, Kind::number("a share", 0.0, 1.0);
        /// After how long a client gives up on those.
        timeout: Duration = "5s", Kind::POSITIVE;
        /// The status of all other responses; without it connections are refused.
        status: u16 = none, Kind::whole(400, 599);
    }

    struct BanOptions {
        /// So many 429s …
        excesses: u32 = none, Kind::whole(1, 1_000_000);
        /// … in less than this …
        within: Duration = none, Kind::POSITIVE;
        /// … ban a client for so long.
        r#for: Duration = none, Kind::POSITIVE;
    }
}

const RATE: Kind = Kind::Number {
    noun: "a number of requests per second",
    min: Bound::Excluded(0.0),
    max: Bound::Included(1e6),
};

/// A kind of limit by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LimitKind {
    Bucket,
    Window,
    Slots,
}

policy::words! { LimitKind { Bucket = "bucket", Window = "window", Slots = "slots" } }

/// Reads `[upstream]`.
pub(super) fn read(reader: &Reader<'_>) -> Option<UpstreamSettings> {
    reader.require_of::<LimitOptions>(&["kind"]);
    let kind = reader.options::<LimitOptions>().kind;
    let mut names = vec!["kind"];
    names.extend(UpstreamOptions::NAMES);
    names.extend(["steps", "outage", "ban", "cost"]);
    names.extend(limit_names(kind));
    reader.allow(&names);
    match kind {
        Some(LimitKind::Bucket) => reader.require_of::<BucketOptions>(&["rate"]),
        Some(LimitKind::Window) => reader.require_of::<WindowOptions>(&["quota", "period"]),
        Some(LimitKind::Slots) => reader.require_of::<SlotsOptions>(&["slots", "service"]),
        None => {}
    }
    let limit = read_limit(kind, None, reader);
    let steps = read_steps(kind, limit, reader);
    let outages = read_outages(reader);
    let ban = reader.table("ban");
    let ban = ban.is_written().then(|| read_ban(&ban));
    let cost = reader.table("cost");
    let cost = cost.is_written().then(|| read_cost(&cost));
    let values = reader
        .options::<UpstreamOptions>()
        .over(UpstreamValues::default());
    Some(UpstreamSettings {
        cost: cost.flatten(),
        steps,
        outages,
        ban: ban.flatten(),
        ..UpstreamSettings::new(limit?, values)
    })
}

/// The definitions of all settings of limits.
pub(super) fn limit_settings() -> impl Iterator<Item = &'static Setting> {
    let bucket = BucketOptions::SETTINGS.iter();
    let window = WindowOptions::SETTINGS.iter();
    bucket.chain(window).chain(SlotsOptions::SETTINGS)
}

/// The settings of a kind of limit; of all kinds if it is unknown.
fn limit_names(kind: Option<LimitKind>) -> Vec<&'static str> {
    match kind {
        Some(LimitKind::Bucket) => BucketOptions::NAMES.to_vec(),
        Some(LimitKind::Window) => WindowOptions::NAMES.to_vec(),
        Some(LimitKind::Slots) => SlotsOptions::NAMES.to_vec(),
        None => [
            BucketOptions::NAMES,
            WindowOptions::NAMES,
            SlotsOptions::NAMES,
        ]
        .concat(),
    }
}

/// The limit as written, on top of the limit `before` a step. If the kind is unknown, all values
/// are still checked.
fn read_limit(
    kind: Option<LimitKind>,
    before: Option<Limit>,
    reader: &Reader<'_>,
) -> Option<Limit> {
    match kind {
        Some(LimitKind::Bucket) => read_bucket(before, reader),
        Some(LimitKind::Window) => read_window(before, reader),
        Some(LimitKind::Slots) => read_slots(before, reader),
        None => {
            for read in [read_bucket, read_window, read_slots] {
                read(None, reader);
            }
            None
        }
    }
}

fn read_bucket(before: Option<Limit>, reader: &Reader<'_>) -> Option<Limit> {
    let mut base = BucketValues::default();
    if let Some(Limit::Bucket { rate, burst }) = before {
        (base.rate, base.burst) = (Some(rate), burst);
    }
    let values = reader.options::<BucketOptions>().over(base);
    Some(Limit::Bucket {
        rate: values.rate?,
        burst: values.burst,
    })
}

fn read_window(before: Option<Limit>, reader: &Reader<'_>) -> Option<Limit> {
    let mut base = WindowValues::default();
    if let Some(Limit::Window {
        quota,
        period,
        phase,
    }) = before
    {
        (base.quota, base.period, base.phase) = (Some(quota), Some(period), phase);
    }
    let values = reader.options::<WindowOptions>().over(base);
    Some(Limit::Window {
        quota: values.quota?,
        period: values.period?,
        phase: values.phase,
    })
}

fn read_slots(before: Option<Limit>, reader: &Reader<'_>) -> Option<Limit> {
    let mut base = SlotsValues::default();
    if let Some(Limit::Slots {
        slots,
        service,
        queue,
    }) = before
    {
        (base.slots, base.service, base.queue) = (Some(slots), Some(service), queue);
    }
    let values = reader.options::<SlotsOptions>().over(base);
    Some(Limit::Slots {
        slots: values.slots?,
        service: values.service?,
        queue: values.queue,
    })
}

/// All steps, each on top of the limit before it.
fn read_steps(kind: Option<LimitKind>, limit: Option<Limit>, upstream: &Reader<'_>) -> Vec<Step> {
    let mut limit = limit;
    let mut steps: Vec<Step> = Vec::new();
    for reader in upstream.list("steps") {
        let names = match kind {
            // The boundaries of windows cannot change.
            Some(LimitKind::Window) => vec!["quota"],
            kind => limit_names(kind),
        };
        reader.allow(&[&["at"], names.as_slice()].concat());
        if !names.iter().any(|name| reader.has(name)) {
            reader.require(names[0], "what changes");
        }
        reader.require_of::<StepOptions>(&["at"]);
        limit = read_limit(kind, limit, &reader).or(limit);
        let Some(at) = reader.options::<StepOptions>().at else {
            continue;
        };
        let at = Timestamp::ZERO + at;
        if let Some(last) = steps.last()
            && at <= last.at
        {
            let last = Exact(last.at.since(Timestamp::ZERO));
            reader.expected("at", format!("later than the step before it ({last})"));
        }
        steps.extend(limit.map(|kind| Step { at, kind }));
    }
    steps
}

fn read_outages(upstream: &Reader<'_>) -> Vec<Outage> {
    let mut outages: Vec<Outage> = Vec::new();
    for reader in upstream.list("outage") {
        let Some(outage) = read_outage(&reader) else {
            continue;
        };
        let overlaps = |other: &&Outage| outage.from < other.to && other.from < outage.to;
        if let Some(other) = outages.iter().find(overlaps) {
            let shown = |at: Timestamp| Exact(at.since(Timestamp::ZERO));
            let (from, to) = (shown(other.from), shown(other.to));
            let expected = format!("an outage apart from that of {from} to {to}");
            reader.expected("from", expected);
        }
        outages.push(outage);
    }
    outages.sort_by_key(|outage| outage.from);
    outages
}

fn read_outage(reader: &Reader<'_>) -> Option<Outage> {
    reader.allow(OutageOptions::NAMES);
    reader.require_of::<OutageOptions>(&["from", "to"]);
    let values = reader
        .options::<OutageOptions>()
        .over(OutageValues::default());
    let (from, to) = (values.from?, values.to?);
    if to <= from {
        reader.expected("to", format!("later than `from` ({})", Exact(from)));
        return None;
    }
    let usual_share = if values.status.is_some() { 0.0 } else { 0.5 };
    Some(Outage {
        from: Timestamp::ZERO + from,
        to: Timestamp::ZERO + to,
        timeout_share: values.timeout_share.unwrap_or(usual_share),
        timeout: values.timeout,
        status: values.status,
    })
}

/// A limit on cost: a bucket or a window.
fn read_cost(reader: &Reader<'_>) -> Option<Limit> {
    reader.require_of::<LimitOptions>(&["kind"]);
    let kind = reader.options::<LimitOptions>().kind;
    reader.allow(&[&["kind"], limit_names(kind).as_slice()].concat());
    match kind {
        Some(LimitKind::Bucket) => reader.require_of::<BucketOptions>(BucketOptions::NAMES),
        Some(LimitKind::Window) => reader.require_of::<WindowOptions>(&["quota", "period"]),
        Some(LimitKind::Slots) => reader.expected("kind", "`bucket` or `window`"),
        None => {}
    }
    read_limit(kind, None, reader)
}

fn read_ban(reader: &Reader<'_>) -> Option<Ban> {
    reader.allow(BanOptions::NAMES);
    reader.require_of::<BanOptions>(BanOptions::NAMES);
    let options = reader.options::<BanOptions>();
    Some(Ban {
        excesses: options.excesses?,
        within: options.within?,
        length: options.r#for?,
    })
}
