//! The report of a fetch or job: its figures, as JSON and as one HTML page.
//!
//! [`ReportBuilder`] collects while the fetch runs, in bounded memory however many URLs there are:
//! lists hold the first or the largest, and each says how many there were in all. [`Report`] is the
//! result. Its JSON is what jobs store; the page is made from it.

mod bands;
mod builder;
mod page;
mod plots;
mod series;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod titles;

pub use builder::{AttemptClass, ReportBuilder, ReportEnd};

use serde::{Deserialize, Serialize};

use super::UrlError;

/// What a fetch found, and how its hosts responded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The host with most requests, or how many hosts there were.
    pub title: String,
    /// When the fetch started, in Unix milliseconds. After a resume, when it was resumed.
    pub started_ms: i64,
    /// How long it ran.
    pub duration_ms: u64,
    /// Whether every known URL is done; `false` after an interruption.
    pub is_complete: bool,
    /// URLs that an earlier run finished, before this one resumed it. They count everywhere but in
    /// what is shown over time, and their requests are not divided into accepted and others.
    pub earlier_urls: u64,
    /// Sums over everything.
    pub totals: ReportTotals,
    /// URLs by the status of their last response, ascending.
    pub statuses: Vec<StatusCount>,
    /// URLs by error, most first.
    pub errors: Vec<ErrorCount>,
    /// By `Content-Type` without parameters, most URLs first.
    pub content_types: Listed<ContentTypeCount>,
    /// The length of a slice of time in every `series`.
    pub step_ms: u64,
    /// All hosts together over time, without rate and ceiling.
    pub series: TimeSeries,
    /// By requests, most first.
    pub hosts: Listed<HostReport>,
    /// Hosts that came after the first 1,000, together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_hosts: Option<HostReport>,
    /// The URLs with the highest latency, slowest first.
    pub slowest: Listed<SlowUrl>,
    /// URLs that the server says it does not have, or whose redirects lead nowhere.
    pub broken_links: Listed<FailedUrl>,
    /// URLs that could not be fetched for another reason.
    pub failed: Listed<FailedUrl>,
    /// URLs that a robots.txt does not allow, or whose robots.txt could not be read.
    pub denied: Listed<DeniedUrl>,
    /// URLs that led to another one.
    pub redirects: Listed<Redirect>,
    /// Titles that several pages have, most pages first.
    pub duplicate_titles: Listed<DuplicateTitle>,
    /// Hosts of other sites from which pages load something, most pages first.
    pub third_parties: Listed<ThirdPartyHost>,
}

impl Report {
    /// The report as one HTML page without external resources. It can be read without its script,
    /// which sorts and filters tables.
    pub fn to_html(&self) -> String {
        page::page(self, &[])
    }

    /// The same with links beside its heading, each a label and an address.
    pub fn to_html_with_links(&self, links: &[(&str, &str)]) -> String {
        page::page(self, links)
    }

    /// The `Content-Security-Policy` that a server sends with every such page. The page itself
    /// has it too, for those that are opened from a disk.
    pub fn content_security_policy() -> &'static str {
        page::content_security_policy()
    }
}

/// The first rows of a list, and how many it had.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Listed<T> {
    /// How many there were.
    pub total: u64,
    /// Whether `total` is a lower bound, because more were seen than are counted apart.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_at_least: bool,
    /// The rows.
    pub rows: Vec<T>,
}

/// Sums over a whole fetch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportTotals {
    /// URLs that ended, one way or another.
    pub urls: u64,
    /// URLs whose body was fetched, or that are unchanged.
    pub fetched: u64,
    /// Of these, unchanged since an earlier run.
    pub not_modified: u64,
    /// URLs that the server says it does not have, or whose redirects lead nowhere.
    pub broken: u64,
    /// URLs that could not be fetched for another reason.
    pub failed: u64,
    /// URLs that robots.txt does not allow, or whose robots.txt could not be read.
    pub denied: u64,
    /// URLs that led to another one.
    pub redirected: u64,
    /// Requests that were sent.
    pub requests: RequestCounts,
    /// Requests that waited for longer than `gate.throttled_after`.
    pub throttled: u64,
    /// How long URLs waited for gates and between attempts, added up.
    pub wait_ms: u64,
    /// Bytes of bodies, decoded.
    pub bytes: u64,
}

/// Requests by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestCounts {
    /// All of them, also those of an earlier run.
    pub sent: u64,
    /// With status 2xx or 3xx.
    pub accepted: u64,
    /// Because they came too fast: 429, 503, and other statuses with such a hint.
    pub refused: u64,
    /// With any other 4xx, such as 404.
    pub rejected: u64,
    /// With any other 5xx, or without a response.
    pub failed: u64,
}

/// How many URLs ended with a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusCount {
    /// The status.
    pub status: u16,
    /// How many.
    pub urls: u64,
}

/// How many URLs ended with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorCount {
    /// The error.
    pub error: UrlError,
    /// How many.
    pub urls: u64,
}

/// URLs of one content type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentTypeCount {
    /// The type without parameters, in lower case.
    pub content_type: String,
    /// How many.
    pub urls: u64,
    /// The length of their bodies.
    pub bytes: u64,
}

/// One host: the gate that its requests passed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostReport {
    /// The key of the gate.
    pub key: String,
    /// URLs that ended.
    pub urls: u64,
    /// URLs that robots.txt does not allow.
    pub denied: u64,
    /// Its requests.
    pub requests: RequestCounts,
    /// Bytes of bodies, decoded.
    pub bytes: u64,
    /// How long its URLs waited, added up.
    pub wait_ms: u64,
    /// The mean latency.
    pub latency_mean_ms: Option<u64>,
    /// The 95th percentile of the latency, to within a third.
    pub latency_p95_ms: Option<u64>,
    /// The gate's last rate.
    pub rate_per_second: Option<f64>,
    /// The learned limit: the ceiling of the gate, per second; `None` while it is not known.
    pub ceiling: Option<f64>,
    /// URLs by error, most first.
    pub errors: Vec<ErrorCount>,
    /// For how long the gate was held.
    pub held_ms: u64,
    /// For how long its breaker was not Closed.
    pub open_ms: u64,
    /// Holds and breaker states, by start.
    pub bands: Vec<Band>,
    /// Whether neighbouring bands were joined because there were too many.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub are_bands_joined: bool,
    /// Its course over time; only for the hosts that the page plots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<TimeSeries>,
}

/// A period in which a gate admitted nothing or only probes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Band {
    /// What it was.
    pub kind: BandKind,
    /// Its start, from the start of the fetch.
    pub from_ms: u64,
    /// Its end.
    pub to_ms: u64,
    /// Why: the hint of a hold, what opened a breaker.
    pub reason: String,
}

/// What kept a gate from admitting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BandKind {
    /// A hold.
    Held,
    /// The breaker was Open.
    Open,
    /// The breaker was HalfOpen and admitted probes.
    HalfOpen,
    /// The breaker was Isolated.
    Isolated,
}

/// Responses in slices of time of equal length, and the gate's rate at the end of each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeSeries {
    /// Responses with 2xx and 3xx.
    pub accepted: Vec<u32>,
    /// Requests refused for their pace.
    pub refused: Vec<u32>,
    /// Other 4xx.
    pub rejected: Vec<u32>,
    /// Other 5xx, and requests without a response.
    pub failed: Vec<u32>,
    /// The gate's rate per second, `null` where it was not sampled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rate: Vec<Option<f32>>,
    /// The learned limit per second, `null` where it was not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ceiling: Vec<Option<f32>>,
}

/// A URL with a high latency.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowUrl {
    /// The URL.
    pub url: String,
    /// From the last request to the head of its response.
    pub latency_ms: u64,
    /// How long it waited for its turn.
    pub wait_ms: u64,
    /// How many requests it took.
    pub attempts: u32,
    /// The status of the last response.
    pub status: Option<u16>,
    /// The length of the body.
    pub bytes: u64,
}

/// A URL that was not fetched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedUrl {
    /// The URL.
    pub url: String,
    /// The status of the last response.
    pub status: Option<u16>,
    /// Why it failed.
    pub error: UrlError,
    /// More about the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How many requests it took.
    pub attempts: u32,
    /// Pages that link to it, the first one first.
    pub sources: Vec<String>,
}

/// A URL that robots.txt does not allow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeniedUrl {
    /// The URL.
    pub url: String,
    /// `robots_denied` or `robots_unavailable`.
    pub error: UrlError,
}

/// A URL that led to another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redirect {
    /// The URL.
    pub url: String,
    /// Where it led.
    pub final_url: String,
    /// The status there.
    pub status: Option<u16>,
}

/// A title that several pages have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DuplicateTitle {
    /// The title.
    pub title: String,
    /// How many pages have it.
    pub pages: u64,
    /// The first of them.
    pub urls: Vec<String>,
}

/// A host of another site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThirdPartyHost {
    /// The host.
    pub host: String,
    /// How many pages load something from it.
    pub pages: u64,
    /// Whether it is known as a tracker.
    pub is_tracker: bool,
    /// The company that runs it, if it is in the built-in list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// What it does, if it is in the built-in list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
}
