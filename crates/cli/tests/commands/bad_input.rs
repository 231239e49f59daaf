//! Every kind of bad line, and what is said about it.

use std::fmt::Write;

use insta::assert_snapshot;

use crate::support::{output, shown};

/// Replays each of `lines` alone, behind `before`, and shows what is said about it.
fn said(policy: &str, before: &str, lines: &[&str]) -> String {
    let mut said = String::new();
    for line in lines {
        let output = output(
            &format!("replay --policy {policy}"),
            format!("{before}{line}\n").as_bytes(),
        );
        assert_eq!(output.status.code(), Some(2), "{line}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        writeln!(said, "{line}\n{stderr}").unwrap();
    }
    said
}

#[test]
fn lines_that_are_no_event() {
    assert_snapshot!(
        said(
            "gate",
            "",
            &["", "   ", "[0,\"a\"]", "12", "{\"at\":0", "{\"at\":0}}", "{\"at\":0,\"at\":1}", "{at:0}"]
        ),
        @""
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
    assert_snapshot!(said("gate", "{\"at\":5,\"acquire\":\"a\"}\n", &lines), @"");
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
    assert_snapshot!(said("gate", "", &lines), @"");
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
    assert_snapshot!(said("gate", "{\"at\":0,\"acquire\":\"a\"}\n", &lines), @"");
}

#[test]
fn settling_what_is_not_out() {
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
    assert_snapshot!(said(policy, before, &lines), @"");
}

#[test]
fn long_values_and_control_characters_are_cut() {
    let long = format!(r#"{{"at":"{}","acquire":"a"}}"#, "9".repeat(1000));
    let lines = [&*long, "{\"at\":\"\u{9b}31m\",\"acquire\":\"a\"}"];
    assert_snapshot!(said("gate", "", &lines).replace(&long, "…"), @"");
}

#[test]
fn other_policies() {
    let status = [
        r#"{"status":"429"}"#,
        r#"{"headers":1}"#,
        r#"{"now":"x"}"#,
        r#"{"at":-1}"#,
    ];
    assert_snapshot!(said("hint", "{}\n", &status), @"");
    let reply = ["{}", r#"{"status":1}"#, r#"{"failure":1}"#];
    assert_snapshot!(said("classify", "", &reply), @"");
}

#[test]
fn bytes_that_are_no_text() {
    assert_snapshot!(shown(&output("replay --policy hint", b"{}\n{\"a\":\"\xff\"}\n")), @"");
}

#[test]
fn an_endless_line() {
    assert_snapshot!(shown(&output("replay --policy hint", &vec![b' '; 17 << 20])), @"");
}
