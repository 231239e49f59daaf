//! Plots of several clients: their rates and their shares.

use super::StrategyRun;
use super::bins::Shares;
use super::plots::{Figure, Frame, below, label_at_end, size};
use crate::measure::Series;
use crate::plot::{Axis, CLIENT_COLOURS, Colour, Mark, Plot};

/// More lines than this cannot be told apart; further clients are shown as one, `others`.
pub(super) const MAX_CLIENTS: usize = 16;
/// With more clients than this, the labels of their rates do not fit.
const MAX_LABELS: usize = 4;
/// More points than this on a line would not be seen.
const MAX_POINTS: usize = 1200;

/// The sum of the rates of all clients that have one; empty if none has.
pub(super) fn sum_of_rates(series: &Series) -> Vec<(f64, f64)> {
    let mut sums: Vec<Option<f64>> = Vec::new();
    for client in &series.clients {
        sums.resize(sums.len().max(client.rates.len()), None);
        for (sum, rate) in sums.iter_mut().zip(&client.rates) {
            if let Some(rate) = rate {
                *sum = Some(sum.unwrap_or(0.0) + rate);
            }
        }
    }
    sampled(series, &sums)
}

/// A thin line for the rate of each of several clients.
pub(super) fn rates(series: &Series, top: f64) -> Vec<Mark> {
    let count = series.clients.len();
    if count < 2 {
        return Vec::new();
    }
    let mut marks = Vec::new();
    for (index, client) in series.clients.iter().take(MAX_CLIENTS).enumerate() {
        let points = below(&sampled(series, &client.rates), top);
        if points.is_empty() {
            continue;
        }
        if count <= MAX_LABELS {
            marks.push(label_at_end(&name(index), &points, colour(index)));
        }
        marks.push(Mark::Line {
            points,
            colour: colour(index),
            width: 1.0,
            is_dashed: false,
        });
    }
    marks
}

/// Each client's share of the accepted requests; `None` for one client.
pub(super) fn shares(run: &StrategyRun, frame: Frame) -> Option<Figure> {
    let count = run.series.clients.len();
    if count < 2 {
        return None;
    }
    let frame = frame.for_clients(count);
    let shares = frame.bins(&run.series).shares(&run.series);
    Some(Figure {
        heading: "Shares",
        caption: format!(
            "Each client's share of the accepted requests{}. There is a gap where none was \
             accepted.",
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

/// One layer per client, the first at the bottom.
fn stacked(shares: &[Shares], count: usize) -> Vec<Mark> {
    let mut marks = Vec::new();
    for layer in 0..count.min(MAX_CLIENTS + 1) {
        let parts = shares.split(|bin| bin.of_clients.is_none());
        for part in parts.filter(|part| !part.is_empty()) {
            let (outline, edge) = outline(part, layer);
            marks.push(Mark::Area {
                outline,
                colour: colour(layer),
                opacity: opacity(layer),
            });
            // Separates neighbours of similar colours.
            marks.push(Mark::Line {
                points: edge,
                colour: Colour::Paper,
                width: 1.0,
                is_dashed: false,
            });
        }
        marks.extend(layer_label(shares, layer));
    }
    marks
}

/// The outline of a layer, and its upper edge: level within a bin.
fn outline(bins: &[Shares], layer: usize) -> (Points, Points) {
    let (mut lower, mut upper) = (Vec::new(), Vec::new());
    for bin in bins {
        let (below, above) = heights(bin.of_clients.as_deref().unwrap_or_default(), layer);
        lower.extend([(bin.from_s, below), (bin.to_s, below)]);
        upper.extend([(bin.from_s, above), (bin.to_s, above)]);
    }
    let edge = upper.clone();
    upper.extend(lower.into_iter().rev());
    (upper, edge)
}

type Points = Vec<(f64, f64)>;

/// The lower and upper height of a layer; the last layer is all other clients.
fn heights(shares: &[f64], layer: usize) -> (f64, f64) {
    let below: f64 = shares.iter().take(layer).sum();
    let own = if layer == MAX_CLIENTS {
        shares.iter().skip(MAX_CLIENTS).sum()
    } else {
        shares.get(layer).copied().unwrap_or(0.0)
    };
    (below.min(1.0), (below + own).min(1.0))
}

/// The label of a layer, at the middle of its end.
fn layer_label(shares: &[Shares], layer: usize) -> Option<Mark> {
    let last = shares
        .iter()
        .rev()
        .find_map(|bin| bin.of_clients.as_deref())?;
    let (below, above) = heights(last, layer);
    let text = if layer == MAX_CLIENTS {
        format!("{} others", last.len() - MAX_CLIENTS)
    } else {
        name(layer)
    };
    Some(Mark::Label {
        at: f64::midpoint(below, above),
        text,
        colour: colour(layer),
    })
}

pub(super) fn name(index: usize) -> String {
    format!("client {}", index + 1)
}

fn colour(index: usize) -> Colour {
    let number = index % usize::from(CLIENT_COLOURS);
    Colour::Client(u8::try_from(number).unwrap_or(0))
}

/// Clients that share a colour differ in opacity.
fn opacity(index: usize) -> f64 {
    if index < usize::from(CLIENT_COLOURS) {
        0.85
    } else {
        0.45
    }
}

/// Values at the ends of slices, at most [`MAX_POINTS`] of them.
fn sampled(series: &Series, values: &[Option<f64>]) -> Vec<(f64, f64)> {
    let step_s = series.step.as_secs_f64();
    let every = values.len().div_ceil(MAX_POINTS).max(1);
    let points = values.iter().enumerate().step_by(every);
    points
        .filter_map(|(index, value)| Some(((index + 1) as f64 * step_s, (*value)?)))
        .collect()
}
