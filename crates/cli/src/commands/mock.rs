//! `tidegate mock`: from the flags to a mock that runs until its end.

mod settings;
mod summary;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use app::mock::{Mock, Style};
use clap::Args;
use serde_json::json;

use super::Failure;
use super::stopping::Stopping;
use crate::args::{self, NoConfig};
use crate::exit::Exit;
use crate::output::Output;

/// Run a local upstream that limits and fails like real ones
///
/// Serves every path, over HTTP/1.1 and HTTP/2 without TLS. It behaves as the
/// upstreams of `tidegate simulate` do, in real time. The first line on stdout is
/// its address.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = long_help())]
pub(crate) struct MockArgs {
    /// Limit: '50/s burst 10', '600/1m' or 'slots 20 100ms queue 200'; may be
    /// repeated [default: no limit]
    #[arg(allow_hyphen_values = true, long = "limit", value_name = "SPEC", conflicts_with = "scenario", help_heading = LIMITS)]
    limits: Vec<String>,

    /// Limit on cost, such as tokens of a language model: '1500/s burst 90000' or
    /// '90000/1m'
    #[arg(allow_hyphen_values = true, long, value_name = "SPEC", help_heading = LIMITS)]
    cost: Option<String>,

    /// Take the upstream of a scenario: a file, `-` for stdin, or a shipped name
    #[arg(long, value_name = "FILE|NAME", help_heading = LIMITS)]
    scenario: Option<String>,

    /// Change the first limit at a time: '60s=20/s'; may be repeated
    #[arg(allow_hyphen_values = true, long = "step", value_name = "AT=SPEC", help_heading = LIMITS)]
    steps: Vec<String>,

    /// Ban a client that is refused too often, with 403: '5 in 30s for 60s'
    #[arg(allow_hyphen_values = true, long, value_name = "N in TIME for TIME", help_heading = LIMITS)]
    ban: Option<String>,

    /// Send Retry-After with every 429
    #[arg(long, help_heading = LIMITS)]
    retry_after: bool,

    /// Send X-RateLimit-Limit, -Remaining and -Reset with every response
    #[arg(long, help_heading = LIMITS)]
    headers: bool,

    /// API to imitate
    #[arg(long, value_name = "STYLE", default_value = "plain", value_parser = args::choice(STYLES), help_heading = RESPONSES)]
    style: Style,

    /// Responses in order, one per request within the limit; the last one repeats:
    /// '200,200@2500ms,429:3,503*5,reset,200'
    #[arg(allow_hyphen_values = true, long, value_name = "ANSWER,…", help_heading = RESPONSES)]
    script: Option<String>,

    /// Mean time of a response; slots have their own [default: 0s]
    #[arg(allow_hyphen_values = true, long, value_name = "DURATION", help_heading = RESPONSES)]
    latency: Option<String>,

    /// Spread of that time: sigma of a lognormal distribution [default: 0.25]
    #[arg(allow_hyphen_values = true, long, value_name = "N", help_heading = RESPONSES)]
    latency_spread: Option<String>,

    /// Time of a refusal [default: 0s]
    #[arg(allow_hyphen_values = true, long, value_name = "DURATION", help_heading = RESPONSES)]
    refuse_latency: Option<String>,

    /// Length of ordinary bodies in bytes; with `openai`, of the text in them
    #[arg(allow_hyphen_values = true, long, value_name = "BYTES", help_heading = RESPONSES)]
    body_size: Option<String>,

    /// Time between the parts of a streamed completion [default: 20ms]
    #[arg(allow_hyphen_values = true, long, value_name = "DURATION", help_heading = RESPONSES)]
    stream_every: Option<String>,

    /// Share of requests that fail at random, with 500
    #[arg(allow_hyphen_values = true, long, value_name = "SHARE", help_heading = FAILURES)]
    failure_rate: Option<String>,

    /// Outage: '60s..90s', or '60s..90s=503' with a status; may be repeated
    #[arg(allow_hyphen_values = true, long = "outage", value_name = "FROM..TO", help_heading = FAILURES)]
    outages: Vec<String>,

    /// Share of requests in an outage that get no response; the others are reset
    /// [default: 0.5, with a status 0]
    #[arg(allow_hyphen_values = true, long, value_name = "SHARE", requires = "outages", help_heading = FAILURES)]
    timeout_share: Option<String>,

    /// Address to listen on; port 0 takes any free port
    #[arg(
        allow_hyphen_values = true,
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:7080"
    )]
    listen: String,

    /// Number of threads
    #[arg(
        allow_hyphen_values = true,
        long,
        value_name = "N",
        default_value = "1"
    )]
    threads: String,

    /// Seed of the random numbers
    #[arg(allow_hyphen_values = true, long, value_name = "N", default_value = "1", value_parser = args::seed)]
    seed: u64,

    /// Stop after this time
    #[arg(allow_hyphen_values = true, long = "for", value_name = "DURATION")]
    length: Option<String>,

    #[command(flatten)]
    pub(crate) file: NoConfig,
}

#[rustfmt::skip]
const STYLES: [(&str, &str, Style); 3] = [
    ("plain", "No particular API: short JSON", Style::Plain),
    ("github", "GitHub: its headers and its refusals", Style::Github),
    ("openai", "OpenAI: chat completions (also streamed), embeddings, models", Style::Openai),
];

const LIMITS: &str = "Limits";
const RESPONSES: &str = "Responses";
const FAILURES: &str = "Failures";

const EXAMPLES: &str = r#"Examples:
  # 50 per second, with Retry-After
  tidegate mock --limit '50/s burst 10' --retry-after

  # the upstream of `tidegate simulate o1`
  tidegate mock --scenario o1

  # an API like OpenAI's with three requests per minute
  tidegate mock --style openai --limit 3/1m
  OPENAI_BASE_URL=http://127.0.0.1:7080/v1 python my_program.py

  # a language model: 500 requests and 90000 tokens per minute
  tidegate mock --style openai --limit 500/1m --cost '1500/s burst 90000'

  # a quota and a rate like GitHub's
  tidegate mock --style github --limit 5000/1h --limit '15/s burst 100'

  # slow, failing, with an outage after a minute
  tidegate mock --latency 70ms --failure-rate 3% --outage 60s..90s

  # exactly these responses, for a test
  tidegate mock --listen 127.0.0.1:0 --script '503*2,429:3,reset,200'"#;

fn long_help() -> String {
    format!("{GRAMMAR}\n\n{EXAMPLES}")
}

const GRAMMAR: &str = r#"Limits:
  50/s [burst 10]             token bucket; the default burst is one second's
  600/1m [phase 20s]          fixed window: 600 in each minute; `/s` is a rate,
                              `/1s` a window
  slots 20 100ms [queue 200]  20 at a time, 100 ms each; others queue [default:
                              up to 100]
  With several limits, a request has to be within all of them. The limit on cost
  is a bucket or a window that counts the tokens of requests (with `openai`), or
  the cost in their query, as in /work?cost=800.

Scripts:
  STATUS[:RETRY_AFTER][@LATENCY][*TIMES], `reset` (closes the connection),
  `silent` (never responds) or `cut` (breaks off the response). The last one
  repeats; `repeat` at the end starts over.

Paths of every mock:
  /echo  /bytes/N  /status/CODE  /trailers  /sse?n=5&every=100ms
  /slow?first=2s&n=1&every=0s
  /_mock/stats  /_mock/log  POST /_mock/reset  (never limited)"#;

pub(super) fn run(args: &MockArgs, output: &Output) -> Result<(), Failure> {
    let plan = settings::read(args, output)?;
    let summary = summary::text(&plan.mock);
    let stopping = Stopping::new()?;
    let mock = Mock::start(plan.mock, plan.listen, plan.threads)
        .map_err(|error| not_started(error, plan.listen))?;
    // Printed before the address, so that it is read before the first request.
    if !mock.address().ip().is_loopback() {
        output.warning(&format!(
            "{} can be reached from other machines, and the mock serves every client",
            mock.address()
        ));
    }
    let url = mock.url();
    match output.is_json() {
        true => output.json_line(&json!({ "listening": url }))?,
        false if output.is_quiet() => output.text(&format!("listening on {url}\n"))?,
        false => output.text(&format!("listening on {url}\n{summary}"))?,
    }
    let (stop, stats) = stopping.wait(plan.length, move || mock.stop(STOP_TIMEOUT));
    match stats {
        Some(stats) if output.is_json() => output.json_line(&stats)?,
        Some(stats) if !output.is_quiet() => output.text(&summary::counts(&stats))?,
        _ => {}
    }
    stop.result()
}

/// How long a mock that ends waits for requests in flight.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

fn not_started(error: io::Error, listen: SocketAddr) -> Failure {
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another program uses this port; `--listen 127.0.0.1:0` takes any free port"
        }
        io::ErrorKind::AddrNotAvailable => {
            "this machine does not have that address; `--listen 127.0.0.1:7080` always works"
        }
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 need special rights; choose a higher one"
        }
        _ => "`--listen 127.0.0.1:0` takes any free port",
    };
    let error = Err::<(), _>(error)
        .with_context(|| format!("cannot listen at `{listen}`"))
        .expect_err("made from an error");
    Failure::new(Exit::Failed, error).with_hint(hint)
}
