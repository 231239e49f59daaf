//! `tidegate serve`: gateway and admin API, until a signal ends them.

use std::path::PathBuf;

use app::server::{ServeError, Server, ServerEnd, Signals};
use app::settings::Flag;
use clap::{Args, ValueEnum};
use serde_json::json;

use super::settings::{self, Loaded};
use super::{Failure, problems};
use crate::args::ConfigFile;
use crate::exit::Exit;
use crate::output::Output;

/// Run the gateway and its admin API
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// Address of the gateway [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDRESS", allow_hyphen_values = true)]
    listen: Option<String>,

    /// Address of the admin API [default: 127.0.0.1:7071]
    #[arg(long, value_name = "ADDRESS", allow_hyphen_values = true)]
    admin: Option<String>,

    /// Folder for everything that survives a restart [default: tidegate-data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// Format of the log on stderr
    #[arg(long, value_name = "FORMAT", default_value = "human")]
    log: LogFormat,

    #[command(flatten)]
    pub(crate) file: ConfigFile,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    Human,
    /// One JSON object per line
    Json,
}

const EXAMPLES: &str = "\
Every section `[pool.NAME]` of the settings is served at http://ADDRESS/NAME/…:
use that as the base URL in your program.

SIGHUP reloads the settings; if they have errors, the old ones stay. SIGTERM and
Ctrl-C finish the requests in flight; a second signal quits at once.

On a terminal the printed address of the console signs a browser in. Elsewhere
it has no token: the console asks for it. It is in `admin-token` of the data
folder.

Examples:
  tidegate serve
  tidegate serve --config tidegate.toml --listen 127.0.0.1:8080
  curl http://127.0.0.1:7070/llm/v1/models";

pub(super) fn run(args: &ServeArgs, output: &Output) -> Result<(), Failure> {
    let logs = output.logs(args.log)?;
    let flags = flags(args);
    let config = args.file.config.as_deref();
    let Loaded { file, settings } = settings::load(config, flags.clone());
    let settings = match settings {
        Ok(settings) => settings,
        Err(problems) => {
            let hint = "`tidegate config default` prints every setting with its default";
            return Err(problems::failure(file.as_deref(), problems, hint, output));
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
    let logs_to_stdout = settings.server.logs_to_stdout();
    let server = Server::start(settings, logs).map_err(not_started)?;
    for warning in server.warnings() {
        output.warning(warning);
    }
    announce(&server, &names, logs_to_stdout, output)?;
    let load = || settings::load(config, flags.clone()).settings;
    match runtime.block_on(server.run(signals, load)) {
        ServerEnd::Drained => Ok(()),
        ServerEnd::Interrupted | ServerEnd::Abandoned => Err(Failure::silent(Exit::Interrupted)),
    }
}

/// Errors of the data folder carry their own hint.
fn not_started(error: ServeError) -> Failure {
    match error {
        ServeError::Gateway(_) | ServeError::Admin(_) => {
            Failure::new(Exit::Failed, error).with_hint(IN_USE)
        }
        error => Failure::with_own_hint(Exit::Failed, error),
    }
}

const IN_USE: &str =
    "another process may use this address; choose another with `--listen` or `--admin`";

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
        flag("listen", args.listen.clone()),
        flag("admin", args.admin.clone()),
        flag("data", data),
    ];
    flags.into_iter().flatten().collect()
}

/// Says where it listens: on stdout, unless that is for lines of the access log.
fn announce(
    server: &Server,
    pools: &[String],
    logs_to_stdout: bool,
    output: &Output,
) -> Result<(), Failure> {
    let (url, admin) = (server.url(), server.admin_url());
    if output.is_json() {
        return output.json_line(&json!({
            "listening": url,
            "admin": admin,
            "console": server.console_address(),
        }));
    }
    let mut text = format!("listening on {url}\n");
    for pool in pools {
        text.push_str(&format!("  {url}/{pool}/…\n"));
    }
    text.push_str(&format!("admin API on {admin}\n"));
    // What is no terminal may be a log, and a log may be read by others.
    let console = match output.is_terminal() && !logs_to_stdout {
        true => server.sign_in_address(),
        false => server.console_address(),
    };
    text.push_str(&format!("console at {console}\n"));
    match logs_to_stdout {
        true => text.lines().for_each(|line| output.notice(line)),
        false => output.text(&text)?,
    }
    Ok(())
}
