//! An endpoint of a pool: where it is, and what its requests carry.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use policy::classify::Rule;

use crate::exchange::{Destination, Trust};
use crate::metrics::KeyMetrics;
use crate::settings;

/// Where an endpoint is, and what its requests carry.
#[derive(Debug)]
pub struct UpstreamEndpoint {
    /// The settings it was made from.
    settings: settings::EndpointSettings,
    trust: Trust,
    /// Its server.
    pub destination: Arc<Destination>,
    /// What the rest of a request's path is put behind; no slash at its end.
    pub base: Box<str>,
    /// Headers of every request, which replace those of the caller. Marked as secrets.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Its name as a header's value.
    pub name: HeaderValue,
    /// The rules for its responses: the pool's, then the host's.
    pub rules: Arc<[Rule]>,
    /// Where its attempts are counted.
    pub metrics: Arc<KeyMetrics>,
}

impl UpstreamEndpoint {
    /// The endpoint of these settings, at `destination`.
    pub fn new(
        endpoint: &settings::EndpointSettings,
        destination: Arc<Destination>,
        rules: Arc<[Rule]>,
        trust: Trust,
        metrics: Arc<KeyMetrics>,
    ) -> Self {
        Self {
            settings: endpoint.clone(),
            trust,
            destination,
            base: endpoint.url.path().trim_end_matches('/').into(),
            headers: settings::header_fields(&endpoint.headers),
            name: shown_name(&endpoint.name),
            rules,
            metrics,
        }
    }

    /// Would these settings make the same endpoint?
    pub(super) fn is_same(
        &self,
        settings: &settings::EndpointSettings,
        rules: &[Rule],
        trust: Trust,
    ) -> bool {
        self.settings == *settings && *self.rules == *rules && self.trust == trust
    }

    /// The host of its URL.
    pub fn host(&self) -> &str {
        self.settings.url.host_str().unwrap_or_default()
    }

    /// Puts what its requests carry into `headers`.
    pub fn apply_headers(&self, headers: &mut HeaderMap) {
        headers.insert(http::header::HOST, self.destination.authority().clone());
        for (name, value) in &self.headers {
            headers.insert(name.clone(), value.clone());
        }
    }
}

/// Names may have letters that headers may not.
fn shown_name(name: &str) -> HeaderValue {
    let is_fine = |c: char| c.is_ascii_graphic() || c == ' ';
    let shown: String = name
        .chars()
        .map(|c| if is_fine(c) { c } else { '?' })
        .collect();
    HeaderValue::from_str(&shown).unwrap_or_else(|_| HeaderValue::from_static("?"))
}
