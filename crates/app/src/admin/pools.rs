//! Pools: their state, and endpoints that are added, removed, enabled and disabled.

#![expect(
    unused_qualifications,
    reason = "the macro of paths names parameters by their whole path"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use policy::key::endpoint_key;
use policy::ladder::Disabled;
use serde::Deserialize;
use serde_json::Value;
use tidegate::Clock;
use tidegate::pool::EndpointView;
use utoipa::IntoParams;

use super::api::AdminState;
use super::bodies::{AddEndpoint, DisabledKind, Endpoint, Pool, PoolList, Problem, SwitchEndpoint};
use super::body::Fields;
use super::problem::Refused;
use super::protection::protection_body;
use crate::core::unix_millis;
use crate::redact;
use crate::state::{NewEndpoint, UpstreamEndpoint, UpstreamPool};

/// Every pool
#[utoipa::path(
    get, operation_id = "listPools", path = "/api/v1/pools", tag = "pools",
    responses((status = 200, description = "The pools by name", body = PoolList))
)]
pub(super) async fn list(State(admin): State<Arc<AdminState>>) -> Json<PoolList> {
    let configuration = admin.state.configuration();
    let pools = configuration
        .pools()
        .map(|(_, pool)| pool_body(&admin, pool));
    Json(PoolList {
        pools: pools.collect(),
    })
}

/// One pool
#[utoipa::path(
    get, operation_id = "showPool", path = "/api/v1/pools/{pool}", tag = "pools", params(PoolPath),
    responses((status = 200, description = "The pool", body = Pool))
)]
pub(super) async fn show(
    State(admin): State<Arc<AdminState>>,
    Path(PoolPath { pool }): Path<PoolPath>,
) -> Result<Json<Pool>, Refused> {
    pool_of(&admin, &pool).map(Json)
}

/// Add an endpoint
///
/// It comes last in the list, is used at once, and survives restarts. Values of headers are
/// references to secrets that the configuration file uses itself or allows in `server.secrets`. An
/// address that is not public has to be allowed in `[network]`.
#[utoipa::path(
    post, operation_id = "addEndpoint", path = "/api/v1/pools/{pool}/endpoints", tag = "pools", params(PoolPath),
    request_body = AddEndpoint,
    responses(
        (status = 201, description = "The endpoint", body = Endpoint, headers(("location" = String, description = "Its path"))),
        (status = 403, description = "The address is not allowed, or the request is cross-site", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "It cannot be stored, so it was not added", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn add(
    State(admin): State<Arc<AdminState>>,
    Path(PoolPath { pool }): Path<PoolPath>,
    fields: Fields,
) -> Result<Response, Refused> {
    admin.state.pool(&pool)?;
    let AddEndpoint { name, url, headers } = read_new(fields)?;
    let new = NewEndpoint {
        name: name.clone(),
        url,
        headers: headers.into_iter().collect(),
    };
    admin.state.add_endpoint(&pool, new).await?;
    let added = endpoint_of(&admin, &pool, &name)?;
    let mut answer = (StatusCode::CREATED, Json(added)).into_response();
    let location = format!(
        "/api/v1/pools/{}/endpoints/{}",
        encoded(&pool),
        encoded(&name)
    );
    if let Ok(location) = HeaderValue::from_str(&location) {
        answer.headers_mut().insert(LOCATION, location);
    }
    Ok(answer)
}

/// Enable or disable an endpoint
///
/// Enabling clears all error state, and the isolation of its gate after a used-up quota; disabling
/// lasts until a person enables it.
#[utoipa::path(
    patch, operation_id = "switchEndpoint", path = "/api/v1/pools/{pool}/endpoints/{name}", tag = "pools", params(EndpointPath),
    request_body = SwitchEndpoint,
    responses(
        (status = 200, description = "The endpoint afterwards", body = Endpoint),
        (status = 503, description = "It cannot be stored, so nothing was changed", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn switch(
    State(admin): State<Arc<AdminState>>,
    Path(EndpointPath { pool, name }): Path<EndpointPath>,
    mut fields: Fields,
) -> Result<Json<Endpoint>, Refused> {
    let is_enabled = fields.require("enabled", "`true` or `false`", Value::as_bool);
    fields.end()?;
    if let Some(is_enabled) = is_enabled {
        admin
            .state
            .switch_endpoint(&pool, &name, is_enabled)
            .await?;
    }
    endpoint_of(&admin, &pool, &name).map(Json)
}

/// Remove an endpoint
///
/// Requests in flight finish. It stays removed over restarts, even if the configuration has it,
/// until one of its name is added. The last one may be removed, too: requests are then answered
/// `no_endpoint`.
#[utoipa::path(
    delete, operation_id = "removeEndpoint", path = "/api/v1/pools/{pool}/endpoints/{name}", tag = "pools", params(EndpointPath),
    responses(
        (status = 204, description = "It is removed"),
        (status = 503, description = "It cannot be stored, so nothing was changed", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn remove(
    State(admin): State<Arc<AdminState>>,
    Path(EndpointPath { pool, name }): Path<EndpointPath>,
) -> Result<StatusCode, Refused> {
    admin.state.remove_endpoint(&pool, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) fn pool_of(admin: &AdminState, pool: &str) -> Result<Pool, Refused> {
    let pool = admin.state.pool(pool)?;
    Ok(pool_body(admin, &pool))
}

fn endpoint_of(admin: &AdminState, pool: &str, name: &str) -> Result<Endpoint, Refused> {
    let pool = pool_of(admin, pool)?;
    let mut endpoints = pool.endpoints.into_iter();
    let found = endpoints.find(|endpoint| endpoint.name == name);
    found.ok_or_else(|| Refused::not_found(format!("there is no endpoint `{name}` any more")))
}

fn read_new(mut fields: Fields) -> Result<AddEndpoint, Refused> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let name = fields.require("name", "a name of up to 64 characters without `/`", text);
    let url = fields.require("url", "a URL such as `https://api.example.com/v1`", text);
    let headers = fields.take(
        "headers",
        "an object of names and references such as `env:NAME`",
        |value| serde_json::from_value(value.clone()).ok(),
    );
    fields.end()?;
    Ok(AddEndpoint {
        name: name.unwrap_or_default(),
        url: url.unwrap_or_default(),
        headers: headers.unwrap_or_default(),
    })
}

/// A name as a part of a path.
pub(super) fn encoded(name: &str) -> String {
    let is_plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    let mut text = String::new();
    for byte in name.bytes() {
        if is_plain(byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// The name of a pool in the path.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct PoolPath {
    /// The name of the pool
    #[param(example = "llm", min_length = 1)]
    pub(super) pool: String,
}

/// The names of a pool and of its endpoint in the path.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct EndpointPath {
    /// The name of the pool
    #[param(example = "llm", min_length = 1)]
    pool: String,
    /// The name of the endpoint
    #[param(example = "a", min_length = 1)]
    name: String,
}

fn pool_body(admin: &AdminState, pool: &UpstreamPool) -> Pool {
    let views = pool.view();
    let urls: BTreeMap<String, String> = pool
        .endpoints()
        .iter()
        .map(|endpoint| (endpoint.name().to_owned(), shown_url(endpoint.data())))
        .collect();
    let live = pool.protection();
    let configuration = admin.state.configuration();
    let configured = configuration.settings().pools.get(pool.name());
    let configured = configured.map_or(&live, |pool| &pool.protection);
    Pool {
        name: pool.name().to_owned(),
        balance: pool.balance().into(),
        protection: protection_body(&live, views.len()),
        configured: protection_body(configured, views.len()),
        changed: live != *configured,
        endpoints: views
            .into_iter()
            .map(|view| {
                let url = urls.get(&view.name).cloned().unwrap_or_default();
                endpoint_body(pool.name(), view, url, admin.state.clock())
            })
            .collect(),
    }
}

/// Where an endpoint is, without anything that could be a secret.
fn shown_url(endpoint: &UpstreamEndpoint) -> String {
    let scheme = if endpoint.destination.is_tls() {
        "https"
    } else {
        "http"
    };
    let authority = endpoint
        .destination
        .authority()
        .to_str()
        .unwrap_or_default();
    format!("{scheme}://{authority}{}", endpoint.base)
}

fn endpoint_body(pool: &str, view: EndpointView, url: String, clock: &Clock) -> Endpoint {
    let ago = |length: Duration| {
        let length = i64::try_from(length.as_millis()).unwrap_or(i64::MAX);
        clock.wall().as_unix_millis().saturating_sub(length)
    };
    Endpoint {
        key: endpoint_key(pool, &view.name),
        name: view.name,
        url,
        enabled: view.disabled.is_none(),
        paused_until_ms: view.paused_until.map(|until| unix_millis(clock, until)),
        pause_started_ms: view.paused_for.map(ago),
        recovering: view.is_recovering,
        consecutive_errors: view.consecutive_errors,
        last_error: view
            .last_error
            .map(|error| redact::Text::new(&error).to_string()),
        disabled_reason: view.disabled.map(disabled_reason),
        disabled_kind: view.disabled.map(disabled_kind),
        disabled_at_ms: view.disabled_for.map(ago),
        in_flight: view.in_flight,
    }
}

fn disabled_kind(why: Disabled) -> DisabledKind {
    match why {
        Disabled::Errors(_) => DisabledKind::Errors,
        Disabled::QuotaExhausted => DisabledKind::QuotaExhausted,
        Disabled::CredentialRejected => DisabledKind::CredentialRejected,
        Disabled::Person => DisabledKind::Person,
    }
}

fn disabled_reason(why: Disabled) -> String {
    match why {
        Disabled::Errors(1) => "one error".to_owned(),
        Disabled::Errors(count) => format!("{count} errors in a row"),
        Disabled::QuotaExhausted => "its quota is used up".to_owned(),
        Disabled::CredentialRejected => "its credential is rejected".to_owned(),
        Disabled::Person => "disabled by a person".to_owned(),
    }
}
