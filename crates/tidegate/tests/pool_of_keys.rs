//! Pools whose endpoints differ by their credential: one that is rejected fails no call while
//! another endpoint is left.

mod drive;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use drive::{drive, gate};
use policy::item::TerminalReason;
use policy::ladder::{Disabled, LadderOptions, LadderSettings};
use policy::outcome::{Outcome, Verdict};
use policy::pool::Balance;
use policy::time::Timestamp;
use tidegate::{
    AttemptResult, CallError, CallResult, Credential, Limiter, ManualClock, Pool, Refresh,
};

const FAST: &[(&str, &str)] = &[("strategy", "fixed"), ("initial_rate", "1000")];

fn pool(names: &[&str], protection: LadderSettings) -> (ManualClock, Pool<()>) {
    let clock = ManualClock::new();
    let limiter = Limiter::builder()
        .gate(gate(FAST))
        .clock(clock.clock())
        .seed(3)
        .build();
    let pool = Pool::with("llm", &limiter, Balance::RoundRobin, protection);
    for name in names {
        assert!(pool.add(name, "llm.example.com", ()));
    }
    (clock, pool)
}

/// A pool with default protection.
fn protected(names: &[&str]) -> (ManualClock, Pool<()>) {
    pool(names, LadderSettings::default())
}

fn protection(set: &[(&str, &str)]) -> LadderSettings {
    let mut options = LadderOptions::default();
    for (name, value) in set {
        options.set(name, value).expect("a valid setting");
    }
    options.build().expect("consistent settings")
}

type Called = Result<CallResult<u16>, CallError<u16>>;

/// Makes a POST whose response at each endpoint `respond` returns, and the endpoints it was sent to.
fn post(
    clock: &ManualClock,
    pool: &Pool<()>,
    respond: impl Fn(&str) -> (u16, &'static str),
) -> (Called, Vec<String>) {
    let tried = RefCell::new(Vec::new());
    let call = pool.call().method("POST").within(Duration::from_secs(10));
    let called = drive(
        clock,
        call.run(|attempt, endpoint| {
            tried.borrow_mut().push(endpoint.name().to_owned());
            let (status, text) = respond(endpoint.name());
            let mut result = AttemptResult::new(status, attempt.status(status));
            text.clone_into(&mut result.text);
            async move { result }
        }),
    );
    (called, tried.into_inner())
}

#[test]
fn one_bad_key_of_three_fails_no_call() {
    for bad in [(401, ""), (402, ""), (403, "Invalid API key")] {
        let (clock, pool) = protected(&["a", "b", "c"]);
        let mut sent_to_a = 0;
        for _ in 0..30 {
            let (called, tried) = post(&clock, &pool, |name| match name {
                "a" => bad,
                _ => (200, ""),
            });
            assert_eq!(called.expect("another endpoint accepts it").value, 200);
            sent_to_a += tried.iter().filter(|name| *name == "a").count();
        }
        assert_eq!(sent_to_a, 1, "paused after the first response");
        let view = &pool.view()[0];
        assert_eq!(view.paused_until, Some(Timestamp::from_secs(30)));
        assert_eq!(view.consecutive_errors, 1);
        let error = view.last_error.as_deref().unwrap();
        assert!(error.starts_with("credential rejected: "), "{error}");
    }
}

#[test]
fn caller_gets_the_rejection_only_if_no_endpoint_is_left() {
    let (clock, pool) = protected(&["a", "b"]);
    let (called, tried) = post(&clock, &pool, |_| (401, ""));
    let error = called.unwrap_err();
    assert_eq!(
        (error.reason, error.last),
        (TerminalReason::AuthFailed, Some(401))
    );
    assert_eq!(tried, ["a", "b"]);
}

#[test]
fn repeated_rejection_disables_with_that_reason() {
    let settings = protection(&[("disable_after", "2"), ("pauses", "1s")]);
    let (clock, pool) = pool(&["a", "b"], settings);
    for _ in 0..4 {
        let (called, _) = post(&clock, &pool, |name| match name {
            "a" => (401, ""),
            _ => (200, ""),
        });
        called.expect("the other endpoint accepts it");
        clock.advance(Duration::from_secs(2));
    }
    assert_eq!(pool.view()[0].disabled, Some(Disabled::CredentialRejected));
    assert_eq!(Disabled::CredentialRejected.as_str(), "credential_rejected");
}

#[test]
fn used_up_quota_disables_and_the_request_moves_on() {
    let (clock, pool) = protected(&["a", "b"]);
    let run = pool.call().method("POST").run(|attempt, endpoint| {
        let outcome = attempt.status(if endpoint.name() == "a" { 429 } else { 200 });
        let verdict = match endpoint.name() {
            "a" => Verdict::QuotaExhausted,
            _ => Verdict::Success,
        };
        let result = AttemptResult::classified(endpoint.name().to_owned(), outcome, Some(verdict));
        async move { result }
    });
    assert_eq!(drive(&clock, run).unwrap().value, "b");
    assert_eq!(pool.view()[0].disabled, Some(Disabled::QuotaExhausted));
}

#[test]
fn request_moves_on_without_protection_and_tries_each_endpoint_once() {
    let (clock, pool) = pool(&["a", "b", "c"], protection(&[("enabled", "false")]));
    let (called, tried) = post(&clock, &pool, |name| match name {
        "c" => (200, ""),
        _ => (401, ""),
    });
    assert_eq!(called.unwrap().value, 200);
    assert_eq!(tried, ["a", "b", "c"]);
    let (called, tried) = post(&clock, &pool, |_| (401, ""));
    assert_eq!(called.unwrap_err().reason, TerminalReason::AuthFailed);
    assert_eq!(tried, ["a", "b", "c"]);
}

#[test]
fn single_endpoint_takes_no_step_for_its_credential() {
    let (clock, pool) = pool(&["a"], protection(&[("enabled", "true")]));
    let (called, _) = post(&clock, &pool, |_| (401, ""));
    assert_eq!(called.unwrap_err().reason, TerminalReason::AuthFailed);
    assert_eq!(pool.view()[0].consecutive_errors, 0);
}

#[test]
fn forbidden_request_is_not_about_the_credential() {
    let (clock, pool) = protected(&["a", "b"]);
    let (called, tried) = post(&clock, &pool, |_| (403, "You may not read this file"));
    assert_eq!(called.unwrap_err().reason, TerminalReason::Rejected);
    assert_eq!(tried, ["a"]);
    assert_eq!(pool.view()[0].consecutive_errors, 0);
}

type Token = Arc<Credential<&'static str>>;

/// Two endpoints with a credential each. A refresh of that of `a` gets `made`; `a` accepts `good`.
fn with_credentials(made: Option<&'static str>) -> (ManualClock, Pool<Token>, [Token; 2]) {
    let clock = ManualClock::new();
    let limiter = Limiter::builder()
        .gate(gate(FAST))
        .clock(clock.clock())
        .build();
    let pool = Pool::with("llm", &limiter, Balance::First, LadderSettings::default())
        .credentials(|credential: &Token| Some(&**credential));
    let credentials = ["a", "b"].map(|name| {
        let made = if name == "a" { made } else { Some("good") };
        let credential =
            Credential::new(name, "old", move || async move { made.ok_or("no token") });
        Arc::new(credential)
    });
    for (name, credential) in ["a", "b"].into_iter().zip(&credentials) {
        assert!(pool.add(name, "llm.example.com", Arc::clone(credential)));
    }
    (clock, pool, credentials)
}

/// The endpoints of the attempts of a call that is accepted with the token `good`.
fn tried_with_credentials(clock: &ManualClock, pool: &Pool<Token>) -> Vec<String> {
    let tried = RefCell::new(Vec::new());
    let run = pool.call().run(|attempt, endpoint| {
        tried.borrow_mut().push(endpoint.name().to_owned());
        let is_good = *endpoint.data().current() == "good";
        let outcome = attempt.status(if is_good { 200 } else { 401 });
        async move { AttemptResult::new((), outcome) }
    });
    drive(clock, run).expect("one of them is accepted");
    tried.into_inner()
}

#[test]
fn refreshes_the_credential_of_the_endpoint_and_resends_there() {
    let (clock, pool, credentials) = with_credentials(Some("good"));
    assert_eq!(tried_with_credentials(&clock, &pool), ["a", "a"]);
    assert_eq!(credentials[0].generation(), 1);
    assert_eq!(pool.view()[0].consecutive_errors, 0);
}

#[test]
fn moves_on_when_a_refresh_does_not_help_or_fails() {
    for (made, tried) in [
        (Some("bad"), &["a", "a", "b", "b"][..]),
        (None, &["a", "b", "b"]),
    ] {
        let (clock, pool, credentials) = with_credentials(made);
        assert_eq!(tried_with_credentials(&clock, &pool), tried);
        assert_eq!(credentials[1].generation(), 1, "its own refresh");
        let views = pool.view();
        assert_eq!(
            (views[0].consecutive_errors, views[1].consecutive_errors),
            (1, 0)
        );
        assert!(views[0].paused_until.is_some());
    }
}

#[test]
fn permit_settled_by_hand_can_reject_the_credential() {
    let (clock, pool) = protected(&["a", "b"]);
    let outcome = Outcome::status(401, Duration::from_millis(20));
    let permit = drive(&clock, pool.acquire(tidegate::Ask::any())).unwrap();
    permit.settle(&outcome);
    assert_eq!(pool.view()[0].consecutive_errors, 0, "it may be refreshed");
    let permit = drive(&clock, pool.acquire(tidegate::Ask::any())).unwrap();
    permit.credential_rejected().settle(&outcome);
    assert_eq!(pool.view()[1].consecutive_errors, 1);
}

#[test]
fn body_says_what_the_status_does_not() {
    let (clock, pool) = protected(&["revoked", "spent", "good"]);
    let respond = |name: &str| match name {
        "revoked" => (403, r#"{"message":"Invalid API key"}"#),
        "spent" => (429, r#"{"error":{"code":"insufficient_quota"}}"#),
        _ => (200, r#"{"error":null}"#),
    };
    let made = RefCell::new(Vec::new());
    let call = pool.call().method("POST").run(async |attempt, endpoint| {
        let (status, body) = respond(endpoint.name());
        let result = attempt.classify(attempt.status(status), body);
        let about = (
            result.verdict,
            result.is_credential_rejected,
            &*result.text == body,
        );
        made.borrow_mut().push(about);
        result
    });
    let called = drive(&clock, call).unwrap();
    assert_eq!((called.value, called.sent), (r#"{"error":null}"#, 3));
    let made = made.into_inner();
    assert_eq!(made[0], (Some(Verdict::Rejected), true, true));
    assert_eq!(made[1], (Some(Verdict::QuotaExhausted), false, true));
    assert_eq!(made[2], (Some(Verdict::Success), false, false));
    assert_eq!(pool.view()[1].disabled, Some(Disabled::QuotaExhausted));
}

#[test]
fn body_names_a_wait_unless_the_headers_do() {
    let attempt_of = |headers: &'static [(&'static str, &'static str)]| {
        let (clock, pool) = protected(&["a"]);
        let permit = drive(&clock, pool.acquire(tidegate::Ask::any())).unwrap();
        let attempt = permit.attempt(1);
        let headers = headers.iter().map(|(name, value)| (*name, *value));
        let outcome = attempt.response(429, headers);
        let result = attempt.classify(outcome, br#"{"retry_after_ms":1500}"#);
        permit.give_back();
        result.outcome.unwrap().hint.wait
    };
    assert_eq!(attempt_of(&[]), Some(Duration::from_millis(1500)));
    assert_eq!(
        attempt_of(&[("retry-after", "7")]),
        Some(Duration::from_secs(7))
    );
}
