//! Checks the invariants of `sim::check` on random scenarios, on regressions and on the shipped
//! scenarios. `scripts/run-swarm` runs more random ones.

use std::fs;
use std::ops::Range;
use std::path::Path;

use sim::check::check;
use sim::scenario::{SHIPPED, Scenario};
use sim::swarm;

// Split up to run in parallel.

#[test]
fn random_scenarios_0_to_80_violate_no_invariant() {
    check_seeds(0..80);
}

#[test]
fn random_scenarios_80_to_160_violate_no_invariant() {
    check_seeds(80..160);
}

#[test]
fn random_scenarios_160_to_240_violate_no_invariant() {
    check_seeds(160..240);
}

fn check_seeds(seeds: Range<u64>) {
    for seed in seeds {
        if let Err(violation) = swarm::run(seed) {
            panic!("{violation}\nrepeat it with: scripts/run-swarm --seed {seed}");
        }
    }
}

#[test]
fn regressions_violate_no_invariant() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/regressions");
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path().display().to_string();
        let scenario = Scenario::read(&file, &fs::read(&file).unwrap()).unwrap();
        if let Err(violation) = check(&scenario, scenario.seed) {
            panic!("{violation}\nrepeat it with: scripts/run-swarm --file {file}");
        }
        count += 1;
    }
    assert!(count > 0, "no regressions found");
}

#[test]
fn shipped_scenarios_violate_no_invariant() {
    for shipped in SHIPPED {
        let mut scenario = shipped.scenario();
        scenario.duration /= 8;
        if let Err(violation) = check(&scenario, 1) {
            panic!("{}: {violation}", shipped.name);
        }
    }
}

#[test]
fn random_scenarios_are_valid_files() {
    for seed in (0..2000).chain(u64::MAX - 100..=u64::MAX) {
        let text = swarm::scenario_text(seed);
        if let Err(problems) = Scenario::read("swarm", text.as_bytes()) {
            panic!("{problems:#?}\n{text}");
        }
    }
}
