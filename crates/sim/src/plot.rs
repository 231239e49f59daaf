//! Plots over time as inline SVG, for the pages of simulations and fetches.
//!
//! Colours are names of CSS variables, which the page's style sets for light, dark and print. All
//! plots of one width have the same margins, so that their time axes line up. The same plot always
//! gives the same bytes.

mod axis;
mod canvas;
mod colour;

pub use axis::Axis;
pub use canvas::{Mark, Plot, Size, draw};
pub use colour::{CLIENT_COLOURS, Colour};

pub(crate) use axis::{number, round_up, thousands};

/// Escapes text for elements and quoted attributes. Control characters that HTML does not allow
/// become U+FFFD.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(c),
            '\r' => {}
            c if c.is_control() => escaped.push(char::REPLACEMENT_CHARACTER),
            c => escaped.push(c),
        }
    }
    escaped
}
