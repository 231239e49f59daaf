//! Reading the body of a bulk action.

use policy::operation::OperationEvent;
use serde::Deserialize;
use serde_json::Value;
use store::operations::OperationFilter;

use super::list::word_of;
use crate::admin::bodies::{Reason, StateName};
use crate::admin::body::Fields;
use crate::admin::problem::Refused;
use crate::admin::query::{CURSOR, quoted, read_cursor};
use crate::state::BulkRequest;

/// States from which a bulk action retries.
const RETRIED: [StateName; 3] = [
    StateName::Failed,
    StateName::Retryable,
    StateName::Cancelled,
];

/// States from which a bulk action cancels.
const CANCELLED: [StateName; 5] = [
    StateName::Available,
    StateName::Running,
    StateName::Retryable,
    StateName::Failed,
    StateName::Conflict,
];

/// So many operations are changed by one call: enough for most, and done within seconds.
const MAX_BULK: usize = 10_000;

pub(super) fn read_bulk(mut fields: Fields, event: OperationEvent) -> Result<BulkRequest, Refused> {
    let (states, default) = match event {
        OperationEvent::Retry => (&RETRIED[..], Some(StateName::Failed)),
        _ => (&CANCELLED[..], None),
    };
    let mut filter = fields.require_object("filter", "an object such as `{\"type\": \"default\"}`");
    let ids = read_ids(&mut filter);
    let has_ids = ids.is_some() || filter.has_problem("ids");
    let words = quoted(states.iter().map(|state| state.as_str()));
    let expected = format!("one of {words}");
    let is_required = default.is_none() && !has_ids && !fields.has_problem("filter");
    let read_state = |value: &Value| {
        let state = StateName::deserialize(value).ok()?;
        states.contains(&state).then_some(state)
    };
    let state = match is_required {
        true => filter.require("state", &expected, read_state),
        false => filter.take("state", &expected, read_state),
    };
    let default = default.filter(|_| !has_ids);
    let text = |value: &Value| {
        let text = value.as_str().filter(|text| !text.is_empty());
        text.map(str::to_owned)
    };
    let reasons = quoted(Reason::ALL.iter().map(|reason| reason.as_str()));
    let reason = filter.take("reason", &format!("one of {reasons}"), |value| {
        Reason::deserialize(value).ok()
    });
    let key = "the key of a gate, or `/` and the name of a pool";
    let read = OperationFilter {
        states: state.or(default).map(word_of).into_iter().collect(),
        kind: filter.take("type", "a type", text),
        reason: reason.map(Into::into),
        destination: filter.take("key", key, text),
        id_prefix: filter.take("id", "what an id begins with", text),
    };
    fields.end_object("filter", filter);
    let flag = "`true` or `false`";
    let is_dry_run = fields.take("dry_run", flag, Value::as_bool);
    let includes_unsafe = fields.take("include_unsafe", flag, Value::as_bool);
    let before = fields.take("cursor", CURSOR, |value| read_cursor(value.as_str()?));
    fields.end()?;
    Ok(BulkRequest {
        ids,
        filter: read,
        states: states.iter().copied().map(word_of).collect(),
        event,
        includes_unsafe: includes_unsafe.unwrap_or_default(),
        is_dry_run: is_dry_run.unwrap_or_default(),
        before,
        limit: MAX_BULK,
    })
}

fn read_ids(filter: &mut Fields) -> Option<Vec<String>> {
    let expected = format!("a list of 1 to {MAX_IDS} ids");
    filter.take("ids", &expected, |value| {
        let ids = value.as_array()?;
        let text = |id: &Value| {
            let id = id.as_str()?;
            (1..=100)
                .contains(&id.chars().count())
                .then(|| id.to_owned())
        };
        let is_bounded = (1..=MAX_IDS).contains(&ids.len());
        ids.iter()
            .map(text)
            .collect::<Option<Vec<_>>>()
            .filter(|_| is_bounded)
    })
}

/// So many operations may be named.
const MAX_IDS: usize = 1000;
