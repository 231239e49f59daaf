//! `tidegate run` with real programs: paced, classified by their packs, retried, completed.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::client::program;
use crate::packs::{git, make_repository};
use crate::scripted::{Reply, ScriptedServer};
use crate::yt_dlp::yt_dlp;

/// Runs `tidegate run` over `items` with a gap of 100 ms; its exit code and events.
fn tidegate_run(pack: &str, items: &[&str], program: &Command) -> (i32, Vec<Value>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    for (variable, _) in std::env::vars_os() {
        if variable.to_string_lossy().starts_with("TIDEGATE_") {
            command.env_remove(variable);
        }
    }
    for (variable, value) in program.get_envs() {
        match value {
            Some(value) => command.env(variable, value),
            None => command.env_remove(variable),
        };
    }
    command.args(["run", "--json", "--rules", pack, "--base", "100ms"]);
    command.args(["--attempts", "5"]).args(items).arg("--");
    command.arg(program.get_program()).args(program.get_args());
    command.current_dir(program.get_current_dir().unwrap_or_else(|| Path::new("/")));
    let output = command.stdin(Stdio::null()).output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    let events = stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let events: Vec<Value> = events.collect();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!events.is_empty(), "{command:?}: {stderr}");
    check_gaps(&events);
    (output.status.code().unwrap(), events)
}

/// Every attempt starts a gap after the end of the one before, and each failure makes the gap longer.
fn check_gaps(events: &[Value]) {
    let number = |event: &Value, name: &str| event[name].as_u64().unwrap();
    let mut earliest = 0;
    for event in events {
        match event["event"].as_str().unwrap() {
            // Times are cut to milliseconds.
            "started" => assert!(number(event, "at_ms") + 1 >= earliest, "{events:#?}"),
            "ended" => {
                let gap = number(event, "gap_ms");
                assert_eq!(gap, 100 * (1 + number(event, "failures")));
                earliest = number(event, "at_ms") + gap;
            }
            _ => {}
        }
    }
}

/// Class and rule of every attempt of an item.
fn attempts(events: &[Value], item: &str) -> Vec<String> {
    let ended = events
        .iter()
        .filter(|event| event["event"] == "ended" && event["item"] == item);
    let shown = ended.map(|event| {
        let rule = event["rule"].as_str().unwrap_or("-");
        format!("{} {rule}", event["class"].as_str().unwrap())
    });
    shown.collect()
}

#[test]
fn yt_dlp_is_retried_until_a_video_is_there_and_a_private_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let server = ScriptedServer::start(|_, number| match number {
        1 => Reply::Hang,
        2 => Reply::Status(429),
        3 => Reply::Status(403),
        _ => Reply::File("video/mp4", vec![7; 1000]),
    });
    let video = server.url("/video.mp4");
    let mut command = yt_dlp(folder.path());
    command.args(["--socket-timeout", "1", "{}"]);
    let (exit, events) = tidegate_run("yt-dlp", &[&video, "example:private"], &command);
    assert_eq!(exit, 1, "{events:#?}");
    assert_eq!(
        attempts(&events, &video),
        [
            "retryable network",
            "retryable rate_limited",
            "retryable forbidden",
            "success -"
        ]
    );
    assert_eq!(
        attempts(&events, "example:private"),
        ["terminal private_video"]
    );
    let file = fs::read(folder.path().join("video.mp4")).unwrap();
    assert_eq!(file, vec![7; 1000]);
    // One request for each failure, two for the download: yt-dlp did not retry by itself.
    assert_eq!(server.count("/video.mp4"), 5);
}

#[test]
fn curl_and_wget_are_retried_unless_a_page_does_not_exist() {
    let folder = tempfile::tempdir().unwrap();
    let curl: &[&str] = &["--disable", "--fail", "--silent", "--show-error", "{}"];
    let wget: &[&str] = &[
        "--no-config",
        "--no-verbose",
        "--tries=1",
        "--output-document=-",
        "{}",
    ];
    for (name, args) in [("curl", curl), ("wget", wget)] {
        let server = ScriptedServer::start(|path, number| match (path, number) {
            ("/none", _) => Reply::Status(404),
            (_, 1) => Reply::Status(429),
            (_, 2) => Reply::Status(503),
            _ => Reply::Status(200),
        });
        let (page, none) = (server.url("/page"), server.url("/none"));
        let mut command = program(name);
        command.args(args).env("LC_ALL", "C");
        command.current_dir(folder.path());
        let (exit, events) = tidegate_run(name, &[&page, &none], &command);
        assert_eq!(exit, 1, "{events:#?}");
        let expected = [
            "retryable rate_limited",
            "retryable server_error",
            "success -",
        ];
        assert_eq!(attempts(&events, &page), expected, "{name}");
        assert_eq!(attempts(&events, &none), ["terminal not_found"], "{name}");
        assert_eq!(server.count("/page"), 3, "{name}");
    }
}

#[test]
fn git_is_retried_unless_a_repository_does_not_exist() {
    let folder = tempfile::tempdir().unwrap();
    let repository = folder.path().join("repository.git");
    make_repository(&repository);
    let server = ScriptedServer::start(move |path, number| {
        let file = path.strip_prefix("/repository.git/");
        let file = file.and_then(|file| fs::read(repository.join(file)).ok());
        match (file, number) {
            (Some(_), 1) => Reply::Status(503),
            (Some(bytes), _) => Reply::File("text/plain", bytes),
            (None, _) => Reply::Status(404),
        }
    });
    let (whole, none) = (server.url("/repository.git"), server.url("/none.git"));
    let mut command = git();
    command.args(["ls-remote", "{}"]).current_dir(folder.path());
    let (exit, events) = tidegate_run("git", &[&whole, &none], &command);
    assert_eq!(exit, 1, "{events:#?}");
    let attempts = |item: &str| attempts(&events, item);
    assert_eq!(attempts(&none), ["terminal not_found"]);
    let whole = attempts(&whole);
    assert_eq!(whole.last().unwrap(), "success -", "{whole:?}");
    assert!(whole.len() > 1, "{whole:?}");
    assert!(
        whole[..whole.len() - 1]
            .iter()
            .all(|attempt| attempt == "retryable server_error")
    );
}
