//! `tidegate ops add`: like `curl`, but the request is delivered whatever happens.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::anyhow;
use app::admin::bodies::{AddOperation, HeaderValues};
use clap::Args;
use serde_json::json;

use super::{Source, read_data};
use crate::commands::{Failure, server};
use crate::output::Output;
use crate::{args, output};

#[derive(Debug, Args)]
pub(super) struct AddArgs {
    /// Where to send it: a URL, or `/POOL/rest` for a pool of the gateway
    #[arg(value_name = "URL")]
    url: String,

    /// Method [default: POST with a body, else GET]
    #[arg(short = 'X', long = "request", value_name = "METHOD")]
    method: Option<String>,

    /// Header; may be repeated
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,

    /// Body: the text itself, `@FILE`, or `@-` for stdin
    #[arg(
        short = 'd',
        long = "body",
        value_name = "BODY",
        allow_hyphen_values = true
    )]
    body: Option<String>,

    /// Type, a section `[operation.TYPE]` of the settings [default: default]
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,

    /// Names the request: added again under the same key, it is sent once
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,

    /// Credential, a section `[credential.NAME]` of the settings
    #[arg(long, value_name = "NAME")]
    credential: Option<String>,

    /// Backoff, a section `[backoff.NAME]` of the settings
    #[arg(long, value_name = "NAME")]
    backoff: Option<String>,

    /// Time after which it is not sent any more, such as `24h`
    #[arg(long, value_name = "TIME", value_parser = args::duration)]
    expires_after: Option<Duration>,

    /// Operations with the same order key are sent one at a time
    #[arg(long, value_name = "KEY")]
    order_key: Option<String>,

    /// Higher leaves first, from -100 to 100
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        allow_hyphen_values = true
    )]
    priority: i32,

    /// Document that the edit started from, for a conflict; as -d
    #[arg(long, value_name = "DOCUMENT")]
    base: Option<String>,

    /// URL whose GET returns what the server has, for a conflict
    #[arg(long, value_name = "URL")]
    resource: Option<String>,
}

impl AddArgs {
    pub(super) fn operation(&self) -> Result<AddOperation, Failure> {
        let body = self.body.as_deref().map(|text| read_data("-d", text));
        let base = self.base.as_deref().map(|text| read_data("--base", text));
        let default = match self.body {
            Some(_) => "POST",
            None => "GET",
        };
        Ok(AddOperation {
            kind: self.kind.clone(),
            method: self.method.as_deref().unwrap_or(default).to_owned(),
            url: self.url.clone(),
            headers: headers(&self.headers)?,
            body: body.transpose()?,
            idempotency_key: self.idempotency_key.clone(),
            credential: self.credential.clone(),
            backoff: self.backoff.clone(),
            expires_after: self
                .expires_after
                .map(|time| format!("{}ms", time.as_millis())),
            order_key: self.order_key.clone(),
            priority: self.priority,
            base: base.transpose()?,
            resource: self.resource.clone(),
        })
    }
}

/// Headers by name. A value may be a secret, so messages do not repeat it.
fn headers(flags: &[String]) -> Result<BTreeMap<String, HeaderValues>, Failure> {
    let mut headers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut errors = Vec::new();
    for (flag, number) in flags.iter().zip(1..) {
        match flag.split_once(':') {
            Some((name, value)) => {
                let values = headers.entry(name.trim().to_ascii_lowercase()).or_default();
                values.push(value.trim().to_owned());
            }
            None => errors.push(anyhow!(
                "`-H` number {number} has no `:`, expected NAME: VALUE"
            )),
        }
    }
    if !errors.is_empty() {
        let hint = "for example `-H 'content-type: text/plain'`";
        return Err(Failure::usage(errors, hint));
    }
    let headers = headers.into_iter();
    Ok(headers
        .map(|(name, values)| (name, HeaderValues::Several(values)))
        .collect())
}

pub(super) async fn run(
    operation: &AddOperation,
    source: &Source,
    output: &Output,
) -> Result<(), Failure> {
    let accepted = source.client.add_operation(operation).await;
    let accepted = accepted.map_err(server::failure)?;
    output.result(&json!(accepted), || {
        let id = output::escape(&accepted.id);
        let note = match source.is_folder {
            true => "; the next server sends it",
            false => "",
        };
        format!("{id}: {}{note}\n", accepted.state.as_str())
    })
}
