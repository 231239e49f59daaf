//! What `serve` can be told.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Stand between a program and the APIs it calls: gateway and admin API
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// Where the gateway listens [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,

    /// Where the admin API listens [default: 127.0.0.1:7071]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) admin: Option<SocketAddr>,

    /// The folder of everything that survives a restart [default: tidegate-data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,

    /// How lines on stderr are written
    #[arg(long, value_name = "FORMAT", default_value = "human")]
    pub(crate) log: LogFormat,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    Human,
    /// One JSON object a line
    Json,
}

const EXAMPLES: &str = "\
Every section `[pool.NAME]` of the settings is served at http://ADDRESS/NAME/…: swap the base URL of
your program for that.

SIGHUP reads the settings again; if they are wrong, the old ones stay. SIGTERM and Ctrl-C finish what
is under way; a second one quits at once.

Examples:
  tidegate serve
  tidegate serve --config tidegate.toml --listen 127.0.0.1:8080
  curl http://127.0.0.1:7070/llm/v1/models";
