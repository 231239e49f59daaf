//! One test per rule of polling, then properties over random histories.

use proptest::prelude::*;

use super::*;

/// A poll whose next response always arrives exactly when it is due.
struct Poller {
    settings: PollSettings,
    poll: Poll,
    now: Timestamp,
}

const REFUSED: ResponseKind = ResponseKind::Throttled { wait: None };
const BROKEN: ResponseKind = ResponseKind::Failed { wait: None };

fn running(progress: f64) -> StatusResponse {
    StatusResponse {
        kind: ResponseKind::Success,
        job: Some(JobStatus::Running {
            progress: Some(progress),
        }),
    }
}

impl Poller {
    fn new(given: &[(&str, &str)]) -> Self {
        let mut options = PollOptions::default();
        for (name, value) in given {
            options.set(name, value).unwrap();
        }
        Self {
            settings: options.build().unwrap(),
            poll: Poll::new(Timestamp::ZERO),
            now: Timestamp::ZERO,
        }
    }

    fn respond(&mut self, response: impl Into<StatusResponse>) -> PollStep {
        let next = self.poll.after(&self.settings, &response.into(), self.now);
        self.now = self.now + next.wait.unwrap_or_default();
        next
    }

    fn millis(&mut self, response: impl Into<StatusResponse>) -> Option<u128> {
        self.respond(response).wait.map(|wait| wait.as_millis())
    }
}

#[test]
fn interval_follows_the_stage_of_the_job() {
    for (progress, millis) in [
        (0.0, 3000),
        (29.999, 3000),
        (30.0, 2500),
        (69.999, 2500),
        (70.0, 2000),
        (100.0, 2000),
        (140.0, 2000),
        (-5.0, 3000),
        (f64::NAN, 3000),
    ] {
        let mut poller = Poller::new(&[]);
        assert_eq!(poller.millis(running(progress)), Some(millis), "{progress}");
        assert_eq!(poller.poll.state(), PollState::Polling);
    }
}

#[test]
fn waits_first_interval_without_data_and_early_without_progress() {
    let mut poller = Poller::new(&[]);
    assert_eq!(poller.millis(ResponseKind::Success), Some(2000));
    let no_progress = StatusResponse {
        kind: ResponseKind::Success,
        job: Some(JobStatus::Running { progress: None }),
    };
    assert_eq!(poller.millis(no_progress), Some(3000));
}

#[test]
fn refusals_slow_down_until_a_success() {
    let mut poller = Poller::new(&[]);
    assert_eq!(poller.millis(running(40.0)), Some(2500));
    for (n, millis) in [(1, 2000), (2, 4000), (3, 8000), (4, 15_000), (5, 15_000)] {
        assert_eq!(poller.millis(REFUSED), Some(millis));
        assert_eq!(poller.poll.consecutive_429(), n);
        assert!(poller.poll.banner());
        assert_eq!(poller.poll.state(), PollState::Slowed);
        assert_eq!(poller.poll.progress(), Some(40.0), "progress stays visible");
    }
    assert_eq!(poller.millis(running(10.0)), Some(3000));
    assert!(!poller.poll.banner());
    assert_eq!(poller.poll.state(), PollState::Polling);
    assert_eq!(
        poller.millis(REFUSED),
        Some(2000),
        "starts at the first step again"
    );
}

#[test]
fn waits_for_the_longer_of_step_and_header() {
    let mut poller = Poller::new(&[]);
    let mut refused = |seconds| {
        let wait = Some(Duration::from_secs(seconds));
        let next = poller.respond(ResponseKind::Throttled { wait });
        (next.wait.map(|wait| wait.as_secs()), next.reason)
    };
    assert_eq!(refused(1), (Some(2), PollReason::Throttled));
    assert_eq!(refused(7), (Some(7), PollReason::Directed));
    assert_eq!(refused(60), (Some(60), PollReason::Directed), "not capped");
    assert_eq!(refused(0), (Some(15), PollReason::Throttled));
}

#[test]
fn gives_up_permanently_after_more_than_five_minutes() {
    let mut poller = Poller::new(&[]);
    poller.now = Timestamp::from_millis(1000);
    poller.respond(running(1.0));
    poller.now = Timestamp::from_millis(301_000);
    assert_eq!(poller.respond(REFUSED).state, PollState::Slowed);
    poller.now = Timestamp::from_nanos(301_000_000_001);
    let next = poller.respond(REFUSED);
    assert_eq!((next.state, next.wait), (PollState::GaveUp, None));
    assert_eq!(next.reason, PollReason::NoSuccess);
    for response in [running(50.0), REFUSED.into(), ResponseKind::NotFound.into()] {
        let next = poller.respond(response);
        assert_eq!((next.state, next.wait), (PollState::GaveUp, None));
        assert_eq!(next.reason, PollReason::Ended);
    }
}

#[test]
fn give_up_counts_from_first_request_before_any_success() {
    let mut poller = Poller::new(&[]);
    poller.now = Timestamp::from_secs(300);
    assert_eq!(poller.respond(REFUSED).state, PollState::Slowed);
    poller.now = Timestamp::from_millis(300_001);
    assert_eq!(poller.respond(REFUSED).state, PollState::GaveUp);
}

#[test]
fn gives_up_at_304_seconds_when_always_refused() {
    let mut poller = Poller::new(&[]);
    poller.respond(running(40.0));
    poller.respond(running(40.0));
    while !poller.respond(REFUSED).state.is_end() {}
    assert_eq!(poller.now, Timestamp::from_secs(304));
    assert_eq!(poller.poll.consecutive_429(), 23);
}

#[test]
fn gives_up_at_once_when_wait_ends_too_late() {
    let mut poller = Poller::new(&[]);
    let wait = |seconds| Some(Duration::from_secs(seconds));
    let next = poller.respond(ResponseKind::Throttled { wait: wait(300) });
    assert_eq!(next.wait, wait(300), "exactly as long is waited for");
    let mut poller = Poller::new(&[]);
    let next = poller.respond(ResponseKind::Throttled { wait: wait(301) });
    assert_eq!(
        (next.state, next.reason),
        (PollState::GaveUp, PollReason::WaitTooLong)
    );
    let mut poller = Poller::new(&[]);
    let next = poller.respond(ResponseKind::Failed { wait: wait(301) });
    assert_eq!(next.state, PollState::GaveUp);
}

#[test]
fn retries_other_errors_three_times() {
    let mut poller = Poller::new(&[]);
    for millis in [1000, 2000, 4000] {
        assert_eq!(poller.millis(BROKEN), Some(millis));
    }
    let next = poller.respond(BROKEN);
    assert_eq!(
        (next.state, next.reason),
        (PollState::Failed, PollReason::Errors)
    );

    let mut poller = Poller::new(&[("other_retries", "4")]);
    for millis in [1000, 2000, 4000, 5000] {
        assert_eq!(poller.millis(BROKEN), Some(millis));
    }
    let mut poller = Poller::new(&[("other_retries", "0")]);
    assert_eq!(poller.respond(BROKEN).state, PollState::Failed);
}

#[test]
fn directed_wait_is_the_reason_only_if_longer() {
    let reason = |seconds: u64| {
        let wait = Some(Duration::from_secs(seconds));
        Poller::new(&[])
            .respond(ResponseKind::Throttled { wait })
            .reason
    };
    assert_eq!(
        (reason(2), reason(3)),
        (PollReason::Throttled, PollReason::Directed)
    );
}

#[test]
fn success_or_429_resets_other_errors() {
    for between in [running(1.0), REFUSED.into()] {
        let mut poller = Poller::new(&[]);
        for response in [BROKEN.into(), BROKEN.into(), BROKEN.into(), between] {
            assert!(!poller.respond(response).state.is_end());
        }
        assert_eq!(poller.poll.other_errors(), 0);
        assert_eq!(poller.millis(BROKEN), Some(1000));
    }
}

#[test]
fn other_errors_do_not_change_the_429_count() {
    let mut poller = Poller::new(&[]);
    poller.respond(REFUSED);
    poller.respond(REFUSED);
    let next = poller.respond(BROKEN);
    assert_eq!(poller.poll.consecutive_429(), 2);
    assert_eq!(next.state, PollState::Slowed);
    assert!(poller.poll.banner());
    assert_eq!(poller.millis(REFUSED), Some(8000));
}

#[test]
fn gives_up_on_other_errors() {
    let mut poller = Poller::new(&[]);
    poller.now = Timestamp::from_secs(301);
    assert_eq!(poller.respond(BROKEN).state, PollState::GaveUp);
}

#[test]
fn giving_up_takes_precedence_over_failure_and_404() {
    let mut poller = Poller::new(&[("other_retries", "0")]);
    let wait = Some(Duration::from_secs(301));
    let next = poller.respond(ResponseKind::Failed { wait });
    assert_eq!(
        (next.state, next.reason),
        (PollState::GaveUp, PollReason::WaitTooLong)
    );
    let mut poller = Poller::new(&[]);
    poller.now = Timestamp::from_secs(301);
    assert_eq!(
        poller.respond(ResponseKind::NotFound).state,
        PollState::GaveUp
    );
}

#[test]
fn honours_longer_retry_after_of_other_errors() {
    let mut poller = Poller::new(&[]);
    let wait = Some(Duration::from_secs(20));
    assert_eq!(poller.respond(ResponseKind::Failed { wait }).wait, wait);
    let wait = Some(Duration::from_millis(1));
    assert_eq!(poller.millis(ResponseKind::Failed { wait }), Some(2000));
}

#[test]
fn not_found_ends_polling() {
    let mut poller = Poller::new(&[]);
    poller.respond(running(1.0));
    let next = poller.respond(ResponseKind::NotFound);
    assert_eq!((next.state, next.wait), (PollState::NotFound, None));
    assert_eq!(poller.respond(running(1.0)).state, PollState::NotFound);
}

#[test]
fn end_of_the_job_takes_precedence() {
    for kind in [
        ResponseKind::Success,
        REFUSED,
        ResponseKind::NotFound,
        BROKEN,
    ] {
        for (job, state) in [
            (JobStatus::Done, PollState::Done),
            (JobStatus::Failed, PollState::Failed),
        ] {
            let mut poller = Poller::new(&[("other_retries", "0")]);
            poller.now = Timestamp::from_secs(1000);
            let job = Some(job);
            let next = poller.respond(StatusResponse { kind, job });
            assert_eq!(
                (next.state, next.wait, next.reason),
                (state, None, PollReason::Job)
            );
        }
    }
}

fn responses() -> impl Strategy<Value = StatusResponse> {
    let wait = prop::option::of((0_u64..400).prop_map(Duration::from_secs));
    prop_oneof![
        2 => (0.0..120.0).prop_map(running),
        4 => wait.clone().prop_map(|wait| ResponseKind::Throttled { wait }.into()),
        2 => wait.prop_map(|wait| ResponseKind::Failed { wait }.into()),
    ]
}

proptest! {
    #[test]
    fn gives_up_only_without_success_and_never_polls_early(
        responses in prop::collection::vec((responses(), 0_u64..20_000), 0..100),
    ) {
        let settings = PollSettings::default();
        let mut poll = Poll::new(Timestamp::ZERO);
        let mut now = Timestamp::ZERO;
        let mut alive = Timestamp::ZERO;
        let mut ended: Option<PollState> = None;
        for (response, later) in responses {
            let next = poll.after(&settings, &response, now);
            if let Some(state) = ended {
                prop_assert_eq!((next.state, next.wait), (state, None), "it ended for good");
                continue;
            }
            if response.kind == ResponseKind::Success {
                alive = now;
                prop_assert_eq!(poll.consecutive_429(), 0);
            }
            let named_wait = match response.kind {
                ResponseKind::Throttled { wait } | ResponseKind::Failed { wait } => wait.unwrap_or_default(),
                ResponseKind::Success | ResponseKind::NotFound => Duration::ZERO,
            };
            let silent = (now + named_wait).since(alive) > settings.give_up_after();
            let is_success = response.kind == ResponseKind::Success;
            prop_assert_eq!(poll.banner(), poll.consecutive_429() > 0);
            match next.state {
                PollState::GaveUp => prop_assert!(silent && !is_success),
                PollState::Failed => prop_assert!(!is_success && poll.other_errors() > 3),
                _ => {
                    prop_assert!(is_success || !silent);
                    let wait = next.wait.unwrap();
                    prop_assert!(wait >= named_wait, "a wait that the server named is kept");
                    now = now + wait + Duration::from_millis(later);
                }
            }
            ended = next.state.is_end().then_some(next.state);
        }
    }

    #[test]
    fn accepts_extreme_times(
        responses in prop::collection::vec((responses(), any::<u64>()), 0..30),
        started: u64,
    ) {
        let settings = PollSettings::default();
        let mut poll = Poll::new(Timestamp::from_nanos(started));
        for (response, nanos) in responses {
            let next = poll.after(&settings, &response, Timestamp::from_nanos(nanos));
            prop_assert_eq!(next.wait.is_none(), next.state.is_end());
        }
    }
}
