//! Jobs: starting them, their status, cancelling them, and their reports.

#![expect(
    unused_qualifications,
    reason = "the macro of paths names parameters by their whole path"
)]

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, Path, RawQuery, Request, State};
use axum::response::Response;
use http::HeaderValue;
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use serde::Deserialize;
use serde_json::Value;
use store::StoreError;
use store::jobs::{CancelError, StoredJob};
use utoipa::IntoParams;

use super::api::AdminState;
use super::bodies::{Job, JobCounts, JobList, Problem, StageName, StartJob, StartedJob};
use super::body::{Fields, whole};
use super::operations::accepted;
use super::problem::{Kind, Refused};
use super::query::{self, CURSOR, DEFAULT_LISTED, cursor, read_cursor};
use crate::jobs::{
    CancelJobError, JobRequest, ReportError, ReportFormat, StartJobError, StatusClient,
};

/// Start a job: a fetch or a crawl
///
/// The response comes when the job is durable. It is started when fewer than `jobs.max_running` run,
/// and continues after a restart. The address of every URL is checked before it is dialled.
#[utoipa::path(
    post, operation_id = "startJob", path = "/api/v1/jobs", tag = "jobs",
    request_body = StartJob,
    responses(
        (status = 202, description = "It is stored", body = StartedJob, headers(("location" = String, description = "Its path"))),
        (status = 403, description = "The address of a URL must not be dialled, or the request is cross-site", body = Problem, content_type = "application/problem+json"),
        (status = 429, description = "Too many jobs are queued", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "It cannot be stored, so it was not accepted; or the server is stopping", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn start(
    State(admin): State<Arc<AdminState>>,
    request: Request,
) -> Result<Response, Refused> {
    if admin.is_draining() {
        return Err(Refused::new(Kind::Draining, "send it to another server"));
    }
    let (head, body) = request.into_parts();
    let (fields, _) = Fields::read(&head.headers, body, MAX_START_BODY, &[]).await?;
    let job = admin.jobs.start(read_start(fields)?).await?;
    let location = format!("/api/v1/jobs/{}", job.id);
    let started = StartedJob {
        id: job.id,
        slug: job.slug,
    };
    Ok(accepted(&location, started))
}

/// Enough for 10,000 URLs of some 400 characters.
const MAX_START_BODY: usize = 4 << 20;

/// Jobs, newest first
#[utoipa::path(
    get, operation_id = "listJobs", path = "/api/v1/jobs", tag = "jobs", params(ListQuery),
    responses(
        (status = 200, description = "A page of them", body = JobList),
        (status = 503, description = "They cannot be read", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn list(
    State(admin): State<Arc<AdminState>>,
    RawQuery(query): RawQuery,
) -> Result<Json<JobList>, Refused> {
    let query = read_query(query.as_deref())?;
    let limit = query.limit.unwrap_or(DEFAULT_LISTED);
    let page = admin.jobs.page(query.before, limit).await;
    let page = page.map_err(unreadable)?;
    let next = page.last().filter(|_| page.len() == limit);
    Ok(Json(JobList {
        next_cursor: next.map(|job| cursor(job.number)),
        jobs: page.into_iter().map(job_body).collect(),
    }))
}

/// The status of a job
///
/// A client may request it as often as `jobs.status_limit` says, counted for each job from the
/// client's first request. `tidegate poll` follows it by default.
#[utoipa::path(
    get, operation_id = "showJob", path = "/api/v1/jobs/{id}", tag = "jobs", params(JobPath),
    responses(
        (status = 200, description = "The job", body = Job),
        (status = 429, description = "More requests than `jobs.status_limit`; `Retry-After` if `jobs.status_retry_after`", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "It cannot be read", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn show(
    State(admin): State<Arc<AdminState>>,
    client: Option<Extension<StatusClient>>,
    Path(JobPath { id }): Path<JobPath>,
) -> Result<Json<Job>, Refused> {
    let job = admin.jobs.get(&id).await.map_err(unreadable)?;
    let job = job.ok_or_else(|| no_job(&id))?;
    // Without a client the call comes from this process.
    if let Some(Extension(client)) = client {
        let admitted = admin.jobs.admit_status(client, &job);
        admitted.map_err(|wait| status_limited(&admin, wait))?;
    }
    Ok(Json(job_body(job)))
}

/// Cancel a job
///
/// Requests in flight are finished; the job has no report.
#[utoipa::path(
    post, operation_id = "cancelJob", path = "/api/v1/jobs/{id}/cancel", tag = "jobs", params(JobPath),
    responses(
        (status = 200, description = "The job afterwards", body = Job),
        (status = 409, description = "The job has ended", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "It cannot be stored, so nothing was changed", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn cancel(
    State(admin): State<Arc<AdminState>>,
    Path(JobPath { id }): Path<JobPath>,
) -> Result<Json<Job>, Refused> {
    match admin.jobs.cancel(&id).await {
        Ok(job) => Ok(Json(job_body(job))),
        Err(CancelJobError::Cancel(CancelError::Unknown)) => Err(no_job(&id)),
        Err(error) => Err(error.into()),
    }
}

/// The report of a job
///
/// A page that contains everything it shows; with `.json` behind the slug, its figures.
#[utoipa::path(
    get, operation_id = "showReport", path = "/r/{slug}", tag = "jobs", params(ReportPath),
    responses(
        (status = 200, description = "The report", content((String = "text/html"), (Value = "application/json"))),
        (status = 409, description = "The job is not done", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "It cannot be read", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn report(
    State(admin): State<Arc<AdminState>>,
    Path(ReportPath { slug }): Path<ReportPath>,
) -> Result<Response, Refused> {
    let (slug, format, kind) = match slug.strip_suffix(".json") {
        Some(slug) => (slug, ReportFormat::Json, "application/json"),
        None => (&*slug, ReportFormat::Html, "text/html; charset=utf-8"),
    };
    let report = admin.jobs.report(slug, format).await?;
    let mut response = Response::new(Body::from(report.content));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    let policy = report.content_security_policy.as_deref();
    let policy = policy.and_then(|policy| HeaderValue::from_str(policy).ok());
    headers.insert(CONTENT_SECURITY_POLICY, policy.unwrap_or(NOTHING_ALLOWED));
    Ok(response)
}

const NOTHING_ALLOWED: HeaderValue =
    HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");

fn no_job(id: &str) -> Refused {
    let id: String = id.chars().take(100).collect();
    let detail = format!("there is no job `{id}`; finished ones are deleted after `jobs.retain`");
    Refused::not_found(detail)
}

fn unreadable(error: StoreError) -> Refused {
    let detail = format!("jobs cannot be read: {error}");
    Refused::new(Kind::StoreUnavailable, detail)
}

fn status_limited(admin: &AdminState, wait: std::time::Duration) -> Refused {
    let configuration = admin.state.configuration();
    let jobs = &configuration.settings().jobs;
    let detail = format!(
        "{} status requests per client and job are answered in {} (`jobs.status_limit`)",
        jobs.status_limit.count(),
        policy::duration::Rounded(jobs.status_limit.period()),
    );
    let refused = Refused::new(Kind::StatusLimit, detail);
    match jobs.status_retry_after {
        true => refused.retry_after(wait),
        false => refused,
    }
}

fn read_start(mut fields: Fields) -> Result<JobRequest, Refused> {
    fn list(fields: &mut Fields, name: &'static str, expected: &str) -> Vec<String> {
        let texts = |value: &Value| {
            let texts = value.as_array()?.iter();
            texts.map(|text| text.as_str().map(str::to_owned)).collect()
        };
        fields
            .take_secret(name, expected, texts)
            .unwrap_or_default()
    }
    let urls = "expected a list of URLs such as `[\"https://docs.example.com/\"]`";
    let patterns = "expected a list of regular expressions such as `[\"/docs/\"]`";
    let flag = "`true` or `false`";
    let depth = |value: &Value| whole(value).and_then(|depth| u32::try_from(depth).ok());
    let request = JobRequest {
        urls: list(&mut fields, "urls", urls),
        sitemaps: list(&mut fields, "sitemaps", urls),
        crawl: fields
            .take("crawl", flag, Value::as_bool)
            .unwrap_or_default(),
        depth: fields.take("depth", "a whole number", depth),
        same_host: fields
            .take("same_host", flag, Value::as_bool)
            .unwrap_or_default(),
        include: list(&mut fields, "include", patterns),
        exclude: list(&mut fields, "exclude", patterns),
    };
    fields.end()?;
    Ok(request)
}

/// The id of a job in the path.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct JobPath {
    /// The id of the job
    #[param(example = "job_01jcrz4m3v8k2n6t0q5w9x7y1b", min_length = 1)]
    id: String,
}

/// The slug of a job in the path.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct ReportPath {
    /// The slug of the job, with or without `.json`
    #[param(example = "5m9r0vg2c8xkq4s7d1tz6hw3ye", min_length = 1)]
    slug: String,
}

#[derive(Debug, Default, IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// `next_cursor` of the page before
    #[param(rename = "cursor", value_type = Option<String>, pattern = "^[1-9a-f][0-9a-f]{0,14}$")]
    before: Option<u64>,
    /// The most jobs to list
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<usize>,
}

fn read_query(query: Option<&str>) -> Result<ListQuery, Refused> {
    let mut read = ListQuery::default();
    query::read(query, &["cursor", "limit"], |name, value| {
        Some(match name {
            "cursor" => read_cursor(value)
                .map(|before| read.before = Some(before))
                .ok_or_else(|| CURSOR.to_owned()),
            "limit" => query::limit(value).map(|limit| read.limit = Some(limit)),
            _ => return None,
        })
    })?;
    Ok(read)
}

fn job_body(job: StoredJob) -> Job {
    let counts = job.progress.counts;
    let stage = StageName::ALL.iter().copied();
    let mut stage = stage.filter(|stage| stage.as_str() == job.progress.stage);
    Job {
        status: job.status.into(),
        // Only words of stages are stored.
        stage: stage.next().unwrap_or(StageName::Discovery),
        progress: f64::from(job.progress.permille) / 10.0,
        counts: JobCounts {
            total: counts.known,
            done: counts.done,
            failed: counts.failed,
            denied: counts.denied,
            queued: counts.queued,
            in_flight: counts.in_flight,
            retrying: counts.retrying,
            sent: counts.sent,
            bytes: counts.bytes,
        },
        error: job.error,
        created_at_ms: job.created_at.as_unix_millis(),
        started_at_ms: job.started_at.map(|at| at.as_unix_millis()),
        finished_at_ms: job.finished_at.map(|at| at.as_unix_millis()),
        id: job.id,
        slug: job.slug,
        summary: job.summary,
    }
}

impl From<StartJobError> for Refused {
    fn from(error: StartJobError) -> Self {
        let detail = error.to_string();
        match error {
            StartJobError::Invalid(invalid) => Self::invalid(invalid),
            StartJobError::AddressNotAllowed { urls, .. } => {
                Self::address_not_allowed(urls, detail)
            }
            StartJobError::TooMany { .. } => Self::new(Kind::TooManyJobs, detail),
            StartJobError::Store(_) => Self::new(Kind::StoreUnavailable, detail),
        }
    }
}

impl From<CancelJobError> for Refused {
    fn from(error: CancelJobError) -> Self {
        let detail = error.to_string();
        match error {
            CancelJobError::Cancel(CancelError::Unknown) => Self::not_found(detail),
            CancelJobError::Cancel(CancelError::Ended(_)) => Self::new(Kind::WrongState, detail),
            CancelJobError::Store(_) => Self::new(Kind::StoreUnavailable, detail),
        }
    }
}

impl From<ReportError> for Refused {
    fn from(error: ReportError) -> Self {
        let detail = error.to_string();
        match error {
            ReportError::Unknown => Self::not_found(detail),
            ReportError::NotDone(_) => Self::new(Kind::WrongState, detail),
            ReportError::Io(_) | ReportError::Store(_) => Self::new(Kind::StoreUnavailable, detail),
        }
    }
}
