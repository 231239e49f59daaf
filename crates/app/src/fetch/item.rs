//! A URL on its way from the queue to its record.

use std::rc::Rc;
use std::time::Duration;

use policy::item::Item;
use policy::time::Timestamp;
use url::Url;

use super::lane::Lane;
use crate::observe::TraceContext;

/// A URL that is being fetched, over all its attempts and redirects.
#[derive(Debug)]
pub(super) struct FetchItem {
    pub(super) purpose: Purpose,
    /// The URL as it was queued.
    pub(super) queued: String,
    /// Where redirects have led so far.
    pub(super) url: Url,
    /// How many links away from a given URL it is.
    pub(super) depth: u32,
    /// The place of the page that links to it.
    pub(super) source: Option<u64>,
    /// Decides whether and when it is sent again; a new one for every URL of a chain of redirects.
    pub(super) item: Item,
    /// Hashes of the URLs that redirected.
    pub(super) visited: Vec<u64>,
    /// Requests that were sent.
    pub(super) sent: u32,
    /// How long it has waited, up to `waits_since`.
    pub(super) waited: Duration,
    /// Since when it waits.
    pub(super) waits_since: Timestamp,
    /// The status of the last response.
    pub(super) status: Option<u16>,
    /// The latency of the last response.
    pub(super) latency: Option<Duration>,
    /// When its fetch began.
    pub(super) began: Timestamp,
    /// Its place in a trace, if traces are exported.
    pub(super) trace: Option<Box<TraceContext>>,
}

/// What a URL is fetched for.
#[derive(Clone, Debug)]
pub(super) enum Purpose {
    /// A queued URL; with its place in the frontier.
    Page(u64),
    /// A sitemap; with its place in the frontier.
    Sitemap(u64),
    /// The robots.txt of a lane's host.
    Robots(Rc<Lane>, Scheme),
}

/// The scheme of a URL: with it, the host of a lane is an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    Http,
    Https,
}

impl Scheme {
    pub(super) fn of(url: &Url) -> Self {
        match url.scheme() {
            "https" => Self::Https,
            _ => Self::Http,
        }
    }
}

impl FetchItem {
    /// The place of its URL in the frontier; a robots.txt has none.
    pub(super) fn place(&self) -> Option<u64> {
        match self.purpose {
            Purpose::Page(place) | Purpose::Sitemap(place) => Some(place),
            Purpose::Robots(..) => None,
        }
    }

    pub(super) fn is_robots(&self) -> bool {
        matches!(self.purpose, Purpose::Robots(..))
    }

    /// Ends a wait at `now`, and returns how long it was.
    pub(super) fn end_wait(&mut self, now: Timestamp) -> Duration {
        let waited = now.since(self.waits_since);
        self.waited += waited;
        self.waits_since = now;
        waited
    }
}
