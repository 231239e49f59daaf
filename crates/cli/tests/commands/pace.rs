//! `tidegate replay`: failure queue, protection and poll on valid and invalid input.

use insta::assert_snapshot;

use crate::bad_input::said;
use crate::support::run;

#[test]
fn failure_queue_counts_and_waits() {
    let events = r#"{"at":0,"ask":true}
{"at":0,"result":"retryable"}
{"at":1.50,"result":"retryable"}
{"at":2,"text":"ERROR: [youtube] Private video. Sign in"}
{"at":3,"text":"Sign in to confirm you're not a bot"}
{"at":4,"text":"Read timed out."}
{"at":5,"result":"success"}
{"at":6,"result":"terminal"}
{"at":301.5,"ask":true}
{"at":303,"ask":true}
{"at":1000,"ask":true}
"#;
    assert_snapshot!(run("replay --policy failure-queue", events), @r#"
    exit 0
    --- stdout
    {"at":0,"failures":0,"wait_ms":30000,"class":null}
    {"at":0,"failures":1,"wait_ms":60000,"class":"retryable"}
    {"at":1.50,"failures":2,"wait_ms":90000,"class":"retryable"}
    {"at":2,"failures":2,"wait_ms":90000,"class":"terminal"}
    {"at":3,"failures":3,"wait_ms":120000,"class":"bot_check"}
    {"at":4,"failures":4,"wait_ms":150000,"class":"retryable"}
    {"at":5,"failures":3,"wait_ms":120000,"class":"success"}
    {"at":6,"failures":3,"wait_ms":120000,"class":"terminal"}
    {"at":301.5,"failures":2,"wait_ms":90000,"class":null}
    {"at":303,"failures":1,"wait_ms":60000,"class":null}
    {"at":1000,"failures":0,"wait_ms":30000,"class":null}
    "#);
    let settings = "--set base=10s --set max_size=2 --set max_age=0s --set growth=double";
    assert_snapshot!(run(&format!("replay --policy failure-queue {settings}"), events), @r#"
    exit 0
    --- stdout
    {"at":0,"failures":0,"wait_ms":10000,"class":null}
    {"at":0,"failures":1,"wait_ms":20000,"class":"retryable"}
    {"at":1.50,"failures":2,"wait_ms":40000,"class":"retryable"}
    {"at":2,"failures":2,"wait_ms":40000,"class":"terminal"}
    {"at":3,"failures":2,"wait_ms":40000,"class":"bot_check"}
    {"at":4,"failures":2,"wait_ms":40000,"class":"retryable"}
    {"at":5,"failures":1,"wait_ms":20000,"class":"success"}
    {"at":6,"failures":1,"wait_ms":20000,"class":"terminal"}
    {"at":301.5,"failures":1,"wait_ms":20000,"class":null}
    {"at":303,"failures":1,"wait_ms":20000,"class":null}
    {"at":1000,"failures":1,"wait_ms":20000,"class":null}
    "#);
}

#[test]
fn failure_queue_jitter_is_repeatable_and_removable() {
    let events = "{\"at\":0,\"ask\":true}\n{\"at\":0,\"ask\":true}\n";
    let replay = "replay --policy failure-queue --set variance=5s";
    assert_eq!(
        run(replay, events),
        run(&format!("{replay} --seed 0"), events)
    );
    assert_snapshot!(run(&format!("{replay} --seed 7"), events), @r#"
    exit 0
    --- stdout
    {"at":0,"failures":0,"wait_ms":31950,"class":null}
    {"at":0,"failures":0,"wait_ms":30084,"class":null}
    "#);
    assert_snapshot!(run(&format!("{replay} --seed 8"), events), @r#"
    exit 0
    --- stdout
    {"at":0,"failures":0,"wait_ms":33093,"class":null}
    {"at":0,"failures":0,"wait_ms":33060,"class":null}
    "#);
    assert_snapshot!(run(&format!("{replay} --seed 8 --jitter none"), events), @r#"
    exit 0
    --- stdout
    {"at":0,"failures":0,"wait_ms":30000,"class":null}
    {"at":0,"failures":0,"wait_ms":30000,"class":null}
    "#);
}

#[test]
fn protection_pauses_disables_and_is_enabled_again() {
    let events = r#"{"at":0,"start":1}
{"at":0,"start":2}
{"at":0,"start":3}
{"at":0.2,"finish":1,"status":429,"text":"slow down"}
{"at":0.3,"finish":2,"status":503,"note":"of the same epoch as the first: no second step"}
{"at":5,"finish":3,"success":true,"note":"late"}
{"at":30.1999,"ask":true}
{"at":30.2,"ask":true}
{"at":31,"start":4}
{"at":32,"finish":4,"status":429,"headers":{"retry-after":"7"}}
{"at":40,"start":5}
{"at":41,"finish":5,"status":400}
{"at":42,"start":6}
{"at":43,"finish":6,"text":"HTTP 502 from upstream"}
{"at":200,"start":7}
{"at":201,"finish":7,"success":true}
{"at":202,"start":8}
{"at":203,"finish":8,"status":429,"text":"You exceeded your current quota"}
{"at":5000,"ask":true}
{"at":5001,"enable":true}
"#;
    assert_snapshot!(run("replay --policy protection", events), @r#"
    exit 0
    --- stdout
    {"at":0,"enabled":true,"paused":false,"paused_until":null,"remaining_s":0,"consecutive_errors":0,"last_error":null}
    {"at":0,"enabled":true,"paused":false,"paused_until":null,"remaining_s":0,"consecutive_errors":0,"last_error":null}
    {"at":0,"enabled":true,"paused":false,"paused_until":null,"remaining_s":0,"consecutive_errors":0,"last_error":null}
    {"at":0.2,"enabled":true,"paused":true,"paused_until":30.2,"remaining_s":30,"consecutive_errors":1,"last_error":"slow down"}
    {"at":0.3,"enabled":true,"paused":true,"paused_until":30.2,"remaining_s":30,"consecutive_errors":1,"last_error":"slow down"}
    {"at":5,"enabled":true,"paused":true,"paused_until":30.2,"remaining_s":26,"consecutive_errors":1,"last_error":"slow down"}
    {"at":30.1999,"enabled":true,"paused":true,"paused_until":30.2,"remaining_s":1,"consecutive_errors":1,"last_error":"slow down"}
    {"at":30.2,"enabled":true,"paused":false,"paused_until":30.2,"remaining_s":0,"consecutive_errors":1,"last_error":"slow down"}
    {"at":31,"enabled":true,"paused":false,"paused_until":30.2,"remaining_s":0,"consecutive_errors":1,"last_error":"slow down"}
    {"at":32,"enabled":true,"paused":true,"paused_until":39,"remaining_s":7,"consecutive_errors":2,"last_error":"HTTP 429"}
    {"at":40,"enabled":true,"paused":false,"paused_until":39,"remaining_s":0,"consecutive_errors":2,"last_error":"HTTP 429"}
    {"at":41,"enabled":true,"paused":false,"paused_until":39,"remaining_s":0,"consecutive_errors":2,"last_error":"HTTP 400"}
    {"at":42,"enabled":true,"paused":false,"paused_until":39,"remaining_s":0,"consecutive_errors":2,"last_error":"HTTP 400"}
    {"at":43,"enabled":true,"paused":true,"paused_until":163,"remaining_s":120,"consecutive_errors":3,"last_error":"HTTP 502 from upstream"}
    {"at":200,"enabled":true,"paused":false,"paused_until":163,"remaining_s":0,"consecutive_errors":3,"last_error":"HTTP 502 from upstream"}
    {"at":201,"enabled":true,"paused":false,"paused_until":null,"remaining_s":0,"consecutive_errors":0,"last_error":null}
    {"at":202,"enabled":true,"paused":false,"paused_until":null,"remaining_s":0,"consecutive_errors":0,"last_error":null}
    {"at":203,"enabled":false,"paused":false,"paused_until":null,"remaining_s":0,"consecutive_errors":0,"last_error":"You exceeded your current quota"}
    {"at":5000,"enabled":false,"paused":false,"paused_until":null,"remaining_s":0,"consecutive_errors":0,"last_error":"You exceeded your current quota"}
    {"at":5001,"enabled":true,"paused":false,"paused_until":null,"remaining_s":0,"consecutive_errors":0,"last_error":null}
    "#);
}

#[test]
fn protection_follows_its_settings() {
    let mut events = String::new();
    for (number, ending) in [
        r#""status":429"#,
        r#""status":418"#,
        r#""failure":"timeout""#,
        r#""text":"out of coffee""#,
        r#""status":200,"text":"rate limit""#,
        r#""success":false,"status":401,"text":"out of coffee""#,
    ]
    .iter()
    .enumerate()
    {
        events.push_str(&format!("{{\"at\":{number},\"start\":{number}}}\n"));
        events.push_str(&format!(
            "{{\"at\":{number},\"finish\":{number},{ending}}}\n"
        ));
    }
    let settings = "--set pauses=1s,2s --set disable_after=10 --set statuses=418 \
                    --set texts=coffee --set unreachable=true";
    assert_snapshot!(run(&format!("replay --policy protection {settings}"), &events), @r#"
    exit 0
    --- stdout
    {"at":0,"enabled":true,"paused":false,"paused_until":null,"remaining_s":0,"consecutive_errors":0,"last_error":null}
    {"at":0,"enabled":true,"paused":false,"paused_until":null,"remaining_s":0,"consecutive_errors":0,"last_error":"HTTP 429"}
    {"at":1,"enabled":true,"paused":false,"paused_until":null,"remaining_s":0,"consecutive_errors":0,"last_error":"HTTP 429"}
    {"at":1,"enabled":true,"paused":true,"paused_until":2,"remaining_s":1,"consecutive_errors":1,"last_error":"HTTP 418"}
    {"at":2,"enabled":true,"paused":false,"paused_until":2,"remaining_s":0,"consecutive_errors":1,"last_error":"HTTP 418"}
    {"at":2,"enabled":true,"paused":true,"paused_until":4,"remaining_s":2,"consecutive_errors":2,"last_error":"timeout"}
    {"at":3,"enabled":true,"paused":true,"paused_until":4,"remaining_s":1,"consecutive_errors":2,"last_error":"timeout"}
    {"at":3,"enabled":true,"paused":true,"paused_until":5,"remaining_s":2,"consecutive_errors":3,"last_error":"out of coffee"}
    {"at":4,"enabled":true,"paused":true,"paused_until":5,"remaining_s":1,"consecutive_errors":3,"last_error":"out of coffee"}
    {"at":4,"enabled":true,"paused":false,"paused_until":null,"remaining_s":0,"consecutive_errors":0,"last_error":null}
    {"at":5,"enabled":true,"paused":false,"paused_until":null,"remaining_s":0,"consecutive_errors":0,"last_error":null}
    {"at":5,"enabled":true,"paused":false,"paused_until":null,"remaining_s":0,"consecutive_errors":0,"last_error":"out of coffee"}
    "#);
    assert_snapshot!(run("replay --policy protection --set enabled=false", &events), @r#"
    exit 0
    --- stdout
    {"at":0,"enabled":true,"paused":false,"paused_until":null,"remaining_s":0,"consecutive_errors":0,"last_error":null}
    {"at":0,"enabled":true,"paused":false,"paused_until":null,"remaining_s":0,"consecutive_errors":0,"last_error":null}
    {"at":1,"enabled":true,"paused":false,"paused_until":null,"remaining_s":0,"consecutive_errors":0,"last_error":null}
    {"at":1,"enabled":true,"paused":false,"paused_until":null,"remaining_s":0,"consecutive_errors":0,"last_error":null}
    {"at":2,"enabled":true,"paused":false,"paused_until":null,"remaining_s":0,"consecutive_errors":0,"last_error":null}
    {"at":2,"enabled":true,"paused":false,"paused_until":null,"remaining_s":0,"consecutive_errors":0,"last_error":null}
    {"at":3,"enabled":true,"paused":false,"paused_until":null,"remaining_s":0,"consecutive_errors":0,"last_error":null}
    {"at":3,"enabled":true,"paused":false,"paused_until":null,"remaining_s":0,"consecutive_errors":0,"last_error":null}
    {"at":4,"enabled":true,"paused":false,"paused_until":null,"remaining_s":0,"consecutive_errors":0,"last_error":null}
    {"at":4,"enabled":true,"paused":false,"paused_until":null,"remaining_s":0,"consecutive_errors":0,"last_error":null}
    {"at":5,"enabled":true,"paused":false,"paused_until":null,"remaining_s":0,"consecutive_errors":0,"last_error":null}
    {"at":5,"enabled":true,"paused":false,"paused_until":null,"remaining_s":0,"consecutive_errors":0,"last_error":null}
    "#);
}

#[test]
fn poll_follows_a_job_to_its_end() {
    let events = r#"{"at":0,"status":200}
{"at":2,"status":200,"job":"queued"}
{"at":5,"status":200,"job":"running","progress":12}
{"at":8,"status":429,"headers":{}}
{"at":10,"status":429,"headers":{"retry-after":"10"}}
{"at":20,"status":503}
{"at":21,"failure":"timeout"}
{"at":23,"status":200,"progress":69.9}
{"at":25.5,"status":200,"job":"running","progress":70}
{"at":27.5,"status":200,"job":"done","progress":100}
{"at":30,"status":429}
"#;
    assert_snapshot!(run("replay --policy poll", events), @r#"
    exit 0
    --- stdout
    {"at":0,"state":"polling","next_ms":2000,"consecutive_429":0,"banner":false}
    {"at":2,"state":"polling","next_ms":3000,"consecutive_429":0,"banner":false}
    {"at":5,"state":"polling","next_ms":3000,"consecutive_429":0,"banner":false}
    {"at":8,"state":"slowed","next_ms":2000,"consecutive_429":1,"banner":true}
    {"at":10,"state":"slowed","next_ms":10000,"consecutive_429":2,"banner":true}
    {"at":20,"state":"slowed","next_ms":1000,"consecutive_429":2,"banner":true}
    {"at":21,"state":"slowed","next_ms":2000,"consecutive_429":2,"banner":true}
    {"at":23,"state":"polling","next_ms":2500,"consecutive_429":0,"banner":false}
    {"at":25.5,"state":"polling","next_ms":2000,"consecutive_429":0,"banner":false}
    {"at":27.5,"state":"done","next_ms":null,"consecutive_429":0,"banner":false}
    {"at":30,"state":"done","next_ms":null,"consecutive_429":0,"banner":false}
    "#);
}

#[test]
fn poll_ends_in_every_way() {
    let check = |events: &str| run("replay --policy poll", events);
    assert_snapshot!(check("{\"at\":0,\"status\":404}\n{\"at\":1,\"status\":200}\n"), @r#"
    exit 0
    --- stdout
    {"at":0,"state":"not_found","next_ms":null,"consecutive_429":0,"banner":false}
    {"at":1,"state":"not_found","next_ms":null,"consecutive_429":0,"banner":false}
    "#);
    assert_snapshot!(check("{\"at\":0,\"status\":429,\"headers\":{\"retry-after\":\"301\"}}\n"), @r#"
    exit 0
    --- stdout
    {"at":0,"state":"gave_up","next_ms":null,"consecutive_429":1,"banner":true}
    "#);
    assert_snapshot!(check("{\"at\":0,\"status\":200,\"job\":\"cancelled\"}\n"), @r#"
    exit 0
    --- stdout
    {"at":0,"state":"failed","next_ms":null,"consecutive_429":0,"banner":false}
    "#);
    assert_snapshot!(check("{\"at\":0,\"status\":429,\"job\":\"done\"}\n"), @r#"
    exit 0
    --- stdout
    {"at":0,"state":"done","next_ms":null,"consecutive_429":0,"banner":false}
    "#);
    let errors = "{\"at\":0,\"status\":500}\n".repeat(4);
    assert_snapshot!(check(&errors), @r#"
    exit 0
    --- stdout
    {"at":0,"state":"polling","next_ms":1000,"consecutive_429":0,"banner":false}
    {"at":0,"state":"polling","next_ms":2000,"consecutive_429":0,"banner":false}
    {"at":0,"state":"polling","next_ms":4000,"consecutive_429":0,"banner":false}
    {"at":0,"state":"failed","next_ms":null,"consecutive_429":0,"banner":false}
    "#);
    let silence = "{\"at\":0,\"status\":200}\n{\"at\":300,\"status\":429}\n\
                   {\"at\":300.001,\"status\":429}\n{\"at\":302,\"status\":200}\n";
    assert_snapshot!(check(silence), @r#"
    exit 0
    --- stdout
    {"at":0,"state":"polling","next_ms":2000,"consecutive_429":0,"banner":false}
    {"at":300,"state":"slowed","next_ms":2000,"consecutive_429":1,"banner":true}
    {"at":300.001,"state":"gave_up","next_ms":null,"consecutive_429":2,"banner":true}
    {"at":302,"state":"gave_up","next_ms":null,"consecutive_429":2,"banner":true}
    "#);
    let settings = "--set early=1s --set base=1s --set max=3s --set other_retries=0";
    let events = "{\"at\":0,\"status\":200,\"progress\":1}\n{\"at\":1,\"status\":429}\n\
                  {\"at\":2,\"status\":429}\n{\"at\":4,\"status\":429}\n{\"at\":7,\"status\":500}\n";
    assert_snapshot!(run(&format!("replay --policy poll {settings}"), events), @r#"
    exit 0
    --- stdout
    {"at":0,"state":"polling","next_ms":1000,"consecutive_429":0,"banner":false}
    {"at":1,"state":"slowed","next_ms":1000,"consecutive_429":1,"banner":true}
    {"at":2,"state":"slowed","next_ms":2000,"consecutive_429":2,"banner":true}
    {"at":4,"state":"slowed","next_ms":3000,"consecutive_429":3,"banner":true}
    {"at":7,"state":"failed","next_ms":null,"consecutive_429":3,"banner":true}
    "#);
}

#[test]
fn bad_lines_of_the_failure_queue() {
    let lines = [
        r#"{"at":0}"#,
        r#"{"result":"success"}"#,
        r#"{"at":0,"result":"failed"}"#,
        r#"{"at":0,"result":"success","text":"x"}"#,
        r#"{"at":0,"text":7}"#,
        r#"{"at":0,"ask":false}"#,
    ];
    assert_snapshot!(said("failure-queue", "", &lines), @r#"
    `{"at":0}`
    error: line 1 of stdin: has none of `result`, `text`, `ask`, expected one of them
    hint: events are `{"at":0,"result":"retryable"}`, `{"at":1,"text":"Private video"}` and `{"at":9,"ask":true}`

    `{"result":"success"}`
    error: line 1 of stdin: `at` is missing, expected seconds from the start
    hint: `at` is a number of seconds, such as `{"at":1.25}`

    `{"at":0,"result":"failed"}`
    error: line 1 of stdin: `result` is `"failed"`, expected `success`, `retryable` or `terminal`
    hint: events are `{"at":0,"result":"retryable"}`, `{"at":1,"text":"Private video"}` and `{"at":9,"ask":true}`

    `{"at":0,"result":"success","text":"x"}`
    error: line 1 of stdin: has both `result` and `text`, expected one of them
    hint: events are `{"at":0,"result":"retryable"}`, `{"at":1,"text":"Private video"}` and `{"at":9,"ask":true}`

    `{"at":0,"text":7}`
    error: line 1 of stdin: `text` is a number, expected a string
    hint: write it as `"text":"Too Many Requests"`

    `{"at":0,"ask":false}`
    error: line 1 of stdin: `ask` is `false`, expected `true`
    hint: events are `{"at":0,"result":"retryable"}`, `{"at":1,"text":"Private video"}` and `{"at":9,"ask":true}`
    "#);
}

#[test]
fn bad_lines_of_protection() {
    let before = "{\"at\":1,\"start\":1}\n{\"at\":1,\"finish\":1,\"success\":true}\n{\"at\":1,\"start\":2}\n";
    let lines = [
        r#"{"at":1}"#,
        r#"{"at":1,"start":2}"#,
        r#"{"at":1,"start":"2"}"#,
        r#"{"at":1,"start":3,"ask":true}"#,
        r#"{"at":1,"finish":1,"success":true}"#,
        r#"{"at":1,"finish":9,"success":true}"#,
        r#"{"at":1,"finish":2}"#,
        r#"{"at":1,"finish":2,"success":false}"#,
        r#"{"at":1,"finish":2,"success":1}"#,
        r#"{"at":1,"finish":2,"success":true,"status":429}"#,
        r#"{"at":1,"finish":2,"status":429,"failure":"reset"}"#,
        r#"{"at":1,"finish":2,"status":42}"#,
        r#"{"at":1,"enable":1}"#,
        r#"{"at":0.5,"ask":true}"#,
    ];
    assert_snapshot!(said("protection", before, &lines), @r#"
    `{"at":1}`
    error: line 4 of stdin: has none of `start`, `finish`, `enable`, `ask`, expected one of them
    hint: events are `{"at":0,"start":1}`, `{"at":1,"finish":1,"status":429}`, `{"at":5,"enable":true}` and `{"at":31,"ask":true}`

    `{"at":1,"start":2}`
    error: line 4 of stdin: `start` is `2`, which is under way already, expected another number
    hint: every attempt has a number, is started once and finished once

    `{"at":1,"start":"2"}`
    error: line 4 of stdin: `start` is `"2"`, expected the number of an attempt
    hint: events are `{"at":0,"start":1}`, `{"at":1,"finish":1,"status":429}`, `{"at":5,"enable":true}` and `{"at":31,"ask":true}`

    `{"at":1,"start":3,"ask":true}`
    error: line 4 of stdin: has both `start` and `ask`, expected one of them
    hint: events are `{"at":0,"start":1}`, `{"at":1,"finish":1,"status":429}`, `{"at":5,"enable":true}` and `{"at":31,"ask":true}`

    `{"at":1,"finish":1,"success":true}`
    error: line 4 of stdin: `finish` is `1`, which has not started or is finished already, expected one that is under way
    hint: every attempt has a number, is started once and finished once

    `{"at":1,"finish":9,"success":true}`
    error: line 4 of stdin: `finish` is `9`, which has not started or is finished already, expected one that is under way
    hint: every attempt has a number, is started once and finished once

    `{"at":1,"finish":2}`
    error: line 4 of stdin: has none of `status`, `text`, `failure` and `success`, expected how it ended
    hint: an attempt ends with `"status":429`, `"text":"…"`, `"failure":"timeout"` or `"success":true`

    `{"at":1,"finish":2,"success":false}`
    error: line 4 of stdin: has none of `status`, `text`, `failure` and `success`, expected how it ended
    hint: an attempt ends with `"status":429`, `"text":"…"`, `"failure":"timeout"` or `"success":true`

    `{"at":1,"finish":2,"success":1}`
    error: line 4 of stdin: `success` is `1`, expected `true` or `false`
    hint: an attempt ends with `"status":429`, `"text":"…"`, `"failure":"timeout"` or `"success":true`

    `{"at":1,"finish":2,"success":true,"status":429}`
    error: line 4 of stdin: has `success` and an error, expected one of them
    hint: an attempt ends with `"status":429`, `"text":"…"`, `"failure":"timeout"` or `"success":true`

    `{"at":1,"finish":2,"status":429,"failure":"reset"}`
    error: line 4 of stdin: has both `status` and `failure`, expected one of them
    hint: an attempt ends with `"status":429`, `"text":"…"`, `"failure":"timeout"` or `"success":true`

    `{"at":1,"finish":2,"status":42}`
    error: line 4 of stdin: `status` is `42`, expected a whole number from 100 to 999
    hint: an attempt ends with `"status":200` or `"failure":"timeout"`

    `{"at":1,"enable":1}`
    error: line 4 of stdin: `enable` is `1`, expected `true`
    hint: events are `{"at":0,"start":1}`, `{"at":1,"finish":1,"status":429}`, `{"at":5,"enable":true}` and `{"at":31,"ask":true}`

    `{"at":0.5,"ask":true}`
    error: line 4 of stdin: `at` is `0.5`, expected at least `1`, the time of the event before
    hint: events are in order of time; those at the same time act in the order given
    "#);
}

#[test]
fn bad_lines_of_poll() {
    let lines = [
        r#"{"status":200}"#,
        r#"{"at":0}"#,
        r#"{"at":0,"status":200,"failure":"reset"}"#,
        r#"{"at":0,"status":200,"job":7}"#,
        r#"{"at":0,"status":200,"progress":"12"}"#,
        r#"{"at":0,"status":200,"progress":1e999}"#,
    ];
    assert_snapshot!(said("poll", "", &lines), @r#"
    `{"status":200}`
    error: line 1 of stdin: `at` is missing, expected seconds from the start
    hint: `at` is a number of seconds, such as `{"at":1.25}`

    `{"at":0}`
    error: line 1 of stdin: has neither `status` nor `failure`, expected one of them
    hint: an attempt ends with `"status":200` or `"failure":"timeout"`

    `{"at":0,"status":200,"failure":"reset"}`
    error: line 1 of stdin: has both `status` and `failure`, expected one of them
    hint: an attempt ends with `"status":200` or `"failure":"timeout"`

    `{"at":0,"status":200,"job":7}`
    error: line 1 of stdin: `job` is `7`, expected a word, as a string
    hint: write it as `"job":"running","progress":12`

    `{"at":0,"status":200,"progress":"12"}`
    error: line 1 of stdin: `progress` is `"12"`, expected a number of per cent
    hint: write it as `"job":"running","progress":12`

    `{"at":0,"status":200,"progress":1e999}`
    error: line 1 of stdin: `progress` is `1e999`, expected a number of per cent
    hint: write it as `"job":"running","progress":12`
    "#);
}

#[test]
fn bad_settings() {
    let check = |args: &str| run(&format!("replay --policy {args}"), "");
    assert_snapshot!(check("failure-queue --set max_size=0 --set growth=fast --set pauses=1s"), @"
    exit 2
    --- stderr
    error: `max_size` is `0`, expected a whole number from 1 to 100000
    error: `growth` is `fast`, expected `linear` or `double`
    error: `pauses` is `1s`, expected a known setting: base, max_size, max_age, growth, variance, attempts, give_up_after
    hint: a setting is written as `--set max_size=5`, by its name in `[run]`
    ");
    assert_snapshot!(check("protection --set pauses=0s --set disable_after=11 --set statuses=401"), @"
    exit 2
    --- stderr
    error: `pauses` is `0s`, expected a duration of at least 1s
    error: `disable_after` is `11`, expected a whole number from 1 to 10
    error: `statuses` is `401`, expected a whole number from 400 to 999 except 401, 409, 412
    hint: a setting is written as `--set pauses=30s,60s`, by its name in `[pool.NAME.protection]`
    ");
    assert_snapshot!(check("poll --set base=20s --set max=10s --set early=3"), @"
    exit 2
    --- stderr
    error: `early` is `3`, expected a number with a unit such as `500ms`, `30s` or `5m`
    error: `base` is `20s`, expected at most `max` (10s)
    hint: a setting is written as `--set max=15s`, by its name in `[poll]`
    ");
}
