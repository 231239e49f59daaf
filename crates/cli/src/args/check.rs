//! `tidegate check`.

use std::path::PathBuf;

use clap::Args;

/// Check the settings and tell what they come to at worst
///
/// Every problem is told in one run, with file, line, column, setting, value and what was
/// expected; the exit code is 2 then. If there is none, each route is shown with its worst case:
/// attempts, sends, waits, and how much retries add to the traffic; and what can never happen.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CheckArgs {
    /// The settings file; without one that of --config or TIDEGATE_CONFIG, or tidegate.toml
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    /// A setting to change first, by its path; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) settings: Vec<String>,
}

const EXAMPLES: &str = r#"Examples:
  # what is wrong, or what it comes to
  tidegate check tidegate.toml

  # what if?
  tidegate check --set retry_budget.ratio=0.5 --set gate.max_wait=5s

  # only the environment and the defaults
  TIDEGATE_GATE__MAX_RATE=50 tidegate check /dev/null

  # for programs
  tidegate check --json | jq '.routes[] | {name, sends}'"#;
