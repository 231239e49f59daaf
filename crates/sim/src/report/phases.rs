//! What `adaptive` knew over time: its phases, the limit that it found, and what it does at the end.

use policy::rate::Phase;
use policy::time::Timestamp;

use super::StrategyRun;
use super::clients::{self, MAX_CLIENTS};
use super::plots::{Figure, Frame, WIDE, below, label_at_end, size};
use crate::measure::{Band, Series};
use crate::plot::{Axis, Colour, Mark, Plot};

/// The phases of each client; `None` if no client has any.
pub(super) fn phases(run: &StrategyRun, frame: Frame) -> Option<Figure> {
    let clients = &run.series.clients;
    if clients.iter().all(|client| client.phases.is_empty()) {
        return None;
    }
    let shown = &clients[..clients.len().min(MAX_CLIENTS)];
    let count = shown.len() as f64;
    let height = if shown.len() > 6 { 13.0 } else { 20.0 };
    let lanes = shown.iter().enumerate().map(|(index, client)| {
        let floor = count - index as f64 - 1.0;
        (floor, index, client)
    });
    let names = lanes.clone().map(|(floor, index, _)| {
        let name = match shown.len() {
            1 => "phase".to_owned(),
            _ => clients::name(index),
        };
        (floor + 0.5, name)
    });
    let marks = lanes.flat_map(|(floor, _, client)| {
        bands(&client.phases, floor + 0.1..floor + 0.9, frame.end_s)
    });
    Some(Figure {
        heading: "Phases",
        caption:
            "What the strategy does with its rate: it searches while no limit is known, rises \
                  to one, stays there, and tries more from time to time."
                .to_owned(),
        plot: Plot {
            title: format!("{}: phases over time", run.strategy),
            size: size(height * count),
            time: Axis::time(frame.end_s),
            values: Axis {
                top: count,
                marks: names.collect(),
            },
            unit: "",
            marks: marks.collect(),
        },
    })
}

/// The colours of phases, with their words.
pub(super) const LEGEND: [(Colour, &str); 4] = [
    appearance(Phase::Searching),
    appearance(Phase::Rising),
    appearance(Phase::Staying),
    appearance(Phase::Probing),
];

/// Phases as bands on a lane. Short ones at the same place are drawn as one.
pub(super) fn bands(phases: &[Band<Phase>], lane: std::ops::Range<f64>, end_s: f64) -> Vec<Mark> {
    let seconds = |at: Timestamp| at.seconds_since(Timestamp::ZERO);
    let min_s = end_s / WIDE;
    let mut marks = Vec::new();
    let mut drawn_to_s = 0.0;
    for band in phases {
        let (from_s, to_s) = (seconds(band.from).max(drawn_to_s), seconds(band.to));
        if to_s - from_s < min_s {
            continue;
        }
        let (colour, word) = appearance(band.what);
        marks.push(Mark::Band {
            seconds: from_s..to_s,
            lane: lane.clone(),
            colour,
            word,
        });
        drawn_to_s = to_s;
    }
    marks
}

/// The limit that a single client knows: dashed lines with gaps where it knows none.
pub(super) fn ceiling(series: &Series, top: f64) -> Vec<Mark> {
    let [client] = series.clients.as_slice() else {
        return Vec::new();
    };
    let step_s = series.step.as_secs_f64();
    let points: Vec<_> = client.ceilings.iter().enumerate().collect();
    let parts = points.split(|(_, ceiling)| ceiling.is_none());
    let parts = parts.filter(|part| part.len() > 1).map(|part| {
        let points = part.iter();
        let points = points.map(|(index, ceiling)| {
            let ceiling = ceiling.unwrap_or_default();
            ((index + 1) as f64 * step_s, ceiling)
        });
        below(&points.collect::<Vec<_>>(), top)
    });
    let parts: Vec<_> = parts.collect();
    let label = parts
        .last()
        .map(|last| label_at_end("known limit", last, Colour::Held));
    let lines = parts.into_iter().map(|points| Mark::Line {
        points,
        colour: Colour::Held,
        width: 1.0,
        is_dashed: true,
    });
    lines.chain(label).collect()
}

const fn appearance(phase: Phase) -> (Colour, &'static str) {
    match phase {
        Phase::Searching => (Colour::Client(5), "searching"),
        Phase::Rising => (Colour::Client(2), "rising"),
        Phase::Staying => (Colour::Client(7), "staying"),
        Phase::Probing => (Colour::Client(1), "trying more"),
    }
}
