//! Collects the figures of a report while the fetch runs, in bounded memory.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use policy::breaker::BreakerState;
use policy::item::TerminalReason;
use policy::latency::Latency;
use policy::outcome::Verdict;
use policy::time::{Timestamp, WallTime};
use tidegate::GateView;
use tidegate::event::Event;

use super::bands::{Bands, millis};
use super::series::{Slices, Step};
use super::titles::Titles;
use super::{
    BandKind, ContentTypeCount, DeniedUrl, ErrorCount, FailedUrl, HostReport, Listed, Redirect,
    Report, ReportTotals, RequestCounts, SlowUrl, StatusCount, ThirdPartyHost,
};
use crate::fetch::trackers;
use crate::fetch::{UrlError, UrlRecord};

/// Hosts that are counted apart: with their course over time 6 MB at most. Later ones are counted
/// together.
pub(super) const MAX_HOSTS: usize = 1000;
/// Rows of a table. A person filters a few hundred, and a page of six such tables loads at once.
pub(super) const MAX_ROWS: usize = 500;
/// Rows of tables that only give examples.
pub(super) const MAX_EXAMPLES: usize = 200;
/// Hosts whose course over time is stored and plotted: 15 KB each in a page.
pub(super) const MAX_PLOTTED: usize = 20;
/// Third-party hosts that are counted.
const MAX_THIRD_PARTIES: usize = 5000;
/// Content types that are counted apart.
const MAX_CONTENT_TYPES: usize = 100;
/// Source pages that are named for a URL.
const MAX_SOURCES: usize = 20;
/// How many bytes all source pages of a list take at most.
const MAX_SOURCES_BYTES: usize = 400_000;
/// How many bytes of a URL or other text are stored: what browsers and servers agree on.
pub(super) const MAX_TEXT: usize = 2048;
/// How many bytes the URLs of a table take at most, so that long ones do not fill the page.
const MAX_TABLE_BYTES: usize = 250_000;

/// Collects the figures of a [`Report`].
///
/// Memory is bounded, about 35 MB at worst, however many URLs and hosts there are. All times are on
/// the limiter's clock.
#[derive(Debug)]
pub struct ReportBuilder {
    started: WallTime,
    origin: Timestamp,
    step: Step,
    totals: ReportTotals,
    earlier_urls: u64,
    statuses: BTreeMap<u16, u64>,
    errors: BTreeMap<UrlError, u64>,
    content_types: HashMap<String, (u64, u64)>,
    slices: Slices,
    hosts: HashMap<String, Host>,
    other_hosts: Option<Host>,
    slowest: Slowest,
    broken: Rows<FailedUrl>,
    failed: Rows<FailedUrl>,
    denied: Rows<DeniedUrl>,
    redirects: Rows<Redirect>,
    titles: Titles,
    third_parties: HashMap<String, (u64, bool)>,
    has_more_third_parties: bool,
}

/// What became of one request, for the figures of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptClass {
    /// 2xx or 3xx.
    Accepted = 0,
    /// Refused for its pace: 429, 503, and other statuses with such a hint.
    Refused = 1,
    /// Any other 4xx.
    Rejected = 2,
    /// Any other 5xx, or no response.
    Failed = 3,
}

impl AttemptClass {
    /// The class of an outcome.
    pub const fn of(verdict: Verdict, status: Option<u16>) -> Self {
        match verdict {
            Verdict::Success => Self::Accepted,
            Verdict::Throttled | Verdict::QuotaExhausted => Self::Refused,
            Verdict::Overloaded => match status {
                Some(503) => Self::Refused,
                _ => Self::Failed,
            },
            Verdict::Unreachable => Self::Failed,
            Verdict::Unauthorized | Verdict::Conflict | Verdict::Rejected => Self::Rejected,
        }
    }
}

/// How a fetch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportEnd {
    /// When.
    pub at: Timestamp,
    /// Whether every known URL is done.
    pub is_complete: bool,
    /// Requests that waited for longer than `gate.throttled_after`.
    pub throttled: u64,
}

impl ReportBuilder {
    /// An empty report of a fetch that started at `started`, which is `origin` on the limiter's
    /// clock.
    pub fn new(started: WallTime, origin: Timestamp) -> Self {
        Self {
            started,
            origin,
            step: Step::FIRST,
            totals: ReportTotals::default(),
            earlier_urls: 0,
            statuses: BTreeMap::new(),
            errors: BTreeMap::new(),
            content_types: HashMap::new(),
            slices: Slices::default(),
            hosts: HashMap::new(),
            other_hosts: None,
            slowest: Slowest::default(),
            broken: Rows::new(MAX_ROWS),
            failed: Rows::new(MAX_ROWS),
            denied: Rows::new(MAX_EXAMPLES),
            redirects: Rows::new(MAX_ROWS),
            titles: Titles::default(),
            third_parties: HashMap::new(),
            has_more_third_parties: false,
        }
    }

    /// A request to the host with the gate `key` has its response, or has failed. Called for every
    /// request, those for redirects and robots.txt included.
    pub fn attempted(&mut self, key: &str, at: Timestamp, class: AttemptClass) {
        let index = self.index(at);
        self.totals.requests.count(class);
        self.slices.count(index, class);
        let host = self.host(key);
        host.requests.count(class);
        host.slices.count(index, class);
    }

    /// A URL is done; `key` is the gate of its last request. `is_earlier` if an earlier run finished
    /// it, whose requests were not given to [`ReportBuilder::attempted`].
    pub fn add(&mut self, record: &UrlRecord, key: &str, is_earlier: bool) {
        self.totals.urls += 1;
        self.totals.wait_ms = self.totals.wait_ms.saturating_add(record.wait_ms);
        self.totals.bytes = self.totals.bytes.saturating_add(record.bytes);
        self.totals.not_modified += u64::from(record.not_modified);
        if let Some(status) = record.status {
            *self.statuses.entry(status).or_default() += 1;
        }
        if is_earlier {
            self.earlier_urls += 1;
            self.totals.requests.sent += u64::from(record.attempts);
            self.host(key).requests.sent += u64::from(record.attempts);
        }
        self.host(key).add(record);
        self.slowest.offer(record);
        if let Some(final_url) = &record.final_url {
            self.totals.redirected += 1;
            self.redirects.push(
                || Redirect {
                    url: clip(&record.url),
                    final_url: clip(final_url),
                    status: record.status,
                },
                &[&record.url, final_url],
            );
        }
        match record.error {
            Some(error) => self.add_failed(record, error),
            None => self.add_fetched(record),
        }
    }

    fn add_fetched(&mut self, record: &UrlRecord) {
        self.totals.fetched += 1;
        self.count_content_type(record);
        if let Some(title) = &record.title
            && !title.trim().is_empty()
        {
            let url = record.final_url.as_ref().unwrap_or(&record.url);
            self.titles.add(title.trim(), url);
        }
        for party in &record.third_parties {
            self.count_third_party(&party.host, party.is_tracker);
        }
    }

    fn add_failed(&mut self, record: &UrlRecord, error: UrlError) {
        *self.errors.entry(error).or_default() += 1;
        if is_denied(error) {
            self.totals.denied += 1;
            let denied = || DeniedUrl {
                url: clip(&record.url),
                error,
            };
            self.denied.push(denied, &[&record.url]);
            return;
        }
        let rows = if is_broken(error, record.status) {
            self.totals.broken += 1;
            &mut self.broken
        } else {
            self.totals.failed += 1;
            &mut self.failed
        };
        let failed = || FailedUrl {
            url: clip(&record.url),
            status: record.status,
            error,
            message: record.message.as_deref().map(clip),
            attempts: record.attempts,
            sources: record.source.iter().map(|source| clip(source)).collect(),
        };
        let message = record.message.as_deref().unwrap_or("");
        let source = record.source.as_deref().unwrap_or("");
        rows.push(failed, &[&record.url, message, source]);
    }

    fn count_content_type(&mut self, record: &UrlRecord) {
        let Some(content_type) = &record.content_type else {
            return;
        };
        let essence = content_type.split(';').next().unwrap_or("").trim();
        let essence = match essence.len() {
            0 | 101.. => OTHER.to_owned(),
            _ => essence.to_ascii_lowercase(),
        };
        let is_known = self.content_types.contains_key(&essence);
        let has_room = self.content_types.len() < MAX_CONTENT_TYPES;
        let name = if is_known || has_room {
            essence
        } else {
            OTHER.to_owned()
        };
        let (urls, bytes) = self.content_types.entry(name).or_default();
        *urls += 1;
        *bytes = bytes.saturating_add(record.bytes);
    }

    fn count_third_party(&mut self, host: &str, is_tracker: bool) {
        if let Some((pages, tracks)) = self.third_parties.get_mut(host) {
            *pages += 1;
            *tracks |= is_tracker;
        } else if self.third_parties.len() < MAX_THIRD_PARTIES && host.len() <= MAX_HOST_LENGTH {
            self.third_parties.insert(host.to_owned(), (1, is_tracker));
        } else {
            self.has_more_third_parties = true;
        }
    }

    /// The state of gates, about once a second. Gates of hosts without requests are ignored.
    pub fn sample(&mut self, now: Timestamp, gates: &[GateView]) {
        let index = self.index(now);
        let (elapsed, origin) = (now.since(self.origin), self.origin);
        for view in gates {
            let Some(host) = self.hosts.get_mut(&view.key) else {
                continue;
            };
            let gate = &view.gate;
            host.slices.set_rate(index, gate.rate, gate.ceiling);
            (host.rate, host.ceiling) = (Some(gate.rate), gate.ceiling);
            if let Some((until, source)) = gate.hold {
                let until = until.since(origin);
                let reason = || source.to_string();
                host.bands.add(BandKind::Held, elapsed, until, reason);
            }
            let reason = || match gate.consecutive_failures {
                0 => "failures".to_owned(),
                1 => "1 failure".to_owned(),
                count => format!("{count} failures in a row"),
            };
            match gate.breaker {
                BreakerState::Closed => host.bands.close(elapsed),
                BreakerState::Open => {
                    let until = gate
                        .breaker_until
                        .map_or(elapsed, |until| until.since(origin));
                    host.bands.add(BandKind::Open, elapsed, until, reason);
                }
                BreakerState::HalfOpen => host.bands.half_open(elapsed),
                BreakerState::Isolated => host.bands.isolate(elapsed),
            }
        }
    }

    /// An event of the limiter: starts of holds and changes of breakers between two samples. Others
    /// are ignored, as are gates of hosts without requests.
    pub fn event(&mut self, at: Timestamp, event: &Event<'_>) {
        let (elapsed, origin) = (at.since(self.origin), self.origin);
        match *event {
            Event::HoldStarted { key, until, source } => {
                if let Some(host) = self.hosts.get_mut(key) {
                    let until = until.since(origin);
                    let reason = || source.to_string();
                    host.bands.add(BandKind::Held, elapsed, until, reason);
                }
            }
            Event::BreakerOpened { key, until } => {
                if let Some(host) = self.hosts.get_mut(key) {
                    let reason = || "failures".to_owned();
                    match until {
                        Some(until) => {
                            let until = until.since(origin);
                            host.bands.add(BandKind::Open, elapsed, until, reason);
                        }
                        None => host.bands.isolate(elapsed),
                    }
                }
            }
            Event::BreakerClosed { key } => {
                if let Some(host) = self.hosts.get_mut(key) {
                    host.bands.close(elapsed);
                }
            }
            _ => {}
        }
    }

    /// The report. `sources` gives the pages that link to a URL; it is asked only for URLs in the
    /// lists of broken and failed ones.
    pub fn finish(self, end: ReportEnd, mut sources: impl FnMut(&str) -> Vec<String>) -> Report {
        let elapsed = end.at.since(self.origin);
        let last = self.step.index(elapsed);
        let title = self.title();
        let mut broken = self.broken.finish();
        let mut failed = self.failed.finish();
        for list in [&mut broken, &mut failed] {
            add_sources(&mut list.rows, &mut sources);
        }
        Report {
            title,
            started_ms: self.started.as_unix_millis(),
            duration_ms: millis(elapsed),
            is_complete: end.is_complete,
            earlier_urls: self.earlier_urls,
            totals: ReportTotals {
                throttled: end.throttled,
                ..self.totals
            },
            statuses: self
                .statuses
                .into_iter()
                .map(|(status, urls)| StatusCount { status, urls })
                .collect(),
            errors: error_counts(&self.errors),
            content_types: content_types(self.content_types),
            step_ms: millis(self.step.length()),
            series: self.slices.series(last),
            other_hosts: self
                .other_hosts
                .map(|host| host.report(OTHER.to_owned(), elapsed)),
            hosts: hosts(self.hosts, elapsed, last),
            slowest: self.slowest.finish(),
            broken_links: broken,
            failed,
            denied: self.denied.finish(),
            redirects: self.redirects.finish(),
            duplicate_titles: self.titles.finish(MAX_ROWS),
            third_parties: third_parties(self.third_parties, self.has_more_third_parties),
        }
    }

    fn title(&self) -> String {
        let busiest = self
            .hosts
            .iter()
            .max_by_key(|(key, host)| (host.requests.sent, host.urls, Reverse(key.as_str())));
        match (busiest, self.hosts.len(), &self.other_hosts) {
            (None, ..) => "no hosts".to_owned(),
            (Some((key, _)), 1, None) => key.clone(),
            (Some((key, _)), 2, None) => format!("{key} and 1 other host"),
            (Some((key, _)), count, None) => format!("{key} and {} other hosts", count - 1),
            (Some((key, _)), count, Some(_)) => {
                format!("{key} and more than {} other hosts", count - 1)
            }
        }
    }

    /// The slice of `at`. Makes all slices longer if it is past the last one.
    fn index(&mut self, at: Timestamp) -> usize {
        let elapsed = at.since(self.origin);
        for _ in 0..self.step.doublings_for(elapsed) {
            self.step.double();
            self.slices.halve();
            let hosts = self.hosts.values_mut().chain(&mut self.other_hosts);
            hosts.for_each(|host| host.slices.halve());
        }
        self.step.index(elapsed)
    }

    /// About how many bytes it takes.
    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        let hosts = self.hosts.values().map(|host| host.slices.size());
        let hosts: usize =
            hosts.sum::<usize>() + self.hosts.capacity() * size_of::<(String, Host)>();
        let rows = [
            &self.broken.bytes,
            &self.failed.bytes,
            &self.denied.bytes,
            &self.redirects.bytes,
        ];
        let third_parties = self.third_parties.keys().map(|host| host.len() + 64);
        hosts
            + rows.into_iter().sum::<usize>()
            + third_parties.sum::<usize>()
            + self.slowest.rows.len() * (MAX_TEXT + size_of::<SlowUrl>())
            + self.titles.size()
    }

    fn host(&mut self, key: &str) -> &mut Host {
        let is_full = self.hosts.len() >= MAX_HOSTS || key.len() > MAX_HOST_LENGTH;
        if is_full && !self.hosts.contains_key(key) {
            return self.other_hosts.get_or_insert_default();
        }
        // Two lookups, because `entry` needs an owned key.
        if !self.hosts.contains_key(key) {
            self.hosts.insert(key.to_owned(), Host::default());
        }
        self.hosts.get_mut(key).expect("it was inserted above")
    }
}

/// The name of what is counted together.
const OTHER: &str = "_other";
/// The longest name of a host, with a port.
const MAX_HOST_LENGTH: usize = 262;

/// Whether robots.txt is the reason.
const fn is_denied(error: UrlError) -> bool {
    matches!(error, UrlError::RobotsDenied | UrlError::RobotsUnavailable)
}

/// Whether the link itself is wrong, not the host or the network.
const fn is_broken(error: UrlError, status: Option<u16>) -> bool {
    match error {
        UrlError::Item(TerminalReason::Rejected | TerminalReason::AuthFailed) => {
            matches!(status, Some(400..=499))
        }
        UrlError::BadUrl
        | UrlError::TooManyRedirects
        | UrlError::RedirectLoop
        | UrlError::BadRedirect => true,
        UrlError::Item(_)
        | UrlError::RobotsDenied
        | UrlError::RobotsUnavailable
        | UrlError::AddressNotAllowed
        | UrlError::BodyTooLarge
        | UrlError::BadEncoding
        | UrlError::Truncated
        | UrlError::BadSitemap
        | UrlError::NotStored
        | UrlError::NotSent => false,
    }
}

/// Adds the pages that `sources` gives to the first source, which each row has already.
fn add_sources(rows: &mut [FailedUrl], sources: &mut impl FnMut(&str) -> Vec<String>) {
    let mut left = MAX_SOURCES_BYTES;
    for row in rows {
        for source in sources(&row.url) {
            let source = clip(&source);
            let has_room = row.sources.len() < MAX_SOURCES && source.len() <= left;
            if has_room && !row.sources.contains(&source) {
                left -= source.len();
                row.sources.push(source);
            }
        }
    }
}

fn error_counts(errors: &BTreeMap<UrlError, u64>) -> Vec<ErrorCount> {
    let errors = errors.iter();
    let mut counts: Vec<_> = errors
        .map(|(&error, &urls)| ErrorCount { error, urls })
        .collect();
    counts.sort_by_key(|count| (Reverse(count.urls), count.error));
    counts
}

fn content_types(counts: HashMap<String, (u64, u64)>) -> Listed<ContentTypeCount> {
    let has_more = counts.contains_key(OTHER);
    let mut rows: Vec<_> = counts
        .into_iter()
        .map(|(content_type, (urls, bytes))| ContentTypeCount {
            content_type,
            urls,
            bytes,
        })
        .collect();
    rows.sort_by(|one, other| {
        (other.urls, &one.content_type).cmp(&(one.urls, &other.content_type))
    });
    Listed {
        total: rows.len() as u64,
        is_at_least: has_more,
        rows,
    }
}

fn third_parties(counts: HashMap<String, (u64, bool)>, has_more: bool) -> Listed<ThirdPartyHost> {
    let total = counts.len() as u64;
    let mut rows: Vec<_> = counts.into_iter().collect();
    rows.sort_by(|(one, (fewer, _)), (other, (more, _))| (more, one).cmp(&(fewer, other)));
    rows.truncate(MAX_ROWS);
    let rows = rows.into_iter().map(|(host, (pages, is_tracker))| {
        let known = trackers::known(&host);
        ThirdPartyHost {
            pages,
            is_tracker,
            owner: known.map(|known| known.owner.to_owned()),
            category: known.map(|known| known.category.as_str().to_owned()),
            host,
        }
    });
    Listed {
        total,
        is_at_least: has_more,
        rows: rows.collect(),
    }
}

fn hosts(hosts: HashMap<String, Host>, end: Duration, last: usize) -> Listed<HostReport> {
    let total = hosts.len() as u64;
    let mut hosts: Vec<_> = hosts.into_iter().collect();
    hosts.sort_by(|(one, fewer), (other, more)| {
        let by_count = (more.requests.sent, more.urls).cmp(&(fewer.requests.sent, fewer.urls));
        by_count.then_with(|| one.cmp(other))
    });
    let plotted = plotted(&hosts);
    let mut rows = Vec::new();
    for (index, (key, host)) in hosts.into_iter().enumerate() {
        let is_plotted = plotted.contains(&index);
        if index >= MAX_ROWS && !is_plotted {
            continue;
        }
        let series = is_plotted.then(|| host.slices.series(last));
        let report = host.report(key, end);
        rows.push(HostReport { series, ..report });
    }
    Listed {
        total,
        is_at_least: false,
        rows,
    }
}

/// The hosts to plot: mostly the busiest, and of the others those with most refusals and failures,
/// because that is what a plot explains.
fn plotted(hosts: &[(String, Host)]) -> Vec<usize> {
    const BUSIEST: usize = MAX_PLOTTED * 3 / 5;
    let mut plotted: Vec<usize> = (0..hosts.len().min(BUSIEST)).collect();
    let mut others: Vec<usize> = (plotted.len()..hosts.len()).collect();
    let trouble = |index: &usize| {
        let counts = &hosts[*index].1.requests;
        Reverse(counts.refused + counts.failed)
    };
    others.sort_by_key(trouble);
    plotted.extend(others.into_iter().take(MAX_PLOTTED - BUSIEST));
    plotted.retain(|index| hosts[*index].1.requests.sent > 0);
    plotted
}

impl RequestCounts {
    const fn count(&mut self, class: AttemptClass) {
        self.sent += 1;
        match class {
            AttemptClass::Accepted => self.accepted += 1,
            AttemptClass::Refused => self.refused += 1,
            AttemptClass::Rejected => self.rejected += 1,
            AttemptClass::Failed => self.failed += 1,
        }
    }
}

/// What is collected of one host.
#[derive(Debug)]
struct Host {
    urls: u64,
    denied: u64,
    requests: RequestCounts,
    bytes: u64,
    wait_ms: u64,
    latency: Latency,
    latency_sum_ms: u64,
    latencies: u64,
    errors: BTreeMap<UrlError, u64>,
    rate: Option<f64>,
    ceiling: Option<f64>,
    slices: Slices,
    bands: Bands,
}

impl Default for Host {
    fn default() -> Self {
        Self {
            urls: 0,
            denied: 0,
            requests: RequestCounts::default(),
            bytes: 0,
            wait_ms: 0,
            latency: Latency::new(Duration::ZERO),
            latency_sum_ms: 0,
            latencies: 0,
            errors: BTreeMap::new(),
            rate: None,
            ceiling: None,
            slices: Slices::default(),
            bands: Bands::default(),
        }
    }
}

impl Host {
    fn add(&mut self, record: &UrlRecord) {
        self.urls += 1;
        self.bytes = self.bytes.saturating_add(record.bytes);
        self.wait_ms = self.wait_ms.saturating_add(record.wait_ms);
        if let Some(latency_ms) = record.latency_ms {
            self.latency.record(Duration::from_millis(latency_ms));
            self.latency_sum_ms = self.latency_sum_ms.saturating_add(latency_ms);
            self.latencies += 1;
        }
        if let Some(error) = record.error {
            self.denied += u64::from(is_denied(error));
            *self.errors.entry(error).or_default() += 1;
        }
    }

    fn report(&self, key: String, end: Duration) -> HostReport {
        let bands = self.bands.until(end);
        let total = |is_held: bool| {
            let bands = bands.iter();
            let bands = bands.filter(|band| (band.kind == BandKind::Held) == is_held);
            bands.map(|band| band.to_ms - band.from_ms).sum()
        };
        HostReport {
            key,
            urls: self.urls,
            denied: self.denied,
            requests: self.requests,
            bytes: self.bytes,
            wait_ms: self.wait_ms,
            latency_mean_ms: self.latency_sum_ms.checked_div(self.latencies),
            latency_p95_ms: self.latency.p95().map(millis),
            rate_per_second: self.rate,
            ceiling: self.ceiling,
            errors: error_counts(&self.errors),
            held_ms: total(true),
            open_ms: total(false),
            are_bands_joined: self.bands.are_joined(),
            bands,
            series: None,
        }
    }
}

/// The URLs with the highest latency.
#[derive(Debug, Default)]
struct Slowest {
    /// Up to twice as many as are shown: then they are sorted, and the faster half is dropped.
    rows: Vec<SlowUrl>,
    /// Faster ones are not among the slowest any more.
    min_ms: u64,
    offered: u64,
}

impl Slowest {
    fn offer(&mut self, record: &UrlRecord) {
        let Some(latency_ms) = record.latency_ms else {
            return;
        };
        self.offered += 1;
        if self.rows.len() >= MAX_EXAMPLES && latency_ms <= self.min_ms {
            return;
        }
        self.rows.push(SlowUrl {
            url: clip(&record.url),
            latency_ms,
            wait_ms: record.wait_ms,
            attempts: record.attempts,
            status: record.status,
            bytes: record.bytes,
        });
        if self.rows.len() >= 2 * MAX_EXAMPLES {
            self.drop_faster();
        }
    }

    fn drop_faster(&mut self) {
        // Stable: of equals the first stays.
        self.rows.sort_by_key(|row| Reverse(row.latency_ms));
        self.rows.truncate(MAX_EXAMPLES);
        self.min_ms = self.rows.last().map_or(0, |row| row.latency_ms);
    }

    fn finish(mut self) -> Listed<SlowUrl> {
        self.drop_faster();
        Listed {
            total: self.offered,
            is_at_least: false,
            rows: self.rows,
        }
    }
}

/// The first rows of a table, bounded in number and in bytes of text.
#[derive(Debug)]
struct Rows<T> {
    rows: Vec<T>,
    max: usize,
    bytes: usize,
    total: u64,
}

impl<T> Rows<T> {
    const fn new(max: usize) -> Self {
        Self {
            rows: Vec::new(),
            max,
            bytes: 0,
            total: 0,
        }
    }

    /// Counts a row, and stores it if there is room for its `texts`.
    fn push(&mut self, row: impl FnOnce() -> T, texts: &[&str]) {
        self.total += 1;
        let length: usize = texts.iter().map(|text| text.len().min(MAX_TEXT)).sum();
        if self.rows.len() < self.max && self.bytes + length <= MAX_TABLE_BYTES {
            self.bytes += length;
            self.rows.push(row());
        }
    }

    fn finish(self) -> Listed<T> {
        Listed {
            total: self.total,
            is_at_least: false,
            rows: self.rows,
        }
    }
}

/// The first [`MAX_TEXT`] bytes of a text.
pub(super) fn clip(text: &str) -> String {
    match text.len() {
        ..=MAX_TEXT => text.to_owned(),
        _ => format!("{}…", &text[..text.floor_char_boundary(MAX_TEXT)]),
    }
}
