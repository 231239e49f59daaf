//! One test per rule of the ladder, then properties over long random histories.

use proptest::prelude::*;

use super::*;
use crate::hint::Hint;
use crate::outcome::Failure;
use crate::rate;

fn settings(given: &[(&str, &str)]) -> LadderSettings {
    let mut options = LadderOptions::default();
    for (name, value) in given {
        options.set(name, value).unwrap();
    }
    options.build().unwrap()
}

/// A ladder with a clock, for sequential attempts.
struct TestLadder {
    settings: LadderSettings,
    ladder: Ladder,
    now: Timestamp,
}

impl TestLadder {
    fn new(given: &[(&str, &str)]) -> Self {
        Self {
            settings: settings(given),
            ladder: Ladder::new(),
            now: Timestamp::ZERO,
        }
    }

    /// Makes an attempt that starts and ends now.
    fn attempt(&mut self, ended: &EndpointResult<'_>) -> LadderStep {
        let epoch = self.ladder.epoch();
        self.ladder.settle(&self.settings, epoch, ended, self.now)
    }

    fn status(&mut self, status: u16) -> LadderStep {
        self.attempt(&EndpointResult::status(status))
    }

    fn remaining(&self) -> u64 {
        self.ladder.remaining(self.now).as_secs()
    }

    fn advance(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
    }
}

fn paused(seconds: u64) -> LadderStep {
    LadderStep::Paused {
        pause: Duration::from_secs(seconds),
        source: Source::Assumed,
    }
}

#[test]
fn success_clears_a_single_pause() {
    let mut test = TestLadder::new(&[]);
    assert_eq!(test.status(429), paused(30));
    test.advance(30);
    assert!(test.ladder.is_recovering(test.now));
    assert_eq!(test.status(200), LadderStep::Cleared);
    assert_eq!(test.ladder.consecutive_errors(), 0);
    assert_eq!(test.ladder.paused_until(), None);
    assert_eq!(test.ladder.last_error(), None);
    assert!(!test.ladder.is_recovering(test.now));
}

#[test]
fn fifth_consecutive_error_disables() {
    let mut test = TestLadder::new(&[]);
    for (status, pause) in [(429, 30), (429, 60), (503, 120), (429, 300)] {
        assert_eq!(test.status(status), paused(pause));
        assert!(test.ladder.is_enabled());
        test.advance(pause);
    }
    let last = LadderStep::DisabledByErrors {
        pause: Duration::from_secs(600),
        source: Source::Assumed,
    };
    assert_eq!(test.status(429), last);
    assert_eq!(test.ladder.disabled(), Some(Disabled::Errors(5)));
    assert_eq!(test.remaining(), 600);
    assert_eq!(
        test.ladder.describe(test.now).as_deref(),
        Some("disabled after 5 errors in a row (HTTP 429)")
    );
    test.advance(10_000);
    assert!(!test.ladder.is_enabled(), "time alone enables nothing");
    assert!(!test.ladder.is_recovering(test.now));
}

#[test]
fn success_in_between_restarts_from_the_first_step() {
    let mut test = TestLadder::new(&[]);
    assert_eq!(test.status(429), paused(30));
    assert_eq!(test.status(429), paused(60));
    assert_eq!(test.status(200), LadderStep::Cleared);
    assert_eq!(test.status(429), paused(30));
}

#[test]
fn count_stays_after_the_pause_ends() {
    let mut test = TestLadder::new(&[]);
    test.status(429);
    test.now = Timestamp::from_nanos(29_999_999_999);
    assert!(test.ladder.is_paused(test.now));
    test.now = Timestamp::from_secs(30);
    assert!(!test.ladder.is_paused(test.now));
    assert_eq!(test.ladder.paused_until(), Some(test.now));
    assert_eq!(test.ladder.consecutive_errors(), 1);
    test.advance(10_000);
    assert_eq!(test.status(429), paused(60));
}

#[test]
fn second_pause_never_shortens_the_first() {
    let mut test = TestLadder::new(&[]);
    assert_eq!(test.status(429), paused(30));
    test.advance(5);
    let hint = Hint {
        wait: Some(Duration::from_secs(2)),
        source: Some(Source::Assumed),
        ..Hint::default()
    };
    let short = EndpointResult::response(429, Some(Verdict::Throttled), "", &hint);
    assert_eq!(test.attempt(&short), paused(25));
    assert_eq!(test.ladder.paused_until(), Some(Timestamp::from_secs(30)));
    assert_eq!(test.ladder.consecutive_errors(), 2);
}

#[test]
fn undirected_429_after_enough_successes_is_probing() {
    let refused = EndpointResult::status(429).with_strategy(rate::Strategy::Adaptive);
    let after = |successes: u32, given: &[(&str, &str)], ended: &EndpointResult<'_>| {
        let mut test = TestLadder::new(given);
        for _ in 0..successes {
            test.status(200);
        }
        (test.attempt(ended), test)
    };
    let (step, mut test) = after(20, &[], &refused);
    assert_eq!(step, LadderStep::Probed);
    assert_eq!(test.ladder.last_error(), Some("HTTP 429"));
    assert_eq!(test.ladder.consecutive_errors(), 0);
    assert!(!test.ladder.is_paused(test.now));
    assert_eq!(
        test.ladder.settle(&test.settings, 0, &refused, test.now),
        LadderStep::Late,
        "a refusal of the same burst"
    );
    assert_eq!(test.attempt(&refused), paused(30), "no success in between");

    let directed = Hint {
        wait: Some(Duration::from_secs(7)),
        source: Some(Source::RetryAfter),
        ..Hint::default()
    };
    let directed = EndpointResult::response(429, Some(Verdict::Throttled), "", &directed);
    let counted = [
        (19, refused),
        (
            20,
            EndpointResult::status(503).with_strategy(rate::Strategy::Adaptive),
        ),
        (
            20,
            EndpointResult::status(429).with_strategy(rate::Strategy::Aimd),
        ),
        (
            20,
            EndpointResult::status(429).with_strategy(rate::Strategy::Fixed),
        ),
        (20, EndpointResult::status(429)),
        (20, directed.with_strategy(rate::Strategy::Adaptive)),
    ];
    for (successes, ended) in counted {
        let (step, test) = after(successes, &[], &ended);
        assert!(
            matches!(step, LadderStep::Paused { .. }),
            "{successes} {ended:?}"
        );
        assert_eq!(test.ladder.consecutive_errors(), 1);
    }
    assert_eq!(
        after(3, &[("probing_after", "3")], &refused).0,
        LadderStep::Probed
    );
    assert_eq!(after(99, &[("probing_after", "0")], &refused).0, paused(30));
}

#[test]
fn ten_refusals_of_one_burst_are_one_step() {
    let mut test = TestLadder::new(&[]);
    let epoch = test.ladder.epoch();
    let refused = EndpointResult::status(429);
    let steps: Vec<_> = (0..10)
        .map(|_| {
            test.ladder
                .settle(&test.settings, epoch, &refused, test.now)
        })
        .collect();
    assert_eq!(steps[0], paused(30));
    assert!(steps[1..].iter().all(|step| *step == LadderStep::Late));
    assert_eq!(test.ladder.consecutive_errors(), 1);
}

#[test]
fn late_success_does_not_end_a_pause() {
    let mut test = TestLadder::new(&[]);
    let before = test.ladder.epoch();
    test.advance(10);
    test.status(429);
    test.advance(2);
    let step = test
        .ladder
        .settle(&test.settings, before, &EndpointResult::success(), test.now);
    assert_eq!(step, LadderStep::Late);
    assert!(test.ladder.is_paused(test.now));
    assert_eq!(test.ladder.consecutive_errors(), 1);
}

#[test]
fn late_error_does_not_change_last_error() {
    let mut test = TestLadder::new(&[]);
    let before = test.ladder.epoch();
    test.status(429);
    test.ladder.settle(
        &test.settings,
        before,
        &EndpointResult::status(400),
        test.now,
    );
    assert_eq!(test.ladder.last_error(), Some("HTTP 429"));
}

#[test]
fn current_epoch_success_clears_an_active_pause() {
    let mut test = TestLadder::new(&[]);
    test.status(429);
    test.advance(1);
    assert_eq!(test.status(200), LadderStep::Cleared);
    assert!(!test.ladder.is_paused(test.now));
}

#[test]
fn success_does_not_enable() {
    let mut test = TestLadder::new(&[("disable_after", "1")]);
    test.status(429);
    let before = test.ladder.clone();
    assert_eq!(test.status(200), LadderStep::Unchanged);
    assert_eq!(visible_state(&test.ladder), visible_state(&before));
}

/// Everything but the count of successes.
fn visible_state(ladder: &Ladder) -> (u32, LadderRecord) {
    (ladder.epoch(), ladder.record(Timestamp::ZERO))
}

#[test]
fn errors_keep_counting_on_a_disabled_endpoint() {
    let mut test = TestLadder::new(&[("disable_after", "2")]);
    test.status(429);
    test.status(429);
    test.status(429);
    assert_eq!(test.ladder.disabled(), Some(Disabled::Errors(3)));
    assert_eq!(test.remaining(), 120);
}

#[test]
fn enabling_clears_everything_and_ignores_requests_in_flight() {
    let mut test = TestLadder::new(&[("disable_after", "1")]);
    let epoch = test.ladder.epoch();
    test.status(429);
    let under_way = test.ladder.epoch();
    test.ladder.enable();
    assert_ne!(test.ladder.epoch(), under_way);
    for epoch in [epoch, under_way] {
        let step = test.ladder.settle(
            &test.settings,
            epoch,
            &EndpointResult::status(429),
            test.now,
        );
        assert_eq!(step, LadderStep::Late);
    }
    let cleared = Ladder {
        epoch: test.ladder.epoch(),
        ..Ladder::new()
    };
    assert_eq!(test.ladder, cleared);
}

#[test]
fn only_a_person_enables_after_a_person_disabled() {
    let mut test = TestLadder::new(&[]);
    test.ladder.disable(test.now);
    test.status(200);
    assert_eq!(test.ladder.disabled(), Some(Disabled::Person));
    let description = test.ladder.describe(test.now);
    assert_eq!(description.as_deref(), Some("disabled by a person"));
    test.ladder.enable();
    assert!(test.ladder.is_enabled());
    assert_eq!(test.ladder.describe(test.now), None);
}

#[test]
fn hint_replaces_the_step_and_still_counts() {
    let mut test = TestLadder::new(&[]);
    for (count, wait) in [(1, 7), (2, 7200), (3, 0)] {
        let hint = Hint {
            wait: Some(Duration::from_secs(wait)),
            source: Some(Source::RetryAfter),
            ..Hint::default()
        };
        let step = test.attempt(&EndpointResult::response(
            429,
            Some(Verdict::Throttled),
            "",
            &hint,
        ));
        let expected = LadderStep::Paused {
            pause: Duration::from_secs(wait),
            source: Source::RetryAfter,
        };
        assert_eq!(step, expected);
        assert_eq!(test.ladder.consecutive_errors(), count);
        assert_eq!(test.remaining(), wait);
        test.advance(wait);
    }
    assert!(!test.ladder.is_paused(test.now), "no wait is no pause");
    assert_eq!(test.status(429), paused(300), "the count went on");
}

#[test]
fn uncounted_error_only_sets_last_error() {
    let mut test = TestLadder::new(&[]);
    test.status(429);
    let until = test.ladder.paused_until();
    for status in [400, 401, 404, 409, 412] {
        assert_eq!(test.status(status), LadderStep::NotCounted);
        assert_eq!(test.ladder.consecutive_errors(), 1);
        assert_eq!(test.ladder.paused_until(), until);
        assert_eq!(test.ladder.last_error(), Some(&*format!("HTTP {status}")));
    }
    let failed = EndpointResult::failure(Failure::Timeout, "");
    assert_eq!(test.attempt(&failed), LadderStep::NotCounted);
    assert_eq!(test.ladder.last_error(), Some("timeout"));
}

#[test]
fn success_clears_an_uncounted_error() {
    let mut test = TestLadder::new(&[]);
    assert_eq!(test.status(200), LadderStep::Unchanged);
    test.status(400);
    assert_eq!(test.status(200), LadderStep::Cleared);
    assert_eq!(test.ladder.last_error(), None);
    assert_eq!(test.status(200), LadderStep::Unchanged);
}

#[test]
fn error_without_status_climbs_by_its_text() {
    let mut test = TestLadder::new(&[]);
    assert_eq!(
        test.attempt(&EndpointResult::message("Rate limit")),
        paused(30)
    );
    assert_eq!(
        test.attempt(&EndpointResult::message("HTTP 502")),
        paused(60)
    );
    assert_eq!(
        test.attempt(&EndpointResult::message("out of paper")),
        LadderStep::NotCounted
    );
    assert_eq!(test.ladder.last_error(), Some("out of paper"));
}

#[test]
fn informational_response_changes_nothing() {
    let mut test = TestLadder::new(&[]);
    test.status(429);
    let before = test.ladder.clone();
    assert_eq!(test.status(101), LadderStep::Unchanged);
    assert_eq!(test.ladder, before);
}

#[test]
fn quota_exhausted_disables_at_once() {
    let mut test = TestLadder::new(&[]);
    let hint = Hint::default();
    let text = "You exceeded your current quota";
    let ended = EndpointResult::response(429, Some(Verdict::QuotaExhausted), text, &hint);
    assert_eq!(test.attempt(&ended), LadderStep::DisabledByQuota);
    assert_eq!(test.ladder.disabled(), Some(Disabled::QuotaExhausted));
    assert_eq!(
        test.ladder.describe(test.now).as_deref(),
        Some("disabled: the quota is used up (You exceeded your current quota)")
    );
}

#[test]
fn describes_a_pause_with_its_remaining_time() {
    let mut test = TestLadder::new(&[("pauses", "150s")]);
    test.status(503);
    assert_eq!(
        test.ladder.describe(test.now).as_deref(),
        Some("paused for 2m 30s more (HTTP 503)")
    );
}

/// One event of a random history.
#[derive(Clone, Copy, Debug)]
enum Event {
    Start,
    Finish(usize, u16),
    Enable,
    Pass(u32),
}

#[test]
fn adopts_what_another_node_wrote_only_if_it_differs() {
    let settings = LadderSettings::default();
    let at = Timestamp::from_secs;
    let mut written = Ladder::new();
    written.settle(&settings, 0, &EndpointResult::status(503), at(5));
    let mut ladder = Ladder::new();
    assert!(ladder.adopt(written.record(at(6)), at(106)));
    assert!(ladder.is_paused(at(134)) && !ladder.is_paused(at(135)));
    assert_eq!(ladder.epoch(), 1, "responses in flight change nothing");
    assert_eq!(ladder.last_error(), Some("HTTP 503"));
    // The same, read a moment later.
    assert!(!ladder.adopt(written.record(at(16)), at(116)));
    assert_eq!(ladder.epoch(), 1);
    written.enable();
    assert!(ladder.adopt(written.record(at(17)), at(117)));
    assert!(!ladder.is_paused(at(117)));
}

#[test]
fn pause_continues_after_restore() {
    let settings = LadderSettings::default();
    let mut ladder = Ladder::new();
    ladder.settle(&settings, 0, &EndpointResult::status(429), Timestamp::ZERO);
    ladder.settle(
        &settings,
        1,
        &EndpointResult::status(503),
        Timestamp::from_secs(40),
    );
    let record = ladder.record(Timestamp::from_secs(55));
    assert_eq!(record.pause, Some(Duration::from_secs(45)));

    // The new process has its own clock.
    let ladder = Ladder::restore(record, Timestamp::from_secs(1000));
    assert!(ladder.is_paused(Timestamp::from_secs(1044)));
    assert!(!ladder.is_paused(Timestamp::from_secs(1045)));
    assert_eq!(ladder.consecutive_errors(), 2);
    assert_eq!(ladder.last_error(), Some("HTTP 503"));
}

#[test]
fn disabled_endpoint_stays_disabled_after_restore() {
    let mut ladder = Ladder::new();
    ladder.disable(Timestamp::ZERO);
    let ladder = Ladder::restore(ladder.record(Timestamp::ZERO), Timestamp::ZERO);
    assert_eq!(ladder.disabled(), Some(Disabled::Person));
}

#[test]
fn start_of_pause_and_of_being_disabled_survive_a_restore() {
    let mut test = TestLadder::new(&[("disable_after", "2")]);
    assert_eq!(test.ladder.paused_for(test.now), None);
    test.status(429);
    test.advance(10);
    assert_eq!(test.ladder.paused_for(test.now), Some(seconds(10)));
    assert_eq!(test.ladder.disabled_for(test.now), None);
    test.status(429);
    test.advance(5);
    // A further reason does not start it anew.
    test.ladder.disable(test.now);
    test.advance(2);
    let record = test.ladder.record(test.now);
    assert_eq!(
        (record.paused_for, record.disabled_for),
        (Some(seconds(7)), Some(seconds(7)))
    );
    // The clock of the next process starts at zero.
    let mut ladder = Ladder::restore(record, Timestamp::ZERO);
    let now = Timestamp::from_secs(3);
    assert_eq!(ladder.disabled_for(now), Some(seconds(10)));
    ladder.enable();
    assert_eq!(
        (ladder.paused_for(now), ladder.disabled_for(now)),
        (None, None)
    );
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let status = prop::sample::select(vec![200, 400, 401, 429, 500, 503]);
    let event = prop_oneof![
        4 => Just(Event::Start),
        4 => (any::<usize>(), status).prop_map(|(n, status)| Event::Finish(n, status)),
        1 => Just(Event::Enable),
        2 => (0_u32..200).prop_map(Event::Pass),
    ];
    prop::collection::vec(event, 0..120)
}

proptest! {
    #[test]
    fn at_most_one_step_per_epoch(
        events in events(),
        disable_after in 1_u32..=10,
    ) {
        let settings = settings(&[("disable_after", &disable_after.to_string())]);
        let mut ladder = Ladder::new();
        let mut now = Timestamp::ZERO;
        let mut out = Vec::new();
        let mut stepped = Vec::new();
        for event in events {
            let before = ladder.clone();
            match event {
                Event::Start => out.push(ladder.epoch()),
                Event::Pass(seconds) => now = now + Duration::from_secs(seconds.into()),
                Event::Enable => {
                    ladder.enable();
                    prop_assert_ne!(ladder.epoch(), before.epoch());
                    prop_assert!(ladder.is_enabled() && !ladder.is_paused(now));
                    prop_assert_eq!(ladder.consecutive_errors(), 0);
                    prop_assert_eq!(ladder.last_error(), None);
                }
                Event::Finish(_, _) if out.is_empty() => {}
                Event::Finish(n, status) => {
                    let epoch = out.swap_remove(n % out.len());
                    let step = ladder.settle(&settings, epoch, &EndpointResult::status(status), now);
                    if epoch != before.epoch() {
                        prop_assert_eq!(step, LadderStep::Late);
                        prop_assert_eq!(visible_state(&ladder), visible_state(&before));
                        continue;
                    }
                    match step {
                        LadderStep::Paused { pause, .. } | LadderStep::DisabledByErrors { pause, .. } => {
                            prop_assert!(!stepped.contains(&epoch), "a second step");
                            stepped.push(epoch);
                            let count = before.consecutive_errors() + 1;
                            prop_assert_eq!(ladder.consecutive_errors(), count);
                            prop_assert_eq!(pause, settings.pause(count));
                            prop_assert_eq!(ladder.paused_until(), Some(now + pause));
                            prop_assert_eq!(ladder.is_enabled(), count < disable_after && before.is_enabled());
                        }
                        LadderStep::Cleared => {
                            prop_assert!(before.is_enabled() && status == 200);
                            prop_assert_eq!(ladder.consecutive_errors(), 0);
                            prop_assert_eq!(ladder.paused_until(), None);
                        }
                        LadderStep::NotCounted => {
                            prop_assert!(matches!(status, 400 | 401));
                            prop_assert_eq!(ladder.paused_until(), before.paused_until());
                            prop_assert_eq!(ladder.consecutive_errors(), before.consecutive_errors());
                        }
                        LadderStep::Unchanged => {
                            prop_assert_eq!(visible_state(&ladder), visible_state(&before));
                        }
                        LadderStep::Late | LadderStep::Probed | LadderStep::DisabledByQuota => {
                            prop_assert!(false, "{:?}", step);
                        }
                    }
                }
            }
            let was_disabled = !before.is_enabled();
            let is_person = matches!(event, Event::Enable);
            prop_assert!(!was_disabled || is_person || !ladder.is_enabled(), "only a person enables");
        }
    }

    #[test]
    fn accepts_extreme_times(
        nanos in prop::collection::vec(any::<u64>(), 1..20),
        wait: u64,
    ) {
        let settings = LadderSettings::default();
        let mut ladder = Ladder::new();
        let hint = Hint { wait: Some(Duration::from_secs(wait)), ..Hint::default() };
        for nanos in nanos {
            let now = Timestamp::from_nanos(nanos);
            let ended = EndpointResult::response(429, Some(Verdict::Throttled), "", &hint);
            let epoch = ladder.epoch();
            ladder.settle(&settings, epoch, &ended, now);
            let _ = (ladder.remaining(now), ladder.describe(now), ladder.is_recovering(now));
            let restored = Ladder::restore(ladder.record(now), now);
            prop_assert_eq!(restored.consecutive_errors(), ladder.consecutive_errors());
        }
    }
}
