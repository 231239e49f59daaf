//! The threads that run jobs.
//!
//! Every job that runs has a thread with a runtime of its own, because a fetch uses a thread fully
//! when servers are fast. There is one thread per slot, `jobs.max_running` as of the start, each
//! with its own connections, which stay open from one job to the next. A further thread queues jobs
//! of the last process again and deletes old ones.
//!
//! If servers share jobs, a slot extends the lease of its job while it reads a long state and while the job
//! runs, and copies the state as it grows. It stops a job whose lease it could not extend: another server runs
//! it by then. The further thread queues jobs of servers that have failed.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use policy::time::WallTime;
use store::jobs::{ClaimedJob, JobClaim, JobCounts, JobEnd, JobProgress, JobStore, StoredJob};
use store::operations::Lease;
use tokio::runtime::{self, Runtime};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use super::folder::{self, JobFolder};
use super::request::JobRequest;
use super::shared_state::{StateCopier, StateProblem};
use super::{Jobs, Stop, json_address};
use crate::exchange::Trust;
use crate::fetch::{FetchCounts, FetchPlan, FetchProgress, Fetcher, Report, Trackers};
use crate::redact::Text;

/// Runs jobs.
#[derive(Debug)]
pub struct JobWorker {
    phase: watch::Sender<Phase>,
    /// Threads that have not ended.
    alive: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

/// How far a worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// Jobs of the last process are not queued again yet.
    Recovering,
    /// Jobs are started.
    Running,
    /// No job is started. Those that run finish what is in flight, and stop.
    Draining,
    /// Jobs are dropped with what is in flight.
    Stopping,
}

impl JobWorker {
    /// Starts running jobs.
    ///
    /// # Errors
    ///
    /// If there are no threads for it.
    pub fn start(jobs: Arc<Jobs>) -> io::Result<Self> {
        let phase = watch::Sender::new(Phase::Recovering);
        let mut worker = Self {
            alive: Arc::default(),
            threads: Vec::new(),
            phase: phase.clone(),
        };
        for number in 0..jobs.state.core().job_slots() {
            let slot = Slot {
                jobs: Arc::clone(&jobs),
                number,
                phase: phase.subscribe(),
            };
            worker.spawn(format!("job-{number}"), move |runtime| slot.run(runtime))?;
        }
        let maintenance = Maintenance { jobs, phase };
        worker.spawn("jobs".to_owned(), move |runtime| {
            runtime.block_on(maintenance.run());
        })?;
        Ok(worker)
    }

    fn spawn(
        &mut self,
        name: String,
        run: impl FnOnce(&Runtime) + Send + 'static,
    ) -> io::Result<()> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let alive = AliveThread::new(&self.alive);
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            let _alive = alive;
            run(&runtime);
        })?;
        self.threads.push(thread);
        Ok(())
    }

    /// Starts no more jobs. Those that run finish what is in flight; they continue at the next start.
    pub fn drain(&self) {
        self.advance(Phase::Draining);
    }

    /// Whether every job has stopped since it was drained.
    pub fn is_done(&self) -> bool {
        self.alive.load(Ordering::Acquire) == 0
    }

    /// Stops every job at once. Ready when their threads have ended, or after five seconds.
    pub async fn stop(self) {
        self.advance(Phase::Stopping);
        let stopped = async {
            while !self.is_done() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(MAX_STOP, stopped).await.is_ok() {
            for thread in self.threads {
                // It has ended, or is about to; a panic of it was printed by its hook.
                _ = thread.join();
            }
        }
    }

    fn advance(&self, to: Phase) {
        advance(&self.phase, to);
    }
}

fn advance(phase: &watch::Sender<Phase>, to: Phase) {
    phase.send_if_modified(|phase| {
        let is_later = to > *phase;
        *phase = to.max(*phase);
        is_later
    });
}

/// Longer than writing to any disk that works.
const MAX_STOP: Duration = Duration::from_secs(5);

/// After the store has failed.
const STORE_RETRY: Duration = Duration::from_secs(1);

/// Counts a thread until it ends.
struct AliveThread(Arc<AtomicUsize>);

impl AliveThread {
    fn new(alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(alive))
    }
}

impl Drop for AliveThread {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Queues jobs of the last process again, and deletes old ones.
struct Maintenance {
    jobs: Arc<Jobs>,
    phase: watch::Sender<Phase>,
}

impl Maintenance {
    async fn run(self) {
        let mut phase = self.phase.subscribe();
        let work = async {
            while self.jobs.store.recover().await.is_err() {
                tokio::time::sleep(STORE_RETRY).await;
            }
            advance(&self.phase, Phase::Running);
            tokio::join!(self.delete_again(), self.take_over());
        };
        tokio::select! {
            () = work => {}
            _ = phase.wait_for(|phase| *phase > Phase::Running) => {}
        }
    }

    async fn delete_again(&self) {
        loop {
            self.delete_old().await;
            self.delete_folders().await;
            let retain = self.retain();
            tokio::time::sleep(retain.clamp(MIN_SWEEP, MAX_SWEEP)).await;
        }
    }

    /// Queues jobs again whose servers have failed. Returns at once if no other server runs them.
    async fn take_over(&self) {
        while self.jobs.files.is_some() {
            let now = self.jobs.state.clock().wall();
            // What fails is tried again the next time.
            if let Ok(1..) = self.jobs.store.sweep(now).await {
                self.jobs.queued.notify_one();
            }
            tokio::time::sleep(LEASE_SWEEP).await;
        }
    }

    /// Deletes the folders of shared jobs that have ended, on any server.
    async fn delete_folders(&self) {
        if self.jobs.files.is_none() {
            return;
        }
        for id in folder::ids(&self.jobs.folders()) {
            let has_ended = match self.jobs.store.get(&id).await {
                Ok(job) => job.is_none_or(|job| job.status.is_ended()),
                Err(_) => return,
            };
            if has_ended {
                // It is tried again the next time.
                _ = self.jobs.folder(&id).delete();
            }
        }
    }

    fn retain(&self) -> Duration {
        self.jobs.state.configuration().settings().jobs.retain
    }

    /// Deletes the files of a job first: if the process ends in between, the job is found again.
    async fn delete_old(&self) {
        let now = self.jobs.state.clock().wall();
        let until = now.as_unix_millis() - millis(self.retain());
        let until = WallTime::from_unix_millis(until);
        loop {
            // What fails is tried again the next time.
            let Ok(ended) = self.jobs.store.ended(until, SWEPT).await else {
                return;
            };
            for job in &ended {
                let is_deleted = self.jobs.folder(&job.id).delete().is_ok();
                if !is_deleted || self.jobs.store.delete(job.number).await.is_err() {
                    return;
                }
            }
            if ended.len() < SWEPT {
                return;
            }
        }
    }
}

fn millis(length: Duration) -> i64 {
    i64::try_from(length.as_millis()).unwrap_or(i64::MAX / 2)
}

/// Between two looks for jobs that are old.
const MIN_SWEEP: Duration = Duration::from_secs(1);
const MAX_SWEEP: Duration = Duration::from_secs(60);

/// How often jobs of servers that have failed are looked for.
const LEASE_SWEEP: Duration = Duration::from_secs(1);

/// So many jobs are looked up at a time.
const SWEPT: usize = 100;

/// Runs one job at a time.
struct Slot {
    jobs: Arc<Jobs>,
    number: usize,
    phase: watch::Receiver<Phase>,
}

/// How a job left its slot.
enum JobResult {
    /// Everything is fetched, and the report is written; one that is shared is still to be stored.
    Done(JobProgress, Option<Vec<u8>>),
    /// It could not go on.
    Failed(String, JobProgress),
    /// It was cancelled.
    Cancelled,
    /// The server stops, or does not reach the others. It stays stored as running, unless others can go on
    /// with it.
    Interrupted,
}

impl Slot {
    fn run(self, runtime: &Runtime) {
        while let Some(claimed) = runtime.block_on(self.next_job()) {
            let job = claimed.job.clone();
            let run = || runtime.block_on(self.run_job(claimed));
            if catch_unwind(AssertUnwindSafe(run)).is_err() {
                let error = "a thread of the job panicked, which is a defect of Tidegate";
                let failed = JobResult::Failed(error.to_owned(), job.progress.clone());
                runtime.block_on(self.end(&job, failed));
            }
        }
    }

    /// The next job to run; `None` when no job is to be started any more.
    async fn next_job(&self) -> Option<ClaimedJob> {
        let mut phase = self.phase.clone();
        // Without a sender the server is gone, too.
        _ = phase.wait_for(|phase| *phase >= Phase::Running).await;
        while *phase.borrow() == Phase::Running {
            let queued = self.jobs.queued.notified();
            let retry = match self.claim().await {
                Ok(Some(claimed)) => {
                    // There may be another one for another slot.
                    self.jobs.queued.notify_one();
                    return Some(claimed);
                }
                Ok(None) => None,
                Err(retry) => Some(retry),
            };
            let wait = async {
                match retry {
                    Some(retry) => tokio::time::sleep(retry).await,
                    None => queued.await,
                }
            };
            tokio::select! {
                () = wait => {}
                _ = phase.wait_for(|phase| *phase > Phase::Running) => {}
            }
        }
        None
    }

    /// Claims a job. The error is when to try again.
    async fn claim(&self) -> Result<Option<ClaimedJob>, Duration> {
        let max_running = self.jobs.state.configuration().settings().jobs.max_running;
        if self.number >= max_running as usize {
            return Err(SLOT_RECHECK);
        }
        let now = self.now();
        let until = now + LEASE;
        let claimed = self.jobs.store.claim(Lease { now, until }).await;
        claimed.map_err(|_| STORE_RETRY)
    }

    async fn run_job(&self, claimed: ClaimedJob) {
        let job = &claimed.job;
        self.leave_other_slot(job.number).await;
        let (stop, stopped) = watch::channel(Stop::No);
        self.jobs.running().insert(job.number, stop);
        let (store, now) = (&*self.jobs.store, || self.now());
        let copier = while_claimed(store, job, now, self.restore(&claimed)).await;
        let result = match &copier {
            Ok(copier) => self.fetch(&claimed, copier.as_ref(), stopped).await,
            Err(StateProblem::Store) => JobResult::Interrupted,
            Err(StateProblem::Unusable(error)) => {
                JobResult::Failed(error.clone(), job.progress.clone())
            }
        };
        self.jobs.running().remove(&job.number);
        if let (JobResult::Interrupted, Some(_)) = (&result, &self.jobs.files) {
            if let Ok(Some(copier)) = &copier {
                copier.copy().await;
            }
            // If it cannot be stored, the job is queued when its lease has ended.
            _ = self.jobs.store.release(job.last_claim()).await;
        }
        if let Err(StateProblem::Store) = &copier {
            tokio::time::sleep(STORE_RETRY).await;
        }
        self.end(job, result).await;
    }

    /// Waits until another slot, whose lease has ended without its notice, has left this job. It takes as
    /// long as the requests in flight, and less than a lease.
    async fn leave_other_slot(&self, number: u64) {
        while self.jobs.running().contains_key(&number) {
            self.jobs.stop(number, Stop::Cancelled);
            tokio::time::sleep(SLOT_LEAVE).await;
        }
    }

    /// Makes the state ready from which a shared job goes on.
    async fn restore(&self, claimed: &ClaimedJob) -> Result<Option<StateCopier>, StateProblem> {
        let Some(files) = &self.jobs.files else {
            return Ok(None);
        };
        let folder = self.jobs.folder(&claimed.job.id);
        let copier = StateCopier::restore(Arc::clone(files), folder, claimed).await;
        copier.map(Some)
    }

    async fn fetch(
        &self,
        claimed: &ClaimedJob,
        copier: Option<&StateCopier>,
        stopped: watch::Receiver<Stop>,
    ) -> JobResult {
        let job = &claimed.job;
        let folder = self.jobs.folder(&job.id);
        let fetcher = match self.prepare(claimed, &folder) {
            Ok(fetcher) => fetcher,
            Err(error) => return JobResult::Failed(error, job.progress.clone()),
        };
        let (mut phase, mut stopping, mut is_stopped) =
            (self.phase.clone(), self.phase.clone(), stopped.clone());
        let stop = async move {
            tokio::select! {
                _ = is_stopped.wait_for(|stop| *stop != Stop::No) => {}
                _ = phase.wait_for(|phase| *phase > Phase::Running) => {}
            }
        };
        let mut after_stop = stopped.clone();
        let grace = async move {
            _ = after_stop.wait_for(|stop| *stop != Stop::No).await;
            tokio::time::sleep(CANCEL_GRACE).await;
        };
        let stop_result = || match *stopped.borrow() {
            Stop::Cancelled => JobResult::Cancelled,
            Stop::No | Stop::LeaseEnded => JobResult::Interrupted,
        };
        let summary = tokio::select! {
            summary = fetcher.run(stop) => summary,
            never = self.report_progress(job.last_claim(), &fetcher) => match never {},
            never = copy_as_it_grows(copier) => match never {},
            () = grace => return stop_result(),
            _ = stopping.wait_for(|phase| *phase == Phase::Stopping) => {
                return JobResult::Interrupted;
            }
        };
        let progress = job_progress(&fetcher.progress());
        match summary {
            _ if *stopped.borrow() != Stop::No => stop_result(),
            Err(error) => JobResult::Failed(with_causes(&error), progress),
            Ok(summary) if summary.is_interrupted => {
                // What is lost here is counted again from the state.
                let until = self.now() + LEASE;
                _ = self
                    .jobs
                    .store
                    .update(job.last_claim(), progress, until)
                    .await;
                JobResult::Interrupted
            }
            Ok(summary) => match self.make_report(job, &folder, summary.report.as_ref()) {
                Ok(shared) => {
                    let progress = JobProgress {
                        permille: 1000,
                        ..progress
                    };
                    JobResult::Done(progress, shared)
                }
                Err(error) => {
                    let error = format!("the report cannot be written: {error}");
                    JobResult::Failed(error, progress)
                }
            },
        }
    }

    /// Makes everything ready. The error is for people.
    fn prepare(&self, claimed: &ClaimedJob, folder: &JobFolder) -> Result<Fetcher, String> {
        let state = &self.jobs.state;
        let configuration = state.configuration();
        let settings = configuration.settings();
        let request = claimed.request.as_ref();
        let request = request.map_err(|error| error.to_string().replace("\nhint: ", "; "))?;
        let request = JobRequest::from_json(request)?;
        folder
            .create()
            .map_err(|error| format!("the folder of the job cannot be made: {error}"))?;
        let plan = FetchPlan {
            max_urls: settings.jobs.max_urls as usize,
            state: Some(folder.state()),
            report: Some(Trackers::built_in()),
            ..request.plan(Trust::Untrusted)?
        };
        let core = Arc::clone(state.core());
        let worker = core.job_worker(self.number);
        Fetcher::new(core, settings, plan, worker).map_err(|error| with_causes(&error))
    }

    /// Stores how far a job is, as often as people look. Stops the job if it does not run under this claim any
    /// more, or may not. Is never ready.
    async fn report_progress(&self, claim: JobClaim, fetcher: &Fetcher) -> Infallible {
        let mut ticks = tokio::time::interval(REPORT);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut news = self.jobs.news.subscribe();
        let mut last = None;
        let mut extended = Instant::now();
        let is_shared = self.jobs.files.is_some();
        loop {
            let has_news = tokio::select! {
                _ = ticks.tick() => false,
                _ = news.changed() => true,
            };
            let progress = job_progress(&fetcher.progress());
            let is_same = last.as_ref() == Some(&progress);
            if is_same && !has_news && extended.elapsed() < EXTEND {
                continue;
            }
            let now = Instant::now();
            let until = self.now() + LEASE;
            match self.jobs.store.update(claim, progress.clone(), until).await {
                Ok(true) => (last, extended) = (Some(progress), now),
                Ok(false) => self.jobs.stop(claim.number, Stop::Cancelled),
                Err(_) if is_shared && extended.elapsed() >= LEASE => {
                    self.jobs.stop(claim.number, Stop::LeaseEnded);
                }
                // The next one may be stored.
                Err(_) => {}
            }
        }
    }

    async fn end(&self, job: &StoredJob, result: JobResult) {
        let (error, progress) = match result {
            JobResult::Interrupted => return,
            JobResult::Cancelled => return self.delete_state(job),
            JobResult::Done(progress, report) => {
                if let Some(report) = report
                    && !self.store_report(job, report).await
                {
                    return;
                }
                (None, progress)
            }
            JobResult::Failed(error, progress) => (Some(error), progress),
        };
        if let Some(error) = &error {
            self.jobs.state.log().job_failed(&job.id, Text::new(error));
        }
        loop {
            let end = JobEnd {
                now: self.now(),
                error: error.clone(),
                progress: progress.clone(),
            };
            match self.jobs.store.finish(job.last_claim(), end).await {
                Ok(_) => return self.delete_state(job),
                // The job continues at the next start, and ends again.
                Err(_) if *self.phase.borrow() > Phase::Running => return,
                Err(_) => tokio::time::sleep(STORE_RETRY).await,
            }
        }
    }

    /// Writes the report of a job to its folder, or returns it if it is shared.
    fn make_report(
        &self,
        job: &StoredJob,
        folder: &JobFolder,
        report: Option<&Report>,
    ) -> io::Result<Option<Vec<u8>>> {
        let report = report.ok_or_else(|| io::Error::other("the fetch has none"))?;
        if self.jobs.files.is_some() {
            return Ok(Some(serde_json::to_vec(report)?));
        }
        folder.write_report(report, &[("JSON", &json_address(job))])?;
        Ok(None)
    }

    /// Stores a report that is shared; whether the job is still run here.
    async fn store_report(&self, job: &StoredJob, report: Vec<u8>) -> bool {
        let Some(files) = &self.jobs.files else {
            return true;
        };
        loop {
            match files.save_report(job.last_claim(), report.clone()).await {
                Ok(is_saved) => return is_saved,
                // Another server goes on, or this one at its next start.
                Err(_) if *self.phase.borrow() > Phase::Running => return false,
                Err(_) => tokio::time::sleep(STORE_RETRY).await,
            }
        }
    }

    /// Deletes what an ended job does not need any more. What is left is deleted with the job.
    fn delete_state(&self, job: &StoredJob) {
        _ = self.jobs.folder(&job.id).delete_state();
    }

    fn now(&self) -> WallTime {
        self.jobs.state.clock().wall()
    }
}

/// Does `work` for a job that does not run yet, and extends its lease meanwhile.
async fn while_claimed<T>(
    store: &dyn JobStore,
    job: &StoredJob,
    now: impl Fn() -> WallTime,
    work: impl Future<Output = T>,
) -> T {
    let mut work = pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            () = tokio::time::sleep(EXTEND) => {}
        }
        let until = now() + LEASE;
        // If it fails, or the job was cancelled, that is noticed when the job runs.
        _ = store
            .update(job.last_claim(), job.progress.clone(), until)
            .await;
    }
}

/// Copies the state of a shared job about once a second. Is never ready.
async fn copy_as_it_grows(copier: Option<&StateCopier>) -> Infallible {
    let Some(copier) = copier else {
        return std::future::pending().await;
    };
    let mut ticks = tokio::time::interval(REPORT);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        copier.copy().await;
    }
}

/// What a cancelled job has in flight may take so long; then it is dropped.
const CANCEL_GRACE: Duration = Duration::from_secs(5);

/// How long a job is claimed without being extended, as operations that servers share: longer than any pause
/// of a process that works, and than the difference of two clocks may be.
const LEASE: Duration = Duration::from_secs(15);

/// How often a claim is extended at least.
const EXTEND: Duration = Duration::from_secs(5);

/// How often a slot looks whether another has left its job.
const SLOT_LEAVE: Duration = Duration::from_millis(20);

/// How often progress is stored.
const REPORT: Duration = Duration::from_secs(1);

/// How often a slot that a reload took away looks whether it is there again.
const SLOT_RECHECK: Duration = Duration::from_secs(1);

fn job_progress(progress: &FetchProgress) -> JobProgress {
    let FetchCounts {
        known,
        queued,
        in_flight,
        retrying,
        done,
        failed,
        denied,
        not_modified,
        sent,
        bytes,
    } = progress.counts;
    JobProgress {
        stage: progress.stage.as_str().to_owned(),
        permille: permille(progress.percent),
        counts: JobCounts {
            known,
            queued,
            in_flight,
            retrying,
            done,
            failed,
            denied,
            not_modified,
            sent,
            bytes,
        },
    }
}

/// Rounded down, so that only a job that is done is at 100 per cent.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is from 0 to 1000"
)]
fn permille(percent: f64) -> u16 {
    (percent * 10.0).clamp(0.0, 1000.0) as u16
}

/// An error with its causes, in one line.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text.replace("\nhint: ", "; ")
}

#[cfg(test)]
mod tests {
    use store::Store;
    use store::jobs::NewJob;
    use store::operations::wait;

    use super::*;

    #[test]
    fn the_lease_of_a_job_outlasts_work_that_takes_longer() {
        let jobs = Store::memory().jobs();
        let job = NewJob {
            id: "a".to_owned(),
            slug: "slug".to_owned(),
            summary: String::new(),
            request: String::new(),
            stage: String::new(),
            created_at: at(0),
        };
        wait(jobs.insert(job, 1)).unwrap();
        let lease = Lease {
            now: at(0),
            until: at(0) + LEASE,
        };
        let claimed = wait(jobs.claim(lease)).unwrap().unwrap();
        let runtime = runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let begin = Instant::now();
            let now = || at(0) + begin.elapsed();
            let work = tokio::time::sleep(2 * LEASE + EXTEND / 2);
            while_claimed(&*jobs, &claimed.job, now, work).await;
            assert_eq!(jobs.sweep(now()).await, Ok(0));
            assert_eq!(jobs.sweep(now() + LEASE).await, Ok(1));
        });
    }

    fn at(seconds: i64) -> WallTime {
        WallTime::from_unix_millis(1000 * seconds)
    }
}
