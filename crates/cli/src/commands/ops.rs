//! `tidegate ops`: operations of a running server, or of a data folder that no server uses.

mod add;
mod decide;
mod list;
mod migrate;
mod show;

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use app::admin::bodies::{Reason, StateName};
use app::admin::client::{Client, ClientError, FolderError, OperationAction, OperationQuery};
use app::settings::{Flag, Settings};
use clap::{Args, Subcommand};
use serde_json::value::RawValue;

pub(super) use list::age;

use super::server::{self, ServerArgs};
use super::{Failure, problems, settings};
use crate::args;
use crate::exit::Exit;
use crate::output::Output;

/// Show, add, retry, cancel, resolve, export and move operations
///
/// They are asked of the running server. If none runs at `server.admin`, or with
/// --data, the data folder is used directly; what is due is sent by the next server.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct OpsArgs {
    #[command(subcommand)]
    command: OpsCommand,

    /// Data folder to use directly, while no server uses it
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        conflicts_with = "address",
        help_heading = "Server options"
    )]
    data: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Debug, Subcommand)]
enum OpsCommand {
    /// Show operations, newest first
    #[command(after_help = EXAMPLES)]
    List(list::ListArgs),
    /// Show one operation and its attempts
    #[command(after_help = EXAMPLES)]
    Show(show::ShowArgs),
    /// Hand over a request to deliver
    #[command(after_help = EXAMPLES)]
    Add(add::AddArgs),
    /// Send operations again that failed or were cancelled
    #[command(after_help = EXAMPLES)]
    Retry(decide::RetryArgs),
    /// Stop sending operations
    #[command(after_help = EXAMPLES)]
    Cancel(decide::DecideArgs),
    /// Decide a conflict
    #[command(after_help = EXAMPLES)]
    Resolve(decide::ResolveArgs),
    /// Print every operation as a line of JSON, newest first
    #[command(after_help = EXAMPLES)]
    Export(FilterArgs),
    /// Move all operations between the data folder and the database, while no server runs
    #[command(after_help = EXAMPLES)]
    Migrate(migrate::MigrateArgs),
}

/// Which operations.
#[derive(Debug, Args)]
struct FilterArgs {
    /// Those in this state
    #[arg(long, value_name = "STATE", value_parser = args::choice(states()))]
    state: Option<StateName>,
    /// Those of this type
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Those that ended for this reason
    #[arg(long, value_name = "REASON", value_parser = args::choice(reasons()))]
    reason: Option<Reason>,
    /// Those for this destination: `host[:port]`, or `/POOL`
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
}

fn states() -> impl Iterator<Item = (&'static str, &'static str, StateName)> {
    StateName::ALL
        .iter()
        .map(|state| (state.as_str(), "", *state))
}

fn reasons() -> impl Iterator<Item = (&'static str, &'static str, Reason)> {
    Reason::ALL
        .iter()
        .map(|reason| (reason.as_str(), "", *reason))
}

impl FilterArgs {
    fn query(&self, limit: u32) -> OperationQuery {
        OperationQuery {
            state: self.state,
            kind: self.kind.clone(),
            reason: self.reason,
            key: self.key.clone(),
            id: None,
            cursor: None,
            limit: Some(limit),
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  tidegate ops list --state failed
  tidegate ops list --watch
  tidegate ops show op_01jcrz4m3v8k2n6t0q5w9x7y1b
  tidegate ops add -X PUT https://api.example.com/orders/7 -d @order.json
  tidegate ops retry --state failed --reason exhausted --dry-run
  tidegate ops cancel op_01jcrz4m3v8k2n6t0q5w9x7y1b
  tidegate ops resolve op_01jcrz4m3v8k2n6t0q5w9x7y1b replace -d @merged.json
  tidegate ops export --data tidegate-data > operations.jsonl
  tidegate ops migrate --to postgres";

pub(super) fn run(args: &OpsArgs, output: &Output) -> Result<(), Failure> {
    server::block_on(async {
        match &args.command {
            OpsCommand::List(list) => list::run(list, &source(args, output).await?, output).await,
            OpsCommand::Show(show) => show::run(show, &source(args, output).await?, output).await,
            OpsCommand::Add(add) => {
                // What is typed wrong is reported before a server is asked.
                let operation = add.operation()?;
                add::run(&operation, &source(args, output).await?, output).await
            }
            OpsCommand::Retry(decide::RetryArgs {
                decide,
                include_unsafe,
            }) => {
                decide.check(OperationAction::Retry)?;
                let source = source(args, output).await?;
                decide::run(
                    decide,
                    OperationAction::Retry,
                    *include_unsafe,
                    &source,
                    output,
                )
                .await
            }
            OpsCommand::Cancel(decide) => {
                decide.check(OperationAction::Cancel)?;
                let source = source(args, output).await?;
                decide::run(decide, OperationAction::Cancel, false, &source, output).await
            }
            OpsCommand::Resolve(resolve) => {
                let resolution = resolve.resolution()?;
                let source = source(args, output).await?;
                decide::resolve(&resolve.id, &resolution, &source, output).await
            }
            OpsCommand::Export(filter) => {
                list::export(filter, &source(args, output).await?, output).await
            }
            OpsCommand::Migrate(migrate) => {
                let data = match &args.data {
                    Some(data) => data.clone(),
                    None => server::data_folder(&args.server, output)?,
                };
                let settings = folder_settings(args, &data, output)?;
                migrate::run(migrate, &settings, output).await
            }
        }
    })
}

/// Where operations are.
#[derive(Debug)]
struct Source {
    client: Client,
    is_folder: bool,
}

/// The server, else the data folder.
async fn source(args: &OpsArgs, output: &Output) -> Result<Source, Failure> {
    if let Some(data) = &args.data {
        return folder(args, data.clone(), output).await;
    }
    let client = server::client(&args.server, output)?;
    let is_refused = match client.probe().await {
        Err(error) => error.kind() == ErrorKind::ConnectionRefused,
        Ok(()) => false,
    };
    if !is_refused || args.server.names_a_server() {
        return Ok(Source {
            client,
            is_folder: false,
        });
    }
    let data = server::data_folder(&args.server, output)?;
    output.warning(&format!(
        "no server runs at {}: using the data folder `{}`",
        client.url(),
        data.display()
    ));
    folder(args, data, output).await
}

async fn folder(args: &OpsArgs, data: PathBuf, output: &Output) -> Result<Source, Failure> {
    if !data.join(DATABASE).is_file() {
        let error = anyhow!("there are no operations in `{}`", data.display());
        let hint = "a data folder has a file `tidegate.db`; `tidegate serve` makes it in `server.data`, or `--server URL` names a running server";
        return Err(Failure::new(Exit::Failed, error).with_hint(hint));
    }
    let client = Client::in_folder(folder_settings(args, &data, output)?);
    let client = client.await.map_err(|error| match error {
        FolderError::InUse(_) => {
            let hint = "leave out `--data` to ask that server, name its admin address with `--server URL`, or stop it";
            Failure::new(Exit::Failed, error).with_hint(hint)
        }
        error => Failure::with_own_hint(Exit::Failed, error),
    })?;
    Ok(Source {
        client,
        is_folder: true,
    })
}

const DATABASE: &str = "tidegate.db";

fn folder_settings(args: &OpsArgs, data: &Path, output: &Output) -> Result<Settings, Failure> {
    let flag = Flag {
        name: "--data".to_owned(),
        path: "server.data".to_owned(),
        value: data.display().to_string(),
    };
    let loaded = settings::load(args.server.file.config.as_deref(), vec![flag]);
    loaded.settings.map_err(|problems| {
        let hint = "types, pools and credentials of operations are in the settings";
        problems::failure(loaded.file.as_deref(), problems, hint, output)
    })
}

/// The failure of a call that names an operation.
fn named_failure(error: ClientError) -> Failure {
    server::named_failure(error, "tidegate ops list")
}

/// What `-d` and the like say: the text itself, `@FILE`, or `@-` for stdin; as JSON.
fn read_data(flag: &str, text: &str) -> Result<Box<RawValue>, Failure> {
    let content = match text.strip_prefix('@') {
        None => text.to_owned(),
        Some("-") => {
            let mut bytes = Vec::new();
            let read = std::io::stdin().lock().read_to_end(&mut bytes);
            read.context("cannot read stdin")
                .and_then(|_| utf8(bytes))
                .map_err(|error| unreadable(flag, error))?
        }
        Some(file) => std::fs::read(file)
            .with_context(|| format!("cannot read `{file}`"))
            .and_then(utf8)
            .map_err(|error| unreadable(flag, error))?,
    };
    let content = serde_json::value::to_raw_value(&content).context("cannot write JSON");
    content.map_err(|error| Failure::new(Exit::Failed, error))
}

fn utf8(bytes: Vec<u8>) -> anyhow::Result<String> {
    String::from_utf8(bytes).map_err(|_| {
        anyhow!("it is not UTF-8 text; send it to the gateway with `Prefer: respond-async` instead")
    })
}

fn unreadable(flag: &str, error: anyhow::Error) -> Failure {
    Failure::new(Exit::Usage, error.context(format!("`{flag}`")))
}
