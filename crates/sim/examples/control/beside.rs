//! The default strategy beside the designs `epochs` and `model`: nowhere much worse than the best of
//! them.

use serde_json::{Map, Value};

use crate::runs::{CONTENDERS, Row, UPSTREAMS};

/// One figure at one upstream.
pub(crate) struct Beside {
    pub(crate) upstream: &'static str,
    pub(crate) figure: &'static str,
    pub(crate) value: f64,
    pub(crate) best: f64,
    pub(crate) of: &'static str,
    pub(crate) met: bool,
}

/// All comparisons that the rows contain.
pub(crate) fn all(rows: &[Row]) -> Vec<Beside> {
    let pairs = UPSTREAMS
        .iter()
        .flat_map(|upstream| FIGURES.iter().map(move |figure| (*upstream, *figure)));
    pairs
        .filter_map(|(upstream, figure)| compare(rows, upstream, figure))
        .collect()
}

/// With `true` if more is better.
const FIGURES: [(&str, bool); 3] = [("goodput", true), ("refused", false), ("jain", true)];
const DESIGNS: [&str; 3] = ["epochs-gentle", "epochs-brisk", "model"];
/// Five percentage points.
const TOLERANCE: f64 = 0.05;

fn compare(
    rows: &[Row],
    upstream: &'static str,
    (figure, more_is_better): (&'static str, bool),
) -> Option<Beside> {
    let of = |contender: &str| {
        let mut rows = rows.iter();
        let row = rows.find(|row| row.upstream == upstream && row.contender == contender)?;
        row.mean.get(figure).copied().flatten()
    };
    let sign = if more_is_better { 1.0 } else { -1.0 };
    let value = of(CONTENDERS[0])?;
    let designs = DESIGNS
        .iter()
        .filter_map(|design| Some((*design, of(design)?)));
    let (design, best) = designs.max_by(|a, b| (sign * a.1).total_cmp(&(sign * b.1)))?;
    Some(Beside {
        upstream,
        figure,
        value,
        best,
        of: design,
        met: sign * value >= sign * best - TOLERANCE,
    })
}

/// The figures outside of the tolerance, by upstream.
pub(crate) fn summary(all: &[Beside]) -> Value {
    let missed = all.iter().filter(|beside| !beside.met);
    let missed: Map<String, Value> = missed
        .map(|beside| {
            let name = format!("{} {}", beside.upstream, beside.figure);
            (name, beside.of.into())
        })
        .collect();
    missed.into()
}
