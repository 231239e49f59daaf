//! What every command can be told that asks a running server.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct AskingArgs {
    /// The admin address of the server [default: `server.admin` of the settings]
    #[arg(long, value_name = "URL", help_heading = SERVER)]
    pub(crate) server: Option<String>,

    /// The file of the admin token [default: TIDEGATE_ADMIN_TOKEN, else `admin-token` in
    /// `server.data`]
    #[arg(long, value_name = "FILE", help_heading = SERVER)]
    pub(crate) token_file: Option<PathBuf>,
}

const SERVER: &str = "The server";
