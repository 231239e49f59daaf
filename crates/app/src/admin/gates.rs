//! Gates: their state, and a person's override.

#![expect(
    unused_qualifications,
    reason = "the macro of paths names parameters by their whole path"
)]

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use policy::gate::GateSnapshot;
use policy::hint::Source;
use policy::key;
use policy::rate::Phase;
use policy::suggest::suggestion;
use serde::Deserialize;
use tidegate::{Clock, GateOverride, GateView, Snapshot, Sort};
use utoipa::IntoParams;

use super::api::AdminState;
use super::bodies::{
    Breaker, Counts, Gate, GateList, GateSort, GateTotals, Hold, Latency, Problem, Window,
};
use super::problem::{Kind, Refused};
use crate::core::Core;
use crate::core::{millis, unix_millis};

/// Every gate, or the first of many
#[utoipa::path(
    get, operation_id = "listGates", path = "/api/v1/gates", tag = "gates", params(ListQuery),
    responses((status = 200, description = "Totals, and gates in the order that was asked for", body = GateList))
)]
pub(super) async fn list(
    State(admin): State<Arc<AdminState>>,
    RawQuery(query): RawQuery,
) -> Result<Json<GateList>, Refused> {
    let (sort, limit) = read_query(query.as_deref().unwrap_or_default())?.resolved();
    let limiter = admin.state.limiter();
    Ok(Json(list_body(
        limiter.snapshot(sort, limit),
        limiter.clock(),
    )))
}

/// One gate
#[utoipa::path(
    get, operation_id = "showGate", path = "/api/v1/gates/{key}", tag = "gates", params(GatePath),
    responses((status = 200, description = "The gate", body = Gate))
)]
pub(super) async fn show(
    State(admin): State<Arc<AdminState>>,
    Path(GatePath { key }): Path<GatePath>,
) -> Result<Json<Gate>, Refused> {
    gate(&admin, &key).map(Json)
}

/// Reset a gate
///
/// Rate, hold, breaker and counts start again; attempts in flight and callers in line stay.
#[utoipa::path(
    post, operation_id = "resetGate", path = "/api/v1/gates/{key}/reset", tag = "gates", params(GatePath),
    responses(
        (status = 200, description = "The gate afterwards", body = Gate),
        (status = 503, description = "It cannot be stored, so nothing was changed", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn reset(
    State(admin): State<Arc<AdminState>>,
    Path(GatePath { key }): Path<GatePath>,
) -> Result<Json<Gate>, Refused> {
    override_gate(&admin, &key, GateOverride::Reset).await
}

/// Isolate a gate: refuse everything until it is released or reset
#[utoipa::path(
    post, operation_id = "isolateGate", path = "/api/v1/gates/{key}/isolate", tag = "gates", params(GatePath),
    responses(
        (status = 200, description = "The gate afterwards", body = Gate),
        (status = 503, description = "It cannot be stored, or there is no room for another gate, so nothing was changed", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn isolate(
    State(admin): State<Arc<AdminState>>,
    Path(GatePath { key }): Path<GatePath>,
) -> Result<Json<Gate>, Refused> {
    if !can_exist(&admin, &key) {
        return Err(no_gate(&admin, &key));
    }
    override_gate(&admin, &key, GateOverride::Isolate).await
}

/// Release a gate: end hold, open breaker and isolation
///
/// Callers in line leave at the learned rate.
#[utoipa::path(
    post, operation_id = "releaseGate", path = "/api/v1/gates/{key}/release", tag = "gates", params(GatePath),
    responses(
        (status = 200, description = "The gate afterwards", body = Gate),
        (status = 503, description = "It cannot be stored, so nothing was changed", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn release(
    State(admin): State<Arc<AdminState>>,
    Path(GatePath { key }): Path<GatePath>,
) -> Result<Json<Gate>, Refused> {
    override_gate(&admin, &key, GateOverride::Release).await
}

async fn override_gate(
    admin: &AdminState,
    key: &str,
    change: GateOverride,
) -> Result<Json<Gate>, Refused> {
    admin.state.override_gate(key, change).await?;
    gate(admin, key).map(Json)
}

fn gate(admin: &AdminState, key: &str) -> Result<Gate, Refused> {
    let limiter = admin.state.limiter();
    let view = limiter.gate(key).ok_or_else(|| no_gate(admin, key))?;
    Ok(gate_body(view, limiter.clock()))
}

/// A gate may be isolated before its first request, if there can be one of that key.
fn can_exist(admin: &AdminState, key: &str) -> bool {
    if admin.state.limiter().gate(key).is_some() {
        return true;
    }
    let configuration = admin.state.configuration();
    match key.split_once('/') {
        Some((pool, endpoint)) => configuration
            .pool(pool)
            .is_some_and(|pool| pool.view().iter().any(|known| known.name == endpoint)),
        None => key::normalize(key).is_ok_and(|normal| normal == key),
    }
}

fn no_gate(admin: &AdminState, key: &str) -> Refused {
    let first = admin.state.limiter().snapshot(Sort::Admitted, 1000).gates;
    let keys: Vec<&str> = first.iter().map(|gate| gate.key.as_str()).collect();
    let close = suggestion(key, &keys).map_or_else(
        || "gates come with their first request".to_owned(),
        |close| format!("did you mean `{close}`?"),
    );
    let key: String = key.chars().take(200).collect();
    Refused::not_found(format!("there is no gate `{key}`; {close}"))
}

/// The key of a gate in the path.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct GatePath {
    /// What the gate is for: `pool/endpoint` or `host[:port]`, with or without `%2F` for `/`
    #[param(example = "llm/a", min_length = 1)]
    key: String,
}

#[derive(Debug, Default, IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// The figure to sort by, highest first; by default `admitted`
    #[param(inline)]
    sort: Option<GateSort>,
    /// The most gates to list
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<usize>,
}

impl ListQuery {
    fn resolved(&self) -> (Sort, usize) {
        let sort = self.sort.map_or_else(Sort::default, Sort::from);
        (sort, self.limit.unwrap_or(100))
    }
}

const MAX_LISTED: usize = 1000;

fn read_query(query: &str) -> Result<ListQuery, Refused> {
    let mut read = ListQuery::default();
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        let value = value.trim();
        let result = match &*name {
            "sort" => read_sort(value).map(|sort| read.sort = Some(sort)),
            "limit" => read_limit(value).map(|limit| read.limit = Some(limit)),
            other => {
                let other: String = other.chars().take(100).collect();
                let detail = format!("there is no parameter `{other}`, expected `sort` or `limit`");
                return Err(Refused::new(Kind::BadRequest, detail));
            }
        };
        result.map_err(|expected| {
            let value: String = value.chars().take(100).collect();
            let detail = format!("`{name}` is `{value}`, expected {expected}");
            Refused::new(Kind::BadRequest, detail)
        })?;
    }
    Ok(read)
}

fn read_sort(text: &str) -> Result<GateSort, String> {
    serde_json::from_value(text.into()).map_err(|_| {
        let words = Sort::ALL.map(|sort| format!("`{}`", sort.as_str()));
        format!("one of {}", words.join(", "))
    })
}

fn read_limit(text: &str) -> Result<usize, String> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let limit = text.parse().ok();
    limit
        .filter(|limit| is_plain && (1..=MAX_LISTED).contains(limit))
        .ok_or_else(|| format!("a whole number from 1 to {MAX_LISTED}"))
}

/// At most `limit` gates, those with the most permits first, and all of them together.
pub fn gate_list(core: &Core, limit: usize) -> GateList {
    let seen = core.limiter().snapshot(Sort::Admitted, limit);
    list_body(seen, core.clock())
}

fn list_body(seen: Snapshot, clock: &Clock) -> GateList {
    let totals = seen.totals;
    let gates = seen.gates.into_iter();
    GateList {
        totals: GateTotals {
            requests: totals.requests,
            throttled: totals.throttled,
            denied: totals.denied,
            retries: totals.retries,
            open: totals.open,
            half_open: totals.half_open,
            gates: totals.gates,
            evicted: totals.evicted,
        },
        gates: gates.map(|view| gate_body(view, clock)).collect(),
    }
}

fn gate_body(view: GateView, clock: &Clock) -> Gate {
    let seen = view.gate;
    Gate {
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
        phase: seen.phase.map(Into::into),
        ceiling: seen.ceiling,
        why: why(&seen),
    }
}

fn hold_reason(source: Source) -> String {
    match source {
        Source::Assumed => "the server named no wait; this one is assumed".to_owned(),
        Source::Body => "the server named a wait in its response".to_owned(),
        source => format!("the server named a wait in `{source}`"),
    }
}

/// What the rate is doing, and what moved it last.
fn why(seen: &GateSnapshot) -> String {
    let ceiling = seen.ceiling.unwrap_or_default();
    let phase = match seen.phase {
        None => return seen.why.to_string(),
        Some(Phase::Searching) => "searching for the limit: no rate was refused yet".to_owned(),
        Some(Phase::Rising) => format!("rising to the ceiling of {ceiling:.2}/s"),
        Some(Phase::Staying) => format!("staying near the ceiling of {ceiling:.2}/s"),
        Some(Phase::Probing) => format!("probing above the ceiling of {ceiling:.2}/s"),
    };
    format!("{phase}; {}", seen.why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_query_or_says_what_is_expected() {
        let listing = |query: &str| read_query(query).unwrap().resolved();
        assert_eq!(listing(""), (Sort::Admitted, 100));
        for sort in Sort::ALL {
            let query = format!("limit=7&sort={}", sort.as_str());
            assert_eq!(listing(&query), (sort, 7));
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
