//! Fetches URLs politely: `tidegate fetch`, and jobs in the server.
//!
//! Four stages, each with a bound. **Discovery** finds URLs: lists, sitemaps and the links of a crawl;
//! every URL is queued once. **Extraction** requests them, each through the gate of its host, robots.txt
//! permitting. **Processing** reads a body piece by piece while it arrives: decoded, hashed, searched for
//! links. **Output** takes one [`UrlRecord`] for every URL, failed ones too.

#[cfg_attr(not(test), expect(dead_code, reason = "called by the engine"))]
mod decode;
#[cfg_attr(not(test), expect(dead_code, reason = "called by the engine"))]
mod folder;
mod jsonl;
mod plan;
mod progress;
mod record;
mod report;
#[cfg_attr(not(test), expect(dead_code, reason = "called by the engine"))]
mod robots;
mod scope;
mod trackers;
#[cfg_attr(not(test), expect(dead_code, reason = "called by the engine"))]
mod url;

pub use folder::FolderError;
pub use jsonl::{Jsonl, JsonlError};
pub use plan::FetchPlan;
pub use progress::{FetchCounts, FetchProgress, HostWait, Stage};
pub use record::{ThirdParty, UrlError, UrlRecord};
pub use report::{
    AttemptClass, Band, BandKind, ContentTypeCount, DeniedUrl, DuplicateTitle, ErrorCount,
    FailedUrl, HostReport, Listed, Redirect, Report, ReportBuilder, ReportEnd, ReportTotals,
    RequestCounts, SlowUrl, StatusCount, ThirdPartyHost, TimeSeries,
};
pub use scope::{BadPattern, Scope, SeedHosts};
pub use trackers::{BadFilters, MAX_FILTERS, ResourceKind, Trackers, is_third_party};
