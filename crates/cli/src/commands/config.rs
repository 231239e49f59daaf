//! `tidegate config`: the default settings file and its schema.

use clap::{Args, Subcommand};

use super::Failure;
use crate::args::NoConfig;
use crate::output::Output;

/// Print the default settings, or the schema of a settings file
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    document: Document,

    #[command(flatten)]
    pub(crate) file: NoConfig,
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum Document {
    /// Print the default file: every setting with its default and the reason for it
    #[command(after_help = EXAMPLES)]
    Default,
    /// Print the JSON Schema of a settings file, for editors
    #[command(after_help = EXAMPLES)]
    Schema,
}

const EXAMPLES: &str = "\
Examples:
  tidegate config default > tidegate.toml
  tidegate config schema > tidegate.schema.json";

pub(super) fn run(args: &ConfigArgs, output: &Output) -> Result<(), Failure> {
    match args.document {
        Document::Default => output.text(&app::settings::default_file()),
        Document::Schema => output.json(&app::settings::schema()),
    }
}
