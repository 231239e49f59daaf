//! `tidegate mock`.

use clap::{Args, ValueEnum};

/// Run a local upstream that limits, fails and answers like real ones
///
/// It answers every path, over HTTP/1.1 and HTTP/2 without TLS. What it does is what the upstreams
/// of `tidegate simulate` do, by a real clock. The first line on stdout says where it listens.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = long_help())]
pub(crate) struct MockArgs {
    /// What it allows: '50/s burst 10', '600/1m' or 'slots 20 100ms queue 200'; may be repeated, and
    /// without one nothing is limited
    #[arg(long = "limit", value_name = "SPEC", conflicts_with = "scenario", help_heading = LIMITS)]
    pub(crate) limits: Vec<String>,

    /// The upstream of a scenario: a file, `-` for stdin, or the name of a shipped one
    #[arg(long, value_name = "FILE|NAME", help_heading = LIMITS)]
    pub(crate) scenario: Option<String>,

    /// From then on the first limit is another: '60s=20/s'; may be repeated
    #[arg(long = "step", value_name = "AT=SPEC", help_heading = LIMITS)]
    pub(crate) steps: Vec<String>,

    /// Who is refused too often is answered with 403 for a while: '5 in 30s for 60s'
    #[arg(long, value_name = "N in TIME for TIME", help_heading = LIMITS)]
    pub(crate) ban: Option<String>,

    /// A 429 says how long to wait, in Retry-After
    #[arg(long, help_heading = LIMITS)]
    pub(crate) retry_after: bool,

    /// Every answer tells what is left, in X-RateLimit-Limit, -Remaining and -Reset
    #[arg(long, help_heading = LIMITS)]
    pub(crate) headers: bool,

    /// Whom it speaks like
    #[arg(long, value_enum, default_value_t = StyleName::Plain, help_heading = ANSWERS)]
    pub(crate) style: StyleName,

    /// Answers in their order, one per request within the limit, the last for all that follow:
    /// '200,200@2500ms,429:3,503*5,reset,200'
    #[arg(long, value_name = "ANSWER,…", help_heading = ANSWERS)]
    pub(crate) script: Option<String>,

    /// How long an answer takes on average; slots have their own time [default: 0s]
    #[arg(long, value_name = "DURATION", help_heading = ANSWERS)]
    pub(crate) latency: Option<String>,

    /// How much that varies: sigma of a lognormal distribution [default: 0.25]
    #[arg(long, value_name = "N", help_heading = ANSWERS)]
    pub(crate) latency_spread: Option<String>,

    /// How long a refusal takes [default: 0s]
    #[arg(long, value_name = "DURATION", help_heading = ANSWERS)]
    pub(crate) refuse_latency: Option<String>,

    /// The length of ordinary bodies, in bytes; with `openai`, of what is said in them
    #[arg(long, value_name = "BYTES", help_heading = ANSWERS)]
    pub(crate) body_size: Option<String>,

    /// From one part of a streamed completion to the next [default: 20ms]
    #[arg(long, value_name = "DURATION", help_heading = ANSWERS)]
    pub(crate) stream_every: Option<String>,

    /// The share of requests that fail by chance, with 500
    #[arg(long, value_name = "SHARE", help_heading = TROUBLES)]
    pub(crate) failure_rate: Option<String>,

    /// From when to when it is away: '60s..90s', or '60s..90s=503' to be told so; may be repeated
    #[arg(long = "outage", value_name = "FROM..TO", help_heading = TROUBLES)]
    pub(crate) outages: Vec<String>,

    /// The share of requests in an outage that get no answer at all; the others are reset
    /// [default: 0.5, with a status 0]
    #[arg(long, value_name = "SHARE", requires = "outages", help_heading = TROUBLES)]
    pub(crate) timeout_share: Option<String>,

    /// Where it listens; port 0 is any that is free
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7080")]
    pub(crate) listen: String,

    /// How many threads answer
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) threads: String,

    /// Where random numbers come from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// End after so long
    #[arg(long = "for", value_name = "DURATION")]
    pub(crate) length: Option<String>,
}

/// Whom a mock speaks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StyleName {
    /// Like nobody in particular: short JSON
    Plain,
    /// Like GitHub's API: its headers and its refusals
    Github,
    /// Like OpenAI's API: chat completions, also streamed, embeddings, models
    Openai,
}

const LIMITS: &str = "Limits";
const ANSWERS: &str = "Answers";
const TROUBLES: &str = "Troubles";

const EXAMPLES: &str = r#"Examples:
  # 50 a second, and it says how long to wait
  tidegate mock --limit '50/s burst 10' --retry-after

  # what `tidegate simulate o1` calls, to call it yourself
  tidegate mock --scenario o1

  # an API like OpenAI's with three requests a minute
  tidegate mock --style openai --limit 3/1m
  OPENAI_BASE_URL=http://127.0.0.1:7080/v1 python my_program.py

  # a quota and a rate like GitHub's
  tidegate mock --style github --limit 5000/1h --limit '15/s burst 100'

  # slow, failing, away after a minute
  tidegate mock --latency 70ms --failure-rate 3% --outage 60s..90s

  # exactly these answers, for a test
  tidegate mock --listen 127.0.0.1:0 --script '503*2,429:3,reset,200'"#;

fn long_help() -> String {
    format!("{GRAMMAR}\n\n{EXAMPLES}")
}

const GRAMMAR: &str = r#"How limits are written:
  50/s [burst 10]             a token bucket; a burst that is not written is what one second brings
  600/1m [phase 20s]          a fixed window: so many in each minute; `/s` is a rate, `/1s` a window
  slots 20 100ms [queue 200]  so many at a time, each for so long; others queue, 100 unless written
  Of several, a request has to be within all.

How scripts are written:
  STATUS[:RETRY_AFTER][@LATENCY][*TIMES], or `reset` (the connection breaks), `silent` (nothing ever
  comes), `cut` (the answer breaks off). After the last, the last again; `repeat` at the end begins
  anew.

Paths that every mock has:
  /echo  /bytes/N  /status/CODE  /sse?n=5&every=100ms  /slow?first=2s&n=1&every=0s  /trailers
  /_mock/stats  /_mock/log  and to begin anew POST /_mock/reset; these are never limited"#;
