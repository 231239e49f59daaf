//! `tidegate replay --explain`: the reason as the last field of every line.

use insta::assert_snapshot;

use crate::support::run;

fn explained(policy: &str, events: &str) -> String {
    let output = run(&format!("replay --explain --policy {policy}"), events);
    let words = output.lines().filter_map(|line| {
        let (_, words) = line.split_once(",\"explain\":\"")?;
        words.strip_suffix("\"}")
    });
    let words: Vec<&str> = words.collect();
    assert_eq!(words.len(), output.lines().count() - 2, "one on every line");
    words.join("\n")
}

#[test]
fn explain_adds_one_last_field() {
    let events = "{\"at\":0,\"acquire\":\"a.example\"}\n";
    assert_snapshot!(run("replay --policy gate --explain", events), @r#"
    exit 0
    --- stdout
    {"at":0,"decision":"admit","until":null,"reason":null,"explain":"admitted at once: a token was available, 2 requests per second"}
    "#);
}

#[test]
fn gate() {
    let events = r#"{"at":0,"acquire":"a.example"}
{"at":0,"acquire":"a.example"}
{"at":0,"acquire":"a.example"}
{"at":0.1,"settle":1,"status":200}
{"at":1.5,"settle":2,"status":429,"headers":{"retry-after":"2"}}
{"at":1.6,"settle":3,"status":429}
{"at":2,"acquire":"a.example"}
{"at":2,"acquire":"a.example"}
{"at":9,"settle":4,"failure":"timeout"}
{"at":9,"settle":5,"status":101}
"#;
    assert_snapshot!(explained("gate", events), @"
    admitted at once: a token was available, 2 requests per second
    waits for a token: 2 requests per second, leaves at 0.498 s
    waits for a token: 2 requests per second, one ahead in line, leaves at 0.998 s
    success because of status 200; 3 requests per second, raised: responses are fast and none is refused; the breaker is closed
    leaves the line: its turn came and a token was available, 3 requests per second
    leaves the line: its turn came and a token was available, 3 requests per second
    throttled because of status 429; 1.5 requests per second, lowered: the server refused and named a wait; the breaker is closed; held until 3.5 s (`retry-after`)
    throttled because of status 429; sent before the last change, so rate and breaker stay; the breaker is closed; held until 3.5 s (`retry-after`)
    waits for a hold until 3.5 s (`retry-after`), leaves at 3.5 s
    waits for a hold until 3.5 s (`retry-after`), one ahead in line, leaves at 4.166666667 s
    leaves the line: its turn came and a token was available, 1.5 requests per second
    leaves the line: its turn came and a token was available, 1.5 requests per second
    unreachable because of timeout; 1.5 requests per second, lowered: the server refused and named a wait; the breaker is closed
    no verdict: status 101 changes nothing; 1.5 requests per second, lowered: the server refused and named a wait; the breaker is closed
    ");
    let refused = r#"{"at":0,"acquire":"a.example"}
{"at":0,"acquire":"b.example"}
{"at":0,"settle":1,"status":500}
{"at":0.5,"acquire":"a.example"}
{"at":1,"acquire":"a.example"}
"#;
    let settings = "gate --set consecutive_failures=1 --set max_gates=1";
    assert_snapshot!(explained(settings, refused), @"
    admitted at once: a token was available, 2 requests per second
    refused: the maximum number of gates is in use (1)
    overloaded because of status 500; 2 requests per second, as configured; the breaker is open
    refused: the breaker is open, ask again at 1 s
    admitted at once, as a probe: the breaker is half open
    ");
    let busy = "{\"at\":0,\"acquire\":\"a.example\"}\n".repeat(3);
    let settings = "gate --set max_in_flight=1 --set strategy=aimd --set max_waiting=1";
    assert_snapshot!(explained(settings, &busy), @"
    admitted at once: a token was available, 2 requests per second
    waits for a response: the maximum number is in flight (1), when it leaves depends on responses
    refused: the line is full (1)
    ");
    let late = r#"{"at":0,"acquire":"a.example"}
{"at":0,"settle":1,"status":429,"headers":{"retry-after":"60"}}
{"at":1,"acquire":"a.example"}
"#;
    assert_snapshot!(explained("gate", late), @"
    admitted at once: a token was available, 2 requests per second
    throttled because of status 429; 2 requests per second, lowered: the server refused and named a wait; the breaker is closed; held until 60 s (`retry-after`)
    refused: it could not be admitted before its deadline, ask again at 60 s
    ");
    let off = "{\"at\":0,\"acquire\":\"a.example\"}\n{\"at\":0,\"settle\":1,\"status\":200}\n";
    assert_snapshot!(explained("gate --set enabled=false", off), @"
    admitted: gates are switched off
    nothing is learned: gates are switched off
    ");
}

#[test]
fn hint_and_classify() {
    let events = r#"{"status":429,"headers":{"retry-after":"1m30s"}}
{"status":200,"headers":{"x-ratelimit-remaining":"5","x-ratelimit-reset":"30"}}
{"status":200,"headers":{"x-ratelimit-remaining":"5"}}
{"status":200,"headers":{"x-ratelimit-reset":"30"}}
{"status":200}
"#;
    assert_snapshot!(explained("hint", events), @"
    wait for 90s (`retry-after`)
    no wait: 5 left for the next 30s (`x-ratelimit-reset`)
    no wait: 5 left (`x-ratelimit-remaining`)
    no wait: the period ends in 30s (`x-ratelimit-reset`)
    says nothing about pace
    ");
    let events = r#"{"status":403,"body":"rate limit"}
{"status":101}
{"failure":"dns"}
"#;
    assert_snapshot!(explained("classify", events), @"
    throttled because of text `rate limit`
    no verdict: status 101 changes nothing
    unreachable because of name not resolved
    ");
}

#[test]
fn failure_queue() {
    let events = r#"{"at":0,"ask":true}
{"at":0,"result":"retryable"}
{"at":1,"text":"Private video"}
{"at":2,"text":"Read timed out."}
{"at":3,"result":"success"}
"#;
    assert_snapshot!(explained("failure-queue", events), @"
    waits 30s: no recent failure
    retryable; waits 1m: base 30s, 1 recent failure, each adds it once more
    terminal by rule `private_video`; waits 1m: base 30s, 1 recent failure, each adds it once more
    retryable, no rule knows this text; waits 90s: base 30s, 2 recent failures, each adds it once more
    success; waits 1m: base 30s, 1 recent failure, each adds it once more
    ");
    assert_snapshot!(explained("failure-queue --set growth=double", events), @"
    waits 30s: no recent failure
    retryable; waits 1m: base 30s, 1 recent failure, each doubles it
    terminal by rule `private_video`; waits 1m: base 30s, 1 recent failure, each doubles it
    retryable, no rule knows this text; waits 2m: base 30s, 2 recent failures, each doubles it
    success; waits 1m: base 30s, 1 recent failure, each doubles it
    ");
}

#[test]
fn protection() {
    let events = r#"{"at":0,"start":1}
{"at":0,"start":2}
{"at":1,"finish":1,"status":429}
{"at":1,"finish":2,"status":429}
{"at":2,"ask":true}
{"at":31,"ask":true}
{"at":31,"start":3}
{"at":32,"finish":3,"status":503,"headers":{"retry-after":"90"}}
{"at":200,"start":4}
{"at":200,"finish":4,"status":404}
{"at":200,"start":5}
{"at":200,"finish":5,"status":429,"text":"rate limit"}
{"at":201,"ask":true}
{"at":201,"start":6}
{"at":201,"finish":6,"success":true}
{"at":202,"enable":true}
{"at":202,"ask":true}
{"at":203,"start":7}
{"at":203,"finish":7,"success":true}
"#;
    assert_snapshot!(explained("protection --set disable_after=3", events), @"
    attempt 1 starts in epoch 0
    attempt 2 starts in epoch 0
    paused for 30s: first error in a row (HTTP 429)
    changes nothing: it started before the last pause, or before a person interfered
    paused for 29s more (HTTP 429)
    recovering: one request at a time until one succeeds, the next error is the second
    attempt 3 starts in epoch 1
    paused for 1m 30s, as the server asks (`retry-after`): second error in a row (HTTP 503)
    attempt 4 starts in epoch 2
    noted, no step: not an error that climbs (HTTP 404)
    attempt 5 starts in epoch 2
    disabled until a person enables it, and paused for 2m: third error in a row (rate limit)
    disabled after 3 errors in a row (rate limit)
    attempt 6 starts in epoch 3
    changes nothing: only a person enables it again
    enabled by a person: all error state is cleared
    free: no error since the last success
    attempt 7 starts in epoch 4
    changes nothing: it is not an error, and there is nothing to clear
    ");
}

#[test]
fn poll() {
    let events = r#"{"at":0,"status":200}
{"at":2,"status":200,"progress":1}
{"at":5,"status":200,"progress":30}
{"at":8,"status":200,"progress":70}
{"at":10,"status":429}
{"at":12,"status":429,"headers":{"retry-after":"9"}}
{"at":21,"status":500}
{"at":400,"status":429}
{"at":401,"status":200}
"#;
    assert_snapshot!(explained("poll", events), @"
    asks again in 2s: nothing is known about the job yet
    asks again in 3s: the job is below 30 %
    asks again in 2500ms: the job is from 30 % to below 70 %
    asks again in 2s: the job is at 70 % or more
    asks again in 2s: the server refused (one 429 since the last success)
    asks again in 9s: the server named a wait longer than our own (2 times 429 since the last success)
    asks again in 1s: an error that may pass (2 times 429 since the last success)
    never asks again, gave_up: no success for too long (3 times 429 since the last success)
    never asks again, gave_up: it had already ended (3 times 429 since the last success)
    ");
}
