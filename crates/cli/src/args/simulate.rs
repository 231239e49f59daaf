//! `tidegate simulate`.

use std::path::PathBuf;

use clap::Args;

/// Play clients against a model upstream in virtual time, and tell what that came to
///
/// A scenario is a TOML file, or a shipped one by its name (see --list), or an upstream written in
/// one line with --upstream. Five minutes pass in the blink of an eye, and the same scenario and
/// seed always give the same figures.
#[derive(Debug, Args)]
#[command(override_usage = USAGE, after_help = EXAMPLES, after_long_help = long_help())]
pub(crate) struct SimulateArgs {
    /// A scenario file, `-` for stdin, or the name of a shipped scenario
    #[arg(value_name = "FILE|NAME", required_unless_present_any = ["upstream", "list", "show"])]
    pub(crate) scenario: Option<String>,

    /// The upstream, without a file: its kind and the keys of `[upstream]`
    #[arg(long, value_name = "KIND KEY=VALUE…", conflicts_with = "scenario")]
    pub(crate) upstream: Option<String>,

    /// What drives the clients, whatever the file says; several with commas are compared:
    /// adaptive, aimd, fixed:RATE, none
    #[arg(long = "strategy", value_name = "STRATEGY,…")]
    pub(crate) strategies: Vec<String>,

    /// How much virtual time passes
    #[arg(long, value_name = "DURATION")]
    pub(crate) duration: Option<String>,

    /// How many clients there are
    #[arg(long, value_name = "N")]
    pub(crate) clients: Option<String>,

    /// A setting of the clients, by its name in the configuration; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) settings: Vec<String>,

    /// Where random numbers come from, whatever the file says
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// Play so many seeds, one after the other; every figure is the mean, with its spread
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) seeds: Option<u32>,

    /// Exit with 1 unless this holds, such as `goodput_ratio >= 95% and bans == 0`; may be
    /// repeated
    #[arg(long = "assert", value_name = "EXPR")]
    pub(crate) assertions: Vec<String>,

    /// Write a page with plots of the first seed, which needs nothing but a browser
    #[arg(long, value_name = "FILE.html", conflicts_with_all = ["list", "show"])]
    pub(crate) report: Option<PathBuf>,

    /// List the shipped scenarios
    #[arg(long, conflicts_with_all = ["scenario", "upstream", "show"])]
    pub(crate) list: bool,

    /// Print a shipped scenario, to begin one's own with
    #[arg(long, value_name = "NAME", conflicts_with_all = ["scenario", "upstream"])]
    pub(crate) show: Option<String>,
}

const USAGE: &str = "tidegate simulate [OPTIONS] <FILE|NAME|->
       tidegate simulate [OPTIONS] --upstream <KIND KEY=VALUE…>
       tidegate simulate --list
       tidegate simulate --show <NAME>";

const EXAMPLES: &str = r#"Examples:
  # one of the shipped scenarios
  tidegate simulate o1

  # an upstream in one line, strategies side by side
  tidegate simulate --upstream 'bucket rate=50 burst=10' --strategy adaptive,aimd,fixed:50,none

  # what would these settings do?
  tidegate simulate --upstream 'window quota=600 period=60s retry_after=true' --set initial_rate=20

  # a page with plots, to look at
  tidegate simulate o5 --strategy adaptive,none --report o5.html

  # in CI: exit code 1 unless it holds
  tidegate simulate api.toml --assert 'goodput_ratio >= 95% and refused_ratio <= 0.01'

  # a scenario of one's own, over five seeds, for programs
  tidegate simulate --show o7 > mine.toml
  tidegate simulate mine.toml --seeds 5 --json"#;

fn long_help() -> String {
    format!("{GRAMMAR}\n\n{EXAMPLES}")
}

const GRAMMAR: &str = r#"Upstreams in one line:
  bucket rate=N [burst=N]                           a token bucket
  window quota=N period=DURATION [phase=DURATION]   so many in each window
  slots slots=N service=DURATION [queue=N]          so many at a time, the others queue
  and for all of them, as in a file: retry_after, headers, latency, latency_spread, refuse_latency,
  network, failure_rate, steps, outage, ban. Lists and tables are written as TOML:
  --upstream 'bucket rate=50 outage=[{ from = "60s", to = "90s" }]'

Assertions:
  FIGURE OPERATOR NUMBER, joined by `and`. Operators are >= <= > < == !=, numbers may end in %.
  Figures have their names of --json; of lists, one is named: outages[0].recovery_s <= 4,
  steps[1].settle_s <= 10. A figure that does not apply meets nothing."#;
