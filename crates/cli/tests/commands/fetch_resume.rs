//! `tidegate fetch --resume`: interrupted, killed, and with a disk that is full.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use insta::assert_snapshot;
use serde_json::Value;

use crate::support::{shown, tidegate};
use crate::web_server::{WebServer, page, status};

/// Runs in `folder`, without limits, so that nothing waits.
fn command(folder: &Path, args: &str) -> Command {
    let mut command = tidegate(&format!("fetch --no-robots {args}"));
    command
        .current_dir(folder)
        .env("TIDEGATE_GATE__ENABLED", "false")
        .stdin(Stdio::null());
    command
}

fn write_urls(server: &WebServer, count: usize, folder: &Path) {
    let urls: String = (0..count)
        .map(|n| format!("{}/{n}\n", server.url))
        .collect();
    fs::write(folder.join("urls"), urls).unwrap();
}

/// URLs in the lines, sorted, with repetitions.
fn urls(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap();
    let mut urls: Vec<String> = text
        .lines()
        .map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            line["url"].as_str().unwrap().to_owned()
        })
        .collect();
    urls.sort_unstable();
    urls
}

/// Whenever it is killed, a later run goes on, and every URL is in the output exactly once.
#[test]
fn every_url_is_written_once_over_many_kills() {
    const URLS: usize = 400;
    const KILLS: usize = 25;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let server = WebServer::new(|path, _| match path.ends_with("13") {
        true => status(404, ""),
        false => page(path),
    });
    write_urls(&server, URLS, folder);
    let args = "-i urls --resume state --jsonl lines --out pages --concurrency 3 -q";
    let mut kills = 0;
    while kills < KILLS {
        let mut child = command(folder, args).spawn().unwrap();
        // Some of the runs are killed before they have sent anything.
        server.wait_for(server.heads().len() + kills % 13);
        child.kill().unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), None, "{}", shown(&output));
        kills += 1;
    }
    let output = command(folder, args).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    let mut expected: Vec<String> = (0..URLS).map(|n| format!("{}/{n}", server.url)).collect();
    expected.sort_unstable();
    assert_eq!(urls(&folder.join("lines")), expected);
    let lines = fs::read_to_string(folder.join("lines")).unwrap();
    let mut files = BTreeSet::new();
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let Some(file) = line["file"].as_str() else {
            assert_eq!(line["status"], 404);
            continue;
        };
        assert!(files.insert(file.to_owned()), "{file}");
        let body = fs::read_to_string(folder.join("pages").join(file)).unwrap();
        let url = line["url"].as_str().unwrap();
        assert_eq!(url, format!("{}{body}", server.url));
    }
    assert_eq!(
        fs::read_dir(folder.join("pages/.tidegate-tmp"))
            .unwrap()
            .count(),
        0
    );
    // A run that has nothing left to do changes nothing.
    let requests = server.heads().len();
    let output = command(folder, args).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert_eq!(server.heads().len(), requests);
    assert_eq!(fs::read_to_string(folder.join("lines")).unwrap(), lines);
}

fn interrupt(pid: u32) {
    let sent = Command::new("kill")
        .args(["-INT", &pid.to_string()])
        .status();
    assert!(sent.unwrap().success());
}

#[test]
fn the_first_signal_finishes_what_is_in_flight() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let server = WebServer::new(|_, _| page("<title>x</title>"));
    write_urls(&server, 2000, folder);
    let args = "-i urls --resume state --jsonl lines --report r.html --concurrency 2";
    let child = command(folder, args).spawn().unwrap();
    server.wait_for(20);
    interrupt(child.id());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", shown(&output));
    let text = shown(&output);
    assert!(text.contains("interrupted: "), "{text}");
    assert!(
        text.contains("finishing what is in flight; a second signal quits at once"),
        "{text}"
    );
    let first = urls(&folder.join("lines"));
    assert!((1..2000).contains(&first.len()), "{}", first.len());
    let report: Value =
        serde_json::from_str(&fs::read_to_string(folder.join("r.json")).unwrap()).unwrap();
    assert_eq!(report["is_complete"], false);
    // Everything that was sent has its line.
    assert_eq!(server.heads().len(), first.len());
    // The state has the URLs.
    let args = "--resume state --jsonl lines -q";
    let output = command(folder, args).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let mut expected: Vec<String> = (0..2000).map(|n| format!("{}/{n}", server.url)).collect();
    expected.sort_unstable();
    assert_eq!(urls(&folder.join("lines")), expected);
    assert_eq!(server.heads().len(), 2000);
}

#[test]
fn lines_of_another_fetch_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let server = WebServer::new(|_, _| page("x"));
    let url = &server.url;
    let run = |args: &str| shown(&command(folder, args).output().unwrap()).replace(url, "URL");
    run(&format!("{url}/a --resume state --jsonl lines"));
    run(&format!("{url}/b --jsonl other"));
    let text = fs::read_to_string(folder.join("other")).unwrap();
    assert_snapshot!(run(&format!("{url}/a --resume state --jsonl other")), @"
    exit 2
    --- stderr
    error: line 1 of `other` is not from the fetch of this state
    hint: a state belongs to one file of lines; choose another file for `--jsonl`
    ");
    assert_eq!(fs::read_to_string(folder.join("other")).unwrap(), text);
    fs::write(folder.join("notes"), "my notes\n").unwrap();
    assert_snapshot!(run(&format!("{url}/a --resume notes")), @"
    exit 2
    --- stderr
    error: cannot go on from `notes`: line 1 is not of a fetch, expected the state file of an earlier fetch
    ");
    assert_eq!(
        fs::read_to_string(folder.join("notes")).unwrap(),
        "my notes\n"
    );
}

/// Where no disk can be mounted, nothing is tested.
#[test]
fn a_full_disk_fails_the_urls_that_do_not_fit() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let mounted = |program: &str, args: &[&str]| -> std::io::Result<Output> {
        let mount = "mount -t tmpfs -o size=1m none disk && exec \"$0\" \"$@\"";
        let mut command = Command::new("unshare");
        command
            .args(["--map-root-user", "--mount", "sh", "-c", mount, program])
            .args(args)
            .env("TIDEGATE_GATE__ENABLED", "false")
            .current_dir(&folder)
            .stdin(Stdio::null());
        command.output()
    };
    if !mounted("true", &[]).is_ok_and(|output| output.status.success()) {
        println!("no disk can be mounted here");
        return;
    }
    let server = WebServer::new(|path, _| match path.starts_with("/large") {
        true => page(&"x".repeat(3 << 20)),
        false => page("small"),
    });
    let urls =
        ["large1", "small1", "large2", "small2"].map(|name| format!("{}/{name}", server.url));
    let mut args = vec![
        "fetch",
        "--no-robots",
        "--out",
        "disk",
        "--jsonl",
        "-",
        "--concurrency",
        "1",
    ];
    args.extend(urls.iter().map(String::as_str));
    let output = mounted(env!("CARGO_BIN_EXE_tidegate"), &args).unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let ends: Vec<String> = lines
        .iter()
        .map(|line| format!("{} {}", line["error"], line["message"]))
        .collect();
    assert_snapshot!(ends.join("\n"), @r#"
    "not_stored" "the body cannot be stored: No space left on device (os error 28)"
    null null
    "not_stored" "the body cannot be stored: No space left on device (os error 28)"
    null null
    "#);
}
