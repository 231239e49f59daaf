//! How the endpoints of a pool are protected, and changing that.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use policy::duration::Exact;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate::{LadderOptions, LadderSettings};
use utoipa::ToSchema;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{
    ArrayBuilder, ObjectBuilder, OneOfBuilder, Schema, SchemaType, Type,
};

use super::api::AdminState;
use super::body::{Fields, whole};
use super::pools::{PoolName, pool_of};
use super::problem::{Problem, Refused};

/// Change how the endpoints of a pool are protected
///
/// What the body does not name stays. The change is durable before the answer, and kept over
/// restarts and new configurations.
#[utoipa::path(
    put, operation_id = "changeProtection", path = "/api/v1/pools/{pool}/protection", tag = "pools", params(PoolName),
    request_body = ChangeProtection,
    responses(
        (status = 200, description = "All of it, afterwards", body = Protection),
        (status = 503, description = "It cannot be stored, so nothing was changed", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn change(
    State(desk): State<Arc<AdminState>>,
    Path(pool): Path<String>,
    fields: Fields,
) -> Result<Json<Protection>, Refused> {
    desk.state.pool(&pool)?;
    let changes = read(fields)?;
    if !changes.is_empty() {
        desk.state.change_protection(&pool, changes).await?;
    }
    Ok(Json(pool_of(&desk, &pool)?.protection))
}

/// Take back what was changed about a pool's protection: as configured, else the defaults
#[utoipa::path(
    post, operation_id = "resetProtection", path = "/api/v1/pools/{pool}/protection/reset", tag = "pools", params(PoolName),
    responses(
        (status = 200, description = "All of it, afterwards", body = Protection),
        (status = 503, description = "It cannot be stored, so nothing was changed", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn reset(
    State(desk): State<Arc<AdminState>>,
    Path(pool): Path<String>,
) -> Result<Json<Protection>, Refused> {
    desk.state.reset_protection(&pool).await?;
    Ok(Json(pool_of(&desk, &pool)?.protection))
}

/// The settings that a body names, as they are written; their values are judged by the policy.
fn read(mut fields: Fields) -> Result<BTreeMap<String, String>, Refused> {
    let mut changes = BTreeMap::new();
    for name in ["enabled", "unreachable", "show_test_tool"] {
        let value = fields.take(name, "`true` or `false`", Value::as_bool);
        changes.extend(value.map(|value| (name.to_owned(), value.to_string())));
    }
    let count = fields.take("disable_after", "a whole number from 1 to 10", whole);
    changes.extend(count.map(|count| ("disable_after".to_owned(), count.to_string())));
    let count = fields.take("probing_after", "a whole number from 0 to 1000000", whole);
    changes.extend(count.map(|count| ("probing_after".to_owned(), count.to_string())));
    let pauses = fields.take("pauses", "a list of durations such as `30s`", |value| {
        list(value, |part| {
            part.as_str()
                .filter(|text| is_plain(text))
                .map(str::to_owned)
        })
    });
    changes.extend(pauses.map(|pauses| ("pauses".to_owned(), pauses)));
    let statuses = fields.take("statuses", "a list of statuses such as 429", |value| {
        list(value, |part| whole(part).map(|status| status.to_string()))
    });
    changes.extend(statuses.map(|statuses| ("statuses".to_owned(), statuses)));
    let texts = fields.take("texts", TEXTS, |value| {
        list(value, |part| {
            part.as_str()
                .filter(|text| is_phrase(text))
                .map(str::to_owned)
        })
    });
    changes.extend(texts.map(|texts| ("texts".to_owned(), texts)));
    for (name, value) in &changes {
        if let Err(error) = LadderOptions::default().set(name, value) {
            fields.note(&error.setting, Some(error.value), &error.expected);
        }
    }
    fields.end()?;
    Ok(changes)
}

const TEXTS: &str = "a list of up to 100 phrases of up to 200 characters, each of words with one \
                     blank between them and without `,`, `\"`, `[` and `]`";

/// A list as settings have it, with commas between its parts.
fn list(value: &Value, read: impl Fn(&Value) -> Option<String>) -> Option<String> {
    let parts: Option<Vec<String>> = value.as_array()?.iter().map(read).collect();
    parts.map(|parts| parts.join(","))
}

/// Has it nothing that parts a list?
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

/// How the endpoints of a pool are protected
#[derive(Serialize, ToSchema)]
pub(super) struct Protection {
    /// Are endpoints paused and disabled on errors? By default those of pools with two or more
    enabled: bool,
    /// The pause after the first error, the second, and so on; the last repeats
    #[schema(example = json!(["30s", "1m"]))]
    pauses: Vec<String>,
    /// The how-manieth error in a row disables
    #[schema(minimum = 1, maximum = 10)]
    disable_after: u32,
    /// Do transport failures climb too?
    unreachable: bool,
    /// Does the console show its test tool?
    show_test_tool: bool,
    /// After this many successes an undirected 429 is the gate's own probing and no error; 0 is off
    #[schema(minimum = 0, maximum = 1_000_000)]
    probing_after: u32,
    /// Statuses that climb
    statuses: Vec<u16>,
    /// Phrases that climb, as whole words in any case
    texts: Vec<String>,
}

impl Protection {
    /// The settings of a pool with so many endpoints.
    pub(super) fn new(settings: &LadderSettings, endpoints: usize) -> Self {
        let pauses = settings.pauses().iter();
        Self {
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
}

/// Whole seconds stay seconds, as they are written in the settings: `60s`, not `1m`.
fn written(pause: std::time::Duration) -> String {
    match (pause.as_secs(), pause.subsec_nanos()) {
        (seconds, 0) => format!("{seconds}s"),
        _ => Exact(pause).to_string(),
    }
}

/// What to change about the protection of a pool; what is not named stays
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "it describes what `read` reads")]
struct ChangeProtection {
    /// Are endpoints paused and disabled on errors?
    #[schema(nullable = false)]
    enabled: Option<bool>,
    /// The pause after the first error, the second, and so on, each at least 1s; the last repeats
    #[schema(schema_with = pauses, required = false)]
    pauses: Vec<String>,
    /// The how-manieth error in a row disables
    #[schema(minimum = 1, maximum = 10, nullable = false)]
    disable_after: Option<u32>,
    /// Do transport failures climb too?
    #[schema(nullable = false)]
    unreachable: Option<bool>,
    /// Does the console show its test tool?
    #[schema(nullable = false)]
    show_test_tool: Option<bool>,
    /// After this many successes an undirected 429 is the gate's own probing and no error; 0 is off
    #[schema(minimum = 0, maximum = 1_000_000, nullable = false)]
    probing_after: Option<u32>,
    /// Statuses that climb
    #[schema(schema_with = statuses, required = false)]
    statuses: Vec<u16>,
    /// Phrases that climb, as whole words in any case
    #[schema(schema_with = texts, required = false)]
    texts: Vec<String>,
}

fn pauses() -> RefOr<Schema> {
    let item = ObjectBuilder::new()
        .schema_type(SchemaType::Type(Type::String))
        .pattern(Some(r"^[1-9][0-9]{0,5}(s|m|h)$"));
    let array = ArrayBuilder::new()
        .items(item)
        .min_items(Some(1))
        .max_items(Some(100))
        .description(Some("The pause after the first error, the second, and so on, each at least 1s; the last repeats"));
    RefOr::T(Schema::Array(array.build()))
}

fn statuses() -> RefOr<Schema> {
    let range = |least: i32, most: i32| {
        ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::Integer))
            .minimum(Some(least))
            .maximum(Some(most))
    };
    // All but 401, 409 and 412, which never climb.
    let item = OneOfBuilder::new()
        .item(range(400, 400))
        .item(range(402, 408))
        .item(range(410, 411))
        .item(range(413, 999));
    let array = ArrayBuilder::new()
        .items(item)
        .max_items(Some(100))
        .description(Some(
            "Statuses that climb, from 400 to 999 without 401, 409 and 412",
        ));
    RefOr::T(Schema::Array(array.build()))
}

fn texts() -> RefOr<Schema> {
    let item = ObjectBuilder::new()
        .schema_type(SchemaType::Type(Type::String))
        .max_length(Some(200))
        .pattern(Some(r#"^[!#-+\--Z\\^-~]+( [!#-+\--Z\\^-~]+)*$"#));
    let array = ArrayBuilder::new()
        .items(item)
        .max_items(Some(100))
        .description(Some("Phrases that climb, as whole words in any case"));
    RefOr::T(Schema::Array(array.build()))
}
