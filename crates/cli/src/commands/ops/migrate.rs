//! `tidegate ops migrate`.

use app::admin::client::FolderError;
use app::admin::moving::{MoveError, MoveTarget, move_operations};
use app::settings::Settings;
use clap::Args;
use serde_json::json;

use crate::args;
use crate::commands::Failure;
use crate::exit::Exit;
use crate::output::Output;

#[derive(Debug, Args)]
pub(super) struct MigrateArgs {
    /// Where to move them
    #[arg(long, value_name = "PLACE", value_parser = args::choice(targets()))]
    to: MoveTarget,
}

fn targets() -> [(&'static str, &'static str, MoveTarget); 2] {
    [
        (
            "postgres",
            "From the data folder to the database of `storage.operations`",
            MoveTarget::Database,
        ),
        (
            "sqlite",
            "From that database to the data folder",
            MoveTarget::Folder,
        ),
    ]
}

pub(super) async fn run(
    args: &MigrateArgs,
    settings: &Settings,
    output: &Output,
) -> Result<(), Failure> {
    let moved = move_operations(settings, args.to).await.map_err(failure)?;
    let place = match args.to {
        MoveTarget::Database => "the database".to_owned(),
        MoveTarget::Folder => format!("the folder `{}`", settings.server.data.display()),
    };
    output.result(&json!({ "moved": moved }), || {
        format!("moved {moved} operations to {place}\n")
    })
}

fn failure(error: MoveError) -> Failure {
    let hint = match &error {
        MoveError::NoDatabase => "write it into the settings, as `env:NAME` or `file:PATH`",
        MoveError::Open(FolderError::InUse(_)) => "stop that server first",
        MoveError::Running(_) => {
            "stop all servers first; what a killed one was sending is free after 15 s"
        }
        MoveError::Open(_) | MoveError::Store(_) => {
            return Failure::with_own_hint(Exit::Failed, error);
        }
    };
    Failure::new(Exit::Failed, error).with_hint(hint)
}
