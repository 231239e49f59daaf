//! `adaptive` at kinds of limits that no shipped scenario has: tiny rates, silent and announced
//! windows, windows with several clients, bans, headers of a fast bucket, many slots.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use sim::measure::Figures;
use sim::scenario::Scenario;
use sim::simulate::simulate;

/// The figures of `upstream` with so many clients, for three seeds.
fn figures(upstream: &str, clients: u32, seconds: u32) -> Vec<Figures> {
    let text = format!(
        "duration = \"{seconds}s\"\n[upstream]\n{upstream}\n[[client]]\ncount = {clients}\n"
    );
    let scenario = Scenario::read("adaptive", text.as_bytes()).unwrap();
    (1..=3).map(|seed| simulate(&scenario, seed)).collect()
}

/// Checks goodput from 60 s on and the share of refused requests of the whole run, both in percent.
fn check(upstream: &str, seconds: u32, min_goodput: f64, max_refused: f64) {
    for (seed, figures) in (1..).zip(figures(upstream, 1, seconds)) {
        let goodput = 100.0 * figures.goodput_ratio_settled.unwrap();
        let refused = 100.0 * figures.refused_ratio.unwrap();
        assert!(
            goodput >= min_goodput && refused <= max_refused,
            "{upstream}\nseed {seed}: goodput {goodput} %, refused {refused} %"
        );
    }
}

#[test]
fn is_rarely_refused_at_tiny_rates() {
    for (rate, burst) in [
        (0.2, 1),
        (0.2, 10),
        (0.5, 1),
        (0.5, 10),
        (1.0, 1),
        (1.0, 10),
    ] {
        let upstream = format!("kind = \"bucket\"\nrate = {rate}\nburst = {burst}");
        check(&upstream, 2000, 80.0, 7.0);
    }
}

#[test]
fn guesses_no_limit_of_a_slow_bucket_that_has_saved_tokens() {
    // The first measurement tells it. A probe that is followed by guesses is refused more often.
    check(
        "kind = \"bucket\"\nrate = 0.35\nburst = 20",
        2000,
        95.0,
        2.0,
    );
}

#[test]
fn finds_a_slow_limit_by_few_refusals() {
    for (rate, min_goodput) in [(0.35, 93.0), (0.5, 93.0), (0.75, 91.0)] {
        let upstream = format!("kind = \"bucket\"\nrate = {rate}\nburst = 1");
        check(&upstream, 2000, min_goodput, 2.9);
    }
}

#[test]
fn does_not_take_milliseconds_for_a_measurement() {
    // 819/s with a burst of 3372: the search ends far above the limit, and the next refusal follows
    // within milliseconds.
    let scenario = sim::random::scenario(15, 53);
    let figures = simulate(&scenario, scenario.seed);
    let goodput = figures.goodput_ratio_settled.unwrap();
    assert!(goodput >= 0.95, "{goodput}");
}

#[test]
fn probes_a_fast_window_in_steps_that_matter() {
    check(
        "kind = \"window\"\nquota = 14_000\nperiod = \"24s\"\nlatency = \"85ms\"",
        300,
        90.0,
        1.0,
    );
}

#[test]
fn paces_a_window_that_does_not_say_when_it_opens() {
    check(
        "kind = \"window\"\nquota = 600\nperiod = \"60s\"",
        600,
        94.0,
        2.0,
    );
    check(
        "kind = \"window\"\nquota = 60\nperiod = \"60s\"",
        600,
        90.0,
        6.0,
    );
    check(
        "kind = \"window\"\nquota = 100\nperiod = \"1s\"",
        300,
        80.0,
        1.0,
    );
}

#[test]
fn shares_an_announced_window() {
    let upstream = "kind = \"window\"\nquota = 600\nperiod = \"60s\"\nretry_after = true";
    for figures in figures(upstream, 4, 600) {
        assert!(figures.jain.unwrap() > 0.85, "{figures:?}");
        assert!(figures.goodput_ratio_settled.unwrap() > 0.99, "{figures:?}");
        assert!(figures.refused_ratio.unwrap() < 0.03, "{figures:?}");
    }
}

#[test]
fn is_not_banned_for_five_refusals_in_half_a_minute_and_once_for_three_in_a_minute() {
    let bucket = "kind = \"bucket\"\nrate = 50\nburst = 10\n";
    let bans = |ban: &str| {
        let figures = figures(&format!("{bucket}ban = {ban}"), 1, 300);
        figures.iter().map(|figures| figures.bans).max().unwrap()
    };
    assert_eq!(bans("{ excesses = 5, within = \"30s\", for = \"60s\" }"), 0);
    assert_eq!(bans("{ excesses = 3, within = \"60s\", for = \"60s\" }"), 1);
}

#[test]
fn slow_clients_of_one_bucket_are_refused_rarely() {
    let upstream = "kind = \"bucket\"\nrate = 29\nburst = 26\nlatency = \"20ms\"";
    let figures = figures(upstream, 12, 300);
    let mean = |value: fn(&Figures) -> Option<f64>| {
        figures.iter().filter_map(value).sum::<f64>() / figures.len() as f64
    };
    let goodput = mean(|figures| figures.goodput_ratio_settled);
    let refused = mean(|figures| figures.refused_ratio);
    assert!(goodput >= 0.97 && refused <= 0.05, "{goodput} {refused}");
}

#[test]
fn is_refused_too_rarely_to_be_banned() {
    for (rate, burst, ban) in [
        (
            2.743,
            3,
            "{ excesses = 4, within = \"15s\", for = \"102s\" }",
        ),
        (
            66.5,
            2,
            "{ excesses = 5, within = \"41s\", for = \"108s\" }",
        ),
    ] {
        let upstream = format!("kind = \"bucket\"\nrate = {rate}\nburst = {burst}\nban = {ban}");
        for figures in figures(&upstream, 1, 300) {
            assert_eq!(figures.bans, 0, "{upstream}\n{figures:?}");
        }
    }
}

#[test]
fn uses_a_fast_bucket_whose_headers_are_outdated_on_arrival() {
    let upstream = "kind = \"bucket\"\nrate = 300\nburst = 7\nheaders = true\nnetwork = \"50ms\"";
    check(upstream, 300, 90.0, 1.0);
}

#[test]
fn fills_few_slots_with_varying_latency() {
    for slots in [1, 2, 4] {
        let upstream = format!(
            "kind = \"slots\"\nslots = {slots}\nservice = \"40ms\"\nqueue = 40\nlatency_spread = 0.5"
        );
        check(&upstream, 300, 90.0, 0.5);
    }
}

#[test]
fn fills_many_slots_with_varying_latency() {
    let upstream =
        "kind = \"slots\"\nslots = 100\nservice = \"200ms\"\nqueue = 200\nlatency_spread = 0.5";
    check(upstream, 300, 90.0, 0.5);
}

#[test]
fn finds_more_slots_soon_after_there_were_fewer() {
    // 20 slots, then 6, then 31: the refusals of the second are no sign of other clients.
    let scenario = sim::random::scenario(1, 38);
    let figures = simulate(&scenario, scenario.seed);
    let settle = figures.steps[1].settle_s.unwrap();
    assert!(settle <= 20.0, "{figures:?}");
}

#[test]
fn clients_of_a_bucket_with_short_waits_probe_rarely() {
    // 261.6/s for five clients; each refusal names a wait of a second, the time of 50 requests.
    let scenario = sim::random::scenario(7, 37);
    let figures = simulate(&scenario, scenario.seed);
    let goodput = figures.goodput_ratio_settled.unwrap();
    assert!(goodput >= 0.91, "{figures:?}");
}

#[test]
fn meets_a_ban_once_although_it_begins_while_the_gate_is_held() {
    // 5730 in 220 s. Requests in flight when the window is used up are refused, and the last ones
    // banned; the ban is over before the window opens.
    let scenario = sim::random::scenario(4, 64);
    let figures = simulate(&scenario, scenario.seed);
    assert_eq!(figures.max_client_bans, 1, "{figures:?}");
}
