//! What is fetched, and where it goes.

use std::fmt;
use std::io::{Read, Write};
use std::path::PathBuf;

use http::HeaderMap;
use url::Url;

use super::record::UrlRecord;
use super::scope::Scope;
use super::trackers::Trackers;
use crate::exchange::Trust;

/// What is fetched, and where it goes.
pub struct FetchPlan {
    /// URLs given by name.
    pub urls: Vec<Url>,
    /// Further URLs, one a line. Empty lines and those that begin with `#` are skipped.
    pub list: Option<Box<dyn Read + Send>>,
    /// Sitemaps whose URLs are fetched.
    pub sitemaps: Vec<Url>,
    /// Which links are followed.
    pub scope: Scope,
    /// Headers of requests to the origins of given URLs, and to no other.
    pub headers: HeaderMap,
    /// Whether the URLs were written by the operator, or came by the API: then every address is
    /// checked.
    pub trust: Trust,
    /// The most URLs; further ones are counted and left out.
    pub max_urls: usize,
    /// Where bodies are stored.
    pub folder: Option<PathBuf>,
    /// Where lines of JSON are written.
    pub lines: Option<LinesTarget>,
    /// The file from which an interrupted fetch goes on.
    pub state: Option<PathBuf>,
    /// What makes a host a tracker; `None` if there is no report.
    pub report: Option<Trackers>,
    /// Gets every record.
    pub observer: Option<RecordObserver>,
}

/// Gets records.
pub type RecordObserver = Box<dyn FnMut(&UrlRecord)>;

/// Where lines of JSON are written.
pub enum LinesTarget {
    /// A file; with a state, one that is completed.
    File(PathBuf),
    /// Stdout, or another stream.
    Stream(Box<dyn Write + Send>),
}

impl FetchPlan {
    /// The default of [`FetchPlan::max_urls`]: some 150 MB of memory.
    pub const MAX_URLS: usize = 10_000_000;

    /// A plan without URLs and outputs, for URLs of this origin.
    pub fn new(trust: Trust) -> Self {
        Self {
            urls: Vec::new(),
            list: None,
            sitemaps: Vec::new(),
            scope: Scope::default(),
            headers: HeaderMap::new(),
            trust,
            max_urls: Self::MAX_URLS,
            folder: None,
            lines: None,
            state: None,
            report: None,
            observer: None,
        }
    }
}

impl fmt::Debug for FetchPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FetchPlan")
            .field("urls", &self.urls.len())
            .field("sitemaps", &self.sitemaps.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for LinesTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Stream(_) => f.write_str("Stream"),
        }
    }
}
