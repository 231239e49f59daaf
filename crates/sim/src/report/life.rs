//! The life of a limit as one picture, for the documentation: the rate, the limit that `adaptive`
//! knows, its phases and the refusals, while the upstream's limit falls and rises.

use std::time::Duration;

use super::phases;
use super::plots::{self, Frame};
use super::{StrategyRun, bins, step_for};
use crate::plot::{Axis, Colour, Mark, Plot, draw};
use crate::scenario::Shipped;
use crate::simulate::simulate_with_series;

/// The picture as an SVG file, light or dark as its reader prefers.
pub fn life_of_a_limit() -> String {
    let mut scenario = Shipped::find("o5")
        .expect("`o5` is a shipped scenario")
        .scenario();
    scenario.duration = DURATION;
    let (figures, series) = simulate_with_series(&scenario, SEED, step_for(DURATION));
    let run = StrategyRun {
        strategy: "adaptive".to_owned(),
        figures,
        series,
    };
    framed(&draw(&plot(&run)))
}

/// A plot as a file of its own, with its colours.
pub(super) fn framed(svg: &str) -> String {
    let (_, elements) = svg.split_once("<svg ").expect("it is an SVG element");
    let (tag, elements) = elements.split_once('>').expect("its tag ends");
    let (colours, _) = STYLE.split_once("* {").expect("colours come first");
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" {tag}>\n<style>\n{colours}\
         svg {{ background: var(--paper); }}\n</style>\n{elements}"
    )
}

/// The steps of `o5` and a minute after the last.
const DURATION: Duration = Duration::from_secs(180);
const SEED: u64 = 1;
const STYLE: &str = include_str!("style.css");
/// The shares of the height for phases and for refusals.
const PHASES: std::ops::Range<f64> = 0.92..0.99;
const REFUSALS: std::ops::Range<f64> = 0.0..0.03;

fn plot(run: &StrategyRun) -> Plot {
    let end_s = DURATION.as_secs_f64();
    let frame = Frame {
        end_s,
        bin_s: bins::width_s(std::slice::from_ref(run), end_s),
    };
    let mut plot = plots::rate(run, frame).plot;
    plot.title = "The life of a limit: rate, known limit, phases and refusals over time".to_owned();
    plot.size.height = 300.0;
    // Room for the phases above the rate.
    plot.values = Axis::up_to(plot.values.top / 0.9);
    let top = plot.values.top;
    let lane = |share: &std::ops::Range<f64>| share.start * top..share.end * top;
    for client in &run.series.clients {
        let bands = phases::bands(&client.phases, end_s);
        let marks = bands.iter().map(|band| band.mark(lane(&PHASES)));
        plot.marks.extend(marks);
    }
    let step_s = run.series.step.as_secs_f64();
    for (index, slice) in run.series.slices.iter().enumerate() {
        if slice.refused > 0 {
            let from_s = index as f64 * step_s;
            plot.marks.push(Mark::Band {
                seconds: from_s..from_s + step_s,
                lane: lane(&REFUSALS),
                colour: Colour::Refused,
                word: "",
            });
        }
    }
    let labels = phases::LEGEND
        .into_iter()
        .map(|(colour, word)| (PHASES.end, colour, word));
    let labels = labels.chain([(REFUSALS.start, Colour::Refused, "refused")]);
    plot.marks
        .extend(labels.map(|(share, colour, word)| Mark::Label {
            at: share * top,
            text: word.to_owned(),
            colour,
        }));
    plot
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::{env, fs};

    use super::*;

    #[test]
    fn the_picture_is_in_step() {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images/life-of-a-limit.svg");
        let picture = life_of_a_limit();
        if env::var_os("UPDATE_PICTURES").is_some() {
            fs::write(&path, &picture).unwrap();
        }
        let stored = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            stored == picture,
            "the strategy draws another picture: `scripts/make-pictures` makes it anew"
        );
    }

    #[test]
    fn the_picture_has_phases_limit_and_refusals() {
        let picture = life_of_a_limit();
        for word in [
            "searching",
            "staying",
            "trying more",
            "known limit",
            "refused",
            "capacity",
        ] {
            assert!(picture.contains(&format!("\n{word}\n</text>")), "{word}");
        }
    }
}
