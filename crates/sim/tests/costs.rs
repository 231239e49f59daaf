//! A language model's upstream: a limit on tokens besides the limit on requests.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use sim::measure::Figures;
use sim::scenario::{Scenario, Shipped};
use sim::simulate::simulate;

const SEEDS: std::ops::Range<u64> = 1..4;

/// Simulates ten minutes of `upstream` for requests of 800 tokens on average, of which the client
/// asks for `estimate` times as many, and checks every seed.
fn check(upstream: &str, estimate: f64, check: impl Fn(&Figures) -> bool) {
    let text = format!(
        "duration = \"600s\"\n[upstream]\n{upstream}\nlatency = \"400ms\"\n[[client]]\n\
         cost = {{ mean = 800, spread = 0.8, estimate = {estimate:?} }}\n"
    );
    let scenario = Scenario::read("costs", text.as_bytes()).unwrap();
    for seed in SEEDS {
        let figures = simulate(&scenario, seed);
        assert!(
            check(&figures),
            "{upstream}\nestimate {estimate}, seed {seed}: {figures:?}"
        );
    }
}

fn is_good(figures: &Figures, max_refused: f64) -> bool {
    has_goodput(figures, 0.9, max_refused)
}

fn has_goodput(figures: &Figures, min: f64, max_refused: f64) -> bool {
    figures.goodput_ratio_settled.unwrap() >= min && figures.refused_ratio.unwrap() <= max_refused
}

#[test]
fn uses_up_tokens_without_refusals_if_headers_say_what_remains() {
    let requests = "kind = \"window\"\nquota = 1000\nperiod = \"60s\"\nheaders = true";
    for limit in [
        "{ kind = \"window\", quota = 90000, period = \"60s\" }",
        "{ kind = \"bucket\", rate = 1500, burst = 90000 }",
    ] {
        for estimate in [0.5, 1.0, 2.0] {
            check(
                &format!("{requests}\ncost = {limit}"),
                estimate,
                |figures| is_good(figures, 0.0),
            );
        }
    }
}

#[test]
fn finds_a_limit_on_tokens_by_refusals_alone() {
    let upstream = "kind = \"bucket\"\nrate = 100\nburst = 100\n\
                    cost = { kind = \"bucket\", rate = 40000, burst = 80000 }";
    for estimate in [0.5, 1.0, 2.0] {
        // A refusal that names no limit lowers both, and both are at what was accepted then.
        check(upstream, estimate, |figures| {
            has_goodput(figures, 0.85, 0.03)
        });
    }
}

#[test]
fn finds_the_limit_on_requests_if_that_one_binds() {
    let upstream = "kind = \"bucket\"\nrate = 20\nburst = 40\n\
                    cost = { kind = \"bucket\", rate = 40000, burst = 80000 }";
    for estimate in [0.5, 1.0, 2.0] {
        check(upstream, estimate, |figures| is_good(figures, 0.03));
    }
}

#[test]
fn goodput_is_measured_in_cost_if_cost_binds() {
    let scenario = Shipped::find("tokens").unwrap().scenario();
    for seed in SEEDS {
        let figures = simulate(&scenario, seed);
        let goodput = figures.goodput_ratio_settled.unwrap();
        assert!((0.95..1.03).contains(&goodput), "seed {seed}: {goodput}");
        assert_eq!(figures.refused, 0, "seed {seed}");
    }
}
