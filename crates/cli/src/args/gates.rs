//! `tidegate gates`.

use clap::{Args, ValueEnum};

use super::asking::AskingArgs;

/// Show the gates of a running server: rate, line, breaker and hold of each
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct GatesArgs {
    /// Show them again every second, until Ctrl-C
    #[arg(long)]
    pub(crate) watch: bool,

    /// What the most remarkable gates have most of
    #[arg(long, value_name = "WORD", default_value = "admitted")]
    pub(crate) sort: SortWord,

    /// At most so many gates
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,

    #[command(flatten)]
    pub(crate) asking: AskingArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum SortWord {
    Admitted,
    Waiting,
    InFlight,
    ErrorRate,
    Rate,
    Key,
}

impl SortWord {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Waiting => "waiting",
            Self::InFlight => "in_flight",
            Self::ErrorRate => "error_rate",
            Self::Rate => "rate",
            Self::Key => "key",
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  tidegate gates
  tidegate gates --watch --sort waiting
  tidegate gates --json | jq '.gates[] | select(.hold) | .key'
  tidegate gates --server http://127.0.0.1:7071 --token-file tidegate-data/admin-token";
