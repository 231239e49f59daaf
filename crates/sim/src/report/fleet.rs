//! A fleet whose store is killed, as one picture for the documentation: what all nodes send, the share
//! of each, and the capacity.

use std::time::Duration;

use super::life::framed;
use super::plots::{self, Frame};
use super::{StrategyRun, bins, step_for};
use crate::plot::{Colour, Mark, draw};
use crate::scenario::Shipped;
use crate::simulate::simulate_with_series;

/// The picture as an SVG file, light or dark as its reader prefers.
pub fn fleet_without_store() -> String {
    let mut scenario = Shipped::find("fleet-killed")
        .expect("`fleet-killed` is a shipped scenario")
        .scenario();
    scenario.duration = DURATION;
    let (figures, series) = simulate_with_series(&scenario, SEED, step_for(DURATION));
    let run = StrategyRun {
        strategy: "adaptive".to_owned(),
        figures,
        series,
    };
    let end_s = DURATION.as_secs_f64();
    let frame = Frame {
        end_s,
        bin_s: bins::width_s(std::slice::from_ref(&run), end_s),
    };
    let mut plot = plots::rate(&run, frame).plot;
    plot.title = "8 nodes whose store is killed: shares, their sum and the capacity".to_owned();
    plot.size.height = 260.0;
    let top = plot.values.top;
    let fleet = scenario.clients[0].fleet.iter();
    let outages = fleet.flat_map(|fleet| &fleet.store.outages);
    let seconds = |at: policy::time::Timestamp| at.seconds_since(policy::time::Timestamp::ZERO);
    plot.marks.extend(outages.map(|outage| Mark::Band {
        seconds: seconds(outage.from)..seconds(outage.to),
        lane: 0.0..0.03 * top,
        colour: Colour::Refused,
        word: "no store",
    }));
    framed(&draw(&plot))
}

/// The outage and a minute after it.
const DURATION: Duration = Duration::from_secs(210);
const SEED: u64 = 1;

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::{env, fs};

    use super::*;

    #[test]
    fn the_picture_is_in_step() {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images/fleet-without-store.svg");
        let picture = fleet_without_store();
        if env::var_os("UPDATE_PICTURES").is_some() {
            fs::write(&path, &picture).unwrap();
        }
        let stored = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            stored == picture,
            "the policy draws another picture: `scripts/make-pictures` makes it anew"
        );
    }
}
