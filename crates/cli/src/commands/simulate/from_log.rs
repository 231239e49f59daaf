//! `--from-log`: reads an access log line by line, and estimates a scenario from it.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};

use anyhow::{Context, anyhow};
use sim::estimate::{AccessLogReader, EstimateError};

use super::{SimulateArgs, input};
use crate::commands::Failure;
use crate::exit::Exit;
use crate::output::Output;

/// The scenario of a log: written to a file if there is one for it, else printed.
pub(super) fn scenario(log: &str, args: &SimulateArgs, output: &Output) -> Result<String, Failure> {
    let name = input::log_name(log);
    let reader = match log {
        "-" => read(name, args, io::stdin().lock())?,
        path => {
            let file = File::open(path).with_context(|| format!("cannot read `{path}`"));
            let file = file.map_err(|error| Failure::new(Exit::Usage, error))?;
            read(name, args, BufReader::new(file))?
        }
    };
    let estimate = reader
        .estimate()
        .map_err(|error| no_estimate(name, error))?;
    let text = estimate.scenario(name);
    if let Some(path) = &args.write {
        let written = fs::write(path, &text);
        let written = written.with_context(|| format!("cannot write `{}`", path.display()));
        written.map_err(|error| Failure::new(Exit::Failed, error))?;
        output.detail(&format!("wrote {}", path.display()));
    } else if args.no_run {
        output.text(&text)?;
    } else if !output.is_json() {
        output.text(&format!("{text}\n"))?;
    }
    Ok(text)
}

fn read(
    log: &str,
    args: &SimulateArgs,
    mut source: impl BufRead,
) -> Result<AccessLogReader, Failure> {
    let mut reader = AccessLogReader::new(args.route.clone());
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        let bytes = source.by_ref().take(MAX_LINE).read_until(b'\n', &mut line);
        let bytes = bytes.with_context(|| format!("cannot read `{log}`"));
        if bytes.map_err(|error| Failure::new(Exit::Usage, error))? == 0 {
            break;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let text = String::from_utf8_lossy(&line);
        if let Err(problem) = reader.read(&text) {
            let error = anyhow!("{log}:{number}: {problem}");
            return Err(Failure::new(Exit::Usage, error).with_hint(FORMATS));
        }
    }
    Ok(reader)
}

/// Longer than any line of an access log; what is longer is no such line.
const MAX_LINE: u64 = 64 << 10;

const FORMATS: &str =
    "`server.access_log = \"json\"` or `\"combined\"` makes `tidegate serve` write such a log";

fn no_estimate(log: &str, error: EstimateError) -> Failure {
    let hint = match &error {
        EstimateError::SeveralRoutes(routes) => {
            let names = routes.iter().take(10);
            let names: Vec<String> = names
                .map(|(name, count)| format!("`{name}` ({count})"))
                .collect();
            format!("choose one with `--route NAME`: {}", names.join(", "))
        }
        EstimateError::TooFew(_) => {
            "a longer log says more; without `--route`, all requests count".to_owned()
        }
    };
    let error =
        anyhow::Error::new(error).context(format!("cannot estimate a scenario from `{log}`"));
    Failure::new(Exit::Usage, error).with_hint(hint)
}
