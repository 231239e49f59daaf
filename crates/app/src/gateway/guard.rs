//! Decides which requests are served: by the name that the client used, the web page it comes from,
//! its token, how much it has sent, and the size of its head.

use std::net::SocketAddr;

use http::{HeaderMap, Method, Request, Version};
use policy::time::Timestamp;

use super::clients::{ClientIndex, Clients};
use super::cross_site::{Origins, Source, is_preflight};
use super::error::GatewayError;
use super::forward::ForwardTarget;
use crate::host_check::{AcceptedHosts, one_host};
use crate::settings::{Forward, Settings};

/// Decides which requests are served.
#[derive(Debug)]
pub(crate) struct Guard {
    hosts: AcceptedHosts,
    pub(super) origins: Origins,
    clients: Clients,
    forward: Forward,
}

/// A request that may be served.
#[derive(Debug)]
pub(super) struct CheckedRequest {
    /// Who sent it, if clients have tokens.
    pub(super) client: Option<ClientIndex>,
    /// The server that it names, if it is one to a proxy.
    pub(super) target: Option<Box<ForwardTarget>>,
}

impl Guard {
    /// What these settings say. Clients that `before` has go on with what they have sent.
    pub(crate) fn new(settings: &Settings, address: SocketAddr, before: Option<&Self>) -> Self {
        Self {
            hosts: AcceptedHosts::new(settings, address),
            origins: Origins::new(&settings.server.origins),
            clients: Clients::new(settings, before.map(|before| &before.clients)),
            forward: settings.forward.clone(),
        }
    }

    /// Checks a request that comes from `source`. A preflight needs no token: browsers send none.
    pub(super) fn check<B>(
        &self,
        request: &Request<B>,
        source: &Source,
    ) -> Result<CheckedRequest, GatewayError> {
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
        let is_connect = request.method() == Method::CONNECT;
        if is_connect || request.uri().authority().is_some() {
            if let Some(checked) = self.check_proxied(request)? {
                return Ok(checked);
            }
        } else if !self.hosts.accepts_host(host) {
            return Err(GatewayError::WrongHost);
        }
        if *source == Source::CrossSite {
            return Err(GatewayError::CrossSite);
        }
        let client = match is_preflight(request) {
            true => None,
            false => self
                .clients
                .find(headers)
                .map_err(|_| GatewayError::NoToken)?,
        };
        Ok(CheckedRequest {
            client,
            target: None,
        })
    }

    /// Checks a request that names its server itself, as those to a proxy do. `None` if that is this
    /// gateway.
    fn check_proxied<B>(
        &self,
        request: &Request<B>,
    ) -> Result<Option<CheckedRequest>, GatewayError> {
        if let Some(target) = ForwardTarget::of(request, &self.forward, &self.hosts)? {
            // First, so that only clients learn which hosts are allowed.
            let client = self.clients.find_proxied(request.headers());
            let client = client.map_err(|_| GatewayError::NoProxyToken)?;
            return match self.forward.allows(target.host()) {
                true => Ok(Some(CheckedRequest {
                    client,
                    target: Some(Box::new(target)),
                })),
                false => Err(GatewayError::HostNotAllowed),
            };
        }
        match request.uri().authority() {
            Some(authority) if request.method() != Method::CONNECT => {
                match (self.hosts.accepts(authority), request.version()) {
                    (true, _) => Ok(None),
                    // In HTTP/2 it is what `Host` is elsewhere.
                    (false, Version::HTTP_2) => Err(GatewayError::WrongHost),
                    (false, _) => Err(GatewayError::HostNotAllowed),
                }
            }
            _ => Err(GatewayError::HostNotAllowed),
        }
    }

    /// Counts a request of this client, unless it is one too many.
    pub(super) fn count(
        &self,
        client: Option<ClientIndex>,
        now: impl FnOnce() -> Timestamp,
    ) -> Result<(), GatewayError> {
        self.clients.count(client, now)
    }

    /// A client, as operations know it: another name than that of the admin API, which is empty.
    pub(super) fn client_name(&self, client: Option<ClientIndex>) -> String {
        format!("client:{}", self.clients.name(client))
    }

    /// The name of the client that sent a request; `None` if it has no token that is known.
    pub(super) fn known_client(&self, headers: &HeaderMap) -> Option<&str> {
        let client = self.clients.find_proxied(headers).ok()?;
        client.map(|_| self.clients.name(client))
    }
}

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
