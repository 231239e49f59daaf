//! Pauses of endpoints, which errors climb, what is shown, and pools of several endpoints.

use std::time::Duration;

use policy::duration::Rounded;
use policy::ladder::{EndpointResult, Ladder, LadderRecord, LadderSettings};
use policy::pool::{Balance, Choice, Pool};
use policy::time::Timestamp;
use serde_json::{Value, json};

use crate::replay::{refused, replay};
use crate::server::{Home, Running};
use crate::{check, check_list, check_lists};

#[test]
fn ladder() {
    let json = include_str!("../../../../conformance/003_pause_ladder.json");
    check_lists(json, &["cases"]);
    check(
        json,
        &[
            ("default-7", climbs),
            ("threshold-3", climbs),
            ("threshold-10-last-duration-repeats", climbs),
            ("fourth-step-5m-not-4m", fourth),
            ("threshold-0-rejected", setting_refused),
            ("threshold-11-rejected", setting_refused),
            ("duration-0-rejected", setting_refused),
            ("mixed-protectable", mixed),
            ("non-protectable-leaves-count-and-pause", noted),
            ("disabled-endpoint-keeps-paused-until", disabled),
            ("manual-enable-clears", enabled),
            ("late-success-does-not-unpause", late_success),
        ],
        &[],
    );
}

#[test]
fn classification() {
    let json = include_str!("../../../../conformance/003_classification.json");
    check_lists(json, &["cases"]);
    check(
        json,
        &[
            ("s429", first_version),
            ("s503", first_version),
            ("s504", first_version),
            ("msg_tmr", first_version),
            ("msg_su", first_version),
            ("msg_429", first_version),
            ("msg_502ms", expected),
            ("timeout", first_version),
            ("string", first_version),
            // Superseded in their later version, which climbs; ours has the first one's list.
            ("rpm", first_version),
            ("parse", first_version),
            ("parse2", first_version),
        ],
        &[],
    );
    let file: Value = serde_json::from_str(json).unwrap();
    let settings = LadderSettings::default();
    for text in file["keywords_seed"].as_array().unwrap() {
        let text = text.as_str().unwrap();
        assert!(
            settings.texts().iter().any(|known| **known == *text),
            "{text}"
        );
    }
    let listed = ["status_seed", "status_added_later"].map(|name| &file[name]);
    for status in listed.iter().flat_map(|list| list.as_array().unwrap()) {
        let status = u16::try_from(status.as_u64().unwrap()).unwrap();
        assert!(settings.statuses().contains(&status), "{status}");
    }
}

#[test]
fn display_and_settings() {
    let json = include_str!("../../../../conformance/003_display_and_settings.json");
    check_lists(
        json,
        &[
            "remaining_seconds",
            "paused",
            "format",
            "settings",
            "test_tool",
        ],
    );
    let file: Value = serde_json::from_str(json).unwrap();
    file["remaining_seconds"]
        .as_array()
        .unwrap()
        .iter()
        .for_each(shows_remaining);
    file["paused"]
        .as_array()
        .unwrap()
        .iter()
        .for_each(is_paused);
    file["format"]
        .as_array()
        .unwrap()
        .iter()
        .for_each(is_formatted);
    check_list(
        json,
        "settings",
        &[
            ("raise-threshold-fills-with-last", fills_with_last),
            ("lower-then-raise-loses-values", lowers_then_raises),
            ("reset", resets),
            ("persist", persists),
        ],
        &[(
            "non-number-threshold",
            "superseded by design: refused, with what was expected",
        )],
    );
    check_list(
        json,
        "test_tool",
        &[
            ("single_error", scenario),
            ("success_recovery", scenario),
            ("auto_disable", scenario),
            ("must-not-touch-live-endpoint", touches_nothing),
        ],
        &[],
    );
}

#[test]
fn epochs_and_pools() {
    let json = include_str!("../../../../conformance/003_batch_epoch_and_pool.json");
    check_lists(json, &["cases"]);
    check(
        json,
        &[
            ("epoch-10x429-one-batch", one_batch),
            ("degraded-success-restores", restores),
            ("threshold-1-mixed-reason", mixed_reason),
            ("stale-epoch-failure-ignored", stale),
            ("pick-least-busy", least_busy),
            ("pool-uses-others", uses_others),
            ("toggle-off", switched_off),
        ],
        &[
            (
                "disable-endpoint-mid-run-aborts-and-requeues",
                "by design: requests in flight finish when an endpoint is disabled",
            ),
            (
                "event-seq-stale-drop",
                "pending: several workers; within one, epochs do this",
            ),
        ],
    );
}

/// Attempts that follow one another, each started and finished a second after the one before.
fn attempts(settings: &[String], endings: &[Value]) -> Vec<Value> {
    let mut events = Vec::new();
    for (second, ending) in endings.iter().enumerate() {
        events.push(json!({ "at": second, "start": second }));
        let mut finish = ending.clone();
        finish["at"] = json!(second);
        finish["finish"] = json!(second);
        events.push(finish);
    }
    let answers = replay("protection", settings, &events);
    answers.into_iter().skip(1).step_by(2).collect()
}

/// How an attempt ended: a status, `success`, or a text.
fn ending(event: &Value) -> Value {
    match (event.as_u64(), event.as_str()) {
        (Some(status), _) => json!({ "status": status }),
        (_, Some("success")) => json!({ "success": true }),
        (_, Some(text)) => match text.parse::<u16>() {
            Ok(status) => json!({ "status": status }),
            Err(_) => json!({ "text": text }),
        },
        _ => panic!("{event} is no event"),
    }
}

fn endings(events: &Value) -> Vec<Value> {
    events.as_array().unwrap().iter().map(ending).collect()
}

fn settings(given: &Value) -> Vec<String> {
    let mut settings = Vec::new();
    if let Some(pauses) = given.get("durations_s").or_else(|| given.get("durations")) {
        let pauses = pauses.as_array().unwrap().iter();
        let pauses: Vec<String> = pauses.map(|pause| format!("{pause}s")).collect();
        settings.push(format!("pauses={}", pauses.join(",")));
    }
    if let Some(threshold) = given.get("threshold") {
        settings.push(format!("disable_after={threshold}"));
    }
    settings
}

fn climbs(case: &Value) {
    let steps = case["steps"].as_array().unwrap();
    let errors = vec![json!({ "status": 429 }); steps.len()];
    let answers = attempts(&settings(&case["given"]), &errors);
    for (step, answer) in steps.iter().zip(&answers) {
        assert_eq!(answer["consecutive_errors"], step["error_no"]);
        assert_eq!(answer["remaining_s"], step["pause_s"], "{step}");
        assert_eq!(
            json!(answer["enabled"] == false),
            step["disabled"],
            "{step}"
        );
    }
}

fn fourth(case: &Value) {
    let error = u32::try_from(case["given"]["error_no"].as_u64().unwrap()).unwrap();
    let pause = LadderSettings::default().pause(error);
    assert_eq!(json!(pause.as_secs()), case["expect"]["pause_s"]);
}

fn setting_refused(case: &Value) {
    let said = refused("protection", &settings(&case["given"]));
    assert!(said.contains("expected"), "{said}");
}

fn mixed(case: &Value) {
    let answers = attempts(&[], &endings(&case["given"]["events"]));
    let expect = &case["expect"];
    let pauses: Vec<_> = answers
        .iter()
        .map(|answer| &answer["remaining_s"])
        .collect();
    assert_eq!(json!(pauses), expect["pause_s"]);
    let enabled = answers.iter().filter(|answer| answer["enabled"] == true);
    assert_eq!(json!(enabled.count() + 1), expect["disabled_at"]);
}

fn noted(case: &Value) {
    let answers = attempts(&[], &endings(&case["given"]["events"]));
    let counts: Vec<_> = answers
        .iter()
        .map(|answer| &answer["consecutive_errors"])
        .collect();
    assert_eq!(json!(counts), case["expect"]["consecutive"]);
    assert_eq!(answers[0]["paused_until"], answers[1]["paused_until"]);
    assert_eq!(answers[1]["last_error"], "HTTP 400");
}

fn disabled(case: &Value) {
    let answers = attempts(&[], &endings(&case["given"]["events"]));
    let last = answers.last().unwrap();
    assert_eq!(last["enabled"], case["expect"]["enabled"]);
    assert_ne!(last["paused_until"], Value::Null);
}

fn enabled(case: &Value) {
    let mut events = Vec::new();
    for number in 0..5 {
        events.push(json!({ "at": number, "start": number }));
        events.push(json!({ "at": number, "finish": number, "status": 429 }));
    }
    events.push(json!({ "at": 5, "enable": true }));
    let answers = replay("protection", &[], &events);
    let (before, last) = (&answers[9], &answers[10]);
    assert_eq!(before["enabled"], false);
    let expect = &case["expect"];
    assert_eq!(last["enabled"], expect["enabled"]);
    assert_eq!(last["consecutive_errors"], expect["consecutive"]);
    assert_eq!(last["paused_until"], expect["paused_until"]);
    assert_eq!(last["last_error"], expect["last_error"]);
}

fn late_success(case: &Value) {
    let given = &case["given"];
    let events = [
        json!({ "at": given["success_of_request_started_at_s"], "start": 1 }),
        json!({ "at": given["trip_at_s"], "start": 2 }),
        json!({ "at": given["trip_at_s"], "finish": 2, "status": 429 }),
        json!({ "at": given["arrives_at_s"], "finish": 1, "success": true }),
    ];
    let answers = replay("protection", &[], &events);
    assert_eq!(answers[3]["paused"], case["expect"]["still_paused"]);
    assert_eq!(
        answers[3]["consecutive_errors"],
        case["expect"]["consecutive"]
    );
}

fn first_version(case: &Value) {
    protects(case, &case["first_version"]);
}

fn expected(case: &Value) {
    protects(case, &case["expect"]);
}

fn protects(case: &Value, expected: &Value) {
    let given = &case["given"];
    let text = given.as_str().or_else(|| given["message"].as_str());
    let status = given.get("status").or_else(|| given.get("statusCode"));
    let answers = attempts(&[], &[json!({ "status": status, "text": text })]);
    assert_eq!(answers[0]["paused"], expected["protect"], "{case}");
}

fn shows_remaining(row: &Value) {
    let left = row["remaining_ms"].as_f64().unwrap() / 1000.0;
    let events = [
        json!({ "at": 0, "start": 1 }),
        json!({ "at": 0, "finish": 1, "status": 429 }),
        json!({ "at": 30.0 - left, "ask": true }),
    ];
    let answers = replay("protection", &[], &events);
    assert_eq!(answers[2]["remaining_s"], row["shown_s"], "{row}");
}

fn is_paused(row: &Value) {
    let after_end = match row["paused_until"].as_str().unwrap() {
        "undef" => None,
        "+1ms" => Some(-0.001),
        "now" => Some(0.0),
        "-1ms" => Some(0.001),
        other => panic!("{other}"),
    };
    let mut events = Vec::new();
    if after_end.is_some() {
        events.push(json!({ "at": 0, "start": 1 }));
        events.push(json!({ "at": 0, "finish": 1, "status": 429 }));
    }
    events.push(json!({ "at": 30.0 + after_end.unwrap_or_default(), "ask": true }));
    let answers = replay("protection", &[], &events);
    let last = answers.last().unwrap();
    assert_eq!(last["paused"], row["paused"], "{row}");
    assert_eq!(last["remaining_s"], row["remaining_s"], "{row}");
}

fn is_formatted(row: &Value) {
    let duration = Duration::from_secs(row["seconds"].as_u64().unwrap());
    assert_eq!(json!(Rounded(duration).to_string()), row["text"]);
}

fn fills_with_last(case: &Value) {
    let pauses = case["expect"]["durations"].as_array().unwrap();
    let errors = vec![json!({ "status": 429 }); pauses.len()];
    let answers = attempts(&settings(&case["given"]), &errors);
    for (answer, pause) in answers.iter().zip(pauses) {
        assert_eq!(&answer["remaining_s"], pause);
    }
}

/// A lower threshold shortens the list with it; a higher one repeats its last pause.
fn lowers_then_raises(case: &Value) {
    let home = Home::new(TWO_ENDPOINTS);
    let server = home.start();
    let [lower, higher] = [0, 1].map(|n| case["given"]["sequence"][n].as_u64().unwrap());
    let shortened = &["30s", "60s", "120s"][..usize::try_from(lower).unwrap()];
    let body = json!({ "disable_after": lower, "pauses": shortened });
    server.admin.must("PUT", PROTECTION, Some(&body));
    server.stop();
    let server = home.start();
    let body = json!({ "disable_after": higher });
    server.admin.must("PUT", PROTECTION, Some(&body));
    let steps = tested(&server, "auto_disable");
    assert_eq!(pauses_of(&steps), case["expect"]["durations"]);
}

fn resets(case: &Value) {
    let server = Home::new(TWO_ENDPOINTS).start();
    let body =
        json!({ "enabled": false, "pauses": ["5s"], "disable_after": 2, "show_test_tool": true });
    server.admin.must("PUT", PROTECTION, Some(&body));
    server
        .admin
        .must("POST", &format!("{PROTECTION}/reset"), None);
    let protection = server.admin.pool("p")["protection"].take();
    let expect = &case["expect"];
    assert_eq!(protection["enabled"], expect["enabled"]);
    assert_eq!(protection["disable_after"], expect["threshold"]);
    assert_eq!(protection["show_test_tool"], expect["show_test_tool"]);
    assert_eq!(
        pauses_of(&tested(&server, "auto_disable")),
        expect["durations"]
    );
}

fn touches_nothing(case: &Value) {
    let server = Home::new(TWO_ENDPOINTS).start();
    let before = server.admin.pool("p");
    for scenario in [
        "single_error",
        "repeated_errors",
        "success_recovery",
        "auto_disable",
    ] {
        assert!(!tested(&server, scenario).is_empty());
    }
    let has_changed = server.admin.pool("p") != before;
    assert_eq!(json!(has_changed), case["expect"]["live_state_changed"]);
}

const TWO_ENDPOINTS: &str = r#"
    [pool.p]
    endpoints = [
      { name = "a", url = "http://127.0.0.1:9/" },
      { name = "b", url = "http://127.0.0.1:9/" },
    ]
"#;

const PROTECTION: &str = "/api/v1/pools/p/protection";

/// The steps that the server's test tool shows.
fn tested(server: &Running, scenario: &str) -> Vec<Value> {
    let body = json!({ "scenario": scenario });
    let mut shown = server
        .admin
        .must("POST", "/api/v1/pools/p/test", Some(&body));
    shown["steps"].as_array_mut().map(std::mem::take).unwrap()
}

/// The pause after each step in seconds; null where there is none.
fn pauses_of(steps: &[Value]) -> Value {
    let millis = steps.iter().map(|step| step["pause_ms"].as_u64().unwrap());
    millis
        .map(|millis| (millis > 0).then_some(millis / 1000))
        .collect()
}

/// The record says how much of the pause is left.
fn persists(case: &Value) {
    let left = case["given"]["restart_while_paused_s_left"]
        .as_u64()
        .unwrap();
    let record = LadderRecord {
        consecutive_errors: 1,
        pause: Some(Duration::from_secs(left)),
        ..LadderRecord::default()
    };
    let now = Timestamp::from_secs(7);
    let ladder = Ladder::restore(record.clone(), now);
    assert_eq!(json!(ladder.is_paused(now)), case["expect"]["still_paused"]);
    assert_eq!(ladder.record(now), record);
}

fn scenario(case: &Value) {
    let answers = attempts(&[], &endings(&case["events"]));
    let expect = &case["expect"];
    for (n, answer) in answers.iter().enumerate() {
        let pause = answer["remaining_s"]
            .as_u64()
            .filter(|&seconds| seconds > 0);
        assert_eq!(json!(pause), expect["pause_s"][n], "step {n} of {case}");
        if let Some(counts) = expect.get("consecutive") {
            assert_eq!(answer["consecutive_errors"], counts[n]);
        }
        let disabled_at = expect["disabled_at"].as_u64();
        let is_disabled = disabled_at.is_some_and(|at| n as u64 + 1 >= at);
        assert_eq!(json!(!is_disabled), answer["enabled"]);
    }
    // The server's own tool comes to the same pauses.
    let server = Home::new(TWO_ENDPOINTS).start();
    let steps = tested(&server, case["scenario"].as_str().unwrap());
    assert_eq!(pauses_of(&steps), expect["pause_s"]);
}

fn one_batch(case: &Value) {
    let batch = case["given"]["batch"].as_array().unwrap();
    let mut events: Vec<Value> = (0..batch.len())
        .map(|number| json!({ "at": 0, "start": number }))
        .collect();
    for (number, status) in batch.iter().enumerate() {
        events.push(json!({ "at": 0, "finish": number, "status": status }));
    }
    let answers = replay("protection", &settings(&case["given"]), &events);
    let (last, expect) = (answers.last().unwrap(), &case["expect"]);
    assert_eq!(last["consecutive_errors"], expect["batch_failures"]);
    assert_eq!(last["remaining_s"], expect["pause_s"]);
    assert_eq!(last["enabled"], expect["enabled"]);

    // After the pause only so many at once go through it.
    let mut field = Field::new(Balance::First, &["a", "b"]);
    field.end_all_of("a", batch.len(), 429);
    field.now = Timestamp::from_secs(30);
    let chosen = field.chosen(6);
    let through = chosen.chars().filter(|&name| name == 'a').count();
    assert_eq!(json!(through), expect["effective_concurrency"]);
}

fn restores(case: &Value) {
    let (given, expect) = (&case["given"], &case["expect"]);
    let concurrency = usize::try_from(given["user_concurrency"].as_u64().unwrap()).unwrap();
    let mut field = Field::new(Balance::First, &["a", "b"]);
    field.end_all_of("a", concurrency, 429);
    field.now = Timestamp::from_secs(30);
    field.end_all_of("a", 1, 200);
    let a = field.pool.find("a").unwrap().ladder();
    assert_eq!(json!(a.consecutive_errors()), expect["batch_failures"]);
    assert_eq!(json!(a.is_paused(field.now)), expect["paused"]);
    assert_eq!(json!(a.last_error()), expect["last_error"]);
    let through = field.chosen(concurrency);
    assert_eq!(json!(through.len()), expect["effective_concurrency"]);
    assert!(through.chars().all(|name| name == 'a'), "{through}");
}

/// Words about parsing do not climb; the status that follows does, and is the reason.
fn mixed_reason(case: &Value) {
    let endings = [
        json!({ "text": "PARSE_INVALID" }),
        json!({ "text": "HTTP_429" }),
    ];
    let answers = attempts(&settings(&case["given"]), &endings);
    assert_eq!(answers[0]["enabled"], true);
    assert_eq!(answers[1]["enabled"], case["expect"]["enabled"]);
    assert_eq!(answers[1]["last_error"], case["expect"]["disable_reason"]);
}

fn stale(case: &Value) {
    let settings = LadderSettings::default();
    let mut ladder = Ladder::new();
    let old = ladder.epoch();
    ladder.enable();
    ladder.settle(
        &settings,
        old,
        &EndpointResult::status(429),
        Timestamp::ZERO,
    );
    let delta = &case["expect"]["batch_failures_delta"];
    assert_eq!(&json!(ladder.consecutive_errors()), delta);
}

fn least_busy(case: &Value) {
    let mut field = Field::new(Balance::LeastLoaded, &["A", "B"]);
    for (name, count) in case["given"]["in_flight"].as_object().unwrap() {
        for _ in 0..count.as_u64().unwrap() {
            _ = field.send_to(name);
        }
    }
    assert_eq!(json!(field.chosen(1)), case["expect"]["pick"]);
}

fn uses_others(case: &Value) {
    let mut field = Field::new(Balance::RoundRobin, &["B", "C"]);
    let paused = LadderRecord {
        consecutive_errors: 1,
        pause: Some(Duration::from_secs(120)),
        ..LadderRecord::default()
    };
    field.pool.restore("A", paused, field.now).unwrap();
    let mut used = |now| {
        field.now = now;
        let mut names: Vec<char> = field.chosen(6).chars().collect();
        names.sort_unstable();
        names.dedup();
        json!(names.iter().map(char::to_string).collect::<Vec<_>>())
    };
    let expect = &case["expect"];
    let just_before = Timestamp::from_nanos(119_999_999_999);
    assert_eq!(used(just_before), expect["used"]);
    assert_eq!(used(Timestamp::from_secs(120)), expect["after_120s"]);
}

fn switched_off(case: &Value) {
    let errors = endings(&case["given"]["events"]);
    let answers = attempts(&["enabled=false".into()], &errors);
    for answer in answers {
        assert_eq!(answer["paused"], case["expect"]["paused"]);
        assert_eq!(answer["enabled"], case["expect"]["enabled"]);
    }
}

/// A pool with a clock, whose gates admit every request.
struct Field {
    settings: LadderSettings,
    pool: Pool,
    now: Timestamp,
}

impl Field {
    fn new(balance: Balance, names: &[&str]) -> Self {
        let mut pool = Pool::new(balance);
        for name in names {
            pool.add(name).unwrap();
        }
        Self {
            settings: LadderSettings::default(),
            pool,
            now: Timestamp::ZERO,
        }
    }

    /// Sends so many requests through one endpoint; all of them end after the last has left.
    fn end_all_of(&mut self, name: &str, count: usize, status: u16) {
        let leases: Vec<_> = (0..count).map(|_| self.send_to(name)).collect();
        for lease in leases {
            let ended = EndpointResult::status(status);
            self.pool.settle(&self.settings, lease, &ended, self.now);
        }
    }

    /// Through this endpoint and no other: the other gates are closed.
    fn send_to(&mut self, name: &str) -> policy::pool::Lease {
        let now = self.now;
        let choice = self.pool.choose(&self.settings, now, |endpoint| {
            if endpoint.name() == name {
                now
            } else {
                Timestamp::MAX
            }
        });
        match choice {
            Choice::Send(lease) => lease,
            other => panic!("{other:?} instead of a lease for {name}"),
        }
    }

    /// The names of those chosen for so many requests, none of which ends.
    fn chosen(&mut self, count: usize) -> String {
        let now = self.now;
        let mut names = String::new();
        for _ in 0..count {
            match self.pool.choose(&self.settings, now, |_| now) {
                Choice::Send(lease) => {
                    names.push_str(self.pool.get(lease.endpoint()).unwrap().name());
                }
                other => panic!("{other:?} instead of a lease"),
            }
        }
        names
    }
}
