//! `tidegate replay --policy backoff`: one item over all its attempts.

use insta::assert_snapshot;

use crate::support::run;

#[test]
fn backoff_doubles_delays_until_attempts_are_exhausted() {
    let events = r#"{"attempt":1,"status":503,"headers":{}}
{"attempt":2,"failure":"timeout"}
{"attempt":3,"status":500}
{"attempt":4,"status":429}
{"attempt":5,"status":503}
{"attempt":6,"status":503}
"#;
    assert_snapshot!(run("replay --policy backoff --jitter none", events), @r#"
    exit 0
    --- stdout
    {"retry":true,"delay_ms":1000,"min_ms":1000,"max_ms":1000,"source":"backoff","reason":"overloaded"}
    {"retry":true,"delay_ms":2000,"min_ms":2000,"max_ms":2000,"source":"backoff","reason":"unreachable"}
    {"retry":true,"delay_ms":4000,"min_ms":4000,"max_ms":4000,"source":"backoff","reason":"overloaded"}
    {"retry":true,"delay_ms":8000,"min_ms":8000,"max_ms":8000,"source":"backoff","reason":"throttled"}
    {"retry":false,"delay_ms":null,"min_ms":null,"max_ms":null,"source":null,"reason":"exhausted"}
    {"retry":false,"delay_ms":null,"min_ms":null,"max_ms":null,"source":null,"reason":"exhausted"}
    "#);
    assert_snapshot!(run("replay --policy backoff --seed 7", events), @r#"
    exit 0
    --- stdout
    {"retry":true,"delay_ms":889,"min_ms":500,"max_ms":1500,"source":"backoff","reason":"overloaded"}
    {"retry":true,"delay_ms":1033,"min_ms":1000,"max_ms":3000,"source":"backoff","reason":"unreachable"}
    {"retry":true,"delay_ms":5603,"min_ms":2000,"max_ms":6000,"source":"backoff","reason":"overloaded"}
    {"retry":true,"delay_ms":8663,"min_ms":4000,"max_ms":12000,"source":"backoff","reason":"throttled"}
    {"retry":false,"delay_ms":null,"min_ms":null,"max_ms":null,"source":null,"reason":"exhausted"}
    {"retry":false,"delay_ms":null,"min_ms":null,"max_ms":null,"source":null,"reason":"exhausted"}
    "#);
}

#[test]
fn backoff_applies_settings_over_presets() {
    let events = r#"{"attempt":1,"status":503}
{"attempt":2,"status":503}
{"attempt":3,"status":503}
"#;
    assert_snapshot!(run("replay --policy backoff --preset crawl", events), @r#"
    exit 0
    --- stdout
    {"retry":true,"delay_ms":176,"min_ms":0,"max_ms":200,"source":"backoff","reason":"overloaded"}
    {"retry":true,"delay_ms":172,"min_ms":0,"max_ms":400,"source":"backoff","reason":"overloaded"}
    {"retry":false,"delay_ms":null,"min_ms":null,"max_ms":null,"source":null,"reason":"exhausted"}
    "#);
    let args = "replay --policy backoff --preset aggressive --set max=800ms --set jitter=0.9..1.1";
    assert_snapshot!(run(args, events), @r#"
    exit 0
    --- stdout
    {"retry":true,"delay_ms":538,"min_ms":450,"max_ms":550,"source":"backoff","reason":"overloaded"}
    {"retry":true,"delay_ms":800,"min_ms":800,"max_ms":800,"source":"backoff","reason":"overloaded"}
    {"retry":true,"delay_ms":800,"min_ms":800,"max_ms":800,"source":"backoff","reason":"overloaded"}
    "#);
    let args = "replay --policy backoff --set growth=30s,2m --jitter none";
    assert_snapshot!(run(args, events), @r#"
    exit 0
    --- stdout
    {"retry":true,"delay_ms":30000,"min_ms":30000,"max_ms":30000,"source":"backoff","reason":"overloaded"}
    {"retry":true,"delay_ms":120000,"min_ms":120000,"max_ms":120000,"source":"backoff","reason":"overloaded"}
    {"retry":true,"delay_ms":120000,"min_ms":120000,"max_ms":120000,"source":"backoff","reason":"overloaded"}
    "#);
}

#[test]
fn backoff_honours_retry_after_at_every_attempt() {
    let events = r#"{"attempt":1,"status":429,"headers":{"retry-after":"120"}}
{"attempt":5,"status":503,"headers":{"retry-after":"0"}}
{"attempt":5,"status":500,"headers":{"retry-after":"3600"}}
{"attempt":5,"status":429,"body":"Please try again in 20s."}
{"attempt":5,"now":"2026-11-15T06:00:00Z","status":503,"headers":{"retry-after":"Sun, 15 Nov 2026 06:02:00 GMT"}}
{"attempt":2,"status":429,"headers":{"retry-after":"soon"}}
{"attempt":1,"status":404,"headers":{"retry-after":"1"}}
"#;
    assert_snapshot!(run("replay --policy backoff --jitter none", events), @r#"
    exit 0
    --- stdout
    {"retry":true,"delay_ms":120000,"min_ms":120000,"max_ms":120000,"source":"retry_after","reason":"throttled"}
    {"retry":false,"delay_ms":null,"min_ms":null,"max_ms":null,"source":null,"reason":"exhausted"}
    {"retry":true,"delay_ms":3600000,"min_ms":3600000,"max_ms":3600000,"source":"retry_after","reason":"overloaded"}
    {"retry":true,"delay_ms":20000,"min_ms":20000,"max_ms":20000,"source":"retry_after","reason":"throttled"}
    {"retry":true,"delay_ms":120000,"min_ms":120000,"max_ms":120000,"source":"retry_after","reason":"throttled"}
    {"retry":true,"delay_ms":2000,"min_ms":2000,"max_ms":2000,"source":"backoff","reason":"throttled"}
    {"retry":true,"delay_ms":1000,"min_ms":1000,"max_ms":1000,"source":"retry_after","reason":"throttled"}
    "#);
}

#[test]
fn backoff_names_the_terminal_reason() {
    let events = r#"{"at":0,"status":401}
{"at":1.50,"status":401}
{"at":2,"status":200}
{"at":2,"status":401}
{"at":3,"status":409}
{"at":4,"status":404}
{"at":5,"status":429,"body":"{\"error\":{\"code\":\"insufficient_quota\"}}"}
{"at":6,"status":101}
"#;
    assert_snapshot!(run("replay --policy backoff", events), @r#"
    exit 0
    --- stdout
    {"at":0,"retry":true,"delay_ms":0,"min_ms":0,"max_ms":0,"source":"refresh","reason":"unauthorized"}
    {"at":1.50,"retry":false,"delay_ms":null,"min_ms":null,"max_ms":null,"source":null,"reason":"auth_failed"}
    {"at":2,"retry":false,"delay_ms":null,"min_ms":null,"max_ms":null,"source":null,"reason":null}
    {"at":2,"retry":true,"delay_ms":0,"min_ms":0,"max_ms":0,"source":"refresh","reason":"unauthorized"}
    {"at":3,"retry":false,"delay_ms":null,"min_ms":null,"max_ms":null,"source":null,"reason":"conflict"}
    {"at":4,"retry":false,"delay_ms":null,"min_ms":null,"max_ms":null,"source":null,"reason":"rejected"}
    {"at":5,"retry":false,"delay_ms":null,"min_ms":null,"max_ms":null,"source":null,"reason":"quota_exhausted"}
    {"at":6,"retry":false,"delay_ms":null,"min_ms":null,"max_ms":null,"source":null,"reason":null}
    "#);
}

#[test]
fn backoff_counts_attempts_that_are_not_numbered() {
    let events = "{\"status\":503}\n{\"status\":401}\n{\"status\":503}\n{\"status\":503}\n";
    let args = "replay --policy backoff --jitter none --set max_attempts=3";
    assert_snapshot!(run(args, events), @r#"
    exit 0
    --- stdout
    {"retry":true,"delay_ms":1000,"min_ms":1000,"max_ms":1000,"source":"backoff","reason":"overloaded"}
    {"retry":true,"delay_ms":0,"min_ms":0,"max_ms":0,"source":"refresh","reason":"unauthorized"}
    {"retry":true,"delay_ms":2000,"min_ms":2000,"max_ms":2000,"source":"backoff","reason":"overloaded"}
    {"retry":false,"delay_ms":null,"min_ms":null,"max_ms":null,"source":null,"reason":"exhausted"}
    "#);
}

#[test]
fn bad_attempts() {
    for attempt in ["0", "-1", "1.5", "\"1\"", "4294967296"] {
        let line = format!("{{\"attempt\":{attempt},\"status\":503}}\n");
        let said = run("replay --policy backoff", &line);
        let expected = format!(
            "exit 2\n--- stderr\nerror: line 1 of stdin: `attempt` is `{attempt}`, \
             expected a whole number from 1 to 4294967295\n"
        );
        assert!(said.starts_with(&expected), "{said}");
    }
}

#[test]
fn all_bad_settings_are_reported_in_one_run() {
    let args = "replay --policy backoff --preset standart --set max_attempt=3 --set base=5 \
                --set jitter=2..1 --set max=0s";
    assert_snapshot!(run(args, ""), @"
    exit 2
    --- stderr
    error: `standart` is not a preset; did you mean `standard`?
    error: `max_attempt` is `3`, expected a known setting; did you mean `max_attempts`?
    error: `base` is `5`, expected a number with a unit such as `500ms`, `30s` or `5m`
    error: `jitter` is `2..1`, expected `none`, `full` or two factors in order such as `0.5..1.5`, the second above 0 and at most 10
    error: `max` is `0s`, expected a duration above zero
    hint: a setting is written as `--set max=10s`, by its name in the configuration, and overrides that of `--preset`
    ");
    let args = "replay --policy backoff --set base=1m --set max=30s";
    assert_snapshot!(run(args, ""), @"
    exit 2
    --- stderr
    error: `base` is `60s`, expected at most `max` (30s)
    hint: a setting is written as `--set max=10s`, by its name in the configuration, and overrides that of `--preset`
    ");
}

#[test]
fn preset_of_another_policy_is_an_error() {
    assert_snapshot!(run("replay --policy gate --preset standard", ""), @"
    exit 2
    --- stderr
    error: policy `gate` has no presets
    hint: a setting is written as `--set max_rate=8`, by its name in the configuration
    ");
    assert_snapshot!(run("replay --policy hint --preset standard --set base=1s", ""), @"
    exit 2
    --- stderr
    error: policy `hint` has no presets
    error: `base` is not a setting of policy `hint`, which has none
    hint: policies `hint` and `classify` have no settings
    ");
}

#[test]
fn explains_that_a_directed_wait_of_zero_uses_an_attempt() {
    let events = r#"{"status":429,"headers":{"retry-after":"0"}}
{"status":429,"headers":{"retry-after":"1"}}
"#;
    assert_snapshot!(run("replay --policy backoff --jitter none --explain", events), @r#"
    exit 0
    --- stdout
    {"retry":true,"delay_ms":0,"min_ms":0,"max_ms":0,"source":"retry_after","reason":"throttled","explain":"throttled because of status 429; sent again after 0s: as the server asks, attempt 1 of 5 failed"}
    {"retry":true,"delay_ms":1000,"min_ms":1000,"max_ms":1000,"source":"retry_after","reason":"throttled","explain":"throttled because of status 429; sent again after 1s: as the server asks, which uses no attempt up"}
    "#);
}
