//! A whole round in virtual time, from events to texts.

use std::fmt::Write;

use policy::item::TerminalReason;
use policy::operation::OperationState;

use super::facts::StatusChecks;
use super::*;

fn at(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn operation(id: &str, state: OperationState, sent: u32, since: u32) -> OperationFacts {
    OperationFacts {
        id: id.to_owned(),
        state,
        sent,
        since: at(f64::from(since)),
    }
}

/// What happens in the demo, with its time.
fn happen(facts: &mut Facts, second: u32) {
    let now = at(f64::from(second));
    let rejected = OperationState::Failed(TerminalReason::Rejected);
    let check = |facts: &mut Facts, is_refused, wait| {
        let checks = &mut facts.job_mut().unwrap().checks;
        checks.count(is_refused, Some(Duration::from_secs(wait)), now);
    };
    match second {
        1 => {
            let job = JobFacts {
                id: "job_1".to_owned(),
                started_at: now,
                ..JobFacts::default()
            };
            facts.job = Some(Ok(job));
            check(facts, false, 3);
        }
        4 => facts.learned_at = Some(now),
        9 => {
            facts.orders = vec![
                operation("op_1", OperationState::Available, 0, second),
                operation("op_2", rejected, 1, second),
            ];
        }
        10 => facts.orders[0] = operation("op_1", OperationState::Retryable, 1, second),
        13 => {
            facts.orders[0] = operation("op_1", OperationState::Completed, 2, second);
            facts.hold(now, at(20.01));
            facts.hold(now, at(20.04));
        }
        15 => facts.hold.as_mut().unwrap().waiting = 31,
        18 => facts.profile = Some(operation("op_3", OperationState::Conflict, 1, second)),
        24 => facts.breaker_opened(now),
        33 => {
            facts.breaker_closed(now);
            facts.endpoint_paused(now, at(35.0), 1);
        }
        35 => facts.endpoint_paused(now, at(39.0), 2),
        36 => check(facts, true, 2),
        38 => check(facts, true, 4),
        39 => facts.endpoint_disabled(now, 3),
        42 => check(facts, true, 8),
        44 => {
            facts.endpoint.is_enabled_by_script = true;
            facts.endpoint_enabled(now);
        }
        50 => check(facts, false, 3),
        _ => {}
    }
}

/// The tour at every second of a round in which everything happens.
fn whole_round() -> Vec<DemoTour> {
    let mut facts = Facts::default();
    let seconds = 0..90;
    let tours = seconds.map(|second| {
        happen(&mut facts, second);
        tour(&facts, at(f64::from(second)))
    });
    tours.collect()
}

#[test]
fn shows_the_steps_in_order_and_all_are_done_within_a_minute() {
    let mut shown = String::new();
    let mut last = String::new();
    for (second, tour) in whole_round().iter().enumerate() {
        if tour.title != last {
            writeln!(
                shown,
                "{second:>2}s {}/{} {}",
                tour.step, tour.of, tour.title
            )
            .unwrap();
            last.clone_from(&tour.title);
        }
    }
    insta::assert_snapshot!(shown, @"
     0s 1/8 A job starts
     5s 2/8 A limit is learned
     9s 3/8 Operations are delivered in spite of errors
    14s 4/8 A Retry-After is obeyed
    18s 5/8 A conflict waits for a decision
    24s 6/8 An outage is survived
    34s 7/8 An endpoint is paused, disabled, enabled
    47s 8/8 Status checks slow down and recover
    60s 8/8 Now try it yourself
    ");
    let end = &whole_round()[60];
    assert!(
        end.steps
            .iter()
            .all(|step| step.state == DemoStepState::Done)
    );
    assert_eq!(
        (end.elapsed_ms, end.total_ms, end.next_round_ms),
        (60_000, 60_000, 90_000)
    );
    assert!(
        end.text.ends_with("The script plays again in 30s."),
        "{}",
        end.text
    );
}

#[test]
fn says_what_happened_and_where_to_look() {
    let tour = &whole_round()[59];
    let steps = tour.steps.iter();
    let lines = steps.map(|step| format!("{} [{}]\n{}\n", step.title, step.link.path, step.text));
    insta::assert_snapshot!(lines.collect::<String>(), @"
    A job starts [/jobs/job_1]
    A crawl of a small site runs for most of the minute. Open it in a second tab and leave it open: about 35 seconds later its status checks reach their limit, and the page slows down by itself.
    A limit is learned [/gates/steady/only]
    No limit is configured. The gate raised its rate until the server refused, and 4.0s after the start `steady` accepted nine tenths of what it can take, 50/s. Now the gate stays there and seldom tries more.
    Operations are delivered in spite of errors [/operations/op_1]
    2 orders are stored, so nothing is lost in a crash. Delivered: 1; sent again after a 502: 1; still waiting: 0. One failed as `rejected`: the server answered 422, which another attempt cannot change.
    A Retry-After is obeyed [/gates/polite/only]
    `polite` answered 429 with Retry-After 7s at 13.0s. All requests to it waited, up to 31 at once, not only the refused one. Sent before the end of that time: 0.
    A conflict waits for a decision [/operations/op_3]
    Two programs changed the same profile, and the server answered 409. The operation is not sent blindly again: it waits for a decision, with base, ours and theirs side by side. Choose, and it is delivered.
    An outage is survived [/gates/pool/b]
    Endpoint `b` reset every connection. Its breaker opened at 24.0s, sent a probe now and then, and closed at 33.0s when they succeeded. Requests of clients that failed meanwhile: 0.
    An endpoint is paused, disabled, enabled [/pools#pool]
    Endpoint `c` was paused, and disabled at 39.0s after 3 errors in a row. The script of the demo enabled it, by the same function as the button Enable, at 44.0s.
    Status checks slow down and recover [/jobs/job_1]
    The demo's own status checks got 429 from 36.0s on, so they slowed down: waits of 2s, 4s, 8s. The job's page does the same and shows a banner; the job itself is not slowed. At 50.0s a check was answered, and the usual interval is back.
    ");
}

#[test]
fn says_what_is_happening_while_it_happens() {
    let tours = whole_round();
    let text = |second: usize, step: usize| tours[second].steps[step - 1].text.as_str();
    assert!(text(10, 3).contains("still waiting: 1"));
    assert!(text(16, 4).contains("wait until 20.0s, not only the refused one: 31 requests"));
    assert!(text(25, 6).contains("Its breaker opened at 24.0s"));
    assert!(text(34, 7).contains("error 1 in a row, so it is paused until 35.0s"));
    assert!(text(40, 7).contains("disabled at 39.0s and stays so until a person enables it"));
    assert!(text(43, 8).contains("waits of 2s, 4s, 8s"));
}

#[test]
fn claims_nothing_that_did_not_happen() {
    let facts = Facts::default();
    for second in 0..60 {
        let tour = tour(&facts, at(f64::from(second)));
        for step in &tour.steps {
            assert_ne!(step.state, DemoStepState::Done, "{second}: {}", step.title);
            for claim in [
                "opened",
                "answered 429",
                "got 429 from",
                "was disabled",
                "failed as",
            ] {
                assert!(!step.text.contains(claim), "{second}: {}", step.text);
            }
        }
    }
    let over = tour(&facts, plan::LENGTH);
    let states: Vec<_> = over.steps.iter().map(|step| step.state).collect();
    assert_eq!(states, [DemoStepState::Later; 8]);
}

#[test]
fn names_why_a_job_could_not_be_started() {
    let facts = Facts {
        job: Some(Err("too many jobs are queued".to_owned())),
        ..Facts::default()
    };
    let tour = tour(&facts, at(1.0));
    assert_eq!(
        tour.text,
        "The job could not be started: too many jobs are queued."
    );
    assert_eq!(tour.link.path, "/jobs");
}

#[test]
fn facts_of_the_next_round_keep_what_waits_for_a_person() {
    let mut facts = Facts::default();
    for second in 0..60 {
        happen(&mut facts, second);
    }
    facts.next_round(plan::ROUND);
    let ids: Vec<&str> = facts.orders.iter().map(|order| order.id.as_str()).collect();
    assert_eq!((facts.round, ids), (1, vec!["op_2"]));
    assert_eq!(facts.profile.as_ref().unwrap().id, "op_3");
    assert!(facts.breaker.is_none() && facts.job.is_none() && facts.learned_at.is_some());
    let next = tour(&facts, plan::ROUND + at(1.0));
    assert_eq!((next.round, next.elapsed_ms, next.step), (2, 1000, 1));
    facts.profile.as_mut().unwrap().state = OperationState::Completed;
    facts.next_round(plan::ROUND * 2);
    assert!(facts.profile.is_none());
}

#[test]
fn reads_facts_from_events_of_its_own_gates_only() {
    let clock = Clock::system();
    let tour = Tour::new(clock, Timestamp::from_secs(100));
    let (opened, closed) = (Timestamp::from_secs(124), Timestamp::from_secs(133));
    for key in ["pool/a", plan::OUTAGE_KEY] {
        tour.on_event(opened, &Event::BreakerOpened { key, until: None });
    }
    tour.on_event(closed, &Event::BreakerClosed { key: "pool/a" });
    let breaker = tour.facts().breaker.unwrap();
    assert_eq!((breaker.opened_at, breaker.closed_at), (at(24.0), None));
    let hold = |key, source| Event::HoldStarted {
        key,
        until: Timestamp::from_secs(120),
        source,
    };
    tour.on_event(opened, &hold(plan::POLITE, Source::Assumed));
    tour.on_event(opened, &hold("quota/only", Source::RetryAfter));
    assert_eq!(tour.facts().hold, None);
    tour.on_event(
        Timestamp::from_secs(113),
        &hold(plan::POLITE, Source::RetryAfter),
    );
    assert_eq!(tour.facts().hold.map(|hold| hold.at), Some(at(13.0)));
    for (key, second) in [
        (plan::POLITE, 113),
        (plan::POLITE, 115),
        ("pool/a", 116),
        (plan::POLITE, 120),
    ] {
        let waited = Duration::ZERO;
        let admitted = Event::Admitted {
            key,
            waited,
            is_probe: false,
        };
        tour.on_event(Timestamp::from_secs(second), &admitted);
    }
    assert_eq!(tour.facts().hold.map(|hold| hold.admitted), Some(1));
    let again = Event::HoldStarted {
        key: plan::POLITE,
        until: Timestamp::from_secs(130),
        source: Source::RetryAfter,
    };
    tour.on_event(Timestamp::from_secs(124), &again);
    let facts = tour.facts();
    assert_eq!(
        (facts.held_at, facts.hold.map(|hold| hold.at)),
        (Some(at(13.0)), Some(at(24.0)))
    );
    let (pool, endpoint) = (plan::POOL, plan::FAILING_ENDPOINT);
    tour.on_event(closed, &Event::EndpointEnabled { pool, endpoint });
    assert_eq!(
        tour.facts().endpoint.enabled_at,
        None,
        "it was not disabled"
    );
    let paused = Event::EndpointPaused {
        pool,
        endpoint,
        until: Timestamp::from_secs(190),
        errors: 1,
        source: Source::Assumed,
    };
    tour.on_event(opened, &paused);
    assert_eq!(tour.facts().endpoint.paused_at, None, "too early");
    let disabled = Event::EndpointDisabled {
        pool,
        endpoint,
        why: Disabled::Errors(3),
    };
    tour.on_event(opened, &disabled);
    tour.on_event(Timestamp::from_secs(150), &paused);
    tour.on_event(closed, &Event::EndpointEnabled { pool, endpoint });
    let endpoint = tour.facts().endpoint;
    assert_eq!((endpoint.errors, endpoint.enabled_at), (3, Some(at(33.0))));
}

#[test]
fn counts_the_waits_of_refused_checks() {
    let mut checks = StatusChecks::default();
    checks.count(false, Some(at(3.0)), at(1.0));
    assert!(!checks.is_slowed());
    checks.count(true, Some(at(2.0)), at(4.0));
    assert!(checks.is_slowed() && checks.next_at == Some(at(6.0)));
    checks.count(false, None, at(6.0));
    assert!(!checks.is_slowed() && checks.answered == 2);
    assert_eq!(checks.waits, [at(2.0)]);
}
