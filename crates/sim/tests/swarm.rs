//! Scenarios made up from seeds, and those that once failed: every promise of `sim::check` on every
//! event. `scripts/run-swarm` plays more of them.

use std::fs;
use std::ops::Range;
use std::path::Path;

use sim::check::check;
use sim::scenario::{SHIPPED, Scenario};
use sim::swarm;

// In parts, so that they run side by side.

#[test]
fn random_scenarios_keep_every_promise() {
    keeps(0..80);
}

#[test]
fn more_random_scenarios_keep_every_promise() {
    keeps(80..160);
}

#[test]
fn still_more_random_scenarios_keep_every_promise() {
    keeps(160..240);
}

fn keeps(seeds: Range<u64>) {
    for seed in seeds {
        if let Err(violation) = swarm::run(seed) {
            panic!("{violation}\nrepeat it with: scripts/run-swarm --seed {seed}");
        }
    }
}

#[test]
fn what_once_failed_keeps_every_promise() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/regressions");
    let mut played = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path().display().to_string();
        let scenario = Scenario::read(&file, &fs::read(&file).unwrap()).unwrap();
        if let Err(violation) = check(&scenario, scenario.seed) {
            panic!("{violation}\nrepeat it with: scripts/run-swarm --file {file}");
        }
        played += 1;
    }
    assert!(played > 0, "the scenarios were not found");
}

#[test]
fn every_shipped_scenario_keeps_every_promise() {
    for shipped in SHIPPED {
        let mut scenario = shipped.scenario();
        scenario.duration /= 8;
        if let Err(violation) = check(&scenario, 1) {
            panic!("{}: {violation}", shipped.name);
        }
    }
}

#[test]
fn whatever_is_made_up_can_be_read() {
    for seed in (0..2000).chain(u64::MAX - 100..=u64::MAX) {
        let text = swarm::written(seed);
        if let Err(problems) = Scenario::read("swarm", text.as_bytes()) {
            panic!("{problems:#?}\n{text}");
        }
    }
}
