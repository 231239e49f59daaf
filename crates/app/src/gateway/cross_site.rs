//! Web pages: refuses those of other sites, and lets allowed ones read responses (CORS).
//!
//! A browser sends requests wherever a page points it, to loopback too, and the gateway adds API
//! keys to them. Browsers say where a request comes from: `Origin` on everything a script sends and
//! on forms, `Sec-Fetch-Site` on images, links and the rest. Programs send neither. `Host` is checked
//! before, so that a page cannot pass for one of ours by DNS.

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, HOST, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};

/// The origins whose pages may use the data plane.
#[derive(Clone, Debug)]
pub(super) struct Origins(Vec<String>);

/// Where a request comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A program, a person who typed the address, or a page of this very origin.
    Direct,
    /// A page of an allowed origin.
    Allowed(HeaderValue),
    /// A page of any other origin, or of one that is not known.
    CrossSite,
}

impl Origins {
    pub(super) fn new(allowed: &[String]) -> Self {
        Self(allowed.to_vec())
    }

    /// Where this request comes from.
    pub(super) fn source<B>(&self, request: &Request<B>) -> Source {
        let headers = request.headers();
        let mut origins = headers.get_all(ORIGIN).iter();
        match (origins.next(), origins.next()) {
            (Some(origin), None) if self.allows(origin) => Source::Allowed(origin.clone()),
            (Some(origin), None) if !is_same_origin(origin, request) => Source::CrossSite,
            (Some(_), Some(_)) => Source::CrossSite,
            _ if is_fetched_elsewhere(headers) => Source::CrossSite,
            _ => Source::Direct,
        }
    }

    fn allows(&self, origin: &HeaderValue) -> bool {
        let origin = origin.as_bytes();
        let mut allowed = self.0.iter().map(String::as_bytes);
        allowed.any(|allowed| allowed.eq_ignore_ascii_case(origin))
    }

    /// Adds what lets a page of `source` read the response.
    pub(super) fn apply(&self, source: &Source, headers: &mut HeaderMap) {
        if self.0.is_empty() {
            return;
        }
        // Also on responses to programs: a cache must not give those to pages.
        headers.append(VARY, HeaderValue::from_static("origin"));
        if let Source::Allowed(origin) = source {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            headers.remove(ACCESS_CONTROL_ALLOW_CREDENTIALS);
            headers.append(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        }
    }
}

const EXPOSED: HeaderValue = HeaderValue::from_static(
    "tidegate-request-id, tidegate-attempts, tidegate-wait-ms, tidegate-endpoint, tidegate-reason, retry-after",
);

/// Is it a browser's question whether a page may send a request?
pub(super) fn is_preflight<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    request.method() == Method::OPTIONS
        && headers.contains_key(ORIGIN)
        && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// The headers that answer a preflight of an allowed origin: everything it asks for is allowed.
/// [`Origins::apply`] adds the others.
pub(super) fn preflight_headers(asked: &HeaderMap) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (asks, allows) in [
        (ACCESS_CONTROL_REQUEST_METHOD, ACCESS_CONTROL_ALLOW_METHODS),
        (ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_ALLOW_HEADERS),
        (REQUEST_PRIVATE_NETWORK, ALLOW_PRIVATE_NETWORK),
    ] {
        if let Some(value) = asked.get(asks) {
            headers.insert(allows, value.clone());
        }
    }
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    headers
}

const REQUEST_PRIVATE_NETWORK: HeaderName =
    HeaderName::from_static("access-control-request-private-network");
const ALLOW_PRIVATE_NETWORK: HeaderName =
    HeaderName::from_static("access-control-allow-private-network");

/// Does the origin name this listener, as the request itself does? TLS may end before the gateway,
/// so either scheme will do.
fn is_same_origin<B>(origin: &HeaderValue, request: &Request<B>) -> bool {
    let origin = match origin.to_str().map(|origin| origin.split_once("://")) {
        Ok(Some((scheme, authority))) if is_http(scheme) => authority,
        _ => return false,
    };
    match request.uri().authority() {
        Some(authority) => authority.as_str().eq_ignore_ascii_case(origin),
        None => {
            let host = request.headers().get(HOST);
            host.is_some_and(|host| host.as_bytes().eq_ignore_ascii_case(origin.as_bytes()))
        }
    }
}

fn is_http(scheme: &str) -> bool {
    scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
}

/// Does the browser say that another page made it send this? `none`: a person typed the address.
fn is_fetched_elsewhere(headers: &HeaderMap) -> bool {
    let mut sites = headers.get_all(SEC_FETCH_SITE).iter();
    sites.any(|site| !matches!(site.as_bytes(), b"same-origin" | b"none"))
}

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
