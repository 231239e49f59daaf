//! The plots of a report: responses against rate and learned limit, and when a gate was closed.
//!
//! Each is drawn twice, for wide and for narrow windows: shrunk to the width of a phone, the text of
//! the wide one could not be read.

use std::ops::Range;

use sim::plot::{Axis, Colour, Mark, Plot, Size, draw};

use super::text::{duration, rate, shown};
use super::{Band, BandKind, HostReport, TimeSeries};

/// The time that the plots of a report cover.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) step_ms: u64,
    pub(super) duration_ms: u64,
}

/// The plots of one host.
pub(super) fn host(host: &HostReport, series: &TimeSeries, frame: Frame) -> String {
    let name = shown(&host.key);
    let mut html = both(|wide| rate_plot(host, series, frame, wide));
    html += &both(|wide| responses_plot(&host.key, series, frame, wide));
    if !host.bands.is_empty() {
        html += &both(|wide| states_plot(host, frame, wide));
        html += &states_text(host);
    }
    format!("<div class=\"plots\" role=\"group\" aria-label=\"Plots of {name}\">\n{html}</div>\n")
}

/// The responses of all hosts together.
pub(super) fn all(series: &TimeSeries, frame: Frame) -> String {
    both(|wide| responses_plot("all hosts", series, frame, wide))
}

/// A plot for wide and for narrow windows.
fn both(plot: impl Fn(Width) -> Figure) -> String {
    let (wide, narrow) = (plot(WIDE), plot(NARROW));
    let legend = narrow.legend.iter();
    let legend: String = legend
        .map(|(class, name)| format!("<li><i class=\"key {class}\"></i>{name}</li>"))
        .collect();
    format!(
        "<figure>\n<figcaption>{}</figcaption>\n<ul class=\"legend narrow\">{legend}</ul>\n\
         <div class=\"wide\">{}</div><div class=\"narrow\">{}</div></figure>\n",
        wide.caption,
        draw(&wide.plot),
        draw(&narrow.plot)
    )
}

struct Figure {
    caption: String,
    plot: Plot,
    /// Classes of keys, and their names.
    legend: Vec<(&'static str, &'static str)>,
}

#[derive(Clone, Copy)]
struct Width {
    pixels: f64,
    right: f64,
    max_bins: usize,
    has_labels: bool,
}

const WIDE: Width = Width {
    pixels: 800.0,
    right: Size::LABELS,
    max_bins: 120,
    has_labels: true,
};
/// With its margins as wide as the content of a page on a phone.
const NARROW: Width = Width {
    pixels: 282.0,
    right: 14.0,
    max_bins: 48,
    has_labels: false,
};
/// Fewer responses in a bin give a line that only shows chance.
const MIN_PER_BIN: u64 = 8;
const MIN_BINS: usize = 20;

impl Frame {
    fn end_s(self) -> f64 {
        (self.duration_ms.max(1)) as f64 / 1000.0
    }

    fn axis(self, width: Width) -> Axis {
        let axis = Axis::time(self.end_s());
        if width.has_labels {
            axis
        } else {
            axis.sparse()
        }
    }
}

impl Width {
    const fn size(self, height: f64) -> Size {
        Size {
            width: self.pixels,
            height,
            right: self.right,
        }
    }
}

/// Groups of slices.
struct Bins {
    bins: Vec<Range<usize>>,
    step_s: f64,
    end_s: f64,
}

impl Bins {
    fn of(series: &TimeSeries, frame: Frame, width: Width) -> Self {
        let step_s = frame.step_ms.max(1) as f64 / 1000.0;
        let slices = (0..series.accepted.len())
            // The last one may start at the very end.
            .take_while(|index| *index == 0 || (*index as f64) * step_s < frame.end_s())
            .count();
        let total: u64 = (0..slices).map(|index| u64::from(series.all(index))).sum();
        let wanted = usize::try_from(total / MIN_PER_BIN).unwrap_or(usize::MAX);
        let count = wanted.clamp(MIN_BINS, width.max_bins);
        let size = slices.div_ceil(count).max(1);
        let starts = (0..slices).step_by(size);
        Self {
            bins: starts
                .map(|start| start..(start + size).min(slices))
                .collect(),
            step_s,
            end_s: frame.end_s(),
        }
    }

    /// The count per second: a line that is level within a bin.
    fn per_second(&self, count: impl Fn(usize) -> u32) -> Vec<(f64, f64)> {
        let mut points: Vec<(f64, f64)> = Vec::new();
        for bin in &self.bins {
            let sum: f64 = bin.clone().map(|index| f64::from(count(index))).sum();
            let (from, to) = self.seconds(bin);
            // The last slice has just begun.
            let value = sum / (to - from).max(self.step_s);
            match points.last_mut() {
                // One line over bins of equal height, many of which have none.
                Some(last) if last.1.total_cmp(&value).is_eq() => last.0 = to,
                _ => points.extend([(from, value), (to, value)]),
            }
        }
        points
    }

    fn seconds(&self, bin: &Range<usize>) -> (f64, f64) {
        let from = (bin.start as f64 * self.step_s).min(self.end_s);
        (from, (bin.end as f64 * self.step_s).min(self.end_s))
    }

    /// Values at the ends of slices, as lines that are interrupted where there is none.
    fn lines(&self, values: &[Option<f32>]) -> Vec<Vec<(f64, f64)>> {
        let mut lines = vec![Vec::new()];
        for (index, value) in values.iter().enumerate() {
            let at = ((index as f64 + 1.0) * self.step_s).min(self.end_s);
            let Some(last) = lines.last_mut() else {
                break;
            };
            match value {
                Some(value) => last.push((at, f64::from(*value))),
                None if last.is_empty() => {}
                // Samples are a second apart, slices may be shorter.
                None if last
                    .last()
                    .is_some_and(|(since, _)| at - since <= MAX_GAP_S) => {}
                None => lines.push(Vec::new()),
            }
        }
        lines.retain(|line| !line.is_empty());
        lines
    }
}

/// A line is interrupted where no sample was taken for longer than this.
const MAX_GAP_S: f64 = 5.0;

impl TimeSeries {
    fn all(&self, index: usize) -> u32 {
        let counts = [&self.accepted, &self.refused, &self.rejected, &self.failed];
        let counts = counts.into_iter().filter_map(|counts| counts.get(index));
        counts.fold(0, |sum, count| sum.saturating_add(*count))
    }
}

/// Responses per second, the gate's rate, and the learned limit.
fn rate_plot(host: &HostReport, series: &TimeSeries, frame: Frame, width: Width) -> Figure {
    let bins = Bins::of(series, frame, width);
    let responses = bins.per_second(|index| series.all(index));
    let rates = bins.lines(&series.rate);
    let ceilings = bins.lines(&series.ceiling);
    let needed = max(&responses).max(max_of(&ceilings));
    let max_rate = max_of(&rates);
    // A rate far above what was sent does not flatten the rest.
    let top = if needed > 0.0 {
        max_rate.min(2.0 * needed).max(needed)
    } else {
        max_rate
    };
    let values = Axis::up_to(top);
    let mut marks = washes(&host.bands, values.top);
    let mut legend = vec![("accepted", "responses")];
    marks.extend(filled(&responses, Colour::Accepted));
    marks.push(label(width, "responses", &responses, Colour::Accepted));
    for points in &ceilings {
        marks.push(line(below(points, values.top), Colour::Capacity, true));
    }
    if let Some(last) = ceilings.last() {
        marks.push(label(width, "learned limit", last, Colour::Capacity));
        legend.push(("capacity", "learned limit"));
    }
    for points in &rates {
        marks.push(line(below(points, values.top), Colour::Rate, false));
    }
    if let Some(last) = rates.last() {
        marks.push(label(width, "rate", &below(last, values.top), Colour::Rate));
        legend.push(("rate", "rate"));
    }
    let limit = host
        .ceiling
        .map(|limit| format!(", learned limit {}", rate(limit)));
    let last = host
        .rate_per_second
        .map(|last| format!(", last rate {}", rate(last)));
    let (limit, last) = (limit.unwrap_or_default(), last.unwrap_or_default());
    let mut caption = "Responses, and the rate at which the gate let requests leave.".to_owned();
    if !ceilings.is_empty() {
        caption += " The learned limit is what the server seems to accept.";
    }
    if max_rate > values.top {
        caption += &format!(" The rate reaches {}.", rate(max_rate));
    }
    Figure {
        caption,
        plot: Plot {
            title: format!(
                "Rate of {} over {}: up to {} responses{last}{limit}",
                host.key,
                duration(frame.duration_ms),
                rate(max(&responses)),
            ),
            size: width.size(if width.has_labels { 190.0 } else { 150.0 }),
            time: frame.axis(width),
            values,
            unit: "per second",
            marks: marks.into_iter().flatten().collect(),
        },
        legend,
    }
}

/// What became of the requests.
fn responses_plot(name: &str, series: &TimeSeries, frame: Frame, width: Width) -> Figure {
    let bins = Bins::of(series, frame, width);
    let kinds = [
        ("accepted", &series.accepted, Colour::Accepted, false),
        ("rejected", &series.rejected, Colour::Client(7), false),
        ("refused", &series.refused, Colour::Refused, false),
        ("failed", &series.failed, Colour::Failed, true),
    ];
    let mut marks = Vec::new();
    let mut legend = Vec::new();
    let (mut top, mut said) = (0.0, String::new());
    for (word, counts, colour, is_dashed) in kinds {
        if counts.iter().all(|count| *count == 0) {
            continue;
        }
        let points = bins.per_second(|index| counts.get(index).copied().unwrap_or(0));
        let highest = max(&points);
        top = f64::max(top, highest);
        said += &format!(", {word} up to {}", rate(highest));
        if word == "accepted" {
            marks.push(area(&points, colour));
        }
        marks.push(line(points.clone(), colour, is_dashed));
        marks.push(label(width, word, &points, colour));
        legend.push((word, word));
    }
    Figure {
        caption: "What became of the requests.".to_owned(),
        plot: Plot {
            title: format!(
                "Responses of {name} over {}{said}",
                duration(frame.duration_ms)
            ),
            size: width.size(if width.has_labels { 150.0 } else { 120.0 }),
            time: frame.axis(width),
            values: Axis::up_to(top),
            unit: "per second",
            marks: marks.into_iter().flatten().collect(),
        },
        legend,
    }
}

/// When the gate was held, and when its breaker was not Closed.
fn states_plot(host: &HostReport, frame: Frame, width: Width) -> Figure {
    let lanes = [("breaker", false), ("held", true)];
    let has = |is_held: bool| {
        host.bands
            .iter()
            .any(|band| (band.kind == BandKind::Held) == is_held)
    };
    let lanes: Vec<_> = lanes
        .into_iter()
        .filter(|(_, is_held)| has(*is_held))
        .collect();
    let mut marks = Vec::new();
    let mut names = Vec::new();
    for (floor, (name, is_held)) in lanes.iter().enumerate() {
        let floor = floor as f64;
        names.push((floor + 0.5, (*name).to_owned()));
        let bands = host.bands.iter();
        let bands = bands.filter(|band| (band.kind == BandKind::Held) == *is_held);
        marks.extend(bands.map(|band| Mark::Band {
            seconds: seconds(band),
            lane: floor + 0.1..floor + 0.9,
            colour: band.kind.colour(),
            word: band.kind.word(),
        }));
    }
    Figure {
        caption: "Holds and breaker. During a hold nothing is sent; an open breaker refuses, a                   half-open one admits single probes."
            .to_owned(),
        plot: Plot {
            title: format!(
                "{}: held for {}, breaker not closed for {}",
                host.key,
                duration(host.held_ms),
                duration(host.open_ms)
            ),
            size: width.size(20.0 * lanes.len() as f64),
            time: frame.axis(width),
            values: Axis {
                top: lanes.len() as f64,
                marks: names,
            },
            unit: "",
            marks,
        },
        legend: Vec::new(),
    }
}

/// The periods in words: a short band has no room for its word.
fn states_text(host: &HostReport) -> String {
    let shown_bands = host.bands.iter().take(MAX_LISTED);
    let mut parts: Vec<String> = shown_bands
        .map(|band| {
            let (from, to) = (duration(band.from_ms), duration(band.to_ms));
            let word = band.kind.word();
            format!("{word} {from}–{to} ({})", shown(&band.reason))
        })
        .collect();
    if host.bands.len() > MAX_LISTED {
        parts.push(format!("and {} more", host.bands.len() - MAX_LISTED));
    }
    let joined = if host.are_bands_joined {
        " There were too many to list: those with short gaps are joined."
    } else {
        ""
    };
    format!("<p class=\"note\">{}.{joined}</p>\n", parts.join(" · "))
}

/// Periods that are listed in words.
const MAX_LISTED: usize = 20;

impl BandKind {
    const fn word(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Open => "open",
            Self::HalfOpen => "half-open",
            Self::Isolated => "isolated",
        }
    }

    const fn colour(self) -> Colour {
        match self {
            Self::Held => Colour::Held,
            Self::Open => Colour::Open,
            Self::HalfOpen => Colour::HalfOpen,
            Self::Isolated => Colour::Isolated,
        }
    }
}

fn seconds(band: &Band) -> Range<f64> {
    band.from_ms as f64 / 1000.0..band.to_ms as f64 / 1000.0
}

/// A tint over the plot for each period.
fn washes(bands: &[Band], top: f64) -> Vec<Option<Mark>> {
    let areas = bands.iter().map(|band| {
        let Range { start, end } = seconds(band);
        Some(Mark::Area {
            outline: vec![(start, 0.0), (start, top), (end, top), (end, 0.0)],
            colour: band.kind.colour(),
            opacity: 0.12,
        })
    });
    areas.collect()
}

fn filled(points: &[(f64, f64)], colour: Colour) -> [Option<Mark>; 2] {
    [area(points, colour), line(points.to_vec(), colour, false)]
}

fn area(points: &[(f64, f64)], colour: Colour) -> Option<Mark> {
    let (first, last) = (points.first()?, points.last()?);
    let mut outline = vec![(first.0, 0.0)];
    outline.extend(points);
    outline.push((last.0, 0.0));
    Some(Mark::Area {
        outline,
        colour,
        opacity: 0.18,
    })
}

const fn line(points: Vec<(f64, f64)>, colour: Colour, is_dashed: bool) -> Option<Mark> {
    Some(Mark::Line {
        points,
        colour,
        width: 1.75,
        is_dashed,
    })
}

/// The name of a line at its end, at the mean of its last points: a single one may be an outlier.
fn label(width: Width, text: &str, points: &[(f64, f64)], colour: Colour) -> Option<Mark> {
    let last = &points[points.len().saturating_sub(8)..];
    let sum: f64 = last.iter().map(|(_, value)| value).sum();
    width.has_labels.then(|| Mark::Label {
        at: sum / (last.len() as f64).max(1.0),
        text: text.to_owned(),
        colour,
    })
}

fn below(points: &[(f64, f64)], top: f64) -> Vec<(f64, f64)> {
    let points = points.iter();
    points.map(|(at, value)| (*at, value.min(top))).collect()
}

fn max(points: &[(f64, f64)]) -> f64 {
    points.iter().map(|(_, value)| *value).fold(0.0, f64::max)
}

fn max_of(lines: &[Vec<(f64, f64)>]) -> f64 {
    lines.iter().map(|points| max(points)).fold(0.0, f64::max)
}
