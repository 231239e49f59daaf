//! Jobs over restarts: a job continues where it was, whether the server was killed or stopped, and
//! every URL is in its report once.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use policy::random::Random;
use serde_json::{Value, json};

use super::support::{Admin, Home, now_ms, wait, wait_for};

/// How often each path was requested.
pub(crate) type Received = Arc<Mutex<BTreeMap<String, u64>>>;

/// A server without a robots.txt that has every other page; its address.
pub(crate) fn upstream(received: Received) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let received = Arc::clone(&received);
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                while let Some(Ok(line)) = lines.next() {
                    let Some(path) = line.split(' ').nth(1).map(str::to_owned) else {
                        return;
                    };
                    for line in lines.by_ref() {
                        if line.is_ok_and(|line| line.is_empty()) {
                            break;
                        }
                    }
                    let status = match path == "/robots.txt" {
                        true => "404 Not Found",
                        false => {
                            *received.lock().unwrap().entry(path).or_default() += 1;
                            "200 OK"
                        }
                    };
                    let head = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
                    if stream.write_all(head.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    format!("http://{address}")
}

/// Two hundred requests a second, so that a job lasts long enough to be interrupted.
pub(crate) const SETTINGS: &str = "
[gate]
strategy = 'fixed'
initial_rate = 200
[network]
allow = ['127.0.0.0/8']
[jobs]
max_running = 1
status_limit = '100000/1s'
";

const JOBS: &str = "/api/v1/jobs";

pub(crate) fn start_job(admin: &Admin, upstream: &str, name: &str, urls: usize) -> Value {
    let urls: Vec<String> = (0..urls)
        .map(|number| format!("{upstream}/{name}/{number}"))
        .collect();
    admin.must("POST", JOBS, Some(&json!({ "urls": urls })))
}

pub(crate) fn show(admin: &Admin, job: &Value) -> Value {
    let id = job["id"].as_str().unwrap();
    admin.must("GET", &format!("{JOBS}/{id}"), None)
}

pub(crate) fn wait_until_done(admin: &Admin, job: &Value) -> Value {
    wait_for("job that is done", || {
        let shown = show(admin, job);
        assert_ne!(shown["status"], "error", "{shown}");
        (shown["status"] == "done").then_some(shown)
    })
}

/// Waits until a job has finished more than `done` URLs; how many.
fn wait_for_urls(admin: &Admin, job: &Value, done: u64) -> u64 {
    wait_for("further URL", || {
        let now = show(admin, job)["counts"]["done"].as_u64().unwrap();
        (now > done).then_some(now)
    })
}

#[test]
fn a_killed_job_continues_and_has_every_url_once() {
    const URLS: usize = 1500;
    let seed = u64::try_from(now_ms()).unwrap();
    let mut random = Random::from_seed(seed);
    let received = Received::default();
    let upstream = upstream(Arc::clone(&received));
    let home = Home::new(SETTINGS);
    let server = home.start();
    let job = start_job(&server.admin, &upstream, "a", URLS);
    let mut progress = 0.0;
    let mut done = wait_for_urls(&server.admin, &job, 0);
    server.kill();
    for _ in 0..3 {
        let server = home.start();
        done = wait_for_urls(&server.admin, &job, done);
        wait(Duration::from_millis(random.below(300)));
        let shown = show(&server.admin, &job);
        assert!(
            shown["progress"].as_f64().unwrap() >= progress,
            "seed {seed}: {shown}"
        );
        progress = shown["progress"].as_f64().unwrap();
        server.kill();
    }
    let server = home.start();
    let shown = wait_until_done(&server.admin, &job);
    let urls = u64::try_from(URLS).unwrap();
    assert_eq!(shown["counts"]["total"], urls, "seed {seed}");
    assert_eq!(shown["counts"]["done"], urls, "seed {seed}");
    assert_eq!(shown["counts"]["failed"], 0, "seed {seed}");
    let slug = job["slug"].as_str().unwrap();
    let report = server.admin.must("GET", &format!("/r/{slug}.json"), None);
    assert_eq!(report["totals"]["urls"], urls, "seed {seed}");
    assert_eq!(report["totals"]["fetched"], urls, "seed {seed}");
    let received = received.lock().unwrap();
    assert_eq!(received.len(), URLS, "seed {seed}");
    // Only what was in flight, or not yet stored, at one of the four kills is requested again.
    let again: u64 = received.values().map(|times| times - 1).sum();
    assert!(again < urls / 2, "seed {seed}: {again}");
}

#[test]
fn a_stopped_server_finishes_what_is_in_flight_and_continues_the_job_later() {
    const URLS: usize = 600;
    let received = Received::default();
    let upstream = upstream(Arc::clone(&received));
    let home = Home::new(SETTINGS);
    let server = home.start();
    let job = start_job(&server.admin, &upstream, "a", URLS);
    wait_for_urls(&server.admin, &job, 0);
    assert_eq!(server.stop().code(), Some(0));
    let server = home.start();
    wait_until_done(&server.admin, &job);
    let received = received.lock().unwrap();
    assert_eq!(received.len(), URLS);
    assert!(received.values().all(|times| *times == 1), "{received:?}");
}

#[test]
fn queued_jobs_survive_a_kill_and_run_in_their_order() {
    let received = Received::default();
    let upstream = upstream(Arc::clone(&received));
    let home = Home::new(SETTINGS);
    let server = home.start();
    let names = ["a", "b", "c"];
    let jobs = names.map(|name| start_job(&server.admin, &upstream, name, 400));
    wait_for_urls(&server.admin, &jobs[0], 0);
    for queued in &jobs[1..] {
        assert_eq!(show(&server.admin, queued)["status"], "queued");
    }
    server.kill();
    let server = home.start();
    let shown = jobs.map(|job| wait_until_done(&server.admin, &job));
    let ends = shown.map(|job| job["finished_at_ms"].as_i64().unwrap());
    assert!(ends.is_sorted(), "{ends:?}");
    assert_eq!(received.lock().unwrap().len(), 1200);
}
