//! `tidegate explain`.

use clap::Args;

use super::asking::AskingArgs;

/// Tell every decision about one request of a running server
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExplainArgs {
    /// The `Tidegate-Request-Id` of its answer
    #[arg(value_name = "REQUEST_ID")]
    pub(crate) request_id: String,

    #[command(flatten)]
    pub(crate) asking: AskingArgs,
}

const EXAMPLES: &str = "\
Examples:
  curl -i http://127.0.0.1:7070/llm/v1/models    # its answer has a Tidegate-Request-Id
  tidegate explain 8c1f03aa0000000000000007";
