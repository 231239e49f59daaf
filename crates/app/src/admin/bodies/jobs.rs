//! The bodies of calls about jobs.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a job fetches
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StartJob {
    /// URLs to fetch; at least one of these or one sitemap
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 10_000, required = false, example = json!(["https://docs.example.com/"]))]
    pub urls: Vec<String>,
    /// URLs of sitemaps whose pages are fetched; indexes and gzip are read
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 10_000, required = false)]
    pub sitemaps: Vec<String>,
    /// Follow the links of pages; by default false
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub crawl: bool,
    /// How many links away from the given URLs a crawl follows; by default `fetch.depth`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1000, nullable = false)]
    pub depth: Option<u32>,
    /// Follow only links to the hosts of the given URLs; by default false
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub same_host: bool,
    /// Follow only links in which one of these regular expressions is found
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 100, required = false, example = json!(["/docs/"]))]
    pub include: Vec<String>,
    /// Do not follow links in which one of these regular expressions is found
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 100, required = false)]
    pub exclude: Vec<String>,
}

/// A job that is stored
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StartedJob {
    /// Names it in every other call
    #[schema(example = "job_01jcrz4m3v8k2n6t0q5w9x7y1b")]
    pub id: String,
    /// Its report is at `/r/SLUG` when it is done
    #[schema(example = "5m9r0vg2c8xkq4s7d1tz6hw3ye")]
    pub slug: String,
}

/// Jobs, newest first
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobList {
    /// Newest first
    pub jobs: Vec<Job>,
    /// `cursor` of the next page; null on the last one
    #[schema(required)]
    pub next_cursor: Option<String>,
}

/// A job
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// Names it in every other call
    pub id: String,
    /// Its report is at `/r/SLUG` when it is done
    pub slug: String,
    /// Its host, or how many URLs it was given
    pub summary: String,
    /// Where it is in its life
    pub status: JobStatusName,
    /// The first stage with unfinished work
    pub stage: StageName,
    /// The highest share of finished URLs in known ones so far, in per cent; it never falls
    #[schema(minimum = 0.0, maximum = 100.0)]
    pub progress: f64,
    /// What it has counted
    pub counts: JobCounts,
    /// Why it could not go on; only with the status `error`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub error: Option<String>,
    /// When it was accepted, in milliseconds of Unix time
    pub created_at_ms: i64,
    /// When it was first started; null before
    #[schema(required)]
    pub started_at_ms: Option<i64>,
    /// When it ended; null before
    #[schema(required)]
    pub finished_at_ms: Option<i64>,
}

/// What a job has counted
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobCounts {
    /// URLs that were found, each once
    pub total: u64,
    /// URLs that have ended, failed ones included
    pub done: u64,
    /// URLs that ended with an error
    pub failed: u64,
    /// Of the failed, the ones that a robots.txt does not allow
    pub denied: u64,
    /// URLs that wait for their turn
    pub queued: u64,
    /// URLs that are being requested
    pub in_flight: u64,
    /// URLs that wait to be sent again
    pub retrying: u64,
    /// Requests that were sent
    pub sent: u64,
    /// Bytes of bodies, decoded
    pub bytes: u64,
}

words! {
    /// Where a job is in its life
    JobStatusName = store::jobs::JobStatus {
        /// Waiting until it is started
        Queued = "queued",
        /// Fetching
        Running = "running",
        /// Finished, with a report
        Done = "done",
        /// It could not go on
        Error = "error",
        /// Cancelled by a person
        Cancelled = "cancelled",
    }

    /// A stage of a job
    StageName = crate::fetch::Stage {
        /// Lists and sitemaps are being read, or pages that may link to further ones are left
        Discovery = "discovery",
        /// Requests are left
        Extraction = "extraction",
        /// Records are being put together for the report
        Processing = "processing",
        /// The report is being written
        Output = "output",
    }
}

/// Shows no URL: paths and queries can be secrets.
impl fmt::Debug for StartJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartJob")
            .field("urls", &self.urls.len())
            .field("crawl", &self.crawl)
            .finish_non_exhaustive()
    }
}
