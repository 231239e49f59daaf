//! `tidegate jobs`, and `tidegate poll` with a job of the server.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::Stdio;
use std::sync::{Arc, Condvar, Mutex};

use insta::assert_snapshot;
use serde_json::Value;

use crate::running_server::Served;
use crate::support::tidegate;

/// A site whose pages from number 40 on are held back until it is opened.
#[derive(Clone, Default)]
struct Site {
    opened: Arc<(Mutex<bool>, Condvar)>,
}

impl Site {
    /// Serves; its address.
    fn serve(&self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let site = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let site = site.clone();
                std::thread::spawn(move || site.respond(stream));
            }
        });
        address
    }

    fn respond(&self, mut stream: std::net::TcpStream) {
        let mut line = String::new();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        _ = reader.read_line(&mut line);
        let page = line.split(['/', ' ']).nth(2).unwrap_or_default();
        let status = match page.parse::<u32>() {
            Err(_) => "404 Not Found",
            Ok(number) => {
                if number >= 40 {
                    self.wait();
                }
                "200 OK"
            }
        };
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        _ = stream.write_all(head.as_bytes());
    }

    fn wait(&self) {
        let (opened, changed) = &*self.opened;
        let guard = opened.lock().unwrap();
        drop(changed.wait_while(guard, |opened| !*opened).unwrap());
    }

    fn open(&self) {
        let (opened, changed) = &*self.opened;
        *opened.lock().unwrap() = true;
        changed.notify_all();
    }
}

fn served(more: &str) -> Served {
    Served::with(&format!(
        "[gate]\ninitial_rate = 10000\n[network]\nallow = [\"127.0.0.1/32\"]\n{more}"
    ))
}

impl Served {
    fn jobs(&self, args: &str) -> String {
        stable(&self.ask_with(&format!("jobs {args}"), &[]))
    }

    /// Starts a job, and returns its id.
    fn start_job(&self, args: &str) -> String {
        let shown = self.ask_with(&format!("jobs start {args}"), &[]);
        let start = shown.find("job_").unwrap_or_else(|| panic!("{shown}"));
        shown[start..start + 30].to_owned()
    }
}

/// Without ids, slugs, ports and times, which differ from run to run.
fn stable(text: &str) -> String {
    let is_end = |letter: char| !letter.is_ascii_alphanumeric();
    let mut stable = String::new();
    for line in text.lines() {
        let mut line = line.to_owned();
        for (before, shown) in [("job_", "ID"), ("/r/", "SLUG"), ("127.0.0.1:", "PORT")] {
            let mut from = 0;
            while let Some(start) = line[from..].find(before) {
                let start = from + start + before.len();
                let end = line[start..]
                    .find(is_end)
                    .map_or(line.len(), |end| start + end);
                line.replace_range(start..end, shown);
                from = start;
            }
        }
        let words = line
            .split("  ")
            .map(str::trim)
            .filter(|word| !word.is_empty());
        let words = words.map(|word| match word.strip_suffix(" ago") {
            Some(_) => "[age] ago",
            None if word.ends_with('s') && word[..word.len() - 1].parse::<u32>().is_ok() => "[age]",
            None => word,
        });
        let words: Vec<&str> = words.collect();
        stable.push_str(&words.join("  "));
        stable.push('\n');
    }
    stable
}

#[test]
fn starts_follows_and_lists_jobs() {
    let (served, site) = (served("[poll]\nearly = '50ms'\n"), Site::default());
    let address = site.serve();
    assert_snapshot!(served.jobs("list"), @"
    exit 0
    --- stdout
    no jobs
    ");
    site.open();
    let urls = format!("http://{address}/1 http://{address}/2 http://{address}/missing");
    // How often it asks depends on how fast the job is.
    let waited = served.jobs(&format!("start {urls} --wait"));
    let (stdout, stderr) = waited.split_once("--- stderr").unwrap();
    let stdout: Vec<&str> = stdout
        .lines()
        .filter(|line| !line.starts_with("done after"))
        .collect();
    assert_snapshot!(stdout.join("\n"), @"
    exit 0
    --- stdout
    job_ID: queued
    report: http://127.0.0.1:PORT/r/SLUG
    ");
    assert!(stderr.contains("100 %  done"), "{stderr}");
    assert_snapshot!(served.jobs("list"), @"
    exit 0
    --- stdout
    id  status  stage  progress  urls  failed  age  job
    job_ID  done  -  100 %  3/3  1  [age]  127.0.0.1:PORT
    ");
    let list = served.ask_with("jobs list", &["--json"]);
    let start = list.find("job_").unwrap();
    let id = &list[start..start + 30];
    assert_snapshot!(served.jobs(&format!("show {id}")), @"
    exit 0
    --- stdout
    id  job_ID
    job  127.0.0.1:PORT
    status  done
    progress  100 %
    urls  3 of 3
    failed  1
    requests  4
    bytes  0
    accepted  [age] ago
    started  [age] ago
    ended  [age] ago
    report  http://127.0.0.1:PORT/r/SLUG
    ");
    assert_snapshot!(served.jobs(&format!("cancel {id} job_x")), @"
    exit 1
    --- stderr
    error: `job_ID`: the job has ended: it is done
    error: `job_ID`: there is no job `job_ID`; finished ones are deleted after `jobs.retain`
    ");
    assert_snapshot!(served.jobs("show job_x"), @"
    exit 1
    --- stderr
    error: there is no job `job_ID`; finished ones are deleted after `jobs.retain`
    hint: `tidegate jobs list` shows which there are
    ");
}

#[test]
fn cancels_a_running_job() {
    let (served, site) = (served(""), Site::default());
    let id = served.start_job(&format!("http://{}/40", site.serve()));
    assert_snapshot!(served.jobs(&format!("cancel {id}")), @"
    exit 0
    --- stdout
    job_ID: cancelled
    ");
    assert!(served.jobs("list").contains("cancelled"));
    site.open();
}

#[test]
fn reports_what_cannot_be_started() {
    let served = served("");
    assert_snapshot!(served.jobs("start ftp://a.example.com/"), @"
    exit 2
    --- stderr
    error: `urls[0]`: `ftp://a.example.com/` cannot be fetched: expected a URL that starts with `http://` or `https://`
    ");
    assert_snapshot!(served.jobs("start http://10.0.0.1/"), @"
    exit 1
    --- stderr
    error: `10.0.0.1` is not a public address; allow it in `[network]` if that is meant
    ");
    assert_snapshot!(served.jobs("start https://a.example.com/ --crawl --include ("), @"
    exit 2
    --- stderr
    error: `include`: `(` is no regular expression: unclosed group at character 1
    ");
    assert_snapshot!(served.jobs("start https://a.example.com/ --depth 2"), @"
    exit 2
    --- stderr
    error: `tidegate jobs start` needs `--crawl`
    hint: `tidegate jobs start --help` shows what it takes
    ");
    assert_snapshot!(served.jobs("start"), @"
    exit 2
    --- stderr
    error: `tidegate jobs start` needs `<URL>...`
    hint: `tidegate jobs start --help` shows what it takes
    ");
}

/// Seed 000: 14 requests are answered, then 429; the waits double from 2 s, and the first success ends
/// them. At a tenth of the time: the job stays at 40 %, where the interval is 2.5 s.
#[test]
fn poll_follows_a_job_while_its_status_is_limited() {
    let site = Site::default();
    let served = served("[jobs]\nstatus_limit = '14/4500ms'\nstatus_retry_after = false\n");
    let address = site.serve();
    let urls: Vec<String> = (0..100)
        .map(|page| format!("http://{address}/{page}"))
        .collect();
    let id = served.start_job(&urls.join(" "));
    while !served.jobs("list").contains("40 %") {
        std::thread::yield_now();
    }
    let lines = served.folder.path().join("responses.jsonl");
    let token = served.data().join("admin-token");
    let url = format!("{}/api/v1/jobs/{id}", served.admin);
    let mut poll = tidegate(&format!("poll {url} {TENTH}"))
        .arg("-H")
        .arg(format!("authorization: Bearer file:{}", token.display()))
        .arg("--jsonl")
        .arg(&lines)
        .env("TIDEGATE_GATE__INITIAL_RATE", "100")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The job goes on when polling has recovered.
    let mut stderr = BufReader::new(poll.stderr.take().unwrap());
    let mut shown = String::new();
    while !shown.contains("poll_recovered") {
        assert!(stderr.read_line(&mut shown).unwrap() > 0, "{shown}");
    }
    site.open();
    std::io::Read::read_to_string(&mut stderr, &mut shown).unwrap();
    assert_eq!(poll.wait().unwrap().code(), Some(0), "{shown}");

    let responses: Vec<Value> = std::fs::read_to_string(&lines)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let statuses: Vec<u64> = responses
        .iter()
        .map(|line| line["http_status"].as_u64().unwrap())
        .collect();
    assert!(
        statuses[..14].iter().all(|status| *status == 200),
        "{statuses:?}"
    );
    let refused = statuses[14..]
        .iter()
        .take_while(|status| **status == 429)
        .count();
    assert!((2..=4).contains(&refused), "{statuses:?}");
    let recovered = 14 + refused;
    let waits = |range: std::ops::Range<usize>| -> Vec<u64> {
        let lines = responses[range].iter();
        lines
            .map(|line| line["next_ms"].as_u64().unwrap())
            .collect()
    };
    assert_eq!(waits(0..14), [250; 14]);
    assert_eq!(waits(14..recovered), [200, 400, 800, 1500][..refused]);
    assert_eq!(waits(recovered..recovered + 1), [250]);
    for pair in responses.windows(2) {
        let at = |line: &Value| line["elapsed_ms"].as_u64().unwrap();
        let waited = at(&pair[1]) - at(&pair[0]);
        // Both times are rounded up.
        assert!(
            waited + 1 >= pair[0]["next_ms"].as_u64().unwrap(),
            "{pair:?}"
        );
    }
    assert_eq!(replayed(&responses), decided(&responses));
    let mut rest = shown.as_str();
    for expected in [
        "Backing off to 200ms. Attempt 1",
        "Slowing down: the server limits how often its status may be asked for.",
        "Backing off to 400ms. Attempt 2",
        "Rate limit cleared. Resetting to normal interval.",
    ] {
        let place = rest.find(expected);
        let place = place.unwrap_or_else(|| panic!("no `{expected}` in order in\n{shown}"));
        rest = &rest[place + expected.len()..];
    }
}

/// A tenth of the default intervals.
const TENTH: &str =
    "--early 300ms --middle 250ms --late 200ms --first 200ms --base 200ms --max 1500ms";

/// What polling decided after each response.
fn decided(responses: &[Value]) -> Vec<(Value, Value, Value)> {
    let decision = |line: &Value| {
        let count = &line["consecutive_429"];
        (
            line["state"].clone(),
            line["next_ms"].clone(),
            count.clone(),
        )
    };
    responses.iter().map(decision).collect()
}

/// What `tidegate replay` decides after the same responses.
fn replayed(responses: &[Value]) -> Vec<(Value, Value, Value)> {
    let events: Vec<String> = responses
        .iter()
        .map(|line| {
            let at = line["elapsed_ms"].as_f64().unwrap() / 1000.0;
            let event = serde_json::json!({
                "at": at,
                "status": line["http_status"],
                "job": line["status"],
                "progress": line["body"]["progress"],
            });
            let mut event = event.as_object().unwrap().clone();
            event.retain(|_, value| !value.is_null());
            Value::Object(event).to_string()
        })
        .collect();
    let settings = TENTH.split("--").filter(|part| !part.is_empty());
    let settings = settings.map(|part| format!("--set {}", part.trim().replace(' ', "=")));
    let settings: Vec<String> = settings.collect();
    let mut replay = tidegate(&format!("replay --policy poll {}", settings.join(" ")))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = replay.stdin.take().unwrap();
    stdin
        .write_all((events.join("\n") + "\n").as_bytes())
        .unwrap();
    drop(stdin);
    let output = replay.wait_with_output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    decided(&lines)
}
