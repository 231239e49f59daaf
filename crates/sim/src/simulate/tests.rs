//! Whole runs: repeatability, and the behaviour of each kind of client.

use policy::breaker::BreakerState;

use super::*;
use crate::client::{ClientSettings, Strategy};
use crate::scenario::Shipped;

fn read(text: &str) -> Scenario {
    Scenario::read("test", text.as_bytes()).unwrap()
}

fn shipped(name: &str, strategy: Strategy) -> Scenario {
    Shipped::find(name)
        .unwrap()
        .scenario()
        .with_strategy(strategy)
}

const STRATEGIES: [Strategy; 4] = [
    Strategy::Adaptive,
    Strategy::Aimd,
    Strategy::Fixed(30.0),
    Strategy::None,
];

#[test]
fn equal_seeds_give_equal_figures() {
    for strategy in STRATEGIES {
        for name in ["o5", "o7", "o8-4"] {
            let mut scenario = shipped(name, strategy);
            scenario.duration = Duration::from_secs(100);
            let figures = simulate(&scenario, 7);
            assert_eq!(figures, simulate(&scenario, 7), "{name} {strategy}");
            assert_ne!(figures, simulate(&scenario, 8), "{name} {strategy}");
        }
    }
}

#[test]
fn recording_a_series_changes_nothing() {
    for strategy in STRATEGIES {
        for name in ["o2", "o7", "o8"] {
            let mut scenario = shipped(name, strategy);
            scenario.duration = Duration::from_secs(100);
            let step = Duration::from_millis(100);
            let (figures, series) = simulate_with_series(&scenario, 3, step);
            assert_eq!(figures, simulate(&scenario, 3), "{name} {strategy}");
            assert_eq!(series.slices.len(), 1000);
            let sum = |count: fn(&crate::measure::Slice) -> u32| {
                series
                    .slices
                    .iter()
                    .map(|slice| u64::from(count(slice)))
                    .sum::<u64>()
            };
            assert_eq!(sum(|slice| slice.sent), figures.sent);
            assert_eq!(sum(|slice| slice.accepted), figures.accepted);
            assert_eq!(sum(|slice| slice.refused), figures.refused);
            assert_eq!(sum(|slice| slice.failed), figures.failed);
            for client in &series.clients {
                assert_eq!(client.rates.len(), 1000);
                assert_eq!(client.rates[999].is_some(), strategy != Strategy::None);
            }
        }
    }
}

#[test]
fn series_shows_holds_and_breakers() {
    let step = Duration::from_secs(1);
    let (_, series) = simulate_with_series(&shipped("o7", Strategy::Adaptive), 1, step);
    let breaker = &series.clients[0].breaker;
    let first = breaker.first().unwrap();
    assert_eq!(first.what, BreakerState::Open);
    assert!(first.from >= Timestamp::from_secs(60) && first.from < Timestamp::from_secs(61));
    assert!(breaker.last().unwrap().to < Timestamp::from_secs(97));
    assert!(breaker.is_sorted_by(|a, b| a.to <= b.from));
    assert!((series.slices[59].capacity - 100.0).abs() < 1e-9);
    assert!(series.slices[60].capacity.abs() < 1e-9);
    let (_, series) = simulate_with_series(&shipped("o2", Strategy::Adaptive), 1, step);
    let holds = &series.clients[0].holds;
    assert!((4..=6).contains(&holds.len()), "{holds:?}");
    assert!(holds.iter().all(|hold| hold.from < hold.to));
}

#[test]
fn strategy_does_not_change_the_upstreams_draws() {
    // Nothing is refused and both send at the same times, so both get the same responses.
    let run = |client: ClientSettings| {
        let text = "[upstream]\nkind = \"bucket\"\nrate = 1000\nburst = 1000\nfailure_rate = 0.2";
        let mut scenario = read(text);
        scenario.clients = vec![client];
        let figures = simulate(&scenario, 5);
        Figures {
            // They name the rate, which differs.
            explanations: Vec::new(),
            ..figures
        }
    };
    let backlog = crate::load::Backlog::PerSecond(2.0);
    let [fixed, aimd] = [Strategy::Fixed(900.0), Strategy::Fixed(800.0)].map(|strategy| {
        run(ClientSettings {
            backlog,
            ..ClientSettings::of(strategy)
        })
    });
    assert_eq!(fixed, aimd);
    assert!(fixed.failed > 50);
}

#[test]
fn figures_without_randomness_match_manual_computation() {
    let figures = simulate(
        &read(
            "duration = \"10s\"\n[upstream]\nkind = \"bucket\"\nrate = 10\nburst = 5\n\
             latency = \"80ms\"\nlatency_spread = 0\n[[client]]\nstrategy = \"none\"\n\
             max_in_flight = 1\nbacklog = \"2/s\"\n",
        ),
        1,
    );
    // Sent at 0, 0.5 … 9.5 s, each answered after 100 ms.
    assert_eq!(
        (figures.sent, figures.accepted, figures.refused),
        (20, 20, 0)
    );
    assert_eq!(figures.goodput_ratio, Some(1.0));
    assert_eq!(figures.time_to_90_s, Some(0.0));
}

#[test]
fn sends_refused_and_failed_requests_until_all_are_accepted() {
    for strategy in ["adaptive", "aimd", "fixed:40", "none"] {
        let text = format!(
            "[upstream]\nkind = \"bucket\"\nrate = 20\nburst = 2\nfailure_rate = 0.1\n\
             [[client]]\nstrategy = \"{strategy}\"\nmax_in_flight = 16\nbacklog = \"200\"\n"
        );
        let figures = simulate(&read(&text), 1);
        assert_eq!(figures.accepted, 200, "{strategy}");
        assert!(figures.failed > 0, "{strategy}");
        assert_eq!(
            figures.sent,
            figures.accepted + figures.refused + figures.failed
        );
        assert_eq!(figures.goodput_ratio, Some(1.0));
    }
}

#[test]
fn only_naive_retries_send_before_a_hint_ends() {
    let early = |strategy| simulate(&shipped("o2", strategy), 1).early_after_hint;
    assert_eq!(early(Strategy::Adaptive), 0);
    assert_eq!(early(Strategy::Aimd), 0);
    assert_eq!(early(Strategy::Fixed(30.0)), 0);
    assert!(early(Strategy::None) > 1000);
}

#[test]
fn clients_start_at_random_in_the_configured_range() {
    let text = "duration = \"20s\"\n[upstream]\nkind = \"bucket\"\nrate = 1000\n\
                [[client]]\ncount = 50\nstrategy = \"fixed:1\"\nstart = \"5s..15s\"\n";
    let step = Duration::from_secs(1);
    let (_, series) = simulate_with_series(&read(text), 1, step);
    let begins = series
        .slices
        .iter()
        .position(|slice| slice.sent > 0)
        .unwrap();
    assert!((5..7).contains(&begins), "{begins}");
    let sent: Vec<u32> = series.slices.iter().map(|slice| slice.sent).collect();
    assert!(sent[9] > 10 && sent[9] < 40, "spread out: {sent:?}");
}

#[test]
fn poll_client_follows_one_job_and_slows_down_when_refused() {
    let calm = "[upstream]\nkind = \"bucket\"\nrate = 10\nlatency_spread = 0\n\
                [[client]]\npolicy = \"poll\"\njob = \"60s\"\n";
    let figures = simulate(&read(calm), 1);
    // 18 s at 3 s, 24 s at 2.5 s, 18 s at 2 s, and 90 ms for each response.
    assert!((24..=26).contains(&figures.accepted), "{figures:?}");
    assert_eq!(figures.sent, figures.accepted);
    assert!(
        figures.goodput_ratio.unwrap() < 0.01,
        "one job is many requests"
    );
    let strict = calm.replace("rate = 10", "rate = 0.1\nburst = 1");
    let strict = simulate(&read(&strict), 1);
    assert!(strict.sent < 20 && strict.refused > 3, "{strict:?}");
}

#[test]
fn backoff_client_stops_after_max_attempts() {
    let text = "[upstream]\nkind = \"bucket\"\nrate = 10\nfailure_rate = 1\n\
                [[client]]\npolicy = \"backoff\"\nbacklog = \"7\"\n";
    let figures = simulate(&read(text), 1);
    assert_eq!((figures.sent, figures.failed), (35, 35));
}

#[test]
fn failure_queue_client_waits_after_every_attempt() {
    let text = "[upstream]\nkind = \"bucket\"\nrate = 10\nlatency_spread = 0\n\
                [[client]]\npolicy = \"failure-queue\"\n";
    // One at once, then one every 30.09 s.
    assert_eq!(simulate(&read(text), 1).accepted, 10);
    let failing = text.replace("latency_spread = 0", "failure_rate = 1");
    // Gaps of 60, 90 and 120 s fill the 300 s.
    assert_eq!(simulate(&read(&failing), 1).sent, 4);
    let given_up = format!("{failing}give_up_after = \"100s\"\n");
    assert_eq!(simulate(&read(&given_up), 1).sent, 2);
}

#[test]
fn protection_client_pauses_longer_each_time_and_then_disables() {
    let text = "duration = \"2000s\"\n[upstream]\nkind = \"bucket\"\nrate = 10\nfailure_rate = 1\n\
                [[client]]\npolicy = \"protection\"\nmax_in_flight = 1\n";
    // At 0, 30, 90, 210 and 510 s.
    assert_eq!(simulate(&read(text), 1).sent, 5);
    let two = text.replace("max_in_flight = 1", "max_in_flight = 1\nendpoints = 2");
    assert_eq!(simulate(&read(&two), 1).sent, 10);
}

#[test]
fn random_scenarios_have_consistent_counts_and_keep_sending() {
    for seed in 0..30 {
        let mut random = Random::from_seed(seed);
        let scenario = any_scenario(&mut random);
        let (figures, series) = simulate_with_series(&scenario, seed, Duration::from_secs(1));
        let ended = figures.accepted + figures.refused + figures.failed;
        let max = scenario
            .clients
            .iter()
            .map(|client| client.count * client.max_in_flight);
        let in_flight = figures.sent.checked_sub(ended).unwrap();
        assert!(in_flight <= u64::from(max.sum::<u32>()), "seed {seed}");
        let last = series
            .slices
            .iter()
            .rposition(|slice| slice.sent > 0)
            .unwrap();
        assert!(
            last > series.slices.len() - 90,
            "seed {seed}: silent since {last} s\n{scenario:?}"
        );
        assert!(figures.goodput_ratio.unwrap() > 0.0, "seed {seed}");
        let finite = |(_, number): (_, Option<f64>)| number.is_none_or(f64::is_finite);
        assert!(
            figures.numbers().into_iter().all(finite),
            "seed {seed}: {figures:?}"
        );
    }
}

fn any_scenario(random: &mut Random) -> Scenario {
    let mut pick = |choices: &[&'static str]| {
        let length = u64::try_from(choices.len()).unwrap();
        choices[usize::try_from(random.below(length)).unwrap()]
    };
    let kind = pick(&[
        "kind = \"bucket\"\nrate = 0.7\nburst = 1\n",
        "kind = \"bucket\"\nrate = 300\nburst = 20\nsteps = [{ at = \"50s\", rate = 9 }]\n",
        "kind = \"window\"\nquota = 100\nperiod = \"20s\"\nphase = \"7s\"\n",
        "kind = \"window\"\nquota = 3\nperiod = \"10s\"\n",
        "kind = \"slots\"\nslots = 3\nservice = \"200ms\"\nqueue = 2\n",
        "kind = \"slots\"\nslots = 30\nservice = \"50ms\"\nsteps = [{ at = \"40s\", slots = 5 }]\n",
    ]);
    let text = [
        "duration = \"400s\"\n[upstream]\n",
        kind,
        pick(&["", "retry_after = true\n"]),
        pick(&["", "headers = true\n"]),
        pick(&["", "failure_rate = 0.2\n"]),
        pick(&[
            "",
            "latency = \"0s\"\nnetwork = \"0s\"\nrefuse_latency = \"0s\"\n",
        ]),
        pick(&[
            "",
            "outage = [{ from = \"60s\", to = \"100s\", timeout = \"30s\" }]\n",
        ]),
        pick(&[
            "",
            "ban = { excesses = 3, within = \"10s\", for = \"20s\" }\n",
        ]),
        "[[client]]\n",
        pick(&["count = 1\n", "count = 5\nstart = \"0s..30s\"\n"]),
        pick(&[
            "strategy = \"adaptive\"\n",
            "strategy = \"aimd\"\n",
            "strategy = \"fixed:20\"\n",
            "strategy = \"none\"\n",
        ]),
        pick(&["", "max_in_flight = 1\n"]),
        pick(&["", "backlog = \"5/s\"\n"]),
    ];
    read(&text.concat())
}

#[test]
fn series_has_a_band_for_every_opening_of_the_breaker() {
    let scenario = Shipped::find("o7").unwrap().scenario();
    let (figures, series) = simulate_with_series(&scenario, 1, Duration::from_secs(1));
    let bands = &series.clients[0].breaker;
    let count = |state| bands.iter().filter(|band| band.what == state).count() as u64;
    assert!(figures.breaker_opened > 1);
    assert_eq!(count(BreakerState::Open), figures.breaker_opened);
    assert_eq!(count(BreakerState::HalfOpen), figures.breaker_opened);
}
