//! `tidegate replay`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Run one policy over scripted events in virtual time, a decision per line
///
/// Events are JSON Lines, read from the files in order as one stream, or from stdin. Every line
/// is answered by one line, at once; with `gate`, those who leave a waiting line are told of
/// before the event at which that is known. A bad line ends it.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReplayArgs {
    /// The policy to run
    #[arg(long, value_enum, value_name = "NAME")]
    pub(crate) policy: Policy,

    /// Files of events; `-` or none at all is stdin
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// A setting of the policy, by its name in the configuration; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) settings: Vec<String>,

    /// Begin with the settings of this preset (`backoff`): standard, aggressive, conservative,
    /// background or crawl
    #[arg(long, value_name = "NAME")]
    pub(crate) preset: Option<String>,

    /// Say why, in words, as the last field of every line
    #[arg(long)]
    pub(crate) explain: bool,

    /// Fix what is drawn at random, for policies with jitter
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// Take jitter away, for policies that have any
    #[arg(long, value_enum, value_name = "JITTER")]
    pub(crate) jitter: Option<Jitter>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Policy {
    /// Gates by key: who is admitted, who waits until when, who is refused
    Gate,
    /// One item over all its attempts: is it sent again, and when
    Backoff,
    /// What an answer says about pace
    Hint,
    /// The verdict on an answer, and what decided it
    Classify,
    /// The gap between attempts, by a queue of recent failures
    FailureQueue,
    /// The growing pauses of one endpoint of a pool
    Protection,
    /// Following a job's status: when to ask next, when to stop
    Poll,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Jitter {
    /// No jitter
    None,
}

const EXAMPLES: &str = r#"Examples:
  # who would have been admitted, and when
  tidegate replay --policy gate --set strategy=aimd --set max_rate=8 events.jsonl

  # one event at a time
  echo '{"at":0,"acquire":"api.example.com"}' | tidegate replay --policy gate

  # when a failed request is sent again
  echo '{"attempt":1,"status":503}' | tidegate replay --policy backoff --preset background

  # what an answer says about pace
  echo '{"status":429,"headers":{"retry-after":"90"}}' | tidegate replay --policy hint

  # how long to wait after a failed download, and why
  echo '{"at":0,"text":"Read timed out."}' | tidegate replay --policy failure-queue --explain

  # an endpoint that is disabled by its third error
  tidegate replay --policy protection --set pauses=30s,60s --set disable_after=3 attempts.jsonl

  # when to ask for a job's status next
  echo '{"at":0,"status":200,"job":"running","progress":12}' | tidegate replay --policy poll"#;
