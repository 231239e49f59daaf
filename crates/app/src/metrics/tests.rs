//! What is counted and how it is shown.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use policy::hint::{Hint, Source};
use policy::ladder::Disabled;
use policy::outcome::{Failure, Outcome, Phase, Verdict};
use policy::time::Timestamp;
use prometheus_client::metrics::MetricType;
use tidegate::pool::EndpointView;
use tidegate::{AttemptResult, Credential, GateOptions, Limiter, ManualClock, Pool};

use super::family::Family;
use store::jobs::JobTotals;
use store::operations::OperationCounts;

use super::*;
use crate::log::Log;
use crate::observe::{Observers, SpanQueue};

mod parser;

use parser::Parsed;

fn limiter() -> (ManualClock, Limiter) {
    let clock = ManualClock::new();
    let options = GateOptions {
        initial_rate: Some(1000.0),
        ..GateOptions::default()
    };
    let builder = Limiter::builder().clock(clock.clock()).seed(1);
    let limiter = builder.gate(options.build().unwrap()).build();
    (clock, limiter)
}

/// Polls until it is done, advancing the clock whenever it waits.
fn drive<T>(clock: &ManualClock, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..100_000 {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        clock.advance(Duration::from_millis(100));
    }
    panic!("never done")
}

fn metrics(limiter: &Limiter) -> Metrics {
    let metrics = Metrics::new();
    metrics.register(GateCollector::new(limiter.clone()));
    metrics
}

fn read(metrics: &Metrics) -> Parsed {
    Parsed::of(&metrics.render())
}

fn after(seconds: u64) -> Hint {
    Hint {
        wait: Some(Duration::from_secs(seconds)),
        source: Some(Source::RetryAfter),
        ..Hint::default()
    }
}

/// Makes a call that gets these answers, and counts it.
fn call(metrics: &Metrics, clock: &ManualClock, limiter: &Limiter, answers: &[Outcome]) {
    let mut answers = answers.iter().cloned();
    let credential = Credential::new("c", 0_u32, async || Ok::<_, &str>(1));
    let called = limiter.call("api").credential(&credential).run(|_| {
        let answer = answers.next().unwrap();
        std::future::ready(AttemptResult::new((), answer))
    });
    match drive(clock, called) {
        Ok(called) => metrics.call(&called.trail, called.sent, true),
        Err(error) => metrics.call(&error.trail, error.sent, false),
    }
}

fn status(status: u16) -> Outcome {
    Outcome::status(status, Duration::from_millis(20))
}

#[test]
fn renders_exactly_the_listed_families() {
    let (clock, limiter) = limiter();
    let metrics = metrics(&limiter);
    metrics.route("llm").request(RequestOutcome::Success);
    metrics
        .key("api")
        .attempt(Some(Verdict::Success), Duration::ZERO);
    // A directed answer holds the gate, so the next one has to wait there.
    let permit = limiter.try_acquire("api").unwrap();
    permit.settle(&status(429).with_hint(after(3)));
    call(&metrics, &clock, &limiter, &[status(200)]);
    let pool: Pool<()> = Pool::new("llm", &limiter);
    pool.add("a", "a.example.com", ());
    metrics.register(LogCollector::new(Log::silent()));
    metrics.register(ReplayCollector::new(|| 0));
    let observers = Observers::new(clock.clock(), Log::silent());
    observers.export_spans(Arc::new(SpanQueue::new(1.0)));
    metrics.register(ObserverCollector::new(Arc::new(observers)));
    metrics.register(StateCollector::new(move || StateView {
        pools: vec![("llm".to_owned(), pool.view())],
        operations: OperationCounts::default(),
        jobs: JobTotals::default(),
        is_store_degraded: true,
        fleet_silence: Some(Duration::from_millis(1500)),
    }));
    let text = metrics.render();
    assert_eq!(text, metrics.render(), "the same state, the same bytes");
    let read = Parsed::of(&text);
    let expected: Vec<(String, String)> = family::ALL
        .iter()
        .map(|family| (family.name.to_owned(), family.kind.as_str().to_owned()))
        .collect();
    assert_eq!(read.families, expected);
    assert_eq!(read.value("tidegate_store_degraded", &[]), Some(1.0));
}

#[test]
fn family_names_end_in_unit_or_total() {
    for family in family::ALL {
        assert!(family.name.starts_with("tidegate_"), "{}", family.name);
        let is_total = family.name.ends_with("_total");
        let is_counter = matches!(family.kind, MetricType::Counter);
        assert_eq!(is_total, is_counter, "{}", family.name);
        let is_seconds = family.name.ends_with("_seconds");
        assert!(
            is_seconds || !matches!(family.kind, MetricType::Histogram),
            "{}",
            family.name
        );
        assert!(!family.help.ends_with('.') && !family.help.contains(['\n', '\\']));
        assert!(!family.help.contains('|') && !family.more.contains('|'));
    }
    let names: BTreeSet<&str> = family::ALL.iter().map(|family| family.name).collect();
    assert_eq!(names.len(), family::ALL.len());
}

#[test]
fn reference_page_lists_exactly_the_families() {
    let page = reference();
    let rows = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `tidegate_"));
    let listed: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    let families = family::ALL
        .iter()
        .map(|family| &family.name["tidegate_".len()..]);
    assert_eq!(listed, families.collect::<Vec<_>>());
    // Whatever else it speaks of is there as well, with the endings that histograms have.
    for word in page.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) {
        let is_known = |family: &&Family| {
            let ending = word.strip_prefix(family.name);
            ending.is_some_and(|ending| ["", "_sum", "_count", "_bucket"].contains(&ending))
        };
        let is_metric = word.starts_with("tidegate_");
        assert!(!is_metric || family::ALL.iter().any(is_known), "{word}");
    }
}

#[test]
fn counts_requests_by_route_and_outcome() {
    let (_, limiter) = limiter();
    let metrics = metrics(&limiter);
    let (one, same) = (metrics.route("llm"), metrics.route("llm"));
    one.request(RequestOutcome::Success);
    same.request(RequestOutcome::Success);
    one.request(RequestOutcome::QueueFull);
    metrics
        .route(Metrics::NO_ROUTE)
        .request(RequestOutcome::NoRoute);
    let read = read(&metrics);
    let name = "tidegate_requests_total";
    let value = |route, outcome| read.value(name, &[("route", route), ("outcome", outcome)]);
    assert_eq!(value("llm", "success"), Some(2.0));
    assert_eq!(value("llm", "queue_full"), Some(1.0));
    assert_eq!(value("llm", "deadline"), None);
    assert_eq!(value("_none", "no_route"), Some(1.0));
    assert_eq!(value("_none", "success"), Some(0.0));
}

#[test]
fn routes_and_keys_beyond_the_bound_share_one_count() {
    let (_, limiter) = limiter();
    let metrics = metrics(&limiter);
    for number in 0..Metrics::MAX_ROUTES + 2 {
        metrics
            .route(&number.to_string())
            .request(RequestOutcome::Success);
    }
    let mut held = Vec::new();
    for number in 0..Metrics::MAX_KEYS + 2 {
        let key = metrics.key(&number.to_string());
        key.attempt(Some(Verdict::Success), Duration::ZERO);
        held.push(key);
    }
    assert!(Arc::ptr_eq(&held[Metrics::MAX_KEYS], &metrics.key("new")));
    let read = read(&metrics);
    let routes = read.labels("tidegate_requests_total", "route");
    assert_eq!(routes.len(), Metrics::MAX_ROUTES + 1);
    let other = [("route", "_other"), ("outcome", "success")];
    assert_eq!(read.value("tidegate_requests_total", &other), Some(2.0));
    let attempts = (Metrics::MAX_KEYS + 2) as f64;
    assert_same(read.sum("tidegate_attempts_total"), attempts);
    assert_same(read.sum("tidegate_gate_latency_seconds_count"), attempts);
}

fn assert_same(one: f64, other: f64) {
    assert!((one - other).abs() < 1e-9, "{one} {other}");
}

#[test]
fn unused_keys_make_room_for_new_ones() {
    let (_, limiter) = limiter();
    let metrics = metrics(&limiter);
    let kept = metrics.key("kept");
    for number in 0..Metrics::MAX_KEYS {
        let key = metrics.key(&number.to_string());
        key.attempt(Some(Verdict::Success), Duration::ZERO);
    }
    let total = Metrics::MAX_KEYS as f64;
    assert_same(read(&metrics).sum("tidegate_attempts_total"), total);
    let new = metrics.key("new");
    new.attempt(None, Duration::ZERO);
    assert!(Arc::ptr_eq(&new, &metrics.key("new")));
    assert!(Arc::ptr_eq(&kept, &metrics.key("kept")));
    assert_same(read(&metrics).sum("tidegate_attempts_total"), total + 1.0);
}

#[test]
fn shows_the_top_100_keys_and_counts_never_go_back() {
    let (_, limiter) = limiter();
    let metrics = metrics(&limiter);
    let count = |key: &str, times: usize| {
        let key = metrics.key(key);
        for _ in 0..times {
            key.attempt(Some(Verdict::Success), Duration::from_millis(7));
        }
    };
    for number in 0..150 {
        count(&format!("key-{number:03}"), 150 - number);
    }
    let name = "tidegate_attempts_total";
    let first = read(&metrics);
    let keys = first.labels(name, "key");
    assert_eq!(keys.len(), Metrics::MAX_SHOWN + 1);
    assert_eq!(
        (keys[0], keys[99], keys[100]),
        ("key-000", "key-099", "_other")
    );
    let value = |read: &Parsed, key| read.value(name, &[("key", key), ("verdict", "success")]);
    assert_eq!(value(&first, "_other"), Some((50 * 51 / 2) as f64));

    // What was counted in `_other` stays there; the key has its own samples from the next scrape on.
    count("key-149", 1000);
    let second = read(&metrics);
    let other = value(&first, "_other").unwrap() + 1000.0;
    assert_eq!(value(&second, "_other"), Some(other));
    assert_eq!(value(&second, "key-149"), Some(0.0));
    assert_eq!(value(&second, "key-099"), None);

    // A key that is no longer shown counts in `_other`, and continues where it was when it is again.
    count("key-149", 3);
    count("key-099", 2000);
    let third = read(&metrics);
    assert_eq!(value(&third, "key-149"), Some(3.0));
    assert_eq!(value(&third, "_other"), Some(other + 2000.0));
    assert_eq!(value(&third, "key-099"), value(&first, "key-099"));
}

#[test]
fn shows_the_top_100_gates_and_sums_the_rest() {
    let (_, limiter) = limiter();
    let mut permits = Vec::new();
    for number in 0..130 {
        let key = format!("key-{number:03}");
        permits.push(limiter.try_acquire(&*key).unwrap());
    }
    let read = read(&metrics(&limiter));
    assert_eq!(read.value("tidegate_gates", &[]), Some(130.0));
    let keys = read.labels("tidegate_gate_in_flight", "key");
    assert_eq!(keys.len(), 101);
    assert!(keys[..100].is_sorted());
    let other = [("key", "_other")];
    assert_eq!(read.value("tidegate_gate_in_flight", &other), Some(30.0));
    assert_eq!(read.value("tidegate_gate_waiting", &other), Some(0.0));
    assert_eq!(read.value("tidegate_gate_rate", &other), None);
}

#[test]
fn shows_breaker_hold_and_rate_of_a_gate() {
    let (_, limiter) = limiter();
    let permit = limiter.try_acquire("held").unwrap();
    permit.settle(&status(429).with_hint(after(20)));
    limiter.isolate("shut").unwrap();
    let read = read(&metrics(&limiter));
    let value = |name: &str, key: &str| read.value(name, &[("key", key)]);
    assert_eq!(value("tidegate_hold_seconds", "held"), Some(20.0));
    assert_eq!(value("tidegate_hold_seconds", "shut"), Some(0.0));
    assert_eq!(value("tidegate_gate_rate", "shut"), Some(1000.0));
    assert_eq!(value("tidegate_gate_error_rate", "held"), Some(0.0));
    let state = |key, state| {
        let labels = [("key", key), ("state", state)];
        read.value("tidegate_breaker_state", &labels)
    };
    assert_eq!(state("held", "closed"), Some(1.0));
    assert_eq!(state("held", "isolated"), Some(0.0));
    assert_eq!(state("shut", "isolated"), Some(1.0));
    assert_eq!(state("shut", "open"), Some(0.0));
    assert_eq!(state("shut", "half_open"), Some(0.0));
}

#[test]
fn shows_enabled_and_paused_endpoints() {
    let view = |name: &str, disabled, paused_until| {
        let mut view = EndpointView::default();
        name.clone_into(&mut view.name);
        (view.disabled, view.paused_until) = (disabled, paused_until);
        view
    };
    let endpoints = vec![
        view("a", None, None),
        view("b", None, Some(Timestamp::MAX)),
        view("c", Some(Disabled::Person), None),
    ];
    let metrics = Metrics::new();
    metrics.register(StateCollector::new(move || StateView {
        pools: vec![("llm".to_owned(), endpoints.clone())],
        operations: OperationCounts::default(),
        jobs: JobTotals::default(),
        is_store_degraded: false,
        fleet_silence: Some(Duration::from_millis(1500)),
    }));
    let read = read(&metrics);
    let value = |name: &str, endpoint| read.value(name, &[("pool", "llm"), ("endpoint", endpoint)]);
    let both = |endpoint| {
        let enabled = value("tidegate_endpoint_enabled", endpoint);
        enabled.zip(value("tidegate_endpoint_paused", endpoint))
    };
    assert_eq!(both("a"), Some((1.0, 0.0)));
    assert_eq!(both("b"), Some((1.0, 1.0)));
    assert_eq!(both("c"), Some((0.0, 0.0)));
}

#[test]
fn escapes_labels() {
    let (_, limiter) = limiter();
    let metrics = metrics(&limiter);
    let odd = "a\"b\\c\nd{e=\"f\"} é";
    metrics.route(odd).request(RequestOutcome::Success);
    metrics
        .key(odd)
        .attempt(Some(Verdict::Throttled), Duration::ZERO);
    let read = read(&metrics);
    assert_eq!(read.labels("tidegate_requests_total", "route"), [odd]);
    let labels = [("key", odd), ("verdict", "throttled")];
    assert_eq!(read.value("tidegate_attempts_total", &labels), Some(1.0));
}

#[test]
fn counts_attempts_by_verdict() {
    let (_, limiter) = limiter();
    let metrics = metrics(&limiter);
    let key = metrics.key("k");
    for (verdict, times) in Verdict::ALL.iter().copied().zip(1..) {
        for _ in 0..times {
            key.attempt(Some(verdict), Duration::from_millis(30));
        }
    }
    key.attempt(None, Duration::from_secs(7200));
    let read = read(&metrics);
    let attempts = |word| {
        let labels = [("key", "k"), ("verdict", word)];
        read.value("tidegate_attempts_total", &labels)
    };
    for (verdict, times) in Verdict::ALL.iter().copied().zip(1..) {
        assert_eq!(attempts(verdict.as_str()), Some(f64::from(times)));
    }
    assert_eq!(attempts("none"), Some(1.0));
    let bucket = |le| {
        let labels = [("key", "k"), ("le", le)];
        read.value("tidegate_gate_latency_seconds_bucket", &labels)
    };
    assert_eq!(bucket("0.025"), Some(0.0));
    assert_eq!(bucket("0.05"), Some(36.0));
    assert_eq!(bucket("3600.0"), Some(36.0));
    assert_eq!(bucket("+Inf"), Some(37.0));
    let value = |ending: &str| {
        let name = format!("tidegate_gate_latency_seconds{ending}");
        read.value(&name, &[("key", "k")]).unwrap()
    };
    assert_same(value("_sum"), 36.0 * 0.03 + 7200.0);
    assert_same(value("_count"), 37.0);
}

#[test]
fn successful_first_attempt_counts_no_waits_or_retries() {
    let (clock, limiter) = limiter();
    let metrics = metrics(&limiter);
    call(&metrics, &clock, &limiter, &[status(200)]);
    let read = read(&metrics);
    for name in [
        "tidegate_retries_total",
        "tidegate_retry_success_total",
        "tidegate_retries_exhausted_total",
        "tidegate_backoff_delay_seconds_count",
        "tidegate_retry_after_honored_total",
        "tidegate_wait_seconds_count",
    ] {
        assert_same(read.sum(name), 0.0);
    }
}

#[test]
fn counts_retries_delays_and_honored_hints_of_a_call() {
    let (clock, limiter) = limiter();
    let metrics = metrics(&limiter);
    let failure = Outcome::failure(Failure::Connect, Phase::Connecting, Duration::ZERO);
    let answers = [
        status(500),
        failure,
        status(429).with_hint(after(3)),
        // A new credential is used at once: a retry without a delay.
        status(401),
        status(200),
    ];
    call(&metrics, &clock, &limiter, &answers);
    let read = read(&metrics);
    let attempt = |name: &str, number| read.value(name, &[("attempt", number)]);
    for number in ["1", "2", "3", "4"] {
        assert_eq!(attempt("tidegate_retries_total", number), Some(1.0));
    }
    assert_eq!(attempt("tidegate_retries_total", "5"), Some(0.0));
    assert_eq!(attempt("tidegate_retry_success_total", "4"), Some(1.0));
    assert_same(read.sum("tidegate_retry_success_total"), 1.0);
    assert_same(read.sum("tidegate_backoff_delay_seconds_count"), 3.0);
    assert_same(read.sum("tidegate_retry_after_honored_total"), 1.0);
    assert_same(read.sum("tidegate_retry_after_seconds_count"), 1.0);
    let asked = read.sum("tidegate_retry_after_seconds_sum");
    assert!((3.0..=8.0).contains(&asked), "{asked}");
    assert!(read.sum("tidegate_backoff_delay_seconds_sum") > asked);
    assert_same(read.sum("tidegate_retries_exhausted_total"), 0.0);
}

#[test]
fn counts_an_exhausted_call_once() {
    let (clock, limiter) = limiter();
    let metrics = metrics(&limiter);
    // The breaker opens meanwhile, and what it keeps waiting is a wait and not a backoff.
    let answers = vec![status(500); 5];
    call(&metrics, &clock, &limiter, &answers);
    let read = read(&metrics);
    assert_same(read.sum("tidegate_retries_exhausted_total"), 1.0);
    assert_same(read.sum("tidegate_retries_total"), 4.0);
    assert_same(read.sum("tidegate_retry_success_total"), 0.0);
    assert_same(read.sum("tidegate_backoff_delay_seconds_count"), 4.0);
}

#[test]
fn counts_waits_by_reason() {
    let (clock, limiter) = limiter();
    let metrics = metrics(&limiter);
    let permit = limiter.try_acquire("api").unwrap();
    permit.settle(&status(429).with_hint(after(5)));
    call(&metrics, &clock, &limiter, &[status(200)]);
    let read = read(&metrics);
    assert_eq!(
        read.labels("tidegate_wait_seconds_count", "reason"),
        ["hold"]
    );
    let hold = [("reason", "hold")];
    assert_eq!(read.value("tidegate_wait_seconds_count", &hold), Some(1.0));
    let waited = read.value("tidegate_wait_seconds_sum", &hold).unwrap();
    assert!((5.0..5.2).contains(&waited), "{waited}");
}

#[test]
fn bounds_the_attempt_label() {
    let (_, limiter) = limiter();
    let metrics = metrics(&limiter);
    let trail = Trail::default();
    metrics.call(&trail, 0, false);
    metrics.call(&trail, 11, true);
    metrics.call(&trail, 14, true);
    metrics.call(&trail, u32::MAX, false);
    let read = read(&metrics);
    let words = read.labels("tidegate_retries_total", "attempt");
    let expected = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "more"];
    assert_eq!(words, expected);
    let attempt = |name: &str, number| read.value(name, &[("attempt", number)]).unwrap();
    assert_same(attempt("tidegate_retries_total", "1"), 3.0);
    assert_same(attempt("tidegate_retries_total", "10"), 3.0);
    let more = 3.0 + f64::from(u32::MAX - 1 - 10);
    assert_same(attempt("tidegate_retries_total", "more"), more);
    assert_same(attempt("tidegate_retry_success_total", "10"), 1.0);
    assert_same(attempt("tidegate_retry_success_total", "more"), 1.0);
}

#[test]
fn counts_of_several_threads_add_up_during_scrapes() {
    const TIMES: usize = 20_000;
    let (_, limiter) = limiter();
    let metrics = metrics(&limiter);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let (route, key) = (metrics.route("llm"), metrics.key("api"));
                for _ in 0..TIMES {
                    route.request(RequestOutcome::Success);
                    key.attempt(Some(Verdict::Success), Duration::from_millis(1));
                }
            });
        }
        let mut before = 0.0;
        for _ in 0..20 {
            let seen = read(&metrics).sum("tidegate_attempts_total");
            assert!(seen >= before, "a count never goes back");
            before = seen;
        }
    });
    let read = read(&metrics);
    let all = (2 * TIMES) as f64;
    assert_same(read.sum("tidegate_requests_total"), all);
    assert_same(read.sum("tidegate_attempts_total"), all);
    assert_same(read.sum("tidegate_gate_latency_seconds_count"), all);
    assert_same(read.sum("tidegate_gate_latency_seconds_sum"), all / 1000.0);
}

#[test]
fn a_bound_belongs_to_its_bucket() {
    let metrics = Metrics::new();
    let key = metrics.key("k");
    let year = 366 * 86_400 * 1_000_000_000;
    for nanos in [0, 5_000_000, 5_000_001, 3_600_000_000_001, u64::MAX] {
        key.attempt(None, Duration::from_nanos(nanos));
    }
    let read = read(&metrics);
    let value = |ending: &str, labels: &[(&str, &str)]| {
        let name = format!("tidegate_gate_latency_seconds_{ending}");
        read.value(&name, labels).unwrap()
    };
    let bucket = |le| value("bucket", &[("key", "k"), ("le", le)]);
    for (le, count) in [
        ("0.005", 2.0),
        ("0.01", 3.0),
        ("3600.0", 3.0),
        ("+Inf", 5.0),
    ] {
        assert_same(bucket(le), count);
    }
    let nanos = 5_000_000 + 5_000_001 + 3_600_000_000_001_u64 + year;
    assert_same(
        value("sum", &[("key", "k")]),
        Duration::from_nanos(nanos).as_secs_f64(),
    );
}
