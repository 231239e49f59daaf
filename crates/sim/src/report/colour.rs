//! Colours by name. What is drawn does not know whether the page is light, dark or on paper.
//!
//! The drawing library wants numbers, so each name is drawn as a number of its own, and afterwards
//! the number is replaced by the name of a variable, which the page's style gives a value. Values
//! are those of Okabe and Ito, which people with any kind of colour vision can tell apart.

use plotters::style::RGBColor;

/// What something is painted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Paint {
    /// Words that belong to the axes.
    Label,
    /// Lines of the grid.
    Grid,
    /// The axes themselves.
    Axis,
    /// What keeps neighbours apart, and words on something dark.
    Paper,
    /// What the upstream could take.
    Capacity,
    /// The rate that a client allows itself.
    Rate,
    /// Several clients taken together.
    Together,
    /// Accepted requests.
    Accepted,
    /// Refused requests.
    Refused,
    /// Requests that failed otherwise.
    Failed,
    /// Time to the answer.
    Latency,
    /// A hold.
    Held,
    /// The breaker is Open.
    Open,
    /// The breaker is HalfOpen.
    HalfOpen,
    /// The breaker is Isolated.
    Isolated,
    /// One of several clients; there are [`CLIENT_PAINTS`] of these.
    Client(u8),
}

/// How many clients have a colour of their own.
pub(super) const CLIENT_PAINTS: u8 = 8;

impl Paint {
    /// What the drawing library is told: a number that stands for the name.
    pub(super) fn stand_in(self) -> RGBColor {
        RGBColor(1, 2, self.number())
    }

    /// How the page's style calls it.
    pub(super) fn variable(self) -> String {
        match self {
            Self::Label => "var(--label)".into(),
            Self::Grid => "var(--grid)".into(),
            Self::Axis => "var(--axis)".into(),
            Self::Paper => "var(--paper)".into(),
            Self::Capacity => "var(--capacity)".into(),
            Self::Rate => "var(--rate)".into(),
            Self::Together => "var(--together)".into(),
            Self::Accepted => "var(--accepted)".into(),
            Self::Refused => "var(--refused)".into(),
            Self::Failed => "var(--failed)".into(),
            Self::Latency => "var(--latency)".into(),
            Self::Held => "var(--held)".into(),
            Self::Open => "var(--open)".into(),
            Self::HalfOpen => "var(--half-open)".into(),
            Self::Isolated => "var(--isolated)".into(),
            Self::Client(number) => format!("var(--client-{})", number % CLIENT_PAINTS),
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Label => 1,
            Self::Grid => 2,
            Self::Axis => 3,
            Self::Paper => 4,
            Self::Capacity => 5,
            Self::Rate => 6,
            Self::Together => 15,
            Self::Accepted => 7,
            Self::Refused => 8,
            Self::Failed => 9,
            Self::Latency => 10,
            Self::Held => 11,
            Self::Open => 12,
            Self::HalfOpen => 13,
            Self::Isolated => 14,
            Self::Client(number) => 100 + number % CLIENT_PAINTS,
        }
    }
}

/// The drawing with names in place of the numbers that stand for them.
pub(super) fn name_colours(drawing: &str) -> String {
    let mut named = drawing.to_owned();
    for paint in every_paint() {
        let RGBColor(red, green, blue) = paint.stand_in();
        let number = format!("#{red:02X}{green:02X}{blue:02X}");
        named = named.replace(&number, &paint.variable());
    }
    named
}

fn every_paint() -> impl Iterator<Item = Paint> {
    let named = [
        Paint::Label,
        Paint::Grid,
        Paint::Axis,
        Paint::Paper,
        Paint::Capacity,
        Paint::Rate,
        Paint::Together,
        Paint::Accepted,
        Paint::Refused,
        Paint::Failed,
        Paint::Latency,
        Paint::Held,
        Paint::Open,
        Paint::HalfOpen,
        Paint::Isolated,
    ];
    named
        .into_iter()
        .chain((0..CLIENT_PAINTS).map(Paint::Client))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_paints_are_mixed_up() {
        let numbers: BTreeSet<_> = every_paint().map(Paint::number).collect();
        let variables: BTreeSet<_> = every_paint().map(Paint::variable).collect();
        assert_eq!(numbers.len(), every_paint().count());
        assert_eq!(variables.len(), every_paint().count());
    }

    #[test]
    fn the_style_has_a_value_for_every_paint_in_light_and_in_dark() {
        let style = include_str!("style.css");
        for paint in every_paint() {
            let variable = paint.variable();
            let name = variable.trim_start_matches("var(").trim_end_matches(')');
            assert_eq!(style.matches(&format!("{name}: #")).count(), 2, "{name}");
        }
    }
}
