//! Fetches from a scripted server on loopback.

mod content;
mod server;

use std::rc::Rc;

use policy::item::TerminalReason;
use tidegate::Clock;
use tokio::runtime::Builder;

use super::*;
use crate::exchange::Trust;
use crate::log::Log;
use crate::observe::{Finished, SpanQueue};
use crate::settings::{Process, Sources};
use server::{Reply, Server};

/// Settings without limits, so that tests do not wait.
const FAST: &str = "[gate]\nenabled = false\n[fetch]\nrobots = false\n";

/// Runs a fetch in a runtime of its own, and returns its end with all records, sorted by URL.
fn fetch(settings: &str, plan: FetchPlan) -> (FetchSummary, Vec<UrlRecord>) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(run(settings, plan))
}

fn load(settings: &str) -> Settings {
    let sources = Sources {
        file: Some(("tidegate.toml".to_owned(), settings.into())),
        flags: Vec::new(),
    };
    Settings::load(&sources, &Process).unwrap()
}

async fn run(settings: &str, mut plan: FetchPlan) -> (FetchSummary, Vec<UrlRecord>) {
    let settings = load(settings);
    let records = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&records);
    plan.observer = Some(Box::new(move |record| {
        seen.borrow_mut().push(record.clone());
    }));
    let core = Core::new(&settings, Log::silent(), Clock::system(), 1);
    let fetcher = Fetcher::new(core, &settings, plan, 0).unwrap();
    let summary = fetcher.run(std::future::pending()).await.unwrap();
    let mut records = records.take();
    records.sort_by(|a, b| a.url.cmp(&b.url));
    (summary, records)
}

fn plan(urls: &[String]) -> FetchPlan {
    let mut plan = FetchPlan::new(Trust::Operator);
    plan.urls = urls.iter().map(|url| url.parse().unwrap()).collect();
    plan
}

#[test]
fn fetches_every_url_once() {
    let server = Server::start(|path| match path {
        "/missing" => Reply::status(404),
        path => Reply::text(path),
    });
    let urls = ["/a", "/b", "/b#part", "/missing"].map(|path| server.url(path));
    let (summary, records) = fetch(FAST, plan(&urls));
    let counts = summary.counts;
    assert_eq!((counts.known, counts.done, counts.failed), (3, 3, 1));
    assert_eq!(records[0].url, server.url("/a"));
    assert_eq!((records[0].status, records[0].bytes), (Some(200), 2));
    let sha256 = "c78dc6e85adb08a1a0ed9d60e5a8e3a8b0cda8b65ad4ddf5a8aee2a8f8a2d1f7";
    assert_eq!(records[0].sha256.as_ref().unwrap().len(), sha256.len());
    let rejected = Some(UrlError::Item(TerminalReason::Rejected));
    assert_eq!((records[2].status, records[2].error), (Some(404), rejected));
    assert_eq!(server.requests("/b"), 1);
}

#[test]
fn sends_failed_requests_again() {
    let server = Server::start_counting(|path, number| match (path, number) {
        ("/flaky", 1) => Reply::status(503),
        ("/broken", _) => Reply::status(500),
        _ => Reply::text("ok"),
    });
    let urls = ["/broken", "/flaky"].map(|path| server.url(path));
    let (_, records) = fetch(FAST, plan(&urls));
    let exhausted = Some(UrlError::Item(TerminalReason::Exhausted));
    assert_eq!((records[0].attempts, records[0].error), (3, exhausted));
    assert_eq!((records[1].attempts, records[1].error), (2, None));
    assert!(records[1].wait_ms > 0);
}

#[test]
fn follows_redirects_and_notices_loops() {
    let server = Server::start(|path| match path {
        "/a" => Reply::redirect("/b"),
        "/b" => Reply::redirect("c?x=1#y"),
        "/loop" => Reply::redirect("/loop2"),
        "/loop2" => Reply::redirect("/loop"),
        "/mail" => Reply::redirect("mailto:me@example.com"),
        path => match path.strip_prefix("/endless") {
            Some(more) => Reply::redirect(&format!("/endless{more}x")),
            None => Reply::text(path),
        },
    });
    let urls = ["/a", "/endless", "/loop", "/mail"].map(|path| server.url(path));
    let (_, records) = fetch(FAST, plan(&urls));
    assert_eq!(records[0].final_url, Some(server.url("/c?x=1")));
    assert_eq!((records[0].status, records[0].attempts), (Some(200), 3));
    let errors: Vec<_> = records[1..].iter().map(|record| record.error).collect();
    assert_eq!(
        errors,
        [
            Some(UrlError::TooManyRedirects),
            Some(UrlError::RedirectLoop),
            Some(UrlError::BadRedirect)
        ]
    );
    assert_eq!(records[1].attempts, 11);
}

#[test]
fn gives_up_on_a_host_that_refuses() {
    let server = Server::start(|_| Reply::status(500));
    let urls: Vec<_> = (0..30).map(|n| server.url(&format!("/{n}"))).collect();
    let settings =
        "[gate]\ninitial_rate = 1000\n[fetch]\nrobots = false\ngive_up_after = \"500ms\"\n";
    let (summary, records) = fetch(settings, plan(&urls));
    let errors = summary.errors;
    let count = |reason| {
        errors
            .get(&UrlError::Item(reason))
            .copied()
            .unwrap_or_default()
    };
    assert!(count(TerminalReason::BreakerOpen) > 0, "{errors:?}");
    assert_eq!(errors.values().sum::<u64>(), 30);
    let sent: u32 = records.iter().map(|record| record.attempts).sum();
    assert!(sent < 30, "{sent}");
}

#[test]
fn crawls_links_and_obeys_robots() {
    let server = Server::start(|path| match path {
        "/robots.txt" => Reply::text("User-agent: *\nDisallow: /private\n"),
        "/" => Reply::html(r#"<title>Home</title><a href="/a">a</a> <a href="/private/x">x</a>"#),
        "/a" => Reply::html(r#"<a href="/">home</a><a href="deep/b?q=1#f">b</a><a href="/gone">"#),
        "/gone" => Reply::status(404),
        path => Reply::html(&format!("<title>{path}</title>")),
    });
    let mut plan = plan(&[server.url("/")]);
    plan.scope = Scope::new(true, 5, true, &[], &[]).unwrap();
    plan.report = Some(Trackers::built_in());
    let (summary, records) = fetch("[gate]\nenabled = false\n", plan);
    let seen: Vec<_> = records
        .iter()
        .map(|record| (record.url.as_str(), record.depth, record.error))
        .collect();
    let rejected = Some(UrlError::Item(TerminalReason::Rejected));
    assert_eq!(
        seen,
        [
            (&*server.url("/"), 0, None),
            (&*server.url("/a"), 1, None),
            (&*server.url("/deep/b?q=1"), 2, None),
            (&*server.url("/gone"), 2, rejected),
            (&*server.url("/private/x"), 1, Some(UrlError::RobotsDenied)),
        ]
    );
    assert_eq!(records[0].title.as_deref(), Some("Home"));
    assert_eq!(server.requests("/private/x"), 0);
    assert_eq!(server.requests("/robots.txt"), 1);
    let report = summary.report.unwrap();
    assert_eq!(report.broken_links.rows[0].sources, [server.url("/a")]);
}

#[test]
fn says_why_a_robots_txt_cannot_be_read() {
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let failing = Server::start(|_| Reply::status(503));
    let urls = [format!("http://{closed}/"), failing.url("/")];
    let (_, mut records) = fetch("[gate]\nenabled = false\n", plan(&urls));
    records.sort_by_key(|record| record.url == failing.url("/"));
    let seen = records
        .iter()
        .map(|record| (record.error, record.message.as_deref().unwrap()));
    let unavailable = Some(UrlError::RobotsUnavailable);
    assert!(seen.eq([
        (
            unavailable,
            "robots.txt cannot be read: the connection was refused"
        ),
        (unavailable, "robots.txt cannot be read: HTTP 503"),
    ]));
}

#[test]
fn goes_on_after_a_stop() {
    let server = Server::start(Reply::text);
    let folder = tempfile::tempdir().unwrap();
    let (state, lines) = (folder.path().join("state"), folder.path().join("lines"));
    let urls: Vec<_> = (0..50).map(|n| server.url(&format!("/{n}"))).collect();
    let mut runs = 0;
    loop {
        runs += 1;
        let mut plan = plan(&urls);
        plan.state = Some(state.clone());
        plan.lines = Some(LinesTarget::File(lines.clone()));
        let settings = load("[gate]\nenabled = false\n[fetch]\nrobots = false\nconcurrency = 3\n");
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let summary = runtime.block_on(async {
            let core = Core::new(&settings, Log::silent(), Clock::system(), 1);
            let fetcher = Fetcher::new(core, &settings, plan, 0).unwrap();
            let sent = async {
                while fetcher.progress().counts.sent < 7 {
                    tokio::task::yield_now().await;
                }
            };
            fetcher.run(sent).await.unwrap()
        });
        if !summary.is_interrupted {
            assert_eq!(summary.counts.done, 50);
            break;
        }
    }
    assert!(runs > 3, "{runs}");
    let lines = std::fs::read_to_string(lines).unwrap();
    let seen: std::collections::BTreeSet<_> = lines
        .lines()
        .map(|line| serde_json::from_str::<UrlRecord>(line).unwrap().url)
        .collect();
    assert_eq!((lines.lines().count(), seen.len()), (50, 50));
}

#[test]
fn sends_headers_only_to_given_origins() {
    let other = Server::start(Reply::text);
    let target = other.url("/other");
    let server = Server::start(move |path| match path {
        "/away" => Reply::redirect(&target),
        "/here" => Reply::redirect("/there"),
        path => Reply::text(path),
    });
    let mut plan = plan(&["/away", "/here"].map(|path| server.url(path)));
    let secret = HeaderValue::from_static("s3cret");
    plan.headers.insert("authorization", secret);
    let settings = format!("{FAST}[network]\nallow = [\"127.0.0.0/8\"]\n");
    let (_, records) = fetch(&settings, plan);
    assert!(records.iter().all(|record| record.status == Some(200)));
    assert!(server.heads("/away")[0].contains("s3cret"));
    assert!(server.heads("/there")[0].contains("s3cret"));
    assert!(!other.heads("/other")[0].contains("s3cret"));
}

#[test]
fn checks_the_address_of_every_hop() {
    let other = Server::start(Reply::text);
    let target = other.url("/other");
    let server = Server::start(move |_| Reply::redirect(&target));
    let urls = [server.url("/away")];
    for settings in [FAST, "[gate]\nenabled = false\n"] {
        let (_, records) = fetch(settings, plan(&urls));
        assert_eq!(records[0].error, Some(UrlError::AddressNotAllowed));
    }
    assert_eq!(
        (other.requests("/other"), other.requests("/robots.txt")),
        (0, 0)
    );
}

#[test]
fn links_of_a_page_do_not_lead_to_other_local_servers() {
    let other = Server::start(Reply::text);
    let page = format!(r#"<a href="{}">x</a>"#, other.url("/secret"));
    let server = Server::start(move |path| match path {
        "/robots.txt" => Reply::status(404),
        _ => Reply::html(&page),
    });
    let mut plan = plan(&[server.url("/")]);
    plan.scope = Scope::new(true, 5, false, &[], &[]).unwrap();
    let (_, records) = fetch("[gate]\nenabled = false\n", plan);
    let mut errors: Vec<_> = records.iter().map(|record| record.error).collect();
    errors.sort();
    assert_eq!(errors, [None, Some(UrlError::AddressNotAllowed)]);
    assert_eq!(
        (other.requests("/secret"), other.requests("/robots.txt")),
        (0, 0)
    );
}

#[test]
fn urls_and_their_attempts_are_recorded_for_traces() {
    let server = Server::start_counting(|path, number| match (path, number) {
        ("/a", 1) => Reply::status(503),
        ("/a", _) => Reply::redirect("/b"),
        ("/missing", _) => Reply::status(404),
        _ => Reply::text("ok"),
    });
    let urls = ["/a", "/missing"].map(|path| server.url(path));
    let settings = load(FAST);
    let core = Core::new(&settings, Log::silent(), Clock::system(), 1);
    let queue = Arc::new(SpanQueue::new(1.0));
    core.observers().export_spans(Arc::clone(&queue));
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let fetcher = Fetcher::new(core, &settings, plan(&urls), 0).unwrap();
        fetcher.run(std::future::pending()).await.unwrap();
    });

    let (mut attempts, mut works) = (Vec::new(), Vec::new());
    for finished in queue.take_batch() {
        match finished {
            Finished::Attempt(attempt) => attempts.push(attempt),
            Finished::Work(work) => works.push(work),
            Finished::Request(request) => panic!("{request:?}"),
        }
    }
    assert_eq!(works.len(), 2, "{works:?}");
    let [ok, missing] = [None, Some("rejected")].map(|error| {
        let found = works.iter().find(|work| work.error == error);
        found.unwrap()
    });
    assert_eq!(ok.name, "fetch 127.0.0.1");
    assert_eq!(ok.texts, [("url.path", "/b".to_owned())]);
    assert!(ok.numbers.contains(&("tidegate.attempts", 3)));
    assert!(missing.numbers.contains(&("tidegate.attempts", 1)));
    assert_ne!(ok.trace.trace_id, missing.trace.trace_id);

    let of_ok: Vec<_> = attempts
        .iter()
        .filter(|attempt| attempt.trace == ok.trace)
        .collect();
    let numbers: Vec<u32> = of_ok.iter().map(|attempt| attempt.number).collect();
    assert_eq!((numbers, attempts.len()), (vec![1, 2, 3], 4));
    assert!(of_ok[0].resend.is_some() && of_ok[1].resend.is_none());
    // Waited for the retry.
    assert!(of_ok[1].waited > Duration::ZERO);
    let heads = [server.heads("/a"), server.heads("/b")].concat();
    for (head, attempt) in heads.iter().zip(of_ok) {
        let sent_with = attempt.trace.header(attempt.number);
        assert!(head.contains(sent_with.to_str().unwrap()), "{head}");
    }
}
