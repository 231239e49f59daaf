//! The plots of a run.

use super::StrategyRun;
use super::bins::{Bins, MIN_BINS};
use super::clients;
use super::phases;
use crate::measure::Series;
use crate::plot::{Axis, Colour, Mark, Plot, Size, number, round_up};

/// The time and the bins of plots.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Frame {
    pub(super) end_s: f64,
    /// The width of a bin.
    pub(super) bin_s: f64,
}

/// A plot with its heading and caption.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    pub(super) heading: &'static str,
    pub(super) caption: String,
    pub(super) plot: Plot,
}

pub(super) const WIDE: f64 = 800.0;
pub(super) const NARROW: f64 = 330.0;

/// A small plot of accepted requests and capacity, with the same axis for every strategy.
pub(super) fn overview(run: &StrategyRun, frame: Frame, max: f64) -> Plot {
    let bins = frame.bins(&run.series);
    let accepted = bins.per_second(&run.series.slices, |slice| slice.accepted);
    let mut marks = capacity(&run.series, frame.end_s);
    marks.push(line(&accepted, Colour::Accepted));
    marks.push(label_at_end("accepted", &accepted, Colour::Accepted));
    Plot {
        title: format!(
            "{}: accepted per second and capacity over time",
            run.strategy
        ),
        size: Size {
            width: NARROW,
            height: 120.0,
            right: Size::LABELS,
        },
        time: Axis::time(frame.end_s).sparse(),
        values: Axis::up_to(max),
        unit: "requests per second",
        marks,
    }
}

/// The highest value that [`overview`] shows.
pub(super) fn max_accepted(run: &StrategyRun, frame: Frame) -> f64 {
    let bins = frame.bins(&run.series);
    let accepted = bins.per_second(&run.series.slices, |slice| slice.accepted);
    max_value(&accepted).max(max_capacity(&run.series))
}

/// The clients' rates and the capacity; for clients without a rate, the requests that they sent.
pub(super) fn rate(run: &StrategyRun, frame: Frame) -> Figure {
    let series = &run.series;
    let sent = frame
        .bins(series)
        .per_second(&series.slices, |slice| slice.sent);
    let rates = clients::sum_of_rates(series);
    let has_rate = !rates.is_empty();
    let (total, word) = match (has_rate, series.clients.len()) {
        (false, _) => (sent.clone(), "sent"),
        (true, 0 | 1) => (rates, "rate"),
        (true, _) => (rates, "all rates"),
    };
    let needed = max_capacity(series).max(max_value(&sent));
    let max_rate = max_value(&total);
    // A rate far above what is sent does not flatten the rest.
    let top = if needed > 0.0 {
        max_rate.min(2.0 * needed).max(needed)
    } else {
        max_rate
    };
    let values = Axis::up_to(top);
    let mut marks = capacity(series, frame.end_s);
    if has_rate {
        marks.extend(clients::rates(series, values.top));
        marks.extend(phases::ceiling(series, values.top));
    }
    let shown = below(&total, values.top);
    let colour = if series.clients.len() > 1 {
        Colour::AllClients
    } else {
        Colour::Rate
    };
    marks.push(line(&shown, colour));
    marks.push(label_at_end(word, &shown, colour));
    let mut caption = if has_rate {
        "The rate of each client, the limit that a single one knows, and the upstream's capacity, \
         which no client knows."
            .to_owned()
    } else {
        format!(
            "These clients have no rate. Requests sent{}, and the upstream's capacity.",
            frame.mean_over()
        )
    };
    if max_rate > values.top {
        caption += &format!(" The rate reaches {} per second.", number(max_rate));
    }
    Figure {
        heading: if has_rate { "Rate" } else { "Sent" },
        caption,
        plot: Plot {
            title: format!("{}: rate and capacity over time", run.strategy),
            size: size(190.0),
            time: Axis::time(frame.end_s),
            values,
            unit: "requests per second",
            marks,
        },
    }
}

/// Accepted, refused and failed requests.
pub(super) fn responses(run: &StrategyRun, frame: Frame) -> Figure {
    let series = &run.series;
    let bins = frame.bins(series);
    let accepted = bins.per_second(&series.slices, |slice| slice.accepted);
    let refused = bins.per_second(&series.slices, |slice| slice.refused);
    let failed = bins.per_second(&series.slices, |slice| slice.failed);
    let max = max_value(&accepted)
        .max(max_value(&refused))
        .max(max_value(&failed));
    let mut marks = filled_line(&accepted, Colour::Accepted);
    marks.extend(filled_line(&refused, Colour::Refused));
    if max_value(&failed) > 0.0 {
        marks.extend(filled_line(&failed, Colour::Failed));
        marks.push(label_at_end("failed", &failed, Colour::Failed));
    }
    marks.push(label_at_end("accepted", &accepted, Colour::Accepted));
    marks.push(label_at_end("refused", &refused, Colour::Refused));
    Figure {
        heading: "Responses",
        caption: format!(
            "Refused: 429, 403 and 503. Failed: every other status or error that is no success. \
             Counted when the client has the result{}.",
            frame.mean_over()
        ),
        plot: Plot {
            title: format!("{}: accepted and refused over time", run.strategy),
            size: size(150.0),
            time: Axis::time(frame.end_s),
            values: Axis::up_to(max),
            unit: "responses per second",
            marks,
        },
    }
}

/// The latency of accepted requests; `None` if there were none.
pub(super) fn latency(run: &StrategyRun, frame: Frame) -> Option<Figure> {
    let lines = frame.bins(&run.series).latency_ms(&run.series.slices);
    let last = lines.last()?.clone();
    let p99 = run.figures.p99_latency_ms;
    let max = lines.iter().map(|line| max_value(line));
    let max = max.fold(p99.unwrap_or(0.0), f64::max);
    let mut marks: Vec<Mark> = Vec::new();
    if let Some(p99) = p99 {
        marks.push(Mark::Line {
            points: vec![(SETTLED_S, p99), (frame.end_s, p99)],
            colour: Colour::Label,
            width: 1.0,
            is_dashed: false,
        });
        marks.push(Mark::Label {
            at: p99,
            text: "p99".into(),
            colour: Colour::Label,
        });
    }
    marks.extend(lines.iter().map(|points| line(points, Colour::Latency)));
    marks.push(label_at_end("mean", &last, Colour::Latency));
    Some(Figure {
        heading: "Latency",
        caption: format!(
            "From sending to response, accepted requests only{}. p99 is the 99th percentile from \
             60 s on.",
            frame.mean_over()
        ),
        plot: Plot {
            title: format!("{}: latency over time", run.strategy),
            size: size(110.0),
            time: Axis::time(frame.end_s),
            values: Axis::up_to(max),
            unit: "milliseconds",
            marks,
        },
    })
}

/// Figures of latency leave out the time before.
const SETTLED_S: f64 = 60.0;

impl Frame {
    pub(super) fn bins(self, series: &Series) -> Bins {
        Bins::of(series, self.bin_s, self.end_s)
    }

    /// The same with wider bins, for counts that are divided among clients.
    pub(super) fn for_clients(self, count: usize) -> Self {
        let wider = round_up(self.bin_s * count as f64);
        Self {
            bin_s: wider.min(self.end_s / MIN_BINS).max(self.bin_s),
            ..self
        }
    }

    /// The part of a caption that names the width of a bin.
    pub(super) fn mean_over(self) -> String {
        format!(", mean over {} s", number(self.bin_s))
    }
}

pub(super) fn size(height: f64) -> Size {
    Size {
        width: WIDE,
        height,
        right: Size::LABELS,
    }
}

/// The capacity: a stepped line, the area below it and its label.
fn capacity(series: &Series, end_s: f64) -> Vec<Mark> {
    let steps = capacity_steps(series, end_s);
    let (Some(first), Some(last)) = (steps.first().copied(), steps.last().copied()) else {
        return Vec::new();
    };
    let mut outline = vec![(first.0, 0.0)];
    outline.extend(&steps);
    outline.push((last.0, 0.0));
    vec![
        Mark::Area {
            outline,
            colour: Colour::Capacity,
            opacity: 0.16,
        },
        Mark::Line {
            points: steps,
            colour: Colour::Capacity,
            width: 1.0,
            is_dashed: false,
        },
        Mark::Label {
            at: last.1,
            text: "capacity".into(),
            colour: Colour::Capacity,
        },
    ]
}

/// The corners of the capacity's line: two at each change.
fn capacity_steps(series: &Series, end_s: f64) -> Vec<(f64, f64)> {
    let step_s = series.step.as_secs_f64();
    let mut corners: Vec<(f64, f64)> = Vec::new();
    for (index, slice) in series.slices.iter().enumerate() {
        let from_s = index as f64 * step_s;
        let before = corners.last().map(|(_, before)| *before);
        // Differences by rounding are no steps.
        if before.is_none_or(|before| (before - slice.capacity).abs() > 1e-6 * before.abs()) {
            corners.extend(before.map(|before| (from_s, before)));
            corners.push((from_s, slice.capacity));
        }
    }
    corners.extend(corners.last().map(|(_, capacity)| (end_s, *capacity)));
    corners
}

fn max_capacity(series: &Series) -> f64 {
    let capacities = series.slices.iter().map(|slice| slice.capacity);
    capacities.fold(0.0, f64::max)
}

fn line(points: &[(f64, f64)], colour: Colour) -> Mark {
    Mark::Line {
        points: points.to_vec(),
        colour,
        width: 1.75,
        is_dashed: false,
    }
}

/// A line and the area below it.
fn filled_line(points: &[(f64, f64)], colour: Colour) -> Vec<Mark> {
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return Vec::new();
    };
    let mut outline = vec![(first.0, 0.0)];
    outline.extend(points);
    outline.push((last.0, 0.0));
    let area = Mark::Area {
        outline,
        colour,
        opacity: 0.18,
    };
    vec![area, line(points, colour)]
}

/// A label at the end of a line, at the mean of its last points: a single one may be an outlier.
pub(super) fn label_at_end(text: &str, points: &[(f64, f64)], colour: Colour) -> Mark {
    let last = &points[points.len().saturating_sub(8)..];
    let sum: f64 = last.iter().map(|(_, value)| value).sum();
    Mark::Label {
        at: sum / (last.len() as f64).max(1.0),
        text: text.to_owned(),
        colour,
    }
}

/// The points, with values of at most `top`.
pub(super) fn below(points: &[(f64, f64)], top: f64) -> Vec<(f64, f64)> {
    let points = points.iter();
    points.map(|(at, value)| (*at, value.min(top))).collect()
}

fn max_value(points: &[(f64, f64)]) -> f64 {
    points.iter().map(|(_, value)| *value).fold(0.0, f64::max)
}
