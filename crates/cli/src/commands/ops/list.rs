//! `tidegate ops list` and `export`.

use std::io::Write;
use std::time::Duration;

use anyhow::anyhow;
use app::admin::bodies::{Operation, OperationList, StateName};
use clap::Args;
use policy::duration::Rounded;
use policy::setting;
use serde_json::json;

use super::{FilterArgs, Source};
use crate::commands::gates::{now_ms, until};
use crate::commands::{Failure, server};
use crate::exit::Exit;
use crate::output::{self, Output, unless_closed};

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    filter: FilterArgs,

    /// Show them again every second, until Ctrl-C
    #[arg(long)]
    watch: bool,

    /// Number of operations to show, at most 1000
    #[arg(long, value_name = "N", default_value = "20", value_parser = limit, allow_hyphen_values = true)]
    limit: u32,
}

fn limit(text: &str) -> Result<u32, String> {
    setting::whole(text, 1, 1000)
}

pub(super) async fn run(args: &ListArgs, source: &Source, output: &Output) -> Result<(), Failure> {
    if args.watch && source.is_folder {
        let error = anyhow!("`--watch` needs a running server: nothing changes in a data folder");
        let hint = "start it with `tidegate serve`, or leave out `--watch`";
        return Err(Failure::new(Exit::Usage, error).with_hint(hint));
    }
    if args.watch {
        return watch(args, source, output).await;
    }
    let list = load(args, source).await?;
    output.result(&json!(list), || table(&list))
}

async fn load(args: &ListArgs, source: &Source) -> Result<OperationList, Failure> {
    let query = args.filter.query(args.limit);
    let list = source.client.operations(&query).await;
    list.map_err(server::failure)
}

/// Often enough to watch, and no load for a server.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

async fn watch(args: &ListArgs, source: &Source, output: &Output) -> Result<(), Failure> {
    let show = async {
        let mut ticks = tokio::time::interval(WATCH_INTERVAL);
        loop {
            ticks.tick().await;
            let list = load(args, source).await?;
            match output.is_json() {
                true => output.json_line(&json!(list))?,
                false => output.text_in_place(&format!("{}\n", table(&list)))?,
            }
        }
    };
    tokio::select! {
        ended = show => ended,
        _ = tokio::signal::ctrl_c() => Err(Failure::silent(Exit::Interrupted)),
    }
}

/// Writes every operation that matches, page by page.
pub(super) async fn export(
    filter: &FilterArgs,
    source: &Source,
    output: &Output,
) -> Result<(), Failure> {
    let mut query = filter.query(EXPORT_PAGE);
    let mut progress = output.count_progress();
    let mut count = 0;
    loop {
        let page = source.client.operations(&query).await;
        let page = page.map_err(server::failure)?;
        let mut lines = Vec::new();
        for operation in &page.operations {
            // A value of plain fields can always be written as JSON.
            _ = serde_json::to_writer(&mut lines, operation);
            lines.push(b'\n');
        }
        let mut stdout = output.data();
        let written = stdout.write_all(&lines).and_then(|()| stdout.flush());
        if let Err(error) = written {
            return unless_closed(error);
        }
        count += page.operations.len();
        progress.update(count);
        match page.next_cursor {
            Some(cursor) => query.cursor = Some(cursor),
            None => return Ok(()),
        }
    }
}

/// As many as a page may have.
const EXPORT_PAGE: u32 = 1000;

fn table(list: &OperationList) -> String {
    if list.operations.is_empty() {
        return "no operations\n".to_owned();
    }
    let mut text = output::table(HEADING, list.operations.iter().map(row));
    if list.next_cursor.is_some() {
        text.push_str("\nthere are more: filter them, raise `--limit`, or export all with `tidegate ops export`\n");
    }
    text
}

const HEADING: &[&str] = &["id", "type", "state", "sent", "age", "request"];

fn row(operation: &Operation) -> Vec<String> {
    vec![
        operation.id.clone(),
        operation.kind.clone(),
        state(operation),
        operation.sent.to_string(),
        age(operation.accepted_at_ms),
        operation.summary.clone(),
    ]
}

/// The state, with what a person wants to know about it.
pub(super) fn state(operation: &Operation) -> String {
    let word = operation.state.as_str();
    match (operation.state, operation.reason) {
        (StateName::Failed, Some(reason)) => format!("{word}: {}", reason.as_str()),
        (StateName::Available | StateName::Retryable, _) if operation.blocked => {
            format!("{word}, behind an older one")
        }
        (StateName::Retryable, _) => format!("{word}{}", until(operation.next_at_ms)),
        _ => word.to_owned(),
    }
}

/// How long ago that was, by the clock of this machine.
pub(in crate::commands) fn age(at_ms: i64) -> String {
    let millis = u64::try_from(now_ms() - at_ms).unwrap_or(0);
    Rounded(Duration::from_millis(millis)).to_string()
}
