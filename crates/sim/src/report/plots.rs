//! What each plot shows: from a run to marks.

use super::StrategyRun;
use super::bins::{Bins, FEWEST_BINS};
use super::canvas::{Mark, Plot, Size};
use super::clients;
use super::colour::Paint;
use super::scale::{Axis, number, round_up};
use crate::measure::Series;

/// What all plots of a page have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Frame {
    pub(super) end_s: f64,
    /// Counts are means over so many seconds.
    pub(super) bin_s: f64,
}

/// A plot, its heading and what has to be said about it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    pub(super) heading: &'static str,
    pub(super) caption: String,
    pub(super) plot: Plot,
}

pub(super) const WIDE: f64 = 800.0;
pub(super) const NARROW: f64 = 330.0;

/// A strategy in one small plot, to be compared with the others on the same axis: what it got
/// through of what was possible.
pub(super) fn overview(run: &StrategyRun, frame: Frame, most: f64) -> Plot {
    let bins = frame.bins(&run.series);
    let accepted = bins.per_second(&run.series.slices, |slice| slice.accepted);
    let mut marks = capacity(&run.series, frame.end_s);
    marks.push(line(&accepted, Paint::Accepted));
    marks.push(name_at_end("accepted", &accepted, Paint::Accepted));
    Plot {
        title: format!(
            "{}: accepted per second and capacity over time",
            run.strategy
        ),
        size: Size {
            width: NARROW,
            height: 120.0,
        },
        time: Axis::time(frame.end_s).sparse(),
        values: Axis::reaching(most),
        unit: "requests per second",
        marks,
    }
}

/// The most that [`overview`] has to show.
pub(super) fn most_accepted(run: &StrategyRun, frame: Frame) -> f64 {
    let bins = frame.bins(&run.series);
    let accepted = bins.per_second(&run.series.slices, |slice| slice.accepted);
    highest(&accepted).max(most_capacity(&run.series))
}

/// The rate that clients allow themselves against what the upstream could take; for clients without
/// a rate, what they sent.
pub(super) fn rate(run: &StrategyRun, frame: Frame) -> Figure {
    let series = &run.series;
    let sent = frame
        .bins(series)
        .per_second(&series.slices, |slice| slice.sent);
    let all_rates = clients::all_rates(series);
    let has_rate = !all_rates.is_empty();
    let (together, word) = match (has_rate, series.clients.len()) {
        (false, _) => (sent.clone(), "sent"),
        (true, 0 | 1) => (all_rates, "rate"),
        (true, _) => (all_rates, "all rates"),
    };
    let usual = most_capacity(series).max(highest(&sent));
    let highest_rate = highest(&together);
    let top = if usual > 0.0 {
        highest_rate.min(2.0 * usual).max(usual)
    } else {
        highest_rate
    };
    let values = Axis::reaching(top);
    let mut marks = capacity(series, frame.end_s);
    if has_rate {
        marks.extend(clients::single_rates(series, values.top));
    }
    let shown = below(&together, values.top);
    let paint = if series.clients.len() > 1 {
        Paint::Together
    } else {
        Paint::Rate
    };
    marks.push(line(&shown, paint));
    marks.push(name_at_end(word, &shown, paint));
    let mut caption = if has_rate {
        "What each client allows itself, and what the upstream could take, which no client knows."
            .to_owned()
    } else {
        format!(
            "These clients have no rate. What they sent{}, and what the upstream could take.",
            frame.mean_over()
        )
    };
    if highest_rate > values.top {
        caption += &format!(" The rate goes up to {} per second.", number(highest_rate));
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

/// What became of requests.
pub(super) fn answers(run: &StrategyRun, frame: Frame) -> Figure {
    let series = &run.series;
    let bins = frame.bins(series);
    let accepted = bins.per_second(&series.slices, |slice| slice.accepted);
    let refused = bins.per_second(&series.slices, |slice| slice.refused);
    let failed = bins.per_second(&series.slices, |slice| slice.failed);
    let most = highest(&accepted)
        .max(highest(&refused))
        .max(highest(&failed));
    let mut marks = surface(&accepted, Paint::Accepted);
    marks.extend(surface(&refused, Paint::Refused));
    if highest(&failed) > 0.0 {
        marks.extend(surface(&failed, Paint::Failed));
        marks.push(name_at_end("failed", &failed, Paint::Failed));
    }
    marks.push(name_at_end("accepted", &accepted, Paint::Accepted));
    marks.push(name_at_end("refused", &refused, Paint::Refused));
    Figure {
        heading: "Answers",
        caption: format!(
            "Refused is 429, 403 and 503; failed is everything else that is no success. \
             Counted when the client knows{}.",
            frame.mean_over()
        ),
        plot: Plot {
            title: format!("{}: accepted and refused over time", run.strategy),
            size: size(150.0),
            time: Axis::time(frame.end_s),
            values: Axis::reaching(most),
            unit: "answers per second",
            marks,
        },
    }
}

/// How long accepted requests took; `None` if there were none.
pub(super) fn latency(run: &StrategyRun, frame: Frame) -> Option<Figure> {
    let stretches = frame.bins(&run.series).latency_ms(&run.series.slices);
    let last = stretches.last()?.clone();
    let p99 = run.figures.p99_latency_ms;
    let most = stretches.iter().map(|stretch| highest(stretch));
    let most = most.fold(p99.unwrap_or(0.0), f64::max);
    let mut marks: Vec<Mark> = Vec::new();
    if let Some(p99) = p99 {
        marks.push(Mark::Line {
            places: vec![(SETTLED_S, p99), (frame.end_s, p99)],
            paint: Paint::Label,
            width: 1.0,
        });
        marks.push(Mark::Name {
            at: p99,
            words: "p99".into(),
            paint: Paint::Label,
        });
    }
    marks.extend(
        stretches
            .iter()
            .map(|stretch| line(stretch, Paint::Latency)),
    );
    marks.push(name_at_end("mean", &last, Paint::Latency));
    Some(Figure {
        heading: "Latency",
        caption: format!(
            "From sending to answer, accepted requests only{}. From 60 s on, 99 in 100 took \
             no longer than p99.",
            frame.mean_over()
        ),
        plot: Plot {
            title: format!("{}: latency over time", run.strategy),
            size: size(110.0),
            time: Axis::time(frame.end_s),
            values: Axis::reaching(most),
            unit: "milliseconds",
            marks,
        },
    })
}

/// Figures about latency leave out what comes before.
const SETTLED_S: f64 = 60.0;

impl Frame {
    pub(super) fn bins(self, series: &Series) -> Bins {
        Bins::of(series, self.bin_s, self.end_s)
    }

    /// The same with wider bins, where what falls into one is divided among so many.
    pub(super) fn divided(self, among: usize) -> Self {
        let wider = round_up(self.bin_s * among as f64);
        Self {
            bin_s: wider.min(self.end_s / FEWEST_BINS).max(self.bin_s),
            ..self
        }
    }

    /// Said where counts are shown.
    pub(super) fn mean_over(self) -> String {
        format!(", mean over {} s", number(self.bin_s))
    }
}

pub(super) fn size(height: f64) -> Size {
    Size {
        width: WIDE,
        height,
    }
}

/// The capacity as a line of steps over a shaded surface, and its name.
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
            paint: Paint::Capacity,
            opacity: 0.16,
        },
        Mark::Line {
            places: steps,
            paint: Paint::Capacity,
            width: 1.0,
        },
        Mark::Name {
            at: last.1,
            words: "capacity".into(),
            paint: Paint::Capacity,
        },
    ]
}

/// The corners of the capacity: two where it changes, none where it does not.
fn capacity_steps(series: &Series, end_s: f64) -> Vec<(f64, f64)> {
    let step_s = series.step.as_secs_f64();
    let mut corners: Vec<(f64, f64)> = Vec::new();
    for (index, slice) in series.slices.iter().enumerate() {
        let from_s = index as f64 * step_s;
        let before = corners.last().map(|(_, before)| *before);
        // What differs by rounding alone is no step.
        if before.is_none_or(|before| (before - slice.capacity).abs() > 1e-6 * before.abs()) {
            corners.extend(before.map(|before| (from_s, before)));
            corners.push((from_s, slice.capacity));
        }
    }
    corners.extend(corners.last().map(|(_, capacity)| (end_s, *capacity)));
    corners
}

fn most_capacity(series: &Series) -> f64 {
    let capacities = series.slices.iter().map(|slice| slice.capacity);
    capacities.fold(0.0, f64::max)
}

fn line(places: &[(f64, f64)], paint: Paint) -> Mark {
    Mark::Line {
        places: places.to_vec(),
        paint,
        width: 1.75,
    }
}

/// A line and the surface below it.
fn surface(places: &[(f64, f64)], paint: Paint) -> Vec<Mark> {
    let (Some(first), Some(last)) = (places.first(), places.last()) else {
        return Vec::new();
    };
    let mut outline = vec![(first.0, 0.0)];
    outline.extend(places);
    outline.push((last.0, 0.0));
    let area = Mark::Area {
        outline,
        paint,
        opacity: 0.18,
    };
    vec![area, line(places, paint)]
}

/// A name next to where a line ends; a single place may be an outlier, so a few are taken.
pub(super) fn name_at_end(words: &str, places: &[(f64, f64)], paint: Paint) -> Mark {
    let few = &places[places.len().saturating_sub(8)..];
    let sum: f64 = few.iter().map(|(_, value)| value).sum();
    Mark::Name {
        at: sum / (few.len() as f64).max(1.0),
        words: words.to_owned(),
        paint,
    }
}

/// The places, none of them above `top`.
pub(super) fn below(places: &[(f64, f64)], top: f64) -> Vec<(f64, f64)> {
    let places = places.iter();
    places.map(|(at, value)| (*at, value.min(top))).collect()
}

fn highest(places: &[(f64, f64)]) -> f64 {
    places.iter().map(|(_, value)| *value).fold(0.0, f64::max)
}
