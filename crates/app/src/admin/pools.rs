//! Pools: how their endpoints stand, and endpoints that come, go, and are switched.

#![expect(
    unused_qualifications,
    reason = "the macro of paths names parameters by their whole path"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use policy::ladder::Disabled;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate::pool::EndpointView;
use tidegate::{Balance, Clock};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{AdditionalProperties, ObjectBuilder, Schema, SchemaType, Type};
use utoipa::{IntoParams, ToSchema};

use super::api::AdminState;
use super::body::Fields;
use super::problem::{Problem, Refused};
use super::protection::Protection;
use crate::core::unix_millis;
use crate::redact;
use crate::state::{NewEndpoint, UpstreamEndpoint, UpstreamPool};

/// Every pool
#[utoipa::path(
    get, operation_id = "listPools", path = "/api/v1/pools", tag = "pools",
    responses((status = 200, description = "The pools by name", body = PoolList))
)]
pub(super) async fn list(State(desk): State<Arc<AdminState>>) -> Json<PoolList> {
    let configuration = desk.state.configuration();
    let clock = desk.state.limiter().clock();
    let pools = configuration
        .pools()
        .map(|(_, pool)| Pool::new(pool, clock));
    Json(PoolList {
        pools: pools.collect(),
    })
}

/// One pool
#[utoipa::path(
    get, operation_id = "showPool", path = "/api/v1/pools/{pool}", tag = "pools", params(PoolName),
    responses((status = 200, description = "The pool", body = Pool))
)]
pub(super) async fn show(
    State(desk): State<Arc<AdminState>>,
    Path(pool): Path<String>,
) -> Result<Json<Pool>, Refused> {
    pool_of(&desk, &pool).map(Json)
}

/// Add an endpoint
///
/// It comes last in the list, is used at once, and is kept over restarts. Values of headers are
/// references to secrets. An address that is not public has to be allowed in `[network]`.
#[utoipa::path(
    post, operation_id = "addEndpoint", path = "/api/v1/pools/{pool}/endpoints", tag = "pools", params(PoolName),
    request_body = AddEndpoint,
    responses(
        (status = 201, description = "The endpoint", body = Endpoint, headers(("location" = String, description = "Its path"))),
        (status = 403, description = "The address must not be dialled, or a page of another site asks", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "It cannot be stored, so it was not added", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn add(
    State(desk): State<Arc<AdminState>>,
    Path(pool): Path<String>,
    fields: Fields,
) -> Result<Response, Refused> {
    desk.state.pool(&pool)?;
    let new = read_new(fields)?;
    let name = new.name.clone();
    desk.state.add_endpoint(&pool, new).await?;
    let added = endpoint_of(&desk, &pool, &name)?;
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
/// Enabling clears all error state; disabling lasts until somebody enables it.
#[utoipa::path(
    patch, operation_id = "switchEndpoint", path = "/api/v1/pools/{pool}/endpoints/{name}", tag = "pools", params(EndpointName),
    request_body = SwitchEndpoint,
    responses(
        (status = 200, description = "The endpoint afterwards", body = Endpoint),
        (status = 503, description = "It cannot be stored, so nothing was changed", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn switch(
    State(desk): State<Arc<AdminState>>,
    Path((pool, name)): Path<(String, String)>,
    mut fields: Fields,
) -> Result<Json<Endpoint>, Refused> {
    let is_enabled = fields.require("enabled", "`true` or `false`", Value::as_bool);
    fields.end()?;
    if let Some(is_enabled) = is_enabled {
        desk.state.switch_endpoint(&pool, &name, is_enabled).await?;
    }
    endpoint_of(&desk, &pool, &name).map(Json)
}

/// Remove an endpoint
///
/// What is under way through it ends as usual. It stays away over restarts, also if the
/// configuration has it, until one of its name is added. The last one may go too: the pool then
/// answers `no_endpoint`.
#[utoipa::path(
    delete, operation_id = "removeEndpoint", path = "/api/v1/pools/{pool}/endpoints/{name}", tag = "pools", params(EndpointName),
    responses(
        (status = 204, description = "It is gone"),
        (status = 503, description = "It cannot be stored, so nothing was changed", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn remove(
    State(desk): State<Arc<AdminState>>,
    Path((pool, name)): Path<(String, String)>,
) -> Result<StatusCode, Refused> {
    desk.state.remove_endpoint(&pool, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) fn pool_of(desk: &AdminState, pool: &str) -> Result<Pool, Refused> {
    let pool = desk.state.pool(pool)?;
    Ok(Pool::new(&pool, desk.state.limiter().clock()))
}

fn endpoint_of(desk: &AdminState, pool: &str, name: &str) -> Result<Endpoint, Refused> {
    let pool = pool_of(desk, pool)?;
    let mut endpoints = pool.endpoints.into_iter();
    let found = endpoints.find(|endpoint| endpoint.name == name);
    found.ok_or_else(|| Refused::not_found(format!("there is no endpoint `{name}` any more")))
}

fn read_new(mut fields: Fields) -> Result<NewEndpoint, Refused> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let name = fields.require("name", "a name of up to 64 characters without `/`", text);
    let url = fields.require("url", "a URL such as `https://api.example.com/v1`", text);
    let headers = fields.take(
        "headers",
        "an object of names and references such as `env:NAME`",
        read_headers,
    );
    fields.end()?;
    Ok(NewEndpoint {
        name: name.unwrap_or_default(),
        url: url.unwrap_or_default(),
        headers: headers.unwrap_or_default(),
    })
}

fn read_headers(value: &Value) -> Option<Vec<(String, String)>> {
    let headers = value.as_object()?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let headers = headers
        .iter()
        .map(|(name, value)| Some((name.clone(), text(value)?)));
    headers.collect()
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
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "it describes what handlers read by themselves")]
pub(super) struct PoolName {
    /// The name of the pool
    #[param(example = "llm", min_length = 1)]
    pool: String,
}

/// The names of a pool and of its endpoint in the path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "it describes what handlers read by themselves")]
struct EndpointName {
    /// The name of the pool
    #[param(example = "llm", min_length = 1)]
    pool: String,
    /// The name of the endpoint
    #[param(example = "a", min_length = 1)]
    name: String,
}

/// Whether an endpoint is used
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "it describes what handlers read by themselves")]
struct SwitchEndpoint {
    /// Enabling clears all error state
    enabled: bool,
}

/// An endpoint to add
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "it describes what handlers read by themselves")]
struct AddEndpoint {
    /// A name that no other endpoint of the pool has, without `/`
    #[schema(
        min_length = 1,
        max_length = 64,
        pattern = r"^[^/\x00-\x1f\x7f-\x9f]+$",
        example = "c"
    )]
    name: String,
    /// What the rest of a request's path is put behind; without user info, `?` and `#`
    #[schema(
        max_length = 2048,
        pattern = r"^https?://([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*|\[[0-9A-Fa-f:.]+\])(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?(/[A-Za-z0-9._~!$&'()*+,;=:@%-]*)*$",
        example = "https://c.example.com/v1"
    )]
    url: String,
    /// Headers of every request, with references to their values: `env:NAME`, `file:PATH`, or
    /// either after a word such as `Bearer`
    #[schema(schema_with = header_references, required = false)]
    headers: BTreeMap<String, String>,
}

fn header_references() -> RefOr<Schema> {
    let value = ObjectBuilder::new()
        .schema_type(SchemaType::Type(Type::String))
        .pattern(Some(
            r"^([A-Za-z]{1,16} )?(env:[A-Za-z_][A-Za-z0-9_]*|file:.+)$",
        ));
    let name = ObjectBuilder::new()
        .schema_type(SchemaType::Type(Type::String))
        .max_length(Some(256))
        .pattern(Some(r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$"));
    let object = ObjectBuilder::new()
        .schema_type(SchemaType::Type(Type::Object))
        .property_names(Some(Schema::Object(name.build())))
        .description(Some(
            "Headers of every request, with references to their values: `env:NAME`, `file:PATH`, or either after a word such as `Bearer`",
        ))
        .additional_properties(Some(AdditionalProperties::RefOr(RefOr::T(Schema::Object(
            value.build(),
        )))));
    RefOr::T(Schema::Object(object.build()))
}

/// Pools
#[derive(Serialize, ToSchema)]
pub(super) struct PoolList {
    pools: Vec<Pool>,
}

/// A pool
#[derive(Serialize, ToSchema)]
pub(super) struct Pool {
    /// Its name, the first part of the path it is served at
    name: String,
    #[schema(inline)]
    balance: BalanceWord,
    pub(super) protection: Protection,
    /// In the order of the list
    endpoints: Vec<Endpoint>,
}

impl Pool {
    fn new(pool: &UpstreamPool, clock: &Clock) -> Self {
        let views = pool.view();
        let known: BTreeMap<String, String> = pool
            .endpoints()
            .iter()
            .map(|endpoint| (endpoint.name().to_owned(), shown_url(endpoint.data())))
            .collect();
        let protection = Protection::new(&pool.protection(), views.len());
        let endpoints = views.into_iter().map(|view| {
            let url = known.get(&view.name).cloned().unwrap_or_default();
            Endpoint::new(view, url, clock)
        });
        Self {
            name: pool.name().to_owned(),
            balance: pool.balance().into(),
            protection,
            endpoints: endpoints.collect(),
        }
    }
}

/// Where an endpoint is, without anything that could be a secret.
fn shown_url(endpoint: &UpstreamEndpoint) -> String {
    let scheme = if endpoint.target.is_tls() {
        "https"
    } else {
        "http"
    };
    let authority = endpoint.target.authority().to_str().unwrap_or_default();
    format!("{scheme}://{authority}{}", endpoint.base)
}

/// Which endpoint is asked first
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum BalanceWord {
    LeastLoaded,
    RoundRobin,
    First,
}

impl From<Balance> for BalanceWord {
    fn from(balance: Balance) -> Self {
        match balance {
            Balance::LeastLoaded => Self::LeastLoaded,
            Balance::RoundRobin => Self::RoundRobin,
            Balance::First => Self::First,
        }
    }
}

/// An endpoint
#[derive(Serialize, ToSchema)]
pub(super) struct Endpoint {
    /// Its name in the pool
    name: String,
    /// What the rest of a request's path is put behind
    url: String,
    /// May it be used, pauses aside?
    enabled: bool,
    /// The end of its pause in milliseconds of Unix time; null if it is not paused
    #[schema(required)]
    paused_until_ms: Option<i64>,
    /// Errors that climbed since the last success
    consecutive_errors: u32,
    /// What its last error said; null if there was none since the last success
    #[schema(required)]
    last_error: Option<String>,
    /// Why it is disabled; null if it is not
    #[schema(required)]
    disabled_reason: Option<String>,
    /// Requests under way
    in_flight: u32,
}

impl Endpoint {
    fn new(view: EndpointView, url: String, clock: &Clock) -> Self {
        Self {
            name: view.name,
            url,
            enabled: view.disabled.is_none(),
            paused_until_ms: view.paused_until.map(|until| unix_millis(clock, until)),
            consecutive_errors: view.consecutive_errors,
            last_error: view
                .last_error
                .map(|error| redact::Text::new(&error).to_string()),
            disabled_reason: view.disabled.map(disabled_reason),
            in_flight: view.in_flight,
        }
    }
}

fn disabled_reason(why: Disabled) -> String {
    match why {
        Disabled::Errors(1) => "one error".to_owned(),
        Disabled::Errors(count) => format!("{count} errors in a row"),
        Disabled::QuotaExhausted => "an allowance is used up".to_owned(),
        Disabled::Person => "disabled by a person".to_owned(),
    }
}
