//! `tidegate gates`: the gates of a running server as a table, and a person's override.

use std::fmt;
use std::time::Duration;

use anyhow::anyhow;
use app::admin::bodies::{Gate, GateList, GateServer, GateServers, GateSort, GateTotals};
use app::admin::client::{Client, GateAction};
use clap::{Args, Subcommand};
use policy::duration::Rounded;
use policy::setting;
use serde_json::json;

use super::Failure;
use super::server::{self, ServerArgs};
use crate::args;
use crate::exit::Exit;
use crate::output::{self, Output};

/// Show the gates of a running server, or override what they decided
///
/// Without a command, `list`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct GatesArgs {
    #[command(subcommand)]
    command: Option<GatesCommand>,

    #[command(flatten)]
    list: ListArgs,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Debug, Subcommand)]
enum GatesCommand {
    /// Show rate, line, breaker and hold of each gate, and why
    #[command(after_help = EXAMPLES)]
    List(ListArgs),
    /// Show which part of the rate of a gate each server of a fleet has
    #[command(after_help = EXAMPLES)]
    Servers(ServersArgs),
    /// Start gates anew: rate, hold, breaker and counts; callers in line stay
    #[command(after_help = EXAMPLES)]
    Reset(KeyArgs),
    /// Refuse every request at gates until they are released or reset
    #[command(after_help = EXAMPLES)]
    Isolate(KeyArgs),
    /// End hold, open breaker and isolation of gates; the learned rate stays
    #[command(after_help = EXAMPLES)]
    Release(KeyArgs),
}

#[derive(Debug, Args)]
struct ServersArgs {
    /// Key of the gate: `pool/endpoint` or `host[:port]`
    #[arg(value_name = "KEY")]
    key: String,
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Show them again every second, until Ctrl-C
    #[arg(long)]
    watch: bool,

    /// Figure to sort by, highest first; keys in alphabetical order
    /// [default: admitted]
    #[arg(long, value_name = "FIGURE", value_parser = args::choice(sorts()))]
    sort: Option<GateSort>,

    /// Number of gates to show, at most 1000 [default: 20]
    #[arg(long, value_name = "N", value_parser = limit, allow_hyphen_values = true)]
    limit: Option<u32>,
}

fn sorts() -> impl Iterator<Item = (&'static str, &'static str, GateSort)> {
    GateSort::ALL.iter().map(|sort| (sort.as_str(), "", *sort))
}

#[derive(Debug, Args)]
struct KeyArgs {
    /// Keys of gates: `pool/endpoint` or `host[:port]`
    #[arg(value_name = "KEY", required = true)]
    keys: Vec<String>,
}

fn limit(text: &str) -> Result<u32, String> {
    setting::whole(text, 1, 1000)
}

const EXAMPLES: &str = "\
Examples:
  tidegate gates
  tidegate gates --watch --sort waiting
  tidegate gates --json | jq '.gates[] | select(.hold) | .key'
  tidegate gates servers llm/a
  tidegate gates isolate llm/a api.example.com
  tidegate gates release llm/a
  tidegate gates reset llm/a --server http://127.0.0.1:7071";

pub(super) fn run(args: &GatesArgs, output: &Output) -> Result<(), Failure> {
    let (name, order) = match &args.command {
        None => return list(&args.list, &args.server, output),
        Some(GatesCommand::List(list_args)) => {
            return list(&args.list.or(list_args), &args.server, output);
        }
        Some(GatesCommand::Servers(args)) => ("servers", Order::Servers(&args.key)),
        Some(GatesCommand::Reset(args)) => of(GateAction::Reset, args),
        Some(GatesCommand::Isolate(args)) => of(GateAction::Isolate, args),
        Some(GatesCommand::Release(args)) => of(GateAction::Release, args),
    };
    if args.list.is_given() {
        let error = anyhow!(
            "`--watch`, `--sort` and `--limit` are options of `tidegate gates list`, not of `{name}`"
        );
        let hint = "`tidegate gates --watch` shows the effect in another terminal";
        return Err(Failure::new(Exit::Usage, error).with_hint(hint));
    }
    let client = server::client(&args.server, output)?;
    server::block_on(async {
        match order {
            Order::Servers(key) => servers(key, &client, output).await,
            Order::Override(action, keys) => override_all(action, keys, &client, output).await,
        }
    })
}

/// What to do with gates that were named.
enum Order<'a> {
    Servers(&'a str),
    Override(GateAction, &'a [String]),
}

fn of(action: GateAction, args: &KeyArgs) -> (&'static str, Order<'_>) {
    (action.as_str(), Order::Override(action, &args.keys))
}

async fn servers(key: &str, client: &Client, output: &Output) -> Result<(), Failure> {
    let servers = client.gate_servers(key).await;
    let servers = servers.map_err(|error| server::named_failure(error, "tidegate gates"))?;
    output.result(&json!(servers), || servers_table(&servers))
}

fn servers_table(list: &GateServers) -> String {
    if list.servers.is_empty() {
        return "no server shares this gate now: `storage.gates` makes servers share their gates\n"
            .to_owned();
    }
    let row = |server: &GateServer| {
        vec![
            match &*server.server {
                "" => NONE.to_owned(),
                server => server.to_owned(),
            },
            format!("{:.1} %", 100.0 * server.share),
            format!("{:.2}/s", server.demand_per_second),
        ]
    };
    output::table(
        &["server", "share", "asks for"],
        list.servers.iter().map(row),
    )
}

impl ListArgs {
    fn is_given(&self) -> bool {
        self.watch || self.sort.is_some() || self.limit.is_some()
    }

    /// The options typed before `list` and those typed after it, which take precedence.
    fn or(&self, after: &Self) -> Self {
        Self {
            watch: self.watch || after.watch,
            sort: after.sort.or(self.sort),
            limit: after.limit.or(self.limit),
        }
    }

    async fn load(&self, client: &Client) -> Result<GateList, Failure> {
        let sort = self.sort.unwrap_or(GateSort::Admitted);
        let gates = client.gates(sort, self.limit.unwrap_or(20)).await;
        gates.map_err(server::failure)
    }
}

fn list(args: &ListArgs, server: &ServerArgs, output: &Output) -> Result<(), Failure> {
    let client = server::client(server, output)?;
    if args.watch {
        return server::block_on(watch(&client, args, output));
    }
    let gates = server::block_on(args.load(&client))?;
    output.result(&json!(gates), || table(&gates))
}

/// Often enough to watch, and no load for a server.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

async fn watch(client: &Client, args: &ListArgs, output: &Output) -> Result<(), Failure> {
    let show = async {
        let mut ticks = tokio::time::interval(WATCH_INTERVAL);
        loop {
            ticks.tick().await;
            let gates = args.load(client).await?;
            match output.is_json() {
                true => output.json_line(&json!(gates))?,
                false => output.text_in_place(&format!("{}\n", table(&gates)))?,
            }
        }
    };
    tokio::select! {
        ended = show => ended,
        _ = tokio::signal::ctrl_c() => Err(Failure::silent(Exit::Interrupted)),
    }
}

/// What was done, for people.
const fn done(action: GateAction) -> &'static str {
    match action {
        GateAction::Reset => "reset",
        GateAction::Isolate => "isolated",
        GateAction::Release => "released",
    }
}

/// Overrides every gate of `keys`, also after one that failed; prints what changed.
async fn override_all(
    action: GateAction,
    keys: &[String],
    client: &Client,
    output: &Output,
) -> Result<(), Failure> {
    let (mut text, mut gates) = (String::new(), Vec::new());
    let mut failed: Option<Failure> = None;
    for key in keys {
        match override_gate(action, key, client).await {
            Ok((before, after)) => {
                text.push_str(&changes(action, key, before.as_ref(), &after));
                gates.push(after);
            }
            Err(failure) => match &mut failed {
                Some(earlier) => earlier.errors.extend(failure.errors),
                None => failed = Some(failure),
            },
        }
    }
    output.result(&json!({ "gates": gates }), || text)?;
    failed.map_or(Ok(()), Err)
}

/// Overrides one gate. Gives it as it was, `None` if it did not exist, and as it is now.
async fn override_gate(
    action: GateAction,
    key: &str,
    client: &Client,
) -> Result<(Option<Gate>, Gate), Failure> {
    let before = client.gate(key).await.ok();
    match client.override_gate(key, action).await {
        Ok(after) => Ok((before, after)),
        Err(error) => Err(server::named_failure(error, "tidegate gates")),
    }
}

/// One line: what was done, and what is different now.
fn changes(action: GateAction, key: &str, before: Option<&Gate>, after: &Gate) -> String {
    let mut parts = vec![
        change("rate", before.map(rate), rate(after)),
        change("breaker", before.map(breaker), breaker(after)),
    ];
    match (before.map_or_else(|| NONE.to_owned(), hold), hold(after)) {
        (before, after) if before == after => {}
        (before, after) if after == NONE => parts.push(format!("hold {before} ended")),
        (_, after) => parts.push(format!("hold {after}")),
    }
    if let waiting @ 1.. = after.waiting {
        parts.push(format!("{waiting} waiting"));
    }
    let note = match action {
        GateAction::Isolate => "; requests are refused until it is released or reset",
        GateAction::Reset | GateAction::Release => "",
    };
    let place = match &after.fleet {
        None => "",
        Some(fleet) if fleet.is_degraded => {
            " here, and on the other servers if the fleet can be reached soon"
        }
        Some(_) => " on all servers",
    };
    format!(
        "{} `{key}`{place}: {}{note}\n",
        done(action),
        parts.join(", ")
    )
}

fn change<T: fmt::Display + PartialEq>(name: &str, before: Option<T>, after: T) -> String {
    match before.filter(|before| *before != after) {
        Some(before) => format!("{name} {before} to {after}"),
        None => format!("{name} {after}"),
    }
}

fn table(list: &GateList) -> String {
    let text = match list.gates.is_empty() {
        true => "no gates yet: a gate is made by the first request to its key\n".to_owned(),
        false => rows(&list.gates),
    };
    text + &totals(&list.totals)
}

/// A line of figures for each gate, and below it the sentence that explains them.
fn rows(gates: &[Gate]) -> String {
    let table = output::table(HEADING, gates.iter().map(row));
    let sentences = gates
        .iter()
        .map(|gate| format!("  {}\n", output::escape(&gate.why)));
    let sentences = std::iter::once(String::new()).chain(sentences);
    let lines = table.lines().zip(sentences);
    lines
        .map(|(line, sentence)| format!("{line}\n{sentence}"))
        .collect()
}

#[rustfmt::skip]
const HEADING: &[&str] = &[
    "key", "rate", "in flight", "waiting", "p95", "errors", "breaker", "hold",
    "admitted", "throttled", "failed",
];

fn row(gate: &Gate) -> Vec<String> {
    let p95 = gate.latency_ms.p95;
    vec![
        gate.key.clone(),
        rate(gate),
        gate.in_flight.to_string(),
        gate.waiting.to_string(),
        p95.map_or_else(|| NONE.to_owned(), |p95| format!("{p95:.0} ms")),
        format!("{:.0} %", gate.error_rate * 100.0),
        format!("{}{}", breaker(gate), until(gate.breaker.until_ms)),
        hold(gate),
        gate.counts.admitted.to_string(),
        gate.counts.throttled.to_string(),
        gate.counts.failed.to_string(),
    ]
}

fn rate(gate: &Gate) -> String {
    format!("{:.2}/s", gate.rate_per_second)
}

fn breaker(gate: &Gate) -> &'static str {
    gate.breaker.state.as_str()
}

/// Where a hold comes from and how long it lasts.
fn hold(gate: &Gate) -> String {
    match &gate.hold {
        Some(hold) => format!("{}{}", hold.source, until(Some(hold.until_ms))),
        None => NONE.to_owned(),
    }
}

/// Stands in a table where there is no value.
const NONE: &str = "-";

fn totals(totals: &GateTotals) -> String {
    let counts = [
        ("requests", totals.requests),
        ("throttled", totals.throttled),
        ("denied", totals.denied),
        ("retries", totals.retries),
        ("open", totals.open),
        ("half-open", totals.half_open),
        ("gates", totals.gates),
        ("evicted", totals.evicted),
    ];
    let counts = counts.map(|(name, count)| format!("{name} {count}"));
    format!("\n{}\n", counts.join("  "))
}

/// How far away a time of the server's is, by the clock of this machine; empty once it has passed.
pub(super) fn until(at_ms: Option<i64>) -> String {
    let now = now_ms();
    match at_ms.and_then(|at| u64::try_from(at - now).ok()) {
        Some(left) if left > 0 => format!(" {}", Rounded(Duration::from_millis(left))),
        _ => String::new(),
    }
}

pub(super) fn now_ms() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.ok()
        .and_then(|now| i64::try_from(now.as_millis()).ok())
        .unwrap_or_default()
}
