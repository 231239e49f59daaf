//! Tables that a small script makes sortable, and that become cards on a phone.

use std::fmt::Write;

use super::text::{attribute, count};

/// A table before it is written.
pub(super) struct Table {
    /// The name of its section, for links and styles.
    pub(super) id: &'static str,
    /// What it shows, for screen readers.
    pub(super) caption: &'static str,
    pub(super) columns: &'static [Column],
    /// The column by which the rows are sorted, and whether the highest is first.
    pub(super) sorted: Option<(usize, bool)>,
    pub(super) rows: Vec<Vec<Cell>>,
    /// How many rows there are in all, and whether that is a lower bound.
    pub(super) total: (u64, bool),
}

/// A column: its name, and what its cells are.
pub(super) struct Column(pub(super) &'static str, pub(super) Kind);

/// What the cells of a column are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Text of a few words.
    Text,
    /// Text of any length.
    Long,
    /// A number with its unit.
    Number,
}

/// A cell: HTML, and for numbers the value by which it is sorted.
pub(super) struct Cell(String, Option<f64>);

impl Cell {
    pub(super) const fn text(html: String) -> Self {
        Self(html, None)
    }

    pub(super) const fn number(html: String, value: f64) -> Self {
        Self(html, Some(value))
    }

    /// A whole number; none is shown as `–`.
    pub(super) fn count(value: u64) -> Self {
        Self::number(count(value), value as f64)
    }

    /// A value that may be missing.
    pub(super) fn optional(value: Option<f64>, html: impl FnOnce() -> String) -> Self {
        match value {
            Some(value) => Self::number(html(), value),
            None => Self::number("–".to_owned(), -1.0),
        }
    }
}

impl Table {
    pub(super) fn html(&self) -> String {
        let mut html = format!(
            "<table id=\"table-{}\" class=\"cards\"><caption>{}</caption>\n<thead><tr>",
            self.id, self.caption
        );
        for (index, Column(name, kind)) in self.columns.iter().enumerate() {
            let sort = match self.sorted {
                Some((sorted, true)) if sorted == index => " aria-sort=\"descending\"",
                Some((sorted, false)) if sorted == index => " aria-sort=\"ascending\"",
                _ => "",
            };
            _ = write!(html, "<th scope=\"col\"{}{sort}>{name}</th>", kind.class());
        }
        html += "</tr></thead>\n<tbody>\n";
        for row in &self.rows {
            html += "<tr>";
            for (Cell(cell, value), Column(name, kind)) in row.iter().zip(self.columns) {
                let class = kind.class();
                let name = attribute(name);
                _ = match value {
                    Some(value) => write!(
                        html,
                        "<td{class} data-n=\"{name}\" data-v=\"{value}\">{cell}</td>"
                    ),
                    None => write!(html, "<td{class} data-n=\"{name}\">{cell}</td>"),
                };
            }
            html += "</tr>\n";
        }
        html += "</tbody></table>\n";
        format!("{}{html}", self.note())
    }

    /// Says how many rows are left out.
    fn note(&self) -> String {
        let (total, is_at_least) = self.total;
        let shown = self.rows.len() as u64;
        if shown >= total && !is_at_least {
            return String::new();
        }
        let more = if is_at_least { "more than " } else { "" };
        format!(
            "<p class=\"note\">Showing {} of {more}{}.</p>\n",
            count(shown),
            count(total)
        )
    }
}

impl Kind {
    const fn class(self) -> &'static str {
        match self {
            Self::Text => "",
            Self::Long => " class=\"l\"",
            Self::Number => " class=\"n\"",
        }
    }
}
