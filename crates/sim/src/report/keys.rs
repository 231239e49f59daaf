//! A fleet with many keys as pictures for the documentation, one point for all keys of similar rank:
//! what the busiest stretch of each sent and what it got, and what it costs the store.

use super::life::framed;
use crate::keys::{KeyFigures, KeysFigures};
use crate::plot::{Axis, Colour, Mark, Plot, Size, draw};

/// Peaks and goodput by rank, as an SVG file.
pub fn limits_of_keys(figures: &KeysFigures) -> String {
    let peak = line(figures, |key| key.figures.peak_ratio, f64::max);
    let goodput = line(figures, |key| key.figures.goodput_ratio_settled, f64::min);
    draw_by_rank(&ByRank {
        title: "the highest peak and the lowest goodput of keys, by rank",
        unit: "share",
        keys: figures.keys.len(),
        lines: &[
            ("highest peak", Colour::AllClients, peak),
            ("least goodput", Colour::Accepted, goodput),
        ],
        level: Some(("limit", 1.0)),
    })
}

/// Changes in the store for each request by rank, as an SVG file.
pub fn store_work_of_keys(figures: &KeysFigures) -> String {
    let updates = |key: &KeyFigures| {
        let sent = key.figures.sent;
        (sent > 0).then(|| key.updates as f64 / sent as f64)
    };
    draw_by_rank(&ByRank {
        title: "changes in the store for each request of a key, by rank",
        unit: "changes per request",
        keys: figures.keys.len(),
        lines: &[("most", Colour::Rate, line(figures, updates, f64::max))],
        level: None,
    })
}

struct ByRank<'a> {
    title: &'a str,
    unit: &'static str,
    keys: usize,
    lines: &'a [Line],
    level: Option<(&'static str, f64)>,
}

/// Its name, its colour and its points.
type Line = (&'static str, Colour, Vec<(f64, f64)>);

/// The rank is on a logarithmic axis: half of all requests are for a few keys.
fn draw_by_rank(plot: &ByRank<'_>) -> String {
    let width = (plot.keys as f64).log10().max(f64::MIN_POSITIVE);
    let powers = (0..).map(|power| 10_usize.pow(power));
    let marks = powers.take_while(|rank| *rank <= plot.keys);
    let points = plot.lines.iter().flat_map(|(_, _, points)| points);
    let levels = plot.level.iter().map(|(_, level)| *level);
    let top = points.map(|(_, value)| *value).chain(levels);
    let mut drawn = Vec::new();
    if let Some((word, level)) = plot.level {
        drawn.push(line_mark(
            vec![(0.0, level), (width, level)],
            Colour::Capacity,
            true,
        ));
        drawn.push(label(word, level, Colour::Capacity));
    }
    for (word, colour, points) in plot.lines {
        drawn.push(line_mark(points.clone(), *colour, false));
        let last = points.last().map_or(0.0, |(_, value)| *value);
        drawn.push(label(word, last, *colour));
    }
    framed(&draw(&Plot {
        title: plot.title.to_owned(),
        size: Size {
            width: 640.0,
            height: 200.0,
            right: Size::LABELS,
        },
        time: Axis {
            top: width,
            marks: marks
                .map(|rank| ((rank as f64).log10(), format!("key {rank}")))
                .collect(),
        },
        values: Axis::up_to(top.fold(0.0, f64::max)),
        unit: plot.unit,
        marks: drawn,
    }))
}

fn line_mark(points: Vec<(f64, f64)>, colour: Colour, is_dashed: bool) -> Mark {
    Mark::Line {
        points,
        colour,
        width: 1.5,
        is_dashed,
    }
}

fn label(text: &str, at: f64, colour: Colour) -> Mark {
    Mark::Label {
        at,
        text: text.to_owned(),
        colour,
    }
}

/// How many points there are from one rank to ten times that rank.
const POINTS: f64 = 20.0;

/// The value of the worst key around each rank.
fn line(
    figures: &KeysFigures,
    value: impl Fn(&KeyFigures) -> Option<f64>,
    worst: fn(f64, f64) -> f64,
) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    for key in &figures.keys {
        let Some(value) = value(key) else { continue };
        let at = (f64::from(key.rank).log10() * POINTS).floor() / POINTS;
        match points.last_mut() {
            Some(last) if last.0.to_bits() == at.to_bits() => last.1 = worst(last.1, value),
            _ => points.push((at, value)),
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fleet::StoreSettings;
    use crate::keys::{KeysSettings, simulate_keys};

    #[test]
    fn pictures_show_the_worst_key_of_each_rank() {
        let settings = KeysSettings {
            nodes: 2,
            keys: 30,
            limit: 5.0,
            asked: 10.0,
            duration: Duration::from_secs(80),
            store: StoreSettings::default(),
        };
        let figures = simulate_keys(&settings, 1, 1);
        let peaks = line(&figures, |key| key.figures.peak_ratio, f64::max);
        assert!(peaks.len() < 30 && peaks.len() > 15, "{}", peaks.len());
        let highest = peaks.iter().map(|(_, peak)| *peak).reduce(f64::max);
        assert_eq!(highest, figures.peak());
        for picture in [limits_of_keys(&figures), store_work_of_keys(&figures)] {
            let mut reader = quick_xml::Reader::from_str(&picture);
            while reader.read_event().unwrap() != quick_xml::events::Event::Eof {}
            assert!(picture.contains("key 10"), "{picture}");
        }
    }
}
