//! `tidegate config`.

use clap::{Args, Subcommand};

/// Print the default settings, or the schema of a settings file
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) what: ConfigCommand,
}

#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print the default file: every setting, its default and the reason for it
    #[command(after_help = EXAMPLES)]
    Default,
    /// Print the JSON Schema of a settings file, for editors that complete and check
    #[command(after_help = EXAMPLES)]
    Schema,
}

const EXAMPLES: &str = "\
Examples:
  tidegate config default > tidegate.toml
  tidegate config schema > tidegate.schema.json";
