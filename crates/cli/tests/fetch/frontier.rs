//! The memory of a fetch that knows of many URLs.

use std::fs;
use std::process::Child;

use serde_json::Value;

use crate::server;
use crate::support::{folder, tidegate_fetch};

const PAGES: usize = 10;
const LINKS: usize = 10_000;

/// In KiB, without the program itself. The pages, their links and records on the way have about 40 MiB;
/// text and records of all these URLs would be some 40 MiB more.
const MAX_PEAK: u64 = 60 * 1024;

/// robots.txt denies the pages that are linked, so that each is queued and gets its record, and the
/// test does not take as long as that many requests.
#[test]
fn queues_100_000_links_in_little_memory() {
    let server = server::start(|path| match path {
        "/robots.txt" => Some(("text/plain", "user-agent: *\ndisallow: /page/\n".to_owned())),
        path => {
            let page: usize = path.strip_prefix("/hub/")?.parse().ok()?;
            let links = (page * LINKS..(page + 1) * LINKS).map(|n| {
                format!("<a href=\"/page/number-{n}-of-many-with-a-long-name\">{n}</a>\n")
            });
            Some(("text/html", links.collect()))
        }
    });
    let folder = folder("[gate]\nenabled = false\n");
    let hubs: Vec<String> = (0..PAGES)
        .map(|n| format!("http://{server}/hub/{n}"))
        .collect();
    let mut args = vec!["--quiet", "--crawl", "--depth", "1", "--jsonl", "lines"];
    args.extend(hubs.iter().map(String::as_str));
    let mut child = tidegate_fetch(folder.path(), &args).spawn().unwrap();
    let peak = peak_memory(&mut child);
    let lines = fs::read_to_string(folder.path().join("lines")).unwrap();
    let denied = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line["error"] == "robots_denied");
    assert_eq!(denied.count(), PAGES * LINKS);
    assert!(peak < MAX_PEAK, "{peak} KiB");
}

/// The peak of a process's own memory, in KiB, once it has ended. Pages of its file are not counted: a
/// debug build has more of them the more it can do.
fn peak_memory(child: &mut Child) -> u64 {
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        // A process that has ended and was not waited for has no memory.
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        if let Some(line) = line {
            let now: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
            peak = now.max(peak);
        }
        pause();
    }
    peak
}

#[expect(
    clippy::disallowed_methods,
    reason = "the standard library has no wait with a timeout, so processes are polled"
)]
fn pause() {
    std::thread::sleep(std::time::Duration::from_millis(5));
}
