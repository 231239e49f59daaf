//! Gates: how they stand, and a person's override.

#![expect(
    unused_qualifications,
    reason = "the macro of paths names parameters by their whole path"
)]

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use policy::breaker::BreakerState;
use policy::hint::Source;
use policy::key;
use policy::suggest::suggestion;
use serde::Serialize;
use tidegate::{Clock, GateView, Snapshot, Sort, Totals};
use utoipa::{IntoParams, ToSchema};

use super::api::AdminState;
use super::problem::{Kind, Problem, Refused};
use crate::core::{millis, unix_millis};

/// Every gate, or the first of many
#[utoipa::path(
    get, operation_id = "listGates", path = "/api/v1/gates", tag = "gates", params(ListQuery),
    responses((status = 200, description = "Totals, and gates in the order that was asked for", body = GateList))
)]
pub(super) async fn list(
    State(desk): State<Arc<AdminState>>,
    RawQuery(query): RawQuery,
) -> Result<Json<GateList>, Refused> {
    let (sort, limit) = read_query(query.as_deref().unwrap_or_default())?;
    let limiter = desk.state.limiter();
    Ok(Json(GateList::new(
        limiter.snapshot(sort, limit),
        limiter.clock(),
    )))
}

/// One gate
#[utoipa::path(
    get, operation_id = "showGate", path = "/api/v1/gates/{key}", tag = "gates", params(Key),
    responses((status = 200, description = "The gate", body = Gate))
)]
pub(super) async fn show(
    State(desk): State<Arc<AdminState>>,
    Path(key): Path<String>,
) -> Result<Json<Gate>, Refused> {
    gate(&desk, &key).map(Json)
}

/// Make a gate as new
///
/// Rate, hold, breaker and counts start again; who is under way or waits stays.
#[utoipa::path(
    post, operation_id = "resetGate", path = "/api/v1/gates/{key}/reset", tag = "gates", params(Key),
    responses((status = 200, description = "The gate afterwards", body = Gate))
)]
pub(super) async fn reset(
    State(desk): State<Arc<AdminState>>,
    Path(key): Path<String>,
) -> Result<Json<Gate>, Refused> {
    desk.state.reset_gate(&key).await;
    gate(&desk, &key).map(Json)
}

/// Close a gate to everyone, until it is released or reset
#[utoipa::path(
    post, operation_id = "isolateGate", path = "/api/v1/gates/{key}/isolate", tag = "gates", params(Key),
    responses(
        (status = 200, description = "The gate afterwards", body = Gate),
        (status = 503, description = "There is no room for another gate", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn isolate(
    State(desk): State<Arc<AdminState>>,
    Path(key): Path<String>,
) -> Result<Json<Gate>, Refused> {
    if !may_be(&desk, &key) {
        return Err(no_gate(&desk, &key));
    }
    let isolated = desk.state.isolate_gate(&key).await;
    isolated.map_err(|refusal| Refused::new(Kind::TooManyGates, refusal.to_string()))?;
    gate(&desk, &key).map(Json)
}

/// End hold, open breaker and isolation of a gate at once
///
/// Those who wait leave at the pace that was learned.
#[utoipa::path(
    post, operation_id = "releaseGate", path = "/api/v1/gates/{key}/release", tag = "gates", params(Key),
    responses((status = 200, description = "The gate afterwards", body = Gate))
)]
pub(super) async fn release(
    State(desk): State<Arc<AdminState>>,
    Path(key): Path<String>,
) -> Result<Json<Gate>, Refused> {
    desk.state.release_gate(&key).await;
    gate(&desk, &key).map(Json)
}

fn gate(desk: &AdminState, key: &str) -> Result<Gate, Refused> {
    let limiter = desk.state.limiter();
    let view = limiter.gate(key).ok_or_else(|| no_gate(desk, key))?;
    Ok(Gate::new(view, limiter.clock()))
}

/// A gate may be isolated before anybody has used it, if there can be one of that key.
fn may_be(desk: &AdminState, key: &str) -> bool {
    if desk.state.limiter().gate(key).is_some() {
        return true;
    }
    let configuration = desk.state.configuration();
    match key.split_once('/') {
        Some((pool, endpoint)) => configuration
            .pool(pool)
            .is_some_and(|pool| pool.view().iter().any(|known| known.name == endpoint)),
        None => key::normalize(key).is_ok_and(|normal| normal == key),
    }
}

fn no_gate(desk: &AdminState, key: &str) -> Refused {
    let first = desk.state.limiter().snapshot(Sort::Admitted, 1000).gates;
    let keys: Vec<&str> = first.iter().map(|gate| gate.key.as_str()).collect();
    let close = suggestion(key, &keys).map_or_else(
        || "gates come with their first request".to_owned(),
        |close| format!("did you mean `{close}`?"),
    );
    let key: String = key.chars().take(200).collect();
    Refused::not_found(format!("there is no gate `{key}`; {close}"))
}

/// The key of a gate in the path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "it describes what handlers read by themselves")]
struct Key {
    /// What the gate is for: `pool/endpoint` or `host[:port]`, with or without `%2F` for `/`
    #[param(example = "llm/a", min_length = 1)]
    key: String,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes what `read_query` reads")]
struct ListQuery {
    /// The most remarkable first; by default those that admitted most
    #[param(inline)]
    sort: Option<SortWord>,
    /// At most so many
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
}

/// In which order gates come
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(dead_code, reason = "it describes the words of `Sort`")]
enum SortWord {
    Admitted,
    Waiting,
    InFlight,
    ErrorRate,
    Rate,
    Key,
}

const MOST: usize = 1000;

fn read_query(query: &str) -> Result<(Sort, usize), Refused> {
    let (mut sort, mut limit) = (Sort::default(), 100);
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        let value = value.trim();
        let read = match &*name {
            "sort" => read_sort(value).map(|read| sort = read),
            "limit" => read_limit(value).map(|read| limit = read),
            other => {
                let other: String = other.chars().take(100).collect();
                let detail = format!("there is no parameter `{other}`, expected `sort` or `limit`");
                return Err(Refused::new(Kind::BadRequest, detail));
            }
        };
        read.map_err(|expected| {
            let value: String = value.chars().take(100).collect();
            let detail = format!("`{name}` is `{value}`, expected {expected}");
            Refused::new(Kind::BadRequest, detail)
        })?;
    }
    Ok((sort, limit))
}

fn read_sort(text: &str) -> Result<Sort, String> {
    let found = Sort::ALL.into_iter().find(|sort| sort.as_str() == text);
    found.ok_or_else(|| {
        let words = Sort::ALL.map(|sort| format!("`{}`", sort.as_str()));
        format!("one of {}", words.join(", "))
    })
}

fn read_limit(text: &str) -> Result<usize, String> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let limit = text.parse().ok().filter(|limit| (1..=MOST).contains(limit));
    limit
        .filter(|_| is_plain)
        .ok_or_else(|| format!("a whole number from 1 to {MOST}"))
}

/// Gates, and all of them together
#[derive(Serialize, ToSchema)]
pub(super) struct GateList {
    totals: GateTotals,
    gates: Vec<Gate>,
}

impl GateList {
    fn new(seen: Snapshot, clock: &Clock) -> Self {
        let gates = seen.gates.into_iter();
        Self {
            totals: GateTotals::from(seen.totals),
            gates: gates.map(|view| Gate::new(view, clock)).collect(),
        }
    }
}

/// All gates together, since the start
#[derive(Serialize, ToSchema)]
struct GateTotals {
    /// Asks
    requests: u64,
    /// Asks that waited for longer than `throttled_after` and were admitted then
    throttled: u64,
    /// Asks that were refused, at once or after waiting
    denied: u64,
    /// Attempts that were not the first of their item
    retries: u64,
    /// Gates that let nobody through now
    open: u64,
    /// Gates that are probing now
    half_open: u64,
    /// Gates there are now
    gates: u64,
    /// Gates that were forgotten
    evicted: u64,
}

impl From<Totals> for GateTotals {
    fn from(totals: Totals) -> Self {
        Self {
            requests: totals.requests,
            throttled: totals.throttled,
            denied: totals.denied,
            retries: totals.retries,
            open: totals.open,
            half_open: totals.half_open,
            gates: totals.gates,
            evicted: totals.evicted,
        }
    }
}

/// A gate
#[derive(Serialize, ToSchema)]
pub(super) struct Gate {
    /// What it is for: `pool/endpoint` or `host[:port]`
    key: String,
    #[schema(inline)]
    strategy: Strategy,
    /// Tokens per second
    rate_per_second: f64,
    /// Tokens there now; below zero after a cost was corrected
    tokens: f64,
    /// Attempts under way
    in_flight: u32,
    /// How many wait
    waiting: u32,
    latency_ms: Latency,
    /// The share of failures in the window
    #[schema(minimum = 0.0, maximum = 1.0)]
    error_rate: f64,
    breaker: Breaker,
    /// Failures since the last success
    consecutive_failures: u16,
    /// Nobody leaves before; null if everybody may
    #[schema(required)]
    hold: Option<Hold>,
    counts: Counts,
    window: Window,
    /// The last change of the rate, in words
    why: String,
}

impl Gate {
    fn new(view: GateView, clock: &Clock) -> Self {
        let seen = view.gate;
        Self {
            key: view.key,
            strategy: view.strategy.into(),
            rate_per_second: seen.rate,
            tokens: seen.tokens,
            in_flight: seen.in_flight,
            waiting: seen.waiting,
            latency_ms: Latency {
                ewma: millis(seen.latency_ewma),
                p95: seen.latency_p95.map(millis),
            },
            error_rate: seen.window.error_rate(),
            breaker: Breaker {
                state: seen.breaker.into(),
                until_ms: seen.breaker_until.map(|until| unix_millis(clock, until)),
            },
            consecutive_failures: seen.consecutive_failures,
            hold: seen.hold.map(|(until, source)| Hold {
                until_ms: unix_millis(clock, until),
                reason: hold_reason(source),
                source: source.as_str().to_owned(),
            }),
            counts: Counts {
                admitted: seen.admitted,
                success: seen.succeeded,
                throttled: seen.throttled,
                failed: seen.failed,
            },
            window: Window {
                total: seen.window.total,
                failed: seen.window.failed,
            },
            why: seen.why.to_string(),
        }
    }
}

fn hold_reason(source: Source) -> String {
    match source {
        Source::Assumed => "no wait was named; this one is assumed".to_owned(),
        Source::Body => "the server named a wait in its answer".to_owned(),
        source => format!("the server named a wait in `{source}`"),
    }
}

/// How the rate moves
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Strategy {
    Adaptive,
    Aimd,
    Fixed,
}

impl From<tidegate::Strategy> for Strategy {
    fn from(strategy: tidegate::Strategy) -> Self {
        match strategy {
            tidegate::Strategy::Adaptive => Self::Adaptive,
            tidegate::Strategy::Aimd => Self::Aimd,
            tidegate::Strategy::Fixed => Self::Fixed,
        }
    }
}

/// From sending to the answer's head, in milliseconds
#[derive(Serialize, ToSchema)]
struct Latency {
    /// A moving mean
    ewma: f64,
    /// 95 of 100 took no longer; null before the first answer
    #[schema(required)]
    p95: Option<f64>,
}

/// Whether anybody is let through
#[derive(Serialize, ToSchema)]
struct Breaker {
    #[schema(inline)]
    state: Passing,
    /// The end of the open time in milliseconds of Unix time; null if it is not open
    #[schema(required)]
    until_ms: Option<i64>,
}

/// What a breaker lets through
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Passing {
    Closed,
    Open,
    HalfOpen,
    Isolated,
}

impl From<BreakerState> for Passing {
    fn from(state: BreakerState) -> Self {
        match state {
            BreakerState::Closed => Self::Closed,
            BreakerState::Open => Self::Open,
            BreakerState::HalfOpen => Self::HalfOpen,
            BreakerState::Isolated => Self::Isolated,
        }
    }
}

/// Nobody leaves before a time
#[derive(Serialize, ToSchema)]
struct Hold {
    /// In milliseconds of Unix time
    until_ms: i64,
    /// In words
    reason: String,
    /// The header that named it, `body`, or `assumed`
    source: String,
}

/// What came of attempts, since the gate was made
#[derive(Serialize, ToSchema)]
struct Counts {
    admitted: u32,
    success: u32,
    throttled: u32,
    failed: u32,
}

/// What the breaker goes by
#[derive(Serialize, ToSchema)]
struct Window {
    total: u32,
    failed: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_or_told_what_was_expected() {
        assert_eq!(read_query("").unwrap(), (Sort::Admitted, 100));
        for sort in Sort::ALL {
            let query = format!("limit=7&sort={}", sort.as_str());
            assert_eq!(read_query(&query).unwrap(), (sort, 7));
        }
        let check = |query: &str, expected: &str| {
            assert_eq!(read_query(query).unwrap_err().detail, expected);
        };
        let words = "`admitted`, `waiting`, `in_flight`, `error_rate`, `rate`, `key`";
        check("sort=x", &format!("`sort` is `x`, expected one of {words}"));
        for limit in ["0", "1001", "-1", "+1", "x", ""] {
            let expected = format!("`limit` is `{limit}`, expected a whole number from 1 to 1000");
            check(&format!("limit={}", limit.replace('+', "%2B")), &expected);
        }
        check(
            "page=1",
            "there is no parameter `page`, expected `sort` or `limit`",
        );
    }
}
