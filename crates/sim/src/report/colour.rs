//! Colours by name, so that the page's style decides them for light, dark and print.
//!
//! The drawing library takes only RGB values. Each colour is drawn as an RGB value of its own, which
//! [`name_colours`] replaces by the name of a CSS variable. The values are those of Okabe and Ito,
//! which can be told apart with any kind of colour vision.

use plotters::style::RGBColor;

/// A colour, named after what has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Colour {
    /// Text at the axes.
    Label,
    /// Grid lines.
    Grid,
    /// The axes.
    Axis,
    /// The background; separates neighbouring areas, and is the text on dark areas.
    Paper,
    /// The upstream's capacity.
    Capacity,
    /// A client's rate.
    Rate,
    /// The sum over several clients.
    AllClients,
    /// Accepted requests.
    Accepted,
    /// Refused requests.
    Refused,
    /// Requests that failed otherwise.
    Failed,
    /// Latency.
    Latency,
    /// A hold.
    Held,
    /// An Open breaker.
    Open,
    /// A HalfOpen breaker.
    HalfOpen,
    /// An Isolated breaker.
    Isolated,
    /// One of several clients, below [`CLIENT_COLOURS`].
    Client(u8),
}

/// How many clients have a colour of their own.
pub(super) const CLIENT_COLOURS: u8 = 8;

impl Colour {
    fn all() -> impl Iterator<Item = Self> {
        let named = [
            Self::Label,
            Self::Grid,
            Self::Axis,
            Self::Paper,
            Self::Capacity,
            Self::Rate,
            Self::AllClients,
            Self::Accepted,
            Self::Refused,
            Self::Failed,
            Self::Latency,
            Self::Held,
            Self::Open,
            Self::HalfOpen,
            Self::Isolated,
        ];
        let clients = (0..CLIENT_COLOURS).map(Self::Client);
        named.into_iter().chain(clients)
    }

    /// The RGB value that stands for it until [`name_colours`].
    pub(super) fn placeholder(self) -> RGBColor {
        let index = Self::all().position(|colour| colour == self);
        let index = index.and_then(|index| u8::try_from(index).ok());
        RGBColor(1, 2, index.unwrap_or(u8::MAX))
    }

    /// Its CSS variable.
    pub(super) fn variable(self) -> String {
        let name = match self {
            Self::Label => "label",
            Self::Grid => "grid",
            Self::Axis => "axis",
            Self::Paper => "paper",
            Self::Capacity => "capacity",
            Self::Rate => "rate",
            Self::AllClients => "together",
            Self::Accepted => "accepted",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Latency => "latency",
            Self::Held => "held",
            Self::Open => "open",
            Self::HalfOpen => "half-open",
            Self::Isolated => "isolated",
            Self::Client(index) => return format!("var(--client-{index})"),
        };
        format!("var(--{name})")
    }
}

/// Replaces the RGB values in a drawing by CSS variables.
pub(super) fn name_colours(drawing: &str) -> String {
    let mut named = drawing.to_owned();
    for colour in Colour::all() {
        let RGBColor(red, green, blue) = colour.placeholder();
        let value = format!("#{red:02X}{green:02X}{blue:02X}");
        named = named.replace(&value, &colour.variable());
    }
    named
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_colour_has_its_own_placeholder_and_variable() {
        let count = Colour::all().count();
        let placeholders = Colour::all().map(|colour| colour.placeholder().2);
        assert_eq!(placeholders.collect::<BTreeSet<_>>().len(), count);
        let variables = Colour::all().map(Colour::variable);
        assert_eq!(variables.collect::<BTreeSet<_>>().len(), count);
    }

    #[test]
    fn style_sets_every_colour_for_light_and_dark() {
        let style = include_str!("style.css");
        for colour in Colour::all() {
            let variable = colour.variable();
            let name = variable.trim_start_matches("var(").trim_end_matches(')');
            assert_eq!(style.matches(&format!("{name}: #")).count(), 2, "{name}");
        }
    }
}
