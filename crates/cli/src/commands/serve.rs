//! `tidegate serve`.

use std::path::Path;

use app::server::{Ended, ServeError, Server, Signals};
use app::settings::Flag;
use serde_json::json;

use super::settings::{self, Loaded};
use super::{Failure, problems, unwritten};
use crate::args::ServeArgs;
use crate::exit::Exit;
use crate::output::Output;

/// Serves until a signal ends it.
pub(crate) fn serve(
    args: &ServeArgs,
    config: Option<&Path>,
    is_json: bool,
    output: &Output,
) -> Result<(), Failure> {
    let flags = flags(args);
    let Loaded { file, settings } = settings::load(config, flags.clone());
    let settings = match settings {
        Ok(settings) => settings,
        Err(problems) => {
            let hint = "`tidegate check` tells more about the settings";
            let file = file.as_deref();
            return Err(problems::failure(file, problems, hint, is_json, output));
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let cannot_start = |error: std::io::Error| {
        let error = anyhow::Error::new(error).context("cannot start");
        Failure::new(Exit::Failed, error)
    };
    let runtime = runtime.map_err(cannot_start)?;
    let signals = runtime.block_on(async { Signals::new() });
    let signals = signals.map_err(cannot_start)?;
    let names: Vec<String> = settings.pools.keys().cloned().collect();
    let server = Server::start(settings, output.logs(args.log)).map_err(not_started)?;
    for warning in server.warnings() {
        output.warning(warning);
    }
    announce(&server, &names, is_json, output)?;
    let load = || settings::load(config, flags.clone()).settings;
    match runtime.block_on(server.run(signals, load)) {
        Ended::Drained => Ok(()),
        Ended::Interrupted | Ended::Abandoned => Err(Failure::silent(Exit::Interrupted)),
    }
}

/// What went wrong with the data folder has its own hint.
fn not_started(error: ServeError) -> Failure {
    let is_address = matches!(error, ServeError::Gateway(_) | ServeError::Admin(_));
    let failure = Failure::new(Exit::Failed, error);
    match is_address {
        true => failure.with_hint(IN_USE),
        false => failure,
    }
}

const IN_USE: &str =
    "another process may listen there; choose another address with --listen or --admin";

fn flags(args: &ServeArgs) -> Vec<Flag> {
    let flag = |name: &str, value: Option<String>| {
        value.map(|value| Flag {
            name: format!("--{name}"),
            path: format!("server.{name}"),
            value,
        })
    };
    let data = args.data.as_ref().map(|data| data.display().to_string());
    let flags = [
        flag("listen", args.listen.map(|address| address.to_string())),
        flag("admin", args.admin.map(|address| address.to_string())),
        flag("data", data),
    ];
    flags.into_iter().flatten().collect()
}

fn announce(
    server: &Server,
    pools: &[String],
    is_json: bool,
    output: &Output,
) -> Result<(), Failure> {
    let (address, admin) = (server.address(), server.admin_address());
    let text = if is_json {
        let record = json!({
            "listening": format!("http://{address}"),
            "admin": format!("http://{admin}"),
        });
        format!("{record}\n")
    } else {
        let mut text = format!("listening on http://{address}\n");
        for pool in pools {
            text.push_str(&format!("  http://{address}/{pool}/…\n"));
        }
        text.push_str(&format!("admin API on http://{admin}\n"));
        text
    };
    output.print(text.as_bytes()).or_else(unwritten)
}
