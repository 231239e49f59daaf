//! Jobs in memory: what every call means, in the plainest form.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::{Mutex, MutexGuard, PoisonError};

use policy::time::WallTime;

use super::Memory;
use crate::jobs::{
    CancelError, ClaimedJob, JobClaim, JobEnd, JobProgress, JobStatus, JobStore, JobTotals, NewJob,
    StateCopy, StoredJob,
};
use crate::operations::{Lease, QueueFuture};

#[derive(Debug, Default)]
pub(super) struct Jobs {
    content: Mutex<Content>,
}

/// What is stored, by number.
#[derive(Debug, Default)]
struct Content {
    last_number: u64,
    jobs: BTreeMap<u64, StoredJob>,
    requests: BTreeMap<u64, String>,
    /// When the lease of each running job ends.
    leases: BTreeMap<u64, WallTime>,
}

impl Jobs {
    fn lock(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    fn job_call<T: Send + 'static>(&self, work: impl FnOnce(&mut Content) -> T) -> QueueFuture<T> {
        let mut content = self.jobs.lock();
        let result = self.faults.next_call().map(|()| work(&mut content));
        Box::pin(ready(result))
    }
}

impl JobStore for Memory {
    fn insert(&self, job: NewJob, max_queued: u64) -> QueueFuture<Option<StoredJob>> {
        self.job_call(|content| {
            if content.totals().of(JobStatus::Queued) >= max_queued {
                return None;
            }
            content.last_number += 1;
            let number = content.last_number;
            let stored = StoredJob::new(number, &job);
            content.jobs.insert(number, stored.clone());
            content.requests.insert(number, job.request);
            Some(stored)
        })
    }

    fn recover(&self) -> QueueFuture<u64> {
        self.job_call(|content| content.queue_again(|_| true))
    }

    fn claim(&self, lease: Lease) -> QueueFuture<Option<ClaimedJob>> {
        self.job_call(|content| {
            let mut queued = content.jobs.values_mut();
            let job = queued.find(|job| job.status == JobStatus::Queued)?;
            job.claim(lease.now);
            content.leases.insert(job.number, lease.until);
            Some(ClaimedJob {
                request: Ok(content.requests[&job.number].clone()),
                job: job.clone(),
                copy: StateCopy::default(),
            })
        })
    }

    fn update(&self, claim: JobClaim, progress: JobProgress, until: WallTime) -> QueueFuture<bool> {
        self.job_call(move |content| {
            let Some(job) = content.running(claim) else {
                return false;
            };
            job.update(progress);
            content.leases.insert(claim.number, until);
            true
        })
    }

    fn release(&self, claim: JobClaim) -> QueueFuture<bool> {
        self.job_call(|content| {
            let job = content.running(claim);
            job.map(|job| job.status = JobStatus::Queued).is_some()
        })
    }

    fn finish(&self, claim: JobClaim, end: JobEnd) -> QueueFuture<Option<StoredJob>> {
        self.job_call(|content| {
            let job = content.running(claim)?;
            job.finish(end);
            Some(job.clone())
        })
    }

    fn sweep(&self, now: WallTime) -> QueueFuture<u64> {
        self.job_call(|content| content.queue_again(|until| until <= now))
    }

    fn cancel(&self, id: &str, now: WallTime) -> QueueFuture<Result<StoredJob, CancelError>> {
        self.job_call(|content| {
            let mut jobs = content.jobs.values_mut();
            let job = jobs.find(|job| job.id == id).ok_or(CancelError::Unknown)?;
            job.cancel(now)?;
            Ok(job.clone())
        })
    }

    fn get(&self, id: &str) -> QueueFuture<Option<StoredJob>> {
        self.job_call(|content| content.jobs.values().find(|job| job.id == id).cloned())
    }

    fn by_slug(&self, slug: &str) -> QueueFuture<Option<StoredJob>> {
        self.job_call(|content| content.jobs.values().find(|job| job.slug == slug).cloned())
    }

    fn page(&self, before: Option<u64>, limit: usize) -> QueueFuture<Vec<StoredJob>> {
        self.job_call(|content| {
            let jobs = content.jobs.range(..before.unwrap_or(u64::MAX)).rev();
            jobs.take(limit).map(|(_, job)| job.clone()).collect()
        })
    }

    fn ended(&self, until: WallTime, limit: usize) -> QueueFuture<Vec<StoredJob>> {
        self.job_call(|content| {
            let is_due = |job: &&StoredJob| job.finished_at.is_some_and(|at| at <= until);
            let mut jobs: Vec<&StoredJob> = content.jobs.values().filter(is_due).collect();
            jobs.sort_by_key(|job| (job.finished_at, job.number));
            jobs.into_iter().take(limit).cloned().collect()
        })
    }

    fn delete(&self, number: u64) -> QueueFuture<()> {
        self.job_call(|content| {
            let job = content.jobs.get(&number);
            if job.is_some_and(|job| job.status.is_ended()) {
                content.jobs.remove(&number);
                content.requests.remove(&number);
            }
        })
    }

    fn totals(&self) -> JobTotals {
        self.jobs.lock().totals()
    }
}

impl Content {
    fn running(&mut self, claim: JobClaim) -> Option<&mut StoredJob> {
        let job = self.jobs.get_mut(&claim.number)?;
        job.runs_under(claim).then_some(job)
    }

    /// Queues running jobs again whose leases end at such a time; how many there are.
    fn queue_again(&mut self, is_over: impl Fn(WallTime) -> bool) -> u64 {
        let Self { jobs, leases, .. } = self;
        let running = jobs
            .values_mut()
            .filter(|job| job.status == JobStatus::Running);
        let over = running.filter(|job| leases.get(&job.number).copied().is_some_and(&is_over));
        over.map(|job| job.status = JobStatus::Queued).count() as u64
    }

    fn totals(&self) -> JobTotals {
        let mut totals = JobTotals::default();
        for job in self.jobs.values() {
            totals.add(job.status, 1);
        }
        totals
    }
}
