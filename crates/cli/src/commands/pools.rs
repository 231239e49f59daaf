//! `tidegate pools`: the endpoints of a running server.

use std::collections::BTreeMap;

use anyhow::anyhow;
use app::admin::bodies::{AddEndpoint, Endpoint, Pool, Scenario, TestResult};
use app::admin::client::{Client, ClientError};
use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Value, json};

use super::Failure;
use super::gates::until;
use super::server::{self, ServerArgs};
use crate::args;
use crate::output::{self, Output};

/// Show, switch, add, remove and test the endpoints of a running server
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct PoolsArgs {
    #[command(subcommand)]
    command: PoolsCommand,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Debug, Subcommand)]
enum PoolsCommand {
    /// Show every endpoint, or those of one pool
    #[command(after_help = EXAMPLES)]
    List {
        /// Name of a pool
        #[arg(value_name = "POOL")]
        pool: Option<String>,
    },
    /// Use an endpoint again; clears its errors, its pause and its gate's isolation
    #[command(after_help = EXAMPLES)]
    Enable(EndpointArgs),
    /// Stop using an endpoint until a person enables it
    #[command(after_help = EXAMPLES)]
    Disable(EndpointArgs),
    /// Add an endpoint to a pool; it is used at once and kept over restarts
    #[command(after_help = EXAMPLES)]
    Add(AddArgs),
    /// Remove an endpoint from its pool; requests in flight finish
    #[command(after_help = EXAMPLES)]
    Remove(EndpointArgs),
    /// Show how a pool's protection would react; sends nothing, changes nothing
    #[command(after_help = EXAMPLES)]
    Test {
        /// Name of the pool
        #[arg(value_name = "POOL")]
        pool: String,
        /// Responses to play
        #[arg(value_name = "SCENARIO", default_value = "auto_disable", value_parser = args::choice(SCENARIOS))]
        scenario: Scenario,
    },
}

#[derive(Debug, Args)]
struct EndpointArgs {
    /// Name of the pool
    #[arg(value_name = "POOL")]
    pool: String,
    /// Name of the endpoint in that pool
    #[arg(value_name = "ENDPOINT")]
    name: String,
}

#[derive(Debug, Args)]
struct AddArgs {
    #[command(flatten)]
    endpoint: EndpointArgs,
    /// Base URL: the rest of a request's path is appended to it
    #[arg(value_name = "URL")]
    url: String,
    /// Header of every request, with a reference to its value such as
    /// `authorization=env:API_KEY`; may be repeated
    #[arg(long = "header", value_name = "NAME=REFERENCE")]
    headers: Vec<String>,
}

const SCENARIOS: [(&str, &str, Scenario); 4] = [
    ("single_error", "One 429", Scenario::SingleError),
    (
        "repeated_errors",
        "Three 429s in a row",
        Scenario::RepeatedErrors,
    ),
    (
        "success_recovery",
        "Two 429s, a success, another 429",
        Scenario::SuccessRecovery,
    ),
    (
        "auto_disable",
        "429s until the endpoint is disabled",
        Scenario::AutoDisable,
    ),
];

const EXAMPLES: &str = "\
Examples:
  tidegate pools list
  tidegate pools disable llm a
  tidegate pools enable llm a
  tidegate pools add llm c https://c.example.com/v1 \\
      --header authorization='Bearer env:KEY_C'
  tidegate pools remove llm c
  tidegate pools test llm repeated_errors";

pub(super) fn run(args: &PoolsArgs, output: &Output) -> Result<(), Failure> {
    let headers = match &args.command {
        PoolsCommand::Add(args) => headers(&args.headers)?,
        _ => BTreeMap::new(),
    };
    let client = server::client(&args.server, output)?;
    let (result, text) = server::block_on(async {
        let result = match &args.command {
            PoolsCommand::List { pool } => list(&client, pool.as_deref()).await,
            PoolsCommand::Enable(args) => switch(&client, args, true).await,
            PoolsCommand::Disable(args) => switch(&client, args, false).await,
            PoolsCommand::Add(args) => add(&client, args, headers).await,
            PoolsCommand::Remove(args) => remove(&client, args).await,
            PoolsCommand::Test { pool, scenario } => test(&client, pool, *scenario).await,
        };
        result.map_err(|error| server::named_failure(error, "tidegate pools list"))
    })?;
    output.result(&result, || text)
}

/// The server's response, and the same for people.
type Shown = Result<(Value, String), ClientError>;

/// Bodies are plain values, which can always be shown as JSON.
fn shown(body: &impl Serialize, text: String) -> Shown {
    Ok((json!(body), text))
}

async fn list(client: &Client, pool: Option<&str>) -> Shown {
    match pool {
        Some(pool) => {
            let pool = client.pool(pool).await?;
            shown(&pool, table(std::slice::from_ref(&pool)))
        }
        None => {
            let list = client.pools().await?;
            shown(&list, table(&list.pools))
        }
    }
}

async fn switch(client: &Client, args: &EndpointArgs, is_enabled: bool) -> Shown {
    let endpoint = client
        .switch_endpoint(&args.pool, &args.name, is_enabled)
        .await?;
    let text = match is_enabled {
        true => format!("enabled {args}: its errors and its pause are cleared\n"),
        false => format!("disabled {args} until a person enables it\n"),
    };
    shown(&endpoint, text)
}

async fn add(client: &Client, args: &AddArgs, headers: BTreeMap<String, String>) -> Shown {
    let EndpointArgs { pool, name } = &args.endpoint;
    let new = AddEndpoint {
        name: name.clone(),
        url: args.url.clone(),
        headers,
    };
    let endpoint = client.add_endpoint(pool, &new).await?;
    let url = &endpoint.url;
    let text = format!("added `{name}` to pool `{pool}`: {url}, used from now on\n");
    shown(&endpoint, text)
}

async fn remove(client: &Client, args: &EndpointArgs) -> Shown {
    let EndpointArgs { pool, name } = args;
    client.remove_endpoint(pool, name).await?;
    let left = client.pool(pool).await?;
    let mut text = format!("removed `{name}` from pool `{pool}`\n");
    if left.endpoints.is_empty() {
        text.push_str(&format!(
            "pool `{pool}` has no endpoint left: its requests are refused with `no_endpoint`\n"
        ));
    }
    shown(&left, text)
}

async fn test(client: &Client, pool: &str, scenario: Scenario) -> Shown {
    let result = client.test_protection(pool, scenario).await?;
    shown(&result, steps(pool, &result))
}

impl std::fmt::Display for EndpointArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}` of pool `{}`", self.name, self.pool)
    }
}

/// Headers by name. A value that is no reference may be a secret, so messages do not repeat it.
fn headers(flags: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let mut headers = BTreeMap::new();
    let mut errors = Vec::new();
    for flag in flags {
        match flag.split_once('=') {
            Some((name, value)) if value.contains("env:") || value.contains("file:") => {
                headers.insert(name.trim().to_owned(), value.trim().to_owned());
            }
            Some((name, _)) => errors.push(anyhow!(
                "`--header {name}` has a literal value, expected a reference"
            )),
            None => errors.push(anyhow!("`--header` has no `=`, expected NAME=REFERENCE")),
        }
    }
    match errors.is_empty() {
        true => Ok(headers),
        false => Err(Failure::usage(errors, REFERENCE_HINT)),
    }
}

const REFERENCE_HINT: &str = "a reference is `env:NAME` or `file:PATH`, read by the server, as in `--header authorization='Bearer env:API_KEY'`";

fn table(pools: &[Pool]) -> String {
    let mut rows = pools
        .iter()
        .flat_map(|pool| {
            pool.endpoints
                .iter()
                .map(|endpoint| row(&pool.name, endpoint))
        })
        .peekable();
    match rows.peek() {
        None => NO_ENDPOINTS.to_owned(),
        Some(_) => output::table(HEADING, rows),
    }
}

#[rustfmt::skip]
const HEADING: &[&str] = &["pool", "endpoint", "state", "errors", "in flight", "url", "last error"];

const NO_ENDPOINTS: &str =
    "no endpoints: add one with `tidegate pools add`, or in `[pool.NAME]` of the settings\n";

fn row(pool: &str, endpoint: &Endpoint) -> Vec<String> {
    vec![
        pool.to_owned(),
        endpoint.name.clone(),
        state(endpoint),
        endpoint.consecutive_errors.to_string(),
        endpoint.in_flight.to_string(),
        endpoint.url.clone(),
        endpoint.last_error.clone().unwrap_or_default(),
    ]
}

fn state(endpoint: &Endpoint) -> String {
    match (&endpoint.disabled_reason, endpoint.paused_until_ms) {
        (Some(reason), _) => format!("disabled: {}", reason.trim_start_matches("disabled ")),
        (None, None) => "enabled".to_owned(),
        (None, until_ms) => format!("paused{}", until(until_ms)),
    }
}

fn steps(pool: &str, result: &TestResult) -> String {
    let mut text = String::new();
    for (step, number) in result.steps.iter().zip(1..) {
        text.push_str(&format!("request {number}: {}\n", step.text));
    }
    if !result.protected {
        text.push_str(&format!(
            "\nprotection of pool `{pool}` is off: it has one endpoint, or `protection.enabled` is false\n"
        ));
    }
    text
}
