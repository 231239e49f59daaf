//! Pools and their endpoints.

use std::collections::BTreeSet;

use config::Reader;
use config::document::Value;
use http::{HeaderName, HeaderValue};
use policy::classify::Rule;
use policy::jitter::RetryAfterJitter;
use policy::ladder::{LadderOptions, LadderSettings};
use policy::pool::Balance;
use policy::setting::Kind;
use url::Url;

use super::http::{PoolTimeouts, TimeoutOptions};
use super::rule;
use super::secret::Secret;
use super::tls;
use super::value;
use crate::tls::{Http2Mode, Transport};

policy::settings! {
    /// What is written in `[pool.NAME]`.
    pub struct PoolOptions;
    /// The values of `[pool.NAME]`.
    pub struct PoolValues(pub) {
        /// Which endpoint is chosen: least_loaded, round_robin or first (in the order of the list).
        balance: Balance = "least_loaded", Balance::KIND;
        /// Which backoff its requests have.
        backoff: String = "standard", Kind::NameOf("backoff");
        /// What is added to a wait that the server names, instead of what the backoff has.
        retry_after_jitter: RetryAfterJitter = "10%", RetryAfterJitter::KIND;
        /// Send POST and PATCH again even if the server may have acted; only if it can bear that.
        retry_unsafe: bool = "false", Kind::Switch;
        /// The credential to refresh when an endpoint answers 401.
        credential: String = none, Kind::NameOf("credential"), example "crm";
    }

    /// What is written about an endpoint.
    pub struct EndpointOptions {
        /// Its name within the pool.
        name: String = none, value::ENDPOINT_NAME;
        /// The URL that the rest of a request's path is appended to.
        url: String = none, value::URL;
        /// Certificates that its server may have been signed by, besides the system's.
        ca: String = none, value::FILE;
        /// The client certificate.
        client_cert: String = none, value::FILE;
        /// The private key of that certificate.
        client_key: String = none, value::FILE;
        /// Whether HTTP/2 is used: auto, off or prior_knowledge.
        http2: Http2Mode = "auto", Http2Mode::KIND;
    }
}

/// `[pool.NAME]`: endpoints that can do the same work.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolSettings {
    /// Its name, the first part of the path it is served at.
    pub name: String,
    /// Which endpoint is asked first.
    pub balance: Balance,
    /// At least one; every name is there once.
    pub endpoints: Vec<EndpointSettings>,
    /// The name of a section `[backoff.NAME]`, which exists.
    pub backoff: String,
    /// What is added to a wait that the server names.
    pub retry_after_jitter: RetryAfterJitter,
    /// Requests are sent again even if the server may have acted on them.
    pub retry_unsafe: bool,
    /// The name of a section `[credential.NAME]`, which exists.
    pub credential: Option<String>,
    /// When an endpoint is paused and disabled.
    pub protection: LadderSettings,
    /// What the owner of the settings knows of the responses.
    pub rules: Vec<Rule>,
    /// Timeouts of `[http]` that are others here.
    pub timeouts: PoolTimeouts,
}

/// One member of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSettings {
    /// Its name within the pool.
    pub name: String,
    /// What the rest of a request's path is put behind.
    pub url: Url,
    /// Headers that every request gets, with names in lower case. Their values are never shown.
    pub headers: Vec<(String, Secret)>,
    /// How its server is spoken to.
    pub transport: Transport,
}

impl PoolSettings {
    pub(crate) fn read(name: &str, reader: &Reader<'_>) -> Self {
        let values = reader.options::<PoolOptions>().over(PoolValues::default());
        let protection = reader.table("protection");
        let ladder: LadderOptions = protection.options();
        Self {
            name: name.to_owned(),
            balance: values.balance,
            endpoints: read_endpoints(reader),
            backoff: values.backoff,
            retry_after_jitter: values.retry_after_jitter,
            retry_unsafe: values.retry_unsafe,
            credential: values.credential,
            protection: protection.built(ladder.build(), None).unwrap_or_default(),
            rules: rule::read(reader),
            timeouts: reader.options::<TimeoutOptions>().into(),
        }
    }

    /// Are its endpoints paused and disabled on errors?
    pub fn is_protected(&self) -> bool {
        self.protection.protects(self.endpoints.len())
    }
}

fn read_endpoints(pool: &Reader<'_>) -> Vec<EndpointSettings> {
    let is_empty = match pool.node("endpoints").map(|node| &node.value) {
        None => true,
        Some(Value::List(list)) => list.is_empty(),
        Some(_) => false,
    };
    if is_empty {
        pool.report("endpoints", "is missing, expected at least one endpoint such as `{ name = \"a\", url = \"https://a.example.com\" }`");
    }
    let mut names = BTreeSet::new();
    let mut endpoints = Vec::new();
    for reader in pool.list("endpoints") {
        for name in ["name", "url"] {
            reader.require(name, "a value");
        }
        let options = reader.options::<EndpointOptions>();
        let headers = read_headers(&reader.table("headers"));
        if let Some(name) = &options.name
            && !names.insert(name.clone())
        {
            reader.expected("name", "a name that no other endpoint of the pool has");
        }
        let url = options.url.and_then(|url| value::http_url(&url).ok());
        let http2 = options.http2.unwrap_or_default();
        let transport = tls::read_transport(&reader, url.as_ref(), http2);
        if let (Some(name), Some(url)) = (options.name, url) {
            endpoints.push(EndpointSettings {
                name,
                url,
                headers,
                transport,
            });
        }
    }
    endpoints
}

/// The name of an endpoint.
pub(crate) fn endpoint_name(text: &str) -> Result<String, &'static str> {
    let is_fine = |c: char| !c.is_control() && c != '/';
    if text.is_empty() || text.chars().count() > 64 || !text.chars().all(is_fine) {
        return Err("a name of up to 64 characters without `/`");
    }
    Ok(text.to_owned())
}

/// Headers as requests carry them. Their values are never shown.
pub(crate) fn header_fields(headers: &[(String, Secret)]) -> Vec<(HeaderName, HeaderValue)> {
    let fields = headers.iter().filter_map(|(name, value)| {
        let name: HeaderName = name.parse().ok()?;
        let mut value = HeaderValue::from_str(value.expose()).ok()?;
        value.set_sensitive(true);
        Some((name, value))
    });
    fields.collect()
}

/// Headers that every request gets, with secrets as references.
pub(super) fn read_headers(reader: &Reader<'_>) -> Vec<(String, Secret)> {
    let mut headers: Vec<(String, Secret)> = Vec::new();
    for (written, node) in reader.nodes() {
        let name = match value::header_name(written) {
            Ok(name) if OURS.contains(&&*name) => {
                reader.report(
                    written,
                    "is set for every request anyway, expected another header",
                );
                continue;
            }
            Ok(name) => name,
            Err(expected) => {
                reader.report(written, format!("wrong name, expected {expected}"));
                continue;
            }
        };
        if headers.iter().any(|(known, _)| *known == name) {
            reader.report(
                written,
                "is given twice, in different letters; expected once",
            );
            continue;
        }
        let kind = Kind::Secret {
            literal: !is_secret(&name),
        };
        if let Some(value) = reader.value(node, &kind, &reader.key(written)) {
            headers.push((name, Secret::new(value)));
        }
    }
    headers
}

/// The name of a header that every request to an endpoint gets.
pub(crate) fn endpoint_header(written: &str) -> Result<String, &'static str> {
    let name = value::header_name(written)?;
    if OURS.contains(&&*name) {
        return Err("another header; this one is set for every request anyway");
    }
    Ok(name)
}

/// Headers of a connection, not of a request: changing them breaks its framing.
const OURS: [&str; 6] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "te",
    "upgrade",
];

/// Does a header of this name usually carry a secret? Then its value has to be a reference.
pub(crate) fn is_secret(name: &str) -> bool {
    const PARTS: [&str; 10] = [
        "auth",
        "authorization",
        "cookie",
        "key",
        "apikey",
        "token",
        "secret",
        "password",
        "signature",
        "session",
    ];
    name.split(['-', '_', '.'])
        .any(|part| PARTS.contains(&part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognizes_headers_that_carry_secrets_by_name() {
        for name in [
            "authorization",
            "x-api-key",
            "proxy-authorization",
            "cookie",
            "x-auth-token",
            "apikey",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in [
            "user-agent",
            "anthropic-version",
            "accept",
            "openai-organization",
            "x-keyboard",
        ] {
            assert!(!is_secret(name), "{name}");
        }
    }
}
