//! Draws plots as SVG.

use std::fmt::Write;
use std::ops::Range;

use super::axis::Axis;
use super::colour::Colour;
use super::escape;

/// A plot before it is drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// What it shows, for screen readers.
    pub title: String,
    /// How large it is.
    pub size: Size,
    /// The horizontal axis, in seconds.
    pub time: Axis,
    /// The vertical axis.
    pub values: Axis,
    /// The unit of the values, shown above their axis; may be empty.
    pub unit: &'static str,
    /// In the order in which they are drawn.
    pub marks: Vec<Mark>,
}

/// The size of a plot in CSS pixels, without its margins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// Of the area between the axes.
    pub width: f64,
    /// Of the area between the axes.
    pub height: f64,
    /// Of the margin to the right, which has the labels of lines.
    pub right: f64,
}

impl Size {
    /// The right margin with room for a label such as `all rates`.
    pub const LABELS: f64 = 108.0;
}

/// Something on a plot. Points are (seconds, value).
#[derive(Clone, Debug, PartialEq)]
pub enum Mark {
    /// A filled area.
    Area {
        /// Its corners.
        outline: Vec<(f64, f64)>,
        /// Its colour.
        colour: Colour,
        /// From 0 to 1.
        opacity: f64,
    },
    /// A line through points.
    Line {
        /// In order.
        points: Vec<(f64, f64)>,
        /// Its colour.
        colour: Colour,
        /// In pixels.
        width: f64,
        /// Whether it is dashed.
        is_dashed: bool,
    },
    /// A period on one of several lanes, with a word on it if there is room.
    Band {
        /// From when to when.
        seconds: Range<f64>,
        /// The values that it covers.
        lane: Range<f64>,
        /// Its colour.
        colour: Colour,
        /// What it is.
        word: &'static str,
    },
    /// A label to the right of the plot, at the height of what it names.
    Label {
        /// The value at whose height it is.
        at: f64,
        /// What it says.
        text: String,
        /// Its colour.
        colour: Colour,
    },
}

/// Draws a plot as an SVG element.
pub fn draw(plot: &Plot) -> String {
    let mut canvas = Canvas {
        plot,
        svg: String::new(),
    };
    canvas.draw_grid();
    for mark in &plot.marks {
        canvas.draw_mark(mark);
    }
    canvas.draw_line(
        &[(0.0, 0.0), (plot.time.top, 0.0)],
        Colour::Axis,
        1.0,
        false,
    );
    canvas.draw_labels();
    let width = units(LEFT + plot.size.width + plot.size.right);
    let height = units(plot.top() + plot.size.height + BOTTOM);
    format!(
        "<svg class=\"plot\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n",
        escape(&plot.title),
        canvas.svg,
    )
}

/// Coordinates are integers; four of them per pixel keep slopes smooth.
const UNITS_PER_PIXEL: f64 = 4.0;
const LEFT: f64 = 62.0;
const TOP: f64 = 22.0;
const BOTTOM: f64 = 24.0;
const FONT: f64 = 12.0;
/// Five pixels, and a gap of three.
const DASH: &str = " stroke-dasharray=\"20 12\"";
/// Lines of text closer than this overlap.
const LINE_HEIGHT: f64 = 14.0;

impl Plot {
    /// The top margin: room for the unit, if there is one.
    fn top(&self) -> f64 {
        if self.unit.is_empty() { 4.0 } else { TOP }
    }
}

/// How a text lies at its position: `text-anchor` and `dy`.
#[derive(Clone, Copy)]
struct Anchor(&'static str, &'static str);

const MIDDLE: &str = "0.5ex";
const BELOW: &str = "0.76em";

struct Canvas<'a> {
    plot: &'a Plot,
    svg: String,
}

impl Canvas<'_> {
    fn draw_grid(&mut self) {
        let plot = self.plot;
        for (value, text) in &plot.values.marks {
            let y = self.y(*value);
            let level = [(0.0, *value), (plot.time.top, *value)];
            self.draw_line(&level, Colour::Grid, 1.0, false);
            let at = (units(LEFT) - units(8.0), y);
            self.write(text, Colour::Label, Anchor("end", MIDDLE), at);
        }
        let (top, bottom) = (units(plot.top()), units(plot.top() + plot.size.height));
        for (second, text) in &plot.time.marks {
            let x = self.x(*second);
            self.draw_path(&[(x, top), (x, bottom)], Colour::Grid, 1.0, false);
            let at = (x, bottom + units(7.0));
            self.write(text, Colour::Label, Anchor("middle", BELOW), at);
        }
        let at = (units(LEFT), units(4.0));
        self.write(plot.unit, Colour::Label, Anchor("start", BELOW), at);
    }

    fn draw_mark(&mut self, mark: &Mark) {
        match mark {
            Mark::Area {
                outline,
                colour,
                opacity,
            } => {
                let (fill, points) = (colour.variable(), self.points(outline));
                // Writing into a string cannot fail.
                _ = writeln!(
                    self.svg,
                    "<polygon opacity=\"{opacity}\" fill=\"{fill}\" points=\"{points}\"/>"
                );
            }
            Mark::Line {
                points,
                colour,
                width,
                is_dashed,
            } => self.draw_line(points, *colour, *width, *is_dashed),
            Mark::Band {
                seconds,
                lane,
                colour,
                word,
            } => self.draw_band(seconds, lane, *colour, word),
            // `draw_labels` draws all labels at once, to keep them apart.
            Mark::Label { .. } => {}
        }
    }

    fn draw_band(&mut self, seconds: &Range<f64>, lane: &Range<f64>, colour: Colour, word: &str) {
        let (left, bottom) = (self.x(seconds.start), self.y(lane.start));
        let top = self.y(lane.end);
        // Short periods are widened to stay visible.
        let right = self.x(seconds.end).max(left + units(1.5));
        let (width, height, fill) = (right - left, bottom - top, colour.variable());
        _ = writeln!(
            self.svg,
            "<rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" opacity=\"1\" fill=\"{fill}\" stroke=\"none\"/>"
        );
        let room = units(FONT * 0.65) * i32::try_from(word.len()).unwrap_or(i32::MAX / 1024);
        if width >= room && height >= units(LINE_HEIGHT) {
            let centre = (i32::midpoint(left, right), i32::midpoint(top, bottom));
            self.write(word, Colour::Paper, Anchor("middle", MIDDLE), centre);
        }
    }

    fn draw_labels(&mut self) {
        let plot = self.plot;
        let mut labels = Vec::new();
        for mark in &plot.marks {
            if let Mark::Label { at, text, colour } = mark {
                labels.push((self.y(at.clamp(0.0, plot.values.top)), text, *colour));
            }
        }
        labels.sort_by_key(|(y, _, _)| *y);
        let preferred: Vec<i32> = labels.iter().map(|(y, _, _)| *y).collect();
        let floor = units(plot.top() + plot.size.height - 4.0);
        let heights = spread_out(&preferred, units(LINE_HEIGHT), floor);
        let x = units(LEFT + plot.size.width + 8.0);
        for ((_, text, colour), y) in labels.iter().zip(heights) {
            self.write(text, *colour, Anchor("start", MIDDLE), (x, y));
        }
    }

    fn draw_line(&mut self, points: &[(f64, f64)], colour: Colour, width: f64, is_dashed: bool) {
        let points: Vec<_> = points
            .iter()
            .map(|(s, v)| (self.x(*s), self.y(*v)))
            .collect();
        self.draw_path(&points, colour, width, is_dashed);
    }

    fn draw_path(&mut self, points: &[(i32, i32)], colour: Colour, width: f64, is_dashed: bool) {
        let (stroke, width) = (colour.variable(), units(width));
        let dash = if is_dashed { DASH } else { "" };
        let points: String = points.iter().map(|(x, y)| format!("{x},{y} ")).collect();
        _ = writeln!(
            self.svg,
            "<polyline fill=\"none\" opacity=\"1\" stroke=\"{stroke}\" stroke-width=\"{width}\"{dash} points=\"{points}\"/>"
        );
    }

    fn write(&mut self, text: &str, colour: Colour, anchor: Anchor, (x, y): (i32, i32)) {
        if text.is_empty() {
            return;
        }
        let (Anchor(anchor, dy), fill) = (anchor, colour.variable());
        let (size, text) = (FONT * UNITS_PER_PIXEL, escape(text));
        _ = writeln!(
            self.svg,
            "<text x=\"{x}\" y=\"{y}\" dy=\"{dy}\" text-anchor=\"{anchor}\" font-family=\"sans-serif\" font-size=\"{size}\" opacity=\"1\" fill=\"{fill}\">\n{text}\n</text>"
        );
    }

    fn points(&self, points: &[(f64, f64)]) -> String {
        let points = points.iter();
        points
            .map(|(second, value)| format!("{},{} ", self.x(*second), self.y(*value)))
            .collect()
    }

    fn x(&self, second: f64) -> i32 {
        let length = f64::from(units(LEFT + self.plot.size.width) - units(LEFT));
        // A thousandth, so that a product just below a whole number is not cut.
        units(LEFT) + whole((length * (second / self.plot.time.top) + 1e-3).floor())
    }

    fn y(&self, value: f64) -> i32 {
        let bottom = units(self.plot.top() + self.plot.size.height);
        let length = f64::from(units(self.plot.top()) - bottom);
        bottom + whole((length * (value / self.plot.values.top) - 1e-3).ceil())
    }
}

/// Moves heights, which are in order, at least `gap` apart: those that are too close form a group
/// around the mean of their preferred heights. None is below the `floor`.
fn spread_out(preferred: &[i32], gap: i32, floor: i32) -> Vec<i32> {
    let mut groups: Vec<Group> = Vec::new();
    for y in preferred {
        let mut group = Group { sum: *y, count: 1 };
        while let Some(above) = groups.pop_if(|above| above.bottom(gap) + gap > group.top(gap)) {
            group.sum += above.sum;
            group.count += above.count;
        }
        groups.push(group);
    }
    let members = groups
        .iter()
        .flat_map(|group| (0..group.count).map(move |index| group.top(gap) + index * gap));
    let mut heights: Vec<i32> = members.collect();
    let mut max = floor;
    for height in heights.iter_mut().rev() {
        *height = (*height).min(max);
        max = *height - gap;
    }
    heights
}

/// Labels directly below each other.
struct Group {
    /// Of the preferred heights.
    sum: i32,
    count: i32,
}

impl Group {
    fn top(&self, gap: i32) -> i32 {
        self.sum / self.count - gap * (self.count - 1) / 2
    }

    fn bottom(&self, gap: i32) -> i32 {
        self.top(gap) + gap * (self.count - 1)
    }
}

fn units(pixels: f64) -> i32 {
    whole((pixels * UNITS_PER_PIXEL).round())
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "`as` saturates, and no plot is that large"
)]
fn whole(number: f64) -> i32 {
    number as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_moved_apart() {
        assert_eq!(spread_out(&[10, 50], 14, 100), [10, 50]);
        assert_eq!(spread_out(&[30, 31, 32], 14, 100), [17, 31, 45]);
        assert_eq!(spread_out(&[30, 31, 50], 14, 100), [23, 37, 51]);
        assert_eq!(spread_out(&[98, 99, 100], 14, 100), [72, 86, 100]);
        assert_eq!(spread_out(&[], 14, 100), [0; 0]);
    }
}
