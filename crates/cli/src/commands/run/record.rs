//! Events of a run as JSON.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use app::run::rules::Exit;
use app::run::{FailedItem, ItemResult, RunEvent, RunSummary};
use serde_json::{Map, Value, json};

/// An event with the time of day.
pub(super) fn event(event: &RunEvent<'_>) -> Value {
    let mut record = Map::new();
    let mut set = |name: &str, value: Value| {
        record.insert(name.to_owned(), value);
    };
    set("event", name(event).into());
    set("at_ms", wall_ms().into());
    match event {
        RunEvent::Started { item, attempt, .. } => {
            set("item", json!(item.text));
            set("attempt", (*attempt).into());
        }
        RunEvent::Ended {
            item,
            attempt,
            exit,
            class,
            rule,
            text,
            elapsed,
            result,
            failures,
            gap,
            site,
        } => {
            set("item", json!(item.text));
            set("attempt", (*attempt).into());
            set("result", result.as_str().into());
            if let ItemResult::Failed(reason) = result {
                set("reason", reason.as_str().into());
            }
            set("class", class.as_str().into());
            set("rule", json!(rule));
            set("text", json!(text));
            set("exit", exit_record(*exit));
            set("elapsed_ms", ms(*elapsed));
            set("failures", json!(failures));
            set("gap_ms", ms(*gap));
            set("site", json!(site));
        }
        RunEvent::Refused { item, why } => {
            set("item", json!(item.text));
            set("reason", "refused".into());
            set("text", json!(why));
        }
        RunEvent::Waiting {
            wait,
            failures,
            gap,
            site,
            ..
        } => {
            set("wait_ms", ms(*wait));
            set("failures", json!(failures));
            set("gap_ms", ms(*gap));
            set("site", json!(site));
        }
        RunEvent::GaveUp { site } => set("site", json!(site)),
    }
    record.into()
}

/// An item that failed, for the summary.
pub(super) fn failed(failed: &FailedItem) -> Value {
    json!({
        "event": "failed_item",
        "item": failed.item,
        "reason": failed.reason.as_str(),
        "attempts": failed.attempts,
        "rule": failed.rule,
        "text": failed.text,
    })
}

/// The last line.
pub(super) fn summary(summary: &RunSummary) -> Value {
    json!({
        "event": "summary",
        "at_ms": wall_ms(),
        "done": summary.done,
        "failed": summary.failed,
        "earlier": summary.earlier,
        "gave_up": summary.has_given_up,
        "interrupted": summary.is_interrupted,
        "elapsed_ms": ms(summary.elapsed),
    })
}

fn name(event: &RunEvent<'_>) -> &'static str {
    match event {
        RunEvent::Started { .. } => "started",
        RunEvent::Ended { .. } => "ended",
        RunEvent::Refused { .. } => "refused",
        RunEvent::Waiting { .. } => "waiting",
        RunEvent::GaveUp { .. } => "gave_up",
    }
}

fn exit_record(exit: Option<Exit>) -> Value {
    match exit {
        Some(Exit::Code(code)) => code.into(),
        Some(Exit::Signal(signal)) => format!("signal {signal}").into(),
        Some(Exit::TimedOut) => "timeout".into(),
        None => Value::Null,
    }
}

/// Rounded up, so that a wait is never too short.
fn ms(length: Duration) -> Value {
    let ms = length.as_nanos().div_ceil(1_000_000);
    u64::try_from(ms).unwrap_or(u64::MAX).into()
}

fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let ms = since.map_or(0, |since| since.as_millis());
    u64::try_from(ms).unwrap_or(u64::MAX)
}
