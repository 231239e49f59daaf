//! Jobs: accepted, listed, followed, cancelled, run and reported.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use app::jobs::{JobWorker, Jobs};
use app::mock::{Mock, MockSettings};
use serde_json::{Value, json};
use store::Store;
use store::faulty::Faults;

use crate::support::{Running, ask, wait_until};

const JOBS: &str = "/api/v1/jobs";

/// Addresses of this machine may be dialled, at any rate.
const LOCAL: &str = "[gate]\ninitial_rate = 10000\n[network]\nallow = [\"127.0.0.0/8\"]\n";

fn mock() -> Mock {
    let listen = "127.0.0.1:0".parse().unwrap();
    Mock::start(MockSettings::default(), listen, NonZeroUsize::MIN).unwrap()
}

impl Running {
    fn start_job(&self, body: &Value) -> (String, String) {
        let answer = self.ask("POST", JOBS, Some(&body.to_string()));
        assert_eq!(answer.status, 202, "{}", answer.body);
        let started = answer.json();
        let id = started["id"].as_str().unwrap().to_owned();
        let location = format!("{JOBS}/{id}");
        assert_eq!(answer.header("location"), Some(location.as_str()));
        (id, started["slug"].as_str().unwrap().to_owned())
    }

    /// The problem of a job that is not accepted.
    fn refused_job(&self, body: &Value) -> (u16, String, String) {
        let answer = self.ask("POST", JOBS, Some(&body.to_string()));
        let (status, reason) = answer.problem();
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        (status, reason, detail)
    }

    fn job(&self, id: &str) -> Value {
        self.get(&format!("{JOBS}/{id}"))
    }

    fn listed(&self, query: &str) -> (Vec<String>, Value) {
        let list = self.get(&format!("{JOBS}?{query}"));
        let jobs = list["jobs"].as_array().unwrap().iter();
        let ids = jobs.map(|job| job["id"].as_str().unwrap().to_owned());
        (ids.collect(), list["next_cursor"].clone())
    }

    fn wait_for_job(&self, id: &str, status: &str) -> Value {
        wait_until(status, || {
            let list = self.get(JOBS);
            let jobs = list["jobs"].as_array().unwrap();
            let job = jobs.iter().find(|job| job["id"] == *id).unwrap();
            job["status"] == *status
        });
        self.job(id)
    }
}

/// Runs jobs until it is dropped.
struct Runner(Option<JobWorker>);

impl Runner {
    fn start(jobs: &Arc<Jobs>) -> Self {
        Self(Some(JobWorker::start(Arc::clone(jobs)).unwrap()))
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        if let Some(worker) = self.0.take() {
            runtime.block_on(worker.stop());
        }
    }
}

#[test]
fn accepts_a_job_and_shows_it_queued() {
    let (running, folder) = Running::new("");
    let (id, slug) = running.start_job(&json!({ "urls": ["https://docs.example.com/a?b"] }));
    assert!(id.starts_with("job_") && id.len() == 30, "{id}");
    assert_eq!(slug.len(), 26);
    let check = |running: &Running| {
        let job = running.job(&id);
        assert_eq!(job["slug"], slug);
        assert_eq!(job["status"], "queued");
        assert_eq!(job["stage"], "discovery");
        assert_eq!(job["progress"], 0.0);
        assert_eq!(job["counts"]["total"], 0);
        assert_eq!(job["summary"], "docs.example.com");
        assert_eq!(job["started_at_ms"], Value::Null);
        assert_eq!(job.get("error"), None);
    };
    check(&running);
    drop(running);
    // It was durable before it was answered.
    check(&Running::in_folder("", folder.path()));
}

#[test]
fn lists_jobs_newest_first_in_pages() {
    let (running, _folder) = Running::new("");
    let start = |number| {
        let urls = [format!("https://{number}.example.com/")];
        running.start_job(&json!({ "urls": urls })).0
    };
    let mut ids: Vec<String> = (0..5).map(start).collect();
    ids.reverse();
    let (first, cursor) = running.listed("limit=3");
    assert_eq!(first, ids[..3]);
    let cursor = cursor.as_str().unwrap();
    let (second, cursor) = running.listed(&format!("limit=3&cursor={cursor}"));
    assert_eq!(second, ids[3..]);
    assert_eq!(cursor, Value::Null);
    for (wrong, named) in [("limit=0", "limit"), ("cursor=x", "cursor"), ("a=b", "a")] {
        let answer = running.ask("GET", &format!("{JOBS}?{wrong}"), None);
        assert_eq!(answer.problem(), (400, "bad_request".to_owned()));
        assert!(answer.body.contains(named), "{}", answer.body);
    }
}

#[test]
fn refuses_what_cannot_be_fetched_and_says_why() {
    let (running, _folder) = Running::new("");
    let many: Vec<String> = (0..=10_000)
        .map(|number| format!("https://a.example.com/{number}"))
        .collect();
    for (body, expected) in [
        (json!({}), "at least one URL"),
        (
            json!({ "urls": "https://a.example.com/" }),
            "a list of URLs",
        ),
        (
            json!({ "urls": ["ftp://a.example.com/?token=s3cret"] }),
            "urls[0]",
        ),
        (json!({ "urls": ["https://u:p@a.example.com/"] }), "urls[0]"),
        (json!({ "sitemaps": ["x"] }), "sitemaps[0]"),
        (json!({ "urls": many }), "at most 10000 URLs"),
        (
            json!({ "urls": ["https://a/"], "depth": 1001 }),
            "up to 1000",
        ),
        (json!({ "urls": ["https://a/"], "depth": -1 }), "depth"),
        (
            json!({ "urls": ["https://a/"], "include": ["("] }),
            "include",
        ),
        (
            json!({ "urls": ["https://a/"], "exclude": ["("] }),
            "exclude",
        ),
        (json!({ "urls": ["https://a/"], "crawl": 1 }), "crawl"),
        (
            json!({ "urls": ["https://a/"], "same_hosts": true }),
            "same_host",
        ),
    ] {
        let (status, reason, detail) = running.refused_job(&body);
        assert_eq!((status, &*reason), (422, "invalid"), "{detail}");
        assert!(detail.contains(expected), "{detail}");
        assert!(!detail.contains("s3cret"), "{detail}");
    }
    let long = format!("https://a.example.com/{}", "a".repeat(5 << 20));
    let (status, reason, _) = running.refused_job(&json!({ "urls": [long] }));
    assert_eq!((status, &*reason), (413, "body_too_large"));
    assert_eq!(running.listed("").0, Vec::<String>::new());
}

#[test]
fn refuses_private_addresses_at_once() {
    let (running, _folder) = Running::new("");
    for url in [
        "http://127.0.0.1:1/",
        "http://10.1.2.3/",
        "http://[::1]/",
        "http://localhost/",
        "http://169.254.169.254/latest/meta-data",
    ] {
        for field in ["urls", "sitemaps"] {
            let body = json!({ field: ["https://a.example.com/", url] });
            let (status, reason, detail) = running.refused_job(&body);
            assert_eq!((status, &*reason), (403, "address_not_allowed"), "{url}");
            assert!(detail.contains("[network]"), "{detail}");
        }
    }
}

#[test]
fn names_the_line_of_every_wrong_url() {
    let (running, _folder) = Running::new("");
    let problems = |body: Value| {
        let answer = running.ask("POST", JOBS, Some(&body.to_string()));
        let problems = answer.json()["problems"].clone();
        let fields = problems.as_array().unwrap().iter();
        let fields: Vec<String> = fields
            .map(|problem| problem["field"].as_str().unwrap().to_owned())
            .collect();
        (answer.status, fields)
    };
    let ok = "https://a.example.com/";
    let body = json!({
        "urls": [ok, "ftp://a", ok, "no url"], "crawl": "yes", "depth": -1, "same_host": 1,
    });
    let fields = |fields: &[&str]| fields.iter().map(|&field| field.to_owned()).collect();
    assert_eq!(
        problems(body),
        (422, fields(&["crawl", "depth", "same_host"]))
    );
    let body = json!({ "urls": [ok, "ftp://a", ok, "no url"], "depth": 1001 });
    assert_eq!(
        problems(body),
        (422, fields(&["urls[1]", "urls[3]", "depth"]))
    );
    let body = json!({
        "urls": [ok, "http://127.0.0.1/", "http://10.0.0.1/"], "sitemaps": ["http://[::1]/s.xml"],
    });
    assert_eq!(
        problems(body),
        (403, fields(&["urls[1]", "urls[2]", "sitemaps[0]"]))
    );
}

#[test]
fn refuses_a_job_when_too_many_are_queued() {
    let (running, _folder) = Running::new("[jobs]\nmax_queued = 2\n");
    let body = json!({ "urls": ["https://a.example.com/"] });
    let (first, _) = running.start_job(&body);
    running.start_job(&body);
    let answer = running.ask("POST", JOBS, Some(&body.to_string()));
    assert_eq!(answer.problem(), (429, "queue_full".to_owned()));
    assert_eq!(answer.header("retry-after"), Some("5"));
    assert!(answer.body.contains("2 jobs are queued"), "{}", answer.body);
    let cancelled = running.ask("POST", &format!("{JOBS}/{first}/cancel"), None);
    assert_eq!(cancelled.json()["status"], "cancelled");
    running.start_job(&body);
}

#[test]
fn refuses_a_job_while_the_store_fails_or_the_server_stops() {
    let folder = tempfile::tempdir().unwrap();
    let faults = Faults::from(1);
    let store = Store::open_faulty(folder.path(), faults.clone()).unwrap();
    let running = Running::with_store("", folder.path(), store);
    let body = json!({ "urls": ["https://a.example.com/"] });
    let (status, reason, _) = running.refused_job(&body);
    assert_eq!((status, &*reason), (503, "store_unavailable"));
    faults.heal();
    assert_eq!(running.listed("").0, Vec::<String>::new());
    running.admin().drain();
    let (status, reason, _) = running.refused_job(&body);
    assert_eq!((status, &*reason), (503, "draining"));
}

#[test]
fn limits_status_requests_per_client_and_job() {
    let (running, _folder) = Running::new("[jobs]\nstatus_limit = '3/1h'\n");
    let body = json!({ "urls": ["https://a.example.com/"] });
    let (first, _) = running.start_job(&body);
    let (second, _) = running.start_job(&body);
    let show = |id: &str| running.ask("GET", &format!("{JOBS}/{id}"), None);
    for _ in 0..3 {
        assert_eq!(show(&first).status, 200);
    }
    let refused = show(&first);
    assert_eq!(refused.problem(), (429, "status_limit".to_owned()));
    let after: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((3000..=3600).contains(&after), "{after}");
    assert!(
        refused.body.contains("jobs.status_limit"),
        "{}",
        refused.body
    );
    // Neither another job nor the list is limited by it.
    assert_eq!(show(&second).status, 200);
    assert_eq!(running.ask("GET", JOBS, None).status, 200);
    assert_eq!(show("job_unknown").status, 404);
}

#[test]
fn names_no_wait_if_it_is_switched_off() {
    let (running, _folder) =
        Running::new("[jobs]\nstatus_limit = '1/1h'\nstatus_retry_after = false\n");
    let (id, _) = running.start_job(&json!({ "urls": ["https://a.example.com/"] }));
    assert_eq!(running.job(&id)["status"], "queued");
    let refused = running.ask("GET", &format!("{JOBS}/{id}"), None);
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("retry-after"), None);
}

#[test]
fn cancels_a_queued_job_once() {
    let (running, _folder) = Running::new("");
    let (id, slug) = running.start_job(&json!({ "urls": ["https://a.example.com/"] }));
    let cancel = || running.ask("POST", &format!("{JOBS}/{id}/cancel"), None);
    let job = cancel().json();
    assert_eq!(job["status"], "cancelled");
    assert!(job["finished_at_ms"].is_i64());
    assert_eq!(cancel().problem(), (409, "wrong_state".to_owned()));
    let unknown = running.ask("POST", &format!("{JOBS}/job_x/cancel"), None);
    assert_eq!(unknown.problem(), (404, "not_found".to_owned()));
    let report = running.ask("GET", &format!("/r/{slug}"), None);
    assert_eq!(report.problem(), (409, "wrong_state".to_owned()));
    assert!(report.body.contains("was cancelled"), "{}", report.body);
    assert_eq!(metric(&running, "cancelled"), "1");
    assert_eq!(metric(&running, "queued"), "0");
}

#[test]
fn runs_a_job_and_serves_its_report() {
    let mock = mock();
    let (running, folder) = Running::new(LOCAL);
    let urls: Vec<String> = (0..20)
        .map(|number| format!("{}/{number}", mock.url()))
        .collect();
    let (id, slug) = running.start_job(&json!({ "urls": urls }));
    let queued = running.ask("GET", &format!("/r/{slug}.json"), None);
    assert_eq!(queued.problem(), (409, "wrong_state".to_owned()));
    assert!(queued.body.contains("queued"), "{}", queued.body);
    let _runner = Runner::start(&running.jobs);
    let job = running.wait_for_job(&id, "done");
    assert_eq!(job["progress"], 100.0);
    assert_eq!(job["stage"], "output");
    assert_eq!(job["counts"]["total"], 20);
    assert_eq!(job["counts"]["done"], 20);
    assert_eq!(job["counts"]["failed"], 0);
    assert!(job["finished_at_ms"].as_i64() >= job["started_at_ms"].as_i64());
    let report = running.ask("GET", &format!("/r/{slug}.json"), None);
    assert_eq!(report.header("content-type"), Some("application/json"));
    assert_eq!(report.json()["totals"]["urls"], 20);
    let page = running.ask("GET", &format!("/r/{slug}"), None);
    assert_eq!(
        page.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    assert!(page.body.starts_with("<!DOCTYPE html>"), "{}", page.body);
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
    assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
    let anonymous = ask(running.address(), "GET", &format!("/r/{slug}"), &[], "");
    assert_eq!(anonymous.status, 401);
    assert_eq!(
        files(folder.path(), &id),
        ["report.csp", "report.html", "report.json"]
    );
    assert_eq!(metric(&running, "done"), "1");
}

#[test]
fn a_redirect_to_a_private_address_fails_that_url_alone() {
    let (mock, redirect) = (mock(), redirect_to("http://127.0.0.2:1/"));
    let (running, _folder) =
        Running::new("[gate]\ninitial_rate = 10000\n[network]\nallow = [\"127.0.0.1/32\"]\n");
    let _runner = Runner::start(&running.jobs);
    let urls = [mock.url(), format!("http://{redirect}/a")];
    let (id, slug) = running.start_job(&json!({ "urls": urls }));
    let job = running.wait_for_job(&id, "done");
    assert_eq!(job["counts"]["done"], 2);
    assert_eq!(job["counts"]["failed"], 1);
    let report = running.get(&format!("/r/{slug}.json"));
    let errors = json!([{ "error": "address_not_allowed", "urls": 1 }]);
    assert_eq!(report["errors"], errors);
}

/// A server that redirects every request, but has no robots.txt.
fn redirect_to(target: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut line = String::new();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            _ = reader.read_line(&mut line);
            let status = match line.contains("robots.txt") {
                true => "404 Not Found".to_owned(),
                false => format!("302 Found\r\nLocation: {target}"),
            };
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n");
            _ = stream.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes());
        }
    });
    address
}

#[test]
fn a_job_without_a_folder_ends_with_an_error() {
    let mock = mock();
    let (running, folder) = Running::new(LOCAL);
    std::fs::write(folder.path().join("jobs"), "no folder").unwrap();
    let (id, slug) = running.start_job(&json!({ "urls": [mock.url()] }));
    let _runner = Runner::start(&running.jobs);
    let job = running.wait_for_job(&id, "error");
    let error = job["error"].as_str().unwrap();
    assert!(
        error.starts_with("the folder of the job cannot be made"),
        "{error}"
    );
    let report = running.ask("GET", &format!("/r/{slug}"), None);
    assert_eq!(report.problem(), (409, "wrong_state".to_owned()));
    assert!(report.body.contains("cannot be made"), "{}", report.body);
    assert_eq!(metric(&running, "error"), "1");
}

#[test]
fn a_full_disk_ends_a_job_with_an_error() {
    let mock = mock();
    let (running, folder) = Running::new(LOCAL);
    let (id, _) = running.start_job(&json!({ "urls": [mock.url()] }));
    let job_folder = folder.path().join("jobs").join(&id);
    std::fs::create_dir_all(&job_folder).unwrap();
    std::os::unix::fs::symlink("/dev/full", job_folder.join("report.json")).unwrap();
    let _runner = Runner::start(&running.jobs);
    let job = running.wait_for_job(&id, "error");
    let error = job["error"].as_str().unwrap();
    assert!(error.contains("No space left on device"), "{error}");
}

/// A server that answers no request until it is dropped; its address.
fn silent() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    (listener, url)
}

#[test]
fn runs_as_many_jobs_at_once_as_may_be() {
    let (_listener, url) = silent();
    let (running, _folder) = Running::new(&format!("{LOCAL}[jobs]\nmax_running = 2\n"));
    let _runner = Runner::start(&running.jobs);
    let ids: Vec<String> = (0..4)
        .map(|_| running.start_job(&json!({ "urls": [url] })).0)
        .collect();
    wait_until("two run", || metric(&running, "running") == "2");
    let statuses: Vec<Value> = ids
        .iter()
        .map(|id| running.job(id)["status"].clone())
        .collect();
    assert_eq!(statuses, ["running", "running", "queued", "queued"]);
    // A cancelled job makes room for the next one.
    let cancelled = running.ask("POST", &format!("{JOBS}/{}/cancel", ids[0]), None);
    assert_eq!(cancelled.json()["status"], "cancelled");
    running.wait_for_job(&ids[2], "running");
    assert_eq!(running.job(&ids[3])["status"], "queued");
    assert_eq!(metric(&running, "running"), "2");
}

#[test]
fn deletes_row_and_files_after_retain() {
    let mock = mock();
    let settings = format!("{LOCAL}[jobs]\nretain = '1ms'\n");
    let (running, folder) = Running::new(&settings);
    let (id, slug) = running.start_job(&json!({ "urls": [mock.url()] }));
    let _runner = Runner::start(&running.jobs);
    wait_until("deleted", || running.listed("").0.is_empty());
    assert!(!folder.path().join("jobs").join(&id).exists());
    let shown = running.ask("GET", &format!("{JOBS}/{id}"), None);
    assert_eq!(shown.problem(), (404, "not_found".to_owned()));
    let report = running.ask("GET", &format!("/r/{slug}"), None);
    assert_eq!(report.problem(), (404, "not_found".to_owned()));
}

/// The value of `tidegate_jobs` for a status.
fn metric(running: &Running, status: &str) -> String {
    let metrics = running.ask("GET", "/metrics", None).body;
    let name = format!("tidegate_jobs{{status=\"{status}\"}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
    line.unwrap().to_owned()
}

/// The files of a job, by name.
fn files(data: &Path, id: &str) -> Vec<String> {
    let entries = std::fs::read_dir(data.join("jobs").join(id)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}
