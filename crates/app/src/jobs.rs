//! Jobs: fetches and crawls that run in the server, each with a status, a progress and a report.
//!
//! A job is accepted once it is stored. [`JobWorker`] starts queued jobs in the order in which they
//! were accepted, `jobs.max_running` at a time, each on a thread of its own with connections of its
//! own; gates are shared with everything else that sends. What a job needs to continue is in its
//! folder, `DATA/jobs/ID`: after a crash or a restart it continues where it was. Status and progress
//! are read from the store alone, so that a progress which was shown once never falls.
//!
//! The URLs come through the API: the address of each is checked before it is dialled.

mod folder;
mod request;
mod status_limit;
mod worker;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use store::StoreError;
use store::jobs::{CancelError, JobStatus, JobStore, NewJob, StoredJob};
use tokio::sync::{Notify, watch};

pub use request::{JobRequest, StartJobError};
pub(crate) use request::{MAX_DEPTH, MAX_URLS};
pub use status_limit::StatusClient;
pub(crate) use status_limit::StatusLimiter;
pub use worker::JobWorker;

use crate::fetch::Stage;
use crate::state::{State, new_id, new_slug};
use folder::JobFolder;

/// Accepts jobs, and answers what becomes of them.
#[derive(Debug)]
pub struct Jobs {
    state: Arc<State>,
    store: Arc<dyn JobStore>,
    /// A job was queued.
    queued: Notify,
    /// Whether each job that runs was cancelled, by number.
    running: Mutex<BTreeMap<u64, watch::Sender<bool>>>,
    status_limiter: StatusLimiter,
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
        Arc::new(Self {
            store: state.store().jobs(),
            state,
            queued: Notify::new(),
            running: Mutex::default(),
            status_limiter: StatusLimiter::default(),
        })
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
        self.stop(job.number);
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
        let folder = self.folder(&job.id);
        let read = tokio::task::spawn_blocking(move || folder.read_report(format)).await;
        Ok(read.map_err(std::io::Error::other)??)
    }

    fn folder(&self, id: &str) -> JobFolder {
        let configuration = self.state.configuration();
        JobFolder::new(&configuration.settings().server.data, id)
    }

    /// Stops a job that was cancelled, if it runs.
    fn stop(&self, number: u64) {
        if let Some(cancel) = self.running().get(&number) {
            cancel.send_replace(true);
        }
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<u64, watch::Sender<bool>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
