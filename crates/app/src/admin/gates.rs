//! Gates: their state, and a person's override.

#![expect(
    unused_qualifications,
    reason = "the macro of paths names parameters by their whole path"
)]

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use policy::breaker::BreakerState;
use policy::gate::GateSnapshot;
use policy::hint::Source;
use policy::key;
use policy::suggest::suggestion;
use serde::Deserialize;
use tidegate::fleet::MemberView;
use tidegate::{Clock, GateOverride, GateView, Sort, Totals};
use utoipa::IntoParams;

use super::api::AdminState;
use super::bodies::{
    Band, Breaker, CostLimit, Counts, FleetShare, Gate, GateFilter, GateHistory, GateList,
    GateServer, GateServers, GateSort, GateTotals, Hold, Latency, Problem, RateChange, Values,
    Waiting, Window,
};
use super::problem::{Kind, Refused};
use super::query;
use super::recorder::{self, BandState, GatePoint, PerSecond, Recorder, WaitingByReason};
use crate::core::Core;
use crate::core::{millis, unix_millis};

/// Every gate, or a part of many
#[utoipa::path(
    get, operation_id = "listGates", path = "/api/v1/gates", tag = "gates", params(ListQuery),
    responses((status = 200, description = "Totals of all gates, and those that match in the order that was asked for", body = GateList))
)]
pub(super) async fn list(
    State(admin): State<Arc<AdminState>>,
    RawQuery(query): RawQuery,
) -> Result<Json<GateList>, Refused> {
    let query = read_query(query.as_deref().unwrap_or_default())?;
    Ok(Json(query.run(&admin)))
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

/// A gate over the last minutes
///
/// One value for each second. A gate that is asked for is recorded from then on, as are the
/// busiest ones; at most 256 at a time, for a quarter of an hour.
#[utoipa::path(
    get, operation_id = "showGateHistory", path = "/api/v1/gates/{key}/history", tag = "gates",
    params(GatePath, HistoryQuery),
    responses((status = 200, description = "What was recorded", body = GateHistory))
)]
pub(super) async fn history(
    State(admin): State<Arc<AdminState>>,
    Path(GatePath { key }): Path<GatePath>,
    RawQuery(query): RawQuery,
) -> Result<Json<GateHistory>, Refused> {
    let window = query::window(query.as_deref())?;
    if admin.state.limiter().gate(&key).is_none() {
        return Err(no_gate(&admin, &key));
    }
    let (start, recorded) = admin.recorder.history(&key, window);
    Ok(Json(history_body(
        key,
        admin.state.clock(),
        start,
        recorded,
    )))
}

/// The share of each server
///
/// Of a gate that several servers share through Redis: every server that has asked for it lately.
#[utoipa::path(
    get, operation_id = "listGateServers", path = "/api/v1/gates/{key}/servers", tag = "gates", params(GatePath),
    responses(
        (status = 200, description = "The servers", body = GateServers),
        (status = 503, description = "Redis does not answer", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn servers(
    State(admin): State<Arc<AdminState>>,
    Path(GatePath { key }): Path<GatePath>,
) -> Result<Json<GateServers>, Refused> {
    if admin.state.limiter().gate(&key).is_none() {
        return Err(no_gate(&admin, &key));
    }
    let servers = read_servers(&admin, &key).await;
    let servers = servers.map_err(|detail| Refused::new(Kind::StoreUnavailable, detail))?;
    Ok(Json(GateServers { servers }))
}

#[cfg(feature = "redis")]
async fn read_servers(admin: &AdminState, key: &str) -> Result<Vec<GateServer>, String> {
    let configuration = admin.state.configuration();
    let shares = crate::fleet::servers(configuration.settings(), key).await?;
    let body = |share: store::NodeShare| GateServer {
        server: share.about,
        share: rounded(share.share),
        demand_per_second: rounded(share.demand),
    };
    Ok(shares.into_iter().map(body).collect())
}

/// Without Redis no gate is shared.
#[cfg(not(feature = "redis"))]
async fn read_servers(_: &AdminState, _: &str) -> Result<Vec<GateServer>, String> {
    Ok(Vec::new())
}

/// Reset a gate
///
/// Rate, hold, breaker and counts start again; attempts in flight and callers in line stay. A gate that
/// a fleet shares is reset on all servers.
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
///
/// A gate that a fleet shares is isolated on all servers.
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
    override_gate(&admin, &key, GateOverride::Isolate).await
}

/// Release a gate: end hold, open breaker and isolation
///
/// Callers in line leave at the learned rate. A gate that a fleet shares is released on all servers.
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
    if !can_exist(admin, key) {
        return Err(no_gate(admin, key));
    }
    admin.state.override_gate(key, change).await?;
    gate(admin, key).map(Json)
}

fn gate(admin: &AdminState, key: &str) -> Result<Gate, Refused> {
    let limiter = admin.state.limiter();
    let view = limiter.gate(key).ok_or_else(|| no_gate(admin, key))?;
    let settings = limiter.gate_settings(key);
    let (seen, clock) = (view.gate, limiter.clock());
    admin.recorder.watch(&view.key);
    let mut gate = recorded_gate(view, clock, &admin.recorder);
    if let Some(settings) = settings {
        let (min, max) = settings.rate_bounds();
        gate.initial_rate = Some(settings.initial_rate());
        (gate.min_rate, gate.max_rate) = (Some(min), Some(max));
        gate.max_in_flight = Some(settings.max_in_flight());
        let limits = settings.known_limits().iter();
        gate.limits = Some(limits.map(ToString::to_string).collect());
    }
    let leaves_at = seen.first_leaves.map(|at| unix_millis(clock, at));
    gate.first_leaves_ms = Some(leaves_at);
    gate.waiting_by_reason = Some(WaitingByReason::of(&seen).into());
    Ok(gate)
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

pub(super) fn no_gate(admin: &AdminState, key: &str) -> Refused {
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
    pub(super) key: String,
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
    /// How many to leave out at the beginning
    #[param(minimum = 0, maximum = 1_000_000_000, default = 0)]
    offset: usize,
    /// A part of the key, in any case
    filter: String,
    /// The state of the gates to list
    #[param(inline)]
    state: Option<GateFilter>,
    /// With what was accepted in each second of the last minute
    #[param(default = false)]
    recent: bool,
}

#[derive(Debug, Default, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes the parameters")]
struct HistoryQuery {
    /// How far back
    #[param(
        example = "5m",
        default = "5m",
        pattern = "^([1-9][0-9]s|[1-8][0-9]{2}s|([1-9]|1[0-5])m)$"
    )]
    window: Option<String>,
}

impl ListQuery {
    fn run(&self, admin: &AdminState) -> GateList {
        let limiter = admin.state.limiter();
        let sort = self.sort.unwrap_or(GateSort::Admitted);
        let filter = self.filter.to_lowercase();
        let figures = admin.recorder.figures();
        let seen = limiter.select(self.offset, self.limit.unwrap_or(100), |key, gate| {
            let is_listed =
                contains(key, &filter) && self.state.is_none_or(|state| state.lists(gate));
            is_listed.then(|| sort.weight(gate, || figures.per_second(key, gate)))
        });
        drop(figures);
        let clock = limiter.clock();
        let mut list = GateList {
            totals: totals_body(&seen.totals),
            total: seen.matching as u64,
            gates: Vec::with_capacity(seen.gates.len()),
        };
        for view in seen.gates {
            let mut gate = recorded_gate(view, clock, &admin.recorder);
            gate.recent = self.recent.then(|| admin.recorder.recent(&gate.key));
            list.gates.push(gate);
        }
        list
    }
}

/// Is `part`, in lower case, in the key in any case?
fn contains(key: &str, part: &str) -> bool {
    part.is_empty() || key.contains(part) || key.to_lowercase().contains(part)
}

impl GateSort {
    /// The weight of a gate, before its key; higher comes first.
    fn weight(self, gate: &GateSnapshot, per_second: impl FnOnce() -> PerSecond) -> f64 {
        match self {
            Self::Admitted => f64::from(gate.admitted),
            Self::Waiting => f64::from(gate.waiting),
            Self::InFlight => f64::from(gate.in_flight),
            Self::ErrorRate => gate.window.error_rate(),
            Self::Rate => gate.rate,
            Self::Key => 0.0,
            Self::Accepted => per_second().accepted,
            Self::Refused => per_second().refused,
            Self::P95 => gate.latency_p95.map_or(-1.0, millis),
            Self::Until => {
                let hold = gate.hold.map(|(until, _)| until);
                let until = hold.max(gate.breaker_until);
                until.map_or(-1.0, |until| until.seconds_since(Default::default()))
            }
        }
    }
}

impl GateFilter {
    fn lists(self, gate: &GateSnapshot) -> bool {
        match self {
            Self::Attention => gate.hold.is_some() || gate.breaker != BreakerState::Closed,
            Self::Open => gate.breaker == BreakerState::Open,
            Self::HalfOpen => gate.breaker == BreakerState::HalfOpen,
            Self::Held => gate.hold.is_some(),
            Self::Isolated => gate.breaker == BreakerState::Isolated,
        }
    }
}

const NAMES: [&str; 6] = ["sort", "limit", "offset", "filter", "state", "recent"];

fn read_query(text: &str) -> Result<ListQuery, Refused> {
    let mut read = ListQuery::default();
    query::read(Some(text), &NAMES, |name, value| {
        Some(match name {
            "sort" => query::word(value, GateSort::ALL, GateSort::as_str)
                .map(|sort| read.sort = Some(sort)),
            "limit" => query::limit(value).map(|limit| read.limit = Some(limit)),
            "offset" => query::offset(value).map(|offset| read.offset = offset),
            "filter" => {
                read.filter = value.to_owned();
                Ok(())
            }
            "state" => query::word(value, GateFilter::ALL, GateFilter::as_str)
                .map(|state| read.state = Some(state)),
            "recent" => query::flag(value).map(|recent| read.recent = recent),
            _ => return None,
        })
    })?;
    Ok(read)
}

/// At most `limit` gates, those with the most permits first, and all of them together. Nothing is
/// recorded of them.
pub fn gate_list(core: &Core, limit: usize) -> GateList {
    let seen = core.limiter().snapshot(Sort::Admitted, limit);
    let gates = seen.gates.into_iter();
    GateList {
        totals: totals_body(&seen.totals),
        total: seen.matching as u64,
        gates: gates
            .map(|view| gate_body(view, core.clock(), PerSecond::default()))
            .collect(),
    }
}

pub(super) fn totals_body(totals: &Totals) -> GateTotals {
    GateTotals {
        requests: totals.requests,
        throttled: totals.throttled,
        denied: totals.denied,
        retries: totals.retries,
        open: totals.open,
        half_open: totals.half_open,
        gates: totals.gates,
        evicted: totals.evicted,
        held: totals.held,
        isolated: totals.isolated,
        waiting: totals.waiting,
        in_flight: totals.in_flight,
    }
}

/// A gate with what is recorded of it.
pub(super) fn recorded_gate(view: GateView, clock: &Clock, recorder: &Recorder) -> Gate {
    let per_second = recorder.figures().per_second(&view.key, &view.gate);
    let window = view.gate.window;
    let mut gate = gate_body(view, clock, per_second);
    if let Some(hold) = &mut gate.hold {
        let band = recorder.since(&gate.key, BandState::Held);
        hold.since_ms = band.map(|band| unix_millis(clock, band.from));
    }
    let state = match gate.breaker.state.into() {
        BreakerState::Closed => return gate,
        BreakerState::Open => BandState::Open,
        BreakerState::HalfOpen => BandState::HalfOpen,
        BreakerState::Isolated => BandState::Isolated,
    };
    let band = recorder.since(&gate.key, state);
    gate.breaker.since_ms = band.map(|band| unix_millis(clock, band.from));
    gate.breaker.reason = match (state, band) {
        (BandState::Isolated, Some(band)) if band.by_person => {
            Some("isolated by a person".to_owned())
        }
        (BandState::Isolated, Some(_)) => Some("a quota is used up".to_owned()),
        (BandState::Isolated, None) => None,
        _ if gate.consecutive_failures > 1 => {
            Some(format!("{} failures in a row", gate.consecutive_failures))
        }
        _ if window.total > 0 => Some(format!(
            "{} of {} attempts failed",
            window.failed, window.total
        )),
        _ => None,
    };
    gate
}

/// What a shared gate does and why. The sentence is about the rate of the fleet, and the part of this
/// server follows.
fn shared_text(seen: &GateSnapshot, fleet: &MemberView) -> String {
    let mut whole = *seen;
    whole.rate = fleet.rate;
    let share = (100.0 * fleet.share).round();
    let servers = match fleet.active {
        1 => "the only server".to_owned(),
        number => format!("one of {number} servers"),
    };
    let without = match fleet.is_degraded {
        true => ", and continues with that while Redis does not answer",
        false => "",
    };
    match seen.breaker {
        BreakerState::Closed => {
            format!("{whole}; this is {servers} and has {share} % of the rate{without}")
        }
        // Nothing is sent, whatever the rate.
        BreakerState::Open | BreakerState::HalfOpen | BreakerState::Isolated => whole.to_string(),
    }
}

fn gate_body(view: GateView, clock: &Clock, per_second: PerSecond) -> Gate {
    let seen = view.gate;
    let why = match &view.fleet {
        None => seen.to_string(),
        Some(fleet) => shared_text(&seen, fleet),
    };
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
            since_ms: None,
            reason: None,
        },
        consecutive_failures: seen.consecutive_failures,
        hold: seen.hold.map(|(until, source)| Hold {
            until_ms: unix_millis(clock, until),
            since_ms: None,
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
        cost: seen.cost.map(|cost| CostLimit {
            per_second: rounded(cost.rate),
            ceiling: cost.ceiling.map(rounded),
            available: rounded(cost.available),
            mean: rounded(cost.mean),
        }),
        why,
        fleet: view.fleet.map(|fleet| FleetShare {
            rate_per_second: fleet.rate,
            share: fleet.share,
            servers: fleet.active,
            is_owner: fleet.is_owner,
            is_degraded: fleet.is_degraded,
        }),
        accepted_per_second: rounded(per_second.accepted),
        refused_per_second: rounded(per_second.refused),
        failed_per_second: rounded(per_second.failed),
        recent: None,
        initial_rate: None,
        min_rate: None,
        max_rate: None,
        max_in_flight: None,
        limits: None,
        first_leaves_ms: None,
        waiting_by_reason: None,
    }
}

/// To the thousandth: more digits are noise, and cost bytes in every list.
pub(super) fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

impl From<WaitingByReason> for Waiting {
    fn from(waiting: WaitingByReason) -> Self {
        Self {
            rate: waiting.rate,
            hold: waiting.hold,
            breaker_open: waiting.breaker_open,
            in_flight: waiting.in_flight,
        }
    }
}

fn history_body(
    key: String,
    clock: &Clock,
    start: policy::time::Timestamp,
    recorded: recorder::GateHistory,
) -> GateHistory {
    let values = |value: fn(&GatePoint) -> f32| -> Values {
        let points = recorded.points.iter();
        let value = |point: &Option<GatePoint>| {
            let value = f64::from(value(point.as_ref()?));
            value.is_finite().then(|| rounded(value))
        };
        points.map(value).collect()
    };
    let band = |band: &recorder::Band| Band {
        state: band.state.into(),
        from_ms: unix_millis(clock, band.from),
        to_ms: band.to.map(|to| unix_millis(clock, to)),
        source: band.source.map(|source| source.as_str().to_owned()),
    };
    let change = |change: &recorder::RateChange| RateChange {
        at_ms: unix_millis(clock, change.at),
        from: rounded(change.from),
        to: rounded(change.to),
        why: change_text(change),
    };
    GateHistory {
        start_ms: unix_millis(clock, start),
        step_ms: STEP_MS,
        rate: values(|point| point.rate),
        ceiling: values(|point| point.ceiling),
        accepted: values(|point| point.accepted),
        refused: values(|point| point.refused),
        failed: values(|point| point.failed),
        latency_ms: values(|point| point.latency_ms),
        p95_ms: values(|point| point.p95_ms),
        waiting: values(|point| point.waiting as f32),
        in_flight: values(|point| point.in_flight as f32),
        bands: recorded.bands.iter().map(band).collect(),
        changes: recorded.changes.iter().map(change).collect(),
        key,
    }
}

/// Milliseconds between two points.
pub(super) const STEP_MS: i64 = 1000;

/// Within a second the rate may have moved both ways; then the reason is that of the last step.
fn change_text(change: &recorder::RateChange) -> String {
    let why = change.why.to_string();
    match change.is_rise() {
        true if why.starts_with("lowered") => format!("raised, then {why}"),
        false if why.starts_with("raised") => format!("lowered, then {why}"),
        _ => why,
    }
}

fn hold_reason(source: Source) -> String {
    match source {
        Source::Assumed => "the server named no wait; this one is assumed".to_owned(),
        Source::Counted => "the window has accepted as many requests as those before".to_owned(),
        Source::Body => "the server named a wait in its response".to_owned(),
        source => format!("the server named a wait in `{source}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_query_or_says_what_is_expected() {
        let read = read_query("limit=7&offset=50&filter=LLM&state=held&recent=true").unwrap();
        assert_eq!((read.limit, read.offset, read.recent), (Some(7), 50, true));
        assert_eq!((&*read.filter, read.state), ("LLM", Some(GateFilter::Held)));
        for sort in GateSort::ALL {
            let read = read_query(&format!("sort={}", sort.as_str())).unwrap();
            assert_eq!(read.sort, Some(*sort));
        }
        let check = |query: &str, expected: &str| {
            assert_eq!(read_query(query).unwrap_err().detail, expected);
        };
        let words = "`admitted`, `waiting`, `in_flight`, `error_rate`, `rate`, `key`, `accepted`, \
                     `refused`, `p95`, `until`";
        check("sort=x", &format!("`sort` is `x`, expected one of {words}"));
        for limit in ["0", "1001", "-1", "+1", "x", ""] {
            let expected = format!("`limit` is `{limit}`, expected a whole number from 1 to 1000");
            check(&format!("limit={}", limit.replace('+', "%2B")), &expected);
        }
        check("recent=1", "`recent` is `1`, expected `true` or `false`");
        check(
            "page=1",
            "there is no parameter `page`, expected `sort`, `limit`, `offset`, `filter`, `state` or `recent`",
        );
    }

    #[test]
    fn finds_a_part_of_a_key_in_any_case() {
        assert!(contains("llm/A", "") && contains("llm/A", "/a") && contains("LLM/a", "llm"));
        assert!(!contains("llm/a", "b"));
    }

    #[test]
    fn says_both_directions_of_a_second() {
        let change = |to: f64, why| {
            change_text(&recorder::RateChange {
                at: Default::default(),
                from: 10.0,
                to,
                why,
            })
        };
        use policy::rate::Why;
        assert_eq!(change(5.0, Why::Throttled), "lowered: the server refused");
        assert_eq!(
            change(12.0, Why::Throttled),
            "raised, then lowered: the server refused"
        );
    }
}
