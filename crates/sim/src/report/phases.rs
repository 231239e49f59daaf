//! What `adaptive` knew over time: its phases, the limit that it found, and what it does at the end.

use policy::rate::Phase;

use super::StrategyRun;
use super::clients::{self, MAX_CLIENTS};
use super::lanes::{self, Lane, PlotBand};
use super::plots::{Figure, Frame, WIDE, below, label_at_end};
use crate::measure::{Band, Series};
use crate::plot::{Colour, Mark};

/// The phases of each client; `None` if no client has any.
pub(super) fn phases(run: &StrategyRun, frame: Frame) -> Option<Figure> {
    let clients = &run.series.clients;
    if clients.iter().all(|client| client.phases.is_empty()) {
        return None;
    }
    let shown = clients.iter().take(MAX_CLIENTS).enumerate();
    let lanes = shown.map(|(index, client)| Lane {
        name: match clients.len() {
            1 => "phase".to_owned(),
            _ => clients::name(index),
        },
        bands: bands(&client.phases, frame.end_s),
    });
    Some(lanes::figure(
        "Phases",
        "What the strategy does with its rate: it searches while no limit is known, rises to one, \
         stays there, and tries more from time to time."
            .to_owned(),
        format!("{}: phases over time", run.strategy),
        &lanes.collect::<Vec<_>>(),
        frame,
    ))
}

/// The colours of phases, with their words.
pub(super) const LEGEND: [(Colour, &str); 4] = [
    appearance(Phase::Searching),
    appearance(Phase::Rising),
    appearance(Phase::Staying),
    appearance(Phase::Probing),
];

/// Phases as bands. Short ones at the same place are drawn as one.
pub(super) fn bands(phases: &[Band<Phase>], end_s: f64) -> Vec<PlotBand> {
    let min_s = end_s / WIDE;
    let mut bands: Vec<PlotBand> = Vec::new();
    for phase in phases {
        let mut band = PlotBand::new(phase, appearance(phase.what));
        let drawn_to_s = bands.last().map_or(0.0, |last| last.to_s);
        band.from_s = band.from_s.max(drawn_to_s);
        if band.to_s - band.from_s >= min_s {
            bands.push(band);
        }
    }
    bands
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
