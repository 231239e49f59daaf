//! One test per rule of an item, then properties of every history.

use proptest::prelude::*;

use super::*;
use crate::classify;
use crate::hint::{self, Hint, Response, Source};
use crate::jitter::RetryAfterJitter;
use crate::outcome::{Failure, Phase};
use crate::preset::Preset;

/// An item driven by the test.
struct Bench {
    settings: BackoffSettings,
    item: Item,
    now: Timestamp,
    random: Random,
}

impl Bench {
    fn new(kind: ItemKind) -> Self {
        let now = Timestamp::from_secs(1000);
        Self {
            settings: BackoffSettings::default(),
            item: Item::new(kind, now),
            now,
            random: Random::from_seed(7),
        }
    }

    fn get() -> Self {
        Self::new(ItemKind::of("GET"))
    }

    fn post() -> Self {
        Self::new(ItemKind::of("POST"))
    }

    /// Responds with `status` and, if it is not empty, a Retry-After.
    fn answer(&mut self, status: u16, retry_after: &str) -> Step {
        let (outcome, verdict) = answered(status, retry_after);
        self.after(&outcome, verdict)
    }

    fn fail(&mut self, failure: Failure, phase: Phase) -> Step {
        let outcome = Outcome::failure(failure, phase, Duration::ZERO);
        self.after(&outcome, classify::failure(failure).verdict)
    }

    fn after(&mut self, outcome: &Outcome, verdict: Option<Verdict>) -> Step {
        self.item
            .after(&self.settings, outcome, verdict, self.now, &mut self.random)
    }

    fn refused(&mut self, reason: Reason, until: Option<Timestamp>) -> Step {
        let (settings, random) = (&self.settings, &mut self.random);
        self.item.refused(settings, reason, until, self.now, random)
    }
}

fn answered(status: u16, retry_after: &str) -> (Outcome, Option<Verdict>) {
    let header = ("Retry-After", retry_after.as_bytes());
    let response = Response {
        status,
        headers: (!retry_after.is_empty()).then_some(header),
        body: b"",
    };
    let hint = hint::read(&response, None);
    let verdict = classify::response(&[], &response, &hint).verdict;
    (
        Outcome::status(status, Duration::from_millis(50)).with_hint(hint),
        verdict,
    )
}

#[track_caller]
fn delay_of(step: Step) -> Duration {
    let Step::SendAt { delay, .. } = step else {
        panic!("{step:?} is not a resend");
    };
    delay
}

#[track_caller]
fn source_of(step: Step) -> DelaySource {
    let Step::SendAt { source, .. } = step else {
        panic!("{step:?} is not a resend");
    };
    source
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const EXHAUSTED: Step = Step::Failed(TerminalReason::Exhausted);
const AUTH_FAILED: Step = Step::Failed(TerminalReason::AuthFailed);
const EXPIRED: Step = Step::Failed(TerminalReason::Expired);

#[test]
fn five_sends_have_four_waits() {
    let mut at = Bench::get();
    for n in 1..=4 {
        let delay = delay_of(at.answer(503, ""));
        let (least, most) = at.settings.bounds(n);
        assert!((least..=most).contains(&delay), "{n}: {delay:?}");
    }
    assert_eq!(at.answer(503, ""), EXHAUSTED);
    assert_eq!((at.item.sent(), at.item.attempts()), (5, 5));
}

#[test]
fn succeeds_on_the_third_send() {
    let mut at = Bench::get();
    at.answer(500, "");
    at.answer(500, "");
    assert_eq!(at.answer(200, ""), Step::Done);
    assert_eq!((at.item.sent(), at.item.attempts()), (3, 2));
}

#[test]
fn rejected_item_is_not_resent() {
    assert_eq!(
        Bench::get().answer(400, ""),
        Step::Failed(TerminalReason::Rejected)
    );
    assert_eq!(Bench::get().answer(101, ""), Step::Done);
}

#[test]
fn conflict_is_not_resent() {
    for status in [409, 412] {
        let mut at = Bench::get();
        assert_eq!(at.answer(status, ""), Step::Conflict);
        assert_eq!(at.answer(status, "5"), Step::Conflict, "nor with a hint");
    }
}

#[test]
fn quota_exhausted_fails_at_once_even_with_known_reset() {
    let (outcome, _) = answered(429, "3600");
    let step = Bench::get().after(&outcome, Some(Verdict::QuotaExhausted));
    assert_eq!(step, Step::Failed(TerminalReason::QuotaExhausted));
}

#[test]
fn directed_wait_replaces_shorter_or_longer_backoff() {
    let mut at = Bench::get();
    for (status, wait) in [(429, "0"), (503, "120"), (500, "7"), (429, "86400")] {
        let step = at.answer(status, wait);
        let wait = secs(wait.parse().unwrap());
        let delay = delay_of(step);
        assert!((wait..wait + secs(5)).contains(&delay), "{delay:?}");
        assert_eq!(source_of(step), DelaySource::RetryAfter);
    }
}

#[test]
fn directed_waits_do_not_count_as_attempts() {
    let mut at = Bench::get();
    for _ in 0..99 {
        assert_eq!(source_of(at.answer(429, "1")), DelaySource::RetryAfter);
    }
    assert_eq!(at.item.attempts(), 0);
    for _ in 0..4 {
        at.answer(429, "");
    }
    assert_eq!(source_of(at.answer(500, "30")), DelaySource::RetryAfter);
    assert_eq!(at.answer(429, ""), EXHAUSTED);
    assert_eq!(at.item.sent(), 105);
}

#[test]
fn zero_waits_count_as_attempts() {
    let mut at = Bench::get();
    for sent in 1..5 {
        let step = at.answer(429, "0");
        assert_eq!(source_of(step), DelaySource::RetryAfter);
        assert_eq!(at.item.attempts(), sent);
    }
    assert_eq!(at.answer(429, "0"), EXHAUSTED);
}

#[test]
fn is_exhausted_after_a_hundred_directed_waits_over_restarts() {
    let mut at = Bench::get();
    for _ in 0..100 {
        assert_eq!(source_of(at.answer(429, "1")), DelaySource::RetryAfter);
        at.item = Item::restore(*at.item.kind(), &at.item.record(at.now), at.now);
    }
    assert_eq!(at.answer(503, "1"), EXHAUSTED);
    assert_eq!((at.item.sent(), at.item.attempts()), (101, 0));
}

#[test]
fn uses_backoff_without_a_hint() {
    let mut at = Bench::get();
    at.answer(429, "");
    let step = at.answer(429, "soon");
    assert_eq!(source_of(step), DelaySource::Backoff);
    assert!((secs(1)..secs(3)).contains(&delay_of(step)));
}

#[test]
fn refreshes_once_and_resends_at_once_after_401() {
    let mut at = Bench::get();
    assert_eq!(at.answer(401, ""), Step::Refresh);
    let step = at.item.refreshed(true, at.now);
    assert_eq!(
        (source_of(step), delay_of(step)),
        (DelaySource::Refresh, Duration::ZERO)
    );
    assert_eq!(at.answer(200, ""), Step::Done);
    assert_eq!((at.item.sent(), at.item.attempts()), (2, 0));
}

#[test]
fn fails_on_second_401() {
    let mut at = Bench::get();
    at.answer(401, "");
    at.item.refreshed(true, at.now);
    assert_eq!(at.answer(401, ""), AUTH_FAILED);
}

#[test]
fn fails_when_refresh_fails() {
    let mut at = Bench::get();
    at.answer(401, "");
    assert_eq!(at.item.refreshed(false, at.now), AUTH_FAILED);
}

#[test]
fn refreshes_again_after_another_response_but_not_after_a_failure() {
    let mut at = Bench::get();
    at.answer(401, "");
    at.answer(500, "");
    assert_eq!(at.answer(401, ""), Step::Refresh);
    at.fail(Failure::Timeout, Phase::Waiting);
    assert_eq!(at.answer(401, ""), AUTH_FAILED);
}

#[test]
fn a_401_does_not_count_as_an_attempt() {
    let mut at = Bench::get();
    at.answer(401, "");
    at.item.refreshed(true, at.now);
    at.answer(500, "");
    assert_eq!(at.answer(200, ""), Step::Done);
    assert_eq!(at.item.attempts(), 1);
}

#[test]
fn post_is_not_resent_if_the_server_may_have_acted() {
    for status in [500, 502, 503, 504, 408] {
        assert_eq!(Bench::post().answer(status, ""), EXHAUSTED, "{status}");
    }
    assert_eq!(
        Bench::post().answer(500, "30"),
        EXHAUSTED,
        "not even with a hint"
    );
    for phase in [Phase::Sending, Phase::Waiting, Phase::Receiving] {
        let step = Bench::post().fail(Failure::Timeout, phase);
        assert_eq!(step, EXHAUSTED, "{phase:?}");
    }
}

#[test]
fn post_is_resent_if_the_server_cannot_have_acted() {
    delay_of(Bench::post().fail(Failure::Connect, Phase::Connecting));
    delay_of(Bench::post().fail(Failure::Timeout, Phase::Connecting));
    delay_of(Bench::post().fail(Failure::RefusedStream, Phase::Waiting));
    delay_of(Bench::post().answer(429, ""));
    delay_of(Bench::post().answer(503, "5"));
    assert_eq!(Bench::post().answer(401, ""), Step::Refresh);
}

#[test]
fn idempotency_key_route_or_method_allows_resending() {
    let with_key = ItemKind {
        has_idempotency_key: true,
        ..ItemKind::of("POST")
    };
    let allowed = ItemKind {
        retry_unsafe: true,
        ..ItemKind::of("PATCH")
    };
    for kind in [
        with_key,
        allowed,
        ItemKind::of("PUT"),
        ItemKind::of("DELETE"),
    ] {
        delay_of(Bench::new(kind).answer(500, ""));
        delay_of(Bench::new(kind).fail(Failure::Reset, Phase::Receiving));
    }
}

#[test]
fn ends_at_once_when_next_send_is_too_late() {
    let kind = ItemKind {
        expires_after: Some(secs(60)),
        ..ItemKind::of("GET")
    };
    let mut at = Bench::new(kind);
    assert_eq!(at.item.expires_at(), Some(at.now + secs(60)));
    delay_of(at.answer(429, "50"));
    assert_eq!(at.answer(429, "60"), EXPIRED);
    at.now = at.now + secs(60);
    assert_eq!(at.answer(503, ""), EXPIRED);
    assert_eq!(at.answer(401, ""), EXPIRED);
    assert_eq!(at.answer(200, ""), Step::Done, "better late than lost");
}

#[test]
fn gives_up_after_too_long_without_success_at_the_gate() {
    let kind = ItemKind {
        give_up_after: Some(secs(300)),
        ..ItemKind::of("GET")
    };
    let mut at = Bench::new(kind);
    at.settings.retry_after_jitter = RetryAfterJitter::UpTo(Duration::ZERO);
    assert_eq!(delay_of(at.answer(429, "300")), secs(300));
    let gave_up = Step::Failed(TerminalReason::GaveUp);
    assert_eq!(at.answer(429, "301"), gave_up);
    let success = at.now + secs(1);
    at.item.gate_succeeded(success);
    at.item.gate_succeeded(at.now);
    assert_eq!(delay_of(at.answer(429, "301")), secs(301));
    assert_eq!(at.answer(429, "302"), gave_up);
}

#[test]
fn refusal_by_a_gate_does_not_count_as_an_attempt() {
    let mut at = Bench::get();
    let until = at.now + secs(4);
    let step = at.refused(Reason::BreakerOpen, Some(until));
    assert_eq!(source_of(step), DelaySource::Gate);
    assert_eq!(at.item.next_at(), until);
    let step = at.refused(Reason::QueueFull, None);
    assert_eq!(source_of(step), DelaySource::Backoff);
    let Step::SendAt { reason, .. } = step else {
        panic!("{step:?}");
    };
    assert_eq!(reason.as_str(), "queue_full");
    assert_eq!((at.item.sent(), at.item.attempts()), (0, 0));
}

#[test]
fn ends_as_breaker_open_when_deadline_precedes_it() {
    let kind = ItemKind {
        expires_after: Some(secs(3)),
        ..ItemKind::of("GET")
    };
    let mut at = Bench::new(kind);
    let until = Some(at.now + secs(4));
    assert_eq!(
        at.refused(Reason::BreakerOpen, until),
        Step::Failed(TerminalReason::BreakerOpen)
    );
    assert_eq!(at.refused(Reason::Hold, until), EXPIRED);
    let kind = ItemKind {
        give_up_after: Some(secs(3)),
        ..ItemKind::of("GET")
    };
    let mut at = Bench::new(kind);
    let until = Some(at.now + secs(4));
    for (reason, expected) in [
        (Reason::BreakerOpen, TerminalReason::BreakerOpen),
        (Reason::Hold, TerminalReason::GaveUp),
    ] {
        assert_eq!(at.refused(reason, until), Step::Failed(expected));
    }
}

#[test]
fn honours_a_directed_wait_of_an_hour() {
    let mut at = Bench::get();
    at.settings = Preset::Crawl.settings();
    assert!(delay_of(at.answer(429, "3600")) >= secs(3600));
}

#[test]
fn record_and_restore_preserve_the_item() {
    let kind = ItemKind {
        expires_after: Some(secs(600)),
        give_up_after: Some(secs(300)),
        ..ItemKind::of("GET")
    };
    let mut at = Bench::new(kind);
    at.answer(500, "");
    at.answer(500, "");
    delay_of(at.answer(429, "30"));
    let record = at.item.record(at.now);
    assert_eq!((record.sent, record.attempts), (3, 2));
    assert!(record.next_in >= secs(30));
    // Another process with another clock.
    let now = Timestamp::from_millis(5);
    let restored = Item::restore(kind, &record, now);
    assert_eq!(restored.record(now), record);
    assert_eq!(restored.next_at(), now + record.next_in);
    assert_eq!(
        Item::restore(kind, &record, at.now),
        at.item,
        "on the same clock it is the same item"
    );
}

#[test]
fn expired_item_stays_expired_after_restore() {
    let kind = ItemKind {
        expires_after: Some(secs(1)),
        ..ItemKind::of("GET")
    };
    let mut at = Bench::new(kind);
    let record = at.item.record(at.now + secs(5));
    assert_eq!(record.expires_in, Some(Duration::ZERO));
    at.item = Item::restore(kind, &record, at.now);
    assert_eq!(at.answer(503, ""), EXPIRED);
}

#[test]
fn size_is_bounded() {
    assert!(size_of::<Item>() <= 80, "{}", size_of::<Item>());
}

/// One attempt of a random history.
#[derive(Clone, Debug)]
enum Attempt {
    Status(u16, String),
    Failure(Failure, Phase),
    Refused(Reason, Option<u64>),
}

fn attempt() -> impl Strategy<Value = Attempt> {
    let status = prop_oneof![
        4 => prop::sample::select(vec![429_u16, 500, 502, 503, 504, 529, 408]),
        1 => prop::sample::select(vec![401_u16, 200, 101, 404, 409]),
    ];
    let retry_after = prop_oneof![
        2 => Just(String::new()),
        1 => (0_u32..2000).prop_map(|seconds| seconds.to_string()),
        1 => prop::sample::select(vec!["1m30s", "370ms", "PT5S", "0.25", "soon", "-3"])
            .prop_map(str::to_owned),
    ];
    let failure = prop::sample::select(vec![
        Failure::Connect,
        Failure::Timeout,
        Failure::Reset,
        Failure::RefusedStream,
    ]);
    let phase = prop::sample::select(vec![
        Phase::Connecting,
        Phase::Sending,
        Phase::Waiting,
        Phase::Receiving,
    ]);
    let reason = prop::sample::select(vec![Reason::BreakerOpen, Reason::QueueFull]);
    prop_oneof![
        6 => (status, retry_after).prop_map(|(status, wait)| Attempt::Status(status, wait)),
        3 => (failure, phase).prop_map(|(failure, phase)| Attempt::Failure(failure, phase)),
        1 => (reason, prop::option::of(0_u64..100_000))
            .prop_map(|(reason, until)| Attempt::Refused(reason, until)),
    ]
}

fn kind() -> impl Strategy<Value = ItemKind> {
    let method = prop::sample::select(vec!["GET", "PUT", "POST", "PATCH"]);
    let bound = || prop::option::of((0_u64..600_000).prop_map(Duration::from_millis));
    (method, any::<bool>(), any::<bool>(), bound(), bound()).prop_map(
        |(method, key, allowed, expires_after, give_up_after)| ItemKind {
            has_idempotency_key: key,
            retry_unsafe: allowed,
            expires_after,
            give_up_after,
            ..ItemKind::of(method)
        },
    )
}

#[test]
fn set_attempts_changes_the_count() {
    let mut bench = Bench::get();
    bench.item.set_attempts(4);
    assert_eq!(
        bench.answer(500, ""),
        Step::Failed(TerminalReason::Exhausted)
    );
    bench.item.set_attempts(0);
    assert!(matches!(bench.answer(500, ""), Step::SendAt { .. }));
    assert_eq!((bench.item.attempts(), bench.item.sent()), (1, 2));
}

#[test]
fn item_without_expiry_never_expires() {
    let mut bench = Bench::get();
    assert_eq!(bench.item.expires_at(), None);
    assert_eq!(bench.item.kind().safety, Safety::Safe);
    let outcome = Outcome::status(429, Duration::ZERO).with_hint(Hint {
        wait: Some(Duration::MAX),
        ..Hint::default()
    });
    let step = bench.after(&outcome, Some(Verdict::Throttled));
    assert!(
        matches!(
            step,
            Step::SendAt {
                at: Timestamp::MAX,
                ..
            }
        ),
        "{step:?}"
    );
    let mut bench = Bench::new(ItemKind {
        expires_after: Some(Duration::from_secs(60)),
        ..ItemKind::of("GET")
    });
    assert_eq!(
        bench.item.expires_at(),
        Some(bench.now + Duration::from_secs(60))
    );
    assert_eq!(
        bench.answer(429, "60"),
        Step::Failed(TerminalReason::Expired)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn every_history_satisfies_the_rules(
        kind in kind(),
        attempts in prop::collection::vec(attempt(), 1..60),
        preset in prop::sample::select(Preset::ALL.to_vec()),
        seed: u64,
    ) {
        let mut at = Bench::new(kind);
        at.settings = preset.settings();
        at.random = Random::from_seed(seed);
        let start = at.now;
        let may_repeat = kind.safety != Safety::Unsafe || kind.has_idempotency_key || kind.retry_unsafe;
        let mut refreshes_in_a_row = 0;
        for attempt in attempts {
            let before = at.item;
            let (step, outcome, verdict) = match attempt {
                Attempt::Status(status, wait) => {
                    let (outcome, verdict) = answered(status, &wait);
                    (at.after(&outcome, verdict), Some(outcome), verdict)
                }
                Attempt::Failure(failure, phase) => {
                    let outcome = Outcome::failure(failure, phase, Duration::ZERO);
                    let verdict = classify::failure(failure).verdict;
                    (at.after(&outcome, verdict), Some(outcome), verdict)
                }
                Attempt::Refused(reason, until) => {
                    let until = until.map(|millis| at.now + Duration::from_millis(millis));
                    let step = at.refused(reason, until);
                    prop_assert_eq!(at.item.attempts(), before.attempts());
                    (step, None, None)
                }
            };
            let wait = outcome.as_ref().and_then(|outcome| outcome.hint.wait);
            let step = if step == Step::Refresh {
                refreshes_in_a_row += 1;
                prop_assert_eq!(at.item.attempts(), before.attempts());
                prop_assert!(refreshes_in_a_row <= 1, "one refresh until another answer");
                at.item.refreshed(true, at.now)
            } else {
                if outcome.as_ref().is_some_and(|o| matches!(o.response, UpstreamResponse::Status(_))) {
                    refreshes_in_a_row = 0;
                }
                step
            };
            let Step::SendAt { at: next, delay, source, .. } = step else {
                break;
            };
            // Later by the delay, and within its time bounds.
            prop_assert_eq!(next, at.now + delay);
            prop_assert_eq!(next, at.item.next_at());
            if let Some(expires_after) = kind.expires_after {
                prop_assert!(next < start + expires_after);
            }
            if let Some(give_up_after) = kind.give_up_after {
                prop_assert!(next <= start + give_up_after);
            }
            match source {
                DelaySource::RetryAfter => {
                    prop_assert!(delay >= wait.unwrap(), "{delay:?} undercuts {wait:?}");
                    let (_, most) = at.settings.directed_bounds(wait.unwrap());
                    prop_assert!(delay <= most);
                    let counts = u32::from(wait.unwrap().is_zero());
                    prop_assert_eq!(at.item.attempts(), before.attempts() + counts);
                }
                DelaySource::Backoff => {
                    prop_assert!(delay <= at.settings.max());
                    if outcome.is_some() {
                        prop_assert_eq!(at.item.attempts(), before.attempts() + 1);
                        let (least, most) = at.settings.bounds(at.item.attempts());
                        prop_assert!(least <= delay && delay <= most);
                    }
                }
                DelaySource::Refresh => prop_assert_eq!(delay, Duration::ZERO),
                DelaySource::Gate | DelaySource::Failover | DelaySource::Resolution => {}
            }
            // Five sends have four waits.
            prop_assert!(at.item.attempts() < at.settings.max_attempts());
            if let (Some(outcome), false) = (&outcome, may_repeat) {
                let refused = matches!(verdict, Some(Verdict::Throttled | Verdict::Unauthorized));
                prop_assert!(refused || !outcome.server_may_have_acted(), "sent twice");
            }
            // A restart at any time makes no difference.
            let restored = Item::restore(kind, &at.item.record(at.now), at.now);
            prop_assert_eq!(restored, at.item);
            at.now = next + Duration::from_millis(1);
        }
    }

    #[test]
    fn item_with_expiry_always_ends(
        wait in prop::option::of(0_u64..10),
        seed: u64,
    ) {
        let kind = ItemKind { expires_after: Some(secs(60)), ..ItemKind::of("GET") };
        let mut at = Bench::new(kind);
        at.random = Random::from_seed(seed);
        let hint = Hint {
            wait: wait.map(secs),
            source: wait.map(|_| Source::RetryAfter),
            ..Hint::default()
        };
        let outcome = Outcome::status(429, Duration::ZERO).with_hint(hint);
        let mut sends = 0;
        while let Step::SendAt { at: next, .. } = at.after(&outcome, Some(Verdict::Throttled)) {
            at.now = next + Duration::from_millis(100);
            sends += 1;
            prop_assert!(sends <= 600);
        }
    }
}

#[test]
fn failover_to_another_endpoint_does_not_wait() {
    let settings = BackoffSettings::default();
    let mut random = Random::from_seed(1);
    let mut after = |outcome: &Outcome, verdict, other_ready_at| {
        let kind = ItemKind {
            expires_after: Some(Duration::from_secs(30)),
            ..ItemKind::of("GET")
        };
        let mut item = Item::new(kind, Timestamp::ZERO);
        let now = Timestamp::from_secs(1);
        let step = item.after_at(
            &settings,
            outcome,
            Some(verdict),
            other_ready_at,
            now,
            &mut random,
        );
        (step, item.attempts())
    };
    let at_once = |reason| Step::SendAt {
        at: Timestamp::from_secs(1),
        delay: Duration::ZERO,
        source: DelaySource::Failover,
        reason: ResendReason::Verdict(reason),
    };
    let failed = Outcome::status(502, Duration::ZERO);
    let step = after(&failed, Verdict::Overloaded, Some(Timestamp::from_secs(1)));
    assert_eq!(step, (at_once(Verdict::Overloaded), 1));
    // The other endpoint ignores the hour, and the attempt does not count there either.
    let hour = Outcome::throttled(Duration::ZERO, Some(Duration::from_secs(3600)));
    let step = after(&hour, Verdict::Throttled, Some(Timestamp::from_secs(1)));
    assert_eq!(step, (at_once(Verdict::Throttled), 0));
    let step = after(&hour, Verdict::Throttled, None);
    assert_eq!(step, (Step::Failed(TerminalReason::Expired), 0));
    // An endpoint that is ready after the own delay does not help.
    let (step, _) = after(&failed, Verdict::Overloaded, Some(Timestamp::from_secs(9)));
    assert!(matches!(
        step,
        Step::SendAt {
            source: DelaySource::Backoff,
            ..
        }
    ));
}
