//! Holds and breakers as bands along time.

use policy::breaker::BreakerState;
use policy::time::Timestamp;

use super::StrategyRun;
use super::canvas::{Mark, Plot};
use super::clients::{self, SHOWN};
use super::colour::Paint;
use super::plots::{Figure, Frame, WIDE, size};
use super::scale::Axis;
use crate::measure::{Band, ClientSeries};

/// When clients were held and breakers not Closed; `None` if that never happened.
pub(super) fn states(run: &StrategyRun, frame: Frame) -> Option<Figure> {
    let clients = &run.series.clients;
    if !clients::any_band(clients) {
        return None;
    }
    let lanes = lanes(clients, frame.end_s);
    let height = if lanes.len() > FEW { THIN } else { THICK };
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

/// With more lanes than this, lanes are thin and without words.
const FEW: usize = 6;
const THICK: f64 = 20.0;
const THIN: f64 = 13.0;

/// What is in the plot: colours with their words.
pub(super) fn legend(run: &StrategyRun) -> Vec<(Paint, &'static str)> {
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
    let held = is_held.then_some((Paint::Held, "held"));
    let legend: Vec<_> = held.into_iter().chain(seen.map(look)).collect();
    // A single lane has the word next to it.
    let is_obvious = clients.len() == 1 && legend == [(Paint::Held, "held")];
    if is_obvious { Vec::new() } else { legend }
}

fn caption(clients: &[ClientSeries]) -> String {
    let mut caption =
        "While held, by the server's word or a step of its own, a client sends nothing. An Open \
         breaker refuses, a HalfOpen one lets single requests try."
            .to_owned();
    if clients.len() > SHOWN {
        caption += &format!(" The first {SHOWN} clients are shown.");
    }
    caption
}

/// Bands next to each other that never overlap.
struct Lane {
    name: String,
    bands: Vec<(f64, f64, Paint, &'static str)>,
}

impl Lane {
    fn marks(&self, floor: f64) -> impl Iterator<Item = Mark> + '_ {
        self.bands
            .iter()
            .map(move |(from_s, to_s, paint, word)| Mark::Band {
                seconds: *from_s..*to_s,
                lane: floor + 0.1..floor + 0.9,
                paint: *paint,
                word,
            })
    }
}

/// For one client a lane for holds and one for the breaker, by name; for several one lane each, in
/// which the breaker covers the hold, since it is the rarer and graver of the two.
fn lanes(clients: &[ClientSeries], end_s: f64) -> Vec<Lane> {
    let narrowest_s = end_s / WIDE;
    let lane = |name: String, bands: Vec<_>| Lane {
        name,
        bands: joined(bands, narrowest_s),
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
    let shown = clients.iter().take(SHOWN).enumerate();
    shown
        .map(|(index, client)| {
            let mut both = lane(clients::name(index), holds(client));
            both.bands.extend(joined(breaker(client), narrowest_s));
            both
        })
        .collect()
}

type Stretch = (f64, f64, Paint, &'static str);

fn holds(client: &ClientSeries) -> Vec<Stretch> {
    let holds = client.holds.iter();
    holds
        .map(|band| stretch(band, (Paint::Held, "held")))
        .collect()
}

fn breaker(client: &ClientSeries) -> Vec<Stretch> {
    let bands = client.breaker.iter();
    bands.map(|band| stretch(band, look(band.what))).collect()
}

fn stretch<T>(band: &Band<T>, (paint, word): (Paint, &'static str)) -> Stretch {
    let seconds = |at: Timestamp| at.seconds_since(Timestamp::ZERO);
    (seconds(band.from), seconds(band.to), paint, word)
}

/// Bands of one kind between which nobody could see a gap become one: a page does not grow with
/// what is too small to be seen.
fn joined(bands: Vec<Stretch>, narrowest_s: f64) -> Vec<Stretch> {
    let mut joined: Vec<Stretch> = Vec::new();
    for band in bands {
        // Another kind may stand between: an Open breaker tries now and then.
        let last = joined.iter_mut().rev().take(KINDS);
        let mut last = last.filter(|last| last.2 == band.2 && band.0 - last.1 < narrowest_s);
        match last.next() {
            Some(last) => last.1 = last.1.max(band.1),
            None => joined.push(band),
        }
    }
    // Short ones are drawn wider than they are, so they come last and are not covered.
    joined.sort_by(|one, other| (other.1 - other.0).total_cmp(&(one.1 - one.0)));
    joined
}

/// Held, Open, HalfOpen and Isolated.
const KINDS: usize = 4;

fn look(state: BreakerState) -> (Paint, &'static str) {
    match state {
        BreakerState::Open => (Paint::Open, "Open"),
        BreakerState::HalfOpen => (Paint::HalfOpen, "HalfOpen"),
        BreakerState::Isolated => (Paint::Isolated, "Isolated"),
        BreakerState::Closed => (Paint::Accepted, "Closed"),
    }
}
