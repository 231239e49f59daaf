//! What a call offers around its attempts: errors by `?`, conflicts, asks that fail fast.

mod drive;

use std::cell::Cell;
use std::error::Error;
use std::io;
use std::sync::Mutex;
use std::time::Duration;

use drive::{drive, gate};
use policy::item::TerminalReason;
use policy::outcome::{Failure, Outcome, Phase, Verdict};
use tidegate::call::{CallDecision, MAX_RESOLUTIONS, Resolution};
use tidegate::{
    Ask, AttemptError, AttemptResult, CallError, Credential, Limiter, ManualClock, Pool, Reason,
};

const KEY: &str = "api.example.com";
const FAST: &[(&str, &str)] = &[("strategy", "fixed"), ("initial_rate", "1000")];

fn limiter(set: &[(&str, &str)]) -> (ManualClock, Limiter) {
    let clock = ManualClock::new();
    let builder = Limiter::builder().gate(gate(set)).clock(clock.clock());
    (clock, builder.seed(7).build())
}

/// A request that fails with this kind of error.
fn fail(kind: io::ErrorKind) -> io::Result<u16> {
    Err(io::Error::new(kind, "from the test"))
}

fn source_of<T>(error: &CallError<T>) -> String {
    let source = error.source().expect("it has a source");
    source.to_string()
}

#[test]
fn transport_error_is_resent_and_the_gate_learns_from_it() {
    let (clock, limiter) = limiter(FAST);
    let call = limiter.call(KEY).run(async |attempt| {
        let status = match attempt.number {
            1 => fail(io::ErrorKind::ConnectionReset)?,
            _ => 200,
        };
        Ok(AttemptResult::new(status, attempt.status(status)))
    });
    let called = drive(&clock, call).unwrap();
    assert_eq!((called.value, called.sent), (200, 2));
    let failed = called.trail.steps().iter().any(|step| {
        let verdict = Some(Verdict::Unreachable);
        matches!(step.decision, CallDecision::Settled { verdict: found, .. } if found == verdict)
    });
    assert!(failed, "{:?}", called.trail);
}

#[test]
fn last_error_is_the_source() {
    let (clock, limiter) = limiter(FAST);
    let call = limiter.call(KEY).run(async |attempt| {
        let status = fail(io::ErrorKind::ConnectionRefused)?;
        Ok(AttemptResult::new((), attempt.status(status)))
    });
    let error = drive(&clock, call).unwrap_err();
    assert_eq!((error.reason, error.sent), (TerminalReason::Exhausted, 5));
    assert_eq!(error.verdict(), Some(Verdict::Unreachable));
    assert_eq!(source_of(&error), "from the test");
    assert_eq!(error.into_last(), None);
}

#[test]
fn unsafe_request_is_resent_only_if_the_error_says_that_nothing_was_written() {
    let sent = |kind| {
        let (clock, limiter) = limiter(FAST);
        let call = limiter.call(KEY).method("POST").run(async |attempt| {
            let status = fail(kind)?;
            Ok(AttemptResult::new((), attempt.status(status)))
        });
        drive(&clock, call).unwrap_err().sent
    };
    assert_eq!(sent(io::ErrorKind::ConnectionRefused), 5);
    assert_eq!(sent(io::ErrorKind::ConnectionReset), 1);
}

#[test]
fn error_of_another_kind_ends_the_call_and_teaches_the_gate_nothing() {
    let (clock, limiter) = limiter(FAST);
    let call = limiter.call(KEY).run(async |attempt| {
        let number: u16 = "not a number".parse()?;
        Ok(AttemptResult::new(number, attempt.status(200)))
    });
    let error = drive(&clock, call).unwrap_err();
    assert_eq!((error.reason, error.sent), (TerminalReason::Unusable, 1));
    assert!(!error.may_succeed_later(), "nothing says that it could");
    assert_eq!(error.verdict(), None);
    assert_eq!(source_of(&error), "invalid digit found in string");
    let message = "unusable after 1 attempt; last: the attempt failed";
    assert_eq!(error.to_string(), message);
    let gate = limiter.gate(KEY).unwrap().gate;
    assert_eq!((gate.in_flight, gate.consecutive_failures), (0, 0));
}

#[test]
fn request_that_cannot_be_built_returns_its_permit() {
    let (clock, limiter) = limiter(&[("strategy", "fixed"), ("initial_rate", "0.001")]);
    let call = limiter
        .call(KEY)
        .run(async |_| -> Result<AttemptResult<()>, AttemptError> {
            Err(AttemptError::unsent("no such file"))
        });
    let error = drive(&clock, call).unwrap_err();
    assert_eq!((error.reason, error.sent), (TerminalReason::Rejected, 0));
    assert_eq!(source_of(&error), "no such file");
    assert!(limiter.try_acquire(KEY).is_ok(), "its token is back");
}

#[test]
fn attempt_may_say_what_its_error_means() {
    let (clock, limiter) = limiter(FAST);
    let timeout = || Outcome::failure(Failure::Timeout, Phase::Waiting, Duration::from_secs(5));
    let call = limiter.call(KEY).run(async |attempt| {
        if attempt.number == 1 {
            return Err(AttemptError::new("the queue is stuck").with_outcome(timeout()));
        }
        Ok(AttemptResult::new((), attempt.status(200)))
    });
    assert_eq!(drive(&clock, call).unwrap().sent, 2);
}

#[test]
fn error_of_the_refresh_is_the_source() {
    let (clock, limiter) = limiter(FAST);
    let credential = Credential::new("crm", (), async || Err("no such account"));
    let call = limiter.call(KEY).credential(&credential);
    let run = call.run(async |attempt| AttemptResult::new(401, attempt.status(401)));
    let error = drive(&clock, run).unwrap_err();
    assert_eq!(source_of(&error), "credential `crm` could not be refreshed");
    let cause = error.source().and_then(Error::source);
    assert_eq!(cause.unwrap().to_string(), "no such account");
    assert_eq!(error.verdict(), Some(Verdict::Unauthorized));
    assert_eq!(error.into_last(), Some(401));
}

/// Sends a PUT that conflicts this often, and resolves each conflict like this.
fn put(conflicts: u32, resolution: Resolution) -> (Result<u32, TerminalReason>, u32, Vec<u32>) {
    let (clock, limiter) = limiter(FAST);
    let seen = Mutex::new(Vec::new());
    let sent = Cell::new(0);
    let resolve = |number| -> tidegate::call::ResolutionFuture<'_> {
        seen.lock().expect("no thread panics").push(number);
        Box::pin(async move { resolution })
    };
    let call = limiter.call(KEY).method("PUT").on_conflict(&resolve);
    let run = call.run(async |attempt| {
        sent.set(attempt.number);
        let status = if attempt.number <= conflicts {
            412
        } else {
            200
        };
        AttemptResult::new(u32::from(status), attempt.status(status))
    });
    let result = drive(&clock, run);
    let result = result
        .map(|called| called.value)
        .map_err(|error| error.reason);
    (
        result,
        sent.get(),
        seen.into_inner().expect("no thread panics"),
    )
}

#[test]
fn resolved_conflict_is_resent_at_once() {
    assert_eq!(put(2, Resolution::Resend), (Ok(200), 3, vec![1, 2]));
}

#[test]
fn conflicts_without_end_fail_after_three_resolutions() {
    let failed = Err(TerminalReason::Conflict);
    let numbers: Vec<u32> = (1..=MAX_RESOLUTIONS).collect();
    assert_eq!(put(99, Resolution::Resend), (failed, 4, numbers));
}

#[test]
fn conflict_may_be_discarded_or_fail() {
    assert_eq!(put(99, Resolution::Discard), (Ok(412), 1, vec![1]));
    let failed = Err(TerminalReason::Conflict);
    assert_eq!(put(99, Resolution::Fail), (failed, 1, vec![1]));
}

#[test]
fn resolution_is_bounded_by_the_time_of_the_call() {
    let (clock, limiter) = limiter(FAST);
    let resolve = |_| -> tidegate::call::ResolutionFuture<'_> { Box::pin(std::future::pending()) };
    let call = limiter.call(KEY).within(Duration::from_secs(10));
    let run = call
        .on_conflict(&resolve)
        .run(async |attempt| AttemptResult::new((), attempt.status(409)));
    assert_eq!(
        drive(&clock, run).unwrap_err().reason,
        TerminalReason::Expired
    );
    assert_eq!(clock.clock().now().as_nanos(), 10_000_000_000);
}

#[test]
fn ask_that_fails_fast_is_admitted_at_once_or_refused() {
    let (clock, limiter) = limiter(&[("strategy", "fixed"), ("initial_rate", "1")]);
    let ask = Ask::new(KEY).fail_fast();
    drive(&clock, limiter.acquire(ask))
        .unwrap()
        .settle(&Outcome::success(Duration::ZERO));
    let refusal = drive(&clock, limiter.acquire(ask)).unwrap_err();
    assert_eq!(refusal.reason(), Reason::Rate);
    assert!(refusal.wait().is_some(), "it says when to ask again");
    assert_eq!(clock.clock().now().as_nanos(), 0, "it did not wait");
}

#[test]
fn call_that_fails_fast_ends_with_the_refusal() {
    let (clock, limiter) = limiter(&[("strategy", "fixed"), ("initial_rate", "0.01")]);
    let call = || {
        limiter
            .call(Ask::new(KEY).fail_fast())
            .within(Duration::from_secs(300))
    };
    let ok = async |attempt: tidegate::Attempt| AttemptResult::new((), attempt.status(200));
    drive(&clock, call().run(ok)).unwrap();
    let error = drive(&clock, call().run(ok)).unwrap_err();
    assert_eq!((error.reason, error.sent), (TerminalReason::Expired, 0));
    limiter.isolate(KEY).unwrap();
    let error = drive(&clock, call().run(ok)).unwrap_err();
    assert_eq!(error.reason, TerminalReason::BreakerOpen);
    assert_eq!(clock.clock().now().as_nanos(), 0, "it did not wait");
}

#[test]
fn wait_of_the_ask_bounds_the_waits_of_a_call() {
    let (clock, limiter) = limiter(FAST);
    let pool = Pool::new("llm", &limiter);
    pool.add("a", "a.example.com", ());
    let run = async |attempt: tidegate::Attempt| AttemptResult::new((), attempt.status(502));
    let run_at = async |attempt: tidegate::Attempt, _| AttemptResult::new((), attempt.status(502));
    let now = || clock.clock().now();
    let four = Duration::from_secs(4);

    let ends = now() + four;
    let asks = [Ask::new(KEY).within(four), Ask::new(KEY).until(ends)];
    for ask in asks {
        let error = drive(&clock, limiter.call(ask).run(run)).unwrap_err();
        assert_eq!(error.reason, TerminalReason::Expired);
        assert!(now() < ends, "no attempt starts later: {error}");
    }
    let ends = now() + four;
    let ask = Ask::any().within(four);
    let error = drive(&clock, pool.call_with(ask).run(run_at)).unwrap_err();
    assert_eq!(error.reason, TerminalReason::Expired);
    assert!(now() < ends, "no attempt starts later: {error}");

    // In line, too, where it would ask again for five minutes.
    limiter.isolate(KEY).unwrap();
    let ends = now() + four;
    let error = drive(&clock, limiter.call(Ask::new(KEY).within(four)).run(run)).unwrap_err();
    assert_eq!(error.reason, TerminalReason::BreakerOpen);
    assert!(now() <= ends, "{error}");
    let call = limiter.call(Ask::new(KEY).within(four));
    let call = call.within(Duration::from_secs(1));
    let ends = now() + Duration::from_secs(1);
    drive(&clock, call.run(run)).unwrap_err();
    assert!(now() <= ends, "the shorter bound counts");
}

/// The types of all fields can be named with the library alone.
#[expect(dead_code, reason = "it is only compiled")]
fn names_of_types(gate: tidegate::GateSnapshot, record: tidegate::GateRecord) {
    let _: tidegate::Counts = gate.window;
    let _: Option<tidegate::RatePhase> = gate.phase;
    let _: Option<tidegate::RateView> = gate.learned;
    let _: Option<tidegate::CeilingSource> = gate.learned.and_then(|learned| learned.source);
    let _: Option<tidegate::CostSnapshot> = gate.cost;
    let _: tidegate::BreakerRecord = record.breaker;
    let _: Option<tidegate::CostRecord> = record.cost;
}

#[test]
fn resend_of_a_call_that_fails_fast_needs_a_free_gate() {
    let (clock, limiter) = limiter(&[("strategy", "fixed"), ("initial_rate", "0.01")]);
    let call = limiter.call(Ask::new(KEY).fail_fast());
    let run = call.run(async |attempt| AttemptResult::new(attempt.number, attempt.status(502)));
    let error = drive(&clock, run).unwrap_err();
    assert_eq!((error.reason, error.sent), (TerminalReason::Expired, 1));
    assert_eq!(error.last, Some(1), "the response of the only attempt");
}

#[test]
fn call_through_a_pool_uses_the_cost_and_the_wait_of_its_ask() {
    let (clock, limiter) = limiter(&[("limits", "10/1h")]);
    let pool = Pool::new("llm", &limiter);
    pool.add("a", "a.example.com", ());
    let ok = async |attempt: tidegate::Attempt, _| AttemptResult::new((), attempt.status(200));
    let ask = Ask::any().cost(6).fail_fast();
    drive(&clock, pool.call_with(ask).run(ok)).unwrap();
    let error = drive(&clock, pool.call_with(ask).run(ok)).unwrap_err();
    assert_eq!(
        error.reason,
        TerminalReason::Expired,
        "six and six are more than ten"
    );
}

#[test]
fn clones_of_a_pool_share_its_endpoints() {
    let (_clock, limiter) = limiter(FAST);
    let pool = Pool::new("llm", &limiter);
    let clone = pool.clone();
    pool.add("a", "a.example.com", "data");
    assert_eq!(*clone.endpoint("a").unwrap().data(), "data");
    assert!(clone.disable("a"));
    assert!(pool.view()[0].disabled.is_some());
}

#[test]
fn owned_ask_waits_for_all_its_keys() {
    let (clock, limiter) = limiter(FAST);
    let asked = {
        let (key, account) = (KEY.to_owned(), "account:42".to_owned());
        limiter.acquire_owned(Ask::new(&key).also(&[&account]))
    };
    let permit = drive(&clock, asked).unwrap();
    for key in [KEY, "account:42"] {
        assert_eq!(limiter.gate(key).unwrap().gate.in_flight, 1);
    }
    drop(permit);
}

#[test]
fn settings_of_any_key_apply_exactly_or_by_prefix() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder()
        .key("account:42", tidegate::GateSettings::fixed(7.0))
        .key_prefix("account:", tidegate::GateSettings::fixed(3.0))
        .clock(clock.clock())
        .build();
    let initial = |key: &str| limiter.settings(key).gate.initial_rate();
    let rates = (initial("account:42"), initial("account:43"), initial(KEY));
    assert_eq!(rates, (7.0, 3.0, 2.0));
    drop(limiter.try_acquire("account:43").unwrap());
    let rate = || (limiter.gate("account:43").unwrap().gate.rate,);
    let faster = tidegate::GateSettings::fixed(50.0);
    limiter.set_key_prefix("account:", faster).unwrap();
    assert_eq!(rate(), (50.0,));
    let own = tidegate::GateSettings::fixed(9.0);
    limiter.set_key("account:43", own).unwrap();
    assert_eq!(rate(), (9.0,));
}
