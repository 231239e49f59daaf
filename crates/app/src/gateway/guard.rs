//! Decides which requests are served: by the name that the client used, the web page it comes from,
//! its token and the size of its head.

use std::net::SocketAddr;

use http::{HeaderMap, HeaderName, Method, Request, Version};
use subtle::ConstantTimeEq;

use super::cross_site::{Origins, Source, is_preflight};
use super::error::GatewayError;
use crate::host_check::{AcceptedHosts, one_host};
use crate::settings::Settings;

/// Decides which requests are served.
#[derive(Debug)]
pub(crate) struct Guard {
    hosts: AcceptedHosts,
    pub(super) origins: Origins,
    /// The tokens of clients, with their names.
    tokens: Vec<(String, Box<[u8]>)>,
}

impl Guard {
    pub(crate) fn new(settings: &Settings, address: SocketAddr) -> Self {
        let tokens = settings.clients.iter();
        Self {
            hosts: AcceptedHosts::new(settings, address),
            origins: Origins::new(&settings.server.origins),
            tokens: tokens
                .map(|(name, client)| (name.clone(), client.token.expose().as_bytes().into()))
                .collect(),
        }
    }

    /// Checks a request that comes from `source`. A preflight needs no token: browsers send none.
    pub(super) fn check<B>(
        &self,
        request: &Request<B>,
        source: &Source,
    ) -> Result<(), GatewayError> {
        let headers = request.headers();
        if is_too_large(headers) {
            return Err(GatewayError::HeadersTooLarge);
        }
        // Without a `Host`, or with two, servers may disagree about whom a request is for (RFC 9112,
        // section 3.2).
        let host = one_host(headers).map_err(|_| GatewayError::BadRequest)?;
        if host.is_none() && request.version() == Version::HTTP_11 {
            return Err(GatewayError::BadRequest);
        }
        // Requests to a proxy look like this. Names of this gateway are served.
        if request.method() == Method::CONNECT {
            return Err(GatewayError::HostNotAllowed);
        }
        if let Some(authority) = request.uri().authority()
            && !self.hosts.accepts(authority)
        {
            // In HTTP/2 it is what `Host` is elsewhere.
            return Err(match request.version() {
                Version::HTTP_2 => GatewayError::WrongHost,
                _ => GatewayError::HostNotAllowed,
            });
        }
        if request.uri().authority().is_none() && !self.hosts.accepts_host(host) {
            return Err(GatewayError::WrongHost);
        }
        if *source == Source::CrossSite {
            return Err(GatewayError::CrossSite);
        }
        if !is_preflight(request) && !self.has_token(headers) {
            return Err(GatewayError::NoToken);
        }
        Ok(())
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
        for (_, token) in &self.tokens {
            is_known |= token.ct_eq(given.as_bytes());
        }
        is_known.into()
    }

    /// The client that sent a request, as operations know it: another name than that of the admin
    /// API, which is empty.
    pub(super) fn client(&self, headers: &HeaderMap) -> String {
        let given = headers
            .get(&TOKEN)
            .map_or(&b""[..], |token| token.as_bytes());
        let mut tokens = self.tokens.iter();
        let known = tokens.find(|(_, token)| bool::from(token.ct_eq(given)));
        format!("client:{}", known.map_or("", |(name, _)| name))
    }
}

const TOKEN: HeaderName = HeaderName::from_static("tidegate-token");

/// More than servers take.
const MAX_HEADERS: usize = 100;
const MAX_HEADER_BYTES: usize = 64 << 10;

fn is_too_large(headers: &HeaderMap) -> bool {
    let bytes = || {
        headers
            .iter()
            .map(|(name, value)| name.as_str().len() + value.len() + 4)
    };
    headers.len() > MAX_HEADERS || bytes().sum::<usize>() > MAX_HEADER_BYTES
}
