//! Several clients on one plot: their rates, and who got how much.

use super::StrategyRun;
use super::bins::Shares;
use super::canvas::{Mark, Plot};
use super::colour::{CLIENT_PAINTS, Paint};
use super::plots::{Figure, Frame, below, name_at_end, size};
use super::scale::Axis;
use crate::measure::{ClientSeries, Series};

/// More lines than this cannot be told apart. Whoever comes after is put together as `others`.
pub(super) const SHOWN: usize = 16;
/// More names than this do not fit next to each other on a plot of rates.
const NAMED: usize = 4;
/// No line needs more places than this.
const PLACES: usize = 1200;

/// The rates of all clients that have one, added up; empty if none has.
pub(super) fn all_rates(series: &Series) -> Vec<(f64, f64)> {
    let mut sums: Vec<Option<f64>> = Vec::new();
    for client in &series.clients {
        sums.resize(sums.len().max(client.rates.len()), None);
        for (sum, rate) in sums.iter_mut().zip(&client.rates) {
            if let Some(rate) = rate {
                *sum = Some(sum.unwrap_or(0.0) + rate);
            }
        }
    }
    thinned(series, &sums)
}

/// A thin line for each of several clients.
pub(super) fn single_rates(series: &Series, top: f64) -> Vec<Mark> {
    let count = series.clients.len();
    if count < 2 {
        return Vec::new();
    }
    let mut marks = Vec::new();
    for (index, client) in series.clients.iter().take(SHOWN).enumerate() {
        let places = below(&thinned(series, &client.rates), top);
        if places.is_empty() {
            continue;
        }
        if count <= NAMED {
            marks.push(name_at_end(&name(index), &places, paint(index)));
        }
        marks.push(Mark::Line {
            places,
            paint: paint(index),
            width: 1.0,
        });
    }
    marks
}

/// Who got how much of what was accepted; `None` for one client, who gets everything.
pub(super) fn shares(run: &StrategyRun, frame: Frame) -> Option<Figure> {
    let count = run.series.clients.len();
    if count < 2 {
        return None;
    }
    let frame = frame.divided(count);
    let shares = frame.bins(&run.series).shares(&run.series);
    Some(Figure {
        heading: "Shares",
        caption: format!(
            "How much of what was accepted each client got{}. Where nothing was accepted there \
             is a gap.",
            frame.mean_over()
        ),
        plot: Plot {
            title: format!("{}: shares of the clients over time", run.strategy),
            size: size(if count > 8 { 240.0 } else { 150.0 }),
            time: Axis::time(frame.end_s),
            values: Axis::shares(),
            unit: "of accepted requests",
            marks: stacked(&shares, count),
        },
    })
}

/// One layer a client, the first at the bottom.
fn stacked(shares: &[Shares], count: usize) -> Vec<Mark> {
    let mut marks = Vec::new();
    for layer in 0..count.min(SHOWN + 1) {
        let stretches = shares.split(|bin| bin.of_clients.is_none());
        for stretch in stretches.filter(|stretch| !stretch.is_empty()) {
            let (outline, edge) = outline(stretch, layer);
            marks.push(Mark::Area {
                outline,
                paint: paint(layer),
                opacity: opacity(layer),
            });
            // Neighbours of like colours stay apart.
            marks.push(Mark::Line {
                places: edge,
                paint: Paint::Paper,
                width: 1.0,
            });
        }
        marks.extend(layer_name(shares, layer));
    }
    marks
}

/// The outline of a layer, and its upper edge: level within a bin.
fn outline(stretch: &[Shares], layer: usize) -> (Places, Places) {
    let (mut lower, mut upper) = (Vec::new(), Vec::new());
    for bin in stretch {
        let (below, above) = heights(bin.of_clients.as_deref().unwrap_or_default(), layer);
        lower.extend([(bin.from_s, below), (bin.to_s, below)]);
        upper.extend([(bin.from_s, above), (bin.to_s, above)]);
    }
    let edge = upper.clone();
    upper.extend(lower.into_iter().rev());
    (upper, edge)
}

type Places = Vec<(f64, f64)>;

/// Where a layer begins and where it ends; the layer after the last that is shown is all others.
fn heights(shares: &[f64], layer: usize) -> (f64, f64) {
    let below: f64 = shares.iter().take(layer).sum();
    let own = if layer == SHOWN {
        shares.iter().skip(SHOWN).sum()
    } else {
        shares.get(layer).copied().unwrap_or(0.0)
    };
    (below.min(1.0), (below + own).min(1.0))
}

/// The name of a layer, at its middle at the end.
fn layer_name(shares: &[Shares], layer: usize) -> Option<Mark> {
    let last = shares
        .iter()
        .rev()
        .find_map(|bin| bin.of_clients.as_deref())?;
    let (below, above) = heights(last, layer);
    let words = if layer == SHOWN {
        format!("{} others", last.len() - SHOWN)
    } else {
        name(layer)
    };
    Some(Mark::Name {
        at: f64::midpoint(below, above),
        words,
        paint: paint(layer),
    })
}

pub(super) fn name(index: usize) -> String {
    format!("client {}", index + 1)
}

fn paint(index: usize) -> Paint {
    let number = index % usize::from(CLIENT_PAINTS);
    Paint::Client(u8::try_from(number).unwrap_or(0))
}

/// The second round of colours is paler than the first.
fn opacity(index: usize) -> f64 {
    if index < usize::from(CLIENT_PAINTS) {
        0.85
    } else {
        0.45
    }
}

/// Levels at the ends of slices, without those that nobody could see.
fn thinned(series: &Series, levels: &[Option<f64>]) -> Vec<(f64, f64)> {
    let step_s = series.step.as_secs_f64();
    let every = levels.len().div_ceil(PLACES).max(1);
    let places = levels.iter().enumerate().step_by(every);
    places
        .filter_map(|(index, level)| Some(((index + 1) as f64 * step_s, (*level)?)))
        .collect()
}

/// Was any of them ever held, or a breaker not Closed?
pub(super) fn any_band(clients: &[ClientSeries]) -> bool {
    clients
        .iter()
        .any(|client| !client.holds.is_empty() || !client.breaker.is_empty())
}
