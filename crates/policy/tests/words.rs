//! The names used in logs, replay, settings and the API. They are stable: a change here breaks
//! users' scripts.

use tidegate_policy::breaker::BreakerState;
use tidegate_policy::gate::Reason;
use tidegate_policy::item::{DelaySource, TerminalReason};
use tidegate_policy::operation::OperationState;
use tidegate_policy::outcome::Verdict;
use tidegate_policy::pool::Balance;
use tidegate_policy::preset::Preset;
use tidegate_policy::rate::{Strategy, Why};
use tidegate_policy::rules::Class;
use tidegate_policy::{failure_queue, poll};

fn check<T: Copy>(all: &[T], word: impl Fn(T) -> &'static str, expected: &str) {
    let words: Vec<&str> = all.iter().map(|each| word(*each)).collect();
    assert_eq!(words.join(" "), expected);
}

#[test]
fn verdicts() {
    check(
        Verdict::ALL,
        Verdict::as_str,
        "success throttled overloaded unreachable quota_exhausted unauthorized conflict rejected",
    );
}

#[test]
fn reasons_to_wait_or_refuse() {
    use Reason::{BreakerOpen, Deadline, Hold, InFlight, QueueFull, Rate, TooManyGates};
    let all = [
        Rate,
        Hold,
        BreakerOpen,
        InFlight,
        QueueFull,
        Deadline,
        TooManyGates,
    ];
    check(
        &all,
        Reason::as_str,
        "rate hold breaker_open in_flight queue_full deadline too_many_gates",
    );
}

#[test]
fn terminal_reasons() {
    check(
        TerminalReason::ALL,
        TerminalReason::as_str,
        "exhausted rejected auth_failed conflict quota_exhausted expired cancelled disabled gave_up \
         breaker_open unusable",
    );
}

#[test]
fn states() {
    use BreakerState::{Closed, HalfOpen, Isolated, Open};
    check(
        &[Closed, Open, HalfOpen, Isolated],
        BreakerState::as_str,
        "closed open half_open isolated",
    );
    let failed = OperationState::Failed(TerminalReason::Exhausted);
    let operations = [
        OperationState::Available,
        OperationState::Running,
        OperationState::Completed,
        OperationState::Retryable,
        failed,
        OperationState::Conflict,
        OperationState::Cancelled,
    ];
    check(
        &operations,
        OperationState::as_str,
        "available running completed retryable failed conflict cancelled",
    );
    use poll::PollState::{Done, Failed, GaveUp, NotFound, Polling, Slowed};
    check(
        &[Polling, Slowed, Done, Failed, GaveUp, NotFound],
        poll::PollState::as_str,
        "polling slowed done failed gave_up not_found",
    );
}

#[test]
fn settings() {
    use Strategy::{Adaptive, Aimd, Fixed};
    check(
        &[Adaptive, Aimd, Fixed],
        Strategy::as_str,
        "adaptive aimd fixed",
    );
    use Balance::{First, LeastLoaded, RoundRobin};
    check(
        &[LeastLoaded, RoundRobin, First],
        Balance::as_str,
        "least_loaded round_robin first",
    );
    use failure_queue::Growth::{Double, Linear};
    check(
        &[Linear, Double],
        failure_queue::Growth::as_str,
        "linear double",
    );
    check(
        Preset::ALL,
        Preset::as_str,
        "standard aggressive conservative background crawl",
    );
}

#[test]
fn classes_and_sources() {
    use Class::{BotCheck, Retryable, Success, Terminal};
    check(
        &[Success, Retryable, Terminal, BotCheck],
        Class::as_str,
        "success retryable terminal bot_check",
    );
    use DelaySource::{Backoff, Failover, Gate, Refresh, RetryAfter};
    check(
        &[Backoff, RetryAfter, Refresh, Gate, Failover],
        DelaySource::as_str,
        "backoff retry_after refresh gate failover",
    );
}

/// Sentences are not empty and differ from each other.
#[test]
fn sentences_differ() {
    let rates = [
        Why::Initial,
        Why::FastAnswers,
        Why::SlowAnswers,
        Why::Throttled,
        Why::Directed,
        Why::Banned,
        Why::Failed,
        Why::Recovered,
        Why::Restored,
        Why::Settings,
    ];
    let polls = [
        poll::PollReason::NoData,
        poll::PollReason::Early,
        poll::PollReason::Middle,
        poll::PollReason::Late,
        poll::PollReason::Throttled,
        poll::PollReason::Directed,
        poll::PollReason::Retry,
        poll::PollReason::Job,
        poll::PollReason::NotFound,
        poll::PollReason::Errors,
        poll::PollReason::NoSuccess,
        poll::PollReason::WaitTooLong,
        poll::PollReason::Ended,
    ];
    let mut sentences: Vec<String> = rates.iter().map(ToString::to_string).collect();
    sentences.extend(polls.iter().map(ToString::to_string));
    let count = sentences.len();
    sentences.sort();
    sentences.dedup();
    assert_eq!(sentences.len(), count);
    assert!(sentences.iter().all(|sentence| sentence.len() > 8));
}
