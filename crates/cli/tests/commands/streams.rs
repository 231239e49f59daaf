//! Where events come from, and when answers go out.

use std::io::{BufRead, BufReader, Read, Write};

use insta::assert_snapshot;

use crate::support::{output, run, shown, tidegate};

const REPLAY: &str = "replay --policy gate --set strategy=aimd";

#[test]
fn each_line_is_answered_before_the_next_is_sent() {
    let mut child = tidegate(REPLAY).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut answer = String::new();
    for at in 0..3 {
        // Also when the line itself comes in pieces, behind another one.
        write!(stdin, "{{\"at\":{at},").unwrap();
        write!(stdin, "\"acquire\":\"a.example\"}}\n{{\"at\":{at},").unwrap();
        answer.clear();
        stdout.read_line(&mut answer).unwrap();
        assert!(answer.contains(&format!("\"at\":{at},\"decision\":\"admit\"")));
        writeln!(stdin, "\"acquire\":\"b.example\"}}").unwrap();
        answer.clear();
        stdout.read_line(&mut answer).unwrap();
        assert!(answer.contains(&format!("\"at\":{at},\"decision\":\"admit\"")));
    }
    drop(stdin);
    assert_eq!(stdout.read_to_string(&mut answer).unwrap(), 0);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_reader_that_has_seen_enough_is_an_ordinary_end() {
    let mut child = tidegate(REPLAY).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{{\"at\":0,\"acquire\":\"a.example\"}}").unwrap();
    let mut answer = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut answer).unwrap();
    drop(stdout);
    // Once it finds out, nobody reads this any more either.
    while writeln!(stdin, "{{\"at\":1,\"acquire\":\"a.example\"}}").is_ok() {}
    drop(stdin);
    assert_snapshot!(shown(&child.wait_with_output().unwrap()), @"exit 0");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_a_failure() {
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let mut child = tidegate(REPLAY).stdout(full).spawn().unwrap();
    writeln!(
        child.stdin.take().unwrap(),
        "{{\"at\":0,\"acquire\":\"a.example\"}}"
    )
    .unwrap();
    assert_snapshot!(shown(&child.wait_with_output().unwrap()), @"
    exit 1
    --- stderr
    error: cannot write to stdout: No space left on device (os error 28)
    ");
}

#[test]
fn files_are_one_stream_with_lines_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let first = folder.path().join("first.jsonl");
    let second = folder.path().join("second.jsonl");
    std::fs::write(&first, "{\"at\":0,\"acquire\":\"a.example\"}\n").unwrap();
    std::fs::write(
        &second,
        "{\"at\":2,\"settle\":1,\"status\":200}\n{\"at\":1}\n",
    )
    .unwrap();
    let args = format!("{REPLAY} {} - {}", first.display(), second.display());
    let output = output(&args, b"{\"at\":1,\"acquire\":\"a.example\"}");
    let shown = shown(&output).replace(&*folder.path().to_string_lossy(), "FOLDER");
    assert_snapshot!(shown, @r#"
    exit 2
    --- stdout
    {"at":0,"decision":"admit","until":null,"reason":null}
    {"at":1,"decision":"admit","until":null,"reason":null}
    {"at":2,"verdict":"success","rate":1,"breaker":"closed","hold_until":null,"error_rate":0,"consecutive_failures":0}
    --- stderr
    error: line 2 of `FOLDER/second.jsonl`: has neither `acquire` nor `settle`, expected one of them
    hint: events are `{"at":0,"acquire":"example.com"}` and `{"at":1,"settle":1,"status":200}`
    "#);
}

#[test]
fn files_and_stdin_give_the_same() {
    let events = "{\"at\":0,\"acquire\":\"a.example\"}\n{\"at\":1,\"settle\":1,\"status\":429}\n";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("events.jsonl");
    std::fs::write(&file, events).unwrap();
    let from_stdin = run(REPLAY, events);
    assert_eq!(from_stdin, run(&format!("{REPLAY} -"), events));
    assert_eq!(from_stdin, run(&format!("{REPLAY} {}", file.display()), ""));
    assert_eq!(from_stdin, run(REPLAY, events.trim_end()));
    assert_eq!(from_stdin, run(REPLAY, &events.replace('\n', "\r\n")));
}

#[test]
fn every_missing_file_is_named_before_anything_is_done() {
    assert_snapshot!(
        run(&format!("{REPLAY} - none.jsonl nothing.jsonl /"), "{\"at\":0,\"acquire\":\"a\"}"),
        @"
        exit 2
        --- stderr
        error: cannot read `none.jsonl`: No such file or directory (os error 2)
        error: cannot read `nothing.jsonl`: No such file or directory (os error 2)
        error: cannot read `/`: it is a directory, expected a file of events
        hint: give files of JSON Lines, or `-` for stdin
        "
    );
}

#[test]
fn no_events_are_no_answers() {
    assert_snapshot!(run(REPLAY, ""), @"exit 0");
}

#[test]
fn what_came_before_a_bad_line_is_written() {
    assert_snapshot!(
        run(REPLAY, "{\"at\":0,\"acquire\":\"a.example\"}\n\n{\"at\":0,\"acquire\":\"a.example\"}\n"),
        @r#"
        exit 2
        --- stdout
        {"at":0,"decision":"admit","until":null,"reason":null}
        --- stderr
        error: line 2 of stdin: blank, expected a JSON object
        hint: every line is one event, written as one JSON object
        "#
    );
}
