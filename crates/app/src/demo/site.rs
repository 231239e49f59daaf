//! The site that the demo's job crawls.
//!
//! Its `robots.txt` asks for half a second between requests, so that the crawl takes most of a
//! minute. The first page links to about half of the others; the rest is found on the way. So the
//! progress passes 30 % early and 70 % late, and a page that follows it polls every 2.5 s for most of
//! the time.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};

use super::servers::{Respond, text};

/// Answers with pages.
#[derive(Debug)]
pub(super) struct Site;

/// Pages, the first one included.
pub(super) const PAGES: u32 = 110;

/// The first page links to those below this number.
const LINKED_FROM_FIRST: u32 = 50;

/// These pages link to all the others.
const PARENTS: std::ops::Range<u32> = 16..LINKED_FROM_FIRST;

/// How many links away from the first page the last ones are.
pub(super) const DEPTH: u32 = 2;

/// Between two requests.
pub(super) const CRAWL_DELAY: Duration = Duration::from_millis(500);

/// Pages that are linked and missing.
const MISSING: [u32; 3] = [7, 61, 90];

impl Respond for Site {
    fn respond(&self, request: &Request<Bytes>) -> (Response<Bytes>, Duration) {
        let path = request.uri().path();
        if path == "/robots.txt" {
            let robots = format!(
                "User-agent: *\nCrawl-delay: {}\n",
                CRAWL_DELAY.as_secs_f64()
            );
            return (text(StatusCode::OK, "text/plain", robots), LATENCY);
        }
        match number(path) {
            Some(number) => {
                let page = text(StatusCode::OK, "text/html; charset=utf-8", page(number));
                (page, latency(number))
            }
            None => (
                text(StatusCode::NOT_FOUND, "text/html", "no such page"),
                LATENCY,
            ),
        }
    }
}

const LATENCY: Duration = Duration::from_millis(30);

/// Some pages are slower, so that the report has slow ones.
fn latency(number: u32) -> Duration {
    match number % 17 {
        0 => LATENCY * 12,
        _ => LATENCY,
    }
}

fn number(path: &str) -> Option<u32> {
    let number = match path {
        "/" => 0,
        _ => path.strip_prefix("/notes/")?.parse().ok()?,
    };
    (number < PAGES && !MISSING.contains(&number)).then_some(number)
}

/// The pages that a page is the first to link to.
pub(super) fn links(number: u32) -> Vec<u32> {
    if number == 0 {
        return (1..LINKED_FROM_FIRST).collect();
    }
    let parents = PARENTS.end - PARENTS.start;
    let others = PAGES - LINKED_FROM_FIRST;
    let parent = |page: u32| PARENTS.start + (page - LINKED_FROM_FIRST) * parents / others;
    let pages = LINKED_FROM_FIRST..PAGES;
    pages.filter(|page| parent(*page) == number).collect()
}

fn page(number: u32) -> String {
    let title = match number {
        0 => "Harbour notes".to_owned(),
        // Two pages with one title, for the report.
        33 | 34 => "Spring tides".to_owned(),
        _ => format!("Note {number}"),
    };
    let tracker = match number % 3 {
        0 => "<script src=\"https://www.google-analytics.com/analytics.js\"></script>",
        _ => "",
    };
    let links = links(number).into_iter().chain([0]);
    let links = links.map(|page| match page {
        0 => "<li><a href=\"/\">Harbour notes</a></li>".to_owned(),
        _ => format!("<li><a href=\"/notes/{page}\">Note {page}</a></li>"),
    });
    let links: String = links.collect();
    format!(
        "<!doctype html><html lang=\"en\"><head><title>{title}</title>{tracker}</head>\
         <body><h1>{title}</h1><p>Water levels, berths and arrivals of the day.</p>\
         <ul>{links}</ul></body></html>"
    )
}

/// The progress of a crawl after this many pages, in per cent: done in known, and never less than
/// before.
#[cfg(test)]
pub(super) fn progress_after(done: u32) -> f64 {
    let mut known = 1;
    let mut progress: f64 = 0.0;
    for number in 0..done.min(PAGES) {
        known += links(number).len();
        progress = progress.max(f64::from(number + 1) * 100.0 / known as f64);
    }
    progress
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_reach_every_page_once() {
        let mut found: Vec<u32> = (0..PAGES).flat_map(links).collect();
        found.sort_unstable();
        let all: Vec<u32> = (1..PAGES).collect();
        assert_eq!(found, all);
    }

    #[test]
    fn missing_pages_link_to_none() {
        assert!(MISSING.iter().all(|page| links(*page).is_empty()));
    }

    #[test]
    fn progress_passes_30_percent_early_and_70_percent_late() {
        let first_at = |percent| (1..=PAGES).find(|done| progress_after(*done) >= percent);
        assert_eq!(first_at(30.0), Some(15));
        assert_eq!(first_at(70.0), Some(77));
        assert!((progress_after(PAGES) - 100.0).abs() < 1e-9);
    }

    #[test]
    fn serves_pages_robots_and_missing_pages() {
        let get = |path: &str| {
            let request = Request::get(path).body(Bytes::new()).unwrap();
            let (response, _) = Site.respond(&request);
            let body = String::from_utf8(response.body().to_vec()).unwrap();
            (response.status().as_u16(), body)
        };
        assert!(get("/").1.contains("href=\"/notes/49\""));
        assert!(get("/notes/16").1.contains("href=\"/notes/50\""));
        assert!(get("/robots.txt").1.contains("Crawl-delay: 0.5"));
        for missing in ["/notes/7", "/notes/110", "/notes/x", "/other"] {
            assert_eq!(get(missing).0, 404, "{missing}");
        }
    }
}
