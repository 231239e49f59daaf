//! Jobs: what every backend does with them, and the records it stores.
//!
//! A job is accepted once its insert is durable. The server claims queued jobs in the order of their
//! inserts, stores how far each is, and ends it as done or with an error. A person may cancel it
//! before that.
//!
//! A claim is a lease with a number that rises with every claim of a job: what a process does under an
//! earlier number changes nothing. A job that runs when its process ends is still stored as running;
//! [`JobStore::recover`] queues it again at the next start, and [`JobStore::sweep`] when its lease has
//! ended, before every job that was never started.
//!
//! What a job needs to continue is a file of the server that runs it. If several servers run jobs, they
//! share a copy of it: [`JobFiles`].

use std::fmt;

use policy::time::WallTime;
use thiserror::Error;

use crate::error::StoreError;
use crate::operations::{Lease, QueueFuture};

/// Jobs that survive restarts.
pub trait JobStore: fmt::Debug + Send + Sync {
    /// Stores a job as queued. `None`: `max_queued` jobs are queued already, and nothing was stored.
    fn insert(&self, job: NewJob, max_queued: u64) -> QueueFuture<Option<StoredJob>>;

    /// Queues every job again that an earlier process of this server has claimed, and returns how many
    /// there are. Called once, before the first claim of a process.
    fn recover(&self) -> QueueFuture<u64>;

    /// Claims the queued job that was inserted first; from now on it is running. `None`: no job is
    /// queued.
    fn claim(&self, lease: Lease) -> QueueFuture<Option<ClaimedJob>>;

    /// Stores how far a job is and until when it is claimed, and returns whether it runs under this
    /// claim. If it does not, nothing changes. The stored progress never falls.
    fn update(&self, claim: JobClaim, progress: JobProgress, until: WallTime) -> QueueFuture<bool>;

    /// Queues a job again that runs under this claim, and returns whether it did.
    fn release(&self, claim: JobClaim) -> QueueFuture<bool>;

    /// Ends a running job, and returns it as it is then. `None`: it did not run under this claim any
    /// more, because a person had cancelled it or its lease had ended.
    fn finish(&self, claim: JobClaim, end: JobEnd) -> QueueFuture<Option<StoredJob>>;

    /// Queues every job again whose lease ended at `now` or earlier, and returns how many there are.
    fn sweep(&self, now: WallTime) -> QueueFuture<u64>;

    /// Cancels a job that is queued or running, and returns it as it is then.
    fn cancel(&self, id: &str, now: WallTime) -> QueueFuture<Result<StoredJob, CancelError>>;

    /// One job.
    fn get(&self, id: &str) -> QueueFuture<Option<StoredJob>>;

    /// The job whose report has this address.
    fn by_slug(&self, slug: &str) -> QueueFuture<Option<StoredJob>>;

    /// Jobs, newest first, with numbers below `before`.
    fn page(&self, before: Option<u64>, limit: usize) -> QueueFuture<Vec<StoredJob>>;

    /// At most `limit` jobs that ended at `until` or earlier, those that ended first before others.
    fn ended(&self, until: WallTime, limit: usize) -> QueueFuture<Vec<StoredJob>>;

    /// Deletes a job that has ended. Changes nothing if it has not.
    fn delete(&self, number: u64) -> QueueFuture<()>;

    /// How many jobs there are of each status. Does not wait for the disk.
    fn totals(&self) -> JobTotals;

    /// Sets what is called when another server may have queued or cancelled a job.
    fn listen(&self, listener: JobListener) {
        drop(listener);
    }
}

/// Called when another server may have queued or cancelled a job.
pub type JobListener = Box<dyn Fn() + Send + Sync>;

/// Files of jobs that several servers share.
///
/// The state of a job is a file that only grows, and every beginning of it that ends with a line is a
/// state from which the job can go on. So a copy that lags behind loses nothing: what is missing is done
/// again.
pub trait JobFiles: fmt::Debug + Send + Sync {
    /// Appends to the copy of a state, if it has `at` bytes, and returns how many it has then. `None`: the
    /// job does not run under this claim.
    fn append(&self, claim: JobClaim, at: u64, bytes: Vec<u8>) -> QueueFuture<Option<u64>>;

    /// A part of the copy that begins at `at`, of some megabytes at most; `None` at its end.
    fn part(&self, number: u64, at: u64) -> QueueFuture<Option<Vec<u8>>>;

    /// Stores the report of a job, and returns whether it runs under this claim.
    fn save_report(&self, claim: JobClaim, report: Vec<u8>) -> QueueFuture<bool>;

    /// The report of a job.
    fn report(&self, number: u64) -> QueueFuture<Option<Vec<u8>>>;
}

/// A job to be stored.
#[derive(Clone, PartialEq, Eq)]
pub struct NewJob {
    /// Its public name.
    pub id: String,
    /// The address of its report, which cannot be guessed.
    pub slug: String,
    /// What it fetches, for people: without anything secret.
    pub summary: String,
    /// What it fetches, as JSON.
    pub request: String,
    /// The stage that it begins with.
    pub stage: String,
    /// When it was accepted.
    pub created_at: WallTime,
}

/// A job, without its request. `Debug` does not show its slug.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredJob {
    /// Numbers rise with every insert.
    pub number: u64,
    /// Its public name.
    pub id: String,
    /// The address of its report.
    pub slug: String,
    /// What it fetches, without anything secret.
    pub summary: String,
    /// Its status.
    pub status: JobStatus,
    /// How far it is.
    pub progress: JobProgress,
    /// Why it ended with an error.
    pub error: Option<String>,
    /// When it was accepted.
    pub created_at: WallTime,
    /// When it was started first.
    pub started_at: Option<WallTime>,
    /// When it ended.
    pub finished_at: Option<WallTime>,
    /// The number of its last claim.
    pub fence: u64,
}

/// Names a claim of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobClaim {
    /// The job.
    pub number: u64,
    /// Rises with every claim of it.
    pub fence: u64,
}

/// Where a job is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobStatus {
    /// It waits until it is started, or started again after a restart.
    Queued,
    /// It fetches.
    Running,
    /// It has fetched everything, and its report is written.
    Done,
    /// It could not go on.
    Error,
    /// A person cancelled it.
    Cancelled,
}

/// How far a job is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobProgress {
    /// The word of its stage.
    pub stage: String,
    /// The progress in thousandths.
    pub permille: u16,
    /// What it has counted.
    pub counts: JobCounts,
}

/// What a job has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobCounts {
    /// URLs that were found, each once.
    pub known: u64,
    /// URLs that wait for their turn.
    pub queued: u64,
    /// URLs that are being requested.
    pub in_flight: u64,
    /// URLs that wait to be sent again.
    pub retrying: u64,
    /// URLs that have ended, failed ones included.
    pub done: u64,
    /// URLs that ended with an error.
    pub failed: u64,
    /// Of the failed, the ones that a robots.txt does not allow.
    pub denied: u64,
    /// URLs that are unchanged since an earlier run.
    pub not_modified: u64,
    /// Requests that were sent.
    pub sent: u64,
    /// Bytes of bodies.
    pub bytes: u64,
}

/// A job that was claimed.
#[derive(Clone, Debug)]
pub struct ClaimedJob {
    /// The job, now running.
    pub job: StoredJob,
    /// Its request; an error if it is encrypted and cannot be read.
    pub request: Result<String, StoreError>,
    /// The copy of its state.
    pub copy: StateCopy,
}

/// The copy of a state, of which there is one only if servers share [`JobFiles`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateCopy {
    /// How many bytes it has.
    pub length: u64,
    /// Whether this server has appended to it last: its own file is not behind it.
    pub is_own: bool,
}

/// How a running job ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobEnd {
    /// When.
    pub now: WallTime,
    /// Why it could not go on; `None`: it is done.
    pub error: Option<String>,
    /// How far it got.
    pub progress: JobProgress,
}

/// Why a job was not cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CancelError {
    /// There is no such job.
    #[error("there is no such job")]
    Unknown,
    /// It has ended.
    #[error("the job has ended: it is {}", .0.as_str())]
    Ended(JobStatus),
}

/// How many jobs there are of each status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobTotals {
    counts: [u64; JobStatus::ALL.len()],
}

impl JobStatus {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Queued,
        Self::Running,
        Self::Done,
        Self::Error,
        Self::Cancelled,
    ];

    /// Its word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Done => "done",
            Self::Error => "error",
            Self::Cancelled => "cancelled",
        }
    }

    /// The status of this word.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }

    /// Whether nothing happens to the job any more.
    pub const fn is_ended(self) -> bool {
        match self {
            Self::Queued | Self::Running => false,
            Self::Done | Self::Error | Self::Cancelled => true,
        }
    }
}

impl JobTotals {
    /// How many jobs have this status.
    pub fn of(&self, status: JobStatus) -> u64 {
        self.counts[status as usize]
    }

    /// Every status with its number of jobs.
    pub fn all(&self) -> [(JobStatus, u64); JobStatus::ALL.len()] {
        JobStatus::ALL.map(|status| (status, self.of(status)))
    }

    pub(crate) fn add(&mut self, status: JobStatus, jobs: u64) {
        self.counts[status as usize] += jobs;
    }

    /// Counts jobs that change their status.
    pub(crate) fn change(&mut self, from: JobStatus, to: JobStatus, jobs: u64) {
        self.remove(from, jobs);
        self.add(to, jobs);
    }

    pub(crate) fn remove(&mut self, status: JobStatus, jobs: u64) {
        let count = &mut self.counts[status as usize];
        *count = count.saturating_sub(jobs);
    }
}

impl JobEnd {
    pub(crate) fn status(&self) -> JobStatus {
        match self.error {
            Some(_) => JobStatus::Error,
            None => JobStatus::Done,
        }
    }
}

impl StoredJob {
    /// A new job, under its number.
    pub(crate) fn new(number: u64, job: &NewJob) -> Self {
        Self {
            number,
            id: job.id.clone(),
            slug: job.slug.clone(),
            summary: job.summary.clone(),
            status: JobStatus::Queued,
            progress: JobProgress {
                stage: job.stage.clone(),
                ..JobProgress::default()
            },
            error: None,
            created_at: job.created_at,
            started_at: None,
            finished_at: None,
            fence: 0,
        }
    }

    pub(crate) fn claim(&mut self, now: WallTime) {
        self.status = JobStatus::Running;
        self.started_at = self.started_at.or(Some(now));
        self.fence += 1;
    }

    /// The claim that it has had last.
    pub fn last_claim(&self) -> JobClaim {
        JobClaim {
            number: self.number,
            fence: self.fence,
        }
    }

    pub(crate) fn runs_under(&self, claim: JobClaim) -> bool {
        self.status == JobStatus::Running && self.last_claim() == claim
    }

    pub(crate) fn update(&mut self, progress: JobProgress) {
        let permille = self.progress.permille.max(progress.permille);
        self.progress = JobProgress {
            permille,
            ..progress
        };
    }

    pub(crate) fn finish(&mut self, end: JobEnd) {
        self.status = end.status();
        self.finished_at = Some(end.now);
        self.error = end.error;
        self.update(end.progress);
    }

    pub(crate) fn cancel(&mut self, now: WallTime) -> Result<(), CancelError> {
        if self.status.is_ended() {
            return Err(CancelError::Ended(self.status));
        }
        self.status = JobStatus::Cancelled;
        self.finished_at = Some(now);
        let counts = &mut self.progress.counts;
        (counts.queued, counts.in_flight, counts.retrying) = (0, 0, 0);
        Ok(())
    }
}

impl fmt::Debug for NewJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewJob")
            .field("id", &self.id)
            .field("summary", &self.summary)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for StoredJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredJob")
            .field("number", &self.number)
            .field("id", &self.id)
            .field("summary", &self.summary)
            .field("status", &self.status)
            .field("progress", &self.progress)
            .field("error", &self.error)
            .field("created_at", &self.created_at)
            .field("started_at", &self.started_at)
            .field("finished_at", &self.finished_at)
            .field("fence", &self.fence)
            .finish_non_exhaustive()
    }
}
