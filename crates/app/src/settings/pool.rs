//! Pools and their endpoints.

use std::collections::BTreeSet;

use policy::classify::Rule;
use policy::ladder::{LadderOptions, LadderSettings};
use policy::pool::Balance;
use policy::setting;
use url::Url;

use super::document::Value;
use super::operation::Names;
use super::problem::{Problem, join};
use super::reader::Section;
use super::rule;
use super::secret::{Literal, Secret};
use super::value;

/// `[pool.NAME]`: endpoints that can do the same work.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// Its name, the first part of the path it is served at.
    pub name: String,
    /// Which endpoint is asked first.
    pub balance: Balance,
    /// At least one; every name is there once.
    pub endpoints: Vec<Endpoint>,
    /// The name of a section `[backoff.NAME]`, which exists.
    pub backoff: String,
    /// Requests that may have been acted upon are sent again, too.
    pub retry_unsafe: bool,
    /// The name of a section `[credential.NAME]`, which exists.
    pub credential: Option<String>,
    /// When an endpoint is paused and disabled.
    pub protection: LadderSettings,
    /// What the owner of the settings knows of the answers.
    pub rules: Vec<Rule>,
}

/// One member of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its name within the pool.
    pub name: String,
    /// What the rest of a request's path is put behind.
    pub url: Url,
    /// Headers that every request gets, with names in lower case. Their values are never shown.
    pub headers: Vec<(String, Secret)>,
}

impl Pool {
    pub(crate) fn read(name: &str, section: &Section<'_>, names: &Names) -> Self {
        Self {
            name: name.to_owned(),
            balance: section.read("balance", str::parse).unwrap_or_default(),
            endpoints: endpoints(section),
            backoff: names
                .backoff(section)
                .unwrap_or_else(|| "standard".to_owned()),
            retry_unsafe: section
                .read("retry_unsafe", setting::switch)
                .unwrap_or(false),
            credential: names.credential(section),
            protection: read_protection(&section.section("protection")),
            rules: rule::read(section),
        }
    }

    /// Are its endpoints paused and disabled on errors?
    pub fn is_protected(&self) -> bool {
        self.protection.protects(self.endpoints.len())
    }
}

fn read_protection(section: &Section<'_>) -> LadderSettings {
    let mut options = LadderOptions::default();
    // Texts may have commas, which part the lists that policies read.
    let others = LadderOptions::NAMES.iter().copied();
    let others: Vec<&str> = others.filter(|name| *name != "texts").collect();
    section.fill(&others, |name, text| options.set(name, text));
    let texts = section.list("texts", value::filled);
    options.texts = texts.map(|texts| texts.into_iter().map(Into::into).collect());
    section.built(options.build()).unwrap_or_default()
}

fn endpoints(section: &Section<'_>) -> Vec<Endpoint> {
    let tables = section.tables("endpoints");
    let has_none = match section.node("endpoints").map(|node| &node.value) {
        None => true,
        Some(Value::List(list)) => list.is_empty(),
        Some(_) => false,
    };
    if has_none {
        let what = "is missing, expected at least one endpoint such as `{ name = \"a\", url = \"https://a.example.com\" }`";
        let place = section.place_of("endpoints");
        let problem = Problem::about(&place, section.key("endpoints"), what);
        section.reader.report(problem);
    }
    let mut names = BTreeSet::new();
    let mut endpoints = Vec::new();
    for table in tables {
        let name = table.require("name", endpoint_name);
        let url = table.require_url("url");
        let headers = headers(&table);
        if let Some(name) = &name
            && !names.insert(name.clone())
        {
            table.expected("name", "a name that no other endpoint of the pool has");
        }
        if let (Some(name), Some(url)) = (name, url) {
            endpoints.push(Endpoint { name, url, headers });
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

fn headers(section: &Section<'_>) -> Vec<(String, Secret)> {
    let headers = section.section("headers");
    let mut read: Vec<(String, Secret)> = Vec::new();
    for (written, node) in headers.nodes() {
        let path = join(&headers.path, written);
        let name = match value::header_name(written) {
            Ok(name) if !OURS.contains(&&*name) => name,
            Ok(_) => {
                let what = "is set for every request anyway, expected another header";
                headers
                    .reader
                    .report(Problem::about(&node.place, path, what));
                continue;
            }
            Err(expected) => {
                let what = format!("wrong name, expected {expected}");
                headers
                    .reader
                    .report(Problem::about(&node.place, path, what));
                continue;
            }
        };
        if read.iter().any(|(known, _)| *known == name) {
            let what = "is given twice, in different letters; expected once";
            headers
                .reader
                .report(Problem::about(&node.place, path, what));
            continue;
        }
        let literal = if is_secret(&name) {
            Literal::Refused
        } else {
            Literal::Allowed
        };
        if let Some(value) = headers.resolve(node, &path, literal) {
            read.push((name, value));
        }
    }
    read
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
fn is_secret(name: &str) -> bool {
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
    fn headers_that_carry_secrets_are_known_by_their_names() {
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
