//! Plots of states over time: a lane of bands for each client, or each kind of state.

use std::ops::Range;

use policy::time::Timestamp;

use super::plots::{Figure, Frame, size};
use crate::measure::Band;
use crate::plot::{Axis, Colour, Mark, Plot};

/// One row of bands.
pub(super) struct Lane {
    pub(super) name: String,
    pub(super) bands: Vec<PlotBand>,
}

/// A band, its colour and the word on it.
pub(super) struct PlotBand {
    pub(super) from_s: f64,
    pub(super) to_s: f64,
    pub(super) colour: Colour,
    pub(super) word: &'static str,
}

impl PlotBand {
    pub(super) fn new<T>(band: &Band<T>, (colour, word): (Colour, &'static str)) -> Self {
        let seconds = |at: Timestamp| at.seconds_since(Timestamp::ZERO);
        Self {
            from_s: seconds(band.from),
            to_s: seconds(band.to),
            colour,
            word,
        }
    }

    /// As a mark between these values.
    pub(super) fn mark(&self, lane: Range<f64>) -> Mark {
        Mark::Band {
            seconds: self.from_s..self.to_s,
            lane,
            colour: self.colour,
            word: self.word,
        }
    }
}

/// The lanes from top to bottom.
pub(super) fn figure(
    heading: &'static str,
    caption: String,
    title: String,
    lanes: &[Lane],
    frame: Frame,
) -> Figure {
    let count = lanes.len() as f64;
    let height = if lanes.len() > 6 { THIN } else { THICK };
    let floors = (1..=lanes.len()).map(|number| count - number as f64);
    let lanes = lanes.iter().zip(floors);
    let names = lanes
        .clone()
        .map(|(lane, floor)| (floor + 0.5, lane.name.clone()));
    let marks = lanes.flat_map(|(lane, floor)| {
        let bands = lane.bands.iter();
        bands.map(move |band| band.mark(floor + 0.1..floor + 0.9))
    });
    Figure {
        heading,
        caption,
        plot: Plot {
            title,
            size: size(height * count),
            time: Axis::time(frame.end_s),
            values: Axis {
                top: count,
                marks: names.collect(),
            },
            unit: "",
            marks: marks.collect(),
        },
    }
}

/// The height of a lane with words on its bands.
const THICK: f64 = 20.0;
/// The height of one of many lanes, too low for words.
const THIN: f64 = 13.0;
