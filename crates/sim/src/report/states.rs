//! The plot of holds and breaker states: bands over time.

use policy::breaker::BreakerState;
use policy::time::Timestamp;

use super::StrategyRun;
use super::clients::{self, MAX_CLIENTS};
use super::plots::{Figure, Frame, WIDE, size};
use crate::measure::{Band, ClientSeries};
use crate::plot::{Axis, Colour, Mark, Plot};

/// When clients were held and breakers not Closed; `None` if never.
pub(super) fn states(run: &StrategyRun, frame: Frame) -> Option<Figure> {
    let clients = &run.series.clients;
    let has_bands = |client: &ClientSeries| !client.holds.is_empty() || !client.breaker.is_empty();
    if !clients.iter().any(has_bands) {
        return None;
    }
    let lanes = lanes(clients, frame.end_s);
    let height = if lanes.len() > 6 { THIN } else { THICK };
    let count = lanes.len() as f64;
    let marks = lanes
        .iter()
        .enumerate()
        .flat_map(|(index, lane)| lane.marks(count - index as f64 - 1.0));
    let names = lanes
        .iter()
        .enumerate()
        .map(|(index, lane)| (count - index as f64 - 0.5, lane.name.clone()));
    Some(Figure {
        heading: "Holds and breakers",
        caption: caption(clients),
        plot: Plot {
            title: format!("{}: holds and breakers over time", run.strategy),
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

/// The height of a lane with words on its bands.
const THICK: f64 = 20.0;
/// The height of one of many lanes, too low for words.
const THIN: f64 = 13.0;

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

/// One row of bands.
struct Lane {
    name: String,
    bands: Vec<PlotBand>,
}

/// From second, to second, colour and word.
type PlotBand = (f64, f64, Colour, &'static str);

impl Lane {
    fn marks(&self, floor: f64) -> impl Iterator<Item = Mark> + '_ {
        self.bands
            .iter()
            .map(move |(from_s, to_s, colour, word)| Mark::Band {
                seconds: *from_s..*to_s,
                lane: floor + 0.1..floor + 0.9,
                colour: *colour,
                word,
            })
    }
}

/// For one client a lane for holds and one for the breaker; for several one lane each, in which the
/// breaker covers the hold, because it is rarer and matters more.
fn lanes(clients: &[ClientSeries], end_s: f64) -> Vec<Lane> {
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
        .map(|band| plot_band(band, (Colour::Held, "held")))
        .collect()
}

fn breaker(client: &ClientSeries) -> Vec<PlotBand> {
    let bands = client.breaker.iter();
    bands
        .map(|band| plot_band(band, appearance(band.what)))
        .collect()
}

fn plot_band<T>(band: &Band<T>, (colour, word): (Colour, &'static str)) -> PlotBand {
    let seconds = |at: Timestamp| at.seconds_since(Timestamp::ZERO);
    (seconds(band.from), seconds(band.to), colour, word)
}

/// Joins bands of one kind whose gap is too narrow to be seen, which bounds the size of the page.
fn joined(bands: Vec<PlotBand>, min_gap_s: f64) -> Vec<PlotBand> {
    let mut joined: Vec<PlotBand> = Vec::new();
    for band in bands {
        // Bands of other kinds may lie between: an Open breaker is HalfOpen now and then.
        let last = joined.iter_mut().rev().take(KINDS);
        let mut last = last.filter(|last| last.2 == band.2 && band.0 - last.1 < min_gap_s);
        match last.next() {
            Some(last) => last.1 = last.1.max(band.1),
            None => joined.push(band),
        }
    }
    // Short bands are widened when drawn; drawn last, they are not covered.
    joined.sort_by(|one, other| (other.1 - other.0).total_cmp(&(one.1 - one.0)));
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
