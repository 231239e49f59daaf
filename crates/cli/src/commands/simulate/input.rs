//! Reading a scenario: from a file, stdin, a shipped one, or flags.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, anyhow};
use config::document::Table;
use policy::suggest::suggestion;
use sim::scenario::{Draft, SHIPPED, Shipped};

use super::SimulateArgs;
use crate::commands::{Failure, problems, settings};
use crate::exit::Exit;
use crate::output::Output;

/// The scenario as written.
pub(super) fn draft(args: &SimulateArgs, output: &Output) -> Result<Draft, Failure> {
    let gate = match &args.config {
        None => Table::default(),
        Some(path) => match settings::load_policies(path) {
            Ok(policies) => policies.gate,
            Err(found) => {
                let hint = "`tidegate check FILE` shows all problems of a file";
                let file = path.display().to_string();
                return Err(problems::failure(Some(&file), found, hint, output));
            }
        },
    };
    Ok(Draft {
        gate,
        file: args.scenario.as_deref().map(text).transpose()?,
        upstream: args.upstream.clone(),
        strategies: (!args.strategies.is_empty()).then(|| args.strategies.join(",")),
        duration: args.duration.clone(),
        clients: args.clients.clone(),
        settings: args.settings.clone(),
    })
}

/// The scenario's name for people.
pub(super) fn title(args: &SimulateArgs) -> String {
    match args.scenario.as_deref() {
        Some("-") => STDIN.to_owned(),
        Some(name) => name.to_owned(),
        None => {
            let log = args.from_log.as_deref().map(log_name);
            let log = log.map(|log| format!("from {log}"));
            log.or_else(|| args.upstream.clone()).unwrap_or_default()
        }
    }
}

/// The name of an access log for people.
pub(super) fn log_name(log: &str) -> &str {
    match log {
        "-" => STDIN,
        path => path,
    }
}

const STDIN: &str = "stdin";

/// The scenario that is shipped under this name.
pub(super) fn shipped(name: &str) -> Result<&'static Shipped, Failure> {
    Shipped::find(name).ok_or_else(|| {
        let error = anyhow!("`{name}` is not a shipped scenario");
        Failure::new(Exit::Usage, error).with_hint(shipped_hint(name))
    })
}

/// The name and the text of a file, of stdin or of a shipped scenario. A file takes precedence over
/// a shipped scenario of the same name.
pub(in crate::commands) fn text(name: &str) -> Result<(String, Vec<u8>), Failure> {
    if name == "-" {
        return read(STDIN, io::stdin());
    }
    let path = Path::new(name);
    if path.exists() && !(path.is_dir() && Shipped::find(name).is_some()) {
        let file = File::open(path).with_context(|| format!("cannot read `{name}`"));
        return read(
            name,
            file.map_err(|error| Failure::new(Exit::Usage, error))?,
        );
    }
    match Shipped::find(name) {
        Some(shipped) => Ok((name.to_owned(), shipped.text.into())),
        None => {
            let error = anyhow!("`{name}` is neither a file nor a shipped scenario");
            Err(Failure::new(Exit::Usage, error).with_hint(shipped_hint(name)))
        }
    }
}

fn read(name: &str, source: impl Read) -> Result<(String, Vec<u8>), Failure> {
    let mut bytes = Vec::new();
    let read = source.take(MAX_BYTES).read_to_end(&mut bytes);
    let read = read.with_context(|| format!("cannot read `{name}`"));
    read.map_err(|error| Failure::new(Exit::Usage, error))?;
    Ok((name.to_owned(), bytes))
}

/// Above the limit of the parser, which reports files that are too long.
const MAX_BYTES: u64 = 8 << 20;

fn shipped_hint(wrong: &str) -> String {
    let names: Vec<&str> = SHIPPED.iter().map(|shipped| shipped.name).collect();
    let list = names.join(", ");
    match suggestion(wrong, &names) {
        Some(close) => format!("did you mean `{close}`? shipped scenarios are {list}"),
        None => format!("shipped scenarios are {list}; `tidegate simulate --list` describes them"),
    }
}
