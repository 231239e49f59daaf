//! The behaviours of stored jobs, for every kind of store, and any sequence of calls on the file
//! compared with memory.

#[cfg(feature = "postgres")]
use std::rc::Rc;
use std::sync::Arc;

use policy::time::WallTime;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
#[cfg(feature = "postgres")]
use proptest::test_runner::TestRunner;

use super::{Subject, shared_suite};
use crate::jobs::{
    CancelError, JobClaim, JobCounts, JobEnd, JobProgress, JobStatus, JobStore, NewJob, StoredJob,
};
use crate::operations::{Lease, wait};
#[cfg(feature = "postgres")]
use crate::private_postgres::PrivatePostgres;
use crate::{Store, StoreError};

/// A moment, in seconds.
fn at(seconds: i64) -> WallTime {
    WallTime::from_unix_millis(seconds * 1000)
}

/// A lease of ten seconds.
pub(crate) fn lease(now: i64) -> Lease {
    Lease {
        now: at(now),
        until: at(now + 10),
    }
}

/// The first claim of a job.
fn first(number: u64) -> JobClaim {
    JobClaim { number, fence: 1 }
}

pub(crate) fn job(id: &str) -> NewJob {
    NewJob {
        id: id.to_owned(),
        slug: format!("slug-{id}"),
        summary: format!("{id}.example.com"),
        request: format!("{{\"urls\":[\"https://{id}.example.com/?secret\"]}}"),
        stage: "discovery".to_owned(),
        created_at: at(1),
    }
}

fn progress(permille: u16, done: u64) -> JobProgress {
    JobProgress {
        stage: "extraction".to_owned(),
        permille,
        counts: JobCounts {
            known: 100,
            queued: 7,
            in_flight: 5,
            retrying: 2,
            done,
            failed: 3,
            denied: 1,
            not_modified: 4,
            sent: 120,
            bytes: 1 << 40,
        },
    }
}

fn end(now: i64, error: Option<&str>) -> JobEnd {
    JobEnd {
        now: at(now),
        error: error.map(str::to_owned),
        progress: progress(1000, 100),
    }
}

shared_suite! {
    a_stored_job_survives_a_restart,
    jobs_are_claimed_in_the_order_of_their_inserts,
    refuses_a_job_when_too_many_are_queued,
    a_running_job_is_claimed_first_after_a_restart,
    stored_progress_never_falls,
    a_finished_job_has_its_end_and_stays,
    a_cancelled_job_neither_runs_nor_finishes,
    cancels_only_jobs_that_have_not_ended,
    pages_are_newest_first,
    only_ended_jobs_are_deleted,
    totals_count_each_status,
    a_job_is_claimed_again_when_its_lease_has_ended,
    a_late_claim_changes_nothing,
    a_released_job_is_claimed_first,
}

fn a_stored_job_survives_a_restart(subject: &mut Subject) {
    let stored = insert(subject, "a");
    assert_eq!(stored.status, JobStatus::Queued);
    assert_eq!(stored.progress.stage, "discovery");
    subject.restart();
    assert_eq!(get(subject, "a"), stored);
    assert_eq!(wait(subject.jobs().by_slug("slug-a")), Ok(Some(stored)));
    assert_eq!(wait(subject.jobs().get("slug-a")), Ok(None));
    assert_eq!(wait(subject.jobs().by_slug("a")), Ok(None));
}

fn jobs_are_claimed_in_the_order_of_their_inserts(subject: &Subject) {
    for id in ["b", "a"] {
        insert(subject, id);
    }
    let claimed = wait(subject.jobs().claim(lease(5))).unwrap().unwrap();
    assert_eq!(claimed.job.id, "b");
    assert_eq!(claimed.job.status, JobStatus::Running);
    assert_eq!(claimed.job.started_at, Some(at(5)));
    assert_eq!(claimed.request, Ok(job("b").request));
    assert_eq!(get(subject, "b"), claimed.job);
    assert_eq!(claim(subject, 6).as_deref(), Some("a"));
    assert_eq!(claim(subject, 7), None);
}

fn refuses_a_job_when_too_many_are_queued(subject: &mut Subject) {
    let try_insert = |subject: &Subject, id: &str| wait(subject.jobs().insert(job(id), 2)).unwrap();
    assert!(try_insert(subject, "a").is_some());
    assert!(try_insert(subject, "b").is_some());
    assert_eq!(try_insert(subject, "c"), None);
    assert_eq!(wait(subject.jobs().get("c")), Ok(None));
    claim(subject, 2);
    assert!(try_insert(subject, "c").is_some());
    subject.restart();
    assert_eq!(try_insert(subject, "d"), None);
}

fn a_running_job_is_claimed_first_after_a_restart(subject: &mut Subject) {
    for id in ["a", "b", "c"] {
        insert(subject, id);
    }
    claim(subject, 2);
    wait(subject.jobs().update(first(1), progress(400, 40), at(99))).unwrap();
    subject.restart();
    assert_eq!(get(subject, "a").status, JobStatus::Running);
    assert_eq!(wait(subject.jobs().recover()), Ok(1));
    assert_eq!(get(subject, "a").status, JobStatus::Queued);
    let claimed = wait(subject.jobs().claim(lease(9))).unwrap().unwrap();
    assert_eq!(claimed.job.id, "a");
    assert_eq!(claimed.job.started_at, Some(at(2)));
    assert_eq!(claimed.job.progress, progress(400, 40));
    assert_eq!(wait(subject.jobs().recover()), Ok(1));
    wait(subject.jobs().cancel("a", at(9))).unwrap().unwrap();
    assert_eq!(wait(subject.jobs().recover()), Ok(0));
}

fn stored_progress_never_falls(subject: &Subject) {
    insert(subject, "a");
    let update = |permille, done| {
        wait(
            subject
                .jobs()
                .update(first(1), progress(permille, done), at(99)),
        )
    };
    assert_eq!(update(300, 30), Ok(false));
    assert_eq!(get(subject, "a").progress.permille, 0);
    claim(subject, 2);
    for (permille, done) in [(300, 30), (200, 31)] {
        assert_eq!(update(permille, done), Ok(true));
    }
    let stored = get(subject, "a").progress;
    assert_eq!((stored.permille, stored.counts.done), (300, 31));
    assert_eq!(stored.stage, "extraction");
    assert_eq!(
        wait(subject.jobs().update(first(7), progress(1, 1), at(99))),
        Ok(false)
    );
}

fn a_finished_job_has_its_end_and_stays(subject: &mut Subject) {
    for id in ["a", "b"] {
        insert(subject, id);
        claim(subject, 2);
    }
    let done = wait(subject.jobs().finish(first(1), end(3, None))).unwrap();
    let failed = wait(
        subject
            .jobs()
            .finish(first(2), end(4, Some("the disk is full"))),
    )
    .unwrap();
    subject.restart();
    assert_eq!(wait(subject.jobs().recover()), Ok(0));
    assert_eq!(Some(get(subject, "a")), done);
    assert_eq!(Some(get(subject, "b")), failed);
    let (done, failed) = (done.unwrap(), failed.unwrap());
    assert_eq!((done.status, done.error), (JobStatus::Done, None));
    assert_eq!(done.finished_at, Some(at(3)));
    assert_eq!(failed.status, JobStatus::Error);
    assert_eq!(failed.error.as_deref(), Some("the disk is full"));
    assert_eq!(
        wait(subject.jobs().finish(first(1), end(5, None))),
        Ok(None)
    );
    assert_eq!(claim(subject, 6), None);
}

fn a_cancelled_job_neither_runs_nor_finishes(subject: &Subject) {
    for id in ["a", "b"] {
        insert(subject, id);
    }
    claim(subject, 2);
    wait(subject.jobs().update(first(1), progress(300, 30), at(99))).unwrap();
    for id in ["a", "b"] {
        let cancelled = wait(subject.jobs().cancel(id, at(3))).unwrap().unwrap();
        assert_eq!(cancelled.status, JobStatus::Cancelled);
        assert_eq!(cancelled.finished_at, Some(at(3)));
        assert_eq!(get(subject, id), cancelled);
    }
    let counts = get(subject, "a").progress.counts;
    assert_eq!((counts.done, counts.queued), (30, 0));
    assert_eq!(
        wait(subject.jobs().finish(first(1), end(4, None))),
        Ok(None)
    );
    assert_eq!(claim(subject, 5), None);
}

fn cancels_only_jobs_that_have_not_ended(subject: &Subject) {
    let cancel = |subject: &Subject| wait(subject.jobs().cancel("a", at(9))).unwrap();
    assert_eq!(cancel(subject), Err(CancelError::Unknown));
    insert(subject, "a");
    claim(subject, 2);
    wait(subject.jobs().finish(first(1), end(3, None))).unwrap();
    assert_eq!(cancel(subject), Err(CancelError::Ended(JobStatus::Done)));
}

fn pages_are_newest_first(subject: &Subject) {
    for id in ["a", "b", "c"] {
        insert(subject, id);
    }
    let page = |before, limit| -> Vec<String> {
        let jobs = wait(subject.jobs().page(before, limit)).unwrap();
        jobs.into_iter().map(|job| job.id).collect()
    };
    assert_eq!(page(None, 2), ["c", "b"]);
    assert_eq!(page(Some(2), 2), ["a"]);
    assert_eq!(page(Some(1), 2), Vec::<String>::new());
    assert_eq!(page(Some(u64::MAX), 9), ["c", "b", "a"]);
}

fn only_ended_jobs_are_deleted(subject: &mut Subject) {
    for id in ["a", "b", "c", "d"] {
        insert(subject, id);
    }
    for now in [2, 3] {
        claim(subject, now);
    }
    wait(subject.jobs().finish(first(2), end(20, None))).unwrap();
    wait(subject.jobs().cancel("c", at(10))).unwrap().unwrap();
    let ended = |until, limit| -> Vec<String> {
        let jobs = wait(subject.jobs().ended(at(until), limit)).unwrap();
        jobs.into_iter().map(|job| job.id).collect()
    };
    assert_eq!(ended(9, 9), Vec::<String>::new());
    assert_eq!(ended(10, 9), ["c"]);
    assert_eq!(ended(99, 9), ["c", "b"]);
    assert_eq!(ended(99, 1), ["c"]);
    for number in 1..=9 {
        wait(subject.jobs().delete(number)).unwrap();
    }
    subject.restart();
    let left = wait(subject.jobs().page(None, 9)).unwrap();
    let left: Vec<&str> = left.iter().map(|job| job.id.as_str()).collect();
    assert_eq!(left, ["d", "a"]);
    assert_eq!(insert(subject, "e").number, 5);
}

fn totals_count_each_status(subject: &mut Subject) {
    for id in ["a", "b", "c", "d", "e"] {
        insert(subject, id);
    }
    for now in [2, 3, 4] {
        claim(subject, now);
    }
    wait(subject.jobs().finish(first(1), end(5, None))).unwrap();
    wait(subject.jobs().finish(first(2), end(5, Some("no")))).unwrap();
    wait(subject.jobs().cancel("d", at(5))).unwrap().unwrap();
    let expected = [
        (JobStatus::Queued, 1),
        (JobStatus::Running, 1),
        (JobStatus::Done, 1),
        (JobStatus::Error, 1),
        (JobStatus::Cancelled, 1),
    ];
    assert_eq!(subject.jobs().totals().all(), expected);
    subject.restart();
    assert_eq!(subject.jobs().totals().all(), expected);
    wait(subject.jobs().recover()).unwrap();
    wait(subject.jobs().delete(1)).unwrap();
    let totals = subject.jobs().totals();
    assert_eq!(totals.of(JobStatus::Queued), 2);
    assert_eq!(totals.of(JobStatus::Running), 0);
    assert_eq!(totals.of(JobStatus::Done), 0);
}

fn a_job_is_claimed_again_when_its_lease_has_ended(subject: &Subject) {
    for id in ["a", "b"] {
        insert(subject, id);
        claim(subject, 0);
    }
    let sweep = |now| wait(subject.jobs().sweep(at(now))).unwrap();
    wait(subject.jobs().update(first(2), progress(1, 1), at(20))).unwrap();
    assert_eq!(sweep(9), 0);
    assert_eq!(sweep(10), 1);
    assert_eq!(get(subject, "a").status, JobStatus::Queued);
    assert_eq!(get(subject, "b").status, JobStatus::Running);
    assert_eq!(sweep(20), 1);
    let totals = subject.jobs().totals();
    assert_eq!(totals.of(JobStatus::Queued), 2);
    let claimed = wait(subject.jobs().claim(lease(21))).unwrap().unwrap();
    assert_eq!((claimed.job.id.as_str(), claimed.job.fence), ("a", 2));
    wait(
        subject
            .jobs()
            .finish(claimed.job.last_claim(), end(22, None)),
    )
    .unwrap();
    // A lease that has ended says nothing about a job that does not run.
    assert_eq!(sweep(99), 0);
}

fn a_late_claim_changes_nothing(subject: &Subject) {
    insert(subject, "a");
    claim(subject, 0);
    wait(subject.jobs().sweep(at(10))).unwrap();
    let late = || {
        let update = subject.jobs().update(first(1), progress(900, 90), at(99));
        assert_eq!(wait(update), Ok(false));
        assert_eq!(
            wait(subject.jobs().finish(first(1), end(12, None))),
            Ok(None)
        );
        assert_eq!(wait(subject.jobs().release(first(1))), Ok(false));
    };
    late();
    let claimed = wait(subject.jobs().claim(lease(11))).unwrap().unwrap();
    let before = get(subject, "a");
    late();
    assert_eq!(get(subject, "a"), before);
    let second = claimed.job.last_claim();
    let done = wait(subject.jobs().finish(second, end(13, None))).unwrap();
    assert_eq!(done.unwrap().status, JobStatus::Done);
}

fn a_released_job_is_claimed_first(subject: &mut Subject) {
    for id in ["a", "b"] {
        insert(subject, id);
    }
    claim(subject, 0);
    assert_eq!(wait(subject.jobs().release(first(1))), Ok(true));
    assert_eq!(wait(subject.jobs().release(first(1))), Ok(false));
    subject.restart();
    assert_eq!(wait(subject.jobs().recover()), Ok(0));
    assert_eq!(claim(subject, 5).as_deref(), Some("a"));
    let again = get(subject, "a");
    assert_eq!((again.fence, again.started_at), (2, Some(at(0))));
}

fn insert(subject: &Subject, id: &str) -> StoredJob {
    wait(subject.jobs().insert(job(id), 1000)).unwrap().unwrap()
}

fn get(subject: &Subject, id: &str) -> StoredJob {
    wait(subject.jobs().get(id)).unwrap().unwrap()
}

/// The id of the job that is claimed.
fn claim(subject: &Subject, now: i64) -> Option<String> {
    let claimed = wait(subject.jobs().claim(lease(now))).unwrap();
    claimed.map(|claimed| claimed.job.id)
}

impl Subject {
    pub(crate) fn jobs(&self) -> Arc<dyn JobStore> {
        self.store().jobs()
    }
}

proptest! {
    // Every call of every case is synced.
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_sequence_of_calls_is_what_it_means(steps in vec(step(), 1..60)) {
        check(Subject::sqlite(), steps)?;
    }
}

#[cfg(feature = "postgres")]
#[test]
fn any_sequence_of_calls_is_what_it_means_in_postgres() {
    let server = Rc::new(PrivatePostgres::start());
    let mut runner = TestRunner::new(ProptestConfig::with_cases(20));
    let checked = runner.run(&vec(step(), 1..60), |steps| {
        check(Subject::postgres_on(Rc::clone(&server)), steps)
    });
    checked.unwrap();
}

fn check(mut subject: Subject, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut model = Subject::memory();
    for (number, step) in steps.into_iter().enumerate() {
        let expected = make(&mut model, number, &step);
        prop_assert_eq!(make(&mut subject, number, &step), expected, "{:?}", step);
    }
    prop_assert_eq!(contents(subject.store()), contents(model.store()));
    subject.restart();
    prop_assert_eq!(contents(subject.store()), contents(model.store()));
    Ok(())
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u64),
    Recover,
    Claim(i64),
    Update(JobClaim, u16, i64),
    Release(JobClaim),
    Finish(JobClaim, i64, Option<String>),
    Sweep(i64),
    Cancel(u64, i64),
    Ended(i64, usize),
    Delete(u64),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let number = || 1..8_u64;
    let time = || 0..20_i64;
    let claim = || (1..8_u64, 1..3_u64).prop_map(|(number, fence)| JobClaim { number, fence });
    prop_oneof![
        4 => (0..6_u64).prop_map(Step::Insert),
        1 => Just(Step::Recover),
        4 => time().prop_map(Step::Claim),
        2 => (claim(), 0..=1000_u16, time())
            .prop_map(|(claim, permille, until)| Step::Update(claim, permille, until)),
        1 => claim().prop_map(Step::Release),
        3 => (claim(), time(), option::of(".*"))
            .prop_map(|(claim, now, error)| Step::Finish(claim, now, error)),
        1 => time().prop_map(Step::Sweep),
        2 => (number(), time()).prop_map(|(number, now)| Step::Cancel(number, now)),
        1 => (time(), 0..4_usize).prop_map(|(until, limit)| Step::Ended(until, limit)),
        1 => number().prop_map(Step::Delete),
        1 => Just(Step::Restart),
    ]
}

/// Makes a call; its result as text, and whether it failed. Jobs are named after the step that
/// inserts them, which is the same for both stores.
fn make(subject: &mut Subject, step_number: usize, step: &Step) -> Result<String, StoreError> {
    let jobs = subject.jobs();
    Ok(match step.clone() {
        Step::Insert(max) => {
            format!(
                "{:?}",
                wait(jobs.insert(job(&step_number.to_string()), max))?
            )
        }
        Step::Recover => format!("{}", wait(jobs.recover())?),
        Step::Claim(now) => format!("{:?}", wait(jobs.claim(lease(now)))?.map(|it| it.job)),
        Step::Update(claim, permille, until) => {
            let progress = progress(permille, claim.number);
            format!("{:?}", wait(jobs.update(claim, progress, at(until)))?)
        }
        Step::Release(claim) => format!("{:?}", wait(jobs.release(claim))?),
        Step::Finish(claim, now, error) => {
            let end = JobEnd {
                error,
                ..end(now, None)
            };
            format!("{:?}", wait(jobs.finish(claim, end))?)
        }
        Step::Sweep(now) => format!("{:?}", wait(jobs.sweep(at(now)))?),
        Step::Cancel(number, now) => {
            let all = wait(jobs.page(None, 100))?;
            let id = all.iter().find(|job| job.number == number);
            let id = id.map_or("none", |job| &job.id);
            format!("{:?}", wait(jobs.cancel(id, at(now)))?)
        }
        Step::Ended(until, limit) => format!("{:?}", wait(jobs.ended(at(until), limit))?),
        Step::Delete(number) => format!("{:?}", wait(jobs.delete(number))?),
        Step::Restart => {
            drop(jobs);
            subject.restart();
            String::new()
        }
    })
}

fn contents(store: &Store) -> Vec<String> {
    let jobs = wait(store.jobs().page(None, 1000)).unwrap();
    let mut contents: Vec<String> = jobs.iter().map(|job| format!("{job:?}")).collect();
    contents.push(format!("{:?}", store.jobs().totals()));
    contents
}
