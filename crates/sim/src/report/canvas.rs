//! Draws plots as SVG. All plots of a strategy have the same width and margins, so that their time
//! axes line up.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::Axis;
use super::colour::{Colour, name_colours};
use super::escape;

/// A plot before it is drawn.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plot {
    /// What it shows, for screen readers.
    pub(super) title: String,
    pub(super) size: Size,
    pub(super) time: Axis,
    pub(super) values: Axis,
    /// The unit of the values, shown above their axis; may be empty.
    pub(super) unit: &'static str,
    /// In the order in which they are drawn.
    pub(super) marks: Vec<Mark>,
}

/// The size of a plot in CSS pixels, without its margins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Size {
    pub(super) width: f64,
    pub(super) height: f64,
}

/// Something on a plot. Points are (seconds, value).
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Mark {
    /// A filled area.
    Area {
        outline: Vec<(f64, f64)>,
        colour: Colour,
        opacity: f64,
    },
    /// A line through points.
    Line {
        points: Vec<(f64, f64)>,
        colour: Colour,
        width: f64,
    },
    /// A period on one of several lanes, with a word on it if there is room.
    Band {
        seconds: Range<f64>,
        lane: Range<f64>,
        colour: Colour,
        word: &'static str,
    },
    /// A label to the right of the plot, at the height of what it names.
    Label {
        at: f64,
        text: String,
        colour: Colour,
    },
}

/// Draws a plot as an SVG element.
pub(super) fn draw(plot: &Plot) -> String {
    let (width, height) = plot.extent();
    let mut drawing = String::new();
    let backend = SVGBackend::with_string(&mut drawing, (unsigned(width), unsigned(height)));
    draw_on(&backend.into_drawing_area(), plot)
        .expect("a drawing in memory can always be written to");
    let content = drawing.split_once('>').map_or("", |(_, content)| content);
    format!(
        "<svg class=\"plot\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">{}",
        escape(&plot.title),
        name_colours(content),
    )
}

/// Coordinates are integers; four of them per pixel keep slopes smooth.
const UNITS_PER_PIXEL: f64 = 4.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 108.0;
const TOP: f64 = 22.0;
const BOTTOM: f64 = 24.0;
const FONT: f64 = 12.0;
/// Lines of text closer than this overlap.
const LINE_HEIGHT: f64 = 14.0;

type Root<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Field<'a> = DrawingArea<SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type DrawResult = Result<(), DrawingAreaErrorKind<std::io::Error>>;

impl Plot {
    fn extent(&self) -> (i32, i32) {
        (
            units(LEFT + self.size.width + RIGHT),
            units(self.top() + self.size.height + BOTTOM),
        )
    }

    /// The top margin: room for the unit, if there is one.
    fn top(&self) -> f64 {
        if self.unit.is_empty() { 4.0 } else { TOP }
    }
}

fn draw_on(root: &Root<'_>, plot: &Plot) -> DrawResult {
    let columns = units(LEFT)..units(LEFT + plot.size.width);
    let rows = units(plot.top() + plot.size.height)..units(plot.top());
    let field = root.apply_coord_spec(Cartesian2d::<RangedCoordf64, RangedCoordf64>::new(
        0.0..plot.time.top,
        0.0..plot.values.top,
        (columns, rows),
    ));
    draw_grid(root, &field, plot)?;
    for mark in &plot.marks {
        draw_mark(root, &field, mark)?;
    }
    draw_time_axis(&field, plot)?;
    draw_labels(root, &field, plot)?;
    root.present()
}

fn draw_grid(root: &Root<'_>, field: &Field<'_>, plot: &Plot) -> DrawResult {
    let (left, right) = (units(LEFT), units(LEFT + plot.size.width));
    for (value, text) in &plot.values.marks {
        let (_, y) = field.map_coordinate(&(0.0, *value));
        let line = PathElement::new(vec![(left, y), (right, y)], stroke(Colour::Grid, 1.0));
        root.draw(&line)?;
        write(
            root,
            text,
            Colour::Label,
            (HPos::Right, VPos::Center),
            (left - units(8.0), y),
        )?;
    }
    let (top, bottom) = (units(plot.top()), units(plot.top() + plot.size.height));
    for (second, text) in &plot.time.marks {
        let (x, _) = field.map_coordinate(&(*second, 0.0));
        let line = PathElement::new(vec![(x, top), (x, bottom)], stroke(Colour::Grid, 1.0));
        root.draw(&line)?;
        write(
            root,
            text,
            Colour::Label,
            (HPos::Center, VPos::Top),
            (x, bottom + units(7.0)),
        )?;
    }
    write(
        root,
        plot.unit,
        Colour::Label,
        (HPos::Left, VPos::Top),
        (left, units(4.0)),
    )
}

fn draw_time_axis(field: &Field<'_>, plot: &Plot) -> DrawResult {
    let axis = vec![(0.0, 0.0), (plot.time.top, 0.0)];
    field.draw(&PathElement::new(axis, stroke(Colour::Axis, 1.0)))
}

fn draw_mark(root: &Root<'_>, field: &Field<'_>, mark: &Mark) -> DrawResult {
    match mark {
        Mark::Area {
            outline,
            colour,
            opacity,
        } => field.draw(&Polygon::new(
            outline.clone(),
            colour.placeholder().mix(*opacity),
        )),
        Mark::Line {
            points,
            colour,
            width,
        } => field.draw(&PathElement::new(points.clone(), stroke(*colour, *width))),
        Mark::Band {
            seconds,
            lane,
            colour,
            word,
        } => draw_band(root, field, seconds, lane, *colour, word),
        // `draw_labels` draws all labels at once, to keep them apart.
        Mark::Label { .. } => Ok(()),
    }
}

fn draw_band(
    root: &Root<'_>,
    field: &Field<'_>,
    seconds: &Range<f64>,
    lane: &Range<f64>,
    colour: Colour,
    word: &str,
) -> DrawResult {
    let (left, bottom) = field.map_coordinate(&(seconds.start, lane.start));
    let (right, top) = field.map_coordinate(&(seconds.end, lane.end));
    // Short periods are widened to stay visible.
    let right = right.max(left + units(1.5));
    root.draw(&Rectangle::new(
        [(left, top), (right, bottom)],
        colour.placeholder().filled(),
    ))?;
    let room = units(FONT * 0.65) * i32::try_from(word.len()).unwrap_or(i32::MAX / 1024);
    if right - left < room || bottom - top < units(LINE_HEIGHT) {
        return Ok(());
    }
    let centre = (i32::midpoint(left, right), i32::midpoint(top, bottom));
    write(
        root,
        word,
        Colour::Paper,
        (HPos::Center, VPos::Center),
        centre,
    )
}

fn draw_labels(root: &Root<'_>, field: &Field<'_>, plot: &Plot) -> DrawResult {
    let mut labels = Vec::new();
    for mark in &plot.marks {
        if let Mark::Label { at, text, colour } = mark {
            let (_, y) = field.map_coordinate(&(0.0, at.clamp(0.0, plot.values.top)));
            labels.push((y, text, *colour));
        }
    }
    labels.sort_by_key(|(y, _, _)| *y);
    let preferred: Vec<i32> = labels.iter().map(|(y, _, _)| *y).collect();
    let heights = spread_out(
        &preferred,
        units(LINE_HEIGHT),
        units(plot.top() + plot.size.height - 4.0),
    );
    let x = units(LEFT + plot.size.width + 8.0);
    for ((_, text, colour), y) in labels.iter().zip(heights) {
        write(root, text, *colour, (HPos::Left, VPos::Center), (x, y))?;
    }
    Ok(())
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

fn write(
    root: &Root<'_>,
    text: &str,
    colour: Colour,
    anchor: (HPos, VPos),
    at: (i32, i32),
) -> DrawResult {
    if text.is_empty() {
        return Ok(());
    }
    // The library divides font sizes by this.
    const LIBRARY: f64 = 1.24;
    let colour = colour.placeholder();
    let style = TextStyle::from(("sans-serif", FONT * UNITS_PER_PIXEL * LIBRARY))
        .color(&colour)
        .pos(Pos::new(anchor.0, anchor.1));
    root.draw_text(text, &style, at)
}

fn stroke(colour: Colour, width: f64) -> ShapeStyle {
    colour.placeholder().stroke_width(unsigned(units(width)))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "`as` saturates, and no plot is that large"
)]
fn units(pixels: f64) -> i32 {
    (pixels * UNITS_PER_PIXEL).round() as i32
}

fn unsigned(length: i32) -> u32 {
    u32::try_from(length).unwrap_or(0)
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
