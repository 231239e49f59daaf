//! Asking a running server: where it is, with which token, and what its answers mean here.

use std::future::Future;
use std::path::Path;

use anyhow::{Context, anyhow};
use app::admin::Token;
use app::admin::client::{Client, ClientError};
use app::settings::{ADMIN_TOKEN_VARIABLE, Process, Server, Surroundings};

use super::{Failure, problems, settings};
use crate::args::AskingArgs;
use crate::exit::Exit;
use crate::output::Output;

/// Whoever is asked, by what was typed, the environment and the settings.
pub(super) fn client(
    args: &AskingArgs,
    config: Option<&Path>,
    is_json: bool,
    output: &Output,
) -> Result<Client, Failure> {
    let written = Process.variable(ADMIN_TOKEN_VARIABLE);
    let has_token = args.token_file.is_some() || written.is_some();
    let server = if args.server.is_some() && has_token {
        // Nothing is needed of the settings, so nothing can be wrong with them.
        Server::default()
    } else {
        settings::load_server(config).map_err(|problems| {
            let hint = "`--server URL` and `--token-file FILE` name a server without any settings";
            problems::failure(None, problems, hint, is_json, output)
        })?
    };
    let token = token(args, written.as_deref(), &server.data)?;
    match &args.server {
        Some(url) => Client::new(url, token).map_err(|error| {
            let error = anyhow!("`--server` is `{url}`, {error}");
            Failure::new(Exit::Usage, error)
        }),
        None if server.admin.port() == 0 => {
            let error = anyhow!("`server.admin` has no port, so the server may be anywhere");
            let hint = "`tidegate serve` says where it listens: give that as `--server URL`";
            Err(Failure::new(Exit::Usage, error).with_hint(hint))
        }
        None => Ok(Client::at(server.admin, token)),
    }
}

fn token(args: &AskingArgs, written: Option<&str>, data: &Path) -> Result<Token, Failure> {
    if let (Some(written), None) = (written, &args.token_file) {
        return Token::new(written).map_err(|what| {
            let error = anyhow!("the token in `{ADMIN_TOKEN_VARIABLE}` is {what}");
            Failure::new(Exit::Usage, error)
        });
    }
    let default = Token::path(data);
    let path = args.token_file.as_deref().unwrap_or(&default);
    Token::read(path).map_err(|error| {
        let hint = format!(
            "`tidegate serve` makes it at its first start, in `server.data`; `--token-file FILE` or `{ADMIN_TOKEN_VARIABLE}` name another"
        );
        Failure::new(Exit::Failed, error).with_hint(hint)
    })
}

/// Runs what asks, to its end.
pub(super) fn run<T>(asking: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start")
        .map_err(|error| Failure::new(Exit::Failed, error))?;
    runtime.block_on(asking)
}

/// What to do about an answer that is not good.
pub(super) fn failed(error: ClientError) -> Failure {
    let (exit, hint) = match &error {
        ClientError::Unreachable { authority, .. } => (
            Exit::Failed,
            Some(format!(
                "is `tidegate serve` running? its admin address is expected to be http://{authority}; `--server URL` names another"
            )),
        ),
        ClientError::WrongToken { .. } => (
            Exit::Failed,
            Some(format!(
                "the server's own is in `admin-token` of its data folder: give it with `--token-file FILE` or `{ADMIN_TOKEN_VARIABLE}`"
            )),
        ),
        ClientError::Refused { status, .. } if status.as_u16() == 400 => (Exit::Usage, None),
        ClientError::Refused { .. } => (Exit::Failed, None),
        ClientError::Strange { .. } => (
            Exit::Failed,
            Some("`--server URL` is the admin address, not that of the gateway".to_owned()),
        ),
    };
    Failure {
        hint,
        ..Failure::new(exit, error)
    }
}
