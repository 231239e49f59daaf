//! The state of a fetch, shared by its lanes and attempts, and what becomes of a URL.
//!
//! Everything runs in one thread: a URL costs some microseconds here, and most of its time is the
//! server's.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use policy::backoff::BackoffSettings;
use policy::gate::Reason;
use policy::outcome::Verdict;
use policy::random::Random;
use policy::time::Timestamp;
use tokio::sync::{Notify, watch};
use url::Url;

use super::FetchError;
use super::body::ReadBody;
use super::folder::{BodyFile, Folder, Validators};
use super::frontier::{Added, Entry, EntryKind, Frontier};
use super::item::{FetchItem, Purpose};
use super::lane::{self, Lane};
use super::links::Links;
use super::output::Output;
use super::page::{Page, PageReader};
use super::record::{ThirdParty, UrlError, UrlRecord};
use super::report::AttemptClass;
use super::retries::Retries;
use super::robots::{RobotsOutcome, RobotsRules, after_status};
use super::scope::{Scope, SeedHosts};
use super::sitemap::SitemapEntry;
use super::slots::Slots;
use super::trackers::{Trackers, is_third_party};
use super::url::parse_given;
use crate::core::Core;
use crate::exchange::{Exchange, Trust};
use crate::settings::Fetch;

/// The state of a fetch.
pub(super) struct Engine {
    pub(super) core: Arc<Core>,
    pub(super) exchange: Exchange,
    pub(super) settings: Fetch,
    pub(super) backoff: BackoffSettings,
    /// The number under which it has its connections.
    pub(super) worker: usize,
    pub(super) user_agent: HeaderValue,
    /// The same, for groups of robots.txt.
    pub(super) product: String,
    pub(super) headers: HeaderMap,
    pub(super) random: RefCell<Random>,
    pub(super) slots: Rc<Slots>,
    pub(super) trust: Trust,
    pub(super) max_body: u64,
    pub(super) scope: Scope,
    pub(super) trackers: Option<Trackers>,
    pub(super) folder: Option<Folder>,
    pub(super) frontier: RefCell<Frontier>,
    pub(super) links: Option<RefCell<Links>>,
    pub(super) output: RefCell<Output>,
    pub(super) state: EngineState,
}

/// What changes while a fetch runs.
#[derive(Debug, Default)]
pub(super) struct EngineState {
    pub(super) lanes: RefCell<HashMap<String, Rc<Lane>>>,
    /// Places of queued URLs whose hosts have no lane, because there are too many.
    unassigned: RefCell<VecDeque<u64>>,
    pub(super) retries: Retries,
    given_origins: RefCell<HashSet<u64>>,
    seed_hosts: RefCell<SeedHosts>,
    /// URLs that are queued and have not ended.
    pub(super) open: Cell<u64>,
    /// Of these, the ones that may lead to others.
    pub(super) expandable: Cell<u64>,
    pub(super) sent: Cell<u64>,
    /// Waits that were longer than `gate.throttled_after`.
    pub(super) throttled: Cell<u64>,
    /// URLs that were not queued, because there are too many.
    pub(super) left_out: Cell<u64>,
    pub(super) has_all: Cell<bool>,
    stopped: watch::Sender<bool>,
    /// Something has ended.
    pub(super) changed: Notify,
    problem: RefCell<Option<FetchError>>,
}

/// Hosts that are fetched from at a time; each has a task and some kilobytes.
const MAX_LANES: usize = 4096;

/// Items that wait to be sent again; while there are so many nothing new is sent.
const MAX_RETRIES: usize = 50_000;

impl Engine {
    /// Queues a URL that a person or a list gives. What cannot be requested gets its record at once.
    pub(super) fn add_given(self: &Rc<Self>, text: &str, kind: EntryKind) {
        let url = match parse_given(text) {
            Ok(url) => url,
            Err(error) => return self.add_bad(text, error.to_string()),
        };
        self.state.seed_hosts.borrow_mut().insert(&url);
        let origin = self.origin(&url);
        self.state.given_origins.borrow_mut().insert(origin);
        self.add(kind, 0, None, &url);
    }

    fn add_bad(self: &Rc<Self>, text: &str, message: String) {
        let entry = Entry {
            kind: EntryKind::Page,
            depth: 0,
            source: None,
            url: text
                .chars()
                .filter(|c| !c.is_control())
                .take(MAX_SHOWN)
                .collect(),
        };
        let added = self.frontier.borrow_mut().add(&entry);
        if let Some(place) = self.added(added, &entry) {
            let record = UrlRecord {
                url: entry.url,
                error: Some(UrlError::BadUrl),
                message: Some(message),
                ..UrlRecord::default()
            };
            self.end(place, 0, EntryKind::Page, record, "");
        }
    }

    /// Queues a URL.
    fn add(self: &Rc<Self>, kind: EntryKind, depth: u32, source: Option<u64>, url: &Url) {
        let entry = Entry {
            kind,
            depth,
            source,
            url: url.as_str().to_owned(),
        };
        let added = self.frontier.borrow_mut().add(&entry);
        if let Some(place) = self.added(added, &entry) {
            self.assign(place, url);
        }
    }

    /// Counts a URL that was added, and returns its place.
    fn added(&self, added: io::Result<Added>, entry: &Entry) -> Option<u64> {
        match added {
            Ok(Added::Queued(place)) => {
                self.open(entry.kind, entry.depth);
                Some(place)
            }
            Ok(Added::Known) => None,
            Ok(Added::Full) => {
                increment(&self.state.left_out);
                None
            }
            Err(error) => {
                self.stop_with(FetchError::Queue(error));
                None
            }
        }
    }

    fn open(&self, kind: EntryKind, depth: u32) {
        self.output.borrow_mut().known();
        increment(&self.state.open);
        if self.is_expandable(kind, depth) {
            increment(&self.state.expandable);
        }
    }

    /// Queues the URL at this place, which an earlier run left.
    pub(super) fn resume(self: &Rc<Self>, place: u64) {
        let entry = self.frontier.borrow_mut().entry(place);
        match entry {
            Ok(entry) => {
                self.open(entry.kind, entry.depth);
                match Url::parse(&entry.url) {
                    Ok(url) => {
                        if entry.source.is_none() {
                            self.state.seed_hosts.borrow_mut().insert(&url);
                            let origin = self.origin(&url);
                            self.state.given_origins.borrow_mut().insert(origin);
                        }
                        self.assign(place, &url);
                    }
                    Err(error) => {
                        let record = UrlRecord {
                            url: entry.url,
                            error: Some(UrlError::BadUrl),
                            message: Some(error.to_string()),
                            ..UrlRecord::default()
                        };
                        self.end(place, entry.depth, entry.kind, record, "");
                    }
                }
            }
            Err(error) => self.stop_with(FetchError::Queue(error)),
        }
    }

    /// Are the links of this page followed, or what it loads reported?
    pub(super) fn needs_links(&self, item: &FetchItem) -> bool {
        self.trackers.is_some() || self.scope.searches(item.depth)
    }

    fn is_expandable(&self, kind: EntryKind, depth: u32) -> bool {
        kind == EntryKind::Sitemap || self.scope.searches(depth)
    }

    /// Gives a queued URL to the lane of its host.
    fn assign(self: &Rc<Self>, place: u64, url: &Url) {
        if self.state.unassigned.borrow().is_empty()
            && let Some(lane) = self.lane(url)
        {
            return lane.queue(self, place);
        }
        self.state.unassigned.borrow_mut().push_back(place);
    }

    /// The lane of this URL's host; `None` if there are too many.
    fn lane(&self, url: &Url) -> Option<Rc<Lane>> {
        let key = policy::key::normalize(url.as_str()).unwrap_or_default();
        let mut lanes = self.state.lanes.borrow_mut();
        if let Some(lane) = lanes.get(&key) {
            return Some(Rc::clone(lane));
        }
        if lanes.len() >= MAX_LANES {
            lanes.retain(|_, lane| !lane.is_empty());
        }
        if lanes.len() >= MAX_LANES {
            return None;
        }
        let lane = Rc::new(Lane::new(self, key.clone()));
        lanes.insert(key, Rc::clone(&lane));
        Some(lane)
    }

    /// A lane has nothing to send: there may be room for another host.
    pub(super) fn end_lane(self: &Rc<Self>) {
        loop {
            let Some(place) = self.state.unassigned.borrow().front().copied() else {
                return;
            };
            let entry = self.frontier.borrow_mut().entry(place);
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return self.stop_with(FetchError::Queue(error)),
            };
            let lane = Url::parse(&entry.url).ok().and_then(|url| self.lane(&url));
            let Some(lane) = lane else {
                return;
            };
            self.state.unassigned.borrow_mut().pop_front();
            lane.queue(self, place);
        }
    }

    /// The item of the queued URL at this place.
    pub(super) fn item(self: &Rc<Self>, place: u64, since: Timestamp) -> Option<Box<FetchItem>> {
        let entry = self.frontier.borrow_mut().entry(place);
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                self.stop_with(FetchError::Queue(error));
                return None;
            }
        };
        // What is queued was parsed before.
        let url = Url::parse(&entry.url).ok()?;
        let purpose = match entry.kind {
            EntryKind::Page => Purpose::Page(place),
            EntryKind::Sitemap => Purpose::Sitemap(place),
        };
        let Entry {
            depth,
            source,
            url: queued,
            ..
        } = entry;
        Some(self.new_item(purpose, queued, url, depth, source, since))
    }

    pub(super) fn new_item(
        &self,
        purpose: Purpose,
        queued: String,
        url: Url,
        depth: u32,
        source: Option<u64>,
        since: Timestamp,
    ) -> Box<FetchItem> {
        let now = self.core.clock().now();
        Box::new(FetchItem {
            purpose,
            queued,
            url,
            depth,
            source,
            item: lane::new_item(self.settings.give_up_after, since),
            visited: Vec::new(),
            sent: 0,
            waited: Duration::ZERO,
            waits_since: now,
            status: None,
            latency: None,
            began: now,
            trace: self.trace_context().map(Box::new),
        })
    }

    /// Sends an item again at this time.
    pub(super) fn send_again(&self, at: Timestamp, item: Box<FetchItem>) {
        self.state.retries.push(at, item);
    }

    /// Gives an item whose time has come to its lane.
    pub(super) fn take_retry(self: &Rc<Self>, item: Box<FetchItem>) {
        match self.lane(&item.url) {
            Some(lane) => lane.take(self, item),
            None => self.send_again(self.core.clock().now() + RETRY_LANE, item),
        }
    }

    /// Waits until few enough items wait to be sent again.
    pub(super) async fn wait_for_retries(&self) {
        while self.state.retries.len() >= MAX_RETRIES {
            self.core
                .clock()
                .sleep_until(self.core.clock().now() + RETRY_LANE)
                .await;
        }
    }

    /// Follows a redirect: the item is sent through the gate of its new host.
    pub(super) fn redirect(self: &Rc<Self>, mut item: Box<FetchItem>) {
        let is_followed = item.is_robots()
            || item.source.is_none()
            || self
                .scope
                .includes(&item.url, &self.state.seed_hosts.borrow());
        if !is_followed {
            let message = "the redirect leads to a URL that is not to be fetched";
            return self.complete_unread(item, Some(message.to_owned()));
        }
        item.item = lane::new_item(self.settings.give_up_after, self.core.clock().now());
        self.take_retry(item);
    }

    /// Whether the address of an item was written by the operator.
    pub(super) fn trust(&self, item: &FetchItem) -> Trust {
        // A robots.txt has no source, and its host may be any that a page links to.
        let was_given = item.source.is_none() && item.visited.is_empty() && !item.is_robots();
        let is_given = self.trust == Trust::Operator && (was_given || self.is_given(&item.url));
        match is_given {
            true => Trust::Operator,
            false => Trust::Untrusted,
        }
    }

    /// Was a URL of this origin given?
    pub(super) fn is_given(&self, url: &Url) -> bool {
        let origin = self.origin(url);
        self.state.given_origins.borrow().contains(&origin)
    }

    fn origin(&self, url: &Url) -> u64 {
        let port = url.port_or_known_default().unwrap_or_default();
        let host = url.host_str().unwrap_or_default();
        self.hash(&format!("{}://{host}:{port}", url.scheme()))
    }

    pub(super) fn hash(&self, text: &str) -> u64 {
        self.frontier.borrow().hash(text)
    }

    pub(super) fn validators(&self, url: &str) -> Option<Validators> {
        self.folder.as_ref()?.validators(url)
    }

    pub(super) fn begin_file(&self, url: &Url) -> io::Result<Option<BodyFile>> {
        let folder = self.folder.as_ref();
        folder.map(|folder| folder.begin(url)).transpose()
    }

    /// An entry of a sitemap.
    pub(super) fn found_in_sitemap(self: &Rc<Self>, item: &FetchItem, entry: SitemapEntry) {
        let place = item.place();
        match entry {
            SitemapEntry::Page(url) => {
                if self.scope.includes(&url, &self.state.seed_hosts.borrow()) {
                    self.add(EntryKind::Page, 0, place, &url);
                }
            }
            // An index of indexes is not allowed by the protocol, and exists.
            SitemapEntry::Sitemap(url) => {
                if item.depth < MAX_SITEMAP_DEPTH {
                    self.add(EntryKind::Sitemap, item.depth + 1, place, &url);
                }
            }
        }
    }

    /// Ends a robots.txt that was read.
    pub(super) fn complete_robots(&self, item: &FetchItem, body: &[u8]) {
        if let Purpose::Robots(lane, scheme) = &item.purpose {
            self.record_url(item, None);
            let rules = RobotsRules::parse(body, &self.product);
            lane.set_robots(self, *scheme, Ok(rules));
        }
    }

    /// Ends an item with what was read.
    pub(super) fn complete(self: &Rc<Self>, item: Box<FetchItem>, body: ReadBody) {
        let mut record = self.record(&item);
        record.bytes = body.bytes;
        record.sha256 = body.sha256;
        record.content_type = body.content_type;
        record.file = body.file;
        if let Some(page) = body.page {
            self.follow_links(&item, &page);
            record.third_parties = self.third_parties(&item.url, &page);
            record.title = page.title;
        }
        self.end_item(&item, record);
    }

    fn complete_unread(self: &Rc<Self>, item: Box<FetchItem>, message: Option<String>) {
        let mut record = self.record(&item);
        record.message = message;
        self.end_item(&item, record);
    }

    /// Ends an item whose stored body is still the present one.
    pub(super) fn not_modified(self: &Rc<Self>, item: Box<FetchItem>) {
        let mut record = self.record(&item);
        record.not_modified = true;
        if let Some(folder) = &self.folder {
            let stored = folder.stored(item.url.as_str());
            if let Some(stored) = stored {
                record.bytes = stored.bytes;
                record.sha256 = Some(stored.sha256);
                record.title = stored.title;
                record.file = Some(stored.file);
                if self.scope.searches(item.depth)
                    && let Some(page) = self.stored_page(&item, stored.content_type.as_deref())
                {
                    self.follow_links(&item, &page);
                }
                record.content_type = stored.content_type;
            }
        }
        self.end_item(&item, record);
    }

    /// Searches a stored page for links again.
    fn stored_page(&self, item: &FetchItem, content_type: Option<&str>) -> Option<Page> {
        let mut reader = PageReader::new(&item.url, content_type)?;
        let folder = self.folder.as_ref()?;
        let mut file = folder.open_body(item.url.as_str()).ok()?;
        let mut piece = vec![0; 64 << 10];
        loop {
            match io::Read::read(&mut file, &mut piece) {
                Ok(0) | Err(_) => break,
                Ok(length) => reader.write(&piece[..length]),
            }
        }
        Some(reader.finish())
    }

    /// Ends an item that failed.
    pub(super) fn fail(
        self: &Rc<Self>,
        item: Box<FetchItem>,
        error: UrlError,
        message: Option<String>,
    ) {
        if let Purpose::Robots(lane, scheme) = &item.purpose {
            self.record_url(&item, Some(error));
            let rules = match (error, item.status) {
                // The page has the same address, and is refused for it.
                (UrlError::AddressNotAllowed, _) => Ok(RobotsRules::allow_all()),
                // RFC 9309, 2.3.1.2: taken as not there.
                (
                    UrlError::TooManyRedirects | UrlError::RedirectLoop | UrlError::BadRedirect,
                    _,
                ) => Ok(RobotsRules::allow_all()),
                (UrlError::Item(_), Some(status))
                    if after_status(status) == RobotsOutcome::AllowAll =>
                {
                    Ok(RobotsRules::allow_all())
                }
                _ => {
                    let why = message.filter(|message| !message.is_empty());
                    let why = why.unwrap_or_else(|| error.to_string());
                    Err(format!("robots.txt cannot be read: {why}"))
                }
            };
            return lane.set_robots(self, *scheme, rules);
        }
        let mut record = self.record(&item);
        record.error = Some(error);
        record.message = message.filter(|message| !message.is_empty());
        self.end_item(&item, record);
    }

    fn record(&self, item: &FetchItem) -> UrlRecord {
        let source = item.source.and_then(|place| {
            let entry = self.frontier.borrow_mut().entry(place);
            entry.ok().map(|entry| entry.url)
        });
        UrlRecord {
            url: item.queued.clone(),
            status: item.status,
            attempts: item.sent,
            wait_ms: whole_millis(item.waited),
            latency_ms: item.latency.map(whole_millis),
            final_url: (!item.visited.is_empty()).then(|| item.url.as_str().to_owned()),
            depth: item.depth,
            source,
            ..UrlRecord::default()
        }
    }

    fn follow_links(self: &Rc<Self>, item: &FetchItem, page: &Page) {
        let depth = item.depth + 1;
        let place = item.place();
        for link in &page.links {
            if !self
                .scope
                .follows(link, depth, &self.state.seed_hosts.borrow())
            {
                continue;
            }
            self.add(EntryKind::Page, depth, place, link);
            if let (Some(links), Some(place)) = (&self.links, place)
                && let Err(error) = links.borrow_mut().add(link.as_str(), place)
            {
                self.stop_with(FetchError::Queue(error));
            }
        }
    }

    fn third_parties(&self, url: &Url, page: &Page) -> Vec<ThirdParty> {
        let Some(trackers) = &self.trackers else {
            return Vec::new();
        };
        let mut found: Vec<ThirdParty> = Vec::new();
        for resource in &page.resources {
            let Some(host) = resource.url.host_str() else {
                continue;
            };
            if !is_third_party(url, &resource.url) {
                continue;
            }
            let is_tracker = trackers.is_tracker(url, &resource.url, resource.kind);
            if let Some(known) = found.iter_mut().find(|known| known.host == host) {
                known.is_tracker |= is_tracker;
            } else if found.len() < MAX_THIRD_PARTIES {
                found.push(ThirdParty {
                    host: host.to_owned(),
                    is_tracker,
                });
            }
        }
        found
    }

    fn end_item(self: &Rc<Self>, item: &FetchItem, record: UrlRecord) {
        let kind = match item.purpose {
            Purpose::Sitemap(_) => EntryKind::Sitemap,
            Purpose::Page(_) | Purpose::Robots(..) => EntryKind::Page,
        };
        let key = policy::key::normalize(item.url.as_str()).unwrap_or_default();
        let result = match record.error {
            Some(UrlError::Item(reason)) => Err(reason),
            _ => Ok(()),
        };
        self.core.metrics().url_ended(item.item.sent(), result);
        self.record_url(item, record.error);
        if let Some(place) = item.place() {
            self.end(place, item.depth, kind, record, &key);
        }
    }

    /// Ends the URL at this place.
    fn end(&self, place: u64, depth: u32, kind: EntryKind, record: UrlRecord, key: &str) {
        decrement(&self.state.open);
        if self.is_expandable(kind, depth) {
            decrement(&self.state.expandable);
        }
        let written =
            self.output
                .borrow_mut()
                .record(&mut self.frontier.borrow_mut(), place, record, key);
        if let Err(error) = written {
            self.stop_with(error);
        }
        if self.state.open.get() == 0 {
            self.state.changed.notify_one();
        }
    }

    /// Counts a wait at a gate.
    pub(super) fn waited(&self, reason: Reason, time: Duration, is_throttled: bool) {
        self.core.metrics().waited(reason, time);
        if is_throttled {
            increment(&self.state.throttled);
        }
    }

    /// Counts a request that was sent.
    pub(super) fn attempted(&self, key: &str, verdict: Option<Verdict>, status: Option<u16>) {
        increment(&self.state.sent);
        if let (Some(report), Some(verdict)) = (&self.output.borrow().report, verdict) {
            let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
            let class = AttemptClass::of(verdict, status);
            report.attempted(key, self.core.clock().now(), class);
        }
    }

    pub(super) fn end_attempt(&self) {
        if *self.state.stopped.borrow() && self.slots.used() == 0 {
            self.state.changed.notify_one();
        }
    }

    /// Is everything done?
    pub(super) fn is_done(&self) -> bool {
        let is_stopped = *self.state.stopped.borrow();
        match is_stopped {
            true => self.slots.used() == 0,
            false => self.state.has_all.get() && self.state.open.get() == 0,
        }
    }

    /// Starts nothing any more.
    pub(super) fn stop(&self) {
        self.state.stopped.send_replace(true);
        self.state.changed.notify_one();
    }

    pub(super) fn is_stopped(&self) -> bool {
        *self.state.stopped.borrow()
    }

    /// Ready when nothing is started any more.
    pub(super) async fn stopped(&self) {
        let mut stopped = self.state.stopped.subscribe();
        // The sender lives as long as the engine.
        _ = stopped.wait_for(|stopped| *stopped).await;
    }

    /// Stops because of this problem.
    pub(super) fn stop_with(&self, error: FetchError) {
        self.state.problem.borrow_mut().get_or_insert(error);
        self.stop();
    }

    pub(super) fn take_problem(&self) -> Option<FetchError> {
        self.state.problem.borrow_mut().take()
    }

    /// Stops everything if the task that holds it panics.
    pub(super) fn guard(self: &Rc<Self>) -> PanicGuard {
        PanicGuard(Rc::clone(self))
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

/// Stops everything if the task that holds it panics: the URL would never end.
pub(super) struct PanicGuard(Rc<Engine>);

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop_with(FetchError::Panicked);
        }
    }
}

/// As much of a line that is no URL as is shown.
const MAX_SHOWN: usize = 200;

/// Sitemaps within sitemaps.
const MAX_SITEMAP_DEPTH: u32 = 3;

/// Hosts of other sites noted for one page.
const MAX_THIRD_PARTIES: usize = 100;

/// When an item that is sent again finds too many hosts in use.
const RETRY_LANE: Duration = Duration::from_millis(100);

pub(super) fn whole_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn increment(count: &Cell<u64>) {
    count.set(count.get() + 1);
}

fn decrement(count: &Cell<u64>) {
    count.set(count.get().saturating_sub(1));
}
