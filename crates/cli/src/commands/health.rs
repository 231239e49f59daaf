//! `tidegate health`: is a running server alive, may it be sent requests?
//!
//! For images that have no other program that speaks HTTP. It needs no token, so a check may run as a
//! user that cannot read one.

use app::admin::bodies::Health;
use app::admin::client::{Client, ServerTrust};
use clap::Args;
use serde_json::json;

use super::{Failure, problems, server, settings};
use crate::args::ConfigFile;
use crate::exit::Exit;
use crate::output::Output;

/// Ask a running server whether it is alive
///
/// Exits with 0 if it is, else with 1. Needs no token.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct HealthArgs {
    /// Ask whether it may be sent requests: not while it is stopping, and not if it
    /// cannot store what it learns
    #[arg(long)]
    ready: bool,

    /// Admin address of the server [default: `server.admin` of the settings]
    #[arg(long = "server", value_name = "URL")]
    address: Option<String>,

    #[command(flatten)]
    pub(crate) file: ConfigFile,
}

const EXAMPLES: &str = "\
Examples:
  tidegate health
  tidegate health --ready --server http://127.0.0.1:7071";

pub(super) fn run(args: &HealthArgs, output: &Output) -> Result<(), Failure> {
    let client = client(args, output)?;
    let (is_well, health) = server::call(client.health(args.ready))?;
    output.result(&json!(health), || text(&health))?;
    match is_well {
        true => Ok(()),
        false => Err(Failure::silent(Exit::Failed)),
    }
}

fn client(args: &HealthArgs, output: &Output) -> Result<Client, Failure> {
    match &args.address {
        Some(url) => server::named(url, None, ServerTrust::default()),
        None => {
            let settings = settings::load_server(args.file.config.as_deref());
            let settings = settings.map_err(|problems| {
                let hint = "`--server URL` names a server without a settings file";
                problems::failure(None, problems, hint, output)
            })?;
            let trust = ServerTrust {
                certificate: settings.admin_certificate,
                identity: None,
            };
            server::configured(&settings.server, None, trust)
        }
    }
}

fn text(health: &Health) -> String {
    let status = health.status.as_str();
    match &health.reason {
        None => format!("{status}\n"),
        Some(reason) => format!("{status}: {reason}\n"),
    }
}
