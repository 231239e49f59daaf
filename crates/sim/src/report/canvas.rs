//! From marks in data to a drawing with axes. All plots of a page share the time axis: equally wide,
//! with equal margins, so that what lies above each other happened at the same time.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::colour::{Paint, name_colours};
use super::markup::escape;
use super::scale::Axis;

/// A plot before it is drawn.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plot {
    /// What it shows, for those who cannot see it.
    pub(super) title: String,
    /// In pixels of a usual screen.
    pub(super) size: Size,
    pub(super) time: Axis,
    pub(super) values: Axis,
    /// The unit of the values, above their axis.
    pub(super) unit: &'static str,
    /// In the order in which they are drawn.
    pub(super) marks: Vec<Mark>,
}

/// How large a plot is, without its margins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Size {
    pub(super) width: f64,
    pub(super) height: f64,
}

/// Something on a plot; places are seconds and values.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Mark {
    /// A surface within this outline.
    Area {
        outline: Vec<(f64, f64)>,
        paint: Paint,
        opacity: f64,
    },
    /// A line through these places.
    Line {
        places: Vec<(f64, f64)>,
        paint: Paint,
        width: f64,
    },
    /// A stretch of time on one of several lanes, with a word on it if that fits.
    Band {
        seconds: Range<f64>,
        lane: Range<f64>,
        paint: Paint,
        word: &'static str,
    },
    /// Words to the right of the plot, at the height of what they name.
    Name {
        at: f64,
        words: String,
        paint: Paint,
    },
}

/// The drawing as an element of a page.
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

/// Places are whole numbers; four of them to a pixel keep slopes smooth.
const FINENESS: f64 = 4.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 108.0;
const TOP: f64 = 22.0;
const BOTTOM: f64 = 24.0;
const FONT: f64 = 12.0;
/// Lines of words closer than this overlap.
const LINE_HEIGHT: f64 = 14.0;

type Root<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Field<'a> = DrawingArea<SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

impl Plot {
    fn extent(&self) -> (i32, i32) {
        (
            fine(LEFT + self.size.width + RIGHT),
            fine(self.top() + self.size.height + BOTTOM),
        )
    }

    /// Room for the unit, if there is one.
    fn top(&self) -> f64 {
        if self.unit.is_empty() { 4.0 } else { TOP }
    }
}

fn draw_on(root: &Root<'_>, plot: &Plot) -> Drawn {
    let columns = fine(LEFT)..fine(LEFT + plot.size.width);
    let rows = fine(plot.top() + plot.size.height)..fine(plot.top());
    let field = root.apply_coord_spec(Cartesian2d::<RangedCoordf64, RangedCoordf64>::new(
        0.0..plot.time.top,
        0.0..plot.values.top,
        (columns, rows),
    ));
    draw_grid(root, &field, plot)?;
    for mark in &plot.marks {
        draw_mark(root, &field, mark)?;
    }
    draw_floor(&field, plot)?;
    draw_names(root, &field, plot)?;
    root.present()
}

fn draw_grid(root: &Root<'_>, field: &Field<'_>, plot: &Plot) -> Drawn {
    let (left, right) = (fine(LEFT), fine(LEFT + plot.size.width));
    for (value, words) in &plot.values.marks {
        let (_, y) = field.map_coordinate(&(0.0, *value));
        let line = PathElement::new(vec![(left, y), (right, y)], stroke(Paint::Grid, 1.0));
        root.draw(&line)?;
        write(
            root,
            words,
            Paint::Label,
            (HPos::Right, VPos::Center),
            (left - fine(8.0), y),
        )?;
    }
    let (top, bottom) = (fine(plot.top()), fine(plot.top() + plot.size.height));
    for (second, words) in &plot.time.marks {
        let (x, _) = field.map_coordinate(&(*second, 0.0));
        let line = PathElement::new(vec![(x, top), (x, bottom)], stroke(Paint::Grid, 1.0));
        root.draw(&line)?;
        write(
            root,
            words,
            Paint::Label,
            (HPos::Center, VPos::Top),
            (x, bottom + fine(7.0)),
        )?;
    }
    write(
        root,
        plot.unit,
        Paint::Label,
        (HPos::Left, VPos::Top),
        (left, fine(4.0)),
    )
}

fn draw_floor(field: &Field<'_>, plot: &Plot) -> Drawn {
    let floor = vec![(0.0, 0.0), (plot.time.top, 0.0)];
    field.draw(&PathElement::new(floor, stroke(Paint::Axis, 1.0)))
}

fn draw_mark(root: &Root<'_>, field: &Field<'_>, mark: &Mark) -> Drawn {
    match mark {
        Mark::Area {
            outline,
            paint,
            opacity,
        } => field.draw(&Polygon::new(
            outline.clone(),
            paint.stand_in().mix(*opacity),
        )),
        Mark::Line {
            places,
            paint,
            width,
        } => field.draw(&PathElement::new(places.clone(), stroke(*paint, *width))),
        Mark::Band {
            seconds,
            lane,
            paint,
            word,
        } => draw_band(root, field, seconds, lane, *paint, word),
        // Drawn together, since they make way for each other.
        Mark::Name { .. } => Ok(()),
    }
}

fn draw_band(
    root: &Root<'_>,
    field: &Field<'_>,
    seconds: &Range<f64>,
    lane: &Range<f64>,
    paint: Paint,
    word: &str,
) -> Drawn {
    let (left, bottom) = field.map_coordinate(&(seconds.start, lane.start));
    let (right, top) = field.map_coordinate(&(seconds.end, lane.end));
    // What was short must still be seen.
    let right = right.max(left + fine(1.5));
    root.draw(&Rectangle::new(
        [(left, top), (right, bottom)],
        paint.stand_in().filled(),
    ))?;
    let room = fine(FONT * 0.65) * i32::try_from(word.len()).unwrap_or(i32::MAX / 1024);
    if right - left < room || bottom - top < fine(LINE_HEIGHT) {
        return Ok(());
    }
    let middle = (i32::midpoint(left, right), i32::midpoint(top, bottom));
    write(
        root,
        word,
        Paint::Paper,
        (HPos::Center, VPos::Center),
        middle,
    )
}

fn draw_names(root: &Root<'_>, field: &Field<'_>, plot: &Plot) -> Drawn {
    let mut names = Vec::new();
    for mark in &plot.marks {
        if let Mark::Name { at, words, paint } = mark {
            let (_, y) = field.map_coordinate(&(0.0, at.clamp(0.0, plot.values.top)));
            names.push((y, words, *paint));
        }
    }
    names.sort_by_key(|(y, _, _)| *y);
    let wanted: Vec<i32> = names.iter().map(|(y, _, _)| *y).collect();
    let places = apart(
        &wanted,
        fine(LINE_HEIGHT),
        fine(plot.top() + plot.size.height - 4.0),
    );
    let x = fine(LEFT + plot.size.width + 8.0);
    for ((_, words, paint), y) in names.iter().zip(places) {
        write(root, words, *paint, (HPos::Left, VPos::Center), (x, y))?;
    }
    Ok(())
}

/// Places at least `gap` apart, as close as can be to those that are wanted, which are in order:
/// whoever is too close forms a group around the middle of what its members want. None is below
/// the floor.
fn apart(wanted: &[i32], gap: i32, floor: i32) -> Vec<i32> {
    let mut groups: Vec<Group> = Vec::new();
    for y in wanted {
        let mut group = Group { sum: *y, count: 1 };
        while let Some(above) = groups.pop_if(|above| above.bottom(gap) + gap > group.top(gap)) {
            // Each member asks for the group's middle by where it wants to be itself.
            group.sum += above.sum;
            group.count += above.count;
        }
        groups.push(group);
    }
    let members = groups
        .iter()
        .flat_map(|group| (0..group.count).map(move |index| group.top(gap) + index * gap));
    let mut places: Vec<i32> = members.collect();
    let mut most = floor;
    for place in places.iter_mut().rev() {
        *place = (*place).min(most);
        most = *place - gap;
    }
    places
}

/// Names that stand directly below each other.
struct Group {
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
    words: &str,
    paint: Paint,
    anchor: (HPos, VPos),
    at: (i32, i32),
) -> Drawn {
    if words.is_empty() {
        return Ok(());
    }
    // The library divides by this on the way to the page.
    const LIBRARY: f64 = 1.24;
    let colour = paint.stand_in();
    let style = TextStyle::from(("sans-serif", FONT * FINENESS * LIBRARY))
        .color(&colour)
        .pos(Pos::new(anchor.0, anchor.1));
    root.draw_text(words, &style, at)
}

fn stroke(paint: Paint, width: f64) -> ShapeStyle {
    paint.stand_in().stroke_width(unsigned(fine(width)))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "`as` saturates, and no plot is that large"
)]
fn fine(pixels: f64) -> i32 {
    (pixels * FINENESS).round() as i32
}

fn unsigned(length: i32) -> u32 {
    u32::try_from(length).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_make_way_for_each_other() {
        assert_eq!(apart(&[10, 50], 14, 100), [10, 50]);
        assert_eq!(apart(&[30, 31, 32], 14, 100), [17, 31, 45]);
        assert_eq!(apart(&[30, 31, 50], 14, 100), [23, 37, 51]);
        assert_eq!(apart(&[98, 99, 100], 14, 100), [72, 86, 100]);
        assert_eq!(apart(&[], 14, 100), [0; 0]);
    }
}
