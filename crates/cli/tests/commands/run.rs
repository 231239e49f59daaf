//! `tidegate run` with real processes: what is printed, exit codes, journal, bad input.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use insta::assert_snapshot;
use serde_json::Value;

use crate::support::{output, shown, tidegate};

/// Runs it with arguments that may have blanks.
fn run(options: &str, command: &[&str], input: &str) -> String {
    shown(&finished(options, command, input))
}

fn finished(options: &str, command: &[&str], input: &str) -> std::process::Output {
    use std::io::Write;
    let mut child = tidegate(&format!("run {options} --"));
    let mut child = child.args(command).spawn().unwrap();
    _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

#[test]
fn prints_a_line_per_end_and_a_summary() {
    let script = r#"case $0 in b) echo "ERROR: Private video" >&2; exit 1;; c) exit 3;; esac"#;
    let command = ["sh", "-c", script, "{}"];
    assert_snapshot!(run("--base 0s --attempts 2 --rules yt-dlp", &command, "a\nb\nc\n"), @"
    exit 1
    --- stdout
    done a in 1s
    failed b: ERROR: Private video (rejected by private_video, attempt 1 of 2)
    retry c: exit code 3, and no rule matches (retryable, attempt 1 of 2)
    failed c: exit code 3, and no rule matches (exhausted, attempt 2 of 2)
    1 done, 2 failed in 1s
      b  rejected by private_video: ERROR: Private video
      c  exhausted after 2 attempts: exit code 3, and no rule matches
    ");
}

#[test]
fn prints_events_as_json() {
    let command = ["sh", "-c", "test $0 = a", "{}"];
    let ended = finished("--json --base 10ms --attempts 1", &command, "a\nb\n");
    assert_eq!(ended.status.code(), Some(1));
    let text = String::from_utf8(ended.stdout).unwrap();
    let events: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let names: Vec<&str> = events
        .iter()
        .map(|event| event["event"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "started",
            "ended",
            "waiting",
            "started",
            "ended",
            "failed_item",
            "summary"
        ]
    );
    assert_eq!(
        (&events[1]["failures"], &events[1]["gap_ms"]),
        (&0.into(), &10.into())
    );
    assert_eq!(
        (&events[4]["failures"], &events[4]["gap_ms"]),
        (&1.into(), &20.into())
    );
    assert_eq!(events[4]["reason"], "exhausted");
    assert_eq!(events[6]["failed"], 1);
}

/// One failure and five failures, with a short base. The processes write down when they began and
/// ended: what `run` says of it may come later on a busy machine, and the gap would look shorter.
#[test]
fn gaps_are_real() {
    for (failing, gaps) in [(1, &[200, 100][..]), (5, &[200, 300, 400, 500, 600, 100])] {
        let folder = tempfile::tempdir().unwrap();
        let times = folder.path().join("times");
        let items: String = (0..=gaps.len()).map(|item| format!("{item}\n")).collect();
        let script =
            format!("date +%s%N >>$1; test $0 -ge {failing}; code=$?; date +%s%N >>$1; exit $code");
        let command = ["sh", "-c", &script, "{}", &times.display().to_string()];
        finished("--base 100ms --attempts 1", &command, &items);

        let times = fs::read_to_string(&times).unwrap();
        let times: Vec<u64> = times.lines().map(|time| time.parse().unwrap()).collect();
        assert_eq!(times.len(), 2 * (gaps.len() + 1));
        let between = times[1..].chunks_exact(2).map(|pair| pair[1] - pair[0]);
        for (between, gap) in between.zip(gaps) {
            assert!(
                between >= gap * 1_000_000,
                "{between} ns, expected {gap} ms"
            );
        }
    }
}

#[test]
fn bad_input_is_refused_with_what_was_expected() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("dash"), "a\n-rf\n").unwrap();
    fs::write(path("hosts"), "https://a.example/\nno host\n").unwrap();
    fs::write(path("classes"), "[[rule]]\ntext = ['x']\nclass = 'maybe'\n").unwrap();
    let check = |options: &str, command: &[&str], expected: &str| {
        let ended = finished(options, command, "");
        let shown = shown(&ended).replace(&folder.path().display().to_string(), "DIR");
        assert!(shown.starts_with("exit 2\n--- stderr\n"), "{shown}");
        assert!(shown.contains(expected), "{expected}: {shown}");
    };
    let echo: &[&str] = &["echo", "{}"];
    check("a", &[], "there is no command");
    check("a", &["echo"], "the command has no argument `{}`");
    check("a", &["echo", "x={}"], "`{}` is a part of `x={}`");
    check("a", &["{}"], "the command itself is `{}`");
    check(
        "a",
        &["no-such-program", "{}"],
        "there is no program `no-such-program`",
    );
    check(
        "a",
        &["/etc/passwd", "{}"],
        "`/etc/passwd` may not be executed",
    );
    check(
        &format!("-i {}", path("missing")),
        echo,
        "cannot read the items of `DIR/missing`",
    );
    check(
        &format!("-i {}", path("dash")),
        echo,
        "DIR/dash:2: `-rf` starts with `-`",
    );
    check(
        &format!("--per-host -i {}", path("hosts")),
        echo,
        "DIR/hosts:2: `no host` has no site",
    );
    check("--rules youtube a", echo, "expected a pack");
    check(&format!("--rules {} a", path("classes")), echo, "maybe");
    check("--base 30 a", echo, "`--base` is `30`");
    check(
        "-j 0 a",
        echo,
        "`--jobs` is `0`, expected a whole number from 1 to 1000",
    );
    check(
        &format!("--journal {}/no/journal a", path("x")),
        echo,
        "cannot use the journal",
    );
}

#[test]
fn dash_items_of_stdin_fail_without_being_run() {
    let text = run("--base 0s", &["echo", "{}"], "-n\nok\n");
    assert!(text.starts_with("exit 1\n"), "{text}");
    assert!(text.contains("-n  refused: `-n` starts with `-`"), "{text}");
    let text = run("--base 0s --allow-dash", &["echo", "{}"], "-n\n");
    assert!(text.starts_with("exit 0\n"), "{text}");
}

#[test]
fn journal_of_another_command_or_list_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal").display().to_string();
    let options = |items: &str| format!("--base 0s --journal {journal} {items}");
    assert!(run(&options("a b"), &["true", "{}"], "").starts_with("exit 0\n"));
    let before = fs::read(&journal).unwrap();
    let text = run(&options("a b"), &["echo", "{}"], "");
    assert!(
        text.contains("another command: `true {}`, not `echo {}`"),
        "{text}"
    );
    let text = run(&options("a c"), &["true", "{}"], "");
    assert!(
        text.contains("another list: 1 of its items are not in this one"),
        "{text}"
    );
    assert!(text.starts_with("exit 2\n"), "{text}");
    let text = run(
        &format!("--base 0s --journal {journal}"),
        &["true", "{}"],
        "c\n",
    );
    assert!(text.contains("another list: 2 of its items"), "{text}");
    assert_eq!(fs::read(&journal).unwrap(), before);
    // A longer list goes on; finished items do not run again.
    let text = run(
        &format!("--base 0s --journal {journal}"),
        &["true", "{}"],
        "a\nb\na\n",
    );
    assert!(
        text.contains("3 done, 0 failed, 2 of them earlier"),
        "{text}"
    );
}

#[test]
fn second_run_on_a_journal_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal").display().to_string();
    let options = format!("run --journal {journal} x -- sleep");
    let mut first = tidegate(&format!("{options} {{}}"));
    let mut first = first.arg("600").spawn();
    let first = first.as_mut().unwrap();
    // The lock is taken before the header is written.
    while fs::read(&journal).is_ok_and(|bytes| bytes.is_empty()) || !fs::exists(&journal).unwrap() {
        thread::yield_now();
    }
    let text = shown(&output(&format!("{options} {{}} 600"), b""));
    assert!(text.contains("another run uses the journal"), "{text}");
    assert!(text.starts_with("exit 2\n"), "{text}");
    first.kill().unwrap();
    first.wait().unwrap();
}

#[test]
fn logs_have_a_file_per_item() {
    let folder = tempfile::tempdir().unwrap();
    let logs = folder.path().join("logs");
    let options = format!("--base 0s --logs {} a/b", logs.display());
    let text = run(
        &options,
        &["sh", "-c", "echo out $0; echo err >&2", "{}"],
        "",
    );
    assert!(text.starts_with("exit 0\n"), "{text}");
    let log = fs::read_to_string(logs.join("000001-a_b.log")).unwrap();
    assert_eq!(log, "--- attempt 1 of a/b\nout a/b\nerr\n");
}

#[test]
fn timeout_ends_the_whole_group() {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid").display().to_string();
    let script = format!("sleep 600 & echo $! > {pid}; wait");
    let text = run(
        "--base 0s --attempts 1 --timeout 500ms x",
        &["sh", "-c", &script, "{}"],
        "",
    );
    assert!(text.contains("x  exhausted after 1 attempt"), "{text}");
    wait_until_gone(&fs::read_to_string(&pid).unwrap());
}

#[test]
fn second_signal_ends_what_is_in_flight() {
    let folder = tempfile::tempdir().unwrap();
    let (pid, ended) = (folder.path().join("pid"), folder.path().join("ended"));
    let script = format!(
        "exec > /dev/null 2>&1; trap 'echo > {}; exit' TERM; echo $$ > {}; while true; do sleep 0.02; done",
        ended.display(),
        pid.display()
    );
    let mut child = tidegate("run x -- sh -c");
    let child = child
        .args([script.as_str(), "{}"])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let read = || fs::read_to_string(&pid).unwrap_or_default();
    while !read().ends_with('\n') {
        thread::yield_now();
    }
    let signal = |name: &str| {
        let id = child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-s", name, &id])
                .status()
                .unwrap()
                .success()
        );
    };
    signal("INT");
    // The notice shows that the first signal was seen.
    let mut child_stderr = String::new();
    let mut child = child;
    let mut stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    std::io::BufRead::read_line(&mut stderr, &mut child_stderr).unwrap();
    assert!(
        child_stderr.contains("finishing what is in flight"),
        "{child_stderr}"
    );
    assert!(child.try_wait().unwrap().is_none());
    let id = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-s", "INT", &id])
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(child.wait().unwrap().code(), Some(130));
    wait_until_gone(&read());
    assert!(ended.exists(), "it got no SIGTERM");
}

#[test]
fn nothing_is_left_of_a_run_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|item| folder.path().join(item));
    let script = format!(
        "if [ $0 = second ]; then echo > {}; else sleep 600 & echo $! > {}; wait; fi",
        second.display(),
        first.display()
    );
    let mut child = tidegate("run -j 2 first second -- sh -c");
    let child = child.args([script.as_str(), "{}"]);
    let mut child = child.stdin(Stdio::null()).spawn().unwrap();
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    // Once the second program has started, the first one is guarded.
    while !read(&first).ends_with('\n') || !read(&second).ends_with('\n') {
        thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until_gone(&read(&first));
}

/// What a terminal of this width is sent while a gap is waited for, without colours.
fn drawn(columns: usize) -> String {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    let program = env!("CARGO_BIN_EXE_tidegate");
    // It prints colours, a title and a very long line, then fails once.
    let command =
        r"printf '\033[31mred\033[0m \033]0;title\007\n%0300d\nERROR: timed out\n' 0; exit 1";
    let text = format!(
        "stty cols {columns} rows 24\nexec {program} run --base 1s --attempts 2 https://video.example/one-with-a-long-name -- sh -c \"{command}\" {{}}\n"
    );
    fs::write(&script, text).unwrap();
    let mut terminal = Command::new("script");
    let shell = format!("sh {}", script.display());
    terminal.args(["-qec", shell.as_str(), "/dev/null"]);
    let terminal = terminal
        .env("NO_COLOR", "1")
        .env("TERM", "xterm")
        .stdin(Stdio::null());
    let output = terminal.output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// The last picture with a gap, with `N` for the numbers that depend on time.
fn gap_picture(sent: &str, columns: usize) -> String {
    let pictures = sent
        .split("\x1b[J")
        .filter(|picture| picture.contains("next start in"));
    let picture = pictures.last().unwrap();
    let mut text = String::new();
    for line in picture.split("\x1b[K\r\n") {
        // The first line begins with the way up.
        let line = line.rsplit("A\r").next().unwrap();
        assert!(line.chars().count() <= columns, "{line:?}");
        assert!(!line.contains(char::is_control), "{line:?}");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    for second in 0..60 {
        text = text.replace(&format!(" {second}s"), " Ns");
        text = text.replace(&format!("\n{second}s ago"), "\nNs ago");
    }
    text
}

#[test]
fn draws_a_picture_on_a_terminal() {
    let sent = drawn(80);
    assert!(
        !sent.contains("title\x07") && !sent.contains("\x1b[31m"),
        "{sent:?}"
    );
    assert!(sent.contains("0 done, 1 failed in"), "{sent:?}");
    assert_snapshot!(gap_picture(&sent, 80), @"
    0 done, 0 failed, 1 to try again, Ns
    next start in Ns: base Ns, 1 recent failure

    item                       class      tries  elapsed  last output
    https://video.example/on…  retryable    1/2       Ns  ERROR: timed out

    recent failures
    Ns ago  https://video.example/one…  retryable: ERROR: timed out
    ");
}

#[test]
fn draws_a_picture_on_a_narrow_terminal() {
    assert_snapshot!(gap_picture(&drawn(40), 40), @"
    0 done, 0 failed, 1 to try again, Ns
    next start in Ns
    base Ns, 1 recent failure

    item                  class      elapsed
    https://video.examp…  retryable       Ns

    recent failures
    Ns ago  retryable  https://video.exampl…
    ");
}

/// Waits for the end of a process; a test that hangs here is ended by its runner.
fn wait_until_gone(pid: &str) {
    let stat = format!("/proc/{}/stat", pid.trim());
    while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
        thread::yield_now();
    }
}

/// The list is checked and read as a stream, however long it is.
#[test]
fn long_list_is_not_held_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("list");
    let line = format!("{}\n", "x".repeat(99));
    fs::write(&list, line.repeat(1_000_000)).unwrap();
    let started = folder.path().join("started");
    let script = format!("touch {}; exec sleep 600", started.display());
    let mut child = tidegate(&format!("run -i {} -- sh -c", list.display()));
    let mut child = child.args([script.as_str(), "{}"]).spawn().unwrap();
    while !started.exists() {
        thread::yield_now();
    }
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.unwrap().trim().trim_end_matches(" kB");
    let peak: u64 = peak.parse().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(peak < 50_000, "{peak} KiB for a list of 100 MB");
}

#[test]
fn every_item_is_done_once_whenever_it_is_killed() {
    let rounds = 50;
    let folder = tempfile::tempdir().unwrap();
    let (list, journal, ran) = (
        folder.path().join("list"),
        folder.path().join("journal"),
        folder.path().join("ran"),
    );
    let items: String = (0..1000).map(|item| format!("{item}\n")).collect();
    fs::write(&list, items).unwrap();
    let script = format!("echo $0 >> {}", ran.display());
    let start = || {
        let options = format!(
            "run -q -i {} --journal {}",
            list.display(),
            journal.display()
        );
        let mut command = tidegate(&format!("{options} --base 0s -j 4 -- sh -c"));
        command.args([script.as_str(), "{}"]).spawn().unwrap()
    };
    let mut in_progress: Vec<String> = Vec::new();
    let mut seed = std::process::id();
    for _ in 0..rounds {
        let mut child = start();
        // A random number of ends, counted in the journal, decides when it is killed.
        seed = seed.wrapping_mul(1_103_515_245).wrapping_add(12345);
        let target = finished_items(&journal).len() + (seed >> 16) as usize % (1500 / rounds);
        while finished_items(&journal).len() < target && child.try_wait().unwrap().is_none() {
            thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        in_progress.extend(unfinished_items(&journal));
    }
    let status = start().wait().unwrap();
    assert!(status.success(), "{status}");
    let ran = fs::read_to_string(&ran).unwrap();
    let mut counts = std::collections::BTreeMap::new();
    for item in ran.lines() {
        *counts.entry(item).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 1000);
    for (item, count) in counts {
        let kills = in_progress.iter().filter(|other| *other == item).count();
        assert!(
            count <= 1 + kills,
            "{item} ran {count} times, in progress at {kills} kills"
        );
    }
}

/// Items of a journal that have started, and those that have ended.
fn journalled(journal: &Path) -> (Vec<String>, Vec<String>) {
    let text = fs::read_to_string(journal).unwrap_or_default();
    let (mut started, mut ended) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let Ok(entry) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        let item = || entry["item"].as_str().unwrap().to_owned();
        match entry["event"].as_str() {
            Some("started") => started.push(item()),
            Some("ended") => ended.push(item()),
            _ => {}
        }
    }
    (started, ended)
}

fn finished_items(journal: &Path) -> Vec<String> {
    journalled(journal).1
}

fn unfinished_items(journal: &Path) -> Vec<String> {
    let (started, ended) = journalled(journal);
    started
        .into_iter()
        .filter(|item| !ended.contains(item))
        .collect()
}
