//! `tidegate ops retry`, `cancel` and `resolve`.

use anyhow::anyhow;
use app::admin::bodies::{
    BulkAction, BulkFilter, LeftOut, LeftOutReason, Operation, ResolveAction, ResolveOperation,
    StateName,
};
use app::admin::client::OperationAction;
use clap::Args;
use serde_json::json;

use super::list::state;
use super::{FilterArgs, Source, named_failure, read_data};
use crate::args;
use crate::commands::{Failure, server};
use crate::exit::Exit;
use crate::output::Output;

#[derive(Debug, Args)]
pub(super) struct DecideArgs {
    /// Ids of operations; without any, those that the filter matches
    #[arg(value_name = "ID")]
    ids: Vec<String>,

    #[command(flatten)]
    filter: FilterArgs,

    /// Every operation, without a filter
    #[arg(long, conflicts_with = "ids")]
    all: bool,

    /// Count the operations that match, and change none
    #[arg(long, conflicts_with = "ids")]
    dry_run: bool,
}

/// What only a retry takes.
#[derive(Debug, Args)]
pub(super) struct RetryArgs {
    #[command(flatten)]
    pub(super) decide: DecideArgs,

    /// Also operations that are not replay safe: the server may act on them twice
    #[arg(long, conflicts_with = "ids")]
    pub(super) include_unsafe: bool,
}

impl DecideArgs {
    pub(super) fn check(&self, action: OperationAction) -> Result<(), Failure> {
        let FilterArgs {
            state,
            kind,
            reason,
            key,
        } = &self.filter;
        let has_filter = state.is_some() || kind.is_some() || reason.is_some() || key.is_some();
        let word = action.as_str();
        let (error, hint) = if !self.ids.is_empty() && has_filter {
            let error = anyhow!("ids and a filter cannot be used together");
            (
                error,
                format!("`tidegate ops {word} ID…`, or a filter alone"),
            )
        } else if self.ids.is_empty() && !has_filter && !self.all {
            let error = anyhow!("`tidegate ops {word}` needs ids, a filter or `--all`");
            let hint = format!("`tidegate ops {word} --all --dry-run` counts them first");
            (error, hint)
        } else if self.ids.is_empty() && action == OperationAction::Cancel && state.is_none() {
            let error = anyhow!("`tidegate ops cancel` without ids needs `--state`");
            let hint = "for example `--state retryable`; `tidegate ops list` shows the states";
            (error, hint.to_owned())
        } else {
            return Ok(());
        };
        Err(Failure::new(Exit::Usage, error).with_hint(hint))
    }

    fn bulk(&self, include_unsafe: bool) -> BulkAction {
        BulkAction {
            filter: BulkFilter {
                state: self.filter.state,
                kind: self.filter.kind.clone(),
                reason: self.filter.reason,
                key: self.filter.key.clone(),
                ..BulkFilter::default()
            },
            dry_run: self.dry_run,
            include_unsafe,
            cursor: None,
        }
    }
}

pub(super) async fn run(
    args: &DecideArgs,
    action: OperationAction,
    include_unsafe: bool,
    source: &Source,
    output: &Output,
) -> Result<(), Failure> {
    if args.ids.is_empty() {
        return run_bulk(args.bulk(include_unsafe), action, source, output).await;
    }
    let (mut text, mut operations) = (String::new(), Vec::new());
    let mut failed: Option<Failure> = None;
    for id in &args.ids {
        match source.client.decide_operation(id, action).await {
            Ok(operation) => {
                text.push_str(&changed(&operation));
                operations.push(operation);
            }
            Err(error) => {
                let failure = named_failure(error);
                let errors = failure.errors.into_iter();
                let errors = errors.map(|error| error.context(format!("`{id}`")));
                match &mut failed {
                    Some(earlier) => earlier.errors.extend(errors),
                    None => {
                        failed = Some(Failure {
                            errors: errors.collect(),
                            ..failure
                        });
                    }
                }
            }
        }
    }
    output.result(&json!({ "operations": operations }), || text)?;
    failed.map_or(Ok(()), Err)
}

fn changed(operation: &Operation) -> String {
    format!("{}: {}\n", operation.id, state(operation))
}

/// Changes all that match, however many calls that takes.
async fn run_bulk(
    mut bulk: BulkAction,
    action: OperationAction,
    source: &Source,
    output: &Output,
) -> Result<(), Failure> {
    let mut progress = output.count_progress();
    let (mut matched, mut will, mut changed) = (0, 0, 0);
    let mut left_out: Vec<LeftOut> = Vec::new();
    loop {
        let result = source.client.decide_operations(action, &bulk).await;
        let result = result.map_err(server::failure)?;
        matched += result.matched;
        will += result.will;
        changed += result.changed;
        for more in result.left_out {
            match left_out
                .iter_mut()
                .find(|known| known.reason == more.reason)
            {
                Some(known) => known.count += more.count,
                None => left_out.push(more),
            }
        }
        progress.update(usize::try_from(matched).unwrap_or(usize::MAX));
        match result.next_cursor {
            Some(cursor) => bulk.cursor = Some(cursor),
            None => break,
        }
    }
    drop(progress);
    let value = json!({
        "matched": matched, "will": will, "changed": changed, "left_out": left_out,
        "dry_run": bulk.dry_run,
    });
    output.result(&value, || {
        let state = bulk.filter.state.unwrap_or(StateName::Failed).as_str();
        let done = match action {
            OperationAction::Retry => "sent again",
            OperationAction::Cancel => "cancelled",
        };
        let mut text = match bulk.dry_run {
            true if will == matched => {
                format!("{state} operations that match: {matched}; none was changed")
            }
            true => format!(
                "{state} operations that match: {matched}; {will} would be {done}, none was changed"
            ),
            false => format!("{state} operations that match: {matched}; {done}: {changed}"),
        };
        for LeftOut { reason, count } in &left_out {
            text.push_str(&format!("; left out, {}: {count}", why_left_out(*reason)));
        }
        text.push('\n');
        text
    })
}

fn why_left_out(reason: LeftOutReason) -> &'static str {
    match reason {
        LeftOutReason::NotReplaySafe => "not replay safe (`--include-unsafe` retries them)",
        LeftOutReason::OtherState => "in another state",
        LeftOutReason::Changed => "changed meanwhile",
        LeftOutReason::NotFound => "not found",
    }
}

#[derive(Debug, Args)]
pub(super) struct ResolveArgs {
    /// Id of the operation
    #[arg(value_name = "ID")]
    pub(super) id: String,

    /// What to do
    #[arg(value_name = "ACTION", value_parser = args::choice(ACTIONS))]
    action: ResolveAction,

    /// Body to send instead: the text itself, `@FILE`, or `@-` for stdin
    #[arg(
        short = 'd',
        long = "body",
        value_name = "BODY",
        allow_hyphen_values = true
    )]
    body: Option<String>,
}

const ACTIONS: [(&str, &str, ResolveAction); 3] = [
    (
        "resend",
        "Send it again over what the server has",
        ResolveAction::Resend,
    ),
    (
        "discard",
        "Leave what the server has",
        ResolveAction::Discard,
    ),
    (
        "replace",
        "Send the body of -d instead",
        ResolveAction::Replace,
    ),
];

impl ResolveArgs {
    pub(super) fn resolution(&self) -> Result<ResolveOperation, Failure> {
        let error = match (self.action, &self.body) {
            (ResolveAction::Replace, None) => "`replace` needs `-d BODY`, what to send instead",
            (ResolveAction::Resend | ResolveAction::Discard, Some(_)) => {
                "`-d` is used by `replace` only"
            }
            _ => {
                let body = self.body.as_deref().map(|text| read_data("-d", text));
                return Ok(ResolveOperation {
                    action: self.action,
                    body: body.transpose()?,
                });
            }
        };
        let hint = "`tidegate ops show ID --conflict` prints base, ours and theirs";
        Err(Failure::new(Exit::Usage, anyhow!(error)).with_hint(hint))
    }
}

pub(super) async fn resolve(
    id: &str,
    resolution: &ResolveOperation,
    source: &Source,
    output: &Output,
) -> Result<(), Failure> {
    let resolved = source.client.resolve_operation(id, resolution).await;
    let operation = resolved.map_err(named_failure)?;
    output.result(&json!(operation), || changed(&operation))
}
