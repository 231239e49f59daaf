//! Which operations to list.

use store::operations::OperationFilter;
use utoipa::IntoParams;

use crate::admin::bodies::{Reason, StateName};
use crate::admin::problem::Refused;
use crate::admin::query::{self, CURSOR, read_cursor};

#[derive(Debug, Default, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// Only those in this state, or in one of these, with commas between them
    #[param(value_type = Option<String>, pattern = "^(available|running|retryable|completed|failed|conflict|cancelled)(,(available|running|retryable|completed|failed|conflict|cancelled))*$", example = "failed,conflict")]
    state: Vec<StateName>,
    /// Only those of this type
    #[param(rename = "type", min_length = 1)]
    kind: Option<String>,
    /// Only those that ended for this reason
    #[param(inline)]
    reason: Option<Reason>,
    /// Only those for this destination: the key of a gate, or `/` and the name of a pool
    #[param(min_length = 1)]
    key: Option<String>,
    /// Only those whose id begins with this
    #[param(min_length = 1)]
    id: Option<String>,
    /// `next_cursor` of the page before
    #[param(rename = "cursor", value_type = Option<String>, pattern = "^[1-9a-f][0-9a-f]{0,14}$")]
    pub(super) before: Option<u64>,
    /// The most operations to list
    #[param(minimum = 1, maximum = 1000, default = 100)]
    pub(super) limit: Option<usize>,
}

impl ListQuery {
    /// Reads the query of a call.
    pub(super) fn read(query: Option<&str>) -> Result<Self, Refused> {
        let mut read = Self::default();
        query::read(query, &NAMES, |name, value| {
            Some(match name {
                "state" => {
                    let words = value.split(',');
                    let states =
                        words.map(|word| query::word(word, StateName::ALL, StateName::as_str));
                    let states = states.collect::<Result<_, _>>();
                    states.map(|states| read.state = states)
                }
                "reason" => query::word(value, Reason::ALL, Reason::as_str)
                    .map(|reason| read.reason = Some(reason)),
                "type" => query::text(value).map(|kind| read.kind = Some(kind)),
                "key" => query::text(value).map(|key| read.key = Some(key)),
                "id" => query::text(value).map(|id| read.id = Some(id)),
                "cursor" => read_cursor(value)
                    .map(|before| read.before = Some(before))
                    .ok_or_else(|| CURSOR.to_owned()),
                "limit" => query::limit(value).map(|limit| read.limit = Some(limit)),
                _ => return None,
            })
        })?;
        Ok(read)
    }

    pub(super) fn filter(&self) -> OperationFilter {
        OperationFilter {
            states: self.state.iter().copied().map(word_of).collect(),
            kind: self.kind.clone(),
            reason: self.reason.map(Into::into),
            destination: self.key.clone(),
            id_prefix: self.id.clone(),
        }
    }
}

const NAMES: [&str; 7] = ["state", "type", "reason", "key", "id", "cursor", "limit"];

/// A state as the store names it.
pub(super) fn word_of(state: StateName) -> String {
    state.as_str().to_owned()
}
