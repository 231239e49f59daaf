//! Who may ask: the name a caller used for us, its token, and the size of its head.
//!
//! A browser can be made to send requests to localhost by any page, under a name of that page's
//! owner. Hence only names that are known to be ours are answered.

use std::net::{IpAddr, SocketAddr};

use http::uri::Authority;
use http::{HeaderMap, HeaderName, Method, Request, header};
use subtle::ConstantTimeEq;

use super::problem::Own;
use crate::settings::Settings;

/// Who may ask.
#[derive(Debug)]
pub(crate) struct Guard {
    /// Where we listen.
    address: SocketAddr,
    /// Other names of ours.
    hosts: Vec<String>,
    tokens: Vec<Box<[u8]>>,
}

impl Guard {
    pub(crate) fn new(settings: &Settings, address: SocketAddr) -> Self {
        let tokens = settings.clients.values();
        Self {
            address,
            hosts: settings.server.hosts.clone(),
            tokens: tokens
                .map(|client| client.token.expose().as_bytes().into())
                .collect(),
        }
    }

    /// May this request be looked at?
    pub(crate) fn check<B>(&self, request: &Request<B>) -> Result<(), Own> {
        let headers = request.headers();
        if is_too_large(headers) {
            return Err(Own::HeadersTooLarge);
        }
        // A proxy is asked for other hosts like this. Ours may be named so, too.
        if request.method() == Method::CONNECT {
            return Err(Own::HostNotAllowed);
        }
        if let Some(authority) = request.uri().authority()
            && !self.is_ours(authority)
        {
            return Err(Own::HostNotAllowed);
        }
        if request.uri().authority().is_none() && !self.is_host_ours(headers) {
            return Err(Own::WrongHost);
        }
        if !self.has_token(headers) {
            return Err(Own::NoToken);
        }
        Ok(())
    }

    fn is_host_ours(&self, headers: &HeaderMap) -> bool {
        let mut hosts = headers.get_all(header::HOST).iter();
        match (hosts.next(), hosts.next()) {
            // HTTP/1.0 knows no `Host`, and no browser speaks it.
            (None, _) => true,
            (Some(host), None) => {
                let authority = Authority::try_from(host.as_bytes());
                authority.is_ok_and(|authority| self.is_ours(&authority))
            }
            (Some(_), Some(_)) => false,
        }
    }

    fn is_ours(&self, authority: &Authority) -> bool {
        let host = authority.host().trim_end_matches('.');
        let is_named = self
            .hosts
            .iter()
            .any(|ours| ours.eq_ignore_ascii_case(host));
        // What names an address, not a name: a browser's page has none of these.
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
        let is_address = address.is_ok_and(|address| {
            address.is_loopback()
                || address == self.address.ip()
                || self.address.ip().is_unspecified()
        });
        is_named || is_address || host.eq_ignore_ascii_case("localhost")
    }

    fn has_token(&self, headers: &HeaderMap) -> bool {
        if self.tokens.is_empty() {
            return true;
        }
        let Some(given) = headers.get(&TOKEN) else {
            return false;
        };
        // All are compared, each in full, so that the time says nothing about them.
        let mut is_known = subtle::Choice::from(0);
        for token in &self.tokens {
            is_known |= token.ct_eq(given.as_bytes());
        }
        is_known.into()
    }
}

const TOKEN: HeaderName = HeaderName::from_static("tidegate-token");

/// More than any server takes.
const MOST_HEADERS: usize = 200;
const MOST_HEADER_BYTES: usize = 64 << 10;

fn is_too_large(headers: &HeaderMap) -> bool {
    let bytes = || {
        headers
            .iter()
            .map(|(name, value)| name.as_str().len() + value.len() + 4)
    };
    headers.len() > MOST_HEADERS || bytes().sum::<usize>() > MOST_HEADER_BYTES
}
