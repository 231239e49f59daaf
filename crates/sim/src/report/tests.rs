//! The page is well-formed, shows the figures, escapes text, and can show any result of a run.

use std::collections::BTreeSet;

use policy::breaker::BreakerState;
use policy::time::Timestamp;
use quick_xml::Reader;
use quick_xml::events::Event;

use super::*;
use crate::client::{ClientSettings, Strategy};
use crate::measure::{Band, ClientSeries, Slice};
use crate::plot::escape;
use crate::scenario::{SHIPPED, Scenario, Shipped};
use crate::simulate::simulate_with_series;
use crate::upstream::{Kind, Outage, UpstreamSettings};

#[test]
fn every_shipped_scenario_gives_a_well_formed_page() {
    for shipped in SHIPPED {
        let page = html(&shipped_report(shipped.name, &["adaptive"]));
        check_well_formed(&page);
        assert!(page.len() < 1_000_000, "{}: {}", shipped.name, page.len());
    }
}

#[test]
fn the_same_report_gives_the_same_bytes() {
    let page = || html(&shipped_report("o8", &["adaptive", "aimd"]));
    assert_eq!(page(), page());
}

#[test]
fn a_page_has_no_scripts_or_external_resources() {
    let page = html(&shipped_report("o9", &["adaptive", "none"]));
    for forbidden in ["http", "<script", "<link", "<img", "@import", "url("] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
}

#[test]
fn plots_use_named_colours_only() {
    let page = html(&shipped_report("o8-16", &["adaptive"]));
    let (_, body) = page.split_once("</style>").unwrap();
    assert!(!body.contains("=\"#"));
}

#[test]
fn every_figure_has_a_meaning() {
    let report = shipped_report("o5", &["adaptive"]);
    let names: Vec<_> = report.runs[0]
        .figures
        .numbers()
        .map(|(name, _)| name)
        .into();
    let meanings: Vec<_> = crate::measure::FIGURES
        .iter()
        .map(|(name, _, _)| *name)
        .collect();
    assert_eq!(names, meanings);
}

#[test]
fn the_table_has_the_values_of_every_strategy() {
    let mut report = shipped_report("o5", &["adaptive", "none"]);
    report.runs[0].figures.sent = 1_234_567;
    report.runs[0].figures.refused_ratio = Some(0.0004);
    report.runs[1].figures.steps[0].settle_s = None;
    let page = html(&report);
    assert!(page.contains("<td class=\"value\">1\u{202f}234\u{202f}567</td>"));
    assert!(page.contains("<td class=\"value\">&lt; 0.1 %</td>"));
    assert!(page.contains("<td class=\"value\">never</td>"));
    assert!(page.contains("From the step at 120 s"));
    assert!(page.contains("tidegate simulate o5 --seed 1"));
}

#[test]
fn a_figure_that_applies_to_no_strategy_is_left_out() {
    let page = html(&shipped_report("o5", &["adaptive"]));
    assert!(!page.contains("<code>max_queue</code>"));
    assert!(html(&shipped_report("o4", &["adaptive"])).contains("<code>max_queue</code>"));
}

#[test]
fn text_from_outside_is_escaped() {
    let hostile = "</pre><script>alert(\"1\")</script>'\" onload=x & \u{0}";
    let mut report = shipped_report("o5", &["adaptive"]);
    report.name = hostile;
    report.about = hostile;
    report.text = hostile;
    report.command = hostile;
    report.runs[0].strategy = hostile.to_owned();
    let page = html(&report);
    check_well_formed(&page);
    assert!(!page.contains("<script"));
    assert!(!page.contains("\" onload"));
    assert!(page.contains("&lt;script&gt;"));
}

#[test]
fn escapes_markup_and_control_characters() {
    assert_eq!(
        escape("<a b=\"c\" d='e'>&amp;\u{0}\u{1b}\r\n"),
        "&lt;a b=&quot;c&quot; d=&#39;e&#39;&gt;&amp;amp;\u{fffd}\u{fffd}\n"
    );
}

#[test]
fn breaker_states_are_bands_with_their_names() {
    let mut report = shipped_report("o5", &["adaptive"]);
    let band = |from, to, what| Band {
        from: Timestamp::from_secs(from),
        to: Timestamp::from_secs(to),
        what,
    };
    let client = &mut report.runs[0].series.clients[0];
    client.holds.clear();
    client.breaker = vec![
        band(10, 100, BreakerState::Open),
        band(100, 101, BreakerState::HalfOpen),
        band(200, 300, BreakerState::Isolated),
    ];
    let page = html(&report);
    for word in ["Open", "HalfOpen", "Isolated"] {
        assert!(page.contains(&format!("</span>{word}</li>")), "{word}");
    }
    assert!(page.contains(">\nOpen\n</text>"), "long bands are labelled");
    assert!(!page.contains(">\nHalfOpen\n</text>"), "short ones do not");
}

#[test]
fn plots_without_data_are_replaced_by_text() {
    let mut report = shipped_report("o5", &["adaptive"]);
    report.runs[0].series.clients[0].holds.clear();
    for slice in &mut report.runs[0].series.slices {
        (slice.accepted, slice.latency_ms) = (0, None);
    }
    let page = html(&report);
    check_well_formed(&page);
    assert!(page.contains("No holds, and no breaker opened."));
    assert!(page.contains("No request was accepted."));
}

#[test]
fn a_page_shows_phases_and_what_each_client_does_at_the_end() {
    let one = html(&shipped_report("o5", &["adaptive"]));
    assert!(one.contains("<h3>Phases</h3>"));
    assert!(one.contains("known limit"));
    let explanation = run_of("o5", "adaptive").figures.explanations.remove(0);
    assert!(one.contains(&format!(
        "<li>At the end: {}.</li>",
        escape(&explanation.unwrap())
    )));
    let several = html(&shipped_report("o8", &["adaptive"]));
    assert!(several.contains("<li>client 2 at the end: "));
    let fixed = html(&shipped_report("o5", &["fixed:50"]));
    assert!(!fixed.contains("<h3>Phases</h3>"));
    assert!(fixed.contains("<li>At the end: staying at 50/s, a fixed rate.</li>"));
    let naive = html(&shipped_report("o5", &["none"]));
    assert!(!naive.contains("At the end"));
}

#[test]
fn shares_are_shown_for_several_clients_only() {
    assert!(html(&shipped_report("o8", &["adaptive"])).contains("<h3>Shares</h3>"));
    assert!(!html(&shipped_report("o5", &["adaptive"])).contains("<h3>Shares</h3>"));
}

#[test]
fn more_than_sixteen_clients_are_shown_as_others() {
    let mut clients = vec![ClientSettings::of(Strategy::Adaptive)];
    clients[0].count = 40;
    let scenario = Scenario {
        duration: Duration::from_secs(20),
        ..Scenario::of(bucket(200.0), clients)
    };
    let page = html(&report_of(&scenario, Strategy::Adaptive));
    check_well_formed(&page);
    assert!(page.contains("24 others"));
}

#[test]
fn axes_suit_rates_of_every_magnitude() {
    for (rate, mark) in [(0.1, "0.1"), (50.0, "50"), (10_000.0, "10\u{202f}000")] {
        let client = ClientSettings::of(Strategy::Fixed(rate));
        let scenario = Scenario {
            duration: Duration::from_secs(if rate < 1.0 { 300 } else { 2 }),
            ..Scenario::of(bucket(rate), vec![client])
        };
        let page = html(&report_of(&scenario, Strategy::Fixed(rate)));
        check_well_formed(&page);
        assert!(page.contains(&format!(">\n{mark}\n</text>")), "{mark}");
    }
}

#[test]
fn a_run_that_is_one_outage_can_be_shown() {
    let mut upstream = bucket(50.0);
    upstream.outages = vec![Outage {
        from: Timestamp::ZERO,
        to: Timestamp::from_secs(60),
        timeout_share: 0.5,
        timeout: Duration::from_secs(5),
        status: None,
    }];
    let scenario = Scenario {
        duration: Duration::from_secs(60),
        ..Scenario::of(upstream, vec![ClientSettings::of(Strategy::Adaptive)])
    };
    let page = html(&report_of(&scenario, Strategy::Adaptive));
    check_well_formed(&page);
    assert!(page.contains("the upstream had no capacity"));
}

#[test]
fn durations_that_are_no_multiple_of_a_slice_can_be_shown() {
    for millis in [1, 7, 999, 7_001, 61_003] {
        let scenario = Scenario {
            duration: Duration::from_millis(millis),
            ..Scenario::of(bucket(50.0), vec![ClientSettings::of(Strategy::Adaptive)])
        };
        check_well_formed(&html(&report_of(&scenario, Strategy::Adaptive)));
    }
}

#[test]
fn empty_and_single_slice_series_can_be_shown() {
    let series = |slices: Vec<Slice>, clients| Series {
        step: Duration::from_secs(1),
        slices,
        clients,
    };
    let one = Slice {
        capacity: 1.0,
        sent: 1,
        accepted: 1,
        latency_ms: Some(1.0),
        ..Slice::default()
    };
    let client = ClientSeries {
        rates: vec![Some(f64::INFINITY)],
        accepted: vec![1],
        ..ClientSeries::default()
    };
    let template = shipped_report("o9", &["adaptive", "aimd"]);
    for series in [
        series(vec![], vec![]),
        series(vec![], vec![ClientSeries::default(); 2]),
        series(vec![Slice::default()], vec![ClientSeries::default(); 3]),
        series(vec![one], vec![client.clone()]),
        series(vec![one], vec![client; 2]),
    ] {
        let mut report = template.clone();
        report.duration = Duration::from_secs(1);
        report.runs[0].series = series.clone();
        report.runs[1].series = series;
        check_well_formed(&html(&report));
    }
    let mut nothing = shipped_report("o9", &[]);
    check_well_formed(&html(&nothing));
    nothing.duration = Duration::ZERO;
    check_well_formed(&html(&nothing));
}

fn bucket(rate: f64) -> UpstreamSettings {
    UpstreamSettings::of(Kind::Bucket {
        rate,
        burst: rate.max(1.0),
    })
}

fn shipped_report(name: &str, strategies: &[&str]) -> Report<'static> {
    let shipped = Shipped::find(name).unwrap();
    let scenario = shipped.scenario();
    let strategies = strategies.iter().map(|strategy| strategy.parse().unwrap());
    Report {
        name: shipped.name,
        about: shipped.about,
        text: shipped.text,
        duration: scenario.duration,
        seed: 1,
        command: "tidegate simulate o5 --seed 1",
        runs: strategies
            .map(|strategy| run(scenario.clone(), strategy))
            .collect(),
    }
}

fn run_of(name: &str, strategy: &str) -> StrategyRun {
    let scenario = Shipped::find(name).unwrap().scenario();
    run(scenario, strategy.parse().unwrap())
}

fn report_of(scenario: &Scenario, strategy: Strategy) -> Report<'static> {
    Report {
        name: "own",
        about: "",
        text: "",
        duration: scenario.duration,
        seed: 1,
        command: "",
        runs: vec![run(scenario.clone(), strategy)],
    }
}

fn run(scenario: Scenario, strategy: Strategy) -> StrategyRun {
    let scenario = scenario.with_strategy(strategy);
    let step = step_for(scenario.duration);
    let (figures, series) = simulate_with_series(&scenario, 1, step);
    StrategyRun {
        strategy: strategy.to_string(),
        figures,
        series,
    }
}

/// The page is well-formed, no attribute is repeated, and all coordinates are finite.
fn check_well_formed(page: &str) {
    let mut reader = Reader::from_str(page);
    let mut depth = 0;
    loop {
        match reader.read_event().unwrap() {
            Event::Start(element) => {
                depth += 1;
                check_attributes(&element);
            }
            Event::Empty(element) => check_attributes(&element),
            Event::End(_) => depth -= 1,
            Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!(depth, 0);
    assert!(!page.contains("NaN") && !page.contains("inf\n"));
    assert!(!page.contains("-2147483648") && !page.contains("2147483647"));
}

fn check_attributes(element: &quick_xml::events::BytesStart<'_>) {
    let mut names = BTreeSet::new();
    for attribute in element.attributes() {
        assert!(names.insert(attribute.unwrap().key.0.to_owned()));
    }
}
