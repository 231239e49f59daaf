//! Polling a job through its gate, in virtual time.

#![expect(
    clippy::unwrap_used,
    reason = "all of this is test code; clippy knows only functions marked as tests"
)]

use std::cell::{Cell, RefCell};
use std::future::{pending, ready};
use std::time::Duration;

use tidegate::poll::{
    JobStatus, PollError, PollFailure, PollOptions, PollResult, PollSettings, StatusResult,
};
use tidegate::{
    AttemptResult, Clock, Failure, Hint, Limiter, ManualClock, Outcome, Phase, Pool, Verdict,
};

mod drive;

use drive::{drive, gate};

const KEY: &str = "scans.example.com";

/// A server for tests: when it was asked, and what it responds.
struct Server {
    clock: Clock,
    asked_ms: RefCell<Vec<u64>>,
}

impl Server {
    fn new(manual: &ManualClock) -> Self {
        Self {
            clock: manual.clock(),
            asked_ms: RefCell::default(),
        }
    }

    fn now(&self) -> Duration {
        self.clock.now().since(tidegate::Timestamp::ZERO)
    }

    /// Notes a request, and returns its number, counted from 1.
    fn asked(&self) -> usize {
        let now = u64::try_from(self.now().as_millis()).unwrap();
        self.asked_ms.borrow_mut().push(now);
        self.asked_ms.borrow().len()
    }

    fn gaps_ms(&self) -> Vec<u64> {
        let asked = self.asked_ms.borrow();
        asked.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }
}

fn limiter(manual: &ManualClock) -> Limiter {
    Limiter::builder().clock(manual.clock()).build()
}

fn status(status: u16) -> Outcome {
    Outcome::status(status, Duration::from_millis(20))
}

fn directed(code: u16, seconds: u64) -> Outcome {
    status(code).with_hint(Hint {
        wait: Some(Duration::from_secs(seconds)),
        ..Hint::default()
    })
}

fn running(progress: f64) -> StatusResult<()> {
    let progress = Some(progress);
    StatusResult::new((), status(200), Some(JobStatus::Running { progress }))
}

fn done() -> StatusResult<()> {
    StatusResult::new((), status(200), Some(JobStatus::Done))
}

fn refused(outcome: Outcome) -> StatusResult<()> {
    StatusResult::new((), outcome, None)
}

/// Polls a server whose n-th response, counted from 1, is `respond(n)`.
fn poll(
    limiter: &Limiter,
    manual: &ManualClock,
    server: &Server,
    respond: impl Fn(usize) -> StatusResult<()>,
) -> Result<PollResult<()>, PollError<()>> {
    let polling = limiter.poll(KEY);
    drive(manual, polling.run(|_| ready(respond(server.asked()))))
}

fn failure(result: Result<PollResult<()>, PollError<()>>) -> PollFailure {
    result.unwrap_err().failure
}

/// A job of `length`, whose status may be asked `limit` times in every 45 s.
fn job_with_limit(length: Duration, limit: usize) -> (Duration, Vec<u64>, Vec<(u32, bool)>) {
    let manual = ManualClock::new();
    let (limiter, server) = (limiter(&manual), Server::new(&manual));
    let accepted = Cell::new(0);
    let respond = |_| {
        server.asked();
        let window = Duration::from_secs(45);
        if server.now() >= window && accepted.get() >= limit {
            accepted.set(0);
        }
        if accepted.get() >= limit {
            return ready(refused(status(429)));
        }
        accepted.set(accepted.get() + 1);
        let share = server.now().as_secs_f64() / length.as_secs_f64();
        ready(match share < 1.0 {
            true => running(100.0 * share),
            false => done(),
        })
    };
    let mut seen = Vec::new();
    let polling = limiter.poll(KEY).run_with(respond, |update, ()| {
        seen.push((update.consecutive_429, update.state.as_str() == "slowed"));
    });
    drive(&manual, polling).unwrap();
    (server.now(), server.asked_ms.into_inner(), seen)
}

#[test]
fn follows_a_normal_job_with_12_to_20_requests() {
    for seconds in 30..=46 {
        let (took, asked, seen) = job_with_limit(Duration::from_secs(seconds), usize::MAX);
        assert!((30..=60).contains(&took.as_secs()), "{took:?}");
        assert!((12..=20).contains(&asked.len()), "{asked:?}");
        assert!(seen.iter().all(|slowed| *slowed == (0, false)));
    }
}

#[test]
fn follows_a_limited_job_with_15_to_25_requests() {
    for seconds in 40..=60 {
        let (took, asked, seen) = job_with_limit(Duration::from_secs(seconds), 14);
        assert!((40..=90).contains(&took.as_secs()), "{took:?}");
        assert!((15..=25).contains(&asked.len()), "{asked:?}");
        let slowed: Vec<u32> = seen.iter().map(|(count, _)| *count).collect();
        assert!(slowed.contains(&1), "{slowed:?}");
        assert!(seen.iter().all(|(count, slowed)| *slowed == (*count > 0)));
        assert_eq!(seen.last(), Some(&(0, false)));
    }
}

#[test]
fn waits_2_4_8_15_seconds_after_429s_and_then_the_stages_interval() {
    let manual = ManualClock::new();
    let (limiter, server) = (limiter(&manual), Server::new(&manual));
    let polled = poll(&limiter, &manual, &server, |number| match number {
        1 => running(10.0),
        2 => running(40.0),
        3 => running(75.0),
        4..=8 => refused(status(429)),
        9 => running(80.0),
        _ => done(),
    });
    assert_eq!(polled.unwrap().sent, 10);
    assert_eq!(
        server.gaps_ms(),
        [3000, 2500, 2000, 2000, 4000, 8000, 15_000, 15_000, 2000]
    );
}

#[test]
fn waits_as_long_as_the_server_says_if_that_is_longer() {
    let manual = ManualClock::new();
    let (limiter, server) = (limiter(&manual), Server::new(&manual));
    poll(&limiter, &manual, &server, |number| match number {
        1 => refused(directed(429, 1)),
        2 => refused(directed(429, 9)),
        3 => refused(directed(503, 6)),
        _ => done(),
    })
    .unwrap();
    assert_eq!(server.gaps_ms(), [2000, 9000, 6000]);
}

#[test]
fn undirected_429s_change_neither_rate_breaker_nor_ladder() {
    for strategy in ["adaptive", "aimd"] {
        let manual = ManualClock::new();
        let limiter = Limiter::builder()
            .gate(gate(&[("strategy", strategy)]))
            .clock(manual.clock())
            .build();
        let pool = Pool::new("scans", &limiter);
        for name in ["a", "b"] {
            assert!(pool.add(name, KEY, ()));
        }
        let server = Server::new(&manual);
        let mut gates = Vec::new();
        let polling = limiter.poll("scans/a").run_with(
            |_| {
                ready(match server.asked() {
                    1 => running(10.0),
                    2..=12 => refused(status(429)),
                    _ => done(),
                })
            },
            |_, ()| {
                let gate = limiter.gate("scans/a").unwrap().gate;
                gates.push((gate.rate.to_bits(), gate.breaker, gate.window, gate.hold));
            },
        );
        drive(&manual, polling).unwrap();
        let after_429s = &gates[1..12];
        assert!(
            after_429s.iter().all(|gate| gate.0 == gates[0].0),
            "{gates:?}"
        );
        assert!(
            after_429s.iter().all(|gate| gate.1 == gates[0].1),
            "{gates:?}"
        );
        assert!(
            after_429s
                .iter()
                .all(|gate| gate.2.failed == 0 && gate.3.is_none())
        );
        let endpoint = &pool.view()[0];
        assert_eq!(
            (endpoint.consecutive_errors, endpoint.paused_until),
            (0, None)
        );
    }
}

#[test]
fn a_directed_429_holds_the_gate_for_everyone() {
    let manual = ManualClock::new();
    let (limiter, server) = (limiter(&manual), Server::new(&manual));
    let polling = limiter.poll(KEY).run_with(
        |_| {
            ready(match server.asked() {
                1 => refused(directed(429, 20)),
                _ => done(),
            })
        },
        |update, ()| {
            let is_held = limiter.gate(KEY).unwrap().gate.hold.is_some();
            assert_eq!(is_held, update.number == 1);
        },
    );
    drive(&manual, polling).unwrap();
    assert_eq!(server.gaps_ms(), [20_000]);
}

#[test]
fn gives_up_more_than_300_seconds_after_the_last_success() {
    let manual = ManualClock::new();
    let (limiter, server) = (limiter(&manual), Server::new(&manual));
    let polled = poll(&limiter, &manual, &server, |number| match number {
        1 => running(40.0),
        _ => refused(status(429)),
    });
    let error = polled.unwrap_err();
    assert_eq!(error.failure, PollFailure::GaveUp);
    // 2.5, then 2, 4 and 8 s, then 15 s each: the first that is later than 300 s.
    let asked = server.asked_ms.into_inner();
    assert_eq!(asked.last(), Some(&301_500));
    assert_eq!(
        error.to_string(),
        "gave up: no success for too long, after 24 requests"
    );
}

#[test]
fn gives_up_at_once_if_the_server_names_a_longer_wait() {
    let manual = ManualClock::new();
    let (limiter, server) = (limiter(&manual), Server::new(&manual));
    let polled = poll(&limiter, &manual, &server, |_| refused(directed(429, 301)));
    assert_eq!(failure(polled), PollFailure::GaveUp);
    assert_eq!(server.now(), Duration::ZERO);
}

#[test]
fn ends_with_the_job_with_404_and_after_three_retries_of_other_errors() {
    let ends = |respond: &dyn Fn(usize) -> StatusResult<()>| {
        let manual = ManualClock::new();
        let (limiter, server) = (limiter(&manual), Server::new(&manual));
        let failure = failure(poll(&limiter, &manual, &server, respond));
        (failure, server.gaps_ms())
    };
    let failed = |code| StatusResult::new((), status(code), Some(JobStatus::Failed));
    assert_eq!(ends(&|_| failed(200)), (PollFailure::Job, vec![]));
    assert_eq!(ends(&|_| failed(429)), (PollFailure::Job, vec![]));
    assert_eq!(
        ends(&|_| refused(status(404))),
        (PollFailure::NotFound, vec![])
    );
    let errors = (PollFailure::Errors, vec![1000, 2000, 4000]);
    assert_eq!(ends(&|_| refused(status(500))), errors);
    let unreachable = || Outcome::failure(Failure::Connect, Phase::Connecting, Duration::ZERO);
    assert_eq!(ends(&|_| refused(unreachable())), errors);
}

#[test]
fn ends_as_breaker_open_if_the_breaker_refuses_for_too_long() {
    let manual = ManualClock::new();
    let limiter = Limiter::builder()
        .gate(gate(&[("open_first", "400s"), ("open_for", "400s")]))
        .clock(manual.clock())
        .build();
    let server = Server::new(&manual);
    let settings = settings(&[("other_retries", "1000")]);
    let polling = limiter.poll(KEY).settings(settings);
    let polled = drive(
        &manual,
        polling.run(|_| {
            server.asked();
            ready(refused(status(500)))
        }),
    );
    assert_eq!(failure(polled), PollFailure::BreakerOpen);
    assert_eq!(server.gaps_ms(), [1000, 2000, 4000, 5000]);
}

#[test]
fn waits_for_a_gate_that_is_held_until_it_would_give_up() {
    let manual = ManualClock::new();
    let (limiter, server) = (limiter(&manual), Server::new(&manual));
    // Another caller was told to wait for longer than the gate's `max_wait`.
    let hold = |seconds| {
        let permit = drive(&manual, limiter.acquire(KEY)).unwrap();
        permit.settle(&directed(429, seconds));
    };
    hold(100);
    assert!(poll(&limiter, &manual, &server, |_| done()).is_ok());
    assert_eq!(server.asked_ms.borrow().as_slice(), [100_000]);
    hold(301);
    let before = server.now();
    let polled = poll(&limiter, &manual, &server, |_| done());
    assert_eq!(failure(polled), PollFailure::GaveUp);
    assert_eq!(server.now(), before);
}

#[test]
fn ends_as_soon_as_the_next_request_would_come_after_the_deadline() {
    let manual = ManualClock::new();
    let (limiter, server) = (limiter(&manual), Server::new(&manual));
    let polling = limiter.poll(KEY).within(Duration::from_secs(10));
    let polled = drive(
        &manual,
        polling.run(|_| {
            server.asked();
            ready(running(10.0))
        }),
    );
    assert_eq!(failure(polled), PollFailure::Deadline);
    assert_eq!(server.asked_ms.borrow().as_slice(), [0, 3000, 6000, 9000]);
    assert_eq!(server.now(), Duration::from_secs(9));
}

#[test]
fn abandons_a_request_that_is_under_way_at_the_deadline() {
    let manual = ManualClock::new();
    let limiter = limiter(&manual);
    let polling = limiter.poll(KEY).within(Duration::from_secs(10));
    let polled = drive(&manual, polling.run(|_| pending()));
    assert_eq!(failure(polled), PollFailure::Deadline);
    assert_eq!(limiter.gate(KEY).unwrap().gate.in_flight, 0);
    assert_eq!(Server::new(&manual).now(), Duration::from_secs(10));
}

#[test]
fn stops_when_the_function_says_so_or_the_quota_is_used_up() {
    let ends = |attempt: fn() -> AttemptResult<()>| {
        let manual = ManualClock::new();
        let (limiter, server) = (limiter(&manual), Server::new(&manual));
        let error = poll(&limiter, &manual, &server, |_| {
            StatusResult::of(attempt(), None)
        })
        .unwrap_err();
        (error.failure, error.sent)
    };
    let last = || AttemptResult::new((), status(200)).last();
    assert_eq!(ends(last), (PollFailure::Stopped, 1));
    assert_eq!(
        ends(|| AttemptResult::unsent(())),
        (PollFailure::Stopped, 0)
    );
    let exhausted = || AttemptResult::classified((), status(429), Some(Verdict::QuotaExhausted));
    assert_eq!(ends(exhausted), (PollFailure::QuotaExhausted, 1));
}

fn settings(set: &[(&str, &str)]) -> PollSettings {
    let mut options = PollOptions::default();
    for (name, value) in set {
        options.set(name, value).unwrap();
    }
    options.build().unwrap()
}
