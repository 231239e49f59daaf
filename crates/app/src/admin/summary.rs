//! The summary: health, totals, waits, and what needs a person.

#![expect(
    unused_qualifications,
    reason = "the macro of paths names parameters by their whole path"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{RawQuery, State};
use policy::breaker::BreakerState;
use policy::time::Timestamp;
use store::StoreState;
use tidegate::Clock;
use utoipa::IntoParams;

use super::api::AdminState;
use super::bodies::{
    Attention, AttentionKind, BandName, HealthStatus, PoolCounts, Rates, StoreHealth, Summary,
    TotalSeries, Values, WaitingSeries,
};
use super::gates::{STEP_MS, rounded, totals_body};
use super::health;
use super::problem::Refused;
use super::query;
use super::recorder::{BandState, Latest, TotalPoint};
use crate::core::{disabled_text, unix_millis};

/// Health, totals and waits, now and over the last minutes
#[utoipa::path(
    get, operation_id = "showSummary", path = "/api/v1/summary", tag = "requests", params(SummaryQuery),
    responses((status = 200, description = "The summary", body = Summary))
)]
pub(super) async fn summary(
    State(admin): State<Arc<AdminState>>,
    RawQuery(query): RawQuery,
) -> Result<Json<Summary>, Refused> {
    let window = query::window(query.as_deref())?;
    let latest = admin.recorder.latest();
    let (start, points) = admin.recorder.totals(window);
    let state = &admin.state;
    let jobs = state.job_totals().all();
    let attention = AttentionList::new(&admin, &latest);
    let version = admin.version();
    Ok(Json(Summary {
        version: version.version,
        started_ms: version.started_ms,
        health: health::readiness(&admin),
        stores: stores(&admin),
        totals: totals_body(&latest.totals),
        rates: rates(&points),
        waiting_by_reason: latest.waiting.into(),
        operations: operation_counts(&admin),
        jobs: jobs
            .map(|(status, count)| (status.as_str().to_owned(), count))
            .into(),
        pools: attention.pools,
        series: series(state.clock(), start, &points),
        attention: attention.items,
        attention_total: attention.total,
    }))
}

#[derive(Debug, Default, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes the parameters")]
struct SummaryQuery {
    /// How far back
    #[param(
        example = "5m",
        default = "5m",
        pattern = "^([1-9][0-9]s|[1-8][0-9]{2}s|([1-9]|1[0-5])m)$"
    )]
    window: Option<String>,
}

pub(super) fn operation_counts(admin: &AdminState) -> BTreeMap<String, u64> {
    let counts = admin.state.operations().counts().all();
    counts
        .map(|(state, count)| (state.to_owned(), count))
        .into()
}

fn stores(admin: &AdminState) -> Vec<StoreHealth> {
    let problem = |state: StoreState| state.degraded.map(|error| error.to_string());
    let store = admin.state.store();
    let shared = store.shared_state();
    let core = admin.state.core();
    let fleet = core.fleet().map(|it| it.view(core.clock().now()));
    let stores = [
        Some(("SQLite", problem(store.own_state()))),
        shared.map(|state| ("PostgreSQL", problem(state))),
        fleet.map(|view| ("Redis", view.degraded)),
    ];
    let health = |(name, detail): (&str, Option<String>)| {
        let status = match detail {
            None => HealthStatus::Ok,
            Some(_) => HealthStatus::Degraded,
        };
        StoreHealth {
            name: name.to_owned(),
            status: status.as_str().to_owned(),
            detail,
        }
    };
    stores.into_iter().flatten().map(health).collect()
}

/// Means of the last five seconds.
fn rates(points: &[Option<TotalPoint>]) -> Rates {
    let last = &points[points.len().saturating_sub(6)..];
    let last: Vec<&TotalPoint> = last.iter().flatten().rev().take(5).collect();
    if last.is_empty() {
        return Rates::default();
    }
    let mean = |value: fn(&TotalPoint) -> f32| {
        let sum: f64 = last.iter().map(|point| f64::from(value(point))).sum();
        rounded(sum / last.len() as f64)
    };
    Rates {
        requests: mean(|point| point.requests),
        accepted: mean(|point| point.accepted),
        refused: mean(|point| point.refused),
        failed: mean(|point| point.failed),
        retries: mean(|point| point.retries),
    }
}

fn series(clock: &Clock, start: Timestamp, points: &[Option<TotalPoint>]) -> TotalSeries {
    let values = |value: fn(&TotalPoint) -> f64| -> Values {
        let value = |point: &Option<TotalPoint>| point.as_ref().map(|point| rounded(value(point)));
        points.iter().map(value).collect()
    };
    TotalSeries {
        start_ms: unix_millis(clock, start),
        step_ms: STEP_MS,
        requests: values(|point| point.requests.into()),
        accepted: values(|point| point.accepted.into()),
        refused: values(|point| point.refused.into()),
        failed: values(|point| point.failed.into()),
        retries: values(|point| point.retries.into()),
        waiting: values(|point| point.waiting.into()),
        waiting_by_reason: WaitingSeries {
            rate: values(|point| point.waiting_for.rate.into()),
            hold: values(|point| point.waiting_for.hold.into()),
            breaker_open: values(|point| point.waiting_for.breaker_open.into()),
            in_flight: values(|point| point.waiting_for.in_flight.into()),
        },
    }
}

/// What a person may have to decide.
pub(super) struct AttentionList {
    /// Worst first.
    pub(super) items: Vec<Attention>,
    pub(super) total: u64,
    pub(super) pools: PoolCounts,
}

const MAX_ITEMS: usize = 8;

impl AttentionList {
    pub(super) fn new(admin: &AdminState, latest: &Latest) -> Self {
        let mut list = Self {
            items: Vec::new(),
            total: 0,
            pools: PoolCounts::default(),
        };
        list.add_store(admin);
        list.add_gates(admin, latest, BreakerState::Open);
        list.add_endpoints(admin);
        list.add_gates(admin, latest, BreakerState::Isolated);
        list.add_operations(admin);
        // The walk lists few gates, and counts all.
        let listed = latest.refusing.len() as u64;
        list.total += latest.totals.open.saturating_sub(listed);
        list.items.truncate(MAX_ITEMS);
        list
    }

    fn add(&mut self, kind: AttentionKind, text: String, link: String) -> &mut Attention {
        self.total += 1;
        self.items.push(Attention {
            kind,
            key: None,
            pool: None,
            endpoint: None,
            since_ms: None,
            until_ms: None,
            count: None,
            text,
            link,
        });
        self.items.last_mut().expect("one was added")
    }

    fn add_store(&mut self, admin: &AdminState) {
        if let Some(text) = health::store_problem(admin) {
            self.add(AttentionKind::Store, text, "/".to_owned());
        }
    }

    fn add_gates(&mut self, admin: &AdminState, latest: &Latest, state: BreakerState) {
        let clock = admin.state.clock();
        let (kind, band, text) = match state {
            BreakerState::Open => (
                AttentionKind::GateOpen,
                BandState::Open,
                "open: too many attempts failed",
            ),
            _ => (
                AttentionKind::GateIsolated,
                BandState::Isolated,
                "isolated: everything is refused",
            ),
        };
        for (key, _, until) in latest
            .refusing
            .iter()
            .filter(|(_, found, _)| *found == state)
        {
            let since = admin.recorder.since(key, band);
            let item = self.add(kind, format!("{key} {text}"), gate_link(key));
            item.key = Some(key.clone());
            item.since_ms = since.map(|band| unix_millis(clock, band.from));
            item.until_ms = until.map(|until| unix_millis(clock, until));
        }
    }

    fn add_endpoints(&mut self, admin: &AdminState) {
        let now_ms = admin.state.clock().wall().as_unix_millis();
        let configuration = admin.state.configuration();
        for (name, pool) in configuration.pools() {
            self.pools.pools += 1;
            for endpoint in pool.view() {
                self.pools.endpoints += 1;
                self.pools.paused += u64::from(endpoint.paused_until.is_some());
                let Some(why) = endpoint.disabled else {
                    continue;
                };
                self.pools.disabled += 1;
                let text = disabled_text(name, &endpoint.name, why);
                let link = format!("/pools#{}", encoded(name));
                let item = self.add(AttentionKind::EndpointDisabled, text, link);
                item.pool = Some(name.to_owned());
                item.endpoint = Some(endpoint.name);
                let length = endpoint.disabled_for.map(|time| time.as_millis());
                let length = length.and_then(|length| i64::try_from(length).ok());
                item.since_ms = length.map(|length| now_ms - length);
            }
        }
    }

    fn add_operations(&mut self, admin: &AdminState) {
        let counts = admin.state.operations().counts();
        let count = counts.failed + counts.conflict;
        if count > 0 {
            let (failed, conflict) = (counts.failed, counts.conflict);
            let noun = if count == 1 {
                "operation needs"
            } else {
                "operations need"
            };
            let text = format!("{count} {noun} a decision ({failed} failed, {conflict} conflict)");
            let link = "/operations?state=failed,conflict".to_owned();
            self.add(AttentionKind::Operations, text, link).count = Some(count);
        }
    }
}

/// The page of a gate.
fn gate_link(key: &str) -> String {
    let parts: Vec<String> = key.split('/').map(encoded).collect();
    format!("/gates/{}", parts.join("/"))
}

fn encoded(text: &str) -> String {
    let encoded: String = url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
    // In a path a plus is a plus.
    encoded.replace('+', "%20")
}

impl From<BandState> for BandName {
    fn from(state: BandState) -> Self {
        match state {
            BandState::Held => Self::Held,
            BandState::Open => Self::Open,
            BandState::HalfOpen => Self::HalfOpen,
            BandState::Isolated => Self::Isolated,
        }
    }
}
