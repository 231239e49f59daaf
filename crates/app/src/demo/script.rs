//! What the demo does besides sending traffic: it starts a job and follows it, hands over
//! operations, and enables an endpoint, all through the functions that the admin API calls.
//!
//! It plays once in every round. What it did, and what came of it, becomes [facts](super::tour).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{StatusCode, header};
use policy::poll::{JobStatus, Poll, ResponseKind, StatusResponse};
use serde_json::Value;
use store::operations::StoredOperation;
use tidegate::Timestamp;

use super::client::{Client, Disconnected};
use super::plan;
use super::profile::{self, Profile};
use super::site;
use super::tour::{Facts, JobFacts, OperationFacts, Tour};
use crate::jobs::{JobRequest, Jobs};
use crate::state::{OperationRequest, State};

/// Plays the script.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) state: Arc<State>,
    pub(super) jobs: Arc<Jobs>,
    pub(super) tour: Arc<Tour>,
    pub(super) profile: Arc<Profile>,
    pub(super) site_address: SocketAddr,
    pub(super) profile_address: SocketAddr,
    pub(super) admin: SocketAddr,
    /// `Bearer` and the admin token.
    pub(super) authorization: String,
}

/// The pools of the shop and of the profiles.
pub(super) const SHOP: &str = "shop";
pub(super) const PROFILES: &str = "profiles";

/// The types of the operations.
pub(super) const ORDER: &str = "order";
pub(super) const PROFILE_UPDATE: &str = "profile.update";

/// The queries of the orders, which decide what the shop answers, and their backoffs.
const ORDERS: [(&str, Option<&str>); 5] = [
    ("", None),
    ("?invalid", None),
    ("?failures=1", None),
    ("", None),
    ("?failures=2", Some("conservative")),
];

impl Script {
    /// Plays it in every round. Does not end.
    pub(super) async fn run(&self) {
        tokio::select! {
            () = self.watch_operations() => {}
            () = self.play_rounds() => {}
        }
    }

    async fn play_rounds(&self) {
        let mut start = self.state.clock().now();
        self.tour.update(|facts, now| facts.began = now);
        loop {
            let next = start + plan::ROUND;
            let play = async {
                tokio::join!(
                    self.crawl(),
                    self.order(start),
                    self.change_profile(start),
                    self.enable_endpoint(start),
                );
            };
            tokio::select! {
                () = async { play.await; std::future::pending().await } => {}
                () = self.state.clock().sleep_until(next) => {}
            }
            start = next;
            self.tour.update(Facts::next_round);
        }
    }

    async fn sleep_until(&self, at: Timestamp) {
        self.state.clock().sleep_until(at).await;
    }

    /// Starts the crawl and follows it, as its page does.
    async fn crawl(&self) {
        let request = JobRequest {
            urls: vec![format!("http://{}/", self.site_address)],
            crawl: true,
            depth: Some(site::DEPTH),
            same_host: true,
            ..JobRequest::default()
        };
        let started = self.jobs.start(request).await;
        let id = started.as_ref().map(|job| job.id.clone()).ok();
        self.tour.update(|facts, now| {
            let job = started.map(|job| JobFacts {
                id: job.id,
                started_at: now,
                ..JobFacts::default()
            });
            facts.job = Some(job.map_err(|error| error.to_string()));
        });
        if let Some(id) = id {
            self.follow(&id).await;
        }
    }

    async fn follow(&self, id: &str) {
        let authorization = (header::AUTHORIZATION.as_str(), self.authorization.clone());
        let mut client = Client::new(self.admin, authorization);
        let path = format!("/api/v1/jobs/{id}");
        let clock = self.state.clock();
        let mut poll = Poll::new(clock.now());
        loop {
            let response = client.get(&path).await;
            let now = clock.now();
            let job = job_of(&response);
            let response = status_response(&response, job.as_ref());
            let configuration = self.state.configuration();
            let step = poll.after(&configuration.settings().poll, &response, now);
            self.tour.update(|facts, now| {
                let Some(known) = facts.job_mut() else {
                    return;
                };
                known.checks.count(poll.banner(), step.wait, now);
                known.progress = poll.progress().or(known.progress);
                if let Some(job) = job {
                    known.read(&job);
                }
            });
            match step.wait {
                Some(wait) => self.sleep_until(now + wait).await,
                None => return,
            }
        }
    }

    /// Hands over the orders of this round. One that is invalid is left out while an earlier one still
    /// waits for a person.
    async fn order(&self, start: Timestamp) {
        self.sleep_until(start + plan::ORDERS_AT).await;
        let facts = self.tour.facts();
        let round = facts.round + 1;
        for (number, (query, backoff)) in (1..).zip(ORDERS) {
            if query == "?invalid" && !facts.orders.is_empty() {
                continue;
            }
            let body = format!(r#"{{"order":"{round}-{number}","item":"chart of the harbour"}}"#);
            let request = OperationRequest {
                kind: Some(ORDER.to_owned()),
                method: "POST".to_owned(),
                url: format!("/{SHOP}/orders/{round}-{number}{query}"),
                headers: json_headers(),
                body: body.into_bytes(),
                backoff: backoff.map(str::to_owned),
                ..OperationRequest::default()
            };
            let accepted = self.state.accept_operation(request).await;
            if let Ok(accepted) = accepted {
                self.tour.update(|facts, now| {
                    facts.orders.push(operation_facts(&accepted.operation, now));
                });
            }
        }
    }

    /// Lets another program change the profile, and hands over a change of the version before. Does
    /// nothing while an earlier conflict waits for a decision.
    async fn change_profile(&self, start: Timestamp) {
        self.sleep_until(start + plan::PROFILE_AT).await;
        if self.tour.facts().profile.is_some() {
            return;
        }
        let tag = self.profile.change_elsewhere();
        let mut headers = json_headers();
        headers.push((header::IF_MATCH.to_string(), tag));
        let request = OperationRequest {
            kind: Some(PROFILE_UPDATE.to_owned()),
            method: "PUT".to_owned(),
            url: format!("/{PROFILES}/ada"),
            headers,
            body: profile::bytes_of(&profile::ours()).into(),
            base: Some(profile::bytes_of(&profile::base()).into()),
            resource: Some(format!("http://{}/ada", self.profile_address)),
            ..OperationRequest::default()
        };
        if let Ok(accepted) = self.state.accept_operation(request).await {
            self.tour.update(|facts, now| {
                facts.profile = Some(operation_facts(&accepted.operation, now));
            });
        }
    }

    /// Enables the endpoint that was disabled, in place of a person.
    async fn enable_endpoint(&self, start: Timestamp) {
        self.sleep_until(start + plan::ENABLE_AT).await;
        let endpoint = self.tour.facts().endpoint;
        if endpoint.disabled_at.is_none() || endpoint.enabled_at.is_some() {
            return;
        }
        let (pool, name) = (plan::POOL, plan::FAILING_ENDPOINT);
        self.tour
            .update(|facts, _| facts.endpoint.is_enabled_by_script = true);
        if self.state.switch_endpoint(pool, name, true).await.is_err() {
            self.tour
                .update(|facts, _| facts.endpoint.is_enabled_by_script = false);
        }
    }

    /// Reads the state of the operations that may still change.
    async fn watch_operations(&self) {
        loop {
            tokio::time::sleep(WATCH_EVERY).await;
            let mut facts = self.tour.facts();
            for known in facts.open_operations() {
                let Ok(Some(operation)) = self.state.operations().get(&known.id).await else {
                    continue;
                };
                self.tour.update(|facts, now| {
                    let known = facts
                        .open_operations()
                        .find(|known| known.id == operation.id);
                    if let Some(known) = known {
                        known.read(&operation, now);
                    }
                });
            }
        }
    }
}

const WATCH_EVERY: Duration = Duration::from_millis(250);

fn json_headers() -> Vec<(String, String)> {
    let media_type = "application/json".to_owned();
    vec![(header::CONTENT_TYPE.to_string(), media_type)]
}

fn operation_facts(operation: &StoredOperation, now: Duration) -> OperationFacts {
    OperationFacts {
        id: operation.id.clone(),
        state: operation.state,
        sent: operation.counters.sent,
        since: now,
    }
}

impl OperationFacts {
    fn read(&mut self, operation: &StoredOperation, now: Duration) {
        if self.state != operation.state {
            self.since = now;
        }
        self.state = operation.state;
        self.sent = operation.counters.sent;
    }
}

type StatusResult = Result<(StatusCode, bytes::Bytes), Disconnected>;

/// The job in a response.
fn job_of(response: &StatusResult) -> Option<Value> {
    let (status, body) = response.as_ref().ok()?;
    let job = serde_json::from_slice(body).ok();
    job.filter(|_| status.is_success())
}

fn status_response(response: &StatusResult, job: Option<&Value>) -> StatusResponse {
    let kind = match response {
        Ok((StatusCode::TOO_MANY_REQUESTS, _)) => ResponseKind::Throttled { wait: None },
        Ok((StatusCode::NOT_FOUND, _)) => ResponseKind::NotFound,
        Ok((status, _)) if status.is_success() => ResponseKind::Success,
        _ => ResponseKind::Failed { wait: None },
    };
    let job = job.map(|job| match job["status"].as_str() {
        Some("done") => JobStatus::Done,
        Some("error" | "cancelled") => JobStatus::Failed,
        _ => JobStatus::Running {
            progress: job["progress"].as_f64(),
        },
    });
    StatusResponse { kind, job }
}

impl JobFacts {
    fn read(&mut self, job: &Value) {
        let text = |field: &str| job[field].as_str().map(str::to_owned);
        self.stage = text("stage");
        self.progress = job["progress"].as_f64();
        self.end = text("status").filter(|status| !matches!(&**status, "queued" | "running"));
    }
}
