//! `tidegate replay`: each policy on valid input.

use insta::assert_snapshot;

use crate::support::run;

#[test]
fn gate_admits_then_makes_callers_wait() {
    let events = r#"{"at":0,"acquire":"API.example.com:443"}
{"at":0,"acquire":"api.example.com"}
{"at":0,"acquire":"api.example.com"}
{"at":0,"acquire":"api.example.com"}
{"at":0,"acquire":"api.example.com","note":"the burst is used up"}
{"at":0.0,"acquire":"api.example.com"}
{"at":0.25,"acquire":"other.example.com"}
{"at":0.75,"settle":1,"status":200,"latency_ms":80}
{"at":10,"acquire":"api.example.com"}
"#;
    assert_snapshot!(run("replay --policy gate --set strategy=aimd", events), @r#"
    exit 0
    --- stdout
    {"at":0,"decision":"admit","until":null,"reason":null}
    {"at":0,"decision":"admit","until":null,"reason":null}
    {"at":0,"decision":"admit","until":null,"reason":null}
    {"at":0,"decision":"admit","until":null,"reason":null}
    {"at":0,"decision":"wait","until":0.5,"reason":"rate"}
    {"at":0.0,"decision":"wait","until":1,"reason":"rate"}
    {"at":0.25,"decision":"admit","until":null,"reason":null}
    {"at":0.5,"admitted":5}
    {"at":0.75,"verdict":"success","rate":2.25,"breaker":"closed","hold_until":null,"error_rate":0,"consecutive_failures":0}
    {"at":0.972222223,"admitted":6}
    {"at":10,"decision":"admit","until":null,"reason":null}
    "#);
}

#[test]
fn gate_learns_from_results() {
    let events = r#"{"at":0,"acquire":"a.example"}
{"at":0.1,"settle":1,"status":200,"latency_ms":80}
{"at":1,"acquire":"a.example"}
{"at":1.2,"settle":2,"status":429,"latency_ms":80,"headers":{"retry-after":"2"}}
{"at":2,"acquire":"a.example"}
{"at":4,"settle":3,"failure":"timeout"}
{"at":5,"acquire":"a.example"}
{"at":6.5,"settle":4,"status":101}
"#;
    assert_snapshot!(run("replay --policy gate --set strategy=aimd", events), @r#"
    exit 0
    --- stdout
    {"at":0,"decision":"admit","until":null,"reason":null}
    {"at":0.1,"verdict":"success","rate":2.25,"breaker":"closed","hold_until":null,"error_rate":0,"consecutive_failures":0}
    {"at":1,"decision":"admit","until":null,"reason":null}
    {"at":1.2,"verdict":"throttled","rate":1.125,"breaker":"closed","hold_until":3.2,"error_rate":0,"consecutive_failures":0}
    {"at":2,"decision":"wait","until":3.2,"reason":"hold"}
    {"at":3.2,"admitted":3}
    {"at":4,"verdict":"unreachable","rate":0.5625,"breaker":"closed","hold_until":null,"error_rate":0.5,"consecutive_failures":1}
    {"at":5,"decision":"admit","until":null,"reason":null}
    {"at":6.5,"verdict":null,"rate":0.5625,"breaker":"closed","hold_until":null,"error_rate":0.5,"consecutive_failures":1}
    "#);
}

#[test]
fn gate_switched_off_admits_everything() {
    let events = r#"{"at":0,"acquire":"a.example"}
{"at":0,"acquire":"a.example"}
{"at":0,"acquire":"b.example"}
{"at":0,"acquire":"b.example"}
{"at":0,"acquire":"b.example"}
{"at":1,"settle":1,"status":429,"headers":{"retry-after":"60"}}
{"at":1,"settle":5,"failure":"connect"}
{"at":1,"acquire":"a.example"}
"#;
    assert_snapshot!(
        run("replay --policy gate --set enabled=false --set max_gates=1", events),
        @r#"
        exit 0
        --- stdout
        {"at":0,"decision":"admit","until":null,"reason":null}
        {"at":0,"decision":"admit","until":null,"reason":null}
        {"at":0,"decision":"admit","until":null,"reason":null}
        {"at":0,"decision":"admit","until":null,"reason":null}
        {"at":0,"decision":"admit","until":null,"reason":null}
        {"at":1,"verdict":"throttled","rate":2,"breaker":"closed","hold_until":null,"error_rate":0,"consecutive_failures":0}
        {"at":1,"verdict":"unreachable","rate":2,"breaker":"closed","hold_until":null,"error_rate":0,"consecutive_failures":0}
        {"at":1,"decision":"admit","until":null,"reason":null}
        "#
    );
}

#[test]
fn gate_waiters_of_all_gates_leave_by_time_and_number() {
    let events = r#"{"at":0,"acquire":"a.example"}
{"at":0,"acquire":"b.example"}
{"at":0,"acquire":"b.example"}
{"at":0,"acquire":"a.example"}
{"at":0,"acquire":"a.example"}
{"at":0,"acquire":"b.example"}
{"at":2,"acquire":"c.example"}
"#;
    let args = "replay --policy gate --set strategy=fixed --set initial_rate=1";
    assert_snapshot!(run(args, events), @r#"
    exit 0
    --- stdout
    {"at":0,"decision":"admit","until":null,"reason":null}
    {"at":0,"decision":"admit","until":null,"reason":null}
    {"at":0,"decision":"wait","until":0.998,"reason":"rate"}
    {"at":0,"decision":"wait","until":0.998,"reason":"rate"}
    {"at":0,"decision":"wait","until":1.998,"reason":"rate"}
    {"at":0,"decision":"wait","until":1.998,"reason":"rate"}
    {"at":0.998,"admitted":3}
    {"at":0.998,"admitted":4}
    {"at":1.998,"admitted":5}
    {"at":1.998,"admitted":6}
    {"at":2,"decision":"admit","until":null,"reason":null}
    "#);
}

#[test]
fn gate_waiters_freed_by_a_result_leave_at_its_time() {
    let events = r#"{"at":0,"acquire":"a.example"}
{"at":0,"acquire":"a.example"}
{"at":3,"settle":1,"status":200}
{"at":7,"settle":2,"status":200}
"#;
    let args =
        "replay --policy gate --set strategy=fixed --set initial_rate=1000 --set max_in_flight=1";
    assert_snapshot!(run(args, events), @r#"
    exit 0
    --- stdout
    {"at":0,"decision":"admit","until":null,"reason":null}
    {"at":0,"decision":"wait","until":null,"reason":"in_flight"}
    {"at":3,"verdict":"success","rate":1000,"breaker":"closed","hold_until":null,"error_rate":0,"consecutive_failures":0}
    {"at":3,"admitted":2}
    {"at":7,"verdict":"success","rate":1000,"breaker":"closed","hold_until":null,"error_rate":0,"consecutive_failures":0}
    "#);
}

#[test]
fn gate_evicts_idle_keys_but_not_held_ones() {
    let events = r#"{"at":0,"acquire":"idle.example"}
{"at":0,"acquire":"held.example"}
{"at":1,"settle":1,"status":500}
{"at":1,"settle":2,"status":429,"headers":{"retry-after":"200"}}
{"at":121,"acquire":"idle.example"}
{"at":121,"acquire":"held.example"}
{"at":122,"settle":3,"status":404}
"#;
    assert_snapshot!(run("replay --policy gate --set strategy=aimd", events), @r#"
    exit 0
    --- stdout
    {"at":0,"decision":"admit","until":null,"reason":null}
    {"at":0,"decision":"admit","until":null,"reason":null}
    {"at":1,"verdict":"overloaded","rate":1,"breaker":"closed","hold_until":null,"error_rate":1,"consecutive_failures":1}
    {"at":1,"verdict":"throttled","rate":1,"breaker":"closed","hold_until":201,"error_rate":0,"consecutive_failures":0}
    {"at":121,"decision":"admit","until":null,"reason":null}
    {"at":121,"decision":"refuse","until":201,"reason":"deadline"}
    {"at":122,"verdict":"rejected","rate":2,"breaker":"closed","hold_until":null,"error_rate":0,"consecutive_failures":0}
    "#);
}

#[test]
fn gate_evicts_the_least_recently_used_at_max_gates() {
    let events = r#"{"at":0,"acquire":"a.example"}
{"at":0,"acquire":"b.example"}
{"at":0,"acquire":"c.example"}
{"at":1,"settle":1,"status":500}
{"at":1,"settle":2,"status":500}
{"at":2,"acquire":"c.example"}
{"at":3,"acquire":"b.example"}
{"at":3,"settle":5,"status":404}
"#;
    let args = "replay --policy gate --set strategy=aimd --set max_gates=2";
    assert_snapshot!(run(args, events), @r#"
    exit 0
    --- stdout
    {"at":0,"decision":"admit","until":null,"reason":null}
    {"at":0,"decision":"admit","until":null,"reason":null}
    {"at":0,"decision":"refuse","until":null,"reason":"too_many_gates"}
    {"at":1,"verdict":"overloaded","rate":1,"breaker":"closed","hold_until":null,"error_rate":1,"consecutive_failures":1}
    {"at":1,"verdict":"overloaded","rate":1,"breaker":"closed","hold_until":null,"error_rate":1,"consecutive_failures":1}
    {"at":2,"decision":"admit","until":null,"reason":null}
    {"at":3,"decision":"admit","until":null,"reason":null}
    {"at":3,"verdict":"rejected","rate":1,"breaker":"closed","hold_until":null,"error_rate":0.5,"consecutive_failures":1}
    "#);
}

#[test]
fn hint_reads_headers_and_bodies() {
    let events = r#"{"now":"2026-11-15T06:00:00Z","status":429,"headers":{"retry-after":"90"},"body":""}
{"status":429,"headers":{"Retry-After":"0.0001"}}
{"status":200,"headers":{"content-type":"text/html"}}
{"now":"2026-11-15T06:00:00Z","status":503,"headers":{"retry-after":"Sun, 15 Nov 2026 06:02:00 GMT"}}
{"status":503,"headers":{"retry-after":"Sun, 15 Nov 2026 06:02:00 GMT"}}
{"at":1.50,"status":200,"headers":{"x-ratelimit-remaining":"7","x-ratelimit-reset":"30"}}
{"headers":{"retry-after":"soon"}}
"#;
    assert_snapshot!(run("replay --policy hint --seed 7 --jitter none --json", events), @r#"
    exit 0
    --- stdout
    {"wait_ms":90000,"source":"retry-after","remaining":null,"reset_ms":null,"scope":null}
    {"wait_ms":1,"source":"retry-after","remaining":null,"reset_ms":null,"scope":null}
    {"wait_ms":null}
    {"wait_ms":120000,"source":"retry-after","remaining":null,"reset_ms":null,"scope":null}
    {"wait_ms":null}
    {"at":1.50,"wait_ms":null,"source":"x-ratelimit-reset","remaining":7,"reset_ms":30000,"scope":null}
    {"wait_ms":null}
    "#);
}

#[test]
fn classify_names_the_verdict_and_why() {
    let events = r#"{"status":200}
{"status":429,"headers":{},"body":""}
{"status":403,"headers":{},"body":"quota exceeded"}
{"at":1,"status":404}
{"status":101}
{"status":503,"headers":{"retry-after":"5"}}
{"failure":"dns"}
"#;
    assert_snapshot!(run("replay --policy classify", events), @r#"
    exit 0
    --- stdout
    {"verdict":"success","because":"status 200"}
    {"verdict":"throttled","because":"status 429"}
    {"verdict":"throttled","because":"text `quota exceeded`"}
    {"at":1,"verdict":"rejected","because":"status 404"}
    {"verdict":null,"because":"status 101"}
    {"verdict":"throttled","because":"status 503 with `retry-after`"}
    {"verdict":"unreachable","because":"name not resolved"}
    "#);
}
