//! Colours by name: the page's style decides them for light, dark and print.
//!
//! The values are those of Okabe and Ito, which can be told apart with any kind of colour vision.

/// A colour, named after what has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
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
pub const CLIENT_COLOURS: u8 = 8;

impl Colour {
    /// Its CSS variable.
    pub fn variable(self) -> String {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn all() -> impl Iterator<Item = Colour> {
        let named = [
            Colour::Label,
            Colour::Grid,
            Colour::Axis,
            Colour::Paper,
            Colour::Capacity,
            Colour::Rate,
            Colour::AllClients,
            Colour::Accepted,
            Colour::Refused,
            Colour::Failed,
            Colour::Latency,
            Colour::Held,
            Colour::Open,
            Colour::HalfOpen,
            Colour::Isolated,
        ];
        named
            .into_iter()
            .chain((0..CLIENT_COLOURS).map(Colour::Client))
    }

    #[test]
    fn every_colour_has_its_own_variable() {
        let count = all().count();
        let variables = all().map(Colour::variable);
        assert_eq!(variables.collect::<BTreeSet<_>>().len(), count);
    }

    #[test]
    fn style_sets_every_colour_for_light_and_dark() {
        let style = include_str!("../report/style.css");
        for colour in all() {
            let variable = colour.variable();
            let name = variable.trim_start_matches("var(").trim_end_matches(')');
            assert_eq!(style.matches(&format!("{name}: #")).count(), 2, "{name}");
        }
    }
}
