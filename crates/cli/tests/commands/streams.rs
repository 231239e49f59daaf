//! `tidegate replay`: where events are read from, and when decisions are printed.

use std::io::{BufRead, BufReader, Read, Write};

use insta::assert_snapshot;

use crate::support::{output, run, shown, tidegate};

const REPLAY: &str = "replay --policy gate --set strategy=aimd";

#[test]
fn replay_answers_each_line_before_reading_the_next() {
    let mut child = tidegate(REPLAY).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut answer = String::new();
    for at in 0..3 {
        // The line itself may arrive in pieces, after another one.
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
fn closed_stdout_is_not_an_error() {
    let mut child = tidegate(REPLAY).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{{\"at\":0,\"acquire\":\"a.example\"}}").unwrap();
    let mut answer = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut answer).unwrap();
    drop(stdout);
    // The process may end before this is written.
    while writeln!(stdin, "{{\"at\":1,\"acquire\":\"a.example\"}}").is_ok() {}
    drop(stdin);
    assert_snapshot!(shown(&child.wait_with_output().unwrap()), @"exit 0");
}

#[cfg(target_os = "linux")]
#[test]
fn replay_fails_if_stdout_cannot_be_written() {
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
fn replay_reads_files_as_one_stream_with_own_line_numbers() {
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
fn replay_gives_the_same_for_files_and_stdin() {
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
fn replay_reports_all_missing_files_before_it_starts() {
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
fn replay_prints_nothing_without_events() {
    assert_snapshot!(run(REPLAY, ""), @"exit 0");
}

#[test]
fn replay_prints_the_decisions_before_a_bad_line() {
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
