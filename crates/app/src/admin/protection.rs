//! The protection of a pool, and changing it.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use policy::duration::Seconds;
use policy::setting::Kind;
use serde_json::Value;
use tidegate::{LadderOptions, LadderSettings};

use super::api::AdminState;
use super::bodies::{ChangeProtection, Problem, Protection};
use super::body::{Fields, shown, whole};
use super::pools::{PoolPath, pool_of};
use super::problem::Refused;

/// Change the protection of a pool
///
/// What the body does not name stays. The change is durable before the response, and survives
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
    let changes = read(fields)?;
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

/// The changes that a body names, as settings are written. The definitions of the settings say
/// which there are and which values they take.
fn read(mut fields: Fields) -> Result<BTreeMap<String, String>, Refused> {
    let mut changes = BTreeMap::new();
    for setting in LadderOptions::SETTINGS {
        let expected = setting.kind.expected();
        let parts = match &setting.kind {
            Kind::List { of, .. } => read_list(&mut fields, setting.name, of, &expected),
            kind => fields
                .take(setting.name, &expected, |value| text_of(kind, value))
                .map(|text| vec![text]),
        };
        let Some(parts) = parts else { continue };
        let texts: Vec<&str> = parts.iter().map(String::as_str).collect();
        for problem in setting.kind.check(setting.name, &texts) {
            let is_list = matches!(setting.kind, Kind::List { .. });
            // The only part of a list is named like the others.
            let field = match (is_list, &*texts) {
                (true, [one]) if *one == problem.value => format!("{}[0]", problem.setting),
                _ => problem.setting,
            };
            fields.note(&field, Some(problem.value), &problem.expected);
        }
        changes.insert(setting.name.to_owned(), parts.join(","));
    }
    fields.end()?;
    Ok(changes)
}

/// The parts of a list, each of which is judged by itself.
fn read_list(
    fields: &mut Fields,
    name: &'static str,
    of: &Kind,
    expected: &str,
) -> Option<Vec<String>> {
    let list = fields.take(name, expected, |value| value.as_array().cloned())?;
    let mut parts = Vec::new();
    for (index, value) in list.iter().enumerate() {
        match text_of(of, value) {
            Some(part) => parts.push(part),
            None => {
                let expected = match name {
                    "texts" => PHRASE.to_owned(),
                    _ => of.expected(),
                };
                fields.note(&format!("{name}[{index}]"), Some(shown(value)), &expected);
            }
        }
    }
    (parts.len() == list.len()).then_some(parts)
}

/// A value of this kind as it is written in the settings; `None` if it is of another type.
fn text_of(kind: &Kind, value: &Value) -> Option<String> {
    match kind {
        Kind::Switch => value.as_bool().map(|switch| switch.to_string()),
        Kind::Whole { .. } => whole(value).map(|number| number.to_string()),
        Kind::Duration(_) => text(value).filter(|text| is_plain(text)),
        _ => text(value).filter(|text| is_phrase(text)),
    }
}

const PHRASE: &str = "a phrase of up to 200 characters, of words with one blank between them and \
                      without `,`, `\"`, `[` and `]`";

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
        pauses: pauses.map(|pause| Seconds(*pause).to_string()).collect(),
        disable_after: settings.disable_after(),
        unreachable: settings.unreachable(),
        show_test_tool: settings.show_test_tool(),
        probing_after: settings.probing_after(),
        statuses: settings.statuses().to_vec(),
        texts: settings.texts().iter().map(ToString::to_string).collect(),
    }
}
