//! The calls of the admin API, each with the types of its bodies.

use http::header::AUTHORIZATION;
use http::{HeaderMap, Method};
use url::Url;

use super::transport::{Transport, bearer};
use super::{Client, ClientError};
use crate::admin::bodies::{
    AcceptedOperation, AddEndpoint, AddOperation, BulkAction, BulkResult, ChangeProtection,
    Conflict, Endpoint, Explanation, Gate, GateList, GateServers, GateSort, Health, Job, JobList,
    Operation, OperationList, Pool, PoolList, Protection, Reason, ResolveOperation, Scenario,
    StartJob, StartedJob, StateName, SwitchEndpoint, TestResult, TestRun,
};
use crate::admin::pools::encoded;

impl Client {
    /// The first `limit` gates, sorted, and all of them together.
    pub async fn gates(&self, sort: GateSort, limit: u32) -> Result<GateList, ClientError> {
        let path = format!("/api/v1/gates?sort={}&limit={limit}", sort.as_str());
        self.get(&path).await
    }

    /// One gate.
    pub async fn gate(&self, key: &str) -> Result<Gate, ClientError> {
        self.get(&format!("/api/v1/gates/{}", encoded(key))).await
    }

    /// What each server of a fleet has of a gate.
    pub async fn gate_servers(&self, key: &str) -> Result<GateServers, ClientError> {
        self.get(&format!("/api/v1/gates/{}/servers", encoded(key)))
            .await
    }

    /// Overrides a gate; the gate afterwards.
    pub async fn override_gate(&self, key: &str, action: GateAction) -> Result<Gate, ClientError> {
        let path = format!("/api/v1/gates/{}/{}", encoded(key), action.as_str());
        self.call(Method::POST, &path, NO_BODY).await
    }

    /// All pools.
    pub async fn pools(&self) -> Result<PoolList, ClientError> {
        self.get("/api/v1/pools").await
    }

    /// One pool.
    pub async fn pool(&self, pool: &str) -> Result<Pool, ClientError> {
        self.get(&pool_path(pool)).await
    }

    /// Adds an endpoint to a pool; the endpoint.
    pub async fn add_endpoint(
        &self,
        pool: &str,
        endpoint: &AddEndpoint,
    ) -> Result<Endpoint, ClientError> {
        let path = format!("{}/endpoints", pool_path(pool));
        self.call(Method::POST, &path, Some(endpoint)).await
    }

    /// Enables or disables an endpoint; the endpoint afterwards.
    pub async fn switch_endpoint(
        &self,
        pool: &str,
        name: &str,
        enabled: bool,
    ) -> Result<Endpoint, ClientError> {
        let body = SwitchEndpoint { enabled };
        let path = endpoint_path(pool, name);
        self.call(Method::PATCH, &path, Some(&body)).await
    }

    /// Removes an endpoint.
    pub async fn remove_endpoint(&self, pool: &str, name: &str) -> Result<(), ClientError> {
        let path = endpoint_path(pool, name);
        self.call(Method::DELETE, &path, NO_BODY).await
    }

    /// Changes the protection of a pool; all of it afterwards.
    pub async fn change_protection(
        &self,
        pool: &str,
        changes: &ChangeProtection,
    ) -> Result<Protection, ClientError> {
        let path = format!("{}/protection", pool_path(pool));
        self.call(Method::PUT, &path, Some(changes)).await
    }

    /// Resets the protection of a pool; all of it afterwards.
    pub async fn reset_protection(&self, pool: &str) -> Result<Protection, ClientError> {
        let path = format!("{}/protection/reset", pool_path(pool));
        self.call(Method::POST, &path, NO_BODY).await
    }

    /// What the protection of a pool would do.
    pub async fn test_protection(
        &self,
        pool: &str,
        scenario: Scenario,
    ) -> Result<TestResult, ClientError> {
        let path = format!("{}/test", pool_path(pool));
        self.call(Method::POST, &path, Some(&TestRun { scenario }))
            .await
    }

    /// Hands over a request to deliver.
    pub async fn add_operation(
        &self,
        operation: &AddOperation,
    ) -> Result<AcceptedOperation, ClientError> {
        self.call(Method::POST, OPERATIONS, Some(operation)).await
    }

    /// A page of operations, newest first.
    pub async fn operations(&self, query: &OperationQuery) -> Result<OperationList, ClientError> {
        self.get(&format!("{OPERATIONS}?{}", query.encoded())).await
    }

    /// One operation, with its attempts.
    pub async fn operation(&self, id: &str) -> Result<Operation, ClientError> {
        self.get(&operation_path(id)).await
    }

    /// The documents of a conflict.
    pub async fn conflict(&self, id: &str) -> Result<Conflict, ClientError> {
        self.get(&format!("{}/conflict", operation_path(id))).await
    }

    /// Retries or cancels an operation; the operation afterwards.
    pub async fn decide_operation(
        &self,
        id: &str,
        action: OperationAction,
    ) -> Result<Operation, ClientError> {
        let path = format!("{}/{}", operation_path(id), action.as_str());
        self.call(Method::POST, &path, NO_BODY).await
    }

    /// Resolves a conflict; the operation afterwards.
    pub async fn resolve_operation(
        &self,
        id: &str,
        resolution: &ResolveOperation,
    ) -> Result<Operation, ClientError> {
        let path = format!("{}/resolve", operation_path(id));
        self.call(Method::POST, &path, Some(resolution)).await
    }

    /// Retries or cancels operations that match a filter.
    pub async fn decide_operations(
        &self,
        action: OperationAction,
        bulk: &BulkAction,
    ) -> Result<BulkResult, ClientError> {
        let path = format!("{OPERATIONS}/{}", action.as_str());
        self.call(Method::POST, &path, Some(bulk)).await
    }

    /// Starts a job.
    pub async fn start_job(&self, job: &StartJob) -> Result<StartedJob, ClientError> {
        self.call(Method::POST, JOBS, Some(job)).await
    }

    /// A page of jobs, newest first.
    pub async fn jobs(
        &self,
        cursor: Option<&str>,
        limit: Option<u32>,
    ) -> Result<JobList, ClientError> {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        if let Some(cursor) = cursor {
            query.append_pair("cursor", cursor);
        }
        if let Some(limit) = limit {
            query.append_pair("limit", &limit.to_string());
        }
        self.get(&format!("{JOBS}?{}", query.finish())).await
    }

    /// One job. Counts as a status request.
    pub async fn job(&self, id: &str) -> Result<Job, ClientError> {
        self.get(&job_path(id)).await
    }

    /// Cancels a job; the job afterwards.
    pub async fn cancel_job(&self, id: &str) -> Result<Job, ClientError> {
        let path = format!("{}/cancel", job_path(id));
        self.call(Method::POST, &path, NO_BODY).await
    }

    /// Where the status of a job is, the headers of a request for it, and how its server is spoken to;
    /// `None` for a data folder.
    pub fn job_status(&self, id: &str) -> Option<(Url, HeaderMap, crate::tls::Transport)> {
        let Transport::Server(Some(token), tls) = &self.transport else {
            return None;
        };
        let url = format!("{}{}", self.url(), job_path(id));
        let headers = HeaderMap::from_iter([(AUTHORIZATION, bearer(token)?)]);
        let transport = tls.as_ref().map(|tls| tls.trust.transport());
        Some((
            Url::parse(&url).ok()?,
            headers,
            transport.unwrap_or_default(),
        ))
    }

    /// Whether it is alive, or, with `ready`, whether it may be sent requests; and why not. Needs no
    /// token.
    pub async fn health(&self, ready: bool) -> Result<(bool, Health), ClientError> {
        let path = if ready { "/readyz" } else { "/healthz" };
        let (status, bytes) = self.exchange_in_time(Method::GET, path, None).await?;
        let health = serde_json::from_slice(&bytes);
        let health = health.map_err(|_| self.strange(&format!("it answers {status}")))?;
        // The status decides, as it does for a load balancer: a server that is degraded may be ready.
        Ok((status.is_success(), health))
    }

    /// Every decision about a request.
    pub async fn explain(&self, request_id: &str) -> Result<Explanation, ClientError> {
        let path = format!("/api/v1/explain/{}", encoded(request_id));
        self.get(&path).await
    }
}

/// What a person does to a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateAction {
    /// Rate, hold, breaker and counts start again.
    Reset,
    /// Everything is refused until it is released or reset.
    Isolate,
    /// Hold, open breaker and isolation end.
    Release,
}

impl GateAction {
    /// Its name in the path.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reset => "reset",
            Self::Isolate => "isolate",
            Self::Release => "release",
        }
    }
}

/// Which operations to list. `None` is any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperationQuery {
    /// In this state.
    pub state: Option<StateName>,
    /// Of this type.
    pub kind: Option<String>,
    /// Ended for this reason.
    pub reason: Option<Reason>,
    /// For this destination.
    pub key: Option<String>,
    /// With an id that begins with this.
    pub id: Option<String>,
    /// From here on.
    pub cursor: Option<String>,
    /// At most so many.
    pub limit: Option<u32>,
}

impl OperationQuery {
    fn encoded(&self) -> String {
        let limit = self.limit.map(|limit| limit.to_string());
        let parameters = [
            ("state", self.state.map(StateName::as_str)),
            ("type", self.kind.as_deref()),
            ("reason", self.reason.map(Reason::as_str)),
            ("key", self.key.as_deref()),
            ("id", self.id.as_deref()),
            ("cursor", self.cursor.as_deref()),
            ("limit", limit.as_deref()),
        ];
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        for (name, value) in parameters {
            if let Some(value) = value {
                query.append_pair(name, value);
            }
        }
        query.finish()
    }
}

/// What a person does to operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationAction {
    /// They are sent again.
    Retry,
    /// They are not sent any more.
    Cancel,
}

impl OperationAction {
    /// Its name in the path.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Cancel => "cancel",
        }
    }
}

const NO_BODY: Option<&()> = None;

const JOBS: &str = "/api/v1/jobs";

fn job_path(id: &str) -> String {
    format!("{JOBS}/{}", encoded(id))
}

const OPERATIONS: &str = "/api/v1/operations";

fn operation_path(id: &str) -> String {
    format!("{OPERATIONS}/{}", encoded(id))
}

fn pool_path(pool: &str) -> String {
    format!("/api/v1/pools/{}", encoded(pool))
}

fn endpoint_path(pool: &str, name: &str) -> String {
    format!("{}/endpoints/{}", pool_path(pool), encoded(name))
}
