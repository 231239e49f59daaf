//! What is fetched, and where it goes.

use std::fmt;
use std::io::BufRead;
use std::path::PathBuf;

use http::HeaderMap;
use url::Url;

use crate::exchange::Trust;

/// What is fetched, and where it goes.
pub struct FetchPlan {
    /// URLs given by name.
    pub urls: Vec<Url>,
    /// Further URLs, one a line; read as they are needed.
    pub list: Option<Box<dyn BufRead + Send>>,
    /// Sitemaps whose URLs are fetched.
    pub sitemaps: Vec<Url>,
    /// Headers of requests to the hosts given by name or listed, and to no other.
    pub headers: HeaderMap,
    /// Whether the URLs were written by the operator, or came by the API: then every address is
    /// checked.
    pub trust: Trust,
    /// Where bodies are stored.
    pub folder: Option<PathBuf>,
    /// The file from which an interrupted fetch goes on.
    pub state: Option<PathBuf>,
}

impl fmt::Debug for FetchPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FetchPlan")
            .field("urls", &self.urls.len())
            .field("sitemaps", &self.sitemaps.len())
            .finish_non_exhaustive()
    }
}
