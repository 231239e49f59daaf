//! `tidegate pools`.

use clap::{Args, Subcommand, ValueEnum};

use super::asking::AskingArgs;

/// Show, enable, disable and test the endpoints of a running server
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct PoolsArgs {
    #[command(subcommand)]
    pub(crate) what: PoolsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PoolsCommand {
    /// Show every endpoint, or those of one pool
    #[command(after_help = EXAMPLES)]
    List {
        /// Only this pool
        #[arg(value_name = "POOL")]
        pool: Option<String>,
        #[command(flatten)]
        asking: AskingArgs,
    },
    /// Use an endpoint again: all its error state is cleared
    #[command(after_help = EXAMPLES)]
    Enable(EndpointArgs),
    /// Leave an endpoint alone until somebody enables it
    #[command(after_help = EXAMPLES)]
    Disable(EndpointArgs),
    /// Show what a pool's protection would do; nothing is sent, no endpoint is touched
    #[command(after_help = EXAMPLES)]
    Test {
        /// Whose settings
        #[arg(value_name = "POOL")]
        pool: String,
        /// What to play
        #[arg(value_name = "SCENARIO", default_value = "auto_disable")]
        scenario: ScenarioWord,
        #[command(flatten)]
        asking: AskingArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct EndpointArgs {
    /// Its pool
    #[arg(value_name = "POOL")]
    pub(crate) pool: String,
    /// Its name there
    #[arg(value_name = "ENDPOINT")]
    pub(crate) endpoint: String,
    #[command(flatten)]
    pub(crate) asking: AskingArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum ScenarioWord {
    /// One 429
    SingleError,
    /// Three 429s in a row
    RepeatedErrors,
    /// Two 429s, a success, another 429
    SuccessRecovery,
    /// As many 429s as disable it
    AutoDisable,
}

impl ScenarioWord {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::SingleError => "single_error",
            Self::RepeatedErrors => "repeated_errors",
            Self::SuccessRecovery => "success_recovery",
            Self::AutoDisable => "auto_disable",
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  tidegate pools list
  tidegate pools disable llm a
  tidegate pools enable llm a
  tidegate pools test llm repeated_errors";
