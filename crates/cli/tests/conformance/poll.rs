//! Following a job: stages, the ladder of 429s, when to try again and when to stop.

use std::time::Duration;

use policy::poll::PollSettings;
use serde_json::{Value, json};

use crate::replay::replay;
use crate::{check, check_list, check_lists};

#[test]
fn intervals() {
    let json = include_str!("../../../../conformance/000_polling_intervals.json");
    check_lists(json, &["cases"]);
    check(
        json,
        &[
            ("progress-1", interval),
            ("progress-29", interval),
            ("progress-29.999", interval),
            ("progress-31", interval),
            ("progress-69.999", interval),
            ("progress-100", interval),
            ("no-data-yet", interval),
            ("progress-missing-treated-as-0", interval),
            ("done-stops", ends),
            ("job-error-stops", ends),
            ("terminal-data-wins-over-429", ends),
            ("progress-over-100", interval),
            ("progress-negative", interval),
        ],
        &[],
    );
}

#[test]
fn ladder() {
    let json = include_str!("../../../../conformance/000_rate_limit_ladder.json");
    check_lists(json, &["cases", "sequences"]);
    check(
        json,
        &[
            ("consecutive-2", waits),
            ("consecutive-3", waits),
            ("consecutive-6", waits),
            ("consecutive-7", waits),
            ("consecutive-9", waits),
            ("consecutive-10", waits),
            ("consecutive-11", waits),
            ("n-2000-no-overflow", waits),
        ],
        &[],
    );
    check_list(
        json,
        "sequences",
        &[
            ("seq-3x429-then-ok", sequence),
            ("resume-uses-stage-interval-not-fixed-2s", resumes),
        ],
        &[],
    );
}

#[test]
fn decisions() {
    let json = include_str!("../../../../conformance/000_retry_decision.json");
    check_lists(json, &["cases"]);
    check(
        json,
        &[
            ("exactly-300000-still-retries", after_silence),
            ("300001-gives-up", after_silence),
            ("other-error-failures-0", other_error),
            ("other-error-failures-3-stop", other_error),
            ("other-error-delay-cap", delay_cap),
            ("http-500-is-transient-not-404", other_error),
            ("give-up-is-terminal", for_good),
            ("only-real-responses-refresh-last-success", for_ever),
        ],
        &[],
    );
}

/// The event that tells what the case gives: data and error of one answer.
fn answer(given: &Value) -> Value {
    let data = &given["data"];
    let status = given["error"]["status"].as_u64().unwrap_or(200);
    json!({ "at": 0, "status": status, "job": data["status"], "progress": data["progress"] })
}

fn interval(case: &Value) {
    let answers = replay("poll", &[], &[answer(&case["given"])]);
    assert_eq!(
        answers[0]["next_ms"], case["expect"]["interval_ms"],
        "{case}"
    );
    assert_eq!(answers[0]["state"], "polling");
}

fn ends(case: &Value) {
    let answers = replay("poll", &[], &[answer(&case["given"])]);
    let state = match case["expect"]["outcome"].as_str().unwrap() {
        "job_failed" => "failed",
        outcome => outcome,
    };
    assert_eq!(answers[0]["state"], state, "{case}");
    assert_eq!(answers[0]["next_ms"], Value::Null);
}

/// So many 429s in a row; without passing of time, that a long row does not give up.
fn waits(case: &Value) {
    let count = case["given"]["consecutive_429"].as_u64().unwrap();
    let events = vec![json!({ "at": 0, "status": 429 }); usize::try_from(count).unwrap()];
    let answers = replay("poll", &[], &events);
    let last = answers.last().unwrap();
    assert_eq!(last["next_ms"], case["expect"]["wait_ms"], "{case}");
    assert_eq!(last["consecutive_429"], count);
    if let Some(sum) = case["expect"].get("sum_of_waits_ms") {
        let waits = answers
            .iter()
            .map(|answer| answer["next_ms"].as_u64().unwrap());
        assert_eq!(json!(waits.sum::<u64>()), *sum, "{case}");
    }
}

fn sequence(case: &Value) {
    let responses = case["given"]["responses"].as_array().unwrap();
    let expect = &case["expect"];
    let events: Vec<Value> = responses
        .iter()
        .map(|response| {
            let at = response["t_ms"].as_f64().unwrap() / 1000.0;
            json!({ "at": at, "status": response["http"], "progress": response["progress"] })
        })
        .collect();
    let answers = replay("poll", &[], &events);
    for (n, answer) in answers.iter().enumerate() {
        assert_eq!(
            answer["consecutive_429"],
            expect["consecutive_after_each"][n]
        );
        assert_eq!(answer["banner"], expect["banner_after_each"][n]);
        if let Some(next) = expect["request_times_ms"][n + 1].as_u64() {
            let now = expect["request_times_ms"][n].as_u64().unwrap();
            assert_eq!(answer["next_ms"], next - now, "request {n}");
        }
    }
}

fn resumes(case: &Value) {
    let progress = &case["given"]["progress_at_recovery"];
    let events = [
        json!({ "at": 0, "status": 429 }),
        json!({ "at": 2, "status": 200, "progress": progress }),
    ];
    let answers = replay("poll", &[], &events);
    assert_eq!(answers[1]["next_ms"], case["expect"]["interval_ms"]);
}

fn after_silence(case: &Value) {
    let given = &case["given"];
    let at = given["ms_since_last_success"].as_f64().unwrap() / 1000.0;
    let events = [
        json!({ "at": 0, "status": 200, "progress": 1 }),
        json!({ "at": at, "status": given["status"] }),
    ];
    let answers = replay("poll", &[], &events);
    let retries = answers[1]["next_ms"] != Value::Null;
    assert_eq!(json!(retries), case["expect"]["retry"], "{case}");
    let state = if retries { "slowed" } else { "gave_up" };
    assert_eq!(answers[1]["state"], state);
}

fn other_error(case: &Value) {
    let given = &case["given"];
    let error = match given["status"].as_u64() {
        Some(status) => json!({ "at": 0, "status": status }),
        None => json!({ "at": 0, "failure": "connect" }),
    };
    let failures = usize::try_from(given["failure_count"].as_u64().unwrap()).unwrap();
    let answers = replay("poll", &[], &vec![error; failures + 1]);
    let last = answers.last().unwrap();
    let retries = last["next_ms"] != Value::Null;
    assert_eq!(json!(retries), case["expect"]["retry"], "{case}");
    if retries {
        assert_eq!(last["next_ms"], case["expect"]["delay_ms"], "{case}");
    } else {
        assert_eq!(last["state"], "failed");
    }
}

fn delay_cap(case: &Value) {
    let index = u32::try_from(case["given"]["attempt_index"].as_u64().unwrap()).unwrap();
    let expected = Duration::from_millis(case["expect"]["delay_ms"].as_u64().unwrap());
    assert_eq!(PollSettings::default().retry(index), expected);
    let errors = vec![json!({ "at": 0, "status": 500 }); index as usize + 1];
    let answers = replay("poll", &["other_retries=9".into()], &errors);
    let last = answers.last().unwrap();
    assert_eq!(last["next_ms"], case["expect"]["delay_ms"]);
}

fn for_good(_: &Value) {
    let events = [
        json!({ "at": 0, "status": 429 }),
        json!({ "at": 301, "status": 429 }),
        json!({ "at": 302, "status": 200, "progress": 50 }),
        json!({ "at": 303, "status": 429 }),
    ];
    for answer in &replay("poll", &[], &events)[1..] {
        assert_eq!(answer["state"], "gave_up");
        assert_eq!(answer["next_ms"], Value::Null, "no further request");
    }
}

/// Asks again exactly when due, and is refused for ever from 5 s on.
fn for_ever(case: &Value) {
    let running = |at: f64| json!({ "at": at, "status": 200, "progress": 40 });
    let mut events = vec![running(0.0), running(2.5)];
    let mut at = 5000;
    loop {
        events.push(json!({ "at": at as f64 / 1000.0, "status": 429 }));
        let answers = replay("poll", &[], &events);
        let last = answers.last().unwrap();
        match last["next_ms"].as_u64() {
            Some(next) => at += next,
            None => {
                assert_eq!(last["state"], "gave_up");
                assert_eq!(json!(at), case["expect"]["gave_up_at_ms"]);
                let count = &case["expect"]["consecutive_429_at_give_up"];
                assert_eq!(&last["consecutive_429"], count);
                return;
            }
        }
    }
}
