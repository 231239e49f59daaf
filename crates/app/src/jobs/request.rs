//! What a job fetches: checked when it is accepted, and stored as JSON.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use store::StoreError;
use url::Url;

use crate::exchange::Trust;
use crate::fetch::{FetchPlan, Scope, parse_given};
use crate::state::{ChangeError, InvalidValue, PUBLIC, State};

/// What a job fetches.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRequest {
    /// URLs to fetch.
    pub urls: Vec<String>,
    /// Sitemaps whose URLs are fetched.
    pub sitemaps: Vec<String>,
    /// Whether links of fetched pages are followed.
    pub crawl: bool,
    /// How many links away from the given URLs a crawl follows; `None`: `fetch.depth`.
    pub depth: Option<u32>,
    /// Whether a crawl stays on the hosts of the given URLs.
    pub same_host: bool,
    /// If there are any, a crawl follows only links that match one of these patterns.
    pub include: Vec<String>,
    /// Links that match one of these patterns are not followed.
    pub exclude: Vec<String>,
}

/// Why a job was not accepted. Nothing was stored.
#[derive(Debug, thiserror::Error)]
pub enum StartJobError {
    /// Some values are invalid.
    #[error("{} invalid", if .0.len() == 1 { "a value is" } else { "some values are" })]
    Invalid(Vec<InvalidValue>),
    /// The address of a URL must not be dialled.
    #[error("`{host}` is not a public address; allow it in `[network]` if that is meant")]
    AddressNotAllowed {
        /// The first of them.
        host: String,
        /// Every URL with such an address.
        urls: Vec<InvalidValue>,
    },
    /// As many jobs are queued as may be.
    #[error("{most} jobs are queued, as many as may be (`jobs.max_queued`); cancel one, or wait")]
    TooMany {
        /// How many may be.
        most: u64,
    },
    /// It cannot be stored.
    #[error("the job cannot be stored, so it was not accepted: {0}")]
    Store(#[from] StoreError),
}

/// URLs, and sitemaps, of one request.
pub(crate) const MAX_URLS: u32 = 10_000;

/// The highest depth.
pub(crate) const MAX_DEPTH: u32 = 1000;

/// So many invalid values are named.
const MAX_NAMED: usize = 20;

impl JobRequest {
    /// The request with all defaults filled in, if everything about it is valid.
    pub(super) fn check(mut self, state: &State) -> Result<Self, StartJobError> {
        let configuration = state.configuration();
        let mut invalid = Vec::new();
        if self.urls.is_empty() && self.sitemaps.is_empty() {
            note(&mut invalid, "urls", None, "expected at least one URL");
        }
        let mut urls = check_urls("urls", &self.urls, &mut invalid);
        urls.extend(check_urls("sitemaps", &self.sitemaps, &mut invalid));
        let depth = self.depth.unwrap_or(configuration.settings().fetch.depth);
        if depth > MAX_DEPTH {
            let expected = format!("a number up to {MAX_DEPTH}");
            note(&mut invalid, "depth", Some(depth.to_string()), &expected);
        }
        self.depth = Some(depth);
        for (field, patterns) in [("include", &self.include), ("exclude", &self.exclude)] {
            if let Err(error) = Scope::new(true, depth, false, patterns, &[]) {
                note(&mut invalid, field, None, &error.to_string());
            }
        }
        if !invalid.is_empty() {
            return Err(StartJobError::Invalid(invalid));
        }
        self.check_addresses(state, &urls)?;
        Ok(self)
    }

    /// An address that is written out is judged now; a name when it is dialled.
    fn check_addresses(&self, state: &State, urls: &[Url]) -> Result<(), StartJobError> {
        let mut refused = Vec::new();
        for (place, url) in urls.iter().enumerate() {
            let Err(ChangeError::AddressNotAllowed(host)) = state.check_address(url) else {
                continue;
            };
            let field = match place.checked_sub(self.urls.len()) {
                None => format!("urls[{place}]"),
                Some(place) => format!("sitemaps[{place}]"),
            };
            if refused.len() < MAX_NAMED {
                note(&mut refused, &field, Some(host), PUBLIC);
            }
        }
        match refused.first().and_then(|first| first.value.clone()) {
            Some(host) => Err(StartJobError::AddressNotAllowed {
                host,
                urls: refused,
            }),
            None => Ok(()),
        }
    }

    /// What people see of it: its host, or how many URLs it has.
    pub(super) fn summary(&self) -> String {
        let given = || self.urls.iter().chain(&self.sitemaps);
        let keys = given().filter_map(|url| policy::key::normalize(url).ok());
        let mut keys: BTreeSet<String> = keys.take(MAX_URLS as usize).collect();
        match (keys.pop_first(), keys.is_empty()) {
            (Some(key), true) => key,
            _ => format!("{} URLs", given().count()),
        }
    }

    /// What is fetched: every field was checked before it was stored. The error is for people.
    pub(super) fn plan(&self, trust: Trust) -> Result<FetchPlan, String> {
        let parse = |texts: &[String]| -> Result<Vec<Url>, String> {
            let urls = texts.iter().map(|text| parse_given(text));
            urls.collect::<Result<_, _>>()
                .map_err(|error| error.to_string())
        };
        let depth = self.depth.unwrap_or_default();
        let scope = Scope::new(
            self.crawl,
            depth,
            self.same_host,
            &self.include,
            &self.exclude,
        );
        Ok(FetchPlan {
            urls: parse(&self.urls)?,
            sitemaps: parse(&self.sitemaps)?,
            scope: scope.map_err(|error| error.to_string())?,
            ..FetchPlan::new(trust)
        })
    }

    pub(super) fn from_json(text: &str) -> Result<Self, String> {
        let request = serde_json::from_str(text);
        request.map_err(|error| format!("the stored request cannot be read: {error}"))
    }

    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("it is made of texts and numbers")
    }
}

fn check_urls(field: &str, texts: &[String], invalid: &mut Vec<InvalidValue>) -> Vec<Url> {
    if texts.len() > MAX_URLS as usize {
        let expected = format!("expected at most {MAX_URLS} URLs; use a sitemap for more");
        note(invalid, field, None, &expected);
        return Vec::new();
    }
    let mut urls = Vec::new();
    for (place, text) in texts.iter().enumerate() {
        match parse_given(text) {
            Ok(url) => urls.push(url),
            Err(_) if invalid.len() >= MAX_NAMED => {}
            Err(error) => note(
                invalid,
                &format!("{field}[{place}]"),
                None,
                &error.to_string(),
            ),
        }
    }
    urls
}

fn note(invalid: &mut Vec<InvalidValue>, field: &str, value: Option<String>, expected: &str) {
    invalid.push(InvalidValue {
        field: field.to_owned(),
        value,
        expected: expected.to_owned(),
    });
}

/// Shows no URL: paths and queries can be secrets.
impl fmt::Debug for JobRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobRequest")
            .field("urls", &self.urls.len())
            .field("sitemaps", &self.sitemaps.len())
            .field("crawl", &self.crawl)
            .field("depth", &self.depth)
            .field("same_host", &self.same_host)
            .finish_non_exhaustive()
    }
}
