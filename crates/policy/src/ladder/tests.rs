//! The ladder's rules, one test each, and its promises over long random histories.

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

/// A ladder with a clock, for attempts that follow one another.
struct Line {
    settings: LadderSettings,
    ladder: Ladder,
    now: Timestamp,
}

impl Line {
    fn new(given: &[(&str, &str)]) -> Self {
        Self {
            settings: settings(given),
            ladder: Ladder::new(),
            now: Timestamp::ZERO,
        }
    }

    /// An attempt that starts and ends now.
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

    fn pass(&mut self, seconds: u64) {
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
fn a_temporary_rate_limit_pauses_once_and_a_success_clears_it() {
    let mut line = Line::new(&[]);
    assert_eq!(line.status(429), paused(30));
    line.pass(30);
    assert!(line.ladder.is_recovering(line.now));
    assert_eq!(line.status(200), LadderStep::Cleared);
    assert_eq!(line.ladder.consecutive_errors(), 0);
    assert_eq!(line.ladder.paused_until(), None);
    assert_eq!(line.ladder.last_error(), None);
    assert!(!line.ladder.is_recovering(line.now));
}

#[test]
fn persistent_errors_climb_and_the_fifth_disables() {
    let mut line = Line::new(&[]);
    for (status, pause) in [(429, 30), (429, 60), (503, 120), (429, 300)] {
        assert_eq!(line.status(status), paused(pause));
        assert!(line.ladder.is_enabled());
        line.pass(pause);
    }
    let last = LadderStep::DisabledByErrors {
        pause: Duration::from_secs(600),
        source: Source::Assumed,
    };
    assert_eq!(line.status(429), last);
    assert_eq!(line.ladder.disabled(), Some(Disabled::Errors(5)));
    assert_eq!(line.remaining(), 600);
    assert_eq!(
        line.ladder.describe(line.now).as_deref(),
        Some("disabled after 5 errors in a row (HTTP 429)")
    );
    line.pass(10_000);
    assert!(!line.ladder.is_enabled(), "time alone enables nothing");
    assert!(!line.ladder.is_recovering(line.now));
}

#[test]
fn a_recovery_in_between_starts_from_the_first_step() {
    let mut line = Line::new(&[]);
    assert_eq!(line.status(429), paused(30));
    assert_eq!(line.status(429), paused(60));
    assert_eq!(line.status(200), LadderStep::Cleared);
    assert_eq!(line.status(429), paused(30));
}

#[test]
fn an_endpoint_is_free_at_the_end_of_its_pause_and_its_count_stays() {
    let mut line = Line::new(&[]);
    line.status(429);
    line.now = Timestamp::from_nanos(29_999_999_999);
    assert!(line.ladder.is_paused(line.now));
    line.now = Timestamp::from_secs(30);
    assert!(!line.ladder.is_paused(line.now));
    assert_eq!(line.ladder.paused_until(), Some(line.now));
    assert_eq!(line.ladder.consecutive_errors(), 1);
    line.pass(10_000);
    assert_eq!(line.status(429), paused(60));
}

#[test]
fn a_pause_during_a_pause_never_shortens_it() {
    let mut line = Line::new(&[]);
    assert_eq!(line.status(429), paused(30));
    line.pass(5);
    let hint = Hint {
        wait: Some(Duration::from_secs(2)),
        source: Some(Source::Assumed),
        ..Hint::default()
    };
    let short = EndpointResult::response(429, Some(Verdict::Throttled), "", &hint);
    assert_eq!(line.attempt(&short), paused(25));
    assert_eq!(line.ladder.paused_until(), Some(Timestamp::from_secs(30)));
    assert_eq!(line.ladder.consecutive_errors(), 2);
}

#[test]
fn an_undirected_429_after_enough_successes_is_the_gates_own_probing() {
    let refused = EndpointResult::status(429).with_strategy(rate::Strategy::Adaptive);
    let after = |successes: u32, given: &[(&str, &str)], ended: &EndpointResult<'_>| {
        let mut line = Line::new(given);
        for _ in 0..successes {
            line.status(200);
        }
        (line.attempt(ended), line)
    };
    let (step, mut line) = after(20, &[], &refused);
    assert_eq!(step, LadderStep::Probed);
    assert_eq!(line.ladder.last_error(), Some("HTTP 429"));
    assert_eq!(line.ladder.consecutive_errors(), 0);
    assert!(!line.ladder.is_paused(line.now));
    assert_eq!(
        line.ladder.settle(&line.settings, 0, &refused, line.now),
        LadderStep::Late,
        "a refusal of the same burst"
    );
    assert_eq!(line.attempt(&refused), paused(30), "no success in between");

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
        let (step, line) = after(successes, &[], &ended);
        assert!(
            matches!(step, LadderStep::Paused { .. }),
            "{successes} {ended:?}"
        );
        assert_eq!(line.ladder.consecutive_errors(), 1);
    }
    assert_eq!(
        after(3, &[("probing_after", "3")], &refused).0,
        LadderStep::Probed
    );
    assert_eq!(after(99, &[("probing_after", "0")], &refused).0, paused(30));
}

#[test]
fn ten_refusals_of_one_burst_are_one_step() {
    let mut line = Line::new(&[]);
    let epoch = line.ladder.epoch();
    let refused = EndpointResult::status(429);
    let steps: Vec<_> = (0..10)
        .map(|_| {
            line.ladder
                .settle(&line.settings, epoch, &refused, line.now)
        })
        .collect();
    assert_eq!(steps[0], paused(30));
    assert!(steps[1..].iter().all(|step| *step == LadderStep::Late));
    assert_eq!(line.ladder.consecutive_errors(), 1);
}

#[test]
fn a_late_success_ends_no_pause() {
    let mut line = Line::new(&[]);
    let before = line.ladder.epoch();
    line.pass(10);
    line.status(429);
    line.pass(2);
    let step = line
        .ladder
        .settle(&line.settings, before, &EndpointResult::success(), line.now);
    assert_eq!(step, LadderStep::Late);
    assert!(line.ladder.is_paused(line.now));
    assert_eq!(line.ladder.consecutive_errors(), 1);
}

#[test]
fn a_late_error_leaves_the_last_error_alone() {
    let mut line = Line::new(&[]);
    let before = line.ladder.epoch();
    line.status(429);
    line.ladder.settle(
        &line.settings,
        before,
        &EndpointResult::status(400),
        line.now,
    );
    assert_eq!(line.ladder.last_error(), Some("HTTP 429"));
}

#[test]
fn a_success_of_the_present_epoch_clears_also_during_the_pause() {
    let mut line = Line::new(&[]);
    line.status(429);
    line.pass(1);
    assert_eq!(line.status(200), LadderStep::Cleared);
    assert!(!line.ladder.is_paused(line.now));
}

#[test]
fn a_success_enables_nothing() {
    let mut line = Line::new(&[("disable_after", "1")]);
    line.status(429);
    let before = line.ladder.clone();
    assert_eq!(line.status(200), LadderStep::Unchanged);
    assert_eq!(visible(&line.ladder), visible(&before));
}

/// Everything but how many successes were counted.
fn visible(ladder: &Ladder) -> (u32, LadderRecord) {
    (ladder.epoch(), ladder.record(Timestamp::ZERO))
}

#[test]
fn errors_go_on_counting_on_a_disabled_endpoint() {
    let mut line = Line::new(&[("disable_after", "2")]);
    line.status(429);
    line.status(429);
    line.status(429);
    assert_eq!(line.ladder.disabled(), Some(Disabled::Errors(3)));
    assert_eq!(line.remaining(), 120);
}

#[test]
fn enabling_clears_everything_and_ignores_requests_in_flight() {
    let mut line = Line::new(&[("disable_after", "1")]);
    let epoch = line.ladder.epoch();
    line.status(429);
    let under_way = line.ladder.epoch();
    line.ladder.enable();
    assert_ne!(line.ladder.epoch(), under_way);
    for epoch in [epoch, under_way] {
        let step = line.ladder.settle(
            &line.settings,
            epoch,
            &EndpointResult::status(429),
            line.now,
        );
        assert_eq!(step, LadderStep::Late);
    }
    let cleared = Ladder {
        epoch: line.ladder.epoch(),
        ..Ladder::new()
    };
    assert_eq!(line.ladder, cleared);
}

#[test]
fn a_person_can_disable_and_only_a_person_enables_again() {
    let mut line = Line::new(&[]);
    line.ladder.disable();
    line.status(200);
    assert_eq!(line.ladder.disabled(), Some(Disabled::Person));
    let said = line.ladder.describe(line.now);
    assert_eq!(said.as_deref(), Some("disabled by a person"));
    line.ladder.enable();
    assert!(line.ladder.is_enabled());
    assert_eq!(line.ladder.describe(line.now), None);
}

#[test]
fn a_hint_replaces_the_step_and_the_count_rises_all_the_same() {
    let mut line = Line::new(&[]);
    for (count, wait) in [(1, 7), (2, 7200), (3, 0)] {
        let hint = Hint {
            wait: Some(Duration::from_secs(wait)),
            source: Some(Source::RetryAfter),
            ..Hint::default()
        };
        let step = line.attempt(&EndpointResult::response(
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
        assert_eq!(line.ladder.consecutive_errors(), count);
        assert_eq!(line.remaining(), wait);
        line.pass(wait);
    }
    assert!(!line.ladder.is_paused(line.now), "no wait is no pause");
    assert_eq!(line.status(429), paused(300), "the count went on");
}

#[test]
fn an_error_that_does_not_climb_is_only_noted() {
    let mut line = Line::new(&[]);
    line.status(429);
    let until = line.ladder.paused_until();
    for status in [400, 401, 404, 409, 412] {
        assert_eq!(line.status(status), LadderStep::NotCounted);
        assert_eq!(line.ladder.consecutive_errors(), 1);
        assert_eq!(line.ladder.paused_until(), until);
        assert_eq!(line.ladder.last_error(), Some(&*format!("HTTP {status}")));
    }
    let failed = EndpointResult::failure(Failure::Timeout, "");
    assert_eq!(line.attempt(&failed), LadderStep::NotCounted);
    assert_eq!(line.ladder.last_error(), Some("timeout"));
}

#[test]
fn a_success_clears_an_error_that_was_only_noted_and_else_changes_nothing() {
    let mut line = Line::new(&[]);
    assert_eq!(line.status(200), LadderStep::Unchanged);
    line.status(400);
    assert_eq!(line.status(200), LadderStep::Cleared);
    assert_eq!(line.ladder.last_error(), None);
    assert_eq!(line.status(200), LadderStep::Unchanged);
}

#[test]
fn an_error_of_which_only_words_are_known_climbs_by_them() {
    let mut line = Line::new(&[]);
    assert_eq!(
        line.attempt(&EndpointResult::message("Rate limit")),
        paused(30)
    );
    assert_eq!(
        line.attempt(&EndpointResult::message("HTTP 502")),
        paused(60)
    );
    assert_eq!(
        line.attempt(&EndpointResult::message("out of paper")),
        LadderStep::NotCounted
    );
    assert_eq!(line.ladder.last_error(), Some("out of paper"));
}

#[test]
fn an_informational_answer_changes_nothing() {
    let mut line = Line::new(&[]);
    line.status(429);
    let before = line.ladder.clone();
    assert_eq!(line.status(101), LadderStep::Unchanged);
    assert_eq!(line.ladder, before);
}

#[test]
fn a_used_up_allowance_disables_at_once_with_its_reason() {
    let mut line = Line::new(&[]);
    let hint = Hint::default();
    let text = "You exceeded your current quota";
    let ended = EndpointResult::response(429, Some(Verdict::QuotaExhausted), text, &hint);
    assert_eq!(line.attempt(&ended), LadderStep::DisabledByQuota);
    assert_eq!(line.ladder.disabled(), Some(Disabled::QuotaExhausted));
    assert_eq!(
        line.ladder.describe(line.now).as_deref(),
        Some("disabled: an allowance is used up (You exceeded your current quota)")
    );
}

#[test]
fn describes_a_pause_with_its_remaining_time() {
    let mut line = Line::new(&[("pauses", "150s")]);
    line.status(503);
    assert_eq!(
        line.ladder.describe(line.now).as_deref(),
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
fn a_pause_goes_on_after_a_restart() {
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

    // The new process has a clock of its own.
    let ladder = Ladder::restore(record, Timestamp::from_secs(1000));
    assert!(ladder.is_paused(Timestamp::from_secs(1044)));
    assert!(!ladder.is_paused(Timestamp::from_secs(1045)));
    assert_eq!(ladder.consecutive_errors(), 2);
    assert_eq!(ladder.last_error(), Some("HTTP 503"));
}

#[test]
fn a_disabled_endpoint_stays_disabled_after_a_restart() {
    let mut ladder = Ladder::new();
    ladder.disable();
    let ladder = Ladder::restore(ladder.record(Timestamp::ZERO), Timestamp::ZERO);
    assert_eq!(ladder.disabled(), Some(Disabled::Person));
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
    fn an_epoch_sees_at_most_one_step_and_nothing_else_climbs(
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
                        prop_assert_eq!(visible(&ladder), visible(&before));
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
                            prop_assert_eq!(visible(&ladder), visible(&before));
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
    fn the_ends_of_time_are_ordinary(
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
