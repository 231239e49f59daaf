//! Simulations: a scenario in virtual time, for a person who tries other numbers.
//!
//! A run takes a thread of its own and up to seconds of it, so there are few at a time, each has bounds,
//! and one whose client has gone is stopped.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use config::{Location, Problem as ScenarioProblem};
use policy::duration::{Exact, Seconds};
use policy::gate::{GateOptions, GateSettings};
use policy::rate;
use serde_json::Value;
use sim::client::Strategy;
use sim::measure::Summary;
use sim::report::{Course, StrategyRun, courses, step_for};
use sim::scenario::{self, Draft, SHIPPED, Shipped, Variant};
use sim::simulate::simulate_until;
use tidegate::GateView;

use super::api::AdminState;
use super::bodies::{
    Problem, ScenarioField, ScenarioList, Simulate, Simulation, SimulationBand, SimulationRun,
    SimulationScenario, SimulationSeries,
};
use super::body::{Fields, shown, whole};
use super::gates::{GatePath, no_gate};
use super::problem::{Kind, Refused};
use crate::state::InvalidValue;

/// So many simulations run at a time.
pub(super) const MAX_RUNNING: usize = 2;

/// The bounds of a simulation. `tidegate simulate` has none of them.
const MAX_DURATION: Duration = Duration::from_secs(3600);
const MAX_CLIENTS: usize = 100;
const MAX_STRATEGIES: usize = 4;
/// Of one run: it takes seconds, and some 100 MB to measure them.
const MAX_REQUESTS: u64 = 5_000_000;

/// Scenarios that come with Tidegate: one for each kind of limit.
const OFFERED: [&str; 10] = ["o1", "o2", "o3", "o4", "o5", "o6", "o7", "o8", "o8-8", "o9"];

/// Scenarios to simulate
#[utoipa::path(
    get, operation_id = "listScenarios", path = "/api/v1/scenarios", tag = "simulate",
    responses((status = 200, description = "The scenarios", body = ScenarioList))
)]
pub(super) async fn scenarios() -> Json<ScenarioList> {
    let offered = SHIPPED
        .iter()
        .filter(|shipped| OFFERED.contains(&shipped.name));
    Json(ScenarioList {
        scenarios: offered
            .map(|shipped| scenario_body(shipped.name, shipped.about, shipped.text))
            .collect(),
        strategies: STRATEGIES.map(str::to_owned).to_vec(),
    })
}

const STRATEGIES: [&str; 4] = ["adaptive", "aimd", "fixed:10", "none"];

/// The present settings of a gate as a scenario
///
/// The upstream accepts the limit that the gate has learned, or the present rate if it has learned none, and
/// takes as long as it took lately.
#[utoipa::path(
    get, operation_id = "showGateScenario", path = "/api/v1/gates/{key}/scenario", tag = "simulate", params(GatePath),
    responses((status = 200, description = "The scenario", body = SimulationScenario))
)]
pub(super) async fn of_gate(
    State(admin): State<Arc<AdminState>>,
    Path(GatePath { key }): Path<GatePath>,
) -> Result<Json<SimulationScenario>, Refused> {
    let limiter = admin.state.limiter();
    let view = limiter.gate(&key).ok_or_else(|| no_gate(&admin, &key))?;
    let text = gate_text(&view, &limiter.settings(&view.key).gate);
    let title = "a gate with its present settings";
    Ok(Json(scenario_body(&view.key, title, &text)))
}

/// Simulate a scenario
///
/// In virtual time: nothing is sent. The same scenario and seed always give the same figures. At most an
/// hour of virtual time, 100 clients and five million requests; two at a time. A client that disconnects
/// stops its simulation.
#[utoipa::path(
    post, operation_id = "simulate", path = "/api/v1/simulate", tag = "simulate",
    request_body = Simulate,
    responses(
        (status = 200, description = "What came out", body = Simulation),
        (status = 429, description = "Two simulations run already", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn run(
    State(admin): State<Arc<AdminState>>,
    fields: Fields,
) -> Result<Json<Simulation>, Refused> {
    let request = read(fields)?;
    let variants = request.variants()?;
    let command = request.command(&variants);
    let slots = Arc::clone(&admin.simulations);
    let Ok(slot) = slots.try_acquire_owned() else {
        let detail = format!("{MAX_RUNNING} simulations run already; wait for one, or cancel it");
        return Err(Refused::new(Kind::TooManySimulations, detail));
    };
    let stopper = StopOnDrop::default();
    let is_stopped = Arc::clone(&stopper.0);
    let seed = request.seed;
    let running = tokio::task::spawn_blocking(move || {
        let _slot = slot;
        simulate(&variants, seed, &is_stopped)
    });
    match running.await {
        Ok(Ok(runs)) => Ok(Json(Simulation { runs, command })),
        Ok(Err(refused)) => Err(refused),
        Err(_) => Err(Refused::new(Kind::Draining, "the simulation was stopped")),
    }
}

/// Stops a run when the call that waits for it is dropped.
#[derive(Default)]
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn scenario_body(name: &str, title: &str, text: &str) -> SimulationScenario {
    let fields = scenario::fields(text).into_iter();
    SimulationScenario {
        name: name.to_owned(),
        title: title.to_owned(),
        text: text.to_owned(),
        fields: fields
            .map(|field| ScenarioField {
                name: field.name,
                label: field.label,
                value: field.value,
            })
            .collect(),
    }
}

/// A request as it was read.
struct ReadRequest {
    draft: Draft,
    seed: Option<u64>,
}

fn read(mut fields: Fields) -> Result<ReadRequest, Refused> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let names: Vec<&str> = SHIPPED.iter().map(|shipped| shipped.name).collect();
    let expected = format!("one of `{}`", names.join("`, `"));
    let shipped = fields.take("scenario", &expected, |value| {
        Shipped::find(value.as_str()?)
    });
    let written = fields.take("text", "a scenario in TOML", text);
    let file = match (shipped, written) {
        (Some(shipped), None) => Some((shipped.name.to_owned(), shipped.text.into())),
        (None, Some(text)) => Some((FILE.to_owned(), text.into_bytes())),
        (Some(_), Some(_)) => {
            fields.note("text", None, "expected either `scenario` or `text`");
            None
        }
        (None, None) => {
            if !fields.has_problem("scenario") && !fields.has_problem("text") {
                fields.note(
                    "scenario",
                    None,
                    "is missing, expected `scenario` or `text`",
                );
            }
            None
        }
    };
    let settings = read_set(&mut fields);
    let strategies = read_strategies(&mut fields);
    let seed = fields.take("seed", "a whole number", whole);
    fields.end()?;
    Ok(ReadRequest {
        draft: Draft {
            file,
            strategies: (!strategies.is_empty()).then(|| strategies.join(",")),
            settings,
            ..Draft::default()
        },
        seed,
    })
}

/// The name of a scenario that is only text.
const FILE: &str = "scenario.toml";

fn read_set(fields: &mut Fields) -> Vec<String> {
    let object = |value: &Value| value.as_object().cloned();
    let expected = "an object such as `{\"upstream.rate\": \"50\"}`";
    let set = fields.take("set", expected, object).unwrap_or_default();
    let mut settings = Vec::new();
    for (name, value) in &set {
        let is_path = !name.contains('=') && name.chars().count() <= 100;
        match value {
            Value::String(text) if is_path => settings.push(format!("{name}={text}")),
            value => {
                let name: String = name.chars().take(100).collect();
                fields.note(&name, Some(shown(value)), "a path with its value as text");
            }
        }
    }
    settings
}

fn read_strategies(fields: &mut Fields) -> Vec<String> {
    let list = |value: &Value| value.as_array().cloned();
    let expected = format!("a list of up to {MAX_STRATEGIES} strategies");
    let list = fields.take("strategies", &expected, |value| {
        list(value).filter(|list| list.len() <= MAX_STRATEGIES)
    });
    let mut strategies = Vec::new();
    for (index, value) in list.unwrap_or_default().iter().enumerate() {
        let written = value.as_str().filter(|word| !word.contains(','));
        match written.map(|word| (word, word.parse::<Strategy>())) {
            Some((word, Ok(_))) => strategies.push(word.to_owned()),
            Some((word, Err(unknown))) => fields.note(
                &format!("strategies[{index}]"),
                Some(word.chars().take(100).collect()),
                &unknown.expected(),
            ),
            None => {
                let field = format!("strategies[{index}]");
                fields.note(&field, Some(shown(value)), "a strategy such as `adaptive`");
            }
        }
    }
    strategies
}

impl ReadRequest {
    /// The scenarios to run, within the bounds.
    fn variants(&self) -> Result<Vec<Variant>, Refused> {
        let variants = self.draft.variants().map_err(|problems| {
            let problems = problems.into_iter().take(MAX_PROBLEMS);
            Refused::invalid(problems.map(invalid_value).collect())
        })?;
        let mut invalid = Vec::new();
        if let Some(Variant { scenario, .. }) = variants.first() {
            let mut check = |is_over: bool, field: &str, value: String, expected: String| {
                if is_over {
                    invalid.push(InvalidValue {
                        field: field.to_owned(),
                        value: Some(value),
                        expected: format!("{expected}; `tidegate simulate` has no such bound"),
                    });
                }
            };
            let length = scenario.duration;
            let expected = format!("at most {}", Exact(MAX_DURATION));
            let duration = Exact(length).to_string();
            check(length > MAX_DURATION, "duration", duration, expected);
            let clients = scenario.client_count();
            let expected = format!("at most {MAX_CLIENTS} clients");
            let is_over = clients > MAX_CLIENTS;
            check(is_over, "client[0].count", clients.to_string(), expected);
        }
        match invalid.is_empty() {
            true => Ok(variants),
            false => Err(Refused::invalid(invalid)),
        }
    }

    /// The command that gives the same figures.
    fn command(&self, variants: &[Variant]) -> String {
        let name = self.draft.file.as_ref().map_or(FILE, |(name, _)| name);
        let mut command = format!("tidegate simulate {name}");
        for setting in &self.draft.settings {
            command.push_str(&format!(" --set {}", quoted(setting)));
        }
        if let Some(strategies) = &self.draft.strategies {
            command.push_str(&format!(" --strategy {strategies}"));
        }
        let written = variants.first().map(|variant| variant.scenario.seed);
        if let Some(seed) = self.seed.or(written) {
            command.push_str(&format!(" --seed {seed}"));
        }
        command
    }
}

const MAX_PROBLEMS: usize = 20;

/// An argument as a shell takes it.
fn quoted(argument: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._=:-/".contains(c);
    match argument.chars().all(is_plain) {
        true => argument.to_owned(),
        false => format!("'{}'", argument.replace('\'', r"'\''")),
    }
}

/// A problem of a scenario, under the name of the field that caused it.
fn invalid_value(problem: ScenarioProblem) -> InvalidValue {
    let of_flag = match &problem.location {
        Location::Flag(flag) => flag.strip_prefix("--set "),
        _ => None,
    };
    let field = match of_flag {
        Some(path) => path.to_owned(),
        None if problem.key.is_empty() => "text".to_owned(),
        None => problem.key.clone(),
    };
    let what = match problem.what.strip_prefix("expected ") {
        Some(expected) if problem.value.is_some() => expected.to_owned(),
        _ => problem.what.clone(),
    };
    let expected = match &problem.location {
        Location::File { line, .. } => format!("{what} (line {line})"),
        _ => what,
    };
    InvalidValue {
        field,
        value: problem.value,
        expected,
    }
}

/// Runs every variant, unless it is stopped or takes too many requests.
fn simulate(
    variants: &[Variant],
    seed: Option<u64>,
    is_stopped: &AtomicBool,
) -> Result<Vec<SimulationRun>, Refused> {
    let mut runs = Vec::new();
    for variant in variants {
        let scenario = &variant.scenario;
        let mut is_too_long = false;
        let mut watch = |progress: sim::simulate::Progress| {
            is_too_long = progress.sent > MAX_REQUESTS;
            match is_too_long || is_stopped.load(Ordering::Relaxed) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        let step = step_for(scenario.duration);
        let seed = seed.unwrap_or(scenario.seed);
        let Some((figures, series)) = simulate_until(scenario, seed, step, &mut watch) else {
            return Err(unfinished(variant, is_too_long));
        };
        runs.push(StrategyRun {
            strategy: variant.strategy.clone(),
            figures,
            series,
        });
    }
    let duration = variants.first().map(|variant| variant.scenario.duration);
    let courses = courses(&runs, duration.unwrap_or_default());
    let runs = runs.into_iter().zip(courses);
    Ok(runs.map(|(run, course)| run_body(run, course)).collect())
}

fn unfinished(variant: &Variant, is_too_long: bool) -> Refused {
    if !is_too_long {
        // Its client has gone, so this is not read.
        return Refused::new(Kind::Draining, "the simulation was stopped");
    }
    let Variant { strategy, scenario } = variant;
    Refused::invalid(vec![InvalidValue {
        field: "duration".to_owned(),
        value: Some(Exact(scenario.duration).to_string()),
        expected: format!(
            "a shorter time: `{strategy}` sends more than {MAX_REQUESTS} requests; `tidegate simulate` has no such bound"
        ),
    }])
}

fn run_body(run: StrategyRun, course: Course) -> SimulationRun {
    let figures = serde_json::to_value(Summary::of(&run.figures));
    let figures = figures.expect("figures are numbers by name");
    SimulationRun {
        strategy: run.strategy,
        figures: figures.as_object().cloned().unwrap_or_default(),
        series: SimulationSeries {
            start_s: 0.0,
            step_s: course.step_s,
            capacity: course.capacity,
            rate: course.rate,
            sent: course.sent,
            accepted: course.accepted,
            refused: course.refused,
            failed: course.failed,
            latency_ms: course.latency_ms,
        },
        bands: course
            .bands
            .into_iter()
            .map(|band| SimulationBand {
                state: band.state.to_owned(),
                from_s: band.from_s,
                to_s: band.to_s,
            })
            .collect(),
    }
}

/// The scenario of a gate: an upstream with the limit and the latency that it has seen, and a client
/// with its settings where they are not the defaults of the strategy.
fn gate_text(view: &GateView, settings: &GateSettings) -> String {
    let gate = &view.gate;
    let rate = gate.ceiling.unwrap_or(gate.rate).clamp(0.01, 1e6);
    let mut text = format!(
        "duration = \"300s\"\nseed = 1\n\n[upstream]\nkind = \"bucket\"\nrate = {}\n",
        rounded(rate)
    );
    if gate.latency_p95.is_some() {
        // Without the way there and back.
        let latency = gate.latency_ewma.saturating_sub(Duration::from_millis(20));
        let latency = latency.as_millis().clamp(1, 60_000);
        text.push_str(&format!("latency = \"{latency}ms\"\n"));
    }
    let strategy = settings.strategy();
    let options = GateOptions {
        strategy: Some(strategy),
        ..GateOptions::default()
    };
    let defaults = options.build().unwrap_or_default();
    let initial = rounded(settings.initial_rate());
    text.push_str(&match strategy {
        rate::Strategy::Fixed => format!("\n[[client]]\nstrategy = \"fixed:{initial}\"\n"),
        strategy => format!("\n[[client]]\nstrategy = \"{}\"\n", strategy.as_str()),
    });
    let mut add = |name: &str, value: String, default: String| {
        if value != default {
            text.push_str(&format!("{name} = {value}\n"));
        }
    };
    let (own, usual) = (settings.rate_bounds(), defaults.rate_bounds());
    if strategy != rate::Strategy::Fixed {
        add("initial_rate", initial, rounded(defaults.initial_rate()));
        add("min_rate", rounded(own.0), rounded(usual.0));
        add("max_rate", rounded(own.1), rounded(usual.1));
    }
    let in_flight = |settings: &GateSettings| settings.max_in_flight().to_string();
    add("max_in_flight", in_flight(settings), in_flight(&defaults));
    let limits = settings.known_limits().iter();
    let limits: Vec<String> = limits
        .map(|limit| format!("\"{}/{}\"", limit.count(), Seconds(limit.period())))
        .collect();
    add(
        "limits",
        format!("[{}]", limits.join(", ")),
        "[]".to_owned(),
    );
    text
}

/// A number with at most three digits after the point.
fn rounded(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_quoted_where_a_shell_needs_it() {
        assert_eq!(quoted("upstream.rate=50"), "upstream.rate=50");
        assert_eq!(
            quoted("upstream.steps[0].at=5s"),
            "'upstream.steps[0].at=5s'"
        );
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }

    #[test]
    fn numbers_are_short() {
        for (number, text) in [(41.8, "41.8"), (2.0, "2"), (0.1, "0.1"), (100.0, "100")] {
            assert_eq!(rounded(number), text);
        }
    }
}
