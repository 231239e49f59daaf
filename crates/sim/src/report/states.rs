//! The plot of holds and breaker states: bands over time.

use policy::breaker::BreakerState;

use super::StrategyRun;
use super::clients::{self, MAX_CLIENTS};
use super::lanes::{self, Lane, PlotBand};
use super::plots::{Figure, Frame, WIDE};
use crate::measure::ClientSeries;
use crate::plot::Colour;

/// When clients were held and breakers not Closed; `None` if never.
pub(super) fn states(run: &StrategyRun, frame: Frame) -> Option<Figure> {
    let clients = &run.series.clients;
    let has_bands = |client: &ClientSeries| !client.holds.is_empty() || !client.breaker.is_empty();
    if !clients.iter().any(has_bands) {
        return None;
    }
    Some(lanes::figure(
        "Holds and breakers",
        caption(clients),
        format!("{}: holds and breakers over time", run.strategy),
        &lanes_of(clients, frame.end_s),
        frame,
    ))
}

/// The colours in the plot, with their words.
pub(super) fn legend(run: &StrategyRun) -> Vec<(Colour, &'static str)> {
    let clients = &run.series.clients;
    let is_held = clients.iter().any(|client| !client.holds.is_empty());
    let states = [
        BreakerState::Open,
        BreakerState::HalfOpen,
        BreakerState::Isolated,
    ];
    let seen = states.into_iter().filter(|state| {
        let mut bands = clients.iter().flat_map(|client| &client.breaker);
        bands.any(|band| band.what == *state)
    });
    let held = is_held.then_some((Colour::Held, "held"));
    let legend: Vec<_> = held.into_iter().chain(seen.map(appearance)).collect();
    // A single lane of holds is named at its axis.
    let is_named = clients.len() == 1 && legend == [(Colour::Held, "held")];
    if is_named { Vec::new() } else { legend }
}

fn caption(clients: &[ClientSeries]) -> String {
    let mut caption =
        "During a hold, named by the server or assumed, a client sends nothing. An Open breaker \
         refuses requests, a HalfOpen one admits single probes."
            .to_owned();
    if clients.len() > MAX_CLIENTS {
        caption += &format!(" The first {MAX_CLIENTS} clients are shown.");
    }
    caption
}

/// For one client a lane for holds and one for the breaker; for several one lane each, in which the
/// breaker covers the hold, because it is rarer and matters more.
fn lanes_of(clients: &[ClientSeries], end_s: f64) -> Vec<Lane> {
    let min_gap_s = end_s / WIDE;
    let lane = |name: String, bands: Vec<_>| Lane {
        name,
        bands: joined(bands, min_gap_s),
    };
    if let [client] = clients {
        let lanes = [
            lane("held".into(), holds(client)),
            lane("breaker".into(), breaker(client)),
        ];
        return lanes
            .into_iter()
            .filter(|lane| !lane.bands.is_empty())
            .collect();
    }
    let shown = clients.iter().take(MAX_CLIENTS).enumerate();
    shown
        .map(|(index, client)| {
            let mut both = lane(clients::name(index), holds(client));
            both.bands.extend(joined(breaker(client), min_gap_s));
            both
        })
        .collect()
}

fn holds(client: &ClientSeries) -> Vec<PlotBand> {
    let holds = client.holds.iter();
    holds
        .map(|band| PlotBand::new(band, (Colour::Held, "held")))
        .collect()
}

fn breaker(client: &ClientSeries) -> Vec<PlotBand> {
    let bands = client.breaker.iter();
    bands
        .map(|band| PlotBand::new(band, appearance(band.what)))
        .collect()
}

/// Joins bands of one kind whose gap is too narrow to be seen, which bounds the size of the page.
fn joined(bands: Vec<PlotBand>, min_gap_s: f64) -> Vec<PlotBand> {
    let mut joined: Vec<PlotBand> = Vec::new();
    for band in bands {
        // Bands of other kinds may lie between: an Open breaker is HalfOpen now and then.
        let last = joined.iter_mut().rev().take(KINDS);
        let mut last =
            last.filter(|last| last.colour == band.colour && band.from_s - last.to_s < min_gap_s);
        match last.next() {
            Some(last) => last.to_s = last.to_s.max(band.to_s),
            None => joined.push(band),
        }
    }
    // Short bands are widened when drawn; drawn last, they are not covered.
    let length = |band: &PlotBand| band.to_s - band.from_s;
    joined.sort_by(|one, other| length(other).total_cmp(&length(one)));
    joined
}

/// Held, Open, HalfOpen and Isolated.
const KINDS: usize = 4;

fn appearance(state: BreakerState) -> (Colour, &'static str) {
    match state {
        BreakerState::Open => (Colour::Open, "Open"),
        BreakerState::HalfOpen => (Colour::HalfOpen, "HalfOpen"),
        BreakerState::Isolated => (Colour::Isolated, "Isolated"),
        BreakerState::Closed => (Colour::Accepted, "Closed"),
    }
}
