//! Fleets with the production policy: nodes that share a limit through a store, with and without
//! troubles. Every failure prints the scenario, the seed and the figures.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use policy::random::Random;
use sim::fleet::FleetSettings;
use sim::measure::Figures;
use sim::scenario::{Scenario, Shipped};
use sim::simulate::{simulate, simulate_with_series};

const SEEDS: std::ops::RangeInclusive<u64> = 1..=3;

/// The figures of a shipped upstream with a fleet of so many nodes; 0: one client without a store.
fn fleet(upstream: &str, nodes: u32) -> Vec<Figures> {
    let mut scenario = Shipped::find(upstream).unwrap().scenario();
    // A tiny limit has few requests: longer runs have steadier figures.
    if upstream == "o9" {
        scenario.duration = Duration::from_secs(660);
    }
    scenario.clients[0].fleet = (nodes > 0).then(|| FleetSettings::of(nodes));
    SEEDS.map(|seed| simulate(&scenario, seed)).collect()
}

/// The figures of 100/s with this fleet.
fn at_100(client: &str) -> Vec<Figures> {
    let scenario = scenario(100.0, client);
    SEEDS.map(|seed| simulate(&scenario, seed)).collect()
}

const BURST: f64 = 10.0;

fn scenario(rate: f64, client: &str) -> Scenario {
    let upstream = format!("kind = \"bucket\"\nrate = {rate}\nburst = {BURST}");
    let text = format!("[upstream]\n{upstream}\n[[client]]\n{client}\n");
    Scenario::read("fleets", text.as_bytes()).unwrap()
}

fn mean(runs: &[Figures], figure: impl Fn(&Figures) -> Option<f64>) -> f64 {
    let values: Option<Vec<f64>> = runs.iter().map(figure).collect();
    values.unwrap().iter().sum::<f64>() / runs.len() as f64
}

#[track_caller]
fn check(name: &str, runs: &[Figures], min_goodput: f64, max_refused: f64, min_jain: f64) {
    let goodput = mean(runs, |run| run.goodput_ratio_settled);
    let refused = mean(runs, |run| run.refused_ratio);
    let jain = mean(runs, |run| run.jain);
    let holds = goodput >= min_goodput && refused <= max_refused && jain >= min_jain;
    assert!(
        holds,
        "{name}: goodput {goodput:.4}, refused {refused:.4}, jain {jain:.4}\n{runs:#?}"
    );
}

/// No 10 s of any run carried more than 105 % of the limit.
#[track_caller]
fn check_peak(name: &str, runs: &[Figures]) {
    for (seed, run) in SEEDS.zip(runs) {
        let peak = run.peak_ratio.unwrap();
        assert!(
            peak <= 1.05,
            "{name}, seed {seed}: peak {peak:.4}\n{run:#?}"
        );
    }
}

#[test]
fn eight_nodes_use_a_limit_as_one_client_does() {
    for upstream in ["fleet-8", "o2", "o3"] {
        check(upstream, &fleet(upstream, 8), 0.97, 0.01, 0.98);
    }
}

/// What a test on one machine sees in a minute, after half a minute to find the limit.
#[test]
fn eight_nodes_use_a_limit_from_the_first_minute_on() {
    for upstream in [
        "",
        "latency = \"50ms\"\nnetwork = \"0ms\"\nrefuse_latency = \"1ms\"\n",
    ] {
        let text = format!(
            "duration = \"90s\"\n[upstream]\nkind = \"bucket\"\nrate = 100\nburst = {BURST}\n{upstream}\
             [[client]]\nnodes = 8\n"
        );
        let scenario = Scenario::read("fleets", text.as_bytes()).unwrap();
        for seed in 1..=10 {
            let (figures, series) = simulate_with_series(&scenario, seed, Duration::from_secs(1));
            let measured = &series.slices[30..90];
            let accepted: f64 = measured.iter().map(|it| f64::from(it.accepted)).sum();
            let capacity: f64 = measured.iter().map(|it| it.capacity).sum();
            let goodput = accepted / capacity;
            assert!(goodput >= 0.97, "{upstream}, seed {seed}: {goodput:.3}");
            let refused = figures.refused_ratio.unwrap();
            assert!(refused <= 0.01, "{upstream}, seed {seed}: {refused:.4}");
        }
    }
}

#[test]
fn nodes_may_outnumber_the_burst_of_the_upstream() {
    let runs = fleet("fleet-8", 64);
    check("fleet-64", &runs, 0.97, 0.01, 0.98);
    check_peak("fleet-64", &runs);
}

#[test]
fn nodes_share_a_tiny_limit_without_a_ban() {
    let alone = mean(&fleet("o9", 0), |run| run.goodput_ratio_settled);
    let runs = fleet("o9", 8);
    let shared = mean(&runs, |run| run.goodput_ratio_settled);
    assert!(
        shared >= 0.88 && shared >= alone - 0.03,
        "{shared} with 8 nodes, {alone} alone\n{runs:#?}"
    );
    assert!(runs.iter().all(|run| run.bans == 0), "{runs:#?}");
}

#[test]
fn no_fault_of_the_store_makes_a_fleet_exceed_the_limit() {
    for store in [
        "outage = [{ from = \"120s\", to = \"150s\", empty = true }]",
        "outage = [{ from = \"120s\", to = \"150s\" }]",
        "flush = [\"120s\", \"180s\"]",
        "loss = 0.05",
        "latency = \"50ms\"",
        "partition = [{ nodes = 8, from = \"120s\", to = \"150s\" }]",
        "partition = [{ nodes = 1, from = \"120s\", to = \"150s\" }]",
        "partition = [{ nodes = \"5-8\", from = \"120s\", to = \"150s\" }]",
    ] {
        let runs = at_100(&format!("nodes = 8\nstore = {{ {store} }}"));
        check_peak(store, &runs);
        check(store, &runs, 0.9, 0.01, 0.98);
    }
}

#[test]
fn a_store_that_comes_back_empty_costs_little() {
    for (nodes, min_goodput) in [(8, 0.92), (64, 0.88)] {
        let outage = "outage = [{ from = \"120s\", to = \"150s\", empty = true }]";
        let scenario = scenario(100.0, &format!("nodes = {nodes}\nstore = {{ {outage} }}"));
        let mut accepted = 0;
        for seed in SEEDS {
            let (_, series) = simulate_with_series(&scenario, seed, Duration::from_secs(1));
            let after = series.slices[150..160].iter();
            accepted += after.map(|slice| slice.accepted).sum::<u32>();
        }
        let goodput = f64::from(accepted) / (1000.0 * SEEDS.count() as f64);
        assert!(goodput >= min_goodput, "{nodes} nodes: {goodput}");
    }
}

#[test]
fn nodes_that_join_and_die_do_not_make_a_fleet_exceed_the_limit() {
    for down in [
        "{ nodes = 1, from = \"120s\" }",
        "{ nodes = 8, from = \"120s\" }",
        "{ nodes = \"2-8\", from = \"0s\", to = \"120s\" }",
        "{ nodes = \"1-4\", from = \"120s\", to = \"121s\" }",
    ] {
        let runs = at_100(&format!("nodes = 8\ndown = [{down}]"));
        check_peak(down, &runs);
        let goodput = mean(&runs, |run| run.goodput_ratio_settled);
        assert!(goodput >= 0.95, "{down}: goodput {goodput}\n{runs:#?}");
    }
}

#[test]
fn a_quiet_fleet_calls_its_store_once_an_interval_and_sends_at_once() {
    let with_backlog = |rate: &str| {
        let client = format!("nodes = 8\nbacklog = \"{rate}\"");
        simulate(&scenario(100.0, &client), 1)
    };
    let figures = with_backlog("1/s");
    assert_eq!((figures.refused, figures.failed), (0, 0), "{figures:#?}");
    assert!(
        figures.goodput_ratio_settled.unwrap() > 0.99,
        "{figures:#?}"
    );
    // Ten calls and one request per second and node.
    let calls = figures.store_calls_per_request.unwrap();
    assert!(calls <= 10.5, "{calls}\n{figures:#?}");
    // At 10/s, one call for each request.
    let busier = with_backlog("10/s");
    let calls = busier.store_calls_per_request.unwrap();
    assert!(calls <= 1.1, "{calls}\n{busier:#?}");
}

#[test]
fn same_file_and_seed_give_the_same_figures() {
    let scenario = Shipped::find("fleet-flushed").unwrap().scenario();
    let [first, again, other] = [7, 7, 8].map(|seed| simulate(&scenario, seed));
    assert_eq!(first, again);
    assert_ne!(first.sent, other.sent);
}

/// Random fleets with random troubles: the limit holds, and after all troubles the fleet works.
#[test]
fn random_troubles_do_not_make_a_fleet_exceed_the_limit() {
    for seed in 1..=6 {
        let (text, mut scenario) = random_fleet(seed);
        scenario.duration = Duration::from_secs(240);
        let figures = simulate(&scenario, seed);
        let peak = figures.peak_ratio.unwrap();
        let goodput = figures.goodput_ratio_settled.unwrap();
        // Besides a twentieth, what the upstream allows at once and the request that it refuses then: at small
        // rates that is a large share.
        let rate = scenario.upstream.rate_at(policy::time::Timestamp::ZERO);
        let holds = peak <= 1.05 + (BURST + 1.0) / (10.0 * rate) && goodput >= 0.6;
        assert!(
            holds,
            "seed {seed}: peak {peak:.4}, goodput {goodput:.4}\n{text}\n{figures:#?}"
        );
    }
}

fn random_fleet(seed: u64) -> (String, Scenario) {
    let mut random = Random::from_seed(seed);
    let nodes = 1 + random.below(16);
    let rate = random.between(1.0, 5.0).exp().round();
    let mut list = |kind: &str, has_nodes: bool| {
        let parts = (0..random.below(3)).map(|_| {
            let from = 30 + random.below(130);
            let to = from + 1 + random.below(40);
            let last = 1 + random.below(nodes);
            let first = 1 + random.below(last);
            match has_nodes {
                true => {
                    format!("{{ nodes = \"{first}-{last}\", from = \"{from}s\", to = \"{to}s\" }}")
                }
                false => {
                    let is_empty = random.below(2) == 1;
                    format!("{{ from = \"{from}s\", to = \"{to}s\", empty = {is_empty} }}")
                }
            }
        });
        format!("{kind} = [{}]", parts.collect::<Vec<_>>().join(", "))
    };
    let outage = list("outage", false);
    let partition = list("partition", true);
    let down = list("down", true);
    let loss = random.between(0.0, 0.03);
    let latency = 1 + random.below(30);
    let flush = 30 + random.below(130);
    let client = format!(
        "nodes = {nodes}\n{down}\n[client.store]\nloss = {loss}\nlatency = \"{latency}ms\"\n\
         flush = [\"{flush}s\"]\n{outage}\n{partition}"
    );
    let scenario = scenario(rate, &client);
    (format!("rate = {rate}\n{client}"), scenario)
}
