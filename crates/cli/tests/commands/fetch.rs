//! `tidegate fetch`: what it prints and writes, and its exit codes.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use insta::assert_snapshot;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{in_terminal, shown, tidegate};
use crate::web_server::{WebServer, page, status};

/// In a folder of its own, without limits, so that nothing waits.
struct Fetch {
    server: WebServer,
    folder: TempDir,
}

impl Fetch {
    fn new(server: WebServer) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { server, folder }
    }

    /// `URL` in the arguments is the server's.
    fn command(&self, args: &str) -> Command {
        let args = args.replace("URL", &self.server.url);
        let mut command = tidegate(&format!("fetch {args}"));
        command
            .current_dir(&self.folder)
            .env("TIDEGATE_GATE__ENABLED", "false")
            .stdin(Stdio::null());
        command
    }

    fn run(&self, args: &str) -> Output {
        self.command(args).output().unwrap()
    }

    /// What is printed, without the server's address and times.
    fn show(&self, args: &str) -> String {
        self.hidden(&shown(&self.run(args)))
    }

    fn hidden(&self, text: &str) -> String {
        let address = self.server.url.strip_prefix("http://").unwrap();
        let folder = address.replace(':', "_");
        let text = text.replace(address, "HOST").replace(&folder, "HOST");
        text.lines()
            .map(|line| without_times(line) + "\n")
            .collect()
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.folder.path().join(file)).unwrap()
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.folder.path().join(file), text).unwrap();
    }

    fn lines(&self, file: &str) -> Vec<Value> {
        let text = self.read(file);
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.collect()
    }

    /// Files below a folder, sorted.
    fn files(&self, folder: &str) -> BTreeSet<String> {
        let root = self.folder.path().join(folder);
        let mut files = BTreeSet::new();
        let mut folders = vec![root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => folders.push(path),
                    false => {
                        let name = path.strip_prefix(&root).unwrap();
                        files.insert(self.hidden(name.to_str().unwrap()).trim().to_owned());
                    }
                }
            }
        }
        files
    }
}

/// Hides latencies and the time that it took.
fn without_times(line: &str) -> String {
    let line = match line.split_once("ms ") {
        Some((before, after)) => {
            let before = before.trim_end_matches(|c: char| c.is_ascii_digit());
            // Columns are as wide as the longest time.
            format!("{before}[ms]  {}", after.trim_start())
        }
        None if line.starts_with("STATUS") => {
            line.split_whitespace().collect::<Vec<_>>().join("  ")
        }
        None => line.to_owned(),
    };
    match line.rsplit_once(" in ") {
        Some((line, rest)) if rest.starts_with(|c: char| c.is_ascii_digit()) => {
            let rest = rest.split_once(',').map(|(_, rest)| format!(",{rest}"));
            format!("{line} in [s]{}", rest.unwrap_or_default())
        }
        _ => line,
    }
}

/// Three pages that link to each other, and one that is missing.
fn site() -> WebServer {
    WebServer::new(|path, head| match path {
        "/robots.txt" => status(404, ""),
        "/" => page("<title>Home</title><a href=/a>a</a><a href=/b>b</a><a href=/gone>gone</a>"),
        "/a" => page("<title>A</title><a href=/>home</a><a href=/b?q=1>more</a>"),
        "/b?q=1" => page("<title>More</title>"),
        "/tagged" if head.contains("if-none-match: \"1\"") => status(304, "etag: \"1\"\r\n"),
        "/tagged" => Some((
            200,
            "etag: \"1\"\r\ncontent-type: text/plain\r\n".to_owned(),
            "tagged".to_owned(),
        )),
        "/b" => page("<title>B</title>"),
        _ => status(404, ""),
    })
}

#[test]
fn prints_a_line_for_each_of_few_urls() {
    let fetch = Fetch::new(site());
    assert_snapshot!(fetch.show("URL/a URL/b --concurrency 1"), @"
    exit 0
    --- stdout
    STATUS  SIZE  TIME  URL
       200  57 B  [ms]  http://HOST/a
       200  16 B  [ms]  http://HOST/b
    2 fetched, 73 B in [s]
    ");
    assert_snapshot!(fetch.show("URL/a URL/b -q"), @"
    exit 0
    ");
    assert_eq!(fetch.files("").len(), 0);
}

#[test]
fn prints_what_failed() {
    let fetch = Fetch::new(site());
    assert_snapshot!(fetch.show("URL/a URL/gone --concurrency 1"), @"
    exit 1
    --- stdout
    STATUS  SIZE  TIME  URL
       200  57 B  [ms]  http://HOST/a
       404  0 B   [ms]  http://HOST/gone  rejected: HTTP 404
    1 fetched, 1 failed, 57 B in [s]
    --- stderr
    error: 1 of 2 URLs failed: rejected 1
    ");
    assert_snapshot!(fetch.show("URL/gone -q"), @"
    exit 1
    --- stderr
    error: 1 of 1 URLs failed: rejected 1
    ");
}

#[test]
fn of_many_urls_only_those_that_failed_are_listed() {
    let fetch = Fetch::new(WebServer::new(|path, _| match path.ends_with('7') {
        true => status(410, ""),
        false => page("ok"),
    }));
    let urls: String = (0..100).map(|n| format!("URL/{n}\n")).collect();
    fetch.write("urls", &urls.replace("URL", &fetch.server.url));
    let shown = fetch.show("-i urls --no-robots --concurrency 1");
    assert_snapshot!(shown, @"
    exit 1
    --- stdout
    STATUS  SIZE  TIME  URL
       410  0 B   [ms]  http://HOST/7  rejected: HTTP 410
       410  0 B   [ms]  http://HOST/17  rejected: HTTP 410
       410  0 B   [ms]  http://HOST/27  rejected: HTTP 410
       410  0 B   [ms]  http://HOST/37  rejected: HTTP 410
       410  0 B   [ms]  http://HOST/47  rejected: HTTP 410
       410  0 B   [ms]  http://HOST/57  rejected: HTTP 410
       410  0 B   [ms]  http://HOST/67  rejected: HTTP 410
       410  0 B   [ms]  http://HOST/77  rejected: HTTP 410
       410  0 B   [ms]  http://HOST/87  rejected: HTTP 410
       410  0 B   [ms]  http://HOST/97  rejected: HTTP 410
    90 fetched, 10 failed, 180 B in [s]
    --- stderr
    error: 10 of 100 URLs failed: rejected 10
    ");
}

#[test]
fn a_later_run_fetches_what_has_changed() {
    let fetch = Fetch::new(site());
    fetch.run("URL/a URL/tagged --out pages");
    let shown = fetch.show("URL/a URL/tagged --out pages --jsonl lines --concurrency 1");
    assert_snapshot!(shown, @"
    exit 0
    --- stdout
    STATUS  SIZE  TIME  URL
       200  57 B  [ms]  http://HOST/a
       304  6 B   [ms]  http://HOST/tagged  unchanged
    2 fetched (1 unchanged), 63 B in [s]
    ");
    let lines = fetch.lines("lines");
    assert_eq!(lines[0].get("not_modified"), None);
    assert_eq!(lines[1]["not_modified"], true);
    assert_eq!(lines[1]["bytes"], 6);
    assert_eq!(
        fetch.read(&format!("pages/{}", lines[1]["file"].as_str().unwrap())),
        "tagged"
    );
}

#[test]
fn prints_a_summary_as_json() {
    let fetch = Fetch::new(site());
    let output = fetch.run("URL/a URL/b URL/gone --json -q");
    assert_eq!(output.status.code(), Some(1));
    let mut summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    summary["elapsed_ms"] = 0.into();
    summary["hosts"][0]["latency_ms"] = Value::Null;
    let summary = serde_json::to_string_pretty(&summary).unwrap();
    assert_snapshot!(fetch.hidden(&summary), @r#"
    {
      "counts": {
        "bytes": 73,
        "denied": 0,
        "done": 3,
        "failed": 1,
        "fetched": 2,
        "known": 3,
        "left": 0,
        "left_out": 0,
        "not_modified": 0,
        "sent": 4
      },
      "elapsed_ms": 0,
      "errors": {
        "rejected": 1
      },
      "hosts": [
        {
          "breaker": "closed",
          "ceiling": null,
          "counts": {
            "admitted": 4,
            "failed": 0,
            "success": 0,
            "throttled": 0
          },
          "key": "HOST",
          "latency_ms": null,
          "rate_per_second": 2.0,
          "why": "switched off: every request is admitted at once"
        }
      ],
      "hosts_left_out": 0,
      "state": "done",
      "totals": {
        "denied": 0,
        "evicted": 0,
        "gates": 1,
        "half_open": 0,
        "held": 0,
        "in_flight": 0,
        "isolated": 0,
        "open": 0,
        "requests": 4,
        "retries": 0,
        "throttled": 0,
        "waiting": 0
      }
    }
    "#);
}

#[test]
fn writes_lines_to_stdout() {
    let fetch = Fetch::new(site());
    let output = fetch.run("URL/a URL/gone --jsonl - --concurrency 1");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0]["status"], 200);
    assert_eq!(lines[1]["error"], "rejected");
    let keys: Vec<&str> = lines[0]
        .as_object()
        .unwrap()
        .keys()
        .map(|key| &**key)
        .collect();
    for key in [
        "url",
        "status",
        "error",
        "attempts",
        "wait_ms",
        "latency_ms",
        "bytes",
        "sha256",
        "content_type",
        "title",
    ] {
        assert!(keys.contains(&key), "{key}");
    }
}

#[test]
fn a_reader_that_closes_stdout_ends_it() {
    let fetch = Fetch::new(WebServer::new(|_, _| page("ok")));
    let urls: String = (0..20_000)
        .map(|n| format!("{}/{n}\n", fetch.server.url))
        .collect();
    fetch.write("urls", &urls);
    let mut command = fetch.command("-i urls --no-robots --jsonl -");
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_snapshot!(shown(&output), @"exit 0");
}

#[test]
fn exits_as_documented() {
    let fetch = Fetch::new(WebServer::new(|path, _| match path {
        "/throttled" => status(429, "retry-after: 100\r\n"),
        "/gone" => status(410, ""),
        _ => status(500, ""),
    }));
    let run = |args: &str| {
        let mut command = fetch.command(args);
        command.env_remove("TIDEGATE_GATE__ENABLED");
        command.env("TIDEGATE_GATE__INITIAL_RATE", "1000");
        command.args(["--no-robots", "--give-up-after", "1s"]);
        fetch.hidden(&shown(&command.output().unwrap()))
    };
    assert_snapshot!(run("URL/throttled"), @"
    exit 75
    --- stdout
    STATUS  SIZE  TIME  URL
       429  0 B   [ms]  http://HOST/throttled  gave_up: HTTP 429
    0 fetched, 1 failed, 0 B in [s]
    --- stderr
    error: 1 of 1 URLs failed: gave_up 1
    ");
    let urls: Vec<String> = (0..10).map(|n| format!("URL/{n}")).collect();
    assert_snapshot!(run(&format!("{} -q", urls.join(" "))), @"
    exit 69
    --- stderr
    error: 10 of 10 URLs failed: breaker_open 10
    ");
    assert_snapshot!(run("URL/gone URL/throttled -q"), @"
    exit 1
    --- stderr
    error: 2 of 2 URLs failed: rejected 1, gave_up 1
    ");
}

#[test]
fn every_bad_argument_is_reported_before_anything_is_sent() {
    let fetch = Fetch::new(site());
    fetch.write("filters", "! nothing\n");
    assert_snapshot!(fetch.show(""), @"
    exit 2
    --- stderr
    error: there is nothing to fetch, expected a URL, `-i FILE` or `--sitemap URL`
    hint: `tidegate fetch --help` shows what it takes
    ");
    assert_snapshot!(fetch.show("ftp://a.example/ /path http://u:p@a.example/ --sitemap x"), @"
    exit 2
    --- stderr
    error: `URL`: `ftp://a.example/` cannot be fetched: expected a URL that starts with `http://` or `https://`
    error: `URL`: `/path` cannot be fetched: expected a URL that starts with `http://` or `https://`
    error: `URL`: `http://a.example/` has a user or a password: expected a URL without, and the credential in a header
    error: `--sitemap`: `…` cannot be fetched: expected a URL that starts with `http://` or `https://`
    hint: `tidegate fetch --help` shows what it takes
    ");
    assert_snapshot!(fetch.show("URL/a --include ( --exclude [ --crawl --depth -1"), @"
    exit 2
    --- stderr
    error: `--include`: `(` is no regular expression: unclosed group at character 1
    error: `--exclude`: `[` is no regular expression: unclosed character class at character 1
    error: `--depth` is `-1`, expected a whole number from 0 to 1000
    hint: `tidegate fetch --help` shows what it takes
    ");
    assert_snapshot!(fetch.show("URL/a --depth 2 --same-host --include x --filters filters"), @"
    exit 2
    --- stderr
    error: `--depth` has no effect without `--crawl`
    error: `--same-host` has no effect without `--crawl` or `--sitemap`
    error: `--include` has no effect without `--crawl` or `--sitemap`
    error: `--filters` has no effect without `--report`
    hint: `tidegate fetch --help` shows what it takes
    ");
    assert_snapshot!(
        fetch.show("URL/a -i missing --jsonl missing/l --report missing/r --out filters --resume ."),
        @"
        exit 2
        --- stderr
        error: `--input` is `missing`, expected a file that can be read: No such file or directory (os error 2)
        error: `--resume` is `.`, expected a file that can be written: Is a directory (os error 21)
        error: `--out`: cannot write to the folder `filters`: not a directory
        error: `--jsonl` is `missing/l`, expected a file that can be written: No such file or directory (os error 2)
        error: `--report` is `missing/r`, expected a file that can be written: No such file or directory (os error 2)
        hint: `tidegate fetch --help` shows what it takes
        "
    );
    assert_snapshot!(fetch.show("URL/a --jsonl - --json --resume s --report r.html --filters filters"), @"
    exit 2
    --- stderr
    error: `--jsonl -` and `--json` both write to stdout, expected one of them
    error: `--jsonl -` cannot be continued, expected a file with `--resume`
    error: `--filters` is `filters`: no line is a rule for requests, expected rules such as `||tracker.example^$third-party`
    hint: `tidegate fetch --help` shows what it takes
    ");
    assert_snapshot!(fetch.show("URL/a --jsonl x.json --report x.html -i filters --resume filters"), @"
    exit 2
    --- stderr
    error: `--input` and `--resume` are the same file, `filters`
    error: `--jsonl` and `--report` are the same file, `x.json`
    hint: `tidegate fetch --help` shows what it takes
    ");
    assert_snapshot!(
        fetch.show("URL/a --concurrency 0 --max-body 3 --max-redirects -1 --give-up-after 5"),
        @"
        exit 2
        --- stderr
        error: `--concurrency` is `0`, expected a whole number from 1 to 100000
        error: `--give-up-after` is `5`, expected a number with a unit such as `500ms`, `30s` or `5m`
        error: `--max-body` is `3`, expected a number with a unit such as `64KiB` or `1MiB`, or `none`
        error: `--max-redirects` is `-1`, expected a whole number from 0 to 100
        hint: `tidegate config default` prints every setting with its default
        "
    );
    assert_snapshot!(fetch.show("URL/a -H nothing -H cookie:x -H host:y --user-agent é"), @"
    exit 2
    --- stderr
    error: `--header`: expected NAME: VALUE
    error: `--header`: the value of `cookie` is written out, expected `env:NAME` or `file:PATH`
    error: `--header`: `host` cannot be set, expected another header; this one is set for every request anyway
    hint: `tidegate fetch --help` shows what it takes
    ");
    assert_eq!(fetch.server.heads().len(), 0);
    assert_eq!(fetch.files("").into_iter().collect::<Vec<_>>(), ["filters"]);
}

#[test]
fn headers_are_sent_to_given_hosts_only() {
    let other = WebServer::new(|_, _| page("other"));
    let target = other.url.clone();
    let fetch = Fetch::new(WebServer::new(move |path, _| match path {
        "/away" => status(302, &format!("location: {target}/\r\n")),
        _ => page("here"),
    }));
    let mut command = fetch.command("URL/ URL/away --no-robots -H");
    command
        .arg("authorization: Bearer env:SECRET")
        .env("SECRET", "hidden-value");
    // Redirects to other hosts are checked.
    command.env("TIDEGATE_NETWORK__ALLOW", "[\"127.0.0.1/32\"]");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let has_header = |head: &String| head.contains("authorization: Bearer hidden-value");
    assert!(fetch.server.heads().iter().all(has_header));
    assert_eq!(other.heads().len(), 1);
    assert!(!other.heads().iter().any(has_header));
    assert!(!shown(&output).contains("hidden-value"));
}

#[test]
fn a_folder_in_use_is_an_error() {
    let fetch = Fetch::new(WebServer::new(|_, _| None));
    let mut first = fetch
        .command("URL/a --no-robots --out pages")
        .spawn()
        .unwrap();
    fetch.server.wait_for(1);
    assert_snapshot!(fetch.show("URL/b --out pages"), @"
    exit 2
    --- stderr
    error: `--out`: the folder `pages` is in use by another fetch
    hint: `tidegate fetch --help` shows what it takes
    ");
    first.kill().unwrap();
    first.wait().unwrap();
}

fn interrupt(child: &Child) {
    let pid = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &pid]).status();
    assert!(sent.unwrap().success());
}

#[test]
fn the_second_signal_quits_at_once() {
    let fetch = Fetch::new(WebServer::new(|_, _| None));
    let mut command = fetch.command("URL/a URL/b --no-robots --report r.html");
    let child = command.spawn().unwrap();
    fetch.server.wait_for(2);
    interrupt(&child);
    // The first one may still be on its way.
    while fs::read_to_string(format!("/proc/{}/stat", child.id()))
        .is_ok_and(|stat| !stat.contains(") Z "))
    {
        interrupt(&child);
        std::thread::yield_now();
    }
    let output = child.wait_with_output().unwrap();
    assert_snapshot!(fetch.hidden(&shown(&output)), @"
    exit 130
    --- stderr
    finishing what is in flight; a second signal quits at once
    ");
}

/// A bar for every stage, what it waits for, and at last the summary.
#[test]
fn draws_a_bar_for_every_stage_on_a_terminal() {
    for columns in [80, 40] {
        let is_refused = AtomicBool::new(true);
        let fetch = Fetch::new(WebServer::new(move |path, _| match path {
            "/2" if is_refused.swap(false, Ordering::Relaxed) => status(429, "retry-after: 1\r\n"),
            _ => page("ok"),
        }));
        let mut command = fetch.command("URL/1 URL/2 URL/3 --no-robots --concurrency 1");
        command.env_remove("TIDEGATE_GATE__ENABLED");
        let screen = in_terminal(columns, &command);
        assert_eq!(screen.exit, 0, "{}", screen.text);
        let pictures: Vec<&str> = screen.text.split("\r\u{1b}[J").collect();
        let is_drawn = |picture: &&&str| picture.starts_with("discovery");
        let drawn: Vec<&str> = pictures.iter().filter(is_drawn).copied().collect();
        let lines = drawn.iter().flat_map(|picture| picture.lines());
        let widest = lines.map(|line| line.chars().count()).max();
        assert!(widest < Some(columns.into()), "{}", screen.text);
        let waits = |picture: &&str| {
            let text = picture.replace('\n', " ");
            text.contains("s, the server asked for a delay (Retry-After)")
        };
        assert!(drawn.iter().any(waits), "{}", screen.text);
        let last = fetch.hidden(pictures.last().unwrap());
        // Two of them leave when the wait is over.
        let mut last: Vec<&str> = last.lines().collect();
        last.sort_unstable();
        let last = last.join("\n");
        insta::with_settings!({ snapshot_suffix => columns.to_string() }, {
            assert_snapshot!(last);
        });
    }
}

#[test]
fn crawls_a_site() {
    let fetch = Fetch::new(site());
    let shown = fetch.show("URL/ --crawl --same-host --out pages --concurrency 1");
    assert_snapshot!(shown, @"
    exit 1
    --- stdout
    STATUS  SIZE  TIME  URL
       200  73 B  [ms]  http://HOST/
       200  57 B  [ms]  http://HOST/a
       200  16 B  [ms]  http://HOST/b
       404  0 B   [ms]  http://HOST/gone  rejected: HTTP 404
       200  19 B  [ms]  http://HOST/b?q=…
    4 fetched, 1 failed, 165 B in [s]
    --- stderr
    error: 1 of 5 URLs failed: rejected 1
    ");
    let files = fetch.files("pages").into_iter().collect::<Vec<_>>();
    assert_snapshot!(files.join("\n"), @"
    .tidegate-index.jsonl
    .tidegate-lock
    HOST/a.html
    HOST/b.html
    HOST/b@q=1.html
    HOST/index.html
    ");
    assert_eq!(
        fetch
            .run("URL/ --crawl --depth 1 --jsonl deep")
            .status
            .code(),
        Some(1)
    );
    assert_eq!(fetch.lines("deep").len(), 4);
    let args = "URL/ --crawl --exclude /gone --exclude q= --jsonl all";
    assert_eq!(fetch.run(args).status.code(), Some(0));
    assert_eq!(fetch.lines("all").len(), 3);
}

#[test]
fn writes_a_report_and_its_data() {
    let fetch = Fetch::new(site());
    fetch.run("URL/ --crawl --report site.html");
    let page = fetch.read("site.html");
    assert!(page.starts_with("<!DOCTYPE html>") || page.starts_with("<!doctype html>"));
    let data: Value = serde_json::from_str(&fetch.read("site.json")).unwrap();
    assert_eq!(data["totals"]["urls"], 5);
    fetch.run("URL/a --report only.json");
    let data: Value = serde_json::from_str(&fetch.read("only.json")).unwrap();
    assert_eq!(data["totals"]["urls"], 1);
    assert_eq!(fetch.files("").len(), 3);
}
