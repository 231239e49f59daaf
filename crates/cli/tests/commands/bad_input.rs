//! Every kind of bad line, with its error message.

use std::fmt::Write;

use insta::assert_snapshot;

use crate::support::{output, shown};

/// Replays each of `lines` alone, after `before`, and shows the error message.
pub(crate) fn said(policy: &str, before: &str, lines: &[&str]) -> String {
    let mut said = String::new();
    for line in lines {
        let output = output(
            &format!("replay --policy {policy}"),
            format!("{before}{line}\n").as_bytes(),
        );
        assert_eq!(output.status.code(), Some(2), "{line}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        writeln!(said, "`{line}`\n{stderr}").unwrap();
    }
    said
}

#[test]
fn rejects_lines_that_are_not_events() {
    assert_snapshot!(
        said(
            "gate",
            "",
            &["", "   ", "[0,\"a\"]", "12", "{\"at\":0", "{\"at\":0}}", "{\"at\":0,\"at\":1}", "{at:0}"]
        ),
        @r#"
        ``
        error: line 1 of stdin: blank, expected a JSON object
        hint: every line is one event, written as one JSON object

        `   `
        error: line 1 of stdin: blank, expected a JSON object
        hint: every line is one event, written as one JSON object

        `[0,"a"]`
        error: line 1 of stdin: not a JSON object
        hint: every line is one event, written as one JSON object

        `12`
        error: line 1 of stdin: not a JSON object
        hint: every line is one event, written as one JSON object

        `{"at":0`
        error: line 1 of stdin: not a JSON object: EOF while parsing an object at column 7
        hint: every line is one event, written as one JSON object

        `{"at":0}}`
        error: line 1 of stdin: not a JSON object: trailing characters at column 9
        hint: every line is one event, written as one JSON object

        `{"at":0,"at":1}`
        error: line 1 of stdin: not a JSON object: duplicate field `at` at column 12
        hint: every line is one event, written as one JSON object

        `{at:0}`
        error: line 1 of stdin: not a JSON object: key must be a string at column 2
        hint: every line is one event, written as one JSON object
        "#
    );
}

#[test]
fn times() {
    let lines = [
        r#"{"acquire":"a"}"#,
        r#"{"at":null,"acquire":"a"}"#,
        r#"{"at":"1","acquire":"a"}"#,
        r#"{"at":-1,"acquire":"a"}"#,
        r#"{"at":1e999,"acquire":"a"}"#,
        r#"{"at":[1],"acquire":"a"}"#,
        r#"{"at":4.999999999,"acquire":"a"}"#,
    ];
    assert_snapshot!(said("gate", "{\"at\":5,\"acquire\":\"a\"}\n", &lines), @r#"
    `{"acquire":"a"}`
    error: line 2 of stdin: `at` is missing, expected seconds from the start
    hint: `at` is a number of seconds, such as `{"at":1.25}`

    `{"at":null,"acquire":"a"}`
    error: line 2 of stdin: `at` is missing, expected seconds from the start
    hint: `at` is a number of seconds, such as `{"at":1.25}`

    `{"at":"1","acquire":"a"}`
    error: line 2 of stdin: `at` is `"1"`, expected seconds from the start, 0 to 18446744073
    hint: `at` is a number of seconds, such as `{"at":1.25}`

    `{"at":-1,"acquire":"a"}`
    error: line 2 of stdin: `at` is `-1`, expected seconds from the start, 0 to 18446744073
    hint: `at` is a number of seconds, such as `{"at":1.25}`

    `{"at":1e999,"acquire":"a"}`
    error: line 2 of stdin: `at` is `1e999`, expected seconds from the start, 0 to 18446744073
    hint: `at` is a number of seconds, such as `{"at":1.25}`

    `{"at":[1],"acquire":"a"}`
    error: line 2 of stdin: `at` is `[1]`, expected seconds from the start, 0 to 18446744073
    hint: `at` is a number of seconds, such as `{"at":1.25}`

    `{"at":4.999999999,"acquire":"a"}`
    error: line 2 of stdin: `at` is `4.999999999`, expected at least `5`, the time of the event before
    hint: events are in order of time; those at the same time act in the order given
    "#);
}

#[test]
fn actions() {
    let lines = [
        r#"{"at":0}"#,
        r#"{"at":0,"acquire":"a","settle":1}"#,
        r#"{"at":0,"acquire":7}"#,
        r#"{"at":0,"acquire":""}"#,
        r#"{"at":0,"acquire":"example.com/path"}"#,
        r#"{"at":0,"settle":"1","status":200}"#,
        r#"{"at":0,"settle":1.0,"status":200}"#,
        r#"{"at":0,"settle":-1,"status":200}"#,
    ];
    assert_snapshot!(said("gate", "", &lines), @r#"
    `{"at":0}`
    error: line 1 of stdin: has neither `acquire` nor `settle`, expected one of them
    hint: events are `{"at":0,"acquire":"example.com"}` and `{"at":1,"settle":1,"status":200}`

    `{"at":0,"acquire":"a","settle":1}`
    error: line 1 of stdin: has both `acquire` and `settle`, expected one of them
    hint: events are `{"at":0,"acquire":"example.com"}` and `{"at":1,"settle":1,"status":200}`

    `{"at":0,"acquire":7}`
    error: line 1 of stdin: `acquire` is `7`, expected a key, as a string
    hint: events are `{"at":0,"acquire":"example.com"}` and `{"at":1,"settle":1,"status":200}`

    `{"at":0,"acquire":""}`
    error: line 1 of stdin: `acquire` is ``, expected a host, such as `example.com`
    hint: a key is a host, with a port where it matters, such as `api.example.com:8080`

    `{"at":0,"acquire":"example.com/path"}`
    error: line 1 of stdin: `acquire` is `example.com/…`, expected a scheme before user info, path or query, such as `https://`
    hint: a key is a host, with a port where it matters, such as `api.example.com:8080`

    `{"at":0,"settle":"1","status":200}`
    error: line 1 of stdin: `settle` is `"1"`, expected the number of an acquire line, from 1
    hint: events are `{"at":0,"acquire":"example.com"}` and `{"at":1,"settle":1,"status":200}`

    `{"at":0,"settle":1.0,"status":200}`
    error: line 1 of stdin: `settle` is `1.0`, expected the number of an acquire line, from 1
    hint: events are `{"at":0,"acquire":"example.com"}` and `{"at":1,"settle":1,"status":200}`

    `{"at":0,"settle":-1,"status":200}`
    error: line 1 of stdin: `settle` is `-1`, expected the number of an acquire line, from 1
    hint: events are `{"at":0,"acquire":"example.com"}` and `{"at":1,"settle":1,"status":200}`
    "#);
}

#[test]
fn results() {
    let lines = [
        r#"{"at":0,"settle":1}"#,
        r#"{"at":0,"settle":1,"status":200,"failure":"reset"}"#,
        r#"{"at":0,"settle":1,"status":99}"#,
        r#"{"at":0,"settle":1,"status":1000}"#,
        r#"{"at":0,"settle":1,"status":200.5}"#,
        r#"{"at":0,"settle":1,"status":"200"}"#,
        r#"{"at":0,"settle":1,"failure":"weather"}"#,
        r#"{"at":0,"settle":1,"status":200,"latency_ms":-1}"#,
        r#"{"at":0,"settle":1,"status":200,"latency_ms":"80"}"#,
        r#"{"at":0,"settle":1,"status":200,"headers":["a"]}"#,
        r#"{"at":0,"settle":1,"status":200,"headers":{"retry-after":2}}"#,
        r#"{"at":0,"settle":1,"status":200,"headers":{"authorization":[true]}}"#,
        r#"{"at":0,"settle":1,"status":200,"body":{"error":"secret"}}"#,
        r#"{"at":0,"settle":1,"status":200,"now":1794722400}"#,
        r#"{"at":0,"settle":1,"status":200,"now":"today"}"#,
    ];
    assert_snapshot!(said("gate", "{\"at\":0,\"acquire\":\"a\"}\n", &lines), @r#"
    `{"at":0,"settle":1}`
    error: line 2 of stdin: has neither `status` nor `failure`, expected one of them
    hint: an attempt ends with `"status":200` or `"failure":"timeout"`

    `{"at":0,"settle":1,"status":200,"failure":"reset"}`
    error: line 2 of stdin: has both `status` and `failure`, expected one of them
    hint: an attempt ends with `"status":200` or `"failure":"timeout"`

    `{"at":0,"settle":1,"status":99}`
    error: line 2 of stdin: `status` is `99`, expected a whole number from 100 to 999
    hint: an attempt ends with `"status":200` or `"failure":"timeout"`

    `{"at":0,"settle":1,"status":1000}`
    error: line 2 of stdin: `status` is `1000`, expected a whole number from 100 to 999
    hint: an attempt ends with `"status":200` or `"failure":"timeout"`

    `{"at":0,"settle":1,"status":200.5}`
    error: line 2 of stdin: `status` is `200.5`, expected a whole number from 100 to 999
    hint: an attempt ends with `"status":200` or `"failure":"timeout"`

    `{"at":0,"settle":1,"status":"200"}`
    error: line 2 of stdin: `status` is `"200"`, expected a whole number from 100 to 999
    hint: an attempt ends with `"status":200` or `"failure":"timeout"`

    `{"at":0,"settle":1,"failure":"weather"}`
    error: line 2 of stdin: `failure` is `"weather"`, expected `connect`, `timeout`, `reset`, `dns` or `tls`
    hint: an attempt ends with `"status":200` or `"failure":"timeout"`

    `{"at":0,"settle":1,"status":200,"latency_ms":-1}`
    error: line 2 of stdin: `latency_ms` is `-1`, expected milliseconds, 0 or more
    hint: leave it out to have it counted from the admission

    `{"at":0,"settle":1,"status":200,"latency_ms":"80"}`
    error: line 2 of stdin: `latency_ms` is `"80"`, expected milliseconds, 0 or more
    hint: leave it out to have it counted from the admission

    `{"at":0,"settle":1,"status":200,"headers":["a"]}`
    error: line 2 of stdin: `headers` is a list, expected an object of names and values
    hint: write them as `"headers":{"retry-after":"2"}`

    `{"at":0,"settle":1,"status":200,"headers":{"retry-after":2}}`
    error: line 2 of stdin: header `retry-after` is a number, expected a string, or a list of strings
    hint: write them as `"headers":{"retry-after":"2"}`

    `{"at":0,"settle":1,"status":200,"headers":{"authorization":[true]}}`
    error: line 2 of stdin: header `authorization` is a list, expected a string, or a list of strings
    hint: write them as `"headers":{"retry-after":"2"}`

    `{"at":0,"settle":1,"status":200,"body":{"error":"secret"}}`
    error: line 2 of stdin: `body` is an object, expected a string
    hint: a JSON body is written as a string: `"{\"error\":\"…\"}"`

    `{"at":0,"settle":1,"status":200,"now":1794722400}`
    error: line 2 of stdin: `now` is `1794722400`, expected a time as in RFC 3339
    hint: write it as `"2026-11-15T06:00:00Z"`

    `{"at":0,"settle":1,"status":200,"now":"today"}`
    error: line 2 of stdin: `now` is `"today"`, expected a time as in RFC 3339
    hint: write it as `"2026-11-15T06:00:00Z"`
    "#);
}

#[test]
fn rejects_settling_what_is_not_in_flight() {
    // The second waits, the third is refused: its turn would come after its deadline.
    let before = "{\"at\":0,\"acquire\":\"a\"}\n\
                  {\"at\":0,\"acquire\":\"a\"}\n\
                  {\"at\":0,\"acquire\":\"a\"}\n\
                  {\"at\":1,\"settle\":1,\"status\":200}\n";
    let lines = [
        r#"{"at":1,"settle":0,"status":200}"#,
        r#"{"at":1,"settle":1,"status":200}"#,
        r#"{"at":1,"settle":2,"status":200}"#,
        r#"{"at":1,"settle":3,"status":200}"#,
        r#"{"at":1,"settle":4,"status":200}"#,
    ];
    let policy = "gate --set strategy=fixed --set initial_rate=0.1 --set max_wait=15s";
    assert_snapshot!(said(policy, before, &lines), @r#"
    `{"at":1,"settle":0,"status":200}`
    error: line 5 of stdin: `settle` is `0`, expected one of the 3 acquires so far
    hint: `settle` counts acquire lines from 1; each admitted one is settled once

    `{"at":1,"settle":1,"status":200}`
    error: line 5 of stdin: `settle` is `1`, which was refused or is settled already, expected one that was admitted
    hint: `settle` counts acquire lines from 1; each admitted one is settled once

    `{"at":1,"settle":2,"status":200}`
    error: line 5 of stdin: `settle` is `2`, which still waits, expected one that was admitted
    hint: `settle` counts acquire lines from 1; each admitted one is settled once

    `{"at":1,"settle":3,"status":200}`
    error: line 5 of stdin: `settle` is `3`, which was refused or is settled already, expected one that was admitted
    hint: `settle` counts acquire lines from 1; each admitted one is settled once

    `{"at":1,"settle":4,"status":200}`
    error: line 5 of stdin: `settle` is `4`, expected one of the 3 acquires so far
    hint: `settle` counts acquire lines from 1; each admitted one is settled once
    "#);
}

#[test]
fn shortens_long_values_and_escapes_control_characters() {
    let long = format!(r#"{{"at":"{}","acquire":"a"}}"#, "9".repeat(1000));
    let lines = [&*long, "{\"at\":\"\u{9b}31m\",\"acquire\":\"a\"}"];
    let said = said("gate", "", &lines);
    assert_snapshot!(said.replace(&long, "…").replace('\u{9b}', "(CSI)"), @r#"
    `…`
    error: line 1 of stdin: `at` is `"99999999999999999999999999999999999999999999999999999999999…`, expected seconds from the start, 0 to 18446744073
    hint: `at` is a number of seconds, such as `{"at":1.25}`

    `{"at":"(CSI)31m","acquire":"a"}`
    error: line 1 of stdin: `at` is `" 31m"`, expected seconds from the start, 0 to 18446744073
    hint: `at` is a number of seconds, such as `{"at":1.25}`
    "#);
}

#[test]
fn other_policies() {
    let status = [
        r#"{"status":"429"}"#,
        r#"{"headers":1}"#,
        r#"{"now":"x"}"#,
        r#"{"at":-1}"#,
    ];
    assert_snapshot!(said("hint", "{}\n", &status), @r#"
    `{"status":"429"}`
    error: line 2 of stdin: `status` is `"429"`, expected a whole number from 100 to 999
    hint: an attempt ends with `"status":200` or `"failure":"timeout"`

    `{"headers":1}`
    error: line 2 of stdin: `headers` is a number, expected an object of names and values
    hint: write them as `"headers":{"retry-after":"2"}`

    `{"now":"x"}`
    error: line 2 of stdin: `now` is `"x"`, expected a time as in RFC 3339
    hint: write it as `"2026-11-15T06:00:00Z"`

    `{"at":-1}`
    error: line 2 of stdin: `at` is `-1`, expected seconds from the start, 0 to 18446744073
    hint: `at` is a number of seconds, such as `{"at":1.25}`
    "#);
    let reply = ["{}", r#"{"status":1}"#, r#"{"failure":1}"#];
    assert_snapshot!(said("classify", "", &reply), @r#"
    `{}`
    error: line 1 of stdin: has neither `status` nor `failure`, expected one of them
    hint: an attempt ends with `"status":200` or `"failure":"timeout"`

    `{"status":1}`
    error: line 1 of stdin: `status` is `1`, expected a whole number from 100 to 999
    hint: an attempt ends with `"status":200` or `"failure":"timeout"`

    `{"failure":1}`
    error: line 1 of stdin: `failure` is `1`, expected `connect`, `timeout`, `reset`, `dns` or `tls`
    hint: an attempt ends with `"status":200` or `"failure":"timeout"`
    "#);
}

#[test]
fn rejects_bytes_that_are_not_utf8() {
    assert_snapshot!(shown(&output("replay --policy hint", b"{}\n{\"a\":\"\xff\"}\n")), @r#"
    exit 2
    --- stdout
    {"wait_ms":null}
    --- stderr
    error: line 2 of stdin: byte 7 is not UTF-8
    hint: events are JSON in UTF-8; other characters can be written as `\u00e9`
    "#);
}

#[test]
fn rejects_a_line_that_is_too_long() {
    assert_snapshot!(shown(&output("replay --policy hint", &vec![b' '; 17 << 20])), @"
    exit 2
    --- stderr
    error: line 1 of stdin: longer than 16 MiB, expected one event
    hint: write every event on a separate line
    ");
}
