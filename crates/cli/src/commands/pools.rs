//! `tidegate pools`: the endpoints of a running server.

use anyhow::anyhow;
use app::admin::client::{Client, ClientError, encoded};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value, json};

use super::Failure;
use super::gates::until;
use super::server::{self, ServerArgs};
use crate::exit::Exit;
use crate::output::{Output, columns};

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
        #[arg(value_name = "SCENARIO", default_value = "auto_disable")]
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

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Scenario {
    /// One 429
    SingleError,
    /// Three 429s in a row
    RepeatedErrors,
    /// Two 429s, a success, another 429
    SuccessRecovery,
    /// 429s until the endpoint is disabled
    AutoDisable,
}

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
        _ => Map::new(),
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
    match output.is_json() {
        true => output.json(&result),
        false => output.text(&text),
    }
}

/// The server's response, and the same for people.
type Shown = Result<(Value, String), ClientError>;

async fn list(client: &Client, pool: Option<&str>) -> Shown {
    let path = pool.map_or_else(|| "/api/v1/pools".to_owned(), pool_path);
    let pools = client.get(&path).await?;
    let text = table(&pools);
    Ok((pools, text))
}

async fn switch(client: &Client, args: &EndpointArgs, is_enabled: bool) -> Shown {
    let body = json!({ "enabled": is_enabled });
    let endpoint = client.patch(&args.path(), &body).await?;
    let text = match is_enabled {
        true => format!("enabled {args}: its errors and its pause are cleared\n"),
        false => format!("disabled {args} until a person enables it\n"),
    };
    Ok((endpoint, text))
}

async fn add(client: &Client, args: &AddArgs, headers: Map<String, Value>) -> Shown {
    let EndpointArgs { pool, name } = &args.endpoint;
    let body = json!({ "name": name, "url": args.url, "headers": headers });
    let path = format!("{}/endpoints", pool_path(pool));
    let endpoint = client.post(&path, &body).await?;
    let url = endpoint["url"].as_str().unwrap_or_default();
    let text = format!("added `{name}` to pool `{pool}`: {url}, used from now on\n");
    Ok((endpoint, text))
}

async fn remove(client: &Client, args: &EndpointArgs) -> Shown {
    client.delete(&args.path()).await?;
    let pool = client.get(&pool_path(&args.pool)).await?;
    let EndpointArgs {
        pool: pool_name,
        name,
    } = args;
    let mut text = format!("removed `{name}` from pool `{pool_name}`\n");
    if pool["endpoints"].as_array().is_some_and(Vec::is_empty) {
        text.push_str(&format!(
            "pool `{pool_name}` has no endpoint left: its requests are refused with `no_endpoint`\n"
        ));
    }
    Ok((pool, text))
}

async fn test(client: &Client, pool: &str, scenario: Scenario) -> Shown {
    let scenario = scenario.to_possible_value();
    let scenario = scenario.expect("no scenario is hidden");
    let body = json!({ "scenario": scenario.get_name() });
    let result = client
        .post(&format!("{}/test", pool_path(pool)), &body)
        .await?;
    let text = steps(pool, &result);
    Ok((result, text))
}

fn pool_path(pool: &str) -> String {
    format!("/api/v1/pools/{}", encoded(pool))
}

impl EndpointArgs {
    fn path(&self) -> String {
        format!(
            "{}/endpoints/{}",
            pool_path(&self.pool),
            encoded(&self.name)
        )
    }
}

impl std::fmt::Display for EndpointArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}` of pool `{}`", self.name, self.pool)
    }
}

/// Headers by name. A value that is no reference may be a secret, so messages do not repeat it.
fn headers(flags: &[String]) -> Result<Map<String, Value>, Failure> {
    let mut headers = Map::new();
    let mut errors = Vec::new();
    for flag in flags {
        match flag.split_once('=') {
            Some((name, value)) if value.contains("env:") || value.contains("file:") => {
                headers.insert(name.trim().to_owned(), value.trim().into());
            }
            Some((name, _)) => errors.push(anyhow!(
                "`--header {name}` has a literal value, expected a reference"
            )),
            None => errors.push(anyhow!("`--header` has no `=`, expected NAME=REFERENCE")),
        }
    }
    if errors.is_empty() {
        return Ok(headers);
    }
    Err(Failure {
        exit: Exit::Usage,
        errors,
        hint: Some(
            "a reference is `env:NAME` or `file:PATH`, read by the server, as in `--header authorization='Bearer env:API_KEY'`"
                .to_owned(),
        ),
    })
}

/// One pool, or all of them.
fn table(pools: &Value) -> String {
    let pools = match pools["pools"].as_array() {
        Some(pools) => pools.as_slice(),
        None => std::slice::from_ref(pools),
    };
    let heading = [
        "pool",
        "endpoint",
        "state",
        "errors",
        "in flight",
        "url",
        "last error",
    ];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for pool in pools {
        let name = pool["name"].as_str().unwrap_or_default();
        let endpoints = pool["endpoints"].as_array().into_iter().flatten();
        rows.extend(endpoints.map(|endpoint| row(name, endpoint)));
    }
    match rows.len() {
        1 => {
            "no endpoints: add one with `tidegate pools add`, or in `[pool.NAME]` of the settings\n"
                .to_owned()
        }
        _ => columns(&rows),
    }
}

fn row(pool: &str, endpoint: &Value) -> Vec<String> {
    let text = |name: &str| endpoint[name].as_str().unwrap_or_default().to_owned();
    let number = |name: &str| endpoint[name].as_u64().unwrap_or_default().to_string();
    vec![
        pool.to_owned(),
        text("name"),
        state(endpoint),
        number("consecutive_errors"),
        number("in_flight"),
        text("url"),
        text("last_error"),
    ]
}

fn state(endpoint: &Value) -> String {
    match endpoint["disabled_reason"].as_str() {
        Some(reason) => format!("disabled: {}", reason.trim_start_matches("disabled ")),
        None if endpoint["paused_until_ms"].is_null() => "enabled".to_owned(),
        None => format!("paused{}", until(&endpoint["paused_until_ms"])),
    }
}

fn steps(pool: &str, result: &Value) -> String {
    let mut text = String::new();
    let steps = result["steps"].as_array().into_iter().flatten();
    for (step, number) in steps.zip(1..) {
        let step = step["text"].as_str().unwrap_or_default();
        text.push_str(&format!("request {number}: {step}\n"));
    }
    if result["protected"] == json!(false) {
        text.push_str(&format!(
            "\nprotection of pool `{pool}` is off: it has one endpoint, or `protection.enabled` is false\n"
        ));
    }
    text
}
