//! `tidegate simulate`: a scenario's figures as a table or as JSON, and whether they are good enough.

mod from_log;
pub(super) mod input;
mod random;
mod record;
mod report;
mod table;

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use serde_json::json;
use sim::assertion::Assertion;
use sim::measure::Summary;
use sim::scenario::{SHIPPED, Variant};
use sim::simulate::simulate_watched;

use super::{Failure, problems};
use crate::args;
use crate::exit::Exit;
use crate::output::{self, Output};

/// Simulate clients against a model upstream in virtual time
///
/// A scenario is a TOML file, a shipped one by its name (see --list), or an
/// upstream without a file (--upstream). Minutes of virtual time take a fraction
/// of a second, and the same scenario and seed always give the same figures.
/// --random runs many random upstreams and prints how the figures are distributed.
/// --from-log estimates a scenario from an access log of `tidegate serve`, and
/// runs it.
#[derive(Debug, Args)]
#[command(override_usage = USAGE, after_help = EXAMPLES, after_long_help = long_help())]
pub(crate) struct SimulateArgs {
    /// Scenario file, `-` for stdin, or the name of a shipped scenario
    #[arg(value_name = "FILE|NAME", required_unless_present_any = ["upstream", "random", "from_log", "list", "show"])]
    scenario: Option<String>,

    /// Upstream without a file: its kind and the keys of `[upstream]`
    #[arg(long, value_name = "KIND KEY=VALUE…", conflicts_with = "scenario")]
    upstream: Option<String>,

    /// Strategies of the clients, compared if there are several: adaptive, aimd,
    /// fixed:RATE, none
    #[arg(long = "strategy", value_name = "STRATEGY,…")]
    strategies: Vec<String>,

    /// Virtual time to simulate
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    duration: Option<String>,

    /// Number of clients
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    clients: Option<String>,

    /// Setting of the clients, by its name in the configuration, or a value of the
    /// scenario by its path, such as `upstream.rate=50`; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,

    /// Settings file whose `[gate]` applies to clients, where the scenario says
    /// nothing else [default: none]
    #[arg(long, value_name = "FILE", help_heading = args::GLOBAL, conflicts_with_all = ["list", "show"])]
    pub(crate) config: Option<PathBuf>,

    /// Seed of the random numbers
    #[arg(long, value_name = "N", value_parser = args::seed, allow_hyphen_values = true)]
    seed: Option<u64>,

    /// Number of seeds to run; figures are their mean and spread
    #[arg(long, value_name = "N", value_parser = seed_count, allow_hyphen_values = true)]
    seeds: Option<u32>,

    /// Exit with 1 unless this holds, such as
    /// `goodput_ratio >= 95% and bans == 0`; may be repeated
    #[arg(long = "assert", value_name = "EXPR")]
    assertions: Vec<String>,

    /// Write a self-contained page with plots of the first seed
    #[arg(long, value_name = "FILE.html", conflicts_with_all = ["list", "show"])]
    report: Option<PathBuf>,

    /// Run so many random upstreams: of all kinds and rates, with several clients,
    /// failures, changing limits, outages and bans. --seed names the set
    #[arg(
        long, value_name = "N", value_parser = random::count, allow_hyphen_values = true,
        conflicts_with_all = [
            "scenario", "upstream", "duration", "clients", "seeds", "assertions", "report", "list", "show",
        ],
    )]
    random: Option<u32>,

    /// List so many of the worst random upstreams [default: 10]
    #[arg(
        long, value_name = "N", value_parser = random::worst_count, allow_hyphen_values = true,
        requires = "random", conflicts_with_all = ["scenario", "upstream", "list", "show"],
    )]
    worst: Option<u32>,

    /// Write the scenario of --from-log to this file, or those of --random to this
    /// folder
    #[arg(long, value_name = "PATH", conflicts_with_all = ["scenario", "upstream", "list", "show"])]
    write: Option<PathBuf>,

    /// Estimate the scenario from an access log (json or combined), `-` for stdin:
    /// the offered rate, the limit behind the refusals, latencies and failures
    #[arg(
        long, value_name = "FILE",
        conflicts_with_all = ["scenario", "upstream", "random", "list", "show"],
    )]
    from_log: Option<String>,

    /// Use only requests of this route; needed if the log has several
    #[arg(long, value_name = "NAME", requires = "from_log")]
    route: Option<String>,

    /// Print the estimated scenario, or write it with --write, without running it
    #[arg(
        long, requires = "from_log",
        conflicts_with_all = ["strategies", "duration", "clients", "settings", "config", "seed", "seeds", "assertions", "report"],
    )]
    no_run: bool,

    /// List the shipped scenarios
    #[arg(long, conflicts_with_all = ["scenario", "upstream", "show"])]
    list: bool,

    /// Print a shipped scenario
    #[arg(long, value_name = "NAME", conflicts_with_all = ["scenario", "upstream"])]
    show: Option<String>,
}

const USAGE: &str = "tidegate simulate [OPTIONS] <FILE|NAME|->
       tidegate simulate [OPTIONS] --upstream <KIND KEY=VALUE…>
       tidegate simulate [OPTIONS] --random <N>
       tidegate simulate [OPTIONS] --from-log <FILE>
       tidegate simulate --list
       tidegate simulate --show <NAME>";

const EXAMPLES: &str = r#"Examples:
  # a shipped scenario
  tidegate simulate o1

  # an upstream without a file, strategies side by side
  tidegate simulate --upstream 'bucket rate=50 burst=10' \
      --strategy adaptive,aimd,fixed:50,none

  # what would these settings do?
  tidegate simulate --upstream 'window quota=600 period=60s' \
      --set initial_rate=20

  # what would the settings of a file do?
  tidegate simulate o5 --config tidegate.toml

  # how well do strategies do on 70 upstreams that none was tuned for?
  tidegate simulate --random 70 --seed 7 --strategy adaptive,aimd

  # what would another strategy have done with last night's traffic?
  tidegate simulate --from-log access.log --strategy adaptive,aimd \
      --write last-night.toml

  # a page with plots
  tidegate simulate o5 --strategy adaptive,none --report o5.html

  # in CI: exit code 1 unless it holds
  tidegate simulate api.toml --assert 'goodput_ratio >= 95% and bans == 0'

  # your own scenario, over five seeds, for programs
  tidegate simulate --show o7 > mine.toml
  tidegate simulate mine.toml --seeds 5 --json"#;

fn seed_count(text: &str) -> Result<u32, String> {
    policy::setting::whole(text, 1, 10_000)
}

fn long_help() -> String {
    format!("{GRAMMAR}\n\n{EXAMPLES}")
}

const GRAMMAR: &str = r#"Upstreams without a file:
  bucket rate=N [burst=N]                           token bucket
  window quota=N period=DURATION [phase=DURATION]   fixed windows
  slots slots=N service=DURATION [queue=N]          so many at a time
  Each may have the other keys of a file: retry_after, headers, latency,
  latency_spread, refuse_latency, network, failure_rate, steps, outage, ban.
  Lists and tables are TOML:
  --upstream 'bucket rate=50 outage=[{ from = "60s", to = "90s" }]'

Assertions:
  FIGURE OPERATOR NUMBER, joined by `and`. Operators are >= <= > < == !=, a
  number may end in %. Figures have their names of --json; in lists by index:
  outages[0].recovery_s <= 4, steps[1].settle_s <= 10. A figure that does not
  apply fails every assertion."#;

pub(super) fn run(args: &SimulateArgs, output: &Output) -> Result<(), Failure> {
    if args.list {
        return list(output);
    }
    if let Some(name) = &args.show {
        return output.text(input::shipped(name)?.text);
    }
    if let Some(count) = args.random {
        return random::run(args, count, output);
    }
    // Problems of the arguments are reported before the simulation starts.
    let assertions = assertions(&args.assertions)?;
    let mut draft = input::draft(args, output)?;
    if let Some(log) = &args.from_log {
        let text = from_log::scenario(log, args, output)?;
        if args.no_run {
            return Ok(());
        }
        let name = format!("the scenario of {}", input::log_name(log));
        draft.file = Some((name, text.into_bytes()));
    }
    let variants = draft.variants().map_err(|found| {
        let file = draft.file.as_ref().map(|(name, _)| name.as_str());
        problems::failure(file, found, SCENARIO_HINT, output)
    })?;
    let outcomes = simulate(args, &variants, output);
    match output.is_json() {
        true => record::print(&outcomes, output)?,
        false => output.text(&table::text(&input::title(args), &outcomes))?,
    }
    if let Some(path) = &args.report {
        report::write(path, args, &draft, &outcomes)?;
        output.detail(&format!("wrote {}", path.display()));
    }
    judge(&assertions, &outcomes)
}

const SCENARIO_HINT: &str =
    "`tidegate simulate --show o1` prints a valid scenario, `--help` shows how flags are written";

/// The figures of one strategy.
struct Outcome<'a> {
    variant: &'a Variant,
    /// The first seed.
    seed: u64,
    /// Figures of the only run, or the mean of several.
    summary: Summary,
    /// Set with `--seeds`.
    over: Option<Seeds>,
    /// What each client does at the end of the only run; empty for several.
    explanations: Vec<Option<String>>,
}

/// The spread over several seeds.
struct Seeds {
    count: u32,
    spread: Summary,
}

fn simulate<'a>(args: &SimulateArgs, variants: &'a [Variant], output: &Output) -> Vec<Outcome<'a>> {
    let seeds = args.seeds.unwrap_or(1);
    let parts = variants.len() as f64 * f64::from(seeds);
    let mut done = 0.0;
    let mut progress = output.progress();
    let mut outcomes = Vec::new();
    for variant in variants {
        let scenario = &variant.scenario;
        let first = args.seed.unwrap_or(scenario.seed);
        let mut runs = Vec::new();
        let mut explanations = Vec::new();
        for number in 0..seeds {
            let seed = first.wrapping_add(number.into());
            let mut watch = |share: f64| progress.update((done + share) / parts);
            let figures = simulate_watched(scenario, seed, &mut watch);
            runs.push(Summary::of(&figures));
            if seeds == 1 {
                explanations = figures.explanations;
            }
            done += 1.0;
        }
        outcomes.push(Outcome {
            variant,
            seed: first,
            summary: Summary::mean(&runs),
            over: args.seeds.map(|count| Seeds {
                count,
                spread: Summary::spread(&runs),
            }),
            explanations,
        });
    }
    outcomes
}

fn assertions(flags: &[String]) -> Result<Vec<Assertion>, Failure> {
    let mut assertions = Vec::new();
    let mut errors = Vec::new();
    for text in flags {
        match text.parse::<Assertion>() {
            Ok(assertion) => assertions.push(assertion),
            Err(error) => errors.push(anyhow!("`--assert` is `{text}`, {error}")),
        }
    }
    if errors.is_empty() {
        return Ok(assertions);
    }
    let names = Assertion::names().collect::<Vec<_>>().join(", ");
    let hint =
        format!("an assertion is `FIGURE OPERATOR NUMBER`, joined by `and`; figures are {names}");
    Err(Failure::usage(errors, hint))
}

/// Every strategy has to meet every assertion.
fn judge(assertions: &[Assertion], outcomes: &[Outcome<'_>]) -> Result<(), Failure> {
    let mut errors = Vec::new();
    for outcome in outcomes {
        let strategy = &outcome.variant.strategy;
        let failures = assertions.iter();
        let failures = failures.flat_map(|assertion| assertion.failures(&outcome.summary));
        errors.extend(failures.map(|failure| anyhow!("{strategy}: {failure}")));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Failure {
        exit: Exit::Failed,
        errors,
        hint: None,
    })
}

fn list(output: &Output) -> Result<(), Failure> {
    let records = SHIPPED
        .iter()
        .map(|shipped| json!({ "name": shipped.name, "about": shipped.about }));
    let rows = SHIPPED
        .iter()
        .map(|shipped| vec![shipped.name.to_owned(), shipped.about.to_owned()]);
    output.result(&records.collect::<Vec<_>>(), || {
        output::table(&["scenario", "about"], rows)
    })
}
