//! The kind of an upstream's limit and its steps.

use policy::duration::Exact;
use policy::suggest::suggestion;
use policy::time::Timestamp;

use super::read::A_DURATION;
use super::section::Section;
use crate::upstream::{Kind, Step};

/// A kind by its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Bucket,
    Window,
    Slots,
}

/// Stands for a kind that cannot be read, so that the rest is judged all the same.
pub(super) const USUAL: Kind = Kind::Bucket {
    rate: 50.0,
    burst: 10.0,
};

pub(super) fn name(section: &Section<'_>) -> Option<Name> {
    let expected = "`bucket`, `window` or `slots`";
    section.require("kind", expected);
    section.text("kind", |word| match word {
        "bucket" => Ok(Name::Bucket),
        "window" => Ok(Name::Window),
        "slots" => Ok(Name::Slots),
        _ => Err(match suggestion(word, &["bucket", "window", "slots"]) {
            Some(close) => format!("{expected}; did you mean `{close}`?"),
            None => expected.to_owned(),
        }),
    })
}

/// The settings of a kind; of all, if it is not known which.
pub(super) fn keys(name: Option<Name>) -> &'static [&'static str] {
    match name {
        Some(Name::Bucket) => &["rate", "burst"],
        Some(Name::Window) => &["quota", "period", "phase"],
        Some(Name::Slots) => &["slots", "service", "queue"],
        None => &[
            "rate", "burst", "quota", "period", "phase", "slots", "service", "queue",
        ],
    }
}

pub(super) fn read(name: Name, section: &Section<'_>) -> Option<Kind> {
    match name {
        Name::Bucket => bucket(section),
        Name::Window => window(section),
        Name::Slots => slots(section),
    }
}

fn bucket(section: &Section<'_>) -> Option<Kind> {
    section.require("rate", A_RATE);
    let (rate, burst) = (rate(section), burst(section));
    Some(Kind::Bucket {
        rate: rate?,
        burst: burst.unwrap_or(10.0),
    })
}

fn window(section: &Section<'_>) -> Option<Kind> {
    section.require("quota", "a whole number of requests");
    section.require("period", A_DURATION);
    let (quota, phase) = (quota(section), section.duration("phase"));
    let period = section.positive_duration("period");
    Some(Kind::Window {
        quota: quota?,
        period: period?,
        phase: phase.unwrap_or_default(),
    })
}

fn slots(section: &Section<'_>) -> Option<Kind> {
    section.require("slots", "a whole number of slots");
    section.require("service", A_DURATION);
    let (slots, queue) = (slot_count(section), queue(section));
    let service = section.positive_duration("service");
    Some(Kind::Slots {
        slots: slots?,
        service: service?,
        queue: queue.unwrap_or(100),
    })
}

/// Every step, also those of a `kind` that is wrong itself.
pub(super) fn steps(name: Option<Name>, kind: Option<Kind>, upstream: &Section<'_>) -> Vec<Step> {
    let mut kind = kind.unwrap_or(USUAL);
    let mut steps: Vec<Step> = Vec::new();
    for section in upstream.sections("steps") {
        let keys = step_keys(name);
        section.allow(&[&["at"], keys].concat());
        if !keys.iter().any(|key| section.has(key)) {
            section.require(keys[0], "what changes");
        }
        section.require("at", A_DURATION);
        kind = changed(kind, &section);
        let Some(at) = section.duration("at") else {
            continue;
        };
        let at = Timestamp::ZERO + at;
        if let Some(last) = steps.last()
            && at <= last.at
        {
            let last = Exact(last.at.since(Timestamp::ZERO));
            section.expected("at", format!("later than the step before it ({last})"));
        }
        steps.push(Step { at, kind });
    }
    steps
}

/// What a step can change: not the borders of windows, which would be another kind of clock.
fn step_keys(name: Option<Name>) -> &'static [&'static str] {
    match name {
        Some(Name::Window) => &["quota"],
        Some(Name::Bucket | Name::Slots) | None => keys(name),
    }
}

fn changed(before: Kind, section: &Section<'_>) -> Kind {
    match before {
        Kind::Bucket {
            rate: from,
            burst: most,
        } => Kind::Bucket {
            rate: rate(section).unwrap_or(from),
            burst: burst(section).unwrap_or(most),
        },
        Kind::Window {
            quota: from,
            period,
            phase,
        } => Kind::Window {
            quota: quota(section).unwrap_or(from),
            period,
            phase,
        },
        Kind::Slots {
            slots,
            service,
            queue: places,
        } => Kind::Slots {
            slots: slot_count(section).unwrap_or(slots),
            service: section.positive_duration("service").unwrap_or(service),
            queue: queue(section).unwrap_or(places),
        },
    }
}

const A_RATE: &str = "a number of requests per second above 0 and up to 1000000";

fn rate(section: &Section<'_>) -> Option<f64> {
    section.number("rate", |rate| rate > 0.0 && rate <= 1e6, A_RATE)
}

fn burst(section: &Section<'_>) -> Option<f64> {
    let fits = |burst| (1.0..=1e9).contains(&burst);
    section.number("burst", fits, "a number of requests from 1 to 1000000000")
}

fn quota(section: &Section<'_>) -> Option<u64> {
    section.whole("quota", 1, 1_000_000_000)
}

fn slot_count(section: &Section<'_>) -> Option<u32> {
    let count = section.whole("slots", 1, 100_000)?;
    u32::try_from(count).ok()
}

fn queue(section: &Section<'_>) -> Option<u32> {
    let places = section.whole("queue", 0, 10_000_000)?;
    u32::try_from(places).ok()
}
