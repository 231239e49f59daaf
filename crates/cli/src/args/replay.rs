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

    /// Fix what is drawn at random (`gate`, `hint` and `classify` draw nothing)
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// Take jitter away (`gate`, `hint` and `classify` have none)
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
  echo '{"status":429,"headers":{"retry-after":"90"}}' | tidegate replay --policy hint"#;
