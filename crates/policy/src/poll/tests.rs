//! The rules of polling, one test each, and its promises over random histories.

use proptest::prelude::*;

use super::*;

/// A poll that is always asked again when it said.
struct Watch {
    settings: PollSettings,
    poll: Poll,
    now: Timestamp,
}

const REFUSED: Answer = Answer::Throttled { wait: None };
const BROKEN: Answer = Answer::Failed { wait: None };

fn running(progress: f64) -> Told {
    Told {
        answer: Answer::Success,
        job: Some(Job::Running {
            progress: Some(progress),
        }),
    }
}

impl Watch {
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

    fn told(&mut self, told: impl Into<Told>) -> Next {
        let next = self.poll.answered(&self.settings, &told.into(), self.now);
        self.now = self.now + next.wait.unwrap_or_default();
        next
    }

    fn millis(&mut self, told: impl Into<Told>) -> Option<u128> {
        self.told(told).wait.map(|wait| wait.as_millis())
    }
}

#[test]
fn the_interval_follows_the_jobs_stage() {
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
        let mut watch = Watch::new(&[]);
        assert_eq!(watch.millis(running(progress)), Some(millis), "{progress}");
        assert_eq!(watch.poll.state(), State::Polling);
    }
}

#[test]
fn without_data_the_first_interval_and_without_progress_none_made() {
    let mut watch = Watch::new(&[]);
    assert_eq!(watch.millis(Answer::Success), Some(2000));
    let no_progress = Told {
        answer: Answer::Success,
        job: Some(Job::Running { progress: None }),
    };
    assert_eq!(watch.millis(no_progress), Some(3000));
}

#[test]
fn refusals_slow_down_and_a_success_returns_to_the_stage() {
    let mut watch = Watch::new(&[]);
    assert_eq!(watch.millis(running(40.0)), Some(2500));
    for (n, millis) in [(1, 2000), (2, 4000), (3, 8000), (4, 15_000), (5, 15_000)] {
        assert_eq!(watch.millis(REFUSED), Some(millis));
        assert_eq!(watch.poll.consecutive_429(), n);
        assert!(watch.poll.banner());
        assert_eq!(watch.poll.state(), State::Slowed);
        assert_eq!(watch.poll.progress(), Some(40.0), "progress stays visible");
    }
    assert_eq!(watch.millis(running(10.0)), Some(3000));
    assert!(!watch.poll.banner());
    assert_eq!(watch.poll.state(), State::Polling);
    assert_eq!(
        watch.millis(REFUSED),
        Some(2000),
        "from the first step again"
    );
}

#[test]
fn the_longer_of_step_and_header_is_waited() {
    let mut watch = Watch::new(&[]);
    let mut refused = |seconds| {
        let wait = Some(Duration::from_secs(seconds));
        let next = watch.told(Answer::Throttled { wait });
        (next.wait.map(|wait| wait.as_secs()), next.why)
    };
    assert_eq!(refused(1), (Some(2), Why::Throttled));
    assert_eq!(refused(7), (Some(7), Why::Directed));
    assert_eq!(refused(60), (Some(60), Why::Directed), "not capped");
    assert_eq!(refused(0), (Some(15), Why::Throttled));
}

#[test]
fn gives_up_strictly_after_five_minutes_without_success_and_for_good() {
    let mut watch = Watch::new(&[]);
    watch.now = Timestamp::from_millis(1000);
    watch.told(running(1.0));
    watch.now = Timestamp::from_millis(301_000);
    assert_eq!(watch.told(REFUSED).state, State::Slowed);
    watch.now = Timestamp::from_nanos(301_000_000_001);
    let next = watch.told(REFUSED);
    assert_eq!((next.state, next.wait), (State::GaveUp, None));
    assert_eq!(next.why, Why::Silence);
    for told in [running(50.0), REFUSED.into(), Answer::NotFound.into()] {
        let next = watch.told(told);
        assert_eq!((next.state, next.wait), (State::GaveUp, None));
        assert_eq!(next.why, Why::Ended);
    }
}

#[test]
fn before_any_success_the_first_request_counts() {
    let mut watch = Watch::new(&[]);
    watch.now = Timestamp::from_secs(300);
    assert_eq!(watch.told(REFUSED).state, State::Slowed);
    watch.now = Timestamp::from_millis(300_001);
    assert_eq!(watch.told(REFUSED).state, State::GaveUp);
}

#[test]
fn refused_for_ever_it_gives_up_at_304_seconds() {
    let mut watch = Watch::new(&[]);
    watch.told(running(40.0));
    watch.told(running(40.0));
    while !watch.told(REFUSED).state.is_end() {}
    assert_eq!(watch.now, Timestamp::from_secs(304));
    assert_eq!(watch.poll.consecutive_429(), 23);
}

#[test]
fn a_wait_that_ends_after_giving_up_gives_up_at_once() {
    let mut watch = Watch::new(&[]);
    let wait = |seconds| Some(Duration::from_secs(seconds));
    let next = watch.told(Answer::Throttled { wait: wait(300) });
    assert_eq!(next.wait, wait(300), "exactly as long is waited for");
    let mut watch = Watch::new(&[]);
    let next = watch.told(Answer::Throttled { wait: wait(301) });
    assert_eq!((next.state, next.why), (State::GaveUp, Why::TooLongAWait));
    let mut watch = Watch::new(&[]);
    let next = watch.told(Answer::Failed { wait: wait(301) });
    assert_eq!(next.state, State::GaveUp);
}

#[test]
fn other_errors_are_retried_three_times_in_a_row() {
    let mut watch = Watch::new(&[]);
    for millis in [1000, 2000, 4000] {
        assert_eq!(watch.millis(BROKEN), Some(millis));
    }
    let next = watch.told(BROKEN);
    assert_eq!((next.state, next.why), (State::Failed, Why::Errors));

    let mut watch = Watch::new(&[("other_retries", "4")]);
    for millis in [1000, 2000, 4000, 5000] {
        assert_eq!(watch.millis(BROKEN), Some(millis));
    }
    let mut watch = Watch::new(&[("other_retries", "0")]);
    assert_eq!(watch.told(BROKEN).state, State::Failed);
}

#[test]
fn a_named_wait_that_is_no_longer_than_our_own_is_not_the_reason() {
    let why = |seconds: u64| {
        let wait = Some(Duration::from_secs(seconds));
        Watch::new(&[]).told(Answer::Throttled { wait }).why
    };
    assert_eq!((why(2), why(3)), (Why::Throttled, Why::Directed));
}

#[test]
fn a_success_or_a_429_starts_the_count_of_other_errors_anew() {
    for between in [running(1.0), REFUSED.into()] {
        let mut watch = Watch::new(&[]);
        for told in [BROKEN.into(), BROKEN.into(), BROKEN.into(), between] {
            assert!(!watch.told(told).state.is_end());
        }
        assert_eq!(watch.poll.other_errors(), 0);
        assert_eq!(watch.millis(BROKEN), Some(1000));
    }
}

#[test]
fn other_errors_neither_raise_nor_clear_the_count_of_429s() {
    let mut watch = Watch::new(&[]);
    watch.told(REFUSED);
    watch.told(REFUSED);
    let next = watch.told(BROKEN);
    assert_eq!(watch.poll.consecutive_429(), 2);
    assert_eq!(next.state, State::Slowed);
    assert!(watch.poll.banner());
    assert_eq!(watch.millis(REFUSED), Some(8000));
}

#[test]
fn other_errors_give_up_too() {
    let mut watch = Watch::new(&[]);
    watch.now = Timestamp::from_secs(301);
    assert_eq!(watch.told(BROKEN).state, State::GaveUp);
}

#[test]
fn gives_up_before_it_fails_or_finds_nothing() {
    let mut watch = Watch::new(&[("other_retries", "0")]);
    let wait = Some(Duration::from_secs(301));
    let next = watch.told(Answer::Failed { wait });
    assert_eq!((next.state, next.why), (State::GaveUp, Why::TooLongAWait));
    let mut watch = Watch::new(&[]);
    watch.now = Timestamp::from_secs(301);
    assert_eq!(watch.told(Answer::NotFound).state, State::GaveUp);
}

#[test]
fn a_longer_retry_after_of_another_error_is_waited() {
    let mut watch = Watch::new(&[]);
    let wait = Some(Duration::from_secs(20));
    assert_eq!(watch.told(Answer::Failed { wait }).wait, wait);
    let wait = Some(Duration::from_millis(1));
    assert_eq!(watch.millis(Answer::Failed { wait }), Some(2000));
}

#[test]
fn a_job_that_does_not_exist_ends_it() {
    let mut watch = Watch::new(&[]);
    watch.told(running(1.0));
    let next = watch.told(Answer::NotFound);
    assert_eq!((next.state, next.wait), (State::NotFound, None));
    assert_eq!(watch.told(running(1.0)).state, State::NotFound);
}

#[test]
fn what_the_job_says_itself_wins_over_everything() {
    for answer in [Answer::Success, REFUSED, Answer::NotFound, BROKEN] {
        for (job, state) in [(Job::Done, State::Done), (Job::Failed, State::Failed)] {
            let mut watch = Watch::new(&[("other_retries", "0")]);
            watch.now = Timestamp::from_secs(1000);
            let job = Some(job);
            let next = watch.told(Told { answer, job });
            assert_eq!((next.state, next.wait, next.why), (state, None, Why::Job));
        }
    }
}

fn answers() -> impl Strategy<Value = Told> {
    let wait = prop::option::of((0_u64..400).prop_map(Duration::from_secs));
    prop_oneof![
        2 => (0.0..120.0).prop_map(running),
        4 => wait.clone().prop_map(|wait| Answer::Throttled { wait }.into()),
        2 => wait.prop_map(|wait| Answer::Failed { wait }.into()),
    ]
}

proptest! {
    #[test]
    fn it_gives_up_only_after_silence_and_never_comes_early(
        told in prop::collection::vec((answers(), 0_u64..20_000), 0..100),
    ) {
        let settings = PollSettings::default();
        let mut poll = Poll::new(Timestamp::ZERO);
        let mut now = Timestamp::ZERO;
        let mut alive = Timestamp::ZERO;
        let mut ended: Option<State> = None;
        for (told, later) in told {
            let next = poll.answered(&settings, &told, now);
            if let Some(state) = ended {
                prop_assert_eq!((next.state, next.wait), (state, None), "it ended for good");
                continue;
            }
            if told.answer == Answer::Success {
                alive = now;
                prop_assert_eq!(poll.consecutive_429(), 0);
            }
            let told_wait = match told.answer {
                Answer::Throttled { wait } | Answer::Failed { wait } => wait.unwrap_or_default(),
                Answer::Success | Answer::NotFound => Duration::ZERO,
            };
            let silent = (now + told_wait).since(alive) > settings.give_up_after();
            let is_success = told.answer == Answer::Success;
            prop_assert_eq!(poll.banner(), poll.consecutive_429() > 0);
            match next.state {
                State::GaveUp => prop_assert!(silent && !is_success),
                State::Failed => prop_assert!(!is_success && poll.other_errors() > 3),
                _ => {
                    prop_assert!(is_success || !silent);
                    let wait = next.wait.unwrap();
                    prop_assert!(wait >= told_wait, "a wait that the server named is kept");
                    now = now + wait + Duration::from_millis(later);
                }
            }
            ended = next.state.is_end().then_some(next.state);
        }
    }

    #[test]
    fn the_ends_of_time_are_ordinary(
        told in prop::collection::vec((answers(), any::<u64>()), 0..30),
        started: u64,
    ) {
        let settings = PollSettings::default();
        let mut poll = Poll::new(Timestamp::from_nanos(started));
        for (told, nanos) in told {
            let next = poll.answered(&settings, &told, Timestamp::from_nanos(nanos));
            prop_assert_eq!(next.wait.is_none(), next.state.is_end());
        }
    }
}
