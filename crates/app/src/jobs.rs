//! Jobs: fetches and crawls that run in the server, each with a status, a progress and a report.
//!
//! A job is accepted once it is stored. [`JobWorker`] starts queued jobs in the order in which they
//! were accepted, `jobs.max_running` at a time, each on a thread of its own with connections of its
//! own; gates are shared with everything else that sends. What a job needs to continue is in its
//! folder, `DATA/jobs/ID`: after a crash or a restart it continues where it was. Status and progress
//! are read from the store alone, so that a progress which was shown once never falls.
//!
//! Several servers with one database run the jobs of all of them. The one that runs a job stores a copy
//! of its state and its report there (`shared_state`), so that another goes on with it if the first fails.
//!
//! The URLs come through the API: the address of each is checked before it is dialled.

mod folder;
mod request;
mod shared_state;
mod status_limit;
mod worker;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use store::StoreError;
use store::jobs::{CancelError, JobFiles, JobStatus, JobStore, NewJob, StoredJob};
use tokio::sync::{Notify, watch};

pub use request::{JobRequest, StartJobError};
pub(crate) use request::{MAX_DEPTH, MAX_URLS};
pub use status_limit::StatusClient;
pub(crate) use status_limit::StatusLimiter;
pub use worker::JobWorker;

use crate::fetch::{Report, Stage};
use crate::state::{State, new_id, new_slug};
use folder::JobFolder;

/// Accepts jobs, and answers what becomes of them.
#[derive(Debug)]
pub struct Jobs {
    state: Arc<State>,
    store: Arc<dyn JobStore>,
    /// What servers share besides the store, if they do.
    files: Option<Arc<dyn JobFiles>>,
    /// A job was queued.
    queued: Notify,
    /// Whether each job that runs here is to stop, by number.
    running: Mutex<BTreeMap<u64, watch::Sender<Stop>>>,
    /// Changes when another server may have queued or cancelled a job.
    news: watch::Sender<()>,
    status_limiter: StatusLimiter,
}

/// Whether a job that runs here is to stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stop {
    #[default]
    No,
    /// Its lease has ended, as far as this server knows: another may run it.
    LeaseEnded,
    /// It was cancelled, or another server runs it.
    Cancelled,
}

/// Which form of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportFormat {
    /// A page.
    Html,
    /// Its figures.
    Json,
}

/// The report of a job, in one of its forms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredReport {
    /// The file.
    pub content: Vec<u8>,
    /// What a browser may do with it, if it is a page.
    pub content_security_policy: Option<String>,
}

/// Why a job was not cancelled.
#[derive(Debug, thiserror::Error)]
pub enum CancelJobError {
    /// There is no such job, or it has ended.
    #[error(transparent)]
    Cancel(#[from] CancelError),
    /// It cannot be stored.
    #[error("the change cannot be stored, so nothing was changed: {0}")]
    Store(#[from] StoreError),
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// There is no such job.
    #[error("there is no such report; reports are deleted after `jobs.retain`")]
    Unknown,
    /// The job has not ended, or not by being done.
    #[error("{}", describe_unfinished(.0))]
    NotDone(Box<StoredJob>),
    /// The file cannot be read.
    #[error("the report cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// The store cannot be read.
    #[error("jobs cannot be read: {0}")]
    Store(#[from] StoreError),
}

fn describe_unfinished(job: &StoredJob) -> String {
    let id = &job.id;
    match job.status {
        JobStatus::Queued => format!("job `{id}` is queued; its report is here when it is done"),
        JobStatus::Running | JobStatus::Done => format!(
            "job `{id}` is running ({} % done); its report is here when it is done",
            job.progress.permille / 10
        ),
        JobStatus::Error => {
            let error = job.error.as_deref().unwrap_or_default();
            format!("job `{id}` ended with an error, so it has no report: {error}")
        }
        JobStatus::Cancelled => format!("job `{id}` was cancelled, so it has no report"),
    }
}

impl Jobs {
    /// The jobs in the store of `state`. They run while there is a worker.
    pub fn new(state: Arc<State>) -> Arc<Self> {
        let jobs = Arc::new(Self {
            store: state.store().jobs(),
            files: state.store().job_files(),
            state,
            queued: Notify::new(),
            running: Mutex::default(),
            news: watch::Sender::default(),
            status_limiter: StatusLimiter::default(),
        });
        let weak = Arc::downgrade(&jobs);
        jobs.store.listen(Box::new(move || {
            if let Some(jobs) = weak.upgrade() {
                jobs.queued.notify_one();
                jobs.news.send_replace(());
            }
        }));
        jobs
    }

    /// Accepts a job. Ready when it is durable.
    ///
    /// # Errors
    ///
    /// If it is not accepted; then nothing was stored.
    pub async fn start(&self, request: JobRequest) -> Result<StoredJob, StartJobError> {
        let request = request.check(&self.state)?;
        let now = self.state.clock().wall();
        let job = NewJob {
            id: new_id("job_", now),
            slug: new_slug(),
            summary: request.summary(),
            request: request.to_json(),
            stage: Stage::Discovery.as_str().to_owned(),
            created_at: now,
        };
        let most = u64::from(self.state.configuration().settings().jobs.max_queued);
        let stored = self.store.insert(job, most).await?;
        let stored = stored.ok_or(StartJobError::TooMany { most })?;
        self.queued.notify_one();
        Ok(stored)
    }

    /// Cancels a job. What it has in flight is finished, but not counted any more.
    ///
    /// # Errors
    ///
    /// If there is no such job, or it has ended, or the change cannot be stored.
    pub async fn cancel(&self, id: &str) -> Result<StoredJob, CancelJobError> {
        let now = self.state.clock().wall();
        let job = self.store.cancel(id, now).await??;
        self.stop(job.number, Stop::Cancelled);
        Ok(job)
    }

    /// One job.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub async fn get(&self, id: &str) -> Result<Option<StoredJob>, StoreError> {
        self.store.get(id).await
    }

    /// Jobs, newest first, with numbers below `before`.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub async fn page(
        &self,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<StoredJob>, StoreError> {
        self.store.page(before, limit).await
    }

    /// Counts a request of `client` for the status of a job.
    ///
    /// # Errors
    ///
    /// When the client may request it again, if it has reached `jobs.status_limit`.
    pub fn admit_status(&self, client: StatusClient, job: &StoredJob) -> Result<(), Duration> {
        let limit = self.state.configuration().settings().jobs.status_limit;
        let now = self.state.clock().now();
        self.status_limiter.admit(client, job.number, limit, now)
    }

    /// The report of a job that is done.
    ///
    /// # Errors
    ///
    /// If there is none, or it cannot be read.
    pub async fn report(
        &self,
        slug: &str,
        format: ReportFormat,
    ) -> Result<StoredReport, ReportError> {
        let job = self.store.by_slug(slug).await?;
        let job = job.ok_or(ReportError::Unknown)?;
        if job.status != JobStatus::Done {
            return Err(ReportError::NotDone(Box::new(job)));
        }
        if let Some(files) = &self.files {
            let report = files.report(job.number).await?;
            return Ok(render(&job, &report.ok_or(ReportError::Unknown)?, format)?);
        }
        let folder = self.folder(&job.id);
        let read = tokio::task::spawn_blocking(move || folder.read_report(format)).await;
        Ok(read.map_err(std::io::Error::other)??)
    }

    fn folder(&self, id: &str) -> JobFolder {
        JobFolder::new(&self.folders(), id)
    }

    /// The folder with the folders of jobs. Those of shared jobs have another one, so that reports of jobs
    /// that this server accepted alone stay.
    fn folders(&self) -> PathBuf {
        let configuration = self.state.configuration();
        let data = &configuration.settings().server.data;
        data.join(match self.files {
            Some(_) => "shared-jobs",
            None => "jobs",
        })
    }

    /// Stops a job, if it runs here.
    fn stop(&self, number: u64, reason: Stop) {
        if let Some(stop) = self.running().get(&number) {
            stop.send_replace(reason);
        }
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<u64, watch::Sender<Stop>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One form of the report of a job, which is stored as JSON. The page is made by the version that serves it,
/// with the policy for its script.
fn render(job: &StoredJob, json: &[u8], format: ReportFormat) -> std::io::Result<StoredReport> {
    if format == ReportFormat::Json {
        return Ok(StoredReport {
            content: json.to_vec(),
            content_security_policy: None,
        });
    }
    let report: Report = serde_json::from_slice(json)?;
    let page = report.to_html_with_links(&[("JSON", &json_address(job))]);
    Ok(StoredReport {
        content: page.into_bytes(),
        content_security_policy: Some(folder::page_policy()),
    })
}

/// Where the JSON of a report is.
fn json_address(job: &StoredJob) -> String {
    format!("/r/{}.json", job.slug)
}
