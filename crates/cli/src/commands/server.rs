//! Calls to the admin API of a running server: its address, its token, and what errors mean here.

use std::future::Future;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use app::admin::Token;
use app::admin::client::{Client, ClientError, ServerTrust};
use app::settings::{ADMIN_TOKEN_VARIABLE, Environment, Process, RunningServer, Server};
use app::tls::{Certificates, Identity};
use clap::Args;

use super::{Failure, problems, settings};
use crate::args::ConfigFile;
use crate::exit::Exit;
use crate::output::Output;

/// How to reach the server.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// Admin address of the server [default: `server.admin` of the settings]
    #[arg(long = "server", global = true, value_name = "URL", help_heading = SERVER)]
    address: Option<String>,

    /// File with the admin token [default: TIDEGATE_ADMIN_TOKEN, else `admin-token`
    /// in `server.data`]
    #[arg(long, global = true, value_name = "FILE", help_heading = SERVER)]
    token_file: Option<PathBuf>,

    /// Certificate to show a server whose `admin_tls` has a `client_ca`, as PEM
    #[arg(long, global = true, value_name = "FILE", requires = "client_key", help_heading = SERVER)]
    client_cert: Option<PathBuf>,

    /// Private key of that certificate, as PEM
    #[arg(long, global = true, value_name = "FILE", requires = "client_cert", help_heading = SERVER)]
    client_key: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) file: ConfigFile,
}

const SERVER: &str = "Server options";

impl ServerArgs {
    /// Do the flags name the server that is meant?
    pub(super) fn names_a_server(&self) -> bool {
        self.address.is_some()
    }
}

/// The data folder of the settings.
pub(super) fn data_folder(args: &ServerArgs, output: &Output) -> Result<PathBuf, Failure> {
    Ok(server(args, false, output)?.server.data)
}

/// A client of the server that the flags, the environment and the settings name.
pub(super) fn client(args: &ServerArgs, output: &Output) -> Result<Client, Failure> {
    let variable = Process.variable(ADMIN_TOKEN_VARIABLE);
    let RunningServer {
        server,
        admin_certificate: certificate,
    } = server(args, variable.is_some(), output)?;
    let token = token(args, variable.as_deref(), &server.data)?;
    let identity = identity(args)?;
    let trust = ServerTrust {
        certificate,
        identity,
    };
    match &args.address {
        Some(url) => named(url, Some(token), trust),
        None => configured(&server, Some(token), trust),
    }
}

/// A client of the server that `--server` names.
pub(super) fn named(
    url: &str,
    token: Option<Token>,
    trust: ServerTrust,
) -> Result<Client, Failure> {
    Client::new(url, token, trust).map_err(|error| {
        let error = anyhow!("`--server` is `{url}`, {error}");
        Failure::new(Exit::Usage, error)
    })
}

/// A client of the server with these settings.
pub(super) fn configured(
    server: &Server,
    token: Option<Token>,
    trust: ServerTrust,
) -> Result<Client, Failure> {
    if server.admin.port() == 0 {
        let error = anyhow!("`server.admin` is `{}`, expected a port", server.admin);
        let hint = "`tidegate serve` prints its admin address: pass it as `--server URL`";
        return Err(Failure::new(Exit::Usage, error).with_hint(hint));
    }
    Ok(Client::at(server.admin, token, trust))
}

/// The section `[server]`. A settings file is not read if flags and environment say everything,
/// unless `--config` names it.
fn server(args: &ServerArgs, has_token: bool, output: &Output) -> Result<RunningServer, Failure> {
    let config = args.file.config.as_deref();
    let is_complete = args.address.is_some() && (args.token_file.is_some() || has_token);
    if is_complete && config.is_none() {
        return Ok(RunningServer::default());
    }
    settings::load_server(config).map_err(|problems| {
        let hint = "`--server URL` and `--token-file FILE` name a server without a settings file";
        problems::failure(None, problems, hint, output)
    })
}

/// The certificate to show the server.
fn identity(args: &ServerArgs) -> Result<Option<Identity>, Failure> {
    let (Some(cert), Some(key)) = (&args.client_cert, &args.client_key) else {
        return Ok(None);
    };
    let failure = |path: &Path, what: String| {
        let error = anyhow!("the file `{}` {what}", path.display());
        Failure::new(Exit::Usage, error)
    };
    let read = |path: &Path| {
        let bytes = Process.read(path);
        bytes.map_err(|error| failure(path, format!("cannot be read: {error}")))
    };
    let chain = Certificates::from_pem(&read(cert)?);
    let chain = chain.map_err(|error| failure(cert, error.to_string()))?;
    let identity = Identity::new(chain, &read(key)?, "--client-cert");
    let identity = identity.map_err(|error| failure(key, error.to_string()))?;
    Ok(Some(identity))
}

fn token(args: &ServerArgs, variable: Option<&str>, data: &Path) -> Result<Token, Failure> {
    if let (Some(variable), None) = (variable, &args.token_file) {
        return Token::new(variable).map_err(|problem| {
            let error = anyhow!("the token in `{ADMIN_TOKEN_VARIABLE}` is {problem}");
            let hint = "the server's token is in `admin-token` of its data folder";
            Failure::new(Exit::Usage, error).with_hint(hint)
        });
    }
    let default = Token::path(data);
    let path = args.token_file.as_deref().unwrap_or(&default);
    Token::read(path).map_err(|error| {
        let hint = format!(
            "`tidegate serve` creates the token in `server.data` at its first start; `--config FILE`, `--token-file FILE` or `{ADMIN_TOKEN_VARIABLE}` name another"
        );
        Failure::new(Exit::Failed, error).with_hint(hint)
    })
}

/// The same for a call that names a gate, a pool or an endpoint: `list` is the command that shows
/// which there are.
pub(super) fn named_failure(error: ClientError, list: &str) -> Failure {
    let is_missing =
        matches!(&error, ClientError::Refused { status, .. } if status.as_u16() == 404);
    let failure = failure(error);
    match is_missing {
        true => failure.with_hint(format!("`{list}` shows which there are")),
        false => failure,
    }
}

/// Runs one call to its end.
pub(super) fn call<T>(call: impl Future<Output = Result<T, ClientError>>) -> Result<T, Failure> {
    block_on(async { call.await.map_err(failure) })
}

/// Runs calls to their end.
pub(super) fn block_on<T>(calls: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start")
        .map_err(|error| Failure::new(Exit::Failed, error))?;
    runtime.block_on(calls)
}

/// The exit code and the hint for a call that failed.
pub(super) fn failure(error: ClientError) -> Failure {
    let (exit, hint) = match &error {
        ClientError::Unreachable { .. } => (
            Exit::Failed,
            Some("start it with `tidegate serve`, or name another with `--server URL`".to_owned()),
        ),
        ClientError::NoTls { .. } => (Exit::Failed, Some(NO_TLS.to_owned())),
        ClientError::WrongToken { .. } => (
            Exit::Failed,
            Some(format!(
                "pass the file `admin-token` of the server's data folder with `--token-file FILE`, or its content in `{ADMIN_TOKEN_VARIABLE}`"
            )),
        ),
        ClientError::Refused { status, .. } if matches!(status.as_u16(), 400 | 422) => {
            (Exit::Usage, None)
        }
        ClientError::Refused { .. } => (Exit::Failed, None),
        ClientError::Strange { .. } => (
            Exit::Failed,
            Some("`--server URL` is the admin address, not the gateway's".to_owned()),
        ),
    };
    Failure {
        hint,
        ..Failure::new(exit, error)
    }
}

const NO_TLS: &str = "the certificate in `server.admin_tls.cert` is trusted, and those that the system \
                      trusts (`SSL_CERT_FILE` names others); after a renewal the server needs SIGHUP; \
                      a server with a `client_ca` needs `--client-cert` and `--client-key`";
