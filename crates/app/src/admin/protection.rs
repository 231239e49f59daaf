//! The protection of a pool, and changing it.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use policy::duration::Exact;
use serde_json::Value;
use tidegate::{LadderOptions, LadderSettings};

use super::api::AdminState;
use super::bodies::{ChangeProtection, Problem, Protection};
use super::body::{Fields, whole};
use super::pools::{PoolPath, pool_of};
use super::problem::Refused;

/// Change the protection of a pool
///
/// What the body does not name stays. The change is durable before the answer, and kept over
/// restarts and new configurations.
#[utoipa::path(
    put, operation_id = "changeProtection", path = "/api/v1/pools/{pool}/protection", tag = "pools", params(PoolPath),
    request_body = ChangeProtection,
    responses(
        (status = 200, description = "All of it, afterwards", body = Protection),
        (status = 503, description = "It cannot be stored, so nothing was changed", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn change(
    State(admin): State<Arc<AdminState>>,
    Path(PoolPath { pool }): Path<PoolPath>,
    fields: Fields,
) -> Result<Json<Protection>, Refused> {
    admin.state.pool(&pool)?;
    let changes = read(fields)?.values();
    if !changes.is_empty() {
        admin.state.change_protection(&pool, changes).await?;
    }
    Ok(Json(pool_of(&admin, &pool)?.protection))
}

/// Reset the protection of a pool to the configuration file's values, else to the defaults
#[utoipa::path(
    post, operation_id = "resetProtection", path = "/api/v1/pools/{pool}/protection/reset", tag = "pools", params(PoolPath),
    responses(
        (status = 200, description = "All of it, afterwards", body = Protection),
        (status = 503, description = "It cannot be stored, so nothing was changed", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn reset(
    State(admin): State<Arc<AdminState>>,
    Path(PoolPath { pool }): Path<PoolPath>,
) -> Result<Json<Protection>, Refused> {
    admin.state.reset_protection(&pool).await?;
    Ok(Json(pool_of(&admin, &pool)?.protection))
}

/// The changes that a body names.
fn read(mut fields: Fields) -> Result<ChangeProtection, Refused> {
    const SWITCH: &str = "`true` or `false`";
    let changes = ChangeProtection {
        enabled: fields.take("enabled", SWITCH, Value::as_bool),
        unreachable: fields.take("unreachable", SWITCH, Value::as_bool),
        show_test_tool: fields.take("show_test_tool", SWITCH, Value::as_bool),
        disable_after: fields.take("disable_after", "a whole number from 1 to 10", whole),
        probing_after: fields.take("probing_after", "a whole number from 0 to 1000000", whole),
        pauses: fields.take("pauses", "a list of durations such as `30s`", |value| {
            list(value, |part| text(part).filter(|text| is_plain(text)))
        }),
        statuses: fields.take("statuses", "a list of statuses such as 429", |value| {
            list(value, whole)
        }),
        texts: fields.take("texts", TEXTS, |value| {
            list(value, |part| text(part).filter(|text| is_phrase(text)))
        }),
    };
    for (name, value) in changes.values() {
        if let Err(error) = LadderOptions::default().set(&name, &value) {
            fields.note(&error.setting, Some(error.value), &error.expected);
        }
    }
    fields.end()?;
    Ok(changes)
}

impl ChangeProtection {
    /// The changes as settings are written; their values are judged by the policy.
    fn values(&self) -> BTreeMap<String, String> {
        fn joined<T: ToString>(list: &[T]) -> String {
            let parts: Vec<String> = list.iter().map(ToString::to_string).collect();
            parts.join(",")
        }
        let values = [
            ("enabled", self.enabled.map(|value| value.to_string())),
            (
                "unreachable",
                self.unreachable.map(|value| value.to_string()),
            ),
            (
                "show_test_tool",
                self.show_test_tool.map(|value| value.to_string()),
            ),
            (
                "disable_after",
                self.disable_after.map(|value| value.to_string()),
            ),
            (
                "probing_after",
                self.probing_after.map(|value| value.to_string()),
            ),
            ("pauses", self.pauses.as_deref().map(joined)),
            ("statuses", self.statuses.as_deref().map(joined)),
            ("texts", self.texts.as_deref().map(joined)),
        ];
        let values = values.into_iter();
        values
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect()
    }
}

const TEXTS: &str = "a list of up to 100 phrases of up to 200 characters, each of words with one \
                     blank between them and without `,`, `\"`, `[` and `]`";

fn list<T>(value: &Value, read: impl Fn(&Value) -> Option<T>) -> Option<Vec<T>> {
    value.as_array()?.iter().map(read).collect()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// Is it free of what separates a list?
fn is_plain(text: &str) -> bool {
    !text.contains([',', '"', '[', ']'])
}

fn is_phrase(text: &str) -> bool {
    let is_word = |word: &str| {
        let is_fine = |c: char| !c.is_whitespace() && !c.is_control();
        !word.is_empty() && word.chars().all(is_fine)
    };
    is_plain(text) && text.chars().count() <= 200 && text.split(' ').all(is_word)
}

/// The protection of a pool with so many endpoints.
pub(super) fn protection_body(settings: &LadderSettings, endpoints: usize) -> Protection {
    let pauses = settings.pauses().iter();
    Protection {
        enabled: settings.protects(endpoints),
        pauses: pauses.map(|pause| written(*pause)).collect(),
        disable_after: settings.disable_after(),
        unreachable: settings.unreachable(),
        show_test_tool: settings.show_test_tool(),
        probing_after: settings.probing_after(),
        statuses: settings.statuses().to_vec(),
        texts: settings.texts().iter().map(ToString::to_string).collect(),
    }
}

/// Whole seconds stay seconds, as they are written in the settings: `60s`, not `1m`.
fn written(pause: std::time::Duration) -> String {
    match (pause.as_secs(), pause.subsec_nanos()) {
        (seconds, 0) => format!("{seconds}s"),
        _ => Exact(pause).to_string(),
    }
}
